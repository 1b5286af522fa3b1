"""Definitions of schemas, in whatever language they are."""

from __future__ import annotations

from typing import Protocol, Self

from pubsub_aio._wire import schema
from pubsub_aio.emulator.schemas.errors import SchemaError
from pubsub_aio.emulator.status import Code, StatusError, invalid

MAX_DEFINITION_BYTES = 300_000


class Definition(Protocol):
    """A definition that was understood. Its checks raise SchemaError."""

    def check_binary(self, data: bytes) -> None:
        """Refuse data that is not one message in the binary encoding."""

    def check_json(self, data: bytes) -> None:
        """Refuse data that is not one message in the JSON encoding."""

    def check_follows(self, last: Self) -> None:
        """Refuse to be the revision after that one."""


def define(config: schema.Schema) -> Definition:
    """Understand a definition; the libraries for that are loaded with the first of their kind."""
    compiled = getattr(config, "compiled_proto_schema", None)  # the newest of the API
    if compiled and config.HasField("compiled_proto_schema"):
        field, data = "schema.compiled_proto_schema", compiled.compiled_bytes
    else:
        field, data = "schema.definition", config.definition.encode()
    if not data:
        raise invalid(field, "must be given")
    if len(data) > MAX_DEFINITION_BYTES:
        raise invalid(field, f"{len(data)} bytes is more than {MAX_DEFINITION_BYTES}")
    try:
        return _understood(config)
    except SchemaError as error:
        raise invalid(field, str(error)) from None
    except ModuleNotFoundError as error:
        raise StatusError(
            Code.UNIMPLEMENTED,
            f'schemas need {error.name}, which is missing: pip install "pubsub-aio[emulator]"',
        ) from None


def _understood(config: schema.Schema) -> Definition:
    if config.type_ == schema.Schema.Type.PROTOCOL_BUFFER:
        from pubsub_aio.emulator.schemas.protobuf import ProtobufDefinition

        if config.definition:
            return ProtobufDefinition.from_text(config.definition)
        compiled = config.compiled_proto_schema
        return ProtobufDefinition.from_descriptors(compiled.compiled_bytes, compiled.root_message)
    if config.type_ == schema.Schema.Type.AVRO:
        if not config.definition:
            raise invalid("schema.definition", "must be given for AVRO")
        from pubsub_aio.emulator.schemas.avro import AvroDefinition

        return AvroDefinition(config.definition)
    raise invalid("schema.type", "must be AVRO or PROTOCOL_BUFFER")


def check_message(definition: Definition, encoding: int, data: bytes) -> None:
    """Refuse data that is not one message in that encoding.

    Raises:
        SchemaError: It is not.
    """
    if encoding == schema.Encoding.BINARY:
        definition.check_binary(data)
    else:
        definition.check_json(data)


def check_encoding(encoding: int, *, field: str) -> None:
    """Refuse an encoding that is none."""
    if encoding not in (schema.Encoding.JSON, schema.Encoding.BINARY):
        raise invalid(field, "must be JSON or BINARY")

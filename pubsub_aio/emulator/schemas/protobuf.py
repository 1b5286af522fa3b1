"""Schemas in protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from pubsub_aio.emulator.schemas.errors import SchemaError
from pubsub_aio.emulator.schemas.protoc import compile_proto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.message import Message

_SYNTAXES = ("", "proto2", "proto3")
_REQUIRED = 2  # FieldDescriptorProto.LABEL_REQUIRED


class ProtobufDefinition:
    """A definition that was understood; see `Definition`."""

    def __init__(self, files: Iterable[FileDescriptorProto], root: str) -> None:
        self._pool = DescriptorPool()
        self._type = DescriptorProto()
        try:
            for file in files:
                self._pool.Add(file)
            found = self._pool.FindMessageTypeByName(root)
            found.CopyToProto(self._type)
            self._message = GetMessageClass(found)
        except KeyError:
            raise SchemaError(f"there is no message {root!r}") from None
        except Exception as error:  # noqa: BLE001 - of any kind, all about the definition
            raise SchemaError(f"it cannot be used: {error}") from None

    @classmethod
    def from_text(cls, definition: str) -> Self:
        """The one message that the text of a `.proto` file defines."""
        file = compile_proto(definition)
        _check_file(file)
        return cls([file], f"{file.package}.{file.message_type[0].name}".lstrip("."))

    @classmethod
    def from_descriptors(cls, data: bytes, root: str) -> Self:
        """A message of a FileDescriptorSet; each file comes after those that it imports."""
        try:
            files = FileDescriptorSet.FromString(data).file
        except DecodeError as error:
            raise SchemaError(f"not a FileDescriptorSet: {error}") from None
        return cls(files, root)

    def check_binary(self, data: bytes) -> None:
        """Refuse data that is not one message in the binary encoding.

        Fields that the definition does not have are refused, too. Protobuf would ignore them, but
        then every revision would take what is meant for any other.
        """
        try:
            message = self._message.FromString(data)
        except Exception as error:  # noqa: BLE001 - of any kind, all about the data
            raise SchemaError(str(error) or repr(error)) from None
        _check_complete(message)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            raise SchemaError(_unknown(self._message.FromString(data)))

    def check_json(self, data: bytes) -> None:
        """Refuse data that is not one message in the JSON encoding."""
        try:
            message = json_format.Parse(data.decode(), self._message(), descriptor_pool=self._pool)
        except UnicodeDecodeError:
            raise SchemaError("not JSON: not UTF-8") from None
        except RecursionError:
            raise SchemaError("nested too deeply") from None
        except Exception as error:  # noqa: BLE001 - of any kind, all about the data
            raise SchemaError(str(error) or repr(error)) from None
        _check_complete(message)

    def check_follows(self, last: Self) -> None:
        """Refuse to follow a definition but for optional fields more or fewer."""
        if self._type.name != last._type.name:
            raise SchemaError(f"the message {last._type.name} is now called {self._type.name}")
        _check_fields(last._type, self._type)


def _check_file(file: FileDescriptorProto) -> None:
    if file.syntax not in _SYNTAXES:
        raise SchemaError("editions are not supported; say proto2 or proto3")
    kinds = len(file.message_type) + len(file.enum_type)
    if not file.message_type or kinds > 1:
        raise SchemaError(
            f"there must be one message at the top level, not {kinds} types; "
            "define the others inside it"
        )


def _check_complete(message: Message) -> None:
    if not message.IsInitialized():
        missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]
        raise SchemaError(f"required fields are missing: {', '.join(missing[:5])}")


def _unknown(message: Message) -> str:
    """What is in a message, at any depth, that its type does not have."""
    unknown: Any
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        name = message.DESCRIPTOR.name
        return f"{name} has no field {unknown.field_number}, or no such value in it"
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in _messages(value):
                if found := _unknown(inner):
                    return f"{field.name}: {found}"
    return ""


def _messages(value: Any) -> list[Message]:
    if hasattr(value, "DESCRIPTOR"):
        return [value]
    values = value.values() if hasattr(value, "values") else value
    return [each for each in values if hasattr(each, "DESCRIPTOR")]


def _check_fields(last: DescriptorProto, new: DescriptorProto) -> None:
    """Refuse a message that changes a field, or adds or lacks one that is required."""
    olds, news = ({each.number: each for each in of.field} for of in (last, new))
    for number in olds.keys() | news.keys():
        if number not in olds or number not in news:
            only = olds.get(number) or news[number]
            if only.label == _REQUIRED:
                raise SchemaError(f"the required field {only.name} is not in both").within(new.name)
        elif _facts(olds[number], last) != _facts(news[number], new):
            raise SchemaError(f"the field {olds[number].name} is another now").within(new.name)
    nested = {each.name: each for each in last.nested_type}
    for each in new.nested_type:
        if each.name in nested:
            try:
                _check_fields(nested[each.name], each)
            except SchemaError as error:
                raise error.within(new.name) from None


def _facts(field: FieldDescriptorProto, message: DescriptorProto) -> tuple[object, ...]:
    """What must stay as it is."""
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    facts = (field.name, field.label, field.type, field.type_name, field.default_value)
    return (*facts, field.proto3_optional, oneof)

"""Which message type is meant, as something that can be sent to a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_database, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from pubsub_aio.errors import ConfigError

_CALENDAR_PACKAGE = "google.type"
_CALENDAR = {".google.type.Date", ".google.type.TimeOfDay"}


@dataclass(frozen=True)
class MessageType:
    """A message type.

    Args:
        files: The file descriptor set that it is in, with all that it needs.
        name: Its full name.
    """

    files: bytes
    name: str

    def message_class(self) -> Any:
        """Its class, in a descriptor pool of its own."""
        database = descriptor_database.DescriptorDatabase()
        for file in FileDescriptorSet.FromString(self.files).file:
            database.Add(file)
        pool = descriptor_pool.DescriptorPool(database)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(self.name))


def message_type(message: object) -> MessageType:
    """The message type that an argument stands for.

    Raises:
        ConfigError: It stands for none, or for one that columns cannot hold.
    """
    descriptor = _descriptor(message)
    if not descriptor.fields:
        raise ConfigError(f"message {descriptor.full_name} has no fields")
    _check_fields(descriptor, "", (descriptor.full_name,))
    files: dict[str, FileDescriptorProto] = {}
    _collect(descriptor.file, files)
    for file in files.values():
        _rename_calendar(file)
    name = _renamed(f".{descriptor.full_name}").removeprefix(".")
    return MessageType(FileDescriptorSet(file=files.values()).SerializeToString(), name)


def _descriptor(message: object) -> Descriptor:
    descriptor = message
    if isinstance(message, type):
        descriptor = getattr(message, "DESCRIPTOR", None)
    elif isinstance(message, tuple) and [*map(type, message)] == [bytes, str]:
        descriptor = _found(MessageType(*message))
    if isinstance(descriptor, Descriptor):
        return descriptor
    raise ConfigError(
        "message must be a generated class, a descriptor, or the bytes of a file descriptor set "
        f"and the full name of a message, not {message!r:.200}"
    )


def _found(wanted: MessageType) -> object:
    try:
        return wanted.message_class().DESCRIPTOR
    except DecodeError as error:
        raise ConfigError(f"message begins with no file descriptor set: {error}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"message {wanted.name!r} is not whole in the file descriptor set, which should be "
            f"made with --include_imports: {error}"
        ) from error


def _check_fields(descriptor: Descriptor, path: str, within: tuple[str, ...]) -> None:
    for field in descriptor.fields:
        here = f"{path}{field.name}"
        if field.type == field.TYPE_GROUP:
            raise ConfigError(
                f"the field {here!r} of the message is a group, which ptars leaves out"
            )
        if (inner := field.message_type) is None:
            continue
        name = inner.full_name
        if name in within:
            raise ConfigError(f"the field {here!r} of the message is a {name} inside a {name}")
        _check_fields(inner, f"{here}.", (*within, name))


def _collect(file: FileDescriptor, files: dict[str, FileDescriptorProto]) -> None:
    """Add a file and all that it imports."""
    if file.name in files:
        return
    files[file.name] = FileDescriptorProto()
    file.CopyToProto(files[file.name])
    if files[file.name].syntax == "editions":
        raise ConfigError(f"message needs {file.name}, which has an edition; ptars knows none")
    for dependency in file.dependencies:
        _collect(dependency, files)


# ptars makes a date of a `google.type.Date`, and a wrong one where day, month or year is left out,
# as it may be. Under another name, which no byte of a message depends on, it is a struct.


def _rename_calendar(file: FileDescriptorProto) -> None:
    for message in file.message_type:
        if file.package == _CALENDAR_PACKAGE:
            message.name = _renamed(f".{file.package}.{message.name}").rpartition(".")[2]
        for field in _fields(message):
            if field.type_name in _CALENDAR:
                field.type_name = _renamed(field.type_name)


def _renamed(type_name: str) -> str:
    return f"{type_name}Fields" if type_name in _CALENDAR else type_name


def _fields(message: DescriptorProto) -> Iterator[FieldDescriptorProto]:
    yield from message.field
    for inner in message.nested_type:
        yield from _fields(inner)

"""Settings in a file as the API's messages: any field of any of them, by its name there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from google.protobuf import json_format

from pubsub_aio._wire import schema
from pubsub_aio.emulator.seeds import scalars
from pubsub_aio.emulator.seeds.bare import OUTPUT_ONLY
from pubsub_aio.emulator.seeds.files import read_text
from pubsub_aio.emulator.seeds.mistakes import Mistakes, joined, nearest
from pubsub_aio.emulator.seeds.tree import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_FROM_FILES = {"definition", "code"}
"""Texts that may stand in a file of their own: `definition_file`, `code_file`."""

_FILE = "_file"


class Settings:
    """The settings of one resource, as a message, and where each of them stands.

    Attributes:
        message: What they are gathered in.
        path: Where they stand, such as `topics.orders`.
        at: The place of all of them.
        places: The place of each field, by its path in the message.
    """

    def __init__(self, message: Message, path: str, at: Node) -> None:
        self.message = message
        self.path = path
        self.at = at
        self.places: dict[str, Node] = {}

    def place(self, field: str) -> Node:
        """Where a field stands, or else what it is part of."""
        while field and field not in self.places:
            field = re.sub(r"(^|\.)[^.\[]*$|\[\d+\]$", "", field)
        return self.places.get(field, self.at)


class SettingsReader:
    """Reads settings; what is wrong is noted, and left out.

    Args:
        mistakes: Where it is noted.
        folder: Where the files are that the settings name.
    """

    def __init__(self, mistakes: Mistakes, folder: Path) -> None:
        self._mistakes = mistakes
        self._folder = folder

    def read(self, settings: Settings, node: Node, *, without: Iterable[str] = ()) -> None:
        """Read what a resource is given.

        Args:
            settings: Where to put it.
            node: What is given: keys and values, or nothing.
            without: Keys that others read.
        """
        settings.places.setdefault("", settings.at)
        if isinstance(node, Scalar) and node.is_null:
            return
        self._fill(settings, settings.message, node, "", set(without))

    def _fill(
        self, settings: Settings, message: Message, node: Node, field: str, without: set[str]
    ) -> None:
        """Set the fields of `message`, which is what stands at `field`."""
        path = joined(settings.path, field) if field else settings.path
        if not isinstance(node, Mapping):
            self._mistakes.add(
                node, path, f"must be settings, each a line `name: value`{_not(node)}"
            )
            return
        kind = cast("Descriptor", message.DESCRIPTOR)
        fields = _fields_of(kind)
        given: dict[str, str] = {}
        for key, value in node.entries:
            if key.text in without:
                continue
            below = joined(path, key.text)
            found = self._field(kind, fields, key, below, without)
            if found is None or (isinstance(value, Scalar) and value.is_null):
                continue
            oneof = found.containing_oneof
            once = oneof.name if oneof and len(oneof.fields) > 1 else found.name
            if once in given:
                other = given[once]
                self._mistakes.add(key, below, f"excludes {other}: leave one of them out")
                continue
            given[once] = key.text
            self._set(settings, message, found, key, value, joined(field, found.name.rstrip("_")))

    def _field(
        self,
        kind: Descriptor,
        fields: dict[str, FieldDescriptor],
        key: Scalar,
        path: str,
        without: set[str],
    ) -> FieldDescriptor | None:
        """The field of that name, if there is one and it can be set."""
        name = key.text
        if name.endswith(_FILE) and name.removesuffix(_FILE) in _FROM_FILES & fields.keys():
            return fields[name.removesuffix(_FILE)]
        found = fields.get(name)
        if found is None:
            known = {field.name.rstrip("_") for field in fields.values()} - OUTPUT_ONLY - {"name"}
            known |= {f"{text}{_FILE}" for text in _FROM_FILES & known} | without
            what = f"no such setting of a {kind.name}{nearest(name, known)}"
            self._mistakes.add(key, path, what)
        elif found.name in OUTPUT_ONLY | {"name"}:
            why = "is the key above" if name == "name" else "is only told by the service"
            self._mistakes.add(key, path, f"{why}: leave it out")
            return None
        return found

    def _set(
        self,
        settings: Settings,
        message: Message,
        field: FieldDescriptor,
        key: Scalar,
        value: Node,
        place: str,
    ) -> None:
        """Set one field from its value."""
        settings.places[place] = value
        path = joined(settings.path, place)
        if key.text.endswith(_FILE) and not field.name.endswith(_FILE):
            text = self._text_of_file(value, joined(settings.path, f"{place}{_FILE}"))
            if text is not None:
                setattr(message, field.name, text)
        elif field.message_type and field.message_type.GetOptions().map_entry:
            self._set_map(message, field, value, path)
        elif field.is_repeated:
            self._set_list(settings, message, field, value, place)
        elif field.message_type and not scalars.is_one_value(field.message_type):
            part = getattr(message, field.name)
            part.SetInParent()
            self._fill(settings, part, value, place, set())
        else:
            read = self._scalar(field, value, path)
            if read is None:
                return
            if field.message_type:
                getattr(message, field.name).CopyFrom(read)
            else:
                setattr(message, field.name, read)

    def _set_map(self, message: Message, field: FieldDescriptor, value: Node, path: str) -> None:
        if not isinstance(value, Mapping):
            self._mistakes.add(value, path, f"must be names with a text each{_not(value)}")
            return
        texts = getattr(message, field.name)
        for key, text in value.entries:
            if not isinstance(text, Scalar) or text.is_null:
                what = 'must be a text; "" is an empty one'
                self._mistakes.add(key, joined(path, key.text), what)
            else:
                texts[key.text] = text.text

    def _set_list(
        self, settings: Settings, message: Message, field: FieldDescriptor, value: Node, place: str
    ) -> None:
        path = joined(settings.path, place)
        if not isinstance(value, Sequence):
            self._mistakes.add(value, path, f"must be a list{_not(value)}")
            return
        target = getattr(message, field.name)
        for index, item in enumerate(value.items):
            at = f"{place}[{index}]"
            settings.places[at] = item
            if field.message_type:
                self._fill(settings, target.add(), item, at, set())
            else:
                read = self._scalar(field, item, joined(settings.path, at))
                if read is not None:
                    target.append(read)

    def _scalar(self, field: FieldDescriptor, value: Node, path: str) -> Any:
        """The value of a field that has one; none if it cannot be."""
        kind = field.message_type
        if kind and kind.full_name == "google.protobuf.Struct":
            return self._struct(value, path)
        if not isinstance(value, Scalar):
            self._mistakes.add(value, path, f"must be a single value{_not(value)}")
            return None
        try:
            return scalars.value_of(field, value)
        except ValueError as error:
            self._mistakes.add(value, path, str(error))
            return None

    def _struct(self, value: Node, path: str) -> Message | None:
        if not isinstance(value, Mapping):
            self._mistakes.add(value, path, f"must be names with a value each{_not(value)}")
            return None
        struct: Message = schema.message_class("google.protobuf.Struct")()
        json_format.ParseDict(scalars.plain(value), struct, descriptor_pool=schema.pool)
        return struct

    def _text_of_file(self, value: Node, path: str) -> str | None:
        if not isinstance(value, Scalar):
            self._mistakes.add(value, path, "must be the path of a file, relative to this one")
            return None
        try:
            return read_text(self._folder / value.text)
        except ValueError as error:
            self._mistakes.add(value, path, f"{value.text}: {error}")
            return None


def _fields_of(kind: Descriptor) -> dict[str, FieldDescriptor]:
    """The fields by either spelling of their names."""
    named = {field.name.rstrip("_"): field for field in kind.fields}
    return {field.json_name: field for field in kind.fields} | named


def _not(node: Node) -> str:
    """What was found instead."""
    if isinstance(node, Scalar):
        return f", not {node.text[:80]!r}"
    return ", not a list" if isinstance(node, Sequence) else ", not settings"

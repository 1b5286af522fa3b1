"""Single values of a file as what a field takes, told by the field and not by how it looks.

A label `no` or `1.10` is the text as it is written; YAML's own rules would make it something else.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor as Field

from pubsub_aio._wire import schema
from pubsub_aio.emulator.seeds.durations import nanos_of
from pubsub_aio.emulator.seeds.mistakes import nearest
from pubsub_aio.emulator.seeds.tree import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from pubsub_aio._wire.schema import Duration, Timestamp

_TRUE, _FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}")
_FLOAT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_BITS = {
    Field.TYPE_INT32: (-(2**31), 2**31 - 1),
    Field.TYPE_INT64: (-(2**63), 2**63 - 1),
    Field.TYPE_UINT32: (0, 2**32 - 1),
    Field.TYPE_UINT64: (0, 2**64 - 1),
}
_ONE_VALUE = {
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "google.protobuf.Struct",
}


def is_one_value(kind: Descriptor) -> bool:
    """Whether a message is written as one value, and not by its fields."""
    return kind.full_name in _ONE_VALUE


def value_of(field: Field, scalar: Scalar) -> Any:
    """What a field is set to. ValueError if it cannot be."""
    if field.message_type:
        if field.message_type.name == "Duration":
            return _duration(scalar.text)
        return _timestamp(scalar.text)
    if field.enum_type:
        return _enum(field, scalar.text)
    if field.type == Field.TYPE_BOOL:
        return _bool(scalar)
    if field.type == Field.TYPE_STRING:
        return scalar.text
    if field.type == Field.TYPE_BYTES:
        return _bytes(scalar.text)
    return _integer(field, scalar.text)


def plain(node: Node) -> Any:
    """A value of no declared type, as JSON has it."""
    if isinstance(node, Mapping):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if not isinstance(node, Scalar) or node.is_null:
        return None
    if not node.plain:
        return node.text
    if node.text.lower() in ("true", "false"):
        return node.text.lower() == "true"
    return float(node.text) if _FLOAT.fullmatch(node.text) else node.text


def _bool(scalar: Scalar) -> bool:
    text = scalar.text.lower()
    if not scalar.plain or text not in _TRUE | _FALSE:
        raise ValueError(f"must be true or false, not {_shown(scalar)}")
    return text in _TRUE


def _integer(field: Field, text: str) -> int:
    number: int | None = int(text) if _INTEGER.fullmatch(text) else None
    if number is None and field.name.endswith("_seconds"):
        try:
            nanos = nanos_of(text)
        except ValueError:
            nanos = 1
        number = nanos // 10**9 if nanos % 10**9 == 0 else None
    least, most = _BITS[field.type]
    if number is None or not least <= number <= most:
        kind = "number of seconds" if field.name.endswith("_seconds") else "number"
        raise ValueError(f"must be a whole {kind}, not {text[:80]!r}")
    return number


def _enum(field: Field, text: str) -> int:
    known = field.enum_type.values_by_name if field.enum_type else {}
    value = known.get(text) or known.get(text.upper())
    if value is None:
        names = [name for name, value in known.items() if value.number]
        near = nearest(text.upper(), names)
        raise ValueError(f"{text[:80]!r} must be one of {', '.join(names)}{near}")
    return int(value.number)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text[:80]!r} must be base64") from error


def _duration(text: str) -> Duration:
    seconds, nanos = divmod(nanos_of(text), 10**9)
    return schema.Duration(seconds=seconds, nanos=nanos)


def _timestamp(text: str) -> Timestamp:
    time = schema.Timestamp()
    try:
        time.FromJsonString(text)
    except ValueError as error:
        example = "2026-01-31T12:00:00Z"
        raise ValueError(f"{text[:80]!r} is no time: write it like {example}") from error
    return time


def _shown(scalar: Scalar) -> str:
    return scalar.text[:80] if scalar.plain else f'"{scalar.text[:80]}"'

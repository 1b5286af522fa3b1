"""Whether bytes are a value of an Avro type: read over, but not decoded.

fastavro's readers accept what Avro does not (any byte as a boolean, a union's branch -1, lengths
below zero, bytes left over) and recurse and allocate as a message tells them to. Here no value is
made, and the work is bounded by the number of bytes: what takes no bytes takes no time, however
often it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pubsub_aio.emulator.schemas.avro_types import AvroType
from pubsub_aio.emulator.schemas.errors import SchemaError

MAX_RECURSION = 100
"""How often a type may be inside itself, in a message."""

Check: TypeAlias = Callable[[bytes, int, int], int]
"""Reads over a value that begins at an offset, some levels deep; returns where it ends."""

_SIZES = {"float": 4, "double": 8}


def check_binary(check: Check, data: bytes) -> None:
    """Refuse what is not exactly one value."""
    try:
        end = check(data, 0, 0)
    except IndexError:
        end = len(data) + 1
    except RecursionError:
        raise too_deep() from None
    if end > len(data):
        raise SchemaError(f"the data ends too early, after {len(data)} bytes")
    if end < len(data):
        raise SchemaError(f"{len(data) - end} bytes are left over")


def too_deep() -> SchemaError:
    """A type is inside itself too often."""
    return SchemaError(f"a type is inside itself more than {MAX_RECURSION} times")


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise SchemaError("a number has more than 64 bits")
    if number >> 64:
        raise SchemaError("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


class BinaryChecks:
    """Makes checks of types, one for each."""

    def __init__(self) -> None:
        self._made: dict[AvroType, Check] = {}
        self._making: set[AvroType] = set()
        self._empty: dict[AvroType, bool] = {}

    def check_of(self, kind: AvroType) -> Check:
        """The check of a type."""
        if kind in self._made:
            return self._made[kind]
        if kind in self._making:
            return self._again(kind)
        self._making.add(kind)
        check = self._make(kind)
        self._making.discard(kind)
        self._made[kind] = check
        return check

    def _again(self, kind: AvroType) -> Check:
        """The check of a type inside itself."""

        def check(data: bytes, at: int, depth: int) -> int:
            if depth >= MAX_RECURSION:
                raise too_deep()
            return self._made[kind](data, at, depth + 1)

        return check

    def _make(self, kind: AvroType) -> Check:
        match kind.kind:
            case "record":
                return self._record(kind)
            case "union":
                return _union([self.check_of(branch) for branch in kind.branches])
            case "array":
                return self._blocks(kind.inner, self.check_of(kind.inner))
            case "map":
                return self._map(self.check_of(kind.inner))
            case "enum":
                return _enum(len(kind.symbols))
            case "fixed":
                return _skip(kind.size)
            case "float" | "double":
                return _skip(_SIZES[kind.kind])
            case "null":
                return _skip(0)
            case primitive:
                return _PRIMITIVES[primitive]

    def _is_empty(self, kind: AvroType) -> bool:
        """Whether its values take no bytes."""
        if kind not in self._empty:
            self._empty[kind] = False  # while we look: a type inside itself
            if kind.kind == "record":
                self._empty[kind] = all(self._is_empty(each.type) for each in kind.fields)
            else:
                self._empty[kind] = kind.kind == "null" or (kind.kind == "fixed" and not kind.size)
        return self._empty[kind]

    def _record(self, kind: AvroType) -> Check:
        fields = [
            (each.name, self.check_of(each.type))
            for each in kind.fields
            if not self._is_empty(each.type)
        ]

        def check(data: bytes, at: int, depth: int) -> int:
            name = ""
            try:
                for name, field in fields:  # noqa: B007 - for the error
                    at = field(data, at, depth)
            except SchemaError as error:
                raise error.within(name) from None
            return at

        # A record of one field is that field: else many around each other would multiply the work.
        return fields[0][1] if len(fields) == 1 else check

    def _blocks(self, kind: AvroType, item: Check) -> Check:
        empty = self._is_empty(kind)

        def check(data: bytes, at: int, depth: int) -> int:
            while True:
                count, at = read_long(data, at)
                if not count:
                    return at
                end = None
                if count < 0:
                    count = -count
                    size, at = read_long(data, at)
                    end = at + size
                if not empty:
                    if count > len(data) - at:
                        raise SchemaError(f"{count} items do not fit into the bytes that follow")
                    for _ in range(count):
                        at = item(data, at, depth)
                if end is not None and at != end:
                    raise SchemaError("a block of items is not as long as it says")

        return check

    def _map(self, value: Check) -> Check:
        def entry(data: bytes, at: int, depth: int) -> int:
            return value(data, _string(data, at, depth), depth)

        return self._blocks(AvroType("string"), entry)


def _union(branches: list[Check]) -> Check:
    def check(data: bytes, at: int, depth: int) -> int:
        index, at = read_long(data, at)
        if not 0 <= index < len(branches):
            raise SchemaError(f"a union has no branch {index}")
        return branches[index](data, at, depth)

    return check


def _enum(count: int) -> Check:
    def check(data: bytes, at: int, _depth: int) -> int:
        index, at = read_long(data, at)
        if not 0 <= index < count:
            raise SchemaError(f"an enum has no symbol {index}")
        return at

    return check


def _skip(size: int) -> Check:
    return lambda _data, at, _depth: at + size


def _boolean(data: bytes, at: int, _depth: int) -> int:
    if data[at] > 1:
        raise SchemaError(f"a boolean is one byte, 0 or 1, not {data[at]}")
    return at + 1


def _int(data: bytes, at: int, _depth: int) -> int:
    if data[at] < 0x80:
        return at + 1
    number, at = read_long(data, at)
    if not -(2**31) <= number < 2**31:
        raise SchemaError(f"{number} is not an int: it has more than 32 bits")
    return at


def _long(data: bytes, at: int, _depth: int) -> int:
    return at + 1 if data[at] < 0x80 else read_long(data, at)[1]


def _bytes(data: bytes, at: int, _depth: int) -> int:
    length, at = read_long(data, at)
    if length < 0:
        raise SchemaError(f"{length} is no length")
    return at + length


def _string(data: bytes, at: int, depth: int) -> int:
    end = _bytes(data, at, depth)
    begin = at + 1
    while data[begin - 1] > 0x7F:
        begin += 1
    try:
        str(data[begin:end], "utf-8")
    except UnicodeDecodeError:
        raise SchemaError("a string is not UTF-8") from None
    return end


_PRIMITIVES: dict[str, Check] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "bytes": _bytes,
    "string": _string,
}

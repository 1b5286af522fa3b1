"""Whether JSON is a value of an Avro type, by the JSON encoding that Avro specifies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from pubsub_aio.emulator.schemas.avro_binary import MAX_RECURSION, too_deep
from pubsub_aio.emulator.schemas.avro_types import AvroType
from pubsub_aio.emulator.schemas.errors import SchemaError

Check: TypeAlias = Callable[[Any, int], None]
"""Refuses a value, some levels deep, that is not of a type."""

_JSON_TYPES = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
_JSON_TYPES |= {list: "an array", dict: "an object", type(None): "null"}


def check_json(check: Check, data: bytes) -> None:
    """Refuse what is not exactly one value."""
    try:
        check(json.loads(data.decode(), parse_constant=_no_constant), 0)
    except SchemaError:
        raise
    except UnicodeDecodeError:
        raise SchemaError("not JSON: not UTF-8") from None
    except ValueError as error:
        raise SchemaError(f"not JSON: {error}") from None
    except RecursionError:
        raise too_deep() from None


def _no_constant(name: str) -> NoReturn:
    raise SchemaError(f"not JSON: {name}")


def _refuse(value: Any, wanted: str) -> NoReturn:
    shown = json.dumps(value) if isinstance(value, (str, int, float)) else ""
    shown = f" {shown[:60]}" if shown and not isinstance(value, bool) else ""
    raise SchemaError(f"{_JSON_TYPES[type(value)]}{shown} is not {wanted}")


class JsonChecks:
    """Makes checks of types, one for each.

    Args:
        defaults: Whether values are defaults in a definition: those of a union are of its first
            branch, without its name, and a record may lack fields that have a default.
    """

    def __init__(self, *, defaults: bool = False) -> None:
        self._defaults = defaults
        self._made: dict[AvroType, Check] = {}
        self._making: set[AvroType] = set()

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

        def check(value: Any, depth: int) -> None:
            if depth >= MAX_RECURSION:
                raise too_deep()
            self._made[kind](value, depth + 1)

        return check

    def _make(self, kind: AvroType) -> Check:
        match kind.kind:
            case "record":
                return self._record(kind)
            case "union":
                return self._union(kind)
            case "array":
                return _array(self.check_of(kind.inner))
            case "map":
                return _map(self.check_of(kind.inner))
            case "enum":
                return _enum(frozenset(kind.symbols), kind.name)
            case "fixed":
                return _fixed(kind.size)
            case primitive:
                return _PRIMITIVES[primitive]

    def _record(self, kind: AvroType) -> Check:
        fields = {each.name: self.check_of(each.type) for each in kind.fields}
        spared = {each.name for each in kind.fields if self._defaults and each.has_default}

        def check(value: Any, depth: int) -> None:
            if type(value) is not dict:
                _refuse(value, f"a {kind.name}")
            for name, field in fields.items():
                try:
                    field(value[name], depth)
                except KeyError:
                    if name not in spared:
                        raise SchemaError(f"the field {name!r} is missing") from None
                except SchemaError as error:
                    raise error.within(name) from None
            if len(value) > len(fields):
                unknown = next(name for name in value if name not in fields)
                raise SchemaError(f"{kind.name} has no field {unknown[:60]!r}")

        return check

    def _union(self, kind: AvroType) -> Check:
        branches = {branch.tag: self.check_of(branch) for branch in kind.branches}
        if self._defaults:
            return next(iter(branches.values()), _nothing)
        names = ", ".join(branches)

        def check(value: Any, depth: int) -> None:
            if value is None and "null" in branches:
                return
            if type(value) is not dict or len(value) != 1:
                raise SchemaError(f'a union is written {{"type": value}}, with a type of {names}')
            tag, inner = next(iter(value.items()))
            if tag not in branches or tag == "null":
                raise SchemaError(f"the union has no {tag[:60]!r}, only {names}")
            branches[tag](inner, depth)

        return check


def _nothing(value: Any, _depth: int) -> None:
    _refuse(value, "of a union without branches")


def _array(item: Check) -> Check:
    def check(value: Any, depth: int) -> None:
        if type(value) is not list:
            _refuse(value, "an array")
        for each in value:
            item(each, depth)

    return check


def _map(inner: Check) -> Check:
    def check(value: Any, depth: int) -> None:
        if type(value) is not dict:
            _refuse(value, "a map")
        for key, each in value.items():
            _string(key, depth)
            inner(each, depth)

    return check


def _enum(symbols: frozenset[str], name: str) -> Check:
    def check(value: Any, _depth: int) -> None:
        if type(value) is not str or value not in symbols:
            _refuse(value, f"a symbol of {name}")

    return check


def _fixed(size: int) -> Check:
    def check(value: Any, depth: int) -> None:
        _bytes(value, depth)
        if len(value) != size:
            raise SchemaError(f"{len(value)} bytes, but there must be {size}")

    return check


def _null(value: Any, _depth: int) -> None:
    if value is not None:
        _refuse(value, "null")


def _boolean(value: Any, _depth: int) -> None:
    if type(value) is not bool:
        _refuse(value, "a boolean")


def _int(value: Any, _depth: int) -> None:
    if type(value) is not int or not -(2**31) <= value < 2**31:
        _refuse(value, "an int")


def _long(value: Any, _depth: int) -> None:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        _refuse(value, "a long")


def _number(value: Any, _depth: int) -> None:
    if type(value) is not int and (type(value) is not float or math.isinf(value)):
        _refuse(value, "a number that fits")


def _bytes(value: Any, _depth: int) -> None:
    if type(value) is not str:
        _refuse(value, "bytes, as a string")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise SchemaError("bytes are written as characters up to U+00FF") from None


def _string(value: Any, _depth: int) -> None:
    if type(value) is not str:
        _refuse(value, "a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SchemaError("a string is not Unicode") from None


_PRIMITIVES: dict[str, Check] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _number,
    "double": _number,
    "bytes": _bytes,
    "string": _string,
}

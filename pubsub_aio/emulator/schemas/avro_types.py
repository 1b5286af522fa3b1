"""An Avro definition as types that can be walked, all of it checked.

fastavro parses it: it knows the grammar, resolves names and finds what is unknown or defined twice.
It accepts more than Avro does, though, so the rest of Avro's rules is looked after here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import fastavro
from fastavro.schema import UnknownType

from pubsub_aio.emulator.schemas.errors import SchemaError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_NESTING = 300
"""How deep a definition may be nested, counted in brackets of its JSON."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RECORDS = ("record", "error")
_ORDERS = ("ascending", "descending", "ignore")


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; which of its attributes say something depends on its kind."""

    kind: str
    name: str = ""
    """The full name of a record, an enum or a fixed."""
    aliases: frozenset[str] = frozenset()
    fields: list[AvroField] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    has_default: bool = False
    """Of an enum: whether an unknown symbol is read as another."""
    size: int = 0
    items: AvroType | None = None
    """Of an array its items, of a map its values."""
    branches: list[AvroType] = field(default_factory=list)

    @property
    def tag(self) -> str:
        """What a union calls it in JSON."""
        return self.name or self.kind

    @property
    def inner(self) -> AvroType:
        """The type of the items or values."""
        if self.items is None:
            raise TypeError(f"{self.kind} has no items")
        return self.items


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record; its default, if it has one, as JSON has it."""

    name: str
    type: AvroType
    aliases: frozenset[str]
    has_default: bool
    default: Any = None


def parse_avro(definition: str) -> AvroType:
    """The type that a definition defines.

    Raises:
        SchemaError: It is no Avro schema.
    """
    try:
        plain = _plain(json.loads(definition, parse_constant=_no_constant), 0)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"not JSON: {error}") from None
    try:
        parsed = fastavro.parse_schema(plain, {})
    except KeyError as error:
        raise SchemaError(f"not an Avro schema: {error} is missing") from None
    except UnknownType as error:
        raise SchemaError(f"not an Avro schema: there is no type {error.name!r}") from None
    except Exception as error:  # noqa: BLE001 - of many kinds, all about the definition
        raise SchemaError(f"not an Avro schema: {error or repr(error)}") from None
    return _Builder().type_of(parsed)


def _plain(value: Any, depth: int) -> Any:
    """The definition without logical types, for they may be wrong, and are ignored then.

    Messages are checked against the types beneath them.
    """
    if depth > MAX_NESTING:
        raise _too_deep()
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") in _RECORDS and "fields" not in value:
        raise SchemaError("not an Avro schema: 'fields' is missing")
    dropped = ("logicalType", "precision", "scale", "doc")
    kept = {key: of for key, of in value.items() if key not in dropped and key[:2] != "__"}
    return {key: of if key == "default" else _plain(of, depth + 1) for key, of in kept.items()}


def _no_constant(name: str) -> NoReturn:
    raise SchemaError(f"not JSON: {name}")


def _too_deep() -> SchemaError:
    return SchemaError(f"nested deeper than {MAX_NESTING} levels")


class _Builder:
    """Makes types of what fastavro parsed; names that come again stand for the same type."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type_of(self, parsed: Any) -> AvroType:
        if isinstance(parsed, list):
            return self._union(parsed)
        if isinstance(parsed, str):
            return AvroType(parsed) if parsed in PRIMITIVES else self._known(parsed)
        match parsed["type"]:
            case "record" | "error":
                return self._record(parsed)
            case "enum":
                return self._enum(parsed)
            case "fixed":
                return self._fixed(parsed)
            case "array":
                return AvroType("array", items=self.type_of(parsed["items"]))
            case "map":
                return AvroType("map", items=self.type_of(parsed["values"]))
            case other:
                return self.type_of(other)

    def _known(self, name: str) -> AvroType:
        if name not in self._named:
            raise SchemaError(f"the type {name!r} is not defined")
        return self._named[name]

    def _define(self, kind: str, parsed: Any) -> AvroType:
        name = parsed["name"]
        parts = name.split(".")
        if not all(map(_NAME.fullmatch, parts)) or parts[-1] in PRIMITIVES:
            raise SchemaError(f"{name!r} cannot be the name of a type")
        aliases = frozenset(alias.rpartition(".")[2] for alias in _names(parsed, "aliases"))
        made = AvroType(kind, name=name, aliases=aliases)
        self._named[name] = made
        return made

    def _union(self, parsed: list[Any]) -> AvroType:
        branches = [self.type_of(each) for each in parsed]
        tags = [branch.tag for branch in branches]
        if "union" in tags:
            raise SchemaError("a union must not immediately contain another")
        if len(set(tags)) < len(tags):
            raise SchemaError(f"a union must not contain a type twice: {', '.join(tags)}")
        return AvroType("union", branches=branches)

    def _record(self, parsed: Any) -> AvroType:
        made = self._define("record", parsed)
        for each in parsed["fields"]:
            name = each["name"]
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise SchemaError(f"{name!r} cannot be the name of a field")
            if each.get("order", "ascending") not in _ORDERS:
                raise SchemaError(f"{each['order']!r} is no order").within(name)
            try:
                kind = self.type_of(each["type"])
            except SchemaError as error:
                raise error.within(name) from None
            aliases = frozenset(_names(each, "aliases"))
            made.fields.append(
                AvroField(name, kind, aliases, "default" in each, each.get("default"))
            )
        names = [each.name for each in made.fields]
        if len(set(names)) < len(names):
            raise SchemaError(f"a field of {made.name} is there twice")
        return made

    def _enum(self, parsed: Any) -> AvroType:
        made = self._define("enum", parsed)
        symbols = parsed["symbols"]
        if not isinstance(symbols, list):
            raise SchemaError(f"the symbols of {made.name} must be a list")
        made.symbols = symbols
        made.has_default = "default" in parsed
        return made

    def _fixed(self, parsed: Any) -> AvroType:
        made = self._define("fixed", parsed)
        size = parsed["size"]
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise SchemaError(f"the size of {made.name} must be a whole number, not {size!r}")
        made.size = size
        return made


def _names(parsed: Any, key: str) -> list[str]:
    names = parsed.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SchemaError(f"{key} must be a list of names")
    return names

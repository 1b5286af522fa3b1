"""An Avro schema as the type of a column, and as a schema that reads values fit for it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

from pubsub_aio.errors import ConfigError, MissingExtraError

try:
    import fastavro
    import pyarrow as pa
    from fastavro.read import LOGICAL_READERS
except ImportError as error:
    raise MissingExtraError("decoding Avro", "spark") from error

_SCALARS = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_TIMES = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
}
_WIDER = {
    frozenset({"int", "long"}): pa.int64(),
    frozenset({"float", "double"}): pa.float64(),
}
_MAX_PRECISION = 38  # of Spark's decimals
_EXACT = Context(prec=_MAX_PRECISION)


def compile_schema(text: str) -> tuple[Any, Any]:
    """The schema to read with, and the Arrow struct of the records that it reads.

    Raises:
        ConfigError: It is no Avro schema, not of a record, or columns cannot hold what it has.
    """
    named: dict[str, Any] = {}
    try:
        schema = fastavro.parse_schema(json.loads(text), named)
    except Exception as error:
        raise ConfigError(f"schema is not an Avro schema: {error!r}") from error
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise ConfigError("schema must be an Avro schema of a record")
    reading, kind = _Compiler(named).column(schema, "", ())
    return fastavro.parse_schema(reading), kind


class _Compiler:
    """Walks a schema; `path` is the field that it is at, `within` the records around that."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._numbers = itertools.count()

    def column(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[Any, Any]:
        """The schema to read a value with, and its type in Arrow."""
        if isinstance(schema, list):
            return self._union(schema, path, within)
        schema = self._resolved(schema)
        match schema["type"]:
            case "record":
                return self._record(schema, path, within)
            case "array":
                items, kind = self.column(schema["items"], f"{path}[]", within)
                return {"type": "array", "items": items}, pa.list_(kind)
            case "map":
                values, kind = self.column(schema["values"], f"{path}{{}}", within)
                return {"type": "map", "values": values}, pa.map_(pa.string(), kind)
            case "enum":
                return _finished({"type": "int"}, "enum", schema["symbols"]), pa.string()
            case "boolean":
                return _finished(self._fixed(1), "boolean"), pa.bool_()
            case "null":
                raise _nothing(path)
            case "bytes" | "fixed":
                return self._bytes(schema, path)
        return _number_or_text(schema)

    def _record(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[Any, Any]:
        name = schema["name"]
        if name in within:
            raise ConfigError(f"the field {path!r} of the schema is a {name} inside a {name}")
        if not schema["fields"]:
            raise _nothing(path)
        names = [field["name"] for field in schema["fields"]]
        columns = [
            self.column(field["type"], f"{path}.{field['name']}".lstrip("."), (*within, name))
            for field in schema["fields"]
        ]
        return self._struct(names, columns)

    def _union(self, schema: list[Any], path: str, within: tuple[str, ...]) -> tuple[Any, Any]:
        """As Spark does it: numbers become the wider type, other types the members of a struct."""
        types = [self._resolved(member)["type"] for member in schema]
        members = [each for each, name in zip(schema, types, strict=True) if name != "null"]
        if not members:
            raise _nothing(path)
        never = [_finished({"type": "null"}, "never")] * _NEVER
        if kind := _WIDER.get(frozenset(types) - {"null"}):
            return [*types, *never], kind
        columns = [self.column(member, path, within) for member in members]
        kind = columns[0][1]
        if len(members) > 1:
            names = [f"member{number}" for number in range(len(members))]
            kind = pa.struct([(name, of) for name, (_, of) in zip(names, columns, strict=True)])
            # A record is its fields one after another: to wrap a value in one adds no byte.
            columns = [
                self._struct([name], [each]) for name, each in zip(names, columns, strict=True)
            ]
        readings = iter(columns)
        reading = ["null" if name == "null" else next(readings)[0] for name in types]
        return [*reading, *never], kind

    def _bytes(self, schema: Any, path: str) -> tuple[Any, Any]:
        reading: Any = {"type": "bytes"}
        if schema["type"] == "fixed":
            if schema["size"] < 1:
                raise _nothing(path)
            reading = self._fixed(schema["size"])
        if schema.get("logicalType") != "decimal":
            return reading, pa.binary()
        precision, scale = schema.get("precision") or 0, schema.get("scale") or 0
        if not scale <= precision <= _MAX_PRECISION or not precision:
            raise ConfigError(
                f"the field {path!r} of the schema is a decimal of {precision} digits, {scale} of "
                f"them behind the point; Spark's have 1 to {_MAX_PRECISION}"
            )
        return _finished(reading, "decimal", [precision, scale]), pa.decimal128(precision, scale)

    def _struct(self, names: Sequence[str], columns: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        fields = [
            {"name": name, "type": reading}
            for name, (reading, _) in zip(names, columns, strict=True)
        ]
        kind = pa.struct([(name, of) for name, (_, of) in zip(names, columns, strict=True)])
        return {"type": "record", "name": self._new_name(), "fields": fields}, kind

    def _fixed(self, size: int) -> Any:
        return {"type": "fixed", "name": self._new_name(), "size": size}

    def _new_name(self) -> str:
        """Types that are used twice are written out twice, so each gets a name of its own."""
        return f"type{next(self._numbers)}"

    def _resolved(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self._named.get(schema, {"type": schema})
        return schema


def _number_or_text(schema: Any) -> tuple[Any, Any]:
    name, logical = schema["type"], schema.get("logicalType")
    kind = _TIMES.get((name, logical))
    if kind is None:
        return name, _SCALARS[name]
    return (_finished({"type": name}, "millis") if logical.endswith("millis") else name), kind


def _nothing(path: str) -> ConfigError:
    """Nothing, be it repeated a billion times, takes no byte: a short message could fill memory."""
    where = f"the field {path!r} of the schema" if path else "schema"
    return ConfigError(f"{where} has no data: it cannot be a column")


# fastavro reads more than Avro allows: any byte but 0 as true, and as the number of a member or a
# symbol also -1, the last one. What it reads is therefore finished by functions of our own.

_NEVER = 64
"""Members without values behind those of a union: to count back from its end leads to them.

So many that no number of one byte does any harm.
"""


def _finished(schema: Any, finish: str, of: Any = None) -> Any:
    """The schema of a value that one of the functions below goes on with."""
    return {**schema, "logicalType": f"pubsub_aio.{finish}", "of": of}


def _never(_data: bytes, _schema: Any, _reader: Any) -> None:
    raise IndexError("not a member of the union")


def _boolean(data: bytes, _schema: Any, _reader: Any) -> bool:
    return (b"\0", b"\1").index(data) == 1


def _enum(number: int, schema: Any, _reader: Any) -> str:
    symbols: list[str] = schema["of"]
    if number < 0:
        raise IndexError(number)
    return symbols[number]


def _millis(milliseconds: int, _schema: Any, _reader: Any) -> int:
    return milliseconds * 1_000


def _decimal(data: bytes, schema: Any, _reader: Any) -> Decimal:
    precision, scale = schema["of"]
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10**precision:
        raise OverflowError("more digits than the schema allows")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


LOGICAL_READERS.update(
    {
        "null-pubsub_aio.never": _never,
        "fixed-pubsub_aio.boolean": _boolean,
        "int-pubsub_aio.enum": _enum,
        "long-pubsub_aio.millis": _millis,
        "bytes-pubsub_aio.decimal": _decimal,
        "fixed-pubsub_aio.decimal": _decimal,
    }
)

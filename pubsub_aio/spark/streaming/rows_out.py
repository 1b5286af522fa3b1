"""Rows of Arrow as what is published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.streaming.sink_options import SinkOptions

OF_THE_SOURCE = frozenset(
    {
        *("message_id", "data", "attributes", "publish_time", "ordering_key"),
        *("delivery_attempt", "sequence", "event_time"),
    }
)
"""Columns of the source, which may be there and are not published unless an option names them."""

_MOST_ROWS = 5_000
_MOST_BYTES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Where in a row is what, and what it is called. None is for what is not there."""

    names: tuple[str, ...]
    data: int | None = None
    attributes: int | None = None
    ordering_key: int | None = None
    id: int | None = None

    def name(self, place: int | None) -> str:
        """The name of a column."""
        return "" if place is None else self.names[place]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows, column by column, each as long as the others.

    Attributes:
        first: The number of the first of them in its partition, from 0 on.
        data: Nothing where it is null.
        attributes: None where they are null.
        keys: Ordering keys, empty for none.
        ids: The user's own, or none.
    """

    first: int
    data: list[bytes]
    attributes: list[dict[str, str] | None]
    keys: list[str]
    ids: list[str] | None


def columns_of(schema: StructType, options: SinkOptions) -> Columns:
    """Find the columns to publish.

    Raises:
        ConfigError: One is missing, is of another type, or would not be published.
    """
    found = _Finder(schema, options)
    data = found.place("dataColumn", options.data_column)
    attributes = found.place("attributesColumn", options.attributes_column)
    key = found.place("orderingKeyColumn", options.ordering_key_column)
    own = found.place("idColumn", options.id_column) if options.id_column else None
    if data is None and attributes is None:
        raise ConfigError(
            f"{options.data_column}: there is no such column, and no "
            f"{options.attributes_column}; there are {', '.join(schema.names)}: name the one to "
            'publish with .option("dataColumn", ...), or make it with '
            'to_json(struct("*")).alias("data")'
        )
    found.check(data, "dataColumn", (BinaryType, StringType), "binary or string")
    found.check(attributes, "attributesColumn", (MapType,), "map<string,string>")
    found.check(key, "orderingKeyColumn", (StringType,), "string")
    found.check(own, "idColumn", (StringType, IntegralType), "string or a whole number")
    used = {data, attributes, key, own}
    unused = [
        name
        for place, name in enumerate(schema.names)
        if place not in used and name.lower() not in OF_THE_SOURCE
    ]
    if unused:
        raise ConfigError(
            f"{', '.join(unused)}: nothing publishes such a column: drop it, or put it into the "
            'data with to_json(struct(...)).alias("data")'
        )
    return Columns(
        names=tuple(schema.names), data=data, attributes=attributes, ordering_key=key, id=own
    )


class _Finder:
    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._names = schema.names
        self._kinds: list[DataType] = [field.dataType for field in schema.fields]
        self._named = options.named

    def place(self, option: str, name: str) -> int | None:
        """The place of a column, whatever the case of its name; an option must not name none."""
        for names, wanted in (
            (self._names, name),
            ([each.lower() for each in self._names], name.lower()),
        ):
            if (count := names.count(wanted)) > 1:
                raise ConfigError(
                    f"{name}: there are {count} columns of that name: rename the others"
                )
            if count:
                return names.index(wanted)
        if option in self._named:
            raise ConfigError(
                f"{option}: there is no column {name!r}; there are {', '.join(self._names)}"
            )
        return None

    def check(
        self, place: int | None, option: str, kinds: tuple[type[DataType], ...], wanted: str
    ) -> None:
        if place is None:
            return
        kind = self._kinds[place]
        fits = isinstance(kind, kinds)
        if fits and isinstance(kind, MapType):
            fits = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
        if not fits:
            raise ConfigError(
                f"{self._names[place]}: the column must be {wanted}, not {kind.simpleString()}: "
                f"cast it, or name another one with {option}"
            )


def slices_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A record batch in parts of which one is not too much at once."""
    rows = batch.num_rows
    each = max(1, min(_MOST_ROWS, rows * _MOST_BYTES // max(1, batch.nbytes)))
    for start in range(0, rows, each):
        yield batch.slice(start, each)


def rows_of(batch: pa.RecordBatch, columns: Columns, *, first: int, where: str) -> Rows:
    """Rows of Arrow in Python.

    Args:
        batch: The rows.
        columns: Where is what.
        first: The number of the first of them.
        where: What they are of, for errors.

    Raises:
        ConfigError: A value is null that must not be; it names the row and the column.
    """

    def fault(row: int, place: int | None, why: str) -> ConfigError:
        return ConfigError(f"{columns.name(place)}: {why} (row {first + row:,} of {where})")

    data: list[bytes] = [b""] * batch.num_rows
    attributes: list[dict[str, str] | None] = [None] * batch.num_rows
    keys: list[str] = [""] * batch.num_rows
    ids: list[str] | None = None
    if columns.data is not None:
        values = batch.column(columns.data)
        data = _filled(values if _is_binary(values) else _as_binary(values), b"")
    if columns.attributes is not None:
        values = batch.column(columns.attributes)
        pairs: list[Any] = values.to_pylist()
        if values.items.null_count:  # also of rows that are not among these
            for row, name in _nulls(pairs):
                why = f"the value of {name!r} is null: leave it out with map_filter"
                raise fault(row, columns.attributes, why)
        attributes = [None if each is None else dict(each) for each in pairs]
    if columns.ordering_key is not None:
        keys = _filled(batch.column(columns.ordering_key), "")
    if columns.id is not None:
        values = pc.cast(batch.column(columns.id), pa.string())
        if values.null_count:
            row = values.is_null().to_pylist().index(True)
            raise fault(row, columns.id, "an id is null: give every row one")
        ids = values.to_pylist()
        if "" in ids:
            raise fault(ids.index(""), columns.id, "an id is empty: give every row one")
    return Rows(first, data, attributes, keys, ids)


def _nulls(pairs: list[Any]) -> Iterator[tuple[int, str]]:
    """The rows that have an attribute without a value, and its name."""
    for row, each in enumerate(pairs):
        for name, value in each or ():
            if value is None:
                yield row, name


def _filled(values: Any, instead: Any) -> list[Any]:
    filled: list[Any] = (values.fill_null(instead) if values.null_count else values).to_pylist()
    return filled


def _is_binary(values: Any) -> bool:
    return bool(pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type))


def _as_binary(values: Any) -> Any:
    large = pa.types.is_large_string(values.type)
    return values.cast(pa.large_binary() if large else pa.binary())

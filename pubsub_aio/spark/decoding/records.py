"""Data as records, many rows at once and without Spark; what cannot be decoded is kept."""

from __future__ import annotations

from datetime import date
from typing import Any, Protocol

from pubsub_aio.errors import MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise MissingExtraError("decoding in Spark", "spark") from error

_EPOCH = date(1970, 1, 1)
_DAYS = ((date.min - _EPOCH).days, (date.max - _EPOCH).days)
_DAY = 24 * 3_600 * 1_000_000
_MICROSECONDS = (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)
_LONGEST = 315_576_000_000 * 1_000_000  # of a Duration of protobuf: 10,000 years


class Decoder(Protocol):
    """Knows one format and one schema."""

    @property
    def record_type(self) -> Any:
        """The Arrow struct of a record; all of it may be null, as Spark's columns may."""

    def decode(self, data: Any) -> Any:
        """The records of an Arrow array of bytes, one a row, null where a row is not one.

        It may raise instead, whatever it likes; the rows then come again in smaller arrays.
        """


def decode_rows(decoder: Decoder, data: Any) -> tuple[Any, Any]:
    """The record of each row, and the data of each row that has none."""
    records = _records(decoder, data)
    undecoded = pc.if_else(records.is_valid(), pa.scalar(None, data.type), data)
    return records, undecoded


def _records(decoder: Decoder, data: Any) -> Any:
    """Decode all rows; where that fails each half of them, down to the row that is at fault."""
    try:
        records = decoder.decode(data)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:  # noqa: BLE001 - a panic of Rust is no Exception; a row must not cost more
        if len(data) <= 1:
            return pa.nulls(len(data), decoder.record_type)
        middle = len(data) // 2
        halves = (data.slice(0, middle), data.slice(middle))
        return pa.concat_arrays([_records(decoder, half) for half in halves])
    return without(records, rows_beyond(records))


def without(records: Any, rows: set[int]) -> Any:
    """The records, but null in those rows."""
    if not rows:
        return records
    valid = records.is_valid().to_pylist()
    gone = [row in rows or not valid[row] for row in range(len(records))]
    return pa.StructArray.from_arrays(
        records.flatten(), fields=[*records.type], mask=pa.array(gone)
    )


# Time


def rows_beyond(values: Any) -> set[int]:
    """The rows with a time that is not of the years 1 to 9999, or a duration of more than those.

    Such a time is an accident. Spark takes it, and then fails wherever a row reaches Python.
    """
    if not _has_times(values.type):
        return set()
    if (limits := _limits(values.type)) is not None:
        numbers = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
        beyond = pc.or_(pc.less(numbers, limits[0]), pc.greater(numbers, limits[1]))
        return set(pc.indices_nonzero(beyond).to_pylist())
    if pa.types.is_struct(values.type):
        return set().union(*map(rows_beyond, values.flatten()))
    if pa.types.is_map(values.type):
        entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entry))
    inside = rows_beyond(values.flatten())
    rows = pc.list_parent_indices(values).to_pylist() if inside else []
    return {rows[position] for position in inside}


def _limits(kind: Any) -> tuple[int, int] | None:
    if pa.types.is_date(kind):
        return _DAYS
    if pa.types.is_timestamp(kind):
        return _MICROSECONDS
    if pa.types.is_duration(kind):
        return (-_LONGEST, _LONGEST)
    return None


def _has_times(kind: Any) -> bool:
    if pa.types.is_map(kind):
        return _has_times(kind.key_type) or _has_times(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(i).type) for i in range(kind.num_fields))
    return _limits(kind) is not None

"""The rows of a batch, read in a task: a function of files that never change."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pubsub_aio.errors import DataLossError
from pubsub_aio.spark.streaming import segments
from pubsub_aio.spark.streaming.options import SourceOptions
from pubsub_aio.spark.streaming.pieces import Piece
from pubsub_aio.spark.streaming.sight import check_same_log, warn_of_one_disk
from pubsub_aio.spark.streaming.stores import store_at

try:
    from pyspark.sql.datasource import InputPartition
except ImportError as error:
    from pubsub_aio.errors import MissingExtraError

    raise MissingExtraError("The Structured Streaming source", "spark") from error

logger = logging.getLogger("pubsub_aio.spark")

_PARTITION_ROWS = 250_000
_MILLIS = re.compile(r"-?\d{1,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_WITH_SEQUENCE = segments.SCHEMA.append(pa.field("sequence", pa.int64()))
_WITH_EVENT_TIME = _WITH_SEQUENCE.append(pa.field("event_time", pa.timestamp("us", tz="UTC")))


class PiecesPartition(InputPartition):
    """What a task reads."""

    def __init__(self, number: int, pieces: Sequence[Piece], wal: str) -> None:
        super().__init__(number)
        self.pieces = tuple(pieces)
        self.wal = wal
        self.host = socket.gethostname()


def shared_out(pieces: list[Piece], options: SourceOptions, wal: str) -> Iterator[PiecesPartition]:
    """Share pieces of a log out among tasks, so that each has about as many rows."""
    rows = sum(piece.stop - piece.start for piece in pieces)
    count = min(len(pieces), options.partitions or -(-rows // _PARTITION_ROWS))
    taken, begun = 0, 0
    for number in range(count):
        until = begun
        while until < len(pieces) and (until == begun or taken * count < rows * (number + 1)):
            taken += pieces[until].stop - pieces[until].start
            until += 1
        if until > begun:
            yield PiecesPartition(number, pieces[begun:until], wal)
        begun = until


def read(partition: Any, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a task.

    Raises:
        DataLossError: Some are missing or damaged, and `failOnDataLoss` is true.
        WalError: They are on another machine, or cannot be read now.
    """
    store = store_at(options.wal_location)
    warn_of_one_disk(store)
    for piece in partition.pieces:
        try:
            chunk = segments.read_chunk(store, piece.segment, piece.chunk)
        except DataLossError as error:
            if partition.host != socket.gethostname():
                check_same_log(store, partition.wal, partition.host)
            if options.fail_on_data_loss:
                raise
            rows = piece.stop - piece.start - sum(count for _, count in piece.drop)
            logger.warning("%s", segments.left_out(error, rows))
            continue
        yield rows_of(chunk, piece, options.event_time_attribute)


def rows_of(chunk: pa.RecordBatch, piece: Piece, event_time: str) -> pa.RecordBatch:
    """The rows of a piece, with all columns and without duplicates."""
    count = piece.stop - piece.start
    rows = chunk.slice(piece.start, count)
    sequence = pa.array(np.arange(piece.sequence, piece.sequence + count))
    columns = [*rows.columns, sequence]
    if event_time:
        columns.append(_event_times(rows, event_time))
    schema = _WITH_EVENT_TIME if event_time else _WITH_SEQUENCE
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not piece.drop:
        return whole
    kept = np.ones(count, np.bool_)
    for start, dropped in piece.drop:
        kept[start - piece.start : start - piece.start + dropped] = False
    return whole.filter(pa.array(kept))


def _event_times(rows: pa.RecordBatch, attribute: str) -> pa.Array:
    """When things happened, by an attribute; otherwise when they were published."""
    texts = pc.map_lookup(rows.column("attributes"), attribute, "last").to_pylist()
    times = pa.array([_time(text) for text in texts], pa.timestamp("us", tz="UTC"))
    return pc.coalesce(times, rows.column("publish_time"))


def _time(text: str | None) -> datetime | None:
    """RFC 3339, or milliseconds since 1970; nothing if it is neither, or in no year of ours."""
    if text is None:
        return None
    try:
        if _MILLIS.fullmatch(text):
            return _EPOCH + timedelta(milliseconds=int(text))
        time = datetime.fromisoformat(text.upper())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None

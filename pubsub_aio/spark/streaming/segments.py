"""Segments: files of messages in Arrow's format, with checksums for all that is in them.

    magic, length and checksum of the header | header, JSON | keys | chunks of rows

Keys stand before the rows, so that they can be read alone. A chunk is a record batch without its
schema, which is the same for all; it can be read alone, too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pubsub_aio.config import MIB
from pubsub_aio.errors import DataLossError
from pubsub_aio.spark.streaming.keys import Keys
from pubsub_aio.spark.streaming.stores import Buffer, Store, reading

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("data", pa.binary()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("publish_time", pa.timestamp("us", tz="UTC")),
        ("ordering_key", pa.string()),
        ("delivery_attempt", pa.int32()),
    ]
)
"""The columns of the rows, as Spark has them."""

CHUNK_ROWS = 10_000
CHUNK_BYTES = 8 * MIB
"""About; a row may be larger alone."""

_MAGIC = b"psaioseg"
_VERSION = 1
_PREFIX = struct.Struct("<8sIQ")
_ONLY_COPY = (
    ". It is the only copy of messages that were acknowledged: bring it back, or set the option "
    "failOnDataLoss to false to go on without them"
)
_FIRST_READ = 64 * 1024
_ALIGNED = 64  # as Arrow wants it


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a segment that are read together."""

    offset: int
    length: int
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Segment:
    """What is known of a segment without its rows.

    Attributes:
        name: In the store.
        rows: How many it has.
        size: What the messages took on the wire, in bytes.
        oldest: When the first of its messages was published, in seconds of Unix time.
        keys: Of all rows.
        chunks: Of rows, in order.
    """

    name: str
    rows: int
    size: int
    oldest: float
    keys: Keys
    chunks: tuple[Chunk, ...]


def write(
    store: Store, name: str, wal: str, records: pa.RecordBatch, keys: Keys, size: int
) -> Segment:
    """Keep messages; when it returns they are durable, and may be acknowledged."""
    batches = [*chunked(records)]
    key_parts = [_bytes(column) for column in keys]
    bodies = [memoryview(batch.serialize()) for batch in batches]
    header: dict[str, Any] = {
        "version": _VERSION,
        "wal": wal,
        "rows": records.num_rows,
        "size": size,
        "oldest": oldest_of(records),
        "keys": [checksum(part) for part in key_parts],
        "chunks": [
            [len(body), batch.num_rows, checksum(body)]
            for body, batch in zip(bodies, batches, strict=True)
        ],
    }
    parts = _laid_out(header, [*key_parts, *bodies])
    if not store.put_if_absent(name, parts):
        # Nobody else has this name: the answer to the first try was lost.
        there = store.get_range(name, 0, len(start := b"".join(parts[:2])))
        if there != start:
            raise FileExistsError(f"{store.location}/{name} is there already")
    return _segment(name, header, keys, sum(map(len, parts[:2])))


def oldest_of(records: pa.RecordBatch) -> float:
    """When the first of some messages was published, in seconds of Unix time; 0 if none tells."""
    oldest = pc.min(records.column("publish_time")).as_py()
    return float(oldest.timestamp()) if oldest else 0.0


def conformed(records: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with the columns exactly as segments have them."""
    columns = [records.column(field.name).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def chunked(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows in record batches of moderate size."""
    start, rows = 0, records.num_rows
    while start < rows:
        part = records.slice(start, CHUNK_ROWS)
        while part.num_rows > 1 and part.nbytes > CHUNK_BYTES:
            part = part.slice(0, part.num_rows // 2)
        yield part
        start += part.num_rows


def load(store: Store, name: str, wal: str) -> Segment:
    """Read what is known of a segment that somebody wrote.

    Raises:
        DataLossError: It is not there, or damaged.
    """
    try:
        with reading(store, name):
            header, of, length = _header_and_keys(store, name, wal)
    except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
        raise damaged(store, name, error) from error
    return _segment(name, header, of, length)


def _header_and_keys(store: Store, name: str, wal: str) -> tuple[dict[str, Any], Keys, int]:
    head = store.get_range(name, 0, _FIRST_READ)
    if (end := _end_of_header(head)) > len(head):
        head = store.get_range(name, 0, end)
    header, length = _header(head)
    if header["wal"] != wal:
        raise ValueError(f"it belongs to another log, {header['wal']!r}")
    rows = int(header["rows"])
    counts = [8 * rows, 8 * rows, 4 * rows]
    keys: list[Buffer] = []
    offset = length
    for count, expected in zip(counts, header["keys"], strict=True):
        keys.append(part := store.get_range(name, offset, count))
        _check(part, count, expected)
        offset += _padded(count)
    lows, highs = (np.frombuffer(part, np.uint64) for part in keys[:2])
    return header, Keys(lows, highs, np.frombuffer(keys[2], np.uint32)), length


def read_chunk(store: Store, name: str, chunk: Chunk) -> pa.RecordBatch:
    """The rows of a chunk.

    Raises:
        DataLossError: They are not there, or damaged.
    """
    try:
        with reading(store, name):
            body = store.get_range(name, chunk.offset, chunk.length)
        _check(body, chunk.length, chunk.checksum)
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), SCHEMA)
        if batch.num_rows != chunk.rows:
            raise ValueError(f"a chunk has {batch.num_rows} rows, not {chunk.rows}")
    except (ValueError, FileNotFoundError) as error:
        raise damaged(store, name, error) from error
    return batch


def damaged(store: Store, name: str, error: Exception) -> DataLossError:
    """What is raised for a file of the log that cannot be used."""
    what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged ({error})"
    return DataLossError(f"walLocation: {store.location}/{name} {what}{_ONLY_COPY}")


def left_out(error: DataLossError, rows: int | None = None) -> str:
    """What is logged where `failOnDataLoss` is false.

    Args:
        error: What would be raised otherwise.
        rows: How many messages are lost, if that is known.
    """
    many = "its messages" if rows is None else f"{rows:,} of its messages"
    return f"{str(error).removesuffix(_ONLY_COPY)}: {many} are left out, as failOnDataLoss is false"


def checksum(part: Buffer) -> str:
    """Of bytes; what an accident does to them is noticed."""
    return xxhash.xxh3_64_hexdigest(part)


def _check(part: Buffer, length: int, expected: object) -> None:
    if len(part) != length:
        raise ValueError(f"{len(part)} bytes are there, not {length}")
    if checksum(part) != expected:
        raise ValueError("its checksum is another")


def _laid_out(header: dict[str, Any], bodies: Sequence[Buffer]) -> list[Buffer]:
    """The bytes of a file, in parts; the first two are the prefix and the header."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (_padded(_PREFIX.size + len(text)) - _PREFIX.size - len(text))
    prefix = _PREFIX.pack(_MAGIC, len(text), xxhash.xxh3_64_intdigest(text))
    parts: list[Buffer] = [prefix, text]
    for body in bodies:
        parts += [body, bytes(_padded(len(body)) - len(body))]
    return parts


def _end_of_header(head: Buffer) -> int:
    if len(head) < _PREFIX.size:
        raise ValueError(f"{len(head)} bytes are there, not even {_PREFIX.size}")
    magic, length, _ = _PREFIX.unpack_from(head)
    if magic != _MAGIC:
        raise ValueError("it is no segment")
    return _PREFIX.size + int(length)


def _header(head: Buffer) -> tuple[dict[str, Any], int]:
    """The header, and where it ends."""
    end = _end_of_header(head)
    text = bytes(head[_PREFIX.size : end])
    if xxhash.xxh3_64_intdigest(text) != _PREFIX.unpack_from(head)[2]:
        raise ValueError("the checksum of its header is another")
    header: dict[str, Any] = json.loads(text)
    if header["version"] != _VERSION:
        raise ValueError(f"it has the format {header['version']}, not {_VERSION}")
    return header, end


def _segment(name: str, header: dict[str, Any], keys: Keys, end: int) -> Segment:
    rows = header["rows"]
    offset = end + sum(map(_padded, (8 * rows, 8 * rows, 4 * rows)))
    chunks = []
    for length, count, expected in header["chunks"]:
        chunks.append(Chunk(offset, length, count, expected))
        offset += _padded(length)
    return Segment(name, rows, header["size"], header["oldest"], keys, tuple(chunks))


def _padded(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED


def _bytes(column: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(column).view(np.uint8).data

"""What the tests of the log share: a store in memory that can fail, and messages."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from pubsub_aio.spark.streaming import segments
from pubsub_aio.spark.streaming.keys import keys_of
from pubsub_aio.spark.streaming.layout import segment_name
from pubsub_aio.spark.streaming.segments import SCHEMA, Segment
from pubsub_aio.spark.streaming.stores import Buffer, Store
from pubsub_aio.spark.streaming.wal import Wal

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
SUBSCRIPTION = "projects/test/subscriptions/lake"


class CrashError(Exception):
    """The process dies here, in a test."""


class MemoryStore:
    """A store in memory; it may have its caller die before or after an operation takes effect."""

    def __init__(self) -> None:
        self.location = "memory"
        self.files: dict[str, bytes] = {}
        self.dies_in: int | None = None
        """So many operations from now."""
        self.dies_after = False
        """Whether the last of them still takes effect."""

    def _dies(self) -> bool:
        if self.dies_in is None:
            return False
        self.dies_in -= 1
        if self.dies_in >= 0:
            return False
        self.dies_in = None
        if not self.dies_after:
            raise CrashError
        return True

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        dies = self._dies()
        absent = name not in self.files
        if absent:
            self.files[name] = b"".join(parts)
        if dies:
            raise CrashError
        return absent

    def get(self, name: str) -> Buffer:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def get_range(self, name: str, start: int, length: int) -> Buffer:
        return self.get(name)[start : start + length]

    def names(self, folder: str) -> list[str]:
        everything = sorted(self.files)
        place = bisect.bisect_left(everything, f"{folder}/")
        found = []
        while place < len(everything) and everything[place].startswith(f"{folder}/"):
            found.append(everything[place].removeprefix(f"{folder}/"))
            place += 1
        return found

    def delete(self, names: Iterable[str]) -> None:
        for name in [*names]:
            dies = self._dies()
            self.files.pop(name, None)
            if dies:
                raise CrashError

    def prepare(self, folders: Iterable[str]) -> None:
        pass


def rows(
    ids: Sequence[str], *, attributes: Sequence[dict[str, str]] | None = None
) -> pa.RecordBatch:
    """Messages with these ids."""
    count = len(ids)
    maps = [[*each.items()] for each in attributes or [{}] * count]
    columns = [
        [*ids],
        [each.encode() for each in ids],
        maps,
        [datetime.fromtimestamp(NOW, UTC)] * count,
        [""] * count,
        [None] * count,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class Names:
    """Names of segments, in order."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return segment_name(self._count, "test")


names = Names()


def write(store: Store, wal: str, ids: Sequence[str], *, attribute: str = "") -> Segment:
    """A segment of messages with these ids, each of ten bytes."""
    records = rows(ids)
    keys = keys_of(records, attribute)
    return segments.write(store, names.next(), wal, records, keys, 10 * len(ids))


def opened(store: Store, *, window: float = 1_000.0, max_ids: int = 10**6) -> Wal:
    wal = Wal(store, window=window, max_ids=max_ids)
    wal.open(SUBSCRIPTION)
    return wal


def arrive(wal: Wal, ids: Sequence[str]) -> Segment:
    """Have messages come and be kept."""
    wal.arrived(segment := write(wal.store, wal.id, ids))
    return segment


def commit(wal: Wal, seq: int) -> None:
    """Batches up to that one are done, and what may be deleted is."""
    if (collection := wal.commit(seq)) is not None:
        try:
            collection.perform(wal.store)
        except OSError:
            wal.not_collected()
            raise
        wal.collected(collection)


def read(wal: Wal, seq: int) -> list[tuple[int, str]]:
    """The sequence numbers and the ids of a batch, as tasks would read them."""
    from pubsub_aio.spark.streaming.reading import rows_of

    found: list[tuple[int, str]] = []
    for piece in wal.pieces(seq - 1, seq):
        chunk = segments.read_chunk(wal.store, piece.segment, piece.chunk)
        batch = rows_of(chunk, piece, "")
        numbers = batch.column("sequence").to_pylist()
        found += zip(numbers, batch.column("message_id").to_pylist(), strict=True)
    return found


def ids_of(wal: Wal, seq: int) -> list[str]:
    return [message_id for _, message_id in read(wal, seq)]

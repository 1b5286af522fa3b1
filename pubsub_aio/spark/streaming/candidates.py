"""Segments that wait to be in a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pubsub_aio.spark.streaming.keys import Keys, Rows
from pubsub_aio.spark.streaming.manifests import Part, Waiting
from pubsub_aio.spark.streaming.seen import Run, Seen, rows_repeated
from pubsub_aio.spark.streaming.segments import Segment

_NO_LIMIT = 1 << 62
_STALE_KEYS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much a batch may have; nothing means no limit."""

    rows: int | None = None
    size: int | None = None


@dataclass(slots=True)
class Candidate:
    """A segment, or the rest of one, that waits to be in a batch."""

    segment: Segment
    start: int
    """The first row that waits."""
    keys: Keys
    """Of all rows that wait and are no duplicates."""
    duplicates: Rows
    """In order."""
    since: float
    """When it was first compared with what was seen, by the clock of the log."""

    @property
    def rows(self) -> int:
        """How many wait."""
        return self.segment.rows - self.start

    @property
    def size(self) -> int:
        """What they took on the wire, about."""
        return self.segment.size * self.rows // self.segment.rows

    def take(self, kept: int, size: int) -> Part:
        """The first rows: as many as are within both limits, at least one."""
        stop = self.segment.rows
        if len(self.keys.rows) > kept:
            stop = int(np.partition(self.keys.rows, kept)[kept])  # the first that is one too many
        each = max(1, self.segment.size // self.segment.rows)
        stop = max(self.start + 1, min(stop, self.start + max(0, size) // each))
        inside = self.duplicates[(self.duplicates >= self.start) & (self.duplicates < stop)]
        rows = stop - self.start
        return Part(self.segment.name, self.start, rows, self.segment.rows, as_runs(inside))


class Candidates:
    """All that is durable and in no batch yet, in the order in which batches are made of it.

    Args:
        in_order: Whether that is the order in which segments were written, and not that in which
            they were found.
    """

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._waiting: dict[str, Candidate] = {}
        self._keys = Seen(math.inf)  # of these, and of some that are in batches by now

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def add(self, segment: Segment, start: int, seen: Seen, *, since: float) -> None:
        """A segment has come, whose rows from that one on are in no batch.

        What was seen, or waits already, is a duplicate here.
        """
        is_late = self._in_order and not start and segment.name < self.newest
        self._compare(segment, start, seen, since)
        if is_late:
            again = sorted(
                self._waiting.values(), key=lambda each: (not each.start, each.segment.name)
            )
            self._waiting, self._keys = {}, Seen(math.inf)
            for each in again:
                self._compare(each.segment, each.start, seen, each.since)

    def _compare(self, segment: Segment, start: int, seen: Seen, since: float) -> None:
        keys = segment.keys.between(start, segment.rows) if start else segment.keys
        found = [rows_repeated(keys), seen.rows_seen(keys), self._keys.rows_seen(keys)]
        duplicates = np.unique(np.concatenate(found))
        new = keys.without(duplicates)
        self._waiting[segment.name] = Candidate(segment, start, new, duplicates, since)
        self._keys.add(Run(new.lows, new.highs))

    def choose(self, limit: Limit) -> Iterator[Part]:
        """What the next batch has."""
        rows = limit.rows if limit.rows is not None else _NO_LIMIT
        size = limit.size if limit.size is not None else _NO_LIMIT
        for candidate in self._waiting.values():
            part = candidate.take(rows, size)
            yield part
            rows -= part.rows - part.dropped
            size -= candidate.segment.size * part.rows // part.of
            if part.stop < part.of or rows <= 0 or size <= 0:
                return

    def keys_of(self, part: Part) -> Keys:
        """The keys of rows that are about to be in a batch, without duplicates."""
        return self._waiting[part.segment].keys.between(part.start, part.stop)

    def without(self, parts: tuple[Part, ...]) -> Waiting:
        """What will wait when these are in a batch."""
        now = self.waiting
        sizes = (self._waiting[part.segment].segment.size * part.rows // part.of for part in parts)
        return Waiting(
            segments=now.segments - sum(part.stop == part.of for part in parts),
            rows=now.rows - sum(part.rows for part in parts),
            size=max(0, now.size - sum(sizes)),
        )

    def since_without(self, parts: tuple[Part, ...]) -> float:
        """When the first of those was compared that will wait then."""
        gone = {part.segment for part in parts if part.stop == part.of}
        left = (each.since for name, each in self._waiting.items() if name not in gone)
        return min(left, default=math.inf)

    def remove(self, parts: tuple[Part, ...]) -> None:
        """These are in a batch; what is left of the last one stays the first."""
        for part in parts:
            candidate = self._waiting.pop(part.segment, None)
            if candidate and part.stop < part.of:
                keys = candidate.keys.between(part.stop, part.of)
                rest = replace(candidate, start=part.stop, keys=keys)
                self._waiting = {part.segment: rest, **self._waiting}
        if not self._waiting or len(self._keys) > _STALE_KEYS + 2 * self.waiting.rows:
            self._keys = Seen(math.inf)
            for candidate in self._waiting.values():
                self._keys.add(Run(candidate.keys.lows, candidate.keys.highs))

    @property
    def waiting(self) -> Waiting:
        """How much there is."""
        candidates = self._waiting.values()
        return Waiting(
            segments=len(candidates),
            rows=sum(candidate.rows for candidate in candidates),
            size=sum(candidate.size for candidate in candidates),
        )

    @property
    def newest(self) -> str:
        """The last of them; nothing if none waits."""
        return next(reversed(self._waiting), "")

    @property
    def oldest(self) -> float:
        """When the first message of all was published, in seconds of Unix time."""
        return min((each.segment.oldest for each in self._waiting.values()), default=math.inf)


def as_runs(rows: Rows) -> tuple[tuple[int, int], ...]:
    """Rows in order, as runs."""
    if not len(rows):
        return ()
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return tuple((int(run[0]), len(run)) for run in np.split(rows, breaks))


def as_rows(runs: tuple[tuple[int, int], ...]) -> Rows:
    """What `as_runs` was given."""
    spans = [np.arange(start, start + count, dtype=np.uint32) for start, count in runs]
    return np.concatenate(spans) if spans else np.zeros(0, np.uint32)

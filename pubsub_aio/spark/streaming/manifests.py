"""The values of the log, and how they are written: manifests of batches, and ids of a window."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pubsub_aio.spark.streaming.seen import Run
from pubsub_aio.spark.streaming.segments import checksum
from pubsub_aio.spark.streaming.stores import Buffer

VERSION = 1


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a segment that belong to a batch.

    Attributes:
        segment: Its name.
        start: The first of the rows.
        rows: How many there are.
        of: How many the segment has.
        drop: Those among them that are duplicates, as runs: the first, and how many.
    """

    segment: str
    start: int
    rows: int
    of: int
    drop: tuple[tuple[int, int], ...] = ()

    @property
    def stop(self) -> int:
        """Behind the last row."""
        return self.start + self.rows

    @property
    def dropped(self) -> int:
        """How many are duplicates."""
        return sum(count for _, count in self.drop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What was durable and in no batch yet."""

    segments: int = 0
    rows: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A batch: which rows it has. Once it is in the log it never changes.

    Attributes:
        wal: The log that it belongs to.
        seq: Its number, from 1.
        clock: Seconds for which messages were coming, since the log began. The window counts by
            it, so that an outage does not make messages unknown.
        horizon: What the clock was when the first of those came that wait then. Ids are kept for a
            window before it: whoever compares what waits once more comes to the same.
        time: When it was sealed, in seconds of Unix time.
        first: The sequence number of its first row.
        parts: Its rows.
        size: What they took on the wire, in bytes, about.
        rows: How many the batches up to this have, without duplicates.
        duplicates: How many duplicates were dropped, up to this.
        waiting: What was left for later batches.
    """

    wal: str
    seq: int
    clock: float
    horizon: float
    time: float
    first: int
    parts: tuple[Part, ...]
    size: int
    rows: int
    duplicates: int
    waiting: Waiting

    @property
    def end(self) -> int:
        """The sequence number behind its last row."""
        return self.first + sum(part.rows for part in self.parts)

    @property
    def rest(self) -> Part | None:
        """What is left of its last segment for the next batch."""
        last = self.parts[-1] if self.parts else None
        if last is None or last.stop == last.of:
            return None
        return Part(last.segment, last.stop, last.of - last.stop, last.of)

    @property
    def finished(self) -> list[str]:
        """The segments that no later batch has rows of."""
        return [part.segment for part in self.parts if part.stop == part.of]

    def write(self) -> bytes:
        """As it is kept."""
        return sealed(asdict(self))

    @classmethod
    def read(cls, data: Buffer) -> Manifest:
        """One that was kept.

        Raises:
            ValueError: It is damaged.
        """
        fields = opened(data)
        try:
            parts = tuple(
                Part(**(part | {"drop": tuple((int(a), int(b)) for a, b in part["drop"])}))
                for part in fields.pop("parts")
            )
            waiting = Waiting(**fields.pop("waiting"))
            return cls(**fields, parts=parts, waiting=waiting)
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is no manifest: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """The keys of batches whose segments may be gone.

    Attributes:
        wal: The log that it belongs to.
        since: The number of the first batch.
        until: The number of the last.
        segments: Those that are finished with these batches.
        run: The keys.
    """

    wal: str
    since: int
    until: int
    segments: tuple[str, ...]
    run: Run

    def write(self) -> list[Buffer]:
        """As it is kept: a line of JSON, then the keys."""
        halves = [column.tobytes() for column in (self.run.lows, self.run.highs)]
        header = sealed(
            {
                "wal": self.wal,
                "since": self.since,
                "until": self.until,
                "segments": self.segments,
                "clock": [self.run.since, self.run.until],
                "keys": len(self.run),
                "checksums": [checksum(half) for half in halves],
            }
        )
        return [header, b"\n", *halves]

    @classmethod
    def read(cls, data: Buffer) -> Ids:
        """One that was kept.

        Raises:
            ValueError: It is damaged.
        """
        whole = bytes(data)
        end = whole.find(b"\n")
        fields = opened(whole[: max(0, end)])
        try:
            count = 8 * int(fields["keys"])
            halves = [whole[end + 1 :][:count], whole[end + 1 :][count:]]
            if [checksum(half) for half in halves] != fields["checksums"]:
                raise ValueError("the checksum of its keys is another")
            lows, highs = (np.frombuffer(half, np.uint64) for half in halves)
            since, until = map(float, fields["clock"])
            return cls(
                wal=fields["wal"],
                since=int(fields["since"]),
                until=int(fields["until"]),
                segments=tuple(fields["segments"]),
                run=Run(lows, highs, since, until),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it has no ids: {error}") from error


def sealed(fields: dict[str, Any]) -> bytes:
    """A line of JSON with its version and checksum."""
    text = json.dumps({"version": VERSION, **fields}, separators=(",", ":"))
    return f'["{checksum(text.encode())}",{text}]'.encode()


def opened(data: Buffer) -> dict[str, Any]:
    """What `sealed` was given.

    Raises:
        ValueError: It is not what `sealed` made.
    """
    text = bytes(data).decode()
    mark, body = text[2:18], text[20:-1]
    if not text.startswith('["') or mark != checksum(body.encode()):
        raise ValueError("its checksum is another")
    fields: dict[str, Any] = json.loads(body)
    if (version := fields.pop("version")) != VERSION:
        raise ValueError(f"it has the format {version}, not {VERSION}")
    return fields

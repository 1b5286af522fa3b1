"""What a task reads: pieces of segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pubsub_aio.spark.streaming.manifests import Part
from pubsub_aio.spark.streaming.segments import Chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that a task reads: some of a chunk.

    Attributes:
        segment: The name of the file.
        chunk: Where in it.
        start: The first row of the chunk that is wanted.
        stop: Behind the last one.
        drop: Rows among them that are duplicates, as runs, counted from the chunk's first.
        sequence: The sequence number of the first row.
    """

    segment: str
    chunk: Chunk
    start: int
    stop: int
    drop: tuple[tuple[int, int], ...]
    sequence: int


def cut(part: Part, chunks: tuple[Chunk, ...], sequence: int) -> Iterator[Piece]:
    """The rows of a part, chunk by chunk."""
    first = 0
    for chunk in chunks:
        start, stop = max(part.start, first), min(part.stop, first + chunk.rows)
        if start < stop:
            drop = tuple(
                (max(begin, start) - first, min(begin + count, stop) - max(begin, start))
                for begin, count in part.drop
                if begin < stop and begin + count > start
            )
            yield Piece(
                part.segment,
                chunk,
                start - first,
                stop - first,
                drop,
                sequence + start - part.start,
            )
        first += chunk.rows

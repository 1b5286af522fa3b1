"""A topic's messages, each kept once, whatever the number of subscriptions."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Iterator, Sequence

SHIFT = 9
SPAN = 1 << SHIFT
"""Messages in a chunk: what is stored, and what is freed, at once."""

MASK = SPAN - 1


class Chunk:
    """The messages at offsets `number * SPAN` and on, at most `SPAN` of them."""

    __slots__ = ("records", "times")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.times = array("d")


class TopicLog:
    """Messages by offset, in the order of their publishing.

    A message is a record (see records.py): the bytes that are sent to a subscriber but for the ack
    id. Offsets never repeat. Messages that nobody needs are dropped a chunk at a time.
    """

    def __init__(self) -> None:
        self.next = 0
        self.first = 0
        """The oldest message that is kept; `next` if nothing is."""
        self.retold: Callable[[bytes], bytes] | None = None
        """What subscribers are sent instead of a record, once schemas or revisions were deleted."""
        self._chunks: dict[int, Chunk] = {}

    def append(self, records: Sequence[bytes], *, time: float) -> None:
        """Add messages, all published at `time`, which never runs backwards."""
        self.extend(records, array("d", [time]) * len(records))

    def extend(self, records: Sequence[bytes], times: array[float]) -> None:
        """Add messages, each with the time at which it was published."""
        position = 0
        while position < len(records):
            number, start = self.next >> SHIFT, self.next & MASK
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = Chunk()
                # After a skip the chunk begins in its middle: offsets must still match positions.
                chunk.records.extend([b""] * start)
                chunk.times.extend(array("d", [times[position]]) * start)
            end = position + SPAN - start
            chunk.records.extend(records[position:end])
            chunk.times.extend(times[position:end])
            self.next += min(end, len(records)) - position
            position = end

    def skip(self, count: int) -> None:
        """Number messages that nobody will ever read, without keeping them."""
        self._chunks.clear()
        self.next += count
        self.first = self.next

    def chunk(self, number: int) -> Chunk:
        """The chunk of that number, which must still be kept."""
        return self._chunks[number]

    def record(self, offset: int) -> bytes:
        """One message, which must still be kept."""
        return self._chunks[offset >> SHIFT].records[offset & MASK]

    def time(self, offset: int) -> float:
        """When that message, which must still be kept, was published."""
        return self._chunks[offset >> SHIFT].times[offset & MASK]

    def parts(self, start: int, stop: int) -> Iterator[tuple[list[bytes], array[float]]]:
        """The messages from `start` up to `stop`, which must still be kept, and their times."""
        while start < stop:
            chunk, index = self._chunks[start >> SHIFT], start & MASK
            count = min(stop - start, SPAN - index)
            yield chunk.records[index : index + count], chunk.times[index : index + count]
            start += count

    def first_since(self, time: float) -> int:
        """The first kept offset that was published at `time` or later; `next` if there is none."""
        for number, chunk in self._chunks.items():
            if chunk.times[-1] >= time:
                found = (number << SHIFT) + bisect.bisect_left(chunk.times, time)
                return max(found, self.first)
        return self.next

    def drop_before(self, offset: int) -> None:
        """Forget the messages before `offset`."""
        self.first = max(self.first, offset)
        number = offset >> SHIFT
        while self._chunks and next(iter(self._chunks)) < number:
            del self._chunks[next(iter(self._chunks))]
        if number in self._chunks:
            records = self._chunks[number].records
            records[: offset & MASK] = [b""] * min(offset & MASK, len(records))

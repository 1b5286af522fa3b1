"""Which messages each file of the log holds, and which files are needed no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.storage.saved import SavedMessages


@dataclass(slots=True)
class Held:
    """Messages of a topic side by side, and how large they are."""

    topic: int
    start: int
    stop: int
    size: int

    def needed(self, first: int) -> float:
        """How much of it, in bytes, comes at or after the first message that is still kept."""
        share = (self.stop - max(self.start, first)) / (self.stop - self.start)
        return max(0.0, share) * self.size


@dataclass(slots=True, eq=False)
class Segment:
    """A file of the log."""

    number: int
    length: int = 0
    held: list[Held] = field(default_factory=list)
    _latest: dict[int, Held] = field(default_factory=dict)

    def note(self, saved: Iterable[SavedMessages]) -> None:
        """Messages were written to it."""
        for messages in saved:
            size, count = messages.ByteSize(), len(messages.records)
            latest = self._latest.get(messages.topic)
            if latest and latest.stop == messages.first:
                latest.stop += count
                latest.size += size
            else:
                new = Held(messages.topic, messages.first, messages.first + count, size)
                self.held.append(new)
                self._latest[messages.topic] = new

    def needed(self, first_of: Callable[[int], int | None]) -> float:
        """How many bytes of its messages are still kept.

        `first_of` tells the first message that a topic keeps; none if there is no such topic.
        """
        total = 0.0
        for held in self.held:
            first = first_of(held.topic)
            if first is not None:
                total += held.needed(first)
        return total


def worth_clearing(
    segments: Iterable[Segment], first_of: Callable[[int], int | None], *, full: int
) -> Iterator[Segment]:
    """The segments of which so little is needed that it should be written again elsewhere.

    A file that is small, as those of short lives are, counts as one that is full: what files there
    are is bounded by what is needed.
    """
    for segment in segments:
        if segment.needed(first_of) < full / 2:
            yield segment

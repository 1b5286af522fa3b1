"""Messages that go together, and the lines they wait in."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, Protocol, TypeVar


class Passenger(Protocol):
    """A message, as far as it matters here: it knows its batch, and its place there."""

    batch: Batch  # type: ignore[type-arg] # of its own kind
    index: int


P = TypeVar("P", bound=Passenger)

_OF_THE_QUEUE = ("counted", "counted_size", "due", "due_at", "gone", "last", "max_size")
_OF_ITS_FATE = (
    "attempts",
    "ends_at",
    "error",
    "message_ids",
    "publish_time",
    "published_at",
    "trouble",
)
_OF_WHO_KNOWS = ("announced", "asked_for", "awaited")
_INHERITED = (
    "attempts",
    "ends_at",
    "gone",
    "publish_time",
    "published_at",
    "trouble",
    *_OF_WHO_KNOWS,
)


class Batch(Generic[P]):
    """Messages of a lane that go in one request, and what has become of them."""

    __slots__ = (
        *("lane", "offset", "options", "passengers", "size", "wires", "withdrawn"),
        *(_OF_THE_QUEUE + _OF_ITS_FATE + _OF_WHO_KNOWS),
    )

    def __init__(self, lane: Lane[P], options: object) -> None:
        self.lane = lane
        self.options = options
        self.passengers: list[P] = []
        self.wires: list[bytes] = []
        """Each message as the request has it."""
        self.size = 0
        """Bytes of all of them."""
        self.offset = 0
        """How many messages were before it in the batch that it was a part of."""
        self.withdrawn = 0
        """How many were taken back; each has left an empty wire behind."""

        self.last = -1
        """The place of the last message that it takes."""
        self.max_size = -1
        """The most bytes that it takes, if it takes more than one; below zero it takes no more."""
        self.counted = self.counted_size = 0
        """How many messages and bytes of it the queue has counted."""
        self.due_at = math.inf
        self.due = False
        """Whether it need not wait for more."""
        self.gone = False
        """Whether it has left the queue."""

        self.attempts = 0
        self.published_at: float | None = None
        self.publish_time: object = None
        self.ends_at = math.inf
        self.message_ids: list[str] | None = None
        self.error: BaseException | None = None
        self.trouble: BaseException | None = None
        """Why the last attempt failed."""

        self.awaited = False
        """Whether somebody waits for one of them to leave."""
        self.announced = False
        """Whether its departure was told."""
        self.asked_for = False
        """Whether somebody has asked for the fate of one of them."""

    def __len__(self) -> int:
        return len(self.passengers) - self.withdrawn

    def withdraw(self, index: int) -> None:
        """Take a message back before it has left."""
        self.size -= len(self.wires[index])
        self.wires[index] = b""
        self.withdrawn += 1

    def compact(self) -> None:
        """Close the gaps that withdrawn messages left."""
        if self.withdrawn:
            both = zip(self.passengers, self.wires, strict=True)
            self.withdrawn = 0
            self._seat([pair for pair in both if pair[1]])

    def split(self, count: int) -> Batch[P]:
        """Part with the first messages, which become a batch of their own."""
        first = Batch(self.lane, self.options)
        for name in _INHERITED:
            setattr(first, name, getattr(self, name))
        both = list(zip(self.passengers, self.wires, strict=True))
        first._seat(both[:count])
        self._seat(both[count:])
        first.size = sum(map(len, first.wires))
        self.size -= first.size
        first.offset, self.offset = self.offset, self.offset + count
        return first

    def _seat(self, pairs: list[tuple[P, bytes]]) -> None:
        self.passengers = [passenger for passenger, _ in pairs]
        self.wires = [wire for _, wire in pairs]
        for index, passenger in enumerate(self.passengers):
            passenger.batch = self
            passenger.index = index


class Lane(Generic[P]):
    """Messages that may go together, in order: those of a topic, or of one of its ordering keys."""

    __slots__ = ("batches", "busy", "hollow", "key", "open", "ordering_key", "paused_by", "topic")

    def __init__(self, key: tuple[str, str, object], topic: str, ordering_key: str) -> None:
        self.key = key
        self.topic = topic
        self.ordering_key = ordering_key
        self.batches: deque[Batch[P]] = deque()
        self.hollow = 0
        """How many of them have nothing left; it may be fewer."""
        self.open: Batch[P] | None = None
        """The last of them, while it takes more."""
        self.busy = False
        """Whether a batch of an ordering key is on its way; one at a time is."""
        self.paused_by: BaseException | None = None
        """Why nothing more of an ordering key goes until it is resumed."""

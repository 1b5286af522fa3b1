"""What waits to be published: which messages go together, and in which order."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, Protocol, TypeVar

MAX_PAUSED = 100_000
"""Ordering keys that may be paused one by one; past this all of them are."""


_INHERITED = (
    *("announced", "asked_for", "attempts", "awaited", "ends_at", "publish_time", "published_at"),
)


class Passenger(Protocol):
    """A message, as far as it matters here: it knows its batch, and its place there."""

    batch: Batch  # type: ignore[type-arg] # of its own kind
    index: int


P = TypeVar("P", bound=Passenger)


class Batch(Generic[P]):
    """Messages of a lane that go in one request, and what has become of them."""

    __slots__ = (
        *(
            "announced",
            "asked_for",
            "attempts",
            "awaited",
            "due",
            "due_at",
            "ends_at",
            "error",
            "gone",
            "lane",
        ),
        *("message_ids", "options", "passengers", "publish_time", "published_at", "size"),
        *("wires", "withdrawn"),
    )

    def __init__(self, lane: Lane[P], options: object) -> None:
        self.lane = lane
        self.options = options
        self.passengers: list[P] = []
        self.wires: list[bytes] = []
        """Each message as the request has it."""
        self.size = 0
        """Bytes of all of them."""
        self.withdrawn = 0
        """How many were taken back; each has left an empty wire behind."""
        self.due_at = math.inf
        self.due = False
        """Whether it need not wait for more."""
        self.gone = False
        """Whether it has left the queue."""
        self.awaited = False
        """Whether somebody waits for one of them to leave."""
        self.asked_for = False
        """Whether somebody has asked for the fate of one of them."""
        self.announced = False
        """Whether its departure was told."""
        self.attempts = 0
        self.published_at: float | None = None
        self.publish_time: object = None
        self.ends_at = math.inf
        self.message_ids: list[str] | None = None
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self.passengers) - self.withdrawn

    def withdraw(self, index: int) -> int:
        """Take a message back before it has left; returns its size."""
        size = len(self.wires[index])
        self.wires[index] = b""
        self.withdrawn += 1
        self.size -= size
        return size

    def compact(self) -> None:
        """Close the gaps that withdrawn messages left."""
        if self.withdrawn:
            kept = [one for one in zip(self.passengers, self.wires, strict=True) if one[1]]
            self.passengers, self.wires, self.withdrawn = [], [], 0
            self._adopt(kept)

    def split(self, count: int) -> Batch[P]:
        """Part with the first messages, which become a batch of their own."""
        first = Batch(self.lane, self.options)
        for name in _INHERITED:
            setattr(first, name, getattr(self, name))
        both = list(zip(self.passengers, self.wires, strict=True))
        first._adopt(both[:count])
        first.size = sum(map(len, first.wires))
        self.passengers, self.wires = [], []
        self._adopt(both[count:])
        self.size -= first.size
        return first

    def _adopt(self, pairs: list[tuple[P, bytes]]) -> None:
        for passenger, wire in pairs:
            passenger.batch = self
            passenger.index = len(self.passengers)
            self.passengers.append(passenger)
            self.wires.append(wire)


class Lane(Generic[P]):
    """Messages that may go together, in order: those of a topic, or of one of its ordering keys."""

    __slots__ = ("batches", "busy", "key", "open", "ordering_key", "paused_by", "topic")

    def __init__(self, key: tuple[str, str, object], topic: str, ordering_key: str) -> None:
        self.key = key
        self.topic = topic
        self.ordering_key = ordering_key
        self.batches: deque[Batch[P]] = deque()
        self.open: Batch[P] | None = None
        """The last of them, while it takes more."""
        self.busy = False
        """Whether a batch of an ordering key is on its way; one at a time is."""
        self.paused_by: BaseException | None = None
        """Why nothing more of an ordering key goes until it is resumed."""


class Departures(Generic[P]):
    """Everything that waits to be published.

    Args:
        max_messages: The most in a request.
        max_bytes: The most bytes in a request, but for a message that is larger by itself.
        max_latency: Seconds that a message waits for others.
        max_paused: How many ordering keys may be paused one by one.
    """

    def __init__(
        self,
        *,
        max_messages: int,
        max_bytes: int,
        max_latency: float,
        max_paused: int = MAX_PAUSED,
    ) -> None:
        self._last = max_messages - 1
        self._max_bytes = max_bytes
        self._max_latency = max_latency
        self._max_paused = max_paused
        self.count = 0
        """Messages that wait."""
        self.size = 0
        """Their bytes."""
        self.max_count: float = math.inf
        """How many may wait, and how many bytes; whoever adds looks at it before."""
        self.max_size: float = math.inf
        self.all_paused = False
        """Whether too many ordering keys are paused to tell them apart."""
        self._paused = 0
        self._lanes: dict[tuple[str, str, object], Lane[P]] = {}
        self._ready: dict[Lane[P], None] = {}
        self._fresh: list[Batch[P]] = []
        self._aging: deque[Batch[P]] = deque()
        self._blocked: set[str] = set()
        self._flushing = False

    def __len__(self) -> int:
        return len(self._lanes)

    # In

    def lane(self, topic: str, ordering_key: str, options: object) -> Lane[P]:
        """The lane of such messages; what has an ordering key has one lane, whatever its options.

        It may be forgotten when it has nothing to do: add to it at once.
        """
        key = (topic, ordering_key, None if ordering_key else options)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, topic, ordering_key)
        return lane

    def add(self, lane: Lane[P], passenger: P, wire: bytes, options: object) -> bool:
        """Put a message in line; returns whether `poll` should be called soon."""
        size = len(wire)
        batch = lane.open
        news = False
        if (
            batch is None
            or batch.options is not options
            or (batch.size + size > self._max_bytes and batch.passengers)
        ):
            batch = self._open(lane, options)
            news = True
        passengers = batch.passengers
        passenger.batch = batch
        passenger.index = index = len(passengers)
        passengers.append(passenger)
        batch.wires.append(wire)
        batch.size += size
        self.count += 1
        self.size += size
        if index >= self._last:
            self._close(lane)
            news = True
        return news

    def _open(self, lane: Lane[P], options: object) -> Batch[P]:
        if lane.open is not None:
            self._close(lane)
        batch = lane.open = Batch(lane, options)
        lane.batches.append(batch)
        self._fresh.append(batch)
        return batch

    def _close(self, lane: Lane[P]) -> None:
        if lane.open is not None:
            lane.open.due = True
            lane.open = None
            self._offer(lane)

    def withdraw(self, passenger: P) -> None:
        """Take back a message that waits."""
        self.size -= passenger.batch.withdraw(passenger.index)
        self.count -= 1

    # Out

    def poll(self, *, now: float) -> float:
        """Note what is old enough to go; returns when more will be, infinity if nothing waits."""
        for batch in self._fresh:
            batch.due_at = now + self._max_latency
        self._aging += self._fresh
        self._fresh.clear()
        aging = self._aging
        while aging and (self._flushing or aging[0].gone or aging[0].due_at <= now):
            batch = aging.popleft()
            if not batch.gone:
                batch.due = True
                self._offer(batch.lane)
        return aging[0].due_at if aging else math.inf

    def flush(self) -> None:
        """Let nothing wait for others any more."""
        self._flushing = True

    def take(self, room: int) -> Batch[P] | None:
        """The next batch to go, of `room` messages at most; none if there is none."""
        if room < 1:
            return None
        while self._ready:
            lane = next(iter(self._ready))
            del self._ready[lane]
            batch = self._first(lane, room)
            if batch is None:
                self._forget_if_idle(lane)
                continue
            if lane.ordering_key:
                lane.busy = True
            else:
                self._offer(lane)
            self.count -= len(batch)
            self.size -= batch.size
            return batch
        return None

    def _first(self, lane: Lane[P], room: int) -> Batch[P] | None:
        """The first messages of a lane, out of it; none if all that was due is withdrawn."""
        while lane.batches and lane.batches[0].due:
            batch = lane.batches[0]
            batch.compact()
            if len(batch) > room:
                first = batch.split(room)
                first.due = first.gone = True
                return first
            lane.batches.popleft()
            batch.gone = True
            if lane.open is batch:
                lane.open = None
            if batch.passengers:
                return batch
        return None

    def _offer(self, lane: Lane[P]) -> None:
        """Have a lane's next batch go in its turn, if it may."""
        if (
            lane.batches
            and lane.batches[0].due
            and not lane.busy
            and lane.topic not in self._blocked
        ):
            self._ready[lane] = None

    def landed(self, lane: Lane[P]) -> None:
        """The batch of an ordering key that was on its way has been answered."""
        lane.busy = False
        self._offer(lane)
        self._forget_if_idle(lane)

    def _forget_if_idle(self, lane: Lane[P]) -> None:
        if lane.ordering_key and not (lane.batches or lane.busy or lane.paused_by):
            self._lanes.pop(lane.key, None)

    def forget_idle(self) -> None:
        """Forget every lane that has nothing to do."""
        self._lanes = {
            key: lane
            for key, lane in self._lanes.items()
            if lane.batches or lane.busy or lane.paused_by
        }

    def take_all(self) -> list[Batch[P]]:
        """Everything that waits, not to be sent."""
        return [batch for lane in self._lanes.values() for batch in self._take_all_of(lane)]

    def _take_all_of(self, lane: Lane[P]) -> list[Batch[P]]:
        batches = list(lane.batches)
        lane.batches.clear()
        lane.open = None
        self._ready.pop(lane, None)
        for batch in batches:
            batch.compact()
            batch.gone = True
            self.count -= len(batch)
            self.size -= batch.size
        return [batch for batch in batches if batch.passengers]

    # What may not go

    def block(self, topic: str) -> None:
        """Hold back a topic until something is known of it."""
        self._blocked.add(topic)

    def unblock(self, topic: str) -> None:
        """Let a topic's messages go."""
        self._blocked.discard(topic)
        for lane in self._of_topic(topic):
            self._offer(lane)

    def refuse(self, topic: str) -> list[Batch[P]]:
        """Everything that waits for a topic, not to be sent."""
        self._blocked.discard(topic)
        return [batch for lane in self._of_topic(topic) for batch in self._take_all_of(lane)]

    def _of_topic(self, topic: str) -> list[Lane[P]]:
        return [lane for lane in self._lanes.values() if lane.topic == topic]

    def pause(self, lane: Lane[P], error: BaseException) -> list[Batch[P]]:
        """Let no more of an ordering key go; returns what waited, not to be sent."""
        if lane.paused_by is None:
            self._paused += 1
            self.all_paused = self.all_paused or self._paused > self._max_paused
        lane.paused_by = error
        return self._take_all_of(lane)

    def paused(self) -> list[Lane[P]]:
        """The lanes of ordering keys that are paused."""
        return [lane for lane in self._lanes.values() if lane.paused_by is not None]

    def resume(self, topic: str, ordering_key: str) -> bool:
        """Let an ordering key go on; returns whether it was paused."""
        lane = self._lanes.get((topic, ordering_key, None))
        if lane is None or lane.paused_by is None:
            return False
        lane.paused_by = None
        self._paused -= 1
        self._forget_if_idle(lane)
        return True

    def resume_all(self) -> None:
        """Let every ordering key go on."""
        for lane in self.paused():
            self.resume(lane.topic, lane.ordering_key)
        self.all_paused = False

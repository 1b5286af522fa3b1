"""What waits to be published: which messages go together, and in which order."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict, deque
from typing import Generic

from pubsub_aio._core.outgoing import Batch, Lane, P

MAX_PAUSED = 100_000
"""Ordering keys that may be paused one by one; past this all of them are."""


_SPARE = 64  # things of no use any more that are kept, however few are of use


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
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_latency = max_latency
        self._max_paused = max_paused
        self.max_count: float = math.inf
        """How many may wait; whoever adds looks at `is_full` before."""
        self.max_size: float = math.inf
        """How many bytes."""
        self.all_paused = False
        """Whether too many ordering keys are paused to tell them apart."""
        self._count = self._size = 0
        self._paused = 0
        self._lanes: dict[tuple[str, str, object], Lane[P]] = {}
        self._of_topic: defaultdict[str, dict[Lane[P], None]] = defaultdict(dict)
        self._ready: dict[Lane[P], None] = {}
        self._fresh: dict[Batch[P], None] = {}
        self._aging: deque[Batch[P]] = deque()
        self._lent: dict[Batch[P], None] = {}
        self._blocked: set[str] = set()
        self._flushing = False

    def __len__(self) -> int:
        """How many lanes there are."""
        return len(self._lanes)

    # How much waits

    @property
    def count(self) -> int:
        """Messages that wait."""
        self._count_all()
        return self._count

    @property
    def size(self) -> int:
        """Their bytes."""
        self._count_all()
        return self._size

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may."""
        self._count_all()
        return self._count >= self.max_count or self._size >= self.max_size

    def _count_all(self) -> None:
        for batch in self._lent:
            self._recount(batch)

    def _recount(self, batch: Batch[P]) -> None:
        """Count what has been added to a batch, or taken from it, since it was counted last."""
        count, size = (0, 0) if batch.gone else (len(batch), batch.size)
        self._count += count - batch.counted
        self._size += size - batch.counted_size
        batch.counted, batch.counted_size = count, size

    # In

    def lane(self, topic: str, ordering_key: str, options: object) -> Lane[P]:
        """The lane of such messages; what has an ordering key has one lane, whatever its options.

        It may be forgotten when it has nothing to do: add to it at once.
        """
        key = (topic, ordering_key, None if ordering_key else options)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, topic, ordering_key)
            self._of_topic[topic][lane] = None
        return lane

    def add(self, lane: Lane[P], passenger: P, wire: bytes, options: object) -> bool:
        """Put a message in line; returns whether `poll` should be called soon."""
        size = len(wire)
        batch = lane.open
        news = batch is None or batch.options is not options or batch.size + size > batch.max_size
        if batch is None or news:
            batch = self._open(lane, options)
        passenger.batch = batch
        passenger.index = index = len(batch.passengers)
        batch.passengers.append(passenger)
        batch.wires.append(wire)
        batch.size += size
        self._recount(batch)
        if index >= batch.last or batch.size >= batch.max_size:
            self.close(batch)
            return True
        return news

    def add_some(
        self,
        lane: Lane[P],
        passengers: list[P],
        wires: list[bytes],
        options: object,
        *,
        start: int,
        most: int,
    ) -> int:
        """Put messages in line, from a place on as many as one batch takes, one at least.

        Args:
            lane: Where they belong.
            passengers: The messages.
            wires: The same as bytes.
            options: What they have in common.
            start: The place of the first.
            most: How many at most.

        Returns:
            The place of the next one.
        """
        self.add(lane, passengers[start], wires[start], options)
        start += 1
        most -= 1
        batch = lane.open
        if batch is None or most < 1:
            return start
        place = len(batch.passengers)
        some = wires[start : start + min(most, batch.last + 1 - place)]
        sizes = list(itertools.accumulate(map(len, some), initial=batch.size))
        count = bisect.bisect_right(sizes, batch.max_size) - 1
        joining = passengers[start : start + count]
        for index, passenger in enumerate(joining, place):
            passenger.batch = batch
            passenger.index = index
        batch.passengers += joining
        batch.wires += some[:count]
        batch.size = sizes[count]
        self._recount(batch)
        if len(batch.passengers) > batch.last or batch.size >= batch.max_size:
            self.close(batch)
        return start + count

    def lend(self, lane: Lane[P]) -> Batch[P] | None:
        """The open batch of a lane, if there is one, for others to add to without a call.

        They add a message only if the batch stays within its `max_size`, and close it with the one
        that is its `last`; and none any more as soon as it `is_tight`.
        """
        if lane.open is not None:
            self._lent[lane.open] = None
        return lane.open

    @property
    def is_tight(self) -> bool:
        """Whether more might wait than may, once what is lent is full, and one more."""
        self._count_all()
        lent = len(self._lent) + 1
        return (
            self._count + lent * self._max_messages > self.max_count
            or self._size + lent * self._max_bytes > self.max_size
        )

    def _open(self, lane: Lane[P], options: object) -> Batch[P]:
        if lane.open is not None:
            self.close(lane.open)
        batch = lane.open = Batch(lane, options)
        batch.last = self._max_messages - 1
        batch.max_size = self._max_bytes
        lane.batches.append(batch)
        self._fresh[batch] = None
        return batch

    def close(self, batch: Batch[P]) -> None:
        """Let no more be added to a batch; it need not wait for others then."""
        batch.due = True
        self._shut(batch)
        self._offer(batch.lane)

    def _shut(self, batch: Batch[P]) -> None:
        batch.max_size = -1
        self._lent.pop(batch, None)
        self._recount(batch)
        if batch.lane.open is batch:
            batch.lane.open = None

    def withdraw(self, passenger: P) -> None:
        """Take back a message that waits."""
        batch = passenger.batch
        batch.withdraw(passenger.index)
        self._recount(batch)
        lane = batch.lane
        if 2 * batch.withdrawn > len(batch.passengers):
            batch.compact()
        if not len(batch):
            lane.hollow += 1
            if 2 * lane.hollow > len(lane.batches):
                self._sweep(lane)

    def _sweep(self, lane: Lane[P]) -> None:
        """Forget the batches of a lane of which nothing is left."""
        for batch in lane.batches:
            if not len(batch):
                self._leave(batch)
        lane.batches = deque(batch for batch in lane.batches if not batch.gone)
        lane.hollow = 0
        if not lane.batches:
            self._ready.pop(lane, None)
            self._forget_if_idle(lane)

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
        if len(aging) > 2 * len(self._lanes) + _SPARE:  # of a lane one waits for others at most
            self._aging = deque(each for each in aging if not (each.due or each.gone))
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
            if lane.topic in self._blocked:  # since it was offered; unblocked, it is again
                continue
            batch = self._first(lane, room)
            if batch is None:
                self._forget_if_idle(lane)
                continue
            if lane.ordering_key:
                lane.busy = True
            else:
                self._offer(lane)
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
                self._recount(batch)
                return first
            lane.batches.popleft()
            self._leave(batch)
            if batch.passengers:
                return batch
        return None

    def _leave(self, batch: Batch[P]) -> None:
        batch.gone = True
        self._fresh.pop(batch, None)
        self._shut(batch)

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
        idle = not (lane.batches or lane.busy or lane.paused_by)
        if lane.ordering_key and idle:
            self._forget(lane)

    def _forget(self, lane: Lane[P]) -> None:
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
            del self._of_topic[lane.topic][lane]
            if not self._of_topic[lane.topic]:
                del self._of_topic[lane.topic]

    def forget_idle(self) -> None:
        """Forget every lane that has nothing to do."""
        for lane in list(self._lanes.values()):
            if not (lane.batches or lane.busy or lane.paused_by):
                self._forget(lane)

    def take_all(self) -> list[Batch[P]]:
        """Everything that waits, not to be sent."""
        return [batch for lane in self._lanes.values() for batch in self._take_all_of(lane)]

    def _take_all_of(self, lane: Lane[P]) -> list[Batch[P]]:
        batches = list(lane.batches)
        lane.batches.clear()
        lane.hollow = 0
        self._ready.pop(lane, None)
        for batch in batches:
            batch.compact()
            self._leave(batch)
        return [batch for batch in batches if batch.passengers]

    # What may not go

    def block(self, topic: str) -> None:
        """Hold back a topic until something is known of it."""
        self._blocked.add(topic)

    def unblock(self, topic: str) -> None:
        """Let a topic's messages go."""
        self._blocked.discard(topic)
        for lane in self._of_topic.get(topic, ()):
            self._offer(lane)

    def refuse(self, topic: str) -> list[list[Batch[P]]]:
        """Everything that waits for a topic, lane by lane, not to be sent."""
        self._blocked.discard(topic)
        lanes = [self._take_all_of(lane) for lane in self._of_topic.get(topic, ())]
        return [batches for batches in lanes if batches]

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
        self.all_paused = self.all_paused and self._paused > self._max_paused
        self._forget_if_idle(lane)
        return True

    def resume_all(self) -> None:
        """Let every ordering key go on."""
        for lane in self.paused():
            self.resume(lane.topic, lane.ordering_key)
        self.all_paused = False

"""What waits to be published, within its limit, and who waits for it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence

from pubsub_aio._core.departures import Departures
from pubsub_aio._core.outgoing import Batch, Lane
from pubsub_aio.config import Batching, QueueLimit
from pubsub_aio.errors import PublisherStoppedError, QueueFullError, TakenBackError
from pubsub_aio.publisher.flight import Flight


class Queue:
    """The queue of a publisher.

    Args:
        batching: What goes together.
        limit: How much may wait.
        id_prefix: Begins the ids of flights.
        adds: Names of attributes that the publisher adds by itself.
    """

    def __init__(
        self, batching: Batching, limit: QueueLimit, *, id_prefix: str, adds: Sequence[str]
    ) -> None:
        self.departures: Departures[Flight] = Departures(
            max_messages=batching.max_messages,
            max_bytes=batching.max_bytes,
            max_latency=batching.max_latency,
        )
        self.limit = limit
        self._id_prefix = id_prefix
        self._numbers = itertools.count(1)
        self.naming = threading.Lock()
        """Held by whoever gives an id to a flight."""
        self.adds = adds
        self.loop: asyncio.AbstractEventLoop | None = None
        self.on_withdrawn: Callable[[Batch[Flight], BaseException], None] = lambda *_: None
        """Called with flights that were taken back, and what to say to whoever asks for them."""
        self.hopeful = 0
        """How many wait for room."""
        self._blocks = limit.when_full == "block"
        self.departures.max_count, self.departures.max_size = limit.max_messages, limit.max_bytes
        self._room = asyncio.Event()
        self._closed = False

    def new_id(self) -> str:
        """An id for a flight."""
        return f"{self._id_prefix}-{next(self._numbers)}"

    def full_error(self) -> QueueFullError:
        """What to say when nothing more is taken."""
        remedy = (
            "await what publish() returns before you publish more, or use publish_many()"
            if self._blocks
            else "publish it again later, or have the caller wait with when_full='block'"
        )
        if self.departures.count >= self.departures.max_count:
            return QueueFullError("max_messages", self.limit.max_messages, remedy)
        return QueueFullError("max_bytes", self.limit.max_bytes, remedy)

    def _let_wait(self, messages: int, size: int) -> None:
        """So many more wait, or fewer, whose caller is held back by that: these do not count."""
        if self._blocks:
            self.departures.max_count += messages
            self.departures.max_size += size

    @property
    def half_left(self) -> int:
        """How many more those may add who can wait, so that there is room for others."""
        departures, limit = self.departures, self.limit
        patient, patient_size = (
            departures.max_count - limit.max_messages,
            departures.max_size - limit.max_bytes,
        )
        if 2 * (departures.size - patient_size) >= limit.max_bytes:
            return 0
        return (limit.max_messages + 1) // 2 - int(departures.count - patient)

    async def room(self) -> None:
        """Return as soon as the queue is less than half full.

        Raises:
            PublisherStoppedError: It will not be.
        """
        while self.half_left < 1:
            self._room.clear()
            self.hopeful += 1
            try:
                await self._room.wait()
            finally:
                self.hopeful -= 1
            if self._closed:
                raise PublisherStoppedError(sent=False)

    def close(self) -> None:
        """Let nobody wait for room any more."""
        self._closed = True
        self._room.set()

    def wait(self, flight: Flight) -> asyncio.Future[None]:
        """A future that is done when a flight has left the queue, for one who waits for that."""
        assert self.loop is not None  # noqa: S101 - tells the type checker
        waiters = flight.interest_of().leaving
        if not waiters:
            flight.batch.awaited = True
            self._let_wait(1, len(flight.batch.wires[flight.index]))
        leaving: asyncio.Future[None] = self.loop.create_future()
        waiters.append(leaving)
        return leaving

    def wait_no_more(self, flight: Flight, leaving: asyncio.Future[None]) -> None:
        """Somebody was cancelled; the last who waits for a flight takes it back."""
        if flight.batch.gone or flight.interest is None:
            return
        if flight.interest.leaving == [leaving] and not flight.is_asked_for:
            self.withdraw(flight)
            return
        flight.interest.leaving.remove(leaving)
        if not flight.interest.leaving:
            self._let_wait(-1, -len(flight.batch.wires[flight.index]))

    def left(self, batch: Batch[Flight]) -> None:
        """A batch has left the queue, one way or another."""
        if batch.awaited:
            for flight in batch.passengers:
                if flight.interest is None or not flight.interest.leaving:
                    continue
                self._let_wait(-1, -len(batch.wires[flight.index]))
                for leaving in flight.interest.leaving:
                    if not leaving.done():
                        leaving.set_result(None)
        self._room.set()

    def withdraw(self, flight: Flight) -> None:
        """Take a flight back that nobody waits for any more."""
        batch = flight.batch
        wire = batch.wires[flight.index]
        if flight.interest is not None and flight.interest.leaving:
            self._let_wait(-1, -len(wire))
        self.departures.withdraw(flight)
        self.on_withdrawn(apart(batch.lane, batch.options, [(flight, wire)]), TakenBackError())
        self._room.set()

    def take_back(self, flights: Iterable[Flight]) -> list[Flight]:
        """Take back those of these flights that wait; returns those that never did."""
        never = []
        for flight in flights:
            batch: Batch[Flight] | None = getattr(flight, "batch", None)
            if batch is None:
                never.append(flight)
            elif not batch.gone:
                self.withdraw(flight)
        return never


def apart(
    lane: Lane[Flight],
    options: object,
    flights: Iterable[tuple[Flight, bytes]],
) -> Batch[Flight]:
    """Flights, each with its bytes, as a batch of their own that is never sent."""
    batch: Batch[Flight] = Batch(lane, options)
    batch.gone = True
    for flight, wire in flights:
        batch.asked_for = batch.asked_for or flight.is_asked_for
        flight.batch, flight.index = batch, len(batch.passengers)
        batch.passengers.append(flight)
        batch.wires.append(wire)
    return batch

"""A history of a publisher in virtual time: what its callers do, what goes wrong, what happened."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Literal

from pubsub_aio import (
    Batching,
    ClosedError,
    Flight,
    KeyPausedError,
    PublisherClient,
    PubSubError,
    QueueFullError,
    QueueLimit,
    RetryPolicy,
)
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import Listener
from tests.subscriber.conftest import Tapped, now

TOPICS, MISSING = ("orders", "others"), "missing"

EVER = 1_000.0
"""Seconds after which whoever still waits will wait for ever."""


@dataclass(frozen=True)
class Act:
    """What a program does next."""

    kind: Literal["publish", "await", "many"]
    """Publishes, publishes and waits until each has left, or publishes many at once."""
    topic: str
    key: str
    count: int
    asks: bool
    """Whether the acks are asked for before anything is known of them."""
    patience: float | None
    """Seconds after which whoever waits is cancelled; none for never."""
    pause: float
    """Seconds until the next act."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong with some calls."""

    kind: Literal["unavailable", "lost", "slow", "denied", "invalid", "cut", "slow lookup"]
    times: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """A history to be."""

    max_in_flight: int
    refill_allowed_at: int
    batching: Batching
    queue: QueueLimit
    retry: RetryPolicy | None
    resume_after: float | None
    send_flight_id: bool
    acts: list[Act]
    faults: list[Fault]
    stop_at: float | None
    """When it is stopped, whatever happens just then; none for after a drain."""
    drains_early: bool
    """Whether a drain begins while callers wait."""


@dataclass
class Call:
    """A call of `publish` or `publish_many`."""

    key: tuple[str, str]
    """The topic and the ordering key."""
    data: list[bytes]
    began: int
    """When, in the order of all beginnings and ends."""
    ended: int | None = None
    flights: list[Flight] = field(default_factory=list)
    """What it returned."""
    raised: BaseException | None = None
    raised_at: float = math.inf


class History:
    """A history as it happens.

    Args:
        emulator: The server.
        plan: What is to happen.
    """

    def __init__(self, emulator: MemoryEmulator, plan: Plan) -> None:
        self.emulator = emulator
        self.plan = plan
        self.listener = Listener()
        self.calls: list[Call] = []
        self.acks: list[tuple[Flight, asyncio.Future[str]]] = []
        """Those that were asked for early."""
        self.complaints: list[str] = []
        """What was wrong in the moment it happened."""
        self.flights: dict[bytes, Flight] = {}
        """Every flight that somebody was told of, by its data; complete at the end."""
        self.stored: list[tuple[str, str, bytes]] = []
        """Of each message that the server took: its topic, its key and its data; at the end."""
        self.tap = Tapped(emulator.transport())
        self._publisher = PublisherClient(
            emulator.project,
            transport=self.tap,
            max_in_flight=plan.max_in_flight,
            refill_allowed_at=plan.refill_allowed_at,
            batching=plan.batching,
            queue=plan.queue,
            retry=plan.retry,
            resume_after=plan.resume_after,
            send_flight_id=plan.send_flight_id,
            listener=self.listener,
            id_prefix="f",
        )
        self._waiting: list[asyncio.Task[None]] = []
        self._deserted: list[Flight] = []
        self._moments = self._made = 0

    async def live(self) -> None:
        """Let it happen."""
        for topic in TOPICS:
            self.emulator.create_topic(topic)
        for fault in self.plan.faults:
            inject(self.emulator, fault)
        await self._publisher.start()
        async with asyncio.TaskGroup() as tasks:
            if self.plan.stop_at is not None:
                tasks.create_task(self._stop(self.plan.stop_at))
            for act in self.plan.acts:
                try:
                    self._act(act)
                except ClosedError:
                    break
                await asyncio.sleep(act.pause)
            if self.plan.stop_at is None:
                if not self.plan.drains_early:
                    await self._all_have_heard()
                await self._publisher.drain(timeout=EVER)
                await self._all_have_heard()
                await self._publisher.stop()
        await self._all_have_heard()
        self._look_around()

    async def _stop(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._publisher.stop()

    async def _all_have_heard(self) -> None:
        """Return when nobody waits any more."""
        if self._waiting:
            _, pending = await asyncio.wait(self._waiting, timeout=EVER)
            for task in pending:
                self.complaints.append(f"{task} waits for ever")
                task.cancel()

    def _look_around(self) -> None:
        told = [*self.listener.flights, *(flight for call in self.calls for flight in call.flights)]
        self.flights = {flight.data: flight for flight in told}
        self.stored = [
            (topic, message.ordering_key, message.data)
            for topic in TOPICS
            for message in self.emulator.messages(topic)
        ]

    # Calls

    def _act(self, act: Act) -> None:
        if act.kind == "many":
            call = self._begin(act, act.count)
            self._wait(self._publish_many(call), act.patience)
            return
        for _ in range(act.count):
            flight = self._publish(self._begin(act, 1))
            self._check_limit()
            if flight is not None and act.asks:
                self.acks.append((flight, flight.ack))
            if flight is not None and act.kind == "await":
                self._wait(self._see_off(flight), act.patience)

    def _begin(self, act: Act, count: int) -> Call:
        data = [b"%d" % number for number in range(self._made, self._made + count)]
        self._made += count
        self._moments += 1
        call = Call((act.topic, act.key), data, began=self._moments)
        self.calls.append(call)
        return call

    def _end(self, call: Call, *flights: Flight) -> None:
        self._moments += 1
        call.ended = self._moments
        call.flights = [*flights]

    def _wait(self, what: Coroutine[object, object, None], patience: float | None) -> None:
        task = asyncio.create_task(what)
        self._waiting.append(task)
        if patience is not None:
            asyncio.get_running_loop().call_later(patience, task.cancel)

    def _publish(self, call: Call) -> Flight | None:
        topic, key = call.key
        queued = self._publisher.queued
        try:
            flight = self._publisher.publish(topic, call.data[0], ordering_key=key)
        except KeyPausedError as error:
            call.raised = error
            self._publisher.resume(topic, key)
        except QueueFullError as error:
            call.raised = error
            if queued < self.plan.queue.max_messages:
                self.complaints.append(f"{call.data}: refused, though only {queued} wait")
        else:
            self._end(call, flight)
            return flight
        return None

    async def _see_off(self, flight: Flight) -> None:
        """Wait until a message is on its way, or is known not to be."""
        try:
            await flight
        except asyncio.CancelledError:
            if _waits(flight) and flight in [asked for asked, _ in self.acks]:
                self._deserted.append(flight)
            elif _waits(flight):
                self.complaints.append(f"{flight}: nobody waits for it, and it was not taken back")
            raise
        except PubSubError as error:
            if flight.published_at is not None or repr(flight.error) != repr(error):
                self.complaints.append(f"{flight}: {error!r}")
        else:
            if flight.published_at is None:
                self.complaints.append(f"{flight}: it has left, and not departed")

    async def _publish_many(self, call: Call) -> None:
        topic, key = call.key
        try:
            flights = await self._publisher.publish_many(topic, call.data, ordering_key=key)
        except (PubSubError, asyncio.CancelledError) as error:
            call.raised, call.raised_at = error, now()
            self._end(call)
            if isinstance(error, KeyPausedError):
                self._publisher.resume(topic, key)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._end(call, *flights)
            if [flight.data for flight in flights] != call.data:
                self.complaints.append(f"{flights} for {call.data}")
            for flight in flights:
                if flight.published_at is None and flight.error is None:
                    self.complaints.append(f"{flight}: it waits, and publish_many() has returned")
        self._check_limit()

    def _check_limit(self) -> None:
        """No more wait than may; where that is chosen, those who are awaited do not count.

        Nor did those when others were let in for which somebody still waits, but not here.
        """
        limit, queued = self.plan.queue, self._publisher.queued
        awaited = sum(not task.done() for task in self._waiting)
        awaited += sum(map(_waits, self._deserted))
        if queued > limit.max_messages + awaited * (limit.when_full == "block"):
            self.complaints.append(f"{queued} wait, no more than {awaited} of them are awaited")


def _waits(flight: Flight) -> bool:
    return flight.published_at is None and flight.error is None


def inject(emulator: MemoryEmulator, fault: Fault) -> None:
    """Have something go wrong."""
    faults = emulator.faults
    if fault.kind == "unavailable":
        faults.fail("Publish", "UNAVAILABLE", times=fault.times)
    elif fault.kind == "denied":
        faults.fail("Publish", "PERMISSION_DENIED", times=fault.times)
    elif fault.kind == "invalid":
        faults.fail("Publish", "INVALID_ARGUMENT", times=fault.times)
    elif fault.kind == "lost":
        faults.fail("Publish", "UNAVAILABLE", times=fault.times, applied=True)
    elif fault.kind == "slow":
        faults.delay("Publish", fault.seconds, times=fault.times)
    elif fault.kind == "slow lookup":
        faults.delay("GetTopic", fault.seconds, times=fault.times)
    else:
        asyncio.get_running_loop().call_later(fault.seconds, faults.cut_connections)

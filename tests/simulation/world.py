"""A world in virtual time, drawn from a seed: publishers, subscribers, and what goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pubsub_aio import Event as LibraryEvent
from pubsub_aio import (
    FlowControl,
    Message,
    ShutdownPolicy,
    StreamPolicy,
    SubscriberClient,
    Subscription,
)
from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport
from pubsub_aio.emulator import Emulator
from pubsub_aio.emulator.faults import Direction
from pubsub_aio.emulator.journal import PublishedMessage
from pubsub_aio.errors import ServiceError, SettleError
from pubsub_aio.message import Confirmation
from pubsub_aio.testing import MemoryEmulator, MemoryTransport, VirtualTimeLoop, run
from pubsub_aio.testing.transport import MemoryStream
from tests.simulation.history import (
    Backlog,
    Confirmed,
    DeadLettered,
    Ended,
    Event,
    Expired,
    Fault,
    Held,
    History,
    LeftOver,
    Limits,
    Published,
    Sent,
    ServerAck,
    ServerModack,
    Settled,
    Started,
    Stopped,
    Stopping,
)

TRANSIENT = (
    *("ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED"),
    *("UNAVAILABLE", "UNKNOWN"),
)
RPCS = ("Acknowledge", "ModifyAckDeadline", "StreamingPull", "GetSubscription", "Publish")
DIRECTIONS: tuple[Direction, ...] = ("both", "requests", "responses")

SUBSCRIPTION, TOPIC = "work", "jobs"
GRAVES, DEAD = "graves", "dead"

STUBBORN = 1.0
"""Seconds that the library gives a cancelled callback to end, besides its timeouts."""

DRAINS_WITHIN = 4 * 3_600.0
"""Virtual seconds in which everything must be settled once nothing goes wrong any more."""


Settlement = Literal["ack", "nack", "drop"]
SETTLEMENTS: dict[str, Settlement] = {
    "ack": "ack",
    "ack?": "ack",
    "nack": "nack",
    "nack?": "nack",
    "drop": "drop",
}


class CallbackError(Exception):
    """What callbacks raise."""


def dice(seed: int | str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - what is drawn must be drawn again


# What happens, as it is noted


class Scribe:
    """Notes what happens in a running loop."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._numbers = itertools.count(1)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, event: Event) -> None:
        self.history.events.append(event)

    def number(self) -> int:
        return next(self._numbers)

    def publishing(self, label: str, key: str, size: int) -> schema.PubsubMessage:
        """The message of that label."""
        body = label.encode() + b"|" + b"." * size
        return schema.PubsubMessage(data=body, attributes={"label": label}, ordering_key=key)

    def published(self, message: schema.PubsubMessage, *, known: bool) -> None:
        label, body = message.attributes["label"], digest(message.data)
        self.note(Published(self.now(), label, message.ordering_key, body, known))

    def limits(self, session: str, flow: FlowControl) -> None:
        self.note(
            Limits(
                self.now(),
                session,
                flow.max_messages,
                flow.max_bytes,
                flow.resume_threshold,
                flow.max_request_batch_size,
                flow.max_lease_duration,
            )
        )

    def server_events(self, emulator: Emulator) -> None:
        """Note what the server's journal says, on this loop's clock."""
        offset = emulator.clock.now() - self.now()
        subscription = f"projects/{emulator.project}/subscriptions/{SUBSCRIPTION}"
        for message in emulator.messages(TOPIC):
            self._server_events(message, subscription, offset)
        with contextlib.suppress(ValueError):
            for message in emulator.messages(DEAD):
                at = message.publish_time.timestamp() - offset
                self.note(DeadLettered(at, message.attributes["label"]))

    def _server_events(self, message: PublishedMessage, subscription: str, offset: float) -> None:
        label = message.attributes["label"]
        for sent in message.deliveries:
            if sent.subscription == subscription:
                self.note(Sent(sent.time.timestamp() - offset, label, sent.ack_id))
        for ack in message.acks:
            at = ack.time.timestamp() - offset
            self.note(ServerAck(at, label, ack.ack_id, ack.effective))
        for modack in message.modacks:
            at = modack.time.timestamp() - offset
            self.note(ServerModack(at, label, modack.ack_id, modack.seconds, modack.effective))


def digest(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


class Session:
    """One subscription of one client: its callback, and what is noted of it.

    Args:
        name: What it is called in the history.
        scribe: Where it is noted.
        helpers: Owns the tasks that settle messages later.
        deeds: Chooses what a callback does, given a label and how often it came.
        auto_ack: Whether the library acks what a callback leaves.
    """

    def __init__(
        self,
        name: str,
        scribe: Scribe,
        helpers: asyncio.TaskGroup,
        deeds: Callable[[str, int], Deed],
        *,
        auto_ack: bool = False,
    ) -> None:
        self.name = name
        self.live: Subscription | None = None
        self.ending = False
        self._scribe = scribe
        self._helpers = helpers
        self._deeds = deeds
        self._auto_ack = auto_ack
        self._held: dict[int, Message] = {}
        self._times: dict[str, int] = {}
        self._late = 0
        self._ended_at = math.inf

    @property
    def begun(self) -> int:
        """How many messages it holds whose callbacks have begun."""
        return len(self._held)

    # What the library calls

    def on_event(self, event: LibraryEvent) -> None:
        if event.kind == "late":
            self._late += 1
        elif event.kind == "expired":
            self._look(expired=True)
        elif event.state in ("stopping", "failed"):
            self._ended_at = min(self._ended_at, self._scribe.now())

    def _look(self, *, expired: bool = False) -> None:
        """Note what the library has let go of; at its end it gives back what is left."""
        for delivery in [n for n, each in self._held.items() if each.lease is None]:
            del self._held[delivery]
            if expired or not (self.ending or self._ended_at <= self._scribe.now()):
                self._scribe.note(Expired(self._scribe.now(), delivery))

    async def callback(self, message: Message) -> None:
        self._look()
        delivery, label = self._scribe.number(), message.attributes["label"]
        self._scribe.note(
            Started(
                self._scribe.now(),
                delivery,
                self.name,
                label,
                message.ack_id,
                message.ordering_key,
                digest(message.data),
                message.size,
            )
        )
        self._held[delivery] = message
        self._times[label] = times = self._times.get(label, 0) + 1
        left: Settlement | None = "ack" if self._auto_ack else None
        try:
            await self._do(self._deeds(label, times), delivery, message)
        except BaseException:
            left = "nack"
            raise
        finally:
            self._returned(delivery, left)

    def _returned(self, delivery: int, left: Settlement | None) -> None:
        """A callback ends; what it did not settle is settled by the library, or held."""
        now = self._scribe.now()
        self._look()
        if left and delivery in self._held:
            del self._held[delivery]
            self._scribe.note(Settled(now, delivery, left))
        self._scribe.note(Ended(now, delivery))

    # What a callback does

    async def _do(self, deed: Deed, delivery: int, message: Message) -> None:
        try:
            await asyncio.sleep(deed.seconds)
        except asyncio.CancelledError:
            if not deed.stubborn:
                raise
            await asyncio.sleep(deed.stubborn)
        for kind in deed.settle:
            self.settle(kind, delivery, message, deed.delay)
        if deed.later:
            self._helpers.create_task(self._settle_later(deed, delivery, message))
        if deed.fails:
            raise CallbackError(f"delivery {delivery}")

    async def _settle_later(self, deed: Deed, delivery: int, message: Message) -> None:
        await asyncio.sleep(deed.delay)
        self.settle(deed.later, delivery, message, 0.0)

    def settle(self, kind: str, delivery: int, message: Message, delay: float) -> None:
        """Ack, nack, drop or extend; with a `?` the answer is waited for."""
        self._look()
        late, now = self._late, self._scribe.now()
        confirmation: Confirmation | None = None
        match kind:
            case "ack":
                message.ack()
            case "ack?":
                confirmation = message.ack_with_response()
            case "nack":
                message.nack(delay=delay)
            case "nack?":
                confirmation = message.nack_with_response(delay=delay)
            case "drop":
                message.drop()
            case _:
                message.modify_ack_deadline(max(10.0, delay))
                return
        held = self._held.pop(delivery, None) is not None
        how = SETTLEMENTS[kind]
        self._scribe.note(Settled(now, delivery, how, void=not held or self._late > late))
        if confirmation is not None:
            self._helpers.create_task(self._await(confirmation, delivery, how))

    async def _await(self, confirmation: Confirmation, delivery: int, how: Settlement) -> None:
        try:
            await confirmation
        except SettleError:
            return
        if how == "ack":
            self._scribe.note(Confirmed(self._scribe.now(), delivery))

    # Its end

    def stopping(self, shutdown: ShutdownPolicy) -> None:
        self.ending = True
        within = shutdown.timeout + shutdown.flush_timeout + STUBBORN + 0.5
        self._scribe.note(Stopping(self._scribe.now(), self.name, within))

    def stopped(self, live: Subscription) -> None:
        self.ending = True
        error = None if live.cancelled() else live.exception()
        now = self._scribe.now()
        self._scribe.note(Stopped(now, self.name, f"{error!r}" if error else "", self._ended_at))
        self._held.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What a callback does with a message."""

    seconds: float = 0.0
    settle: tuple[str, ...] = ()
    delay: float = 0.0
    later: str = ""
    fails: bool = False
    stubborn: float = 0.0


GOOD = Deed(seconds=0.01, settle=("ack",))


def draw_deed(rng: random.Random) -> Deed:
    """Something that a callback may do."""
    seconds = rng.choice((0.0, 0.0, 0.001, 0.02, rng.expovariate(1.0), rng.expovariate(1 / 40)))
    delay = rng.uniform(0.0, 60.0)
    chance = rng.random()
    for share, deed in (
        (0.50, Deed(seconds=seconds, settle=("ack",))),
        (0.08, Deed(seconds=seconds, settle=("ack?",))),
        (0.07, Deed(seconds=seconds, settle=("nack",))),
        (0.04, Deed(seconds=seconds, settle=("nack",), delay=delay)),
        (0.02, Deed(seconds=seconds, settle=("nack?",), delay=rng.choice((0.0, delay)))),
        (0.06, Deed(seconds=seconds, fails=True)),
        (0.03, Deed(seconds=seconds)),
        (0.02, Deed(seconds=seconds, settle=("drop",))),
        (0.04, Deed(seconds=seconds, settle=rng.choice((("ack", "nack"), ("nack", "ack"))))),
        (0.02, Deed(seconds=seconds, settle=("ack",), fails=True)),
        (0.02, Deed(seconds=seconds, settle=("extend", "ack"), delay=delay)),
        (0.06, Deed(seconds=seconds, later=rng.choice(("ack", "ack?", "nack")), delay=delay)),
        (0.02, Deed(seconds=seconds, settle=("ack",), stubborn=rng.uniform(0.1, 5.0))),
    ):
        chance -= share
        if chance < 0:
            return deed
    return GOOD


# What a world is like


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a world is like. It is drawn from a seed, or made for one purpose."""

    seed: int
    ordered: bool = False
    exactly_once: bool = False
    dead_letters: bool = False
    retry: bool = False
    faults: bool = True
    restarts: bool = True
    changes: bool = True
    probes: bool = False
    subscribers: int = 1
    publishers: int = 1
    messages: int = 50
    horizon: float = 300.0
    stream_life: float = 1_800.0
    lax: bool = False
    """The server heeds no flow control, as Google's emulator does not."""


def draw_plan(seed: int) -> Plan:
    """What the world of a seed is like."""
    rng = dice(seed)
    return Plan(
        seed=seed,
        ordered=rng.random() < 0.5,
        exactly_once=rng.random() < 0.4,
        dead_letters=rng.random() < 0.3,
        retry=rng.random() < 0.25,
        faults=rng.random() < 0.75,
        restarts=rng.random() < 0.6,
        changes=rng.random() < 0.4,
        probes=rng.random() < 0.3,
        subscribers=rng.randint(1, 3),
        publishers=rng.randint(1, 3),
        messages=rng.choice((20, 60, 150)),
        horizon=rng.choice((60.0, 300.0, 900.0)),
        stream_life=rng.choice((45.0, 1_800.0)),
        lax=rng.random() < 0.25,
    )


def draw_flow(rng: random.Random) -> FlowControl:
    least = rng.choice((10.0, 10.0, 30.0))
    return FlowControl(
        max_messages=rng.choice((1, 2, 5, 20, 100, 1_000)),
        max_bytes=rng.choice((1, 1_000, 20_000, 10_000_000)),
        resume_threshold=rng.choice((0.1, 0.5, 0.8, 1.0)),
        max_request_batch_size=rng.choice((1, 2, 10, 100)),
        max_request_batch_latency=rng.choice((0.0, 0.01, 0.5)),
        max_lease_duration=rng.choice((5.0, 15.0, 60.0, 300.0)),
        min_duration_per_lease_extension=least,
        max_duration_per_lease_extension=rng.choice((least, 60.0, 600.0)),
    )


def draw_streams(rng: random.Random) -> StreamPolicy:
    return StreamPolicy(
        streams=rng.choice((1, 1, 1, 2, 3)),
        ping_interval=rng.choice((3.0, 30.0)),
        ping_timeout=rng.choice((2.0, 15.0)),
        first_delay=rng.choice((0.1, 1.0)),
        max_delay=rng.choice((5.0, 30.0)),
        reconnect_budget=rng.choice((30.0, 600.0)),
    )


def draw_shutdown(rng: random.Random) -> ShutdownPolicy:
    return ShutdownPolicy(
        mode=rng.choice(("wait", "nack")),
        timeout=rng.choice((0.0, 3.0, 60.0)),
        flush_timeout=rng.choice((0.0, 5.0)),
    )


class LaxTransport(MemoryTransport):
    """Keeps the limits that a stream is opened with from the server."""

    def streaming_pull(self) -> MemoryStream:
        return LaxStream(self._connect)


class LaxStream(MemoryStream):
    """A stream without limits."""

    async def write(self, request: bytes) -> None:
        message = schema.StreamingPullRequest.FromString(request)
        message.max_outstanding_messages = message.max_outstanding_bytes = 0
        await super().write(message.SerializeToString())


# The world


class World:
    """Lets a plan come to pass, and notes it."""

    def __init__(self, plan: Plan, emulator: MemoryEmulator, history: History) -> None:
        self.plan = plan
        self.scribe = Scribe(history)
        self._emulator = emulator
        self._rng = dice(f"world {plan.seed}")
        self._sessions: dict[str, Session] = {}
        self._calm = asyncio.Event()
        self._over = asyncio.Event()
        self._helpers = asyncio.TaskGroup()

    async def run(self) -> None:
        self._create()
        async with self._helpers:
            async with asyncio.TaskGroup() as storm:
                others = [
                    self._helpers.create_task(self._subscriber(number))
                    for number in range(self.plan.subscribers)
                ]
                for number in range(self.plan.publishers):
                    storm.create_task(self._publisher(number))
                if self.plan.faults:
                    storm.create_task(self._chaos())
                if self.plan.changes:
                    storm.create_task(self._changes())
                if self.plan.probes:
                    storm.create_task(self._probes())
            self._calm.set()
            await self._drain()
            self._over.set()
            await asyncio.wait(others)
        self._look_around()
        self.scribe.server_events(self._emulator)
        backlog = self._emulator.backlog(SUBSCRIPTION)
        self.scribe.note(Backlog(self.scribe.now(), backlog))

    def _create(self) -> None:
        settings: dict[str, object] = {
            "enable_message_ordering": self.plan.ordered,
            "enable_exactly_once_delivery": self.plan.exactly_once,
        }
        if self.plan.dead_letters:
            dead = self._emulator.create_topic(DEAD)
            self._emulator.create_subscription(GRAVES, DEAD)
            settings["dead_letter_policy"] = {
                "dead_letter_topic": dead,
                "max_delivery_attempts": self._rng.choice((5, 10)),
            }
        if self.plan.retry:
            settings["retry_policy"] = {
                "minimum_backoff": {"seconds": 1},
                "maximum_backoff": {"seconds": self._rng.choice((1, 20))},
            }
        self._emulator.create_subscription(SUBSCRIPTION, TOPIC, **settings)

    # Those in it

    async def _publisher(self, number: int) -> None:
        rng = dice(f"publisher {number} {self.plan.seed}")
        keys = ["", *(f"p{number}k{key}" for key in range(rng.randint(1, 3)))]
        topic = f"projects/{self._emulator.project}/topics/{TOPIC}"
        transport: Transport = self._emulator.transport()
        await transport.open()
        labels = itertools.count()
        left = self.plan.messages // self.plan.publishers
        while left > 0:
            await asyncio.sleep(rng.expovariate(self.plan.messages / self.plan.horizon))
            batch = min(left, rng.choice((1, 1, 3, 10)))
            left -= batch
            messages = [
                self.scribe.publishing(
                    f"p{number}-{next(labels)}", rng.choice(keys), rng.choice((0, 50, 2_000))
                )
                for _ in range(batch)
            ]
            request = schema.PublishRequest(topic=topic, messages=messages)
            at = len(self.scribe.history.events)
            for message in messages:  # it may come before its publisher hears of it
                self.scribe.published(message, known=False)
            try:
                await transport.call("Publish", request.SerializeToString(), timeout=10.0)
            except ServiceError:
                continue
            events = self.scribe.history.events
            events[at : at + batch] = [
                Published(each.at, each.message, each.key, each.body)
                for each in events[at : at + batch]
                if isinstance(each, Published)
            ]
        await transport.close()

    async def _subscriber(self, number: int) -> None:
        """Serve the subscription, with pauses, until it is over."""
        rng = dice(f"subscriber {number} {self.plan.seed}")
        for life in itertools.count():
            await self._serve(f"s{number}.{life}", rng)
            if self._over.is_set():
                return
            pause = 0.1 if self._calm.is_set() else rng.choice((0.0, rng.expovariate(1 / 10)))
            await asyncio.sleep(pause)

    async def _serve(self, name: str, rng: random.Random) -> None:
        """One life of a subscriber."""
        flow, shutdown, auto_ack = draw_flow(rng), draw_shutdown(rng), rng.random() < 0.2
        session = Session(name, self.scribe, self._helpers, self._deed, auto_ack=auto_ack)
        self.scribe.limits(name, flow)
        self._sessions[name] = session
        transport = (LaxTransport if self.plan.lax else MemoryTransport)(self._emulator)
        client = SubscriberClient(project=self._emulator.project, transport=transport)
        live = session.live = client.subscribe(
            SUBSCRIPTION,
            session.callback,
            flow_control=flow,
            auto_ack=auto_ack,
            on_lease_expiry=rng.choice(("nack", "nack", "drop")),
            max_overdue_callbacks=rng.choice((1, 3, 1_000)),
            streams=draw_streams(rng),
            shutdown=shutdown,
            on_event=session.on_event,
        )
        await self._until_its_end(live, rng)
        if not live.done():
            session.stopping(shutdown)
            rng.choice((live.stop, live.cancel, lambda: _twice(live.stop), lambda: None))()
            closing = asyncio.get_running_loop().create_task(client.aclose())
            await asyncio.wait([live])
            session.stopped(live)
            began = self.scribe.now()
            await closing
        else:
            session.stopped(live)
            began = self.scribe.now()
            await client.aclose()
        if self.scribe.now() - began > 1.0:
            self.scribe.note(LeftOver(began, f"{name} took long to close"))

    async def _until_its_end(self, live: Subscription, rng: random.Random) -> None:
        """Return when the session is done, or is to be."""
        if self.plan.restarts and not self._calm.is_set():
            life = rng.choice((rng.expovariate(1.0), rng.expovariate(1 / 120), 1_000.0))
            if not await _first(live, self._calm, timeout=life):
                return
        await _first(live, self._over)

    def _deed(self, label: str, times: int) -> Deed:
        if self._calm.is_set():
            return GOOD
        return draw_deed(dice(f"{self.plan.seed} {label} {times}"))

    # What is done to it

    async def _changes(self) -> None:
        """Change flow control now and then."""
        rng = dice(f"changes {self.plan.seed}")
        ends_at = self.plan.horizon
        while self.scribe.now() < ends_at:
            await asyncio.sleep(rng.expovariate(6 / self.plan.horizon))
            living = [each for each in self._sessions.values() if not each.ending and each.live]
            if living:
                session, flow = rng.choice(living), draw_flow(rng)
                self.scribe.limits(session.name, flow)
                if session.live is not None:
                    session.live.flow_control = flow

    async def _probes(self) -> None:
        """Ask the sessions now and then how much they hold."""
        while self.scribe.now() < self.plan.horizon:
            await asyncio.sleep(0.9)
            for session in self._sessions.values():
                if session.live is not None and not session.live.done():
                    health = session.live.health()
                    self.scribe.note(
                        Held(self.scribe.now(), session.name, health.leased, health.leased_bytes)
                    )

    async def _chaos(self) -> None:
        """Let things go wrong, in episodes."""
        rng = dice(f"chaos {self.plan.seed}")
        while self.scribe.now() < self.plan.horizon:
            await asyncio.sleep(rng.expovariate(1 / 40))
            began = self.scribe.now()
            delays = [0.0]
            done = [self._disturb(rng, delays) for _ in range(rng.randint(1, 4))]
            await asyncio.sleep(rng.choice((rng.uniform(0.1, 5.0), rng.uniform(5.0, 120.0))))
            self._emulator.faults.clear()
            until = self.scribe.now() + max(delays)
            for what in done:
                self.scribe.note(Fault(began, until, what))

    def _disturb(self, rng: random.Random, delays: list[float]) -> str:
        """Let one thing go wrong; returns what."""
        faults, times = self._emulator.faults, rng.choice((1, 3, 20, 1_000))
        rpc, code = rng.choice(RPCS), rng.choice(TRANSIENT)
        # An ack that is confirmed and forgotten is not what exactly-once allows a server.
        lies = "confirmations" if self.plan.exactly_once else "lose acks"
        what = rng.choice(
            (
                *("fail", "fail", "fail", "delay", "cut streams", "stall streams"),
                *("cut", "refuse", "stall", "duplicate", "duplicate", lies),
            )
        )
        match what:
            case "fail":
                applied = rpc != "StreamingPull" and rng.random() < 0.3
                retry_delay = rng.choice((None, None, 2.0))
                faults.fail(rpc, code, times=times, applied=applied, retry_delay=retry_delay)
                return f"fail {rpc} {code} times {times} applied {applied}"
            case "delay":
                seconds = rng.choice((0.5, 4.0, 30.0))
                delays.append(min(seconds, 30.0))
                faults.delay(rpc, seconds, times=min(times, 20))
                return f"delay {rpc} {seconds:g} s"
            case "cut streams":
                faults.cut_streams(SUBSCRIPTION, code=code)
            case "stall streams":
                faults.stall_streams(SUBSCRIPTION, direction=rng.choice(DIRECTIONS))
            case "duplicate":
                faults.duplicate(SUBSCRIPTION, times=times)
            case "cut":
                faults.cut_connections()
            case "refuse":
                faults.refuse_connections()
                faults.cut_connections()
            case "stall":
                faults.stall_connections(direction=rng.choice(DIRECTIONS))
            case "confirmations":
                faults.fail_confirmations(
                    SUBSCRIPTION, times=min(times, 20), permanent=rng.random() < 0.5
                )
            case _:
                faults.lose_acks(SUBSCRIPTION, times=min(times, 20))
        return what

    # Its end

    async def _drain(self) -> None:
        """Return when everything is settled and nobody holds anything, or it takes too long."""
        ends_at = self.scribe.now() + DRAINS_WITHIN
        while self.scribe.now() < ends_at:
            if not self._emulator.backlog(SUBSCRIPTION) and not list(self._holdings()):
                return
            await asyncio.sleep(5.0)
        self.scribe.note(LeftOver(ends_at, f"{self._emulator.backlog(SUBSCRIPTION)} not drained"))
        for what in self._holdings():
            self.scribe.note(LeftOver(ends_at, what))

    def _holdings(self) -> Iterator[str]:
        """What sessions say that they hold."""
        for session in self._sessions.values():
            if session.live is None or session.live.done():
                continue
            health = session.live.health()
            held = (health.leased, health.leased_bytes, health.received, health.unsent)
            if any(held) or health.running or health.overdue:
                yield f"{session.name}: {health}"

    def _look_around(self) -> None:
        """Note what is left although everything has ended."""
        now, loop = self.scribe.now(), asyncio.get_running_loop()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            self.scribe.note(LeftOver(now, f"task {task.get_name()}: {task.get_coro()}"))
        assert isinstance(loop, VirtualTimeLoop)
        for timer in loop._scheduled:
            callback = getattr(timer, "_callback", None)
            module = getattr(callback, "__module__", "") or ""
            if not timer.cancelled() and module.startswith("pubsub_aio.subscriber"):
                self.scribe.note(LeftOver(now, f"timer {timer}"))


async def _first(live: Subscription, event: asyncio.Event, *, timeout: float | None = None) -> bool:
    """Return when the session is done, or something happened; false if that takes too long."""
    waiting: asyncio.Future[Literal[True]] = asyncio.ensure_future(event.wait())
    ends: list[asyncio.Future[Any]] = [live, waiting]
    done, _ = await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return bool(done)


def _twice(stop: Callable[[], None]) -> None:
    stop()
    stop()


def simulate(plan: Plan) -> History:
    """Let a world come to pass in virtual time; what a seed gives is the same each time."""
    history = History(ordered=plan.ordered, exactly_once=plan.exactly_once)

    async def main() -> None:
        emulator = MemoryEmulator(
            project="simulated", history=1_000_000, stream_life=plan.stream_life
        )
        async with emulator:
            await World(plan, emulator, history).run()

    before = random.getstate()
    random.seed(plan.seed)  # the library spreads its retries by it
    try:
        run(main())
    finally:
        random.setstate(before)
    return history

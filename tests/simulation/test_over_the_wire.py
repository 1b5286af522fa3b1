"""The same checker over gRPC: on the embedded emulator with faults, and on Google's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from pubsub_aio import FlowControl, ShutdownPolicy, StreamPolicy, SubscriberClient
from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio.emulator import Emulator
from tests.simulation.history import Backlog, Fault, History, LeftOver, Settled, Started, check
from tests.simulation.world import SUBSCRIPTION, TOPIC, Deed, Scribe, Session, dice

MESSAGES = 10
SHUTDOWN = ShutdownPolicy(timeout=3.0)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Callbacks raise on purpose here."""
    caplog.set_level(logging.CRITICAL, logger="pubsub_aio")


def draw_deed(rng: random.Random) -> Deed:
    """Something that takes no more than a moment."""
    seconds = rng.choice((0.0, 0.001, 0.02))
    return rng.choice(
        (
            *[Deed(seconds=seconds, settle=("ack",))] * 8,
            *[Deed(seconds=seconds, settle=("ack?",))] * 2,
            Deed(seconds=seconds, settle=("nack",)),
            Deed(seconds=seconds, settle=("nack?",)),
            Deed(seconds=seconds, fails=True),
            Deed(seconds=seconds, settle=("ack", "nack")),
            Deed(seconds=seconds, settle=("ack",), fails=True),
            Deed(seconds=seconds, later="ack", delay=0.05),
        )
    )


class Site:
    """A server, and those who use it.

    Args:
        address: Where it is.
        project: The project of the test.
        history: Where it is noted.
        seed: Decides what callbacks do.
        emulator: The server itself, if it is in this process.
    """

    def __init__(
        self,
        address: str,
        project: str,
        history: History,
        seed: str,
        *,
        emulator: Emulator | None = None,
    ) -> None:
        self.project = project
        self._emulator = emulator
        self.scribe = Scribe(history)
        self.helpers = asyncio.TaskGroup()
        connection = Connection(target=address, tls=False, source="test")
        self.transport = GrpcTransport(connection)
        self._seed = seed
        self._published = 0

    async def create(self, **settings: object) -> None:
        topic = schema.Topic(name=f"projects/{self.project}/topics/{TOPIC}")
        await self._call("CreateTopic", topic.SerializeToString())
        subscription = schema.Subscription(
            name=f"projects/{self.project}/subscriptions/{SUBSCRIPTION}", topic=topic.name
        )
        for name, value in settings.items():
            setattr(subscription, name, value)
        await self._call("CreateSubscription", subscription.SerializeToString())

    async def publish(self, rng: random.Random, count: int) -> None:
        """Publish messages with a few keys and sizes."""
        messages = []
        for _ in range(count):
            self._published += 1
            key, size = rng.choice(("", "k", "l")), rng.choice((0, 500))
            messages.append(self.scribe.publishing(f"m{self._published}", key, size))
            self.scribe.published(messages[-1], known=True)
        if self._emulator is not None:  # no fault can be in the way
            for each in messages:
                self._emulator.publish(
                    TOPIC, each.data, attributes=each.attributes, ordering_key=each.ordering_key
                )
            return
        name = f"projects/{self.project}/topics/{TOPIC}"
        request = schema.PublishRequest(topic=name, messages=messages)
        await self._call("Publish", request.SerializeToString())

    async def _call(self, rpc: str, request: bytes) -> None:
        await self.transport.call(rpc, request, timeout=10.0)

    @contextlib.asynccontextmanager
    async def session(self, name: str, flow: FlowControl) -> AsyncIterator[Session]:
        """A subscriber of a client of its own."""
        session = Session(name, self.scribe, self.helpers, self._deed)
        self.scribe.limits(name, flow)
        async with SubscriberClient(self.project) as client:
            live = session.live = client.subscribe(
                SUBSCRIPTION,
                session.callback,
                flow_control=flow,
                streams=StreamPolicy(ping_interval=0.3, ping_timeout=0.3),
                shutdown=SHUTDOWN,
                on_event=session.on_event,
            )
            await live.ready()
            yield session
            session.stopping(SHUTDOWN)
            live.stop()
            await live
            session.stopped(live)

    def _deed(self, label: str, times: int) -> Deed:
        return draw_deed(dice(f"{self._seed} {label} {times}"))

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Site]:
        """Open it; no task of a client may be left when it is closed (a server may be here too)."""
        before = asyncio.all_tasks()
        await self.transport.open()
        async with self.helpers:
            yield self
        await self.transport.close()
        for task in asyncio.all_tasks() - before:
            if any(part in repr(task) for part in ("/subscriber/", "/_wire/")):
                self.scribe.note(LeftOver(self.scribe.now(), f"task {task}"))


def wrongs(emulator: Emulator, *, exactly_once: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """What goes wrong, one thing in each round; nothing that takes an ack deadline to mend."""
    faults = emulator.faults
    loop = asyncio.get_running_loop()

    def stall() -> None:
        loop.call_later(0.8, faults.stall_streams(SUBSCRIPTION).resume)

    def refuse() -> None:
        loop.call_later(0.3, faults.refuse_connections().resume)
        faults.cut_streams(SUBSCRIPTION)

    yield "fail", lambda: faults.fail("Acknowledge", "UNAVAILABLE", times=3)
    yield "fail", lambda: faults.fail("ModifyAckDeadline", "INTERNAL", times=2)
    if not exactly_once:  # then what is lost on its way comes again only after a minute
        yield "cut streams", lambda: faults.cut_streams(SUBSCRIPTION)
        yield "stall", stall
        yield "refuse", refuse
    yield "fail", lambda: faults.fail("Acknowledge", "ABORTED", times=2, applied=True)
    yield "delay", lambda: faults.delay("Acknowledge", 0.2, times=2)
    if exactly_once:
        yield "confirmations", lambda: faults.fail_confirmations(SUBSCRIPTION, times=5)
    else:
        yield "duplicate", lambda: faults.duplicate(SUBSCRIPTION, times=5)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_faults_on_the_wire_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, *, ordered: bool, exactly_once: bool
) -> None:
    """H1, H2, H3, H4, H5, H6, H9 over gRPC, on the embedded emulator."""
    history = History(ordered=ordered, exactly_once=exactly_once)
    async with Emulator() as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.address)
        seed = f"{ordered} {exactly_once}"
        site = Site(emulator.address, emulator.project, history, seed, emulator=emulator)
        async with site():
            await site.create(
                enable_message_ordering=ordered, enable_exactly_once_delivery=exactly_once
            )
            rng, scribe = dice(1), site.scribe
            first, second = FlowControl(), FlowControl(max_messages=5, max_request_batch_size=2)
            async with site.session("a", first):
                for name, wrong in (rounds := list(wrongs(emulator, exactly_once=exactly_once))):
                    began = scribe.now()
                    wrong()
                    await site.publish(rng, MESSAGES)
                    async with site.session("b" + name, second):  # one who comes and goes
                        await emulator.until(
                            lambda: emulator.backlog(SUBSCRIPTION) == 0, timeout=30
                        )
                    emulator.faults.clear()
                    scribe.note(Fault(began, scribe.now(), name))
                    # What is sent to one who leaves comes again only after its ack deadline.
                    await emulator.until(lambda: len(emulator.streams(SUBSCRIPTION)) <= 1)
        scribe.server_events(emulator)
        scribe.note(Backlog(scribe.now(), emulator.backlog(SUBSCRIPTION)))

    assert [str(violation) for violation in check(history)] == []
    begun = {event.message for event in history.events if isinstance(event, Started)}
    assert len(begun) == len(rounds) * MESSAGES


async def test_connections_that_are_cut_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """H1, H3, H9 over gRPC: connections are reset while callbacks run."""
    history = History()
    async with Emulator() as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.address)
        site = Site(emulator.address, emulator.project, history, "cut", emulator=emulator)
        async with site():
            await site.create()
            async with site.session("a", FlowControl()) as session:
                for _ in range(5):
                    await site.publish(dice(2), MESSAGES)
                    # What is on its way comes again only when its ack deadline has passed.
                    await emulator.until(
                        lambda: (
                            session.begun >= emulator.outstanding(SUBSCRIPTION) > 0
                            or not emulator.backlog(SUBSCRIPTION)
                        ),
                        timeout=30,
                    )
                    began = site.scribe.now()
                    emulator.faults.cut_connections()
                    await emulator.until(lambda: emulator.backlog(SUBSCRIPTION) == 0, timeout=30)
                    site.scribe.note(Fault(began, site.scribe.now(), "cut"))
        site.scribe.server_events(emulator)
        site.scribe.note(Backlog(site.scribe.now(), emulator.backlog(SUBSCRIPTION)))

    assert [str(violation) for violation in check(history)] == []


@pytest.mark.parametrize("ordered", [False, True])
async def test_nothing_is_lost_on_googles_emulator(
    google_address: str, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    """H1, H2, H3, H4, H5, H9 where the server says nothing of what it does."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", google_address)
    history = History(ordered=ordered, server=False)
    site = Site(google_address, f"simulated-{ordered}".lower(), history, f"google {ordered}")

    def acked() -> int:
        starts = {e.delivery: e.message for e in history.events if isinstance(e, Started)}
        return len(
            {
                starts[e.delivery]
                for e in history.events
                if isinstance(e, Settled) and e.how == "ack" and not e.void
            }
        )

    async with site():
        await site.create(enable_message_ordering=ordered)
        few = FlowControl(max_messages=5, max_request_batch_size=1)
        # Both stay: that emulator goes on for a while to send messages to those who have left.
        async with site.session("a", FlowControl()), site.session("b", few), asyncio.timeout(30):
            for number in range(1, 4):
                await site.publish(dice(number), MESSAGES)
                while acked() < number * MESSAGES:  # noqa: ASYNC110 - nobody else tells
                    await asyncio.sleep(0.01)
    site.scribe.note(Backlog(site.scribe.now(), 0))

    assert [str(violation) for violation in check(history)] == []

"""The managed publisher of the seed: hold and refill, flights, listener, start, stop and drain."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Self

import pytest

from pubsub_aio import (
    Batching,
    ClosedError,
    ConfigError,
    Deduplicator,
    DrainTimeoutError,
    Flight,
    PublisherClient,
    PublisherListener,
    PublisherStoppedError,
    PublishOptions,
    PublishTimeoutError,
    PubSubError,
    QueueFullError,
    QueueLimit,
    RetryPolicy,
    TakenBackError,
    UnavailableError,
    UnsupportedError,
    WrongLoopError,
)
from pubsub_aio.publisher.options import Options
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.publisher.conftest import TOPIC, Answering, Listener, publisher_of, stored
from tests.subscriber.conftest import WORKER, Calls, Tapped, client_of, now, virtual

ONE_BY_ONE = Batching(max_messages=1)


# What it is made with


def test_the_defaults_are_those_of_the_seed() -> None:
    """M2 to M9: the properties and their defaults."""
    options = Options()

    assert (options.max_in_flight, options.refill_allowed_at) == (50, 0)
    assert (options.poll_time, options.hold_pause_time, options.wait_timeout) == (0.1, 0.1, 5.0)
    assert options.retry is None
    assert options.listener is None
    assert options.batching.max_latency == 0  # so that who awaits one after another does not crawl
    assert Options().id_prefix != options.id_prefix


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_in_flight": 0}, "max_in_flight must be at least 1"),
        ({"refill_allowed_at": 50}, "refill_allowed_at must be at least 0 and at most 49"),
        ({"poll_time": 0}, "poll_time must be more than 0"),
        ({"hold_pause_time": -1}, "hold_pause_time must be more than 0"),
        ({"wait_timeout": 0}, "wait_timeout must be more than 0"),
        ({"wait_timeout": math.inf}, "wait_timeout must be more than 0 and at most"),
        ({"max_in_flight_bytes": 0}, "max_in_flight_bytes must be at least 1"),
        ({"send_flight_id": "yes"}, "send_flight_id must be True or False, not 'yes'"),
        ({"check_topics": 1}, "check_topics must be True or False, not 1"),
        ({"listener": PublisherListener}, "listener must be an object, not the class Publisher"),
        ({"retry": 3}, "retry must be a RetryPolicy or None, not 3"),
        ({"listener": object()}, "listener must have one of the methods published, acked"),
        ({"batching": 100}, "batching must be a Batching"),
        ({"queue": 100}, "queue must be a QueueLimit"),
        ({"topics": "orders"}, "topics must be a list of names"),
        ({"max_inflight": 3}, "max_inflight: there is no such option; there are id_prefix"),
        ({"retry": RetryPolicy(retries=-1), "wait_timeout": None}, "give a timeout"),
    ],
)
def test_a_setting_that_cannot_be_is_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        PublisherClient("p", endpoint="http://localhost:1", **options)  # type: ignore[arg-type]


def test_a_topic_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: where to publish to must be known."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)

    async def scenario() -> None:
        publisher = PublisherClient(endpoint="http://localhost:1")
        with pytest.raises(TypeError, match="topic"):
            publisher.publish()  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="topic: must be NAME or projects/PROJECT/topics"):
            publisher.publish("", b"x")
        with pytest.raises(ConfigError, match="project: not known; name it as project"):
            publisher.publish("orders", b"x")
        await publisher.stop()

    asyncio.run(scenario())


# Flights


@virtual
async def test_a_flight_holds_what_was_published(emulator: MemoryEmulator) -> None:
    """M14 to M20, M26: a flight's id, topic, attributes, data, options, time and ack."""
    emulator.create_topic(TOPIC)
    policy = RetryPolicy(retries=1)
    async with publisher_of(emulator, id_prefix="me") as publisher:
        attributes = {"size": "large"}
        began = datetime.now(UTC)
        first = publisher.publish(TOPIC, b"tea", attributes=attributes)
        second = publisher.publish(TOPIC, b"cup", ordering_key="k", retry=policy, timeout=7)

        assert (first.publish_time, first.published_at, first.message_id) == (None, None, None)
        assert await first is first
        assert (first.id, second.id) == ("me-1", "me-2")
        assert first.topic == f"projects/{emulator.project}/topics/{TOPIC}"
        assert (first.data, first.attributes) == (b"tea", attributes)
        assert first.options == PublishOptions(ordering_key="", retry=None, timeout=5.0)
        assert second.options == PublishOptions(ordering_key="k", retry=policy, timeout=7)
        assert (first.ordering_key, second.ordering_key, second.attributes) == ("", "k", {})
        assert first.published_at == now()
        assert first.publish_time is not None
        assert began <= first.publish_time <= began + timedelta(minutes=1)
        message_id = await first.ack
        assert (first.message_id, first.error, first.attempts) == (message_id, None, 1)
        assert emulator.message(message_id).data == b"tea"
        assert emulator.message(message_id).attributes == attributes
        assert emulator.message(await second.ack).ordering_key == "k"
        assert "acked as" in repr(first)


@virtual
async def test_numbers_are_given_as_ids_are_asked_for(emulator: MemoryEmulator) -> None:
    """M16: a flight has its id for good, and no other flight has it."""
    async with publisher_of(emulator, id_prefix="me") as publisher:
        flights = [publisher.publish(TOPIC, b"x") for _ in range(3)]
        flights += await publisher.publish_many(TOPIC, [b"y"] * 2)
        asked = [flights[2].id, flights[4].id, flights[2].id]

        assert asked == ["me-1", "me-2", "me-1"]
        assert len({flight.id for flight in flights}) == 5
        assert [flights[2].id, flights[4].id, flights[2].id] == asked


@virtual
async def test_whatever_threads_ask_for_its_id_a_flight_has_one(emulator: MemoryEmulator) -> None:
    """M16: as when several log a flight."""
    both = threading.Barrier(2)

    class Slow(str):
        """Whoever makes an id of it waits for another to do the same, but not for ever."""

        __slots__ = ()

        def __format__(self, spec: str) -> str:
            try:
                both.wait(0.2)
            except threading.BrokenBarrierError:
                both.reset()
            return str(self)

    async with publisher_of(emulator, id_prefix=Slow("me")) as publisher:
        flight = await publisher.publish(TOPIC, b"x")
        with ThreadPoolExecutor(2) as threads:
            ids = list(threads.map(lambda _: flight.id, range(2)))

    assert ids == ["me-1", "me-1"]


@virtual
async def test_publishing_is_awaited_until_the_message_is_on_its_way(
    emulator: MemoryEmulator,
) -> None:
    """M26: the awaitable is done when the message is published, not when it is acked."""
    emulator.faults.delay("Publish", 3)
    async with publisher_of(emulator) as publisher:
        flight = await publisher.publish(TOPIC, b"x")

        assert (now(), publisher.in_flight, flight.ack.done()) == (0, 1, False)
        await flight.ack
        assert (now(), publisher.in_flight) == (3, 0)


@virtual
async def test_an_id_may_be_sent_with_the_message(emulator: MemoryEmulator) -> None:
    """M2: the flight id as an attribute, so that consumers know what was published twice."""
    async with publisher_of(emulator, send_flight_id=True) as publisher:
        flight = publisher.publish(TOPIC, b"x", attributes={"a": "b"})
        (other,) = await publisher.publish_many(TOPIC, [b"y"])

        for each in (flight, other):
            attributes = emulator.message(await each.ack).attributes
            assert attributes["pubsub_aio_flight_id"] == each.id
        assert flight.attributes == {"a": "b"}


@virtual
async def test_ids_that_come_again_after_a_restart_are_told_apart(emulator: MemoryEmulator) -> None:
    """M2, M16: numbers begin anew in each publisher, whose prefix may be the same."""
    emulator.create_topic(TOPIC)
    emulator.create_subscription(WORKER, TOPIC)
    calls, dedupe, ids, added = Calls(), Deduplicator(), set(), set()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        for life in (b"first", b"second"):
            async with publisher_of(emulator, id_prefix="me", send_flight_id=True) as publisher:
                sent = await publisher.publish_many(TOPIC, [life + b" %d" % n for n in range(5)])
                ids |= {flight.id for flight in sent}
                added |= {name for flight in sent for name in flight.attributes}
            await asyncio.sleep(1)

    assert sorted(calls.ended) == sorted(stored(emulator))
    assert (len(calls.ended), dedupe.dropped) == (10, 0)
    assert ids == {f"me-{number}" for number in range(1, 6)}
    assert added == set()


@virtual
async def test_a_publisher_that_was_not_told_what_to_begin_ids_with_shares_them_with_none(
    emulator: MemoryEmulator,
) -> None:
    """M2: the default is random."""
    ids = set()
    for _ in range(2):
        async with publisher_of(emulator) as publisher:
            ids.add((await publisher.publish(TOPIC, b"x")).id)

    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{22}-1", each) for each in ids)


@virtual
async def test_without_being_asked_nothing_is_added(emulator: MemoryEmulator) -> None:
    async with publisher_of(emulator) as publisher:
        flight = publisher.publish(TOPIC, b"x", attributes={"a": "b"})

        assert emulator.message(await flight.ack).attributes == {"a": "b"}


@virtual
async def test_who_gives_up_waiting_for_an_ack_may_ask_again(emulator: MemoryEmulator) -> None:
    """M15: the future is one's own to cancel, the flight goes on."""
    emulator.faults.delay("Publish", 2)
    async with publisher_of(emulator) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await flight.ack

        assert emulator.message(await flight.ack).data == b"x"


@virtual
async def test_a_message_is_taken_back_by_whoever_does_not_wait_for_it_to_leave(
    emulator: MemoryEmulator,
) -> None:
    """M26: what has not departed when its publisher is cancelled never does."""
    listener = Listener()
    emulator.faults.delay("Publish", 2)
    async with publisher_of(emulator, max_in_flight=1, listener=listener) as publisher:
        first = publisher.publish(TOPIC, b"first")
        second = publisher.publish(TOPIC, b"second")
        third = publisher.publish(TOPIC, b"third")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await second

        assert publisher.queued == 1
        for late in (second, second.ack):
            with pytest.raises(TakenBackError, match="taken back before it was sent"):
                await late
        await first.ack
        await third.ack
    assert stored(emulator) == [b"first", b"third"]
    assert listener.events(b"second") == ["completed_exceptionally"]


@virtual
async def test_who_gives_up_on_an_ack_takes_nothing_from_others(emulator: MemoryEmulator) -> None:
    """M19: each who asks has a future of its own."""
    emulator.faults.delay("Publish", 2)
    async with publisher_of(emulator) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        patient = asyncio.ensure_future(flight.ack)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flight.ack, 1)

        assert await patient == await flight.ack == flight.message_id


@virtual
async def test_who_only_looks_whether_an_ack_is_done_leaves_nothing_behind(
    emulator: MemoryEmulator,
) -> None:
    emulator.faults.delay("Publish", 2)
    async with publisher_of(emulator) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        for _ in range(10):
            assert not flight.ack.done()
        assert flight.interest is not None
        assert flight.interest.pending() == []


@virtual
async def test_who_asks_what_is_known_already_need_not_listen(emulator: MemoryEmulator) -> None:
    """Asyncio complains of nobody who looks whether a failed message is done, and goes."""
    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    async with publisher_of(emulator, listener=Listener()) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        await asyncio.sleep(1)

        assert flight.ack.done()


@virtual
async def test_who_waits_for_an_ack_is_not_forgotten(emulator: MemoryEmulator) -> None:
    """Though nobody else knows the task that does."""
    emulator.faults.delay("Publish", 2)
    ids = []

    async def wait(flight: Flight) -> None:
        ids.append(await flight.ack)

    async with publisher_of(emulator) as publisher:
        asyncio.create_task(wait(publisher.publish(TOPIC, b"x")))  # noqa: RUF006 - that is the point
        await asyncio.sleep(1)
        gc.collect()
        await asyncio.sleep(2)

    assert [emulator.message(each).data for each in ids] == [b"x"]


@virtual
async def test_many_who_give_up_on_an_ack_leave_nothing_behind(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 200)
    async with publisher_of(emulator, wait_timeout=1_000) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        patient = asyncio.ensure_future(_result(flight.ack))
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(flight.ack, 1)
        assert flight.interest is not None
        assert len(flight.interest.acks) < 5
        await publisher.stop()
        assert isinstance(await patient, PublisherStoppedError)


@virtual
async def test_a_message_is_not_taken_back_while_somebody_waits_for_its_ack(
    emulator: MemoryEmulator,
) -> None:
    """M26: who waits for it to leave is cancelled, who waits for its id is not."""
    emulator.faults.delay("Publish", 2)
    limit = QueueLimit(max_messages=1, when_full="block")
    async with publisher_of(emulator, max_in_flight=1, queue=limit) as publisher:
        await publisher.publish(TOPIC, b"first")
        second = publisher.publish(TOPIC, b"second")
        ack = second.ack
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await second

        with pytest.raises(QueueFullError):  # it counts again: nobody is held back by it
            publisher.publish(TOPIC, b"third")
        assert emulator.message(await ack).data == b"second"


@virtual
async def test_an_error_of_a_transport_of_ones_own_is_raised_as_it_is(
    emulator: MemoryEmulator,
) -> None:
    """Though nobody could make another one like it."""

    class Peculiar(Exception):  # noqa: N818 - it is peculiar
        def __new__(cls, *, why: str) -> Self:
            return super().__new__(cls, why)

        def __init__(self, *, why: str) -> None:
            super().__init__(why)

    class Own(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "Publish":
                raise Peculiar(why="it is")
            return await super().call(rpc, request, timeout=timeout)

    async with publisher_of(emulator, Own(emulator.transport())) as publisher:
        first, second = publisher.publish(TOPIC, b"1"), publisher.publish(TOPIC, b"2")
        for flight in (first, second):
            with pytest.raises(Peculiar, match="it is"):
                await flight.ack


@virtual
async def test_those_who_hear_of_a_failure_have_an_error_each(emulator: MemoryEmulator) -> None:
    """What one of them does with it, or it has seen on its way, is no concern of others."""
    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    async with publisher_of(emulator) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % number) for number in range(3)]
        heard = await asyncio.gather(*(one.ack for one in flights), return_exceptions=True)

        assert len({id(error) for error in heard}) == 3
        assert {str(error) for error in heard} == {str(flights[0].error)}
        assert flights[0].error is not None
        assert flights[0].error.__traceback__ is None


@virtual
async def test_a_message_is_taken_back_by_the_last_who_waits_for_it(
    emulator: MemoryEmulator,
) -> None:
    """M26: one of two who is cancelled takes nothing from the other."""
    emulator.faults.delay("Publish", 2)
    async with publisher_of(emulator, max_in_flight=1) as publisher:
        await publisher.publish(TOPIC, b"first")
        second = publisher.publish(TOPIC, b"second")
        waiting = asyncio.create_task(_departed(second))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await second
        assert await waiting is second
    assert stored(emulator) == [b"first", b"second"]


# Hold and refill


@virtual
async def test_no_more_are_in_flight_than_may_be(emulator: MemoryEmulator) -> None:
    """M3, M27: the hold is put on as soon as max_in_flight is reached."""
    emulator.faults.delay("Publish", 1, times=100)
    listener = Listener()
    async with publisher_of(
        emulator, max_in_flight=3, batching=ONE_BY_ONE, listener=listener
    ) as publisher:
        for number in range(7):
            publisher.publish(TOPIC, b"%d" % number)
        await asyncio.sleep(0.5)

        assert (publisher.in_flight, publisher.queued, publisher.holding) == (3, 4, True)
    assert listener.times("published") == [0, 0, 0, 1, 1, 1, 2]


@virtual
async def test_a_hold_ends_when_few_enough_are_in_flight(emulator: MemoryEmulator) -> None:
    """M4, M27: a hold is taken off at refill_allowed_at, no sooner."""
    for seconds in (1, 2, 3, 4):
        emulator.faults.delay("Publish", seconds)
    listener = Listener()
    async with publisher_of(
        emulator, max_in_flight=4, refill_allowed_at=1, batching=ONE_BY_ONE, listener=listener
    ) as publisher:
        for number in range(6):
            publisher.publish(TOPIC, b"%d" % number)
        await asyncio.sleep(2.5)

        assert (publisher.in_flight, publisher.queued, publisher.holding) == (2, 2, True)
    # One was left at 3 seconds; before that there was room, and a hold.
    assert listener.times("published") == [0, 0, 0, 0, 3, 3]


@virtual
async def test_messages_count_not_requests(emulator: MemoryEmulator) -> None:
    """M3: a request of many messages counts as many; one that is too large is parted."""
    emulator.faults.delay("Publish", 1, times=100)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, max_in_flight=50) as publisher:
        for number in range(80):
            publisher.publish(TOPIC, b"%d" % number)
        await asyncio.sleep(0.5)

        assert (publisher.in_flight, publisher.queued) == (50, 30)
    assert tap.times("Publish") == [0, 1]
    assert stored(emulator) == [b"%d" % number for number in range(80)]


@virtual
async def test_bytes_in_flight_are_limited_too(emulator: MemoryEmulator) -> None:
    """M3: a service that does not answer is not sent more than memory holds."""
    emulator.faults.delay("Publish", 1, times=1_000)
    async with publisher_of(
        emulator, max_in_flight_bytes=1_000, batching=Batching(max_bytes=500)
    ) as publisher:
        for _ in range(10):
            publisher.publish(TOPIC, bytes(400))
        await asyncio.sleep(0.5)

        assert (publisher.in_flight, publisher.queued, publisher.holding) == (3, 7, False)
    assert len(stored(emulator)) == 10
    assert now() == 4


@virtual
async def test_other_limits_take_effect_at_once(emulator: MemoryEmulator) -> None:
    """R4: what is in flight may be changed while the publisher runs."""
    emulator.faults.delay("Publish", 1, times=100)
    async with publisher_of(emulator, max_in_flight=1, batching=ONE_BY_ONE) as publisher:
        for number in range(6):
            publisher.publish(TOPIC, b"%d" % number)
        await asyncio.sleep(0.5)
        assert (publisher.in_flight, publisher.queued) == (1, 5)

        publisher.change_hold(max_in_flight=3, refill_allowed_at=2)
        await asyncio.sleep(0.1)
        assert (publisher.in_flight, publisher.queued) == (3, 3)
        assert publisher.settings["max_in_flight"].value == 3
        assert publisher.settings["max_in_flight"].source == "changed"
        publisher.change_hold(max_in_flight=1)
        await asyncio.sleep(1.5)
        assert publisher.in_flight == 1
        with pytest.raises(ConfigError, match="refill_allowed_at"):
            publisher.change_hold(max_in_flight=2, refill_allowed_at=2)


@virtual
async def test_a_runner_looks_again_by_itself(emulator: MemoryEmulator) -> None:
    """M6, M7: poll_time and hold_pause_time bound how long a runner waits for news."""
    emulator.create_topic(TOPIC)
    looks = []
    async with publisher_of(emulator, poll_time=0.5, hold_pause_time=0.2) as publisher:
        await asyncio.sleep(0.1)
        departures, take = publisher._departures, publisher._departures.poll

        def poll(*, now: float) -> float:
            looks.append(round(now, 3))
            return take(now=now)

        departures.poll = poll  # type: ignore[method-assign]
        await asyncio.sleep(1.45)
        assert looks == [0.5, 1, 1.5]
        looks.clear()
        emulator.faults.delay("Publish", 1, times=10)
        for number in range(51):
            publisher.publish(TOPIC, b"%d" % number)
        await asyncio.sleep(0.7)
        # Once for the messages, then every 0.2 seconds while there is a hold.
        pauses = [round(after - before, 3) for before, after in itertools.pairwise(looks)]
        assert pauses[-3:] == [0.2, 0.2, 0.2]


@virtual
async def test_waiting_costs_no_turns_of_the_loop(emulator: MemoryEmulator) -> None:
    """M29: what is not answered yet is looked at when something happens, not over and over."""
    emulator.faults.delay("Publish", 4, times=1)
    async with publisher_of(emulator, poll_time=10, hold_pause_time=10) as publisher:
        flight = await publisher.publish(TOPIC, b"x")
        loop, turns = asyncio.get_running_loop(), 0
        once = loop._run_once  # type: ignore[attr-defined]

        def count() -> None:
            nonlocal turns
            turns += 1
            once()

        loop._run_once = count  # type: ignore[attr-defined]
        await flight.ack
        assert turns < 20


# The listener


@virtual
async def test_a_listener_is_told_of_departure_and_then_of_the_ack(
    emulator: MemoryEmulator,
) -> None:
    """M9, M10, M11: published when the request is on its way, acked when the id has come."""
    emulator.faults.delay("Publish", 2)
    listener = Listener()
    async with publisher_of(emulator, listener=listener) as publisher:
        flight = await publisher.publish(TOPIC, b"x")
        await flight.ack

    assert listener.told == [(0, "published", b"x"), (2, "acked", b"x")]
    assert listener.flights == [flight, flight]


@virtual
async def test_a_listener_is_told_of_a_failure(emulator: MemoryEmulator) -> None:
    """M12: the service refused it, or the request itself took too long."""
    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    listener = Listener()
    slow = RetryPolicy(retries=0, attempt_timeout=1)
    async with publisher_of(emulator, listener=listener) as publisher:
        refused = await publisher.publish(TOPIC, b"refused")
        await asyncio.sleep(1)
        emulator.faults.delay("Publish", 4)
        late = await publisher.publish(TOPIC, b"late", retry=slow)
        with pytest.raises(UnavailableError, match="DEADLINE_EXCEEDED"):
            await late.ack

    assert listener.events(b"refused") == ["published", "completed_exceptionally"]
    assert listener.events(b"late") == ["published", "completed_exceptionally"]
    assert listener.times("completed_exceptionally") == [0, 2]
    assert "PERMISSION_DENIED" in str(refused.error)


@virtual
async def test_a_flight_that_is_not_answered_in_time_times_out_once(
    emulator: MemoryEmulator,
) -> None:
    """M8, M13, M28: told first, then the future; an ack that comes later changes nothing."""
    emulator.faults.delay("Publish", 6)
    listener = Listener()
    done_when_told = []
    told = listener.timed_out

    def timed_out(flight: Flight) -> None:
        done_when_told.append(ack.done())
        told(flight)

    listener.timed_out = timed_out  # type: ignore[method-assign]
    async with publisher_of(emulator, listener=listener) as publisher:
        flight = await publisher.publish(TOPIC, b"x", ordering_key="k")
        ack = flight.ack
        with pytest.raises(
            PublishTimeoutError, match="not published within 5 s, 1 attempt;"
        ) as caught:
            await ack
        assert now() == 5
        assert (caught.value.seconds, caught.value.attempts) == (5, 1)
        await asyncio.sleep(10)

    assert stored(emulator) == [b"x"]  # the answer came at 6 seconds
    assert done_when_told == [False]
    assert listener.told == [(0, "published", b"x"), (5, "timed_out", b"x")]


@virtual
async def test_the_time_begins_at_the_departure(emulator: MemoryEmulator) -> None:
    """M8, M14: what waits during a hold has all of its time left afterwards."""
    emulator.faults.delay("Publish", 4, times=2)
    async with publisher_of(emulator, max_in_flight=1) as publisher:
        first = publisher.publish(TOPIC, b"first")
        second = publisher.publish(TOPIC, b"second")

        assert await first.ack
        assert await second.ack
        assert now() == 8


@virtual
async def test_a_listener_may_be_async_and_hears_in_order(emulator: MemoryEmulator) -> None:
    """M9: async methods run one after another, beside the publisher."""
    told: list[tuple[float, str, bytes]] = []

    class Slow(PublisherListener):
        async def published(self, flight: Flight) -> None:
            told.append((now(), "published", flight.data))
            await asyncio.sleep(1)

        async def acked(self, flight: Flight) -> None:
            told.append((now(), "acked", flight.data))

    async with publisher_of(emulator, listener=Slow(), batching=ONE_BY_ONE) as publisher:
        flights = [publisher.publish(TOPIC, data) for data in (b"a", b"b")]
        for flight in flights:
            await flight.ack
        assert now() == 0

    assert told == [
        *((0, "published", b"a"), (1, "published", b"b")),
        *((2, "acked", b"a"), (2, "acked", b"b")),
    ]


@virtual
async def test_a_listener_that_lags_behind_slows_the_publisher_down(
    emulator: MemoryEmulator,
) -> None:
    """M9: what an async listener was not told yet is bounded."""
    told = 0

    class Slow(PublisherListener):
        async def acked(self, flight: Flight) -> None:
            nonlocal told
            del flight
            told += 1
            await asyncio.sleep(0.01)

    async with publisher_of(emulator, listener=Slow()) as publisher:
        flights = []
        for number in range(5_000):
            flights.append(publisher.publish(TOPIC, b"%d" % number))
            if not number % 100:
                await flights[-1]
        most = max(flight.published_at or 0 for flight in flights)
        await publisher.drain()
        assert told == 5_000
    assert most > 30  # 5,000 take 50 seconds; no more than 1,000 were ahead of that


@virtual
async def test_what_a_listener_raises_is_logged_and_nothing_else(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """M9: an error in a listener is contained, plain or async."""

    class Broken(PublisherListener):
        def published(self, flight: Flight) -> None:
            raise ValueError(f"plain {flight.data!r}")

        async def acked(self, flight: Flight) -> None:
            raise ValueError(f"async {flight.data!r}")

    async with publisher_of(emulator, listener=Broken()) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % number) for number in range(3)]
        for flight in flights:
            assert await flight.ack

    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert sorted(logged) == [f"{kind} b'{n}'" for kind in ("async", "plain") for n in range(3)]


@virtual
async def test_a_listener_that_raises_a_cancellation_is_contained_too(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """M9: it is no word to the publisher, neither in a plain method nor in an async one."""

    class Cancelling(PublisherListener):
        def published(self, flight: Flight) -> None:
            raise asyncio.CancelledError(f"plain {flight.data!r}")

        async def acked(self, flight: Flight) -> None:
            raise asyncio.CancelledError(f"async {flight.data!r}")

    async with publisher_of(emulator, listener=Cancelling()) as publisher:
        for number in range(3):
            assert await publisher.publish(TOPIC, b"%d" % number).ack
    assert len([record for record in caplog.records if record.exc_info]) == 6


def test_a_listener_that_ends_the_program_leaves_no_future_pending() -> None:
    """M24: also Ctrl-C in a listener."""
    flights: list[Flight] = []

    class Ending(PublisherListener):
        def acked(self, flight: Flight) -> None:
            if flight.data == b"0":
                raise KeyboardInterrupt

    async def scenario(emulator: MemoryEmulator) -> None:
        async with publisher_of(emulator, listener=Ending()) as publisher:
            flights.extend(publisher.publish(TOPIC, b"%d" % number) for number in range(3))
            await asyncio.gather(*(flight.ack for flight in flights))
            await asyncio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        run_scenario(scenario)
    assert all(flight.message_id for flight in flights)


@virtual
async def test_an_async_listener_hears_of_the_end(emulator: MemoryEmulator) -> None:
    """M24: what a stop makes of flights is told too."""
    told: list[bytes] = []

    class Slow(PublisherListener):
        async def completed_exceptionally(self, flight: Flight) -> None:
            await asyncio.sleep(0.1)
            told.append(flight.data)

    emulator.faults.delay("Publish", 60)
    async with publisher_of(emulator, listener=Slow()) as publisher:
        await publisher.publish(TOPIC, b"x")
        await publisher.stop()
    assert told == [b"x"]


@virtual
async def test_any_object_may_listen_to_some_of_it(emulator: MemoryEmulator) -> None:
    """M9: a listener need not have all methods."""

    class Acks:
        def __init__(self) -> None:
            self.ids: list[str | None] = []

        def acked(self, flight: Flight) -> None:
            self.ids.append(flight.message_id)

    acks = Acks()
    async with publisher_of(emulator, listener=acks) as publisher:
        flight = publisher.publish(TOPIC, b"x")

    assert acks.ids == [flight.message_id]


@virtual
async def test_a_failure_that_nobody_looks_at_is_logged(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a listener, and without anybody who awaits it, a lost message is not silent."""
    emulator.faults.fail("Publish", "PERMISSION_DENIED", times=2)
    async with publisher_of(emulator) as publisher:
        publisher.publish(TOPIC, b"x")
        publisher.publish(TOPIC, b"y")
        await asyncio.sleep(1)
        awaited = publisher.publish(TOPIC, b"z")
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            await awaited.ack

    (line,) = [record.getMessage() for record in caplog.records]
    assert "2 message(s) not published, and nobody awaits them: PERMISSION_DENIED" in line


@virtual
async def test_a_failure_is_logged_if_who_awaited_it_has_given_up(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Answering(emulator.transport(), (2, "PERMISSION_DENIED"))
    async with publisher_of(emulator, transport) as publisher:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(publisher.publish(TOPIC, b"x").ack, 1)

    (line,) = [record.getMessage() for record in caplog.records]
    assert "1 message(s) not published, and nobody awaits them: PERMISSION_DENIED" in line


@virtual
async def test_a_failure_is_logged_of_those_alone_whom_nobody_looks_at(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Though another of their batch is awaited, and a listener hears of other things."""

    class Acks(PublisherListener):
        def acked(self, flight: Flight) -> None:
            del flight

    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    async with publisher_of(emulator, listener=Acks()) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % number) for number in range(50)]
        with pytest.raises(Exception, match="PERMISSION_DENIED"):
            await flights[-1].ack

    (line,) = [record.getMessage() for record in caplog.records]
    assert "49 message(s) not published" in line


# Start, runners, stop, drain


@virtual
async def test_the_runners_may_run_in_tasks_of_ones_own(emulator: MemoryEmulator) -> None:
    """M21, M22, M23: run_publisher and run_flights in a TaskGroup; both end with a drain."""
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    early = publisher.publish(TOPIC, b"early")
    async with asyncio.TaskGroup() as tasks:
        runners = [
            tasks.create_task(publisher.run_publisher()),
            tasks.create_task(publisher.run_flights()),
        ]
        await early.ack
        with pytest.raises(ConfigError, match="run_flights: it runs already"):
            await publisher.run_flights()
        with pytest.raises(ConfigError, match="the runners run already"):
            await publisher.start()
        flight = publisher.publish(TOPIC, b"x")
        await publisher.drain()

        assert flight.message_id
        assert all(runner.done() for runner in runners)
    await publisher.stop()


@virtual
async def test_a_drain_right_after_the_runners_were_begun_waits_for_them(
    emulator: MemoryEmulator,
) -> None:
    """M23, M25: tasks begin to run a moment after they were made."""
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    flight = publisher.publish(TOPIC, b"x")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(publisher.run_publisher())
        tasks.create_task(publisher.run_flights())
        await publisher.drain()

    assert flight.message_id
    await publisher.stop()


@pytest.mark.parametrize("runner", ["run_publisher", "run_flights"])
@virtual
async def test_whoever_cancels_a_runner_stops_the_publisher(
    emulator: MemoryEmulator, runner: str
) -> None:
    """M24: no future is left pending, whichever of the runners goes."""
    emulator.faults.delay("Publish", 60)
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport(), max_in_flight=1)
    flights = [publisher.publish(TOPIC, data) for data in (b"a", b"b")]
    runners = {
        "run_publisher": asyncio.create_task(publisher.run_publisher()),
        "run_flights": asyncio.create_task(publisher.run_flights()),
    }
    await flights[0]
    runners[runner].cancel()
    await asyncio.wait(runners.values())

    for flight, sent in zip(flights, (True, False), strict=True):
        with pytest.raises(PublisherStoppedError) as caught:
            await flight.ack
        assert caught.value.sent is sent
    with pytest.raises(ClosedError):
        publisher.publish(TOPIC, b"c")
    await publisher.stop()


@virtual
async def test_stopping_ends_every_flight_at_once(emulator: MemoryEmulator) -> None:
    """M24: what was not sent fails with a named error, and so does what was not answered."""
    emulator.faults.delay("Publish", 60)
    listener = Listener()
    async with publisher_of(emulator, max_in_flight=1, listener=listener) as publisher:
        sent, unsent = (publisher.publish(TOPIC, data) for data in (b"sent", b"unsent"))
        waiting = asyncio.create_task(_departed(unsent))
        await sent
        await publisher.stop()

        assert now() == 0
        with pytest.raises(PublisherStoppedError, match="it may be published or not"):
            await sent.ack
        with pytest.raises(PublisherStoppedError, match="it was not sent"):
            await unsent.ack
        with pytest.raises(PublisherStoppedError):
            await waiting
        with pytest.raises(ClosedError, match="stopped: make another"):
            publisher.publish(TOPIC, b"more")
        with pytest.raises(ClosedError, match="stopped: make another"):
            await publisher.start()
        await publisher.stop()
    assert listener.events(b"sent") == ["published", "completed_exceptionally"]
    assert listener.events(b"unsent") == ["completed_exceptionally"]


@virtual
async def test_what_was_answered_in_the_last_moment_is_acked(emulator: MemoryEmulator) -> None:
    """M24: the answer has come when the publisher is stopped, and nobody was told yet."""
    stops = []

    class Stopping(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            reply = await super().call(rpc, request, timeout=timeout)
            if rpc == "Publish":
                stops.append(asyncio.create_task(publisher.stop()))
            return reply

    async with publisher_of(emulator, Stopping(emulator.transport())) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        assert emulator.message(await flight.ack).data == b"x"
        await asyncio.gather(*stops)


async def _departed(flight: Flight) -> Flight:
    return await flight


@virtual
async def test_a_drain_takes_no_more_and_waits_for_all(emulator: MemoryEmulator) -> None:
    """M25, M30: it ends when everything was published and then acked, failed or timed out."""
    emulator.faults.delay("Publish", 1, times=2)
    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    emulator.faults.delay("Publish", 60)
    listener = Listener()
    async with publisher_of(
        emulator, max_in_flight=2, batching=ONE_BY_ONE, listener=listener
    ) as publisher:
        for number in range(4):
            publisher.publish(TOPIC, b"%d" % number)
        draining = asyncio.create_task(publisher.drain())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError, match="drained and takes no more"):
            publisher.publish(TOPIC, b"more")
        await draining

        assert now() == 6
        assert (publisher.queued, publisher.in_flight) == (0, 0)
    assert [event for event in listener.events() if event != "published"] == [
        *("acked", "acked", "completed_exceptionally", "timed_out")
    ]


@virtual
async def test_a_drain_of_nothing_ends_at_once(emulator: MemoryEmulator) -> None:
    """M25: the errata's case: with nothing in flight the drain ends all the same."""
    async with publisher_of(emulator) as publisher:
        await publisher.drain()
        await publisher.drain()

        assert now() == 0


@virtual
async def test_a_drain_that_may_take_no_time_ends_if_nothing_is_left(
    emulator: MemoryEmulator,
) -> None:
    """M25: drain(0) asks whether all is done."""
    async with publisher_of(emulator, drain_timeout=0) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        await publisher.drain(0)


@virtual
async def test_a_publisher_is_started_once(emulator: MemoryEmulator) -> None:
    """M23: two who start it at the same time do not get two of everything."""
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport(), topics=[TOPIC])
    outcomes = await asyncio.gather(publisher.start(), publisher.start(), return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["NoneType", "ConfigError"]
    await publisher.publish(TOPIC, b"x").ack
    await publisher.stop()
    await publisher.run_publisher()  # which has nothing to do


@virtual
async def test_a_drain_does_not_wait_for_a_batch_to_fill(emulator: MemoryEmulator) -> None:
    """M25: with nothing more to come, nothing waits for more."""
    async with publisher_of(emulator, batching=Batching(max_latency=60)) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        await publisher.drain()

        assert (now(), flight.attempts) == (0, 1)


@virtual
async def test_a_drain_that_takes_too_long_says_what_is_left(emulator: MemoryEmulator) -> None:
    """M25: drain(timeout) raises, and can be asked again."""
    emulator.faults.delay("Publish", 3, times=2)
    async with publisher_of(emulator, max_in_flight=1) as publisher:
        publisher.publish(TOPIC, b"a")
        publisher.publish(TOPIC, b"b")
        with pytest.raises(
            DrainTimeoutError, match="within 2 s: 1 messages are not sent"
        ) as raised:
            await publisher.drain(timeout=2)

        assert (raised.value.queued, raised.value.in_flight) == (1, 1)
        await publisher.drain()
        assert now() == 6
    assert stored(emulator) == [b"a", b"b"]


@virtual
async def test_a_drain_that_nobody_can_carry_out_says_so(emulator: MemoryEmulator) -> None:
    """M25: without runners it would wait for ever."""
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    publisher.publish(TOPIC, b"x").ack.add_done_callback(lambda ack: ack.exception())
    with pytest.raises(ConfigError, match=r"nobody runs the publisher, start\(\) it first"):
        await publisher.drain()
    await publisher.stop()


@virtual
async def test_leaving_the_block_publishes_everything(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=100)
    async with publisher_of(emulator, max_in_flight=10) as publisher:
        for number in range(95):
            publisher.publish(TOPIC, b"%d" % number)

    assert len(stored(emulator)) == 95
    assert now() == 10


@virtual
async def test_leaving_the_block_does_not_take_for_ever(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1_000, times=100)
    with pytest.raises(DrainTimeoutError):
        async with publisher_of(
            emulator, wait_timeout=500, drain_timeout=20, listener=Listener()
        ) as publisher:
            flight = publisher.publish(TOPIC, b"x")

    assert now() == 20
    assert isinstance(flight.error, PublisherStoppedError)


@virtual
async def test_who_is_cancelled_does_not_wait_for_a_drain(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 50, times=100)
    with pytest.raises(TimeoutError):
        async with (
            asyncio.timeout(1),
            publisher_of(emulator, wait_timeout=100, listener=Listener()) as publisher,
        ):
            await publisher.publish(TOPIC, b"x").ack
    assert now() == 1


@virtual
async def test_an_error_is_not_replaced_by_a_drain_that_takes_too_long(
    emulator: MemoryEmulator,
) -> None:
    emulator.faults.delay("Publish", 50, times=100)

    async def fail() -> None:
        async with publisher_of(
            emulator, wait_timeout=100, drain_timeout=2, listener=Listener()
        ) as publisher:
            await publisher.publish(TOPIC, b"x")
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await fail()
    assert now() == 2
    assert "not drained within 2 s" in caught.value.__notes__[0]


@virtual
async def test_a_publisher_serves_one_loop(emulator: MemoryEmulator) -> None:
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    publisher.publish(TOPIC, b"x").ack.add_done_callback(lambda ack: ack.exception())

    async def elsewhere() -> None:
        with pytest.raises(WrongLoopError, match="make one in each loop"):
            publisher.publish(TOPIC, b"x")
        for ending in (publisher.drain(), publisher.stop()):
            with pytest.raises(WrongLoopError):
                await ending

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    with pytest.raises(WrongLoopError, match="no event loop runs here"):
        await asyncio.to_thread(publisher.publish, TOPIC, b"x")
    await publisher.stop()


# The queue before the hold


@virtual
async def test_a_full_queue_is_an_error_where_that_is_chosen(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=10)
    limit = QueueLimit(max_messages=3, when_full="error")
    async with publisher_of(emulator, max_in_flight=1, queue=limit) as publisher:
        await publisher.publish(TOPIC, b"0")
        waiting = [asyncio.ensure_future(publisher.publish(TOPIC, b"%d" % n)) for n in range(1, 4)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="max_messages 3 is reached") as caught:
            publisher.publish(TOPIC, b"4")

        assert (caught.value.field, caught.value.limit) == ("max_messages", 3)
        await waiting[0]
        publisher.publish(TOPIC, b"4")
    assert stored(emulator) == [b"%d" % n for n in range(5)]


@virtual
async def test_who_awaits_is_held_back_by_a_full_queue(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=100)
    limit = QueueLimit(max_messages=3)
    async with publisher_of(emulator, max_in_flight=1, queue=limit) as publisher:

        async def publish(number: int) -> None:
            await publisher.publish(TOPIC, b"%d" % number)

        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(publish(number))
        assert now() == 19
    assert stored(emulator) == [b"%d" % n for n in range(20)]


@virtual
async def test_what_nobody_awaits_is_bounded(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=100)
    async with publisher_of(
        emulator, max_in_flight=1, queue=QueueLimit(max_messages=3)
    ) as publisher:
        for number in range(3):
            publisher.publish(TOPIC, b"%d" % number)
        with pytest.raises(QueueFullError, match=r"await what publish\(\) returns"):
            publisher.publish(TOPIC, b"3")


@virtual
async def test_bytes_count_too(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=100)
    async with publisher_of(emulator, queue=QueueLimit(max_bytes=1_000)) as publisher:
        publisher.publish(TOPIC, bytes(600))
        publisher.publish(TOPIC, bytes(600))
        with pytest.raises(QueueFullError, match="max_bytes 1,000 is reached"):
            publisher.publish(TOPIC, b"x")
        with pytest.raises(ConfigError, match="when_full must be 'block' or 'error'"):
            QueueLimit(when_full="drop")  # type: ignore[arg-type]


@virtual
async def test_the_limit_holds_for_all_topics_together(emulator: MemoryEmulator) -> None:
    topics = [emulator.create_topic(f"topic-{number}") for number in range(20)]
    emulator.faults.delay("Publish", 1, times=100)
    limit = QueueLimit(max_messages=150, when_full="error")
    async with publisher_of(emulator, max_in_flight=1, queue=limit) as publisher:
        for number in range(150):
            publisher.publish(topics[number % 20], b"x")
        with pytest.raises(QueueFullError):
            publisher.publish(topics[0], b"x")
        await publisher.stop()


@virtual
async def test_the_limit_holds_whoever_publishes_many_meanwhile(emulator: MemoryEmulator) -> None:
    topics = [emulator.create_topic(f"topic-{number}") for number in range(8)]
    emulator.faults.delay("Publish", 1, times=100)
    limit = QueueLimit(max_messages=100, when_full="error")
    async with publisher_of(
        emulator, max_in_flight=1, queue=limit, batching=Batching(max_messages=10)
    ) as publisher:
        await publisher.publish(TOPIC, b"first")
        for topic in topics:
            publisher.publish(topic, b"x")
        many = asyncio.create_task(publisher.publish_many(TOPIC, [b"%d" % n for n in range(60)]))
        await asyncio.sleep(0)

        assert publisher.queued == 50  # half of the queue is left for others
        for number in range(50):
            publisher.publish(topics[number % 8], b"x")
        with pytest.raises(QueueFullError):
            publisher.publish(topics[0], b"x")
        assert publisher.queued == 100
        await publisher.stop()
        with pytest.raises(PublisherStoppedError):
            await many


# Many at once


@virtual
async def test_many_messages_are_published_by_one_call(emulator: MemoryEmulator) -> None:
    async with publisher_of(emulator) as publisher:
        flights = await publisher.publish_many(
            TOPIC,
            [b"a", (b"b", {"own": "1"}), (b"c", {"all": "mine"}), (b"d", {})],
            attributes={"all": "ours"},
            ordering_key="k",
        )
        found = [emulator.message(await flight.ack) for flight in flights]

        assert [message.data for message in found] == [b"a", b"b", b"c", b"d"]
        assert [message.attributes for message in found] == [
            *({"all": "ours"}, {"all": "ours", "own": "1"}, {"all": "mine"}, {"all": "ours"})
        ]
        assert {message.ordering_key for message in found} == {"k"}
        assert await publisher.publish_many(TOPIC, []) == []


@virtual
async def test_of_many_messages_none_is_published_if_one_cannot_be(
    emulator: MemoryEmulator,
) -> None:
    async with publisher_of(emulator) as publisher:
        with pytest.raises(ConfigError, match=r"messages\[1\]: data must be bytes, not str"):
            await publisher.publish_many(TOPIC, [b"a", ("b", {})])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match=r"messages\[0\]: data must be bytes, not int"):
            await publisher.publish_many(TOPIC, [17])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="messages must be a list of them, not bytes"):
            await publisher.publish_many(TOPIC, b"abc")  # type: ignore[arg-type]

    assert stored(emulator) == []


@virtual
async def test_many_messages_wait_for_room(emulator: MemoryEmulator) -> None:
    """However many they are, half of the queue is left for others."""
    emulator.faults.delay("Publish", 1, times=1_000)
    async with publisher_of(
        emulator, max_in_flight=10, queue=QueueLimit(max_messages=100, when_full="error")
    ) as publisher:
        many = asyncio.create_task(publisher.publish_many(TOPIC, [b"%d" % n for n in range(500)]))
        await asyncio.sleep(5.5)
        assert publisher.queued <= 100
        publisher.publish(TOPIC, b"between")
        flights = await many

        assert all(flight.published_at is not None for flight in flights)
    assert len(stored(emulator)) == 501


@virtual
async def test_a_drain_waits_for_those_who_wait_for_room(emulator: MemoryEmulator) -> None:
    """M25: also when nothing waits and nothing is in flight in the very moment of a look."""
    emulator.faults.delay("GetTopic", 4)
    limit = QueueLimit(max_messages=1)
    async with publisher_of(emulator, queue=limit, poll_time=1) as publisher:

        async def impatient() -> None:
            async with asyncio.timeout(1):
                await publisher.publish_many(TOPIC, [b"a", b"b"])

        first = asyncio.create_task(impatient())
        second = asyncio.create_task(publisher.publish_many(TOPIC, [b"c"]))
        await asyncio.sleep(0)
        await publisher.drain()

        with pytest.raises(TimeoutError):
            await first
        (flight,) = await second
        assert flight.message_id
    assert stored(emulator) == [b"c"]


@virtual
async def test_who_is_cancelled_takes_back_what_has_not_departed(
    emulator: MemoryEmulator,
) -> None:
    emulator.faults.delay("Publish", 1, times=1_000)
    async with publisher_of(emulator, max_in_flight=10) as publisher:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await publisher.publish_many(TOPIC, [b"%d" % n for n in range(500)])

        assert publisher.queued == 0
    assert stored(emulator) == [b"%d" % n for n in range(30)]


# What Pub/Sub does not have


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        ({"deliver_at": 5}, "nack(delay=...)"),
        ({"transaction": object()}, "outbox"),
        ({"expectations": {"last_sequence": 5}}, "Deduplicator"),
    ],
)
@virtual
async def test_what_other_systems_have_is_refused_with_what_to_use_instead(
    emulator: MemoryEmulator, arguments: dict[str, object], instead: str
) -> None:
    """R18, R22, M20: delayed and transactional messages, and expectations."""
    async with publisher_of(emulator) as publisher:
        for _ in range(3):
            with pytest.raises(UnsupportedError, match=re.escape(instead)):
                publisher.publish(TOPIC, b"y", **arguments)  # type: ignore[arg-type]
            with pytest.raises(UnsupportedError, match=re.escape(instead)):
                await publisher.publish_many(TOPIC, [b"y"], **arguments)  # type: ignore[arg-type]
            publisher.publish(TOPIC, b"x", **dict.fromkeys(arguments))  # type: ignore[arg-type]
    assert stored(emulator) == [b"x"] * 3


async def _result(ack: asyncio.Future[str]) -> str | BaseException:
    try:
        return await ack
    except PubSubError as error:
        return error

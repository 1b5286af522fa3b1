"""Ordering keys: one batch in flight a key, pausing and resuming."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import (
    Batching,
    ConfigError,
    Flight,
    KeyPausedError,
    NoResponseFromTopicError,
    NotFoundError,
    PublisherClient,
    PublisherListener,
    PublishTimeoutError,
    QueueLimit,
    RetryPolicy,
    UnavailableError,
)
from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import service_error
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, Answering, Listener, Refusing, publisher_of, stored
from tests.subscriber.conftest import Tapped, now, virtual


@virtual
async def test_one_batch_of_a_key_is_in_flight_at_a_time(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=100)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, batching=Batching(max_messages=2)) as publisher:
        for number in range(5):
            publisher.publish(TOPIC, b"a%d" % number, ordering_key="a")
        publisher.publish(TOPIC, b"b0", ordering_key="b")
        await asyncio.sleep(0.5)

        assert (publisher.in_flight, publisher.queued) == (3, 3)
    assert tap.times("Publish") == [0, 0, 1, 2]
    assert [data for data in stored(emulator) if data[:1] == b"a"] == [
        b"a%d" % number for number in range(5)
    ]


@virtual
async def test_options_of_a_message_do_not_let_it_overtake(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("Publish", 1, times=100)
    async with publisher_of(emulator) as publisher:
        for number in range(6):
            timeout = 30 if number % 2 else 40
            publisher.publish(TOPIC, b"%d" % number, ordering_key="k", timeout=timeout)

    assert stored(emulator) == [b"%d" % number for number in range(6)]


@virtual
async def test_a_failure_pauses_its_key(emulator: MemoryEmulator) -> None:
    """What waits behind it fails, what is published after it is refused, until it is resumed."""
    emulator.faults.fail("Publish", "UNAVAILABLE")
    listener = Listener()
    async with publisher_of(
        emulator, batching=Batching(max_messages=1), listener=listener
    ) as publisher:
        failed, behind = (publisher.publish(TOPIC, data, ordering_key="k") for data in (b"1", b"2"))
        other = publisher.publish(TOPIC, b"other", ordering_key="l")
        waiting = asyncio.ensure_future(behind)
        with pytest.raises(NoResponseFromTopicError):
            await failed.ack
        with pytest.raises(KeyPausedError, match="ordering key 'k' is paused") as caught:
            await behind.ack
        with pytest.raises(KeyPausedError):
            await waiting
        assert isinstance(caught.value.__cause__, NoResponseFromTopicError)
        assert (caught.value.topic, caught.value.ordering_key) == (failed.topic, "k")
        with pytest.raises(KeyPausedError) as raised:
            publisher.publish(TOPIC, b"3", ordering_key="k")
        assert isinstance(raised.value.__cause__, NoResponseFromTopicError)
        with pytest.raises(KeyPausedError):
            await publisher.publish_many(TOPIC, [b"3"], ordering_key="k")
        await other.ack
        assert publisher.paused_keys() == [(failed.topic, "k")]

        publisher.resume(TOPIC, "k")
        assert publisher.paused_keys() == []
        for data in (b"1", b"2"):
            await publisher.publish(TOPIC, data, ordering_key="k").ack
    assert [data for data in stored(emulator) if data != b"other"] == [b"1", b"2"]
    assert listener.events(b"2")[0] == "completed_exceptionally"


@virtual
async def test_all_keys_may_be_resumed_at_once(emulator: MemoryEmulator) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", times=3)
    async with publisher_of(emulator, listener=Listener()) as publisher:
        flights = [publisher.publish(TOPIC, b"x", ordering_key=key) for key in "abc"]
        await asyncio.gather(*(flight.ack for flight in flights), return_exceptions=True)
        assert len(publisher.paused_keys()) == 3

        publisher.resume_all()
        assert publisher.paused_keys() == []
        for key in "abc":
            await publisher.publish(TOPIC, b"x", ordering_key=key).ack


@virtual
async def test_a_key_may_go_on_by_itself_after_a_while(emulator: MemoryEmulator) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE")
    async with publisher_of(emulator, resume_after=30, listener=Listener()) as publisher:
        publisher.publish(TOPIC, b"x", ordering_key="k")
        await asyncio.sleep(29.9)
        with pytest.raises(KeyPausedError):
            publisher.publish(TOPIC, b"y", ordering_key="k")
        await asyncio.sleep(0.2)
        await publisher.publish(TOPIC, b"y", ordering_key="k").ack


@virtual
async def test_a_key_that_failed_again_waits_for_its_own_time(emulator: MemoryEmulator) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", times=2)
    async with publisher_of(emulator, resume_after=30, listener=Listener()) as publisher:
        publisher.publish(TOPIC, b"x", ordering_key="k")
        await asyncio.sleep(20)
        publisher.resume(TOPIC, "k")
        publisher.publish(TOPIC, b"x", ordering_key="k")
        await asyncio.sleep(20)
        assert publisher.paused_keys()
        await asyncio.sleep(11)
        assert not publisher.paused_keys()


@virtual
async def test_after_a_timeout_a_key_waits_until_the_request_has_ended(
    emulator: MemoryEmulator,
) -> None:
    """What may still arrive is not overtaken, resumed or not."""
    emulator.faults.delay("Publish", 8)
    async with publisher_of(emulator) as publisher:
        late = publisher.publish(TOPIC, b"late", ordering_key="k")
        with pytest.raises(PublishTimeoutError):
            await late.ack
        assert now() == 5
        publisher.resume(TOPIC, "k")
        after = publisher.publish(TOPIC, b"after", ordering_key="k")
        await after.ack

        assert now() == 8
    assert stored(emulator) == [b"late", b"after"]


@virtual
async def test_the_end_does_not_wait_for_a_request_that_has_timed_out(
    emulator: MemoryEmulator,
) -> None:
    emulator.faults.delay("Publish", 1_000)
    async with publisher_of(emulator, listener=Listener()) as publisher:
        publisher.publish(TOPIC, b"late", ordering_key="k")

    assert now() == 5


@virtual
async def test_a_key_of_a_topic_that_is_not_there_is_paused_too(emulator: MemoryEmulator) -> None:
    async with publisher_of(emulator) as publisher:
        flights = [publisher.publish("nowhere", b"x", ordering_key="k") for _ in range(2)]
        for flight in flights:
            with pytest.raises(NotFoundError):
                await flight.ack
        emulator.create_topic("nowhere")
        with pytest.raises(KeyPausedError):
            publisher.publish("nowhere", b"y", ordering_key="k")
        publisher.resume("nowhere", "k")
        await publisher.publish("nowhere", b"y", ordering_key="k").ack
    assert stored(emulator, "nowhere") == [b"y"]


@virtual
async def test_many_messages_of_a_key_stop_at_the_first_that_fails(
    emulator: MemoryEmulator,
) -> None:
    emulator.faults.delay("Publish", 1)
    emulator.faults.fail("Publish", "UNAVAILABLE")
    async with publisher_of(
        emulator, max_in_flight=10, batching=Batching(max_messages=10)
    ) as publisher:
        flights = await publisher.publish_many(
            TOPIC, [b"%d" % number for number in range(20_000)], ordering_key="k"
        )
        outcomes = await asyncio.gather(*(one.ack for one in flights), return_exceptions=True)

    assert [type(outcome).__name__ for outcome in outcomes[:20]] == (
        ["str"] * 10 + ["NoResponseFromTopicError"] * 10
    )
    assert {type(outcome).__name__ for outcome in outcomes[20:]} == {"KeyPausedError"}
    assert stored(emulator) == [b"%d" % number for number in range(10)]


@virtual
async def test_ordering_may_be_off(emulator: MemoryEmulator) -> None:
    """R11: a key where there is no ordering is a mistake."""
    async with publisher_of(emulator, enable_message_ordering=False) as publisher:
        with pytest.raises(ConfigError, match="ordering_key: this publisher has enable_message"):
            publisher.publish(TOPIC, b"x", ordering_key="k")
        await publisher.publish(TOPIC, b"x").ack


@virtual
async def test_keys_that_have_nothing_to_do_are_forgotten(emulator: MemoryEmulator) -> None:
    async with publisher_of(emulator) as publisher:
        for number in range(1_000):
            await publisher.publish(TOPIC, b"x", ordering_key=f"k{number}").ack

        assert len(publisher._departures) == 0


@virtual
async def test_nothing_overtakes_a_part_of_a_batch_that_was_refused(
    emulator: MemoryEmulator,
) -> None:
    """P13: a batch that is sent in two halves is one batch of its key all the same."""
    emulator.faults.fail("Publish", "INVALID_ARGUMENT")
    emulator.faults.delay("Publish", 0)
    emulator.faults.delay("Publish", 1)  # for the second half
    async with publisher_of(emulator, batching=Batching(max_messages=4)) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % n, ordering_key="k") for n in range(8)]
        for flight in flights:
            await flight.ack

    assert stored(emulator) == [b"%d" % n for n in range(8)]


@virtual
async def test_a_part_of_a_batch_that_has_timed_out_meanwhile_is_not_sent(
    emulator: MemoryEmulator,
) -> None:
    """M28: a batch that was refused is sent in halves, and time is up during the first."""
    emulator.faults.fail("Publish", "INVALID_ARGUMENT")
    emulator.faults.delay("Publish", 8)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % n, ordering_key="k") for n in range(4)]
        for flight in flights:
            with pytest.raises(PublishTimeoutError):
                await flight.ack
        await asyncio.sleep(60)

    assert tap.times("Publish") == [0, 0]
    assert stored(emulator) == [b"0", b"1"]


@virtual
async def test_who_is_told_of_a_failure_may_resume_the_key(emulator: MemoryEmulator) -> None:
    """It is paused already when the listener hears of it."""

    class Resuming(PublisherListener):
        def completed_exceptionally(self, flight: Flight) -> None:
            publisher.resume(flight.topic, flight.ordering_key)

    emulator.faults.fail("Publish", "UNAVAILABLE")
    async with publisher_of(emulator, listener=Resuming()) as publisher:
        with pytest.raises(NoResponseFromTopicError):
            await publisher.publish(TOPIC, b"1", ordering_key="k").ack
        assert publisher.paused_keys() == []
        await publisher.publish(TOPIC, b"2", ordering_key="k").ack


@virtual
async def test_after_a_timeout_a_key_waits_no_longer_than_as_long_again(
    emulator: MemoryEmulator,
) -> None:
    """Whatever the policy allows for an attempt."""
    emulator.faults.delay("Publish", 1_000)
    async with publisher_of(emulator, retry=RetryPolicy.google()) as publisher:
        with pytest.raises(PublishTimeoutError):
            await publisher.publish(TOPIC, b"1", ordering_key="k", timeout=3).ack
        publisher.resume(TOPIC, "k")
        await publisher.publish(TOPIC, b"2", ordering_key="k").ack
        assert now() == 6


@virtual
async def test_a_key_waits_no_longer_for_an_attempt_that_began_late(
    emulator: MemoryEmulator,
) -> None:
    transport = Answering(emulator.transport(), (4, "UNAVAILABLE"), (1_000, None))
    async with publisher_of(emulator, transport, retry=RetryPolicy()) as publisher:
        with pytest.raises(PublishTimeoutError) as late:
            await publisher.publish(TOPIC, b"1", ordering_key="k").ack
        assert isinstance(late.value.__cause__, UnavailableError)
        publisher.resume(TOPIC, "k")
        await publisher.publish(TOPIC, b"2", ordering_key="k").ack
        assert now() == 10


class Again(PublisherListener):
    """Resumes a key that failed, and publishes again what was not to blame."""

    def __init__(self) -> None:
        self.publisher: PublisherClient | None = None

    def completed_exceptionally(self, flight: Flight) -> None:
        if self.publisher is not None and not flight.data.startswith(b"bad"):
            self.publisher.resume(flight.topic, flight.ordering_key)
            self.publisher.publish(flight.topic, flight.data, ordering_key=flight.ordering_key)

    timed_out = completed_exceptionally


@virtual
async def test_who_publishes_again_what_failed_keeps_the_order(emulator: MemoryEmulator) -> None:
    """All that failed with a message has failed before the listener hears of the first."""
    listener = Again()
    async with publisher_of(emulator, Refusing(emulator), listener=listener) as publisher:
        listener.publisher = publisher
        for data in (b"bad", b"1", b"2", b"3", b"4"):
            publisher.publish(TOPIC, data, ordering_key="k")
        await asyncio.sleep(1)

        assert stored(emulator) == [b"1", b"2", b"3", b"4"]
        assert publisher.paused_keys() == []


@virtual
async def test_who_publishes_again_what_timed_out_keeps_the_order(
    emulator: MemoryEmulator,
) -> None:
    """Though it was sent in parts."""
    listener = Again()
    transport = Answering(emulator.transport(), (0, "INVALID_ARGUMENT"), (1_000, None))
    async with publisher_of(emulator, transport, listener=listener) as publisher:
        listener.publisher = publisher
        for number in range(4):
            publisher.publish(TOPIC, b"%d" % number, ordering_key="k")
        await asyncio.sleep(20)

        assert stored(emulator) == [b"%d" % number for number in range(4)]


@virtual
async def test_keys_that_are_resumed_while_a_topic_is_refused_are_not_counted_as_paused(
    emulator: MemoryEmulator,
) -> None:
    class Resuming(PublisherListener):
        def completed_exceptionally(self, flight: Flight) -> None:
            publisher.resume(flight.topic, flight.ordering_key)

    batching = Batching(max_messages=1)
    async with publisher_of(emulator, batching=batching, listener=Resuming()) as publisher:
        for _ in range(3):
            for data in (b"1", b"2"):
                publisher.publish("missing", data, ordering_key="k")
            await asyncio.sleep(1)

        assert publisher.paused_keys() == []
        assert publisher._departures._paused == 0


@virtual
async def test_a_key_that_fails_again_and_again_is_to_be_resumed_once(
    emulator: MemoryEmulator,
) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", times=100)
    async with publisher_of(emulator, resume_after=3_600) as publisher:
        for _ in range(100):
            with pytest.raises(NoResponseFromTopicError):
                await publisher.publish(TOPIC, b"x", ordering_key="k").ack
            publisher.resume(TOPIC, "k")

        assert len(publisher._runners._fates._resumes) == 1


@virtual
async def test_what_is_refused_when_its_time_is_over_fails_in_order(
    emulator: MemoryEmulator,
) -> None:
    """A batch that is halved in that very moment is not torn apart by it."""

    class Late(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            first = not self.times("Publish")
            halved = len(schema.PublishRequest.FromString(request).messages) == 2
            reply = await super().call(rpc, request, timeout=timeout)
            if rpc == "Publish" and halved:
                await asyncio.sleep(100)
            if rpc == "Publish" and first:
                await asyncio.sleep(5)
                for _ in range(3):
                    await asyncio.sleep(0)
                raise service_error("INVALID_ARGUMENT", "it is too late to say so")
            return reply

    listener = Again()
    async with publisher_of(emulator, Late(emulator.transport()), listener=listener) as publisher:
        listener.publisher = publisher
        for number in range(4):
            publisher.publish(TOPIC, b"%d" % number, ordering_key="k", timeout=5)
        await asyncio.sleep(20)

        # The first answer was a lie, so that all are there twice.
        assert stored(emulator) == [b"%d" % number for number in range(4)] * 2


@virtual
async def test_many_of_a_key_do_not_go_on_behind_one_of_them_that_failed(
    emulator: MemoryEmulator,
) -> None:
    """Though the key was resumed while the rest waited for room."""
    transport = Answering(emulator.transport(), (1, None), (1, "INTERNAL"))
    async with publisher_of(
        emulator,
        transport,
        queue=QueueLimit(max_messages=4),
        batching=Batching(max_messages=1),
        max_in_flight=1,
        resume_after=0,
    ) as publisher:
        data = [b"%d" % number for number in range(12)]
        flights = await publisher.publish_many(TOPIC, data, ordering_key="k")

        assert [flight.data for flight in flights if flight.error is None] == [b"0"]
        assert isinstance(flights[-1].error, KeyPausedError)
        assert flights[-1].error.__traceback__ is None  # it would keep all of them alive
    assert stored(emulator) == [b"0"]

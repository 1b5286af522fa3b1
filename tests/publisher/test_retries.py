"""Publish retries as the seed has them, in virtual time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from pubsub_aio import (
    Batching,
    ConfigError,
    NoResponseFromTopicError,
    PermissionDeniedError,
    PublishTimeoutError,
    RetryPolicy,
    ServiceError,
    Setting,
    UnavailableError,
)
from pubsub_aio._wire.transport import service_error
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, Answering, Listener, Refusing, publisher_of, stored
from tests.subscriber.conftest import Tapped, now, virtual


@virtual
async def test_without_a_policy_a_message_is_sent_once(emulator: MemoryEmulator) -> None:
    """M5: no retry unless asked for."""
    emulator.faults.fail("Publish", "UNAVAILABLE")
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        with pytest.raises(NoResponseFromTopicError, match="1 attempt:") as caught:
            await flight.ack

    assert isinstance(caught.value, UnavailableError)
    assert isinstance(caught.value.__cause__, UnavailableError)
    assert tap.times("Publish") == [0]


@virtual
async def test_a_message_is_sent_again_when_nobody_was_there(emulator: MemoryEmulator) -> None:
    """P1, P2, P3: UNAVAILABLE is retried after 0.25 seconds, twice, so 3 sends in all."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=2)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, retry=RetryPolicy()) as publisher:
        flight = await publisher.publish(TOPIC, b"x")
        assert emulator.message(await flight.ack).data == b"x"

        assert flight.attempts == 3
    assert tap.times("Publish") == [0, 0.25, 0.5]
    assert stored(emulator) == [b"x"]


@virtual
async def test_a_refused_connection_is_retried_too(emulator: MemoryEmulator) -> None:
    """P1: nobody is there either when no connection can be made."""
    async with publisher_of(emulator, retry=RetryPolicy()) as publisher:
        await publisher.publish(TOPIC, b"first").ack
        refusing = emulator.faults.refuse_connections()
        emulator.faults.cut_connections()
        flight = await publisher.publish(TOPIC, b"x")
        await asyncio.sleep(0.3)
        refusing.resume()
        await flight.ack

        assert (flight.attempts, now()) == (3, 0.5)


@virtual
async def test_when_all_attempts_found_nobody_there_the_error_says_so(
    emulator: MemoryEmulator,
) -> None:
    """P10: no response from the topic; the cause is the last failure."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=3, message="election")
    listener = Listener()
    async with publisher_of(emulator, retry=RetryPolicy(), listener=listener) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        with pytest.raises(NoResponseFromTopicError, match="3 attempts: election") as caught:
            await flight.ack

    assert (caught.value.topic, caught.value.attempts) == (flight.topic, 3)
    assert (caught.value.code, now()) == ("UNAVAILABLE", 0.5)
    assert listener.events() == ["published", "completed_exceptionally"]


@virtual
async def test_once_it_succeeded_it_is_not_sent_again(emulator: MemoryEmulator) -> None:
    """P3: the errata's case: the loop ends with the first success."""
    emulator.faults.fail("Publish", "UNAVAILABLE")
    async with publisher_of(emulator, retry=RetryPolicy(retries=10)) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        await asyncio.sleep(60)

    assert stored(emulator) == [b"x"]


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED"])
@virtual
async def test_other_refusals_surface_at_once(emulator: MemoryEmulator, code: str) -> None:
    """P4, R14: only UNAVAILABLE is retried, unless others are named."""
    emulator.faults.fail("Publish", code)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, retry=RetryPolicy()) as publisher:
        with pytest.raises(ServiceError, match=code):
            await publisher.publish(TOPIC, b"x").ack
        emulator.faults.fail("Publish", code)
        named = RetryPolicy(codes=frozenset({code}))
        await publisher.publish(TOPIC, b"y", retry=named).ack

    assert tap.times("Publish") == [0, 0, 0.25]


@virtual
async def test_an_attempt_that_took_too_long_is_retried_only_if_named(
    emulator: MemoryEmulator,
) -> None:
    """P4, P11: after DEADLINE_EXCEEDED the message may be there, and twice after another."""
    emulator.faults.delay("Publish", 3)
    emulator.faults.fail("Publish", "DEADLINE_EXCEEDED", applied=True)
    limited = RetryPolicy(attempt_timeout=1)
    named = RetryPolicy(codes=frozenset({"DEADLINE_EXCEEDED"}))
    async with publisher_of(emulator, retry=limited, send_flight_id=True) as publisher:
        with pytest.raises(UnavailableError, match="DEADLINE_EXCEEDED"):
            await publisher.publish(TOPIC, b"x").ack
        assert now() == 1
        flight = publisher.publish(TOPIC, b"y", retry=named)
        await flight.ack
        await asyncio.sleep(3)

    twice = [message for message in emulator.messages(TOPIC) if message.data == b"y"]
    assert [message.attributes["pubsub_aio_flight_id"] for message in twice] == [flight.id] * 2


@virtual
async def test_a_message_may_have_a_policy_of_its_own(emulator: MemoryEmulator) -> None:
    """P5: options of a publish count more than the publisher's."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=4)
    async with publisher_of(emulator, retry=RetryPolicy()) as publisher:
        eager = publisher.publish(TOPIC, b"x", retry=RetryPolicy(retries=10, wait=0.1))
        await eager.ack
        assert (eager.attempts, round(now(), 3)) == (5, 0.4)
        emulator.faults.fail("Publish", "UNAVAILABLE")
        never = publisher.publish(TOPIC, b"x", retry=None)
        with pytest.raises(NoResponseFromTopicError):
            await never.ack


@virtual
async def test_it_may_be_retried_until_a_deadline(emulator: MemoryEmulator) -> None:
    """P6, P7, P8, P9: retries=-1 goes on for as long as the timeout allows, waits and all."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=1_000)
    listener = Listener()
    forever = RetryPolicy(retries=-1)
    async with publisher_of(emulator, retry=forever, listener=listener) as publisher:
        flight = publisher.publish(TOPIC, b"x", timeout=10)
        with pytest.raises(PublishTimeoutError, match="not published within 10 s, 40 attempts"):
            await flight.ack

        # At 9.75 seconds the next wait would end at the deadline, so that it was not begun.
        assert (now(), flight.attempts) == (9.75, 40)
        own = publisher.publish(TOPIC, b"y")
        with pytest.raises(PublishTimeoutError, match="within 5 s"):
            await own.ack
    assert listener.events() == ["published", "timed_out", "published", "timed_out"]


@virtual
async def test_retrying_until_a_deadline_needs_one(emulator: MemoryEmulator) -> None:
    """P6: refused without a deadline, wherever it might come from."""
    forever = RetryPolicy(retries=-1)
    async with publisher_of(emulator, wait_timeout=None) as publisher:
        with pytest.raises(ConfigError, match="retries=-1 goes on until a deadline"):
            publisher.publish(TOPIC, b"x", retry=forever)
        with pytest.raises(ConfigError, match="retries=-1 goes on until a deadline"):
            publisher.publish(TOPIC, b"x", retry=forever, timeout=None)
        publisher.publish(TOPIC, b"x", retry=forever, timeout=10)
        publisher.publish(TOPIC, b"x", retry=RetryPolicy(retries=-1, deadline=10))
    assert len(stored(emulator)) == 2


@virtual
@pytest.mark.parametrize(
    ("told", "seconds", "source"),
    [
        ({}, 600, "retry"),
        ({"wait_timeout": None}, 600, "retry"),
        ({"wait_timeout": 30}, 30, "argument"),
        ({"wait_timeout": 900}, 600, "retry"),
    ],
)
async def test_the_shorter_of_wait_timeout_and_the_policys_deadline_counts(
    emulator: MemoryEmulator, told: dict[str, Any], seconds: float, source: str
) -> None:
    """P8: and the settings say which it is."""
    async with publisher_of(emulator, retry=RetryPolicy.google(), **told) as publisher:
        flight = await publisher.publish(TOPIC, b"x")
        assert flight.options.timeout == seconds
        assert publisher.settings["wait_timeout"] == Setting(seconds, source)
        own = await publisher.publish(TOPIC, b"x", retry=RetryPolicy(deadline=700))
        assert own.options.timeout == 700


@virtual
async def test_the_deadline_of_a_policy_ends_what_has_no_other(emulator: MemoryEmulator) -> None:
    """P6: timeout=None takes nothing from the policy's own deadline."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=100_000)
    async with publisher_of(emulator) as publisher:
        forever = RetryPolicy(retries=-1, deadline=30)
        flight = publisher.publish(TOPIC, b"x", retry=forever, timeout=None)
        with pytest.raises(PublishTimeoutError):
            await flight.ack
        assert (flight.options.timeout, now()) == (30, 29.75)


@virtual
async def test_where_not_enough_time_is_left_it_does_not_wait(emulator: MemoryEmulator) -> None:
    """P12: a wait that ends after the deadline is not begun."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=10)
    async with publisher_of(emulator, retry=RetryPolicy(wait=2)) as publisher:
        flight = publisher.publish(TOPIC, b"x", timeout=3)
        with pytest.raises(PublishTimeoutError):
            await flight.ack

        assert (now(), flight.attempts) == (2, 2)


@virtual
async def test_the_timeout_covers_attempts_and_waits(emulator: MemoryEmulator) -> None:
    """P7: a flight ends at its timeout, whatever it is doing."""
    emulator.faults.fail("Publish", "UNAVAILABLE")
    emulator.faults.delay("Publish", 60)
    async with publisher_of(emulator, retry=RetryPolicy(wait=1)) as publisher:
        flight = publisher.publish(TOPIC, b"x", timeout=3)
        with pytest.raises(PublishTimeoutError):
            await flight.ack

        assert (now(), flight.attempts) == (3, 2)
        await asyncio.sleep(120)
        assert flight.attempts == 2


@virtual
async def test_a_retry_never_overtakes_an_earlier_message_of_its_key(
    emulator: MemoryEmulator,
) -> None:
    """P13: while a batch of a key is tried again, nothing of that key is sent."""
    emulator.faults.fail("Publish", "UNAVAILABLE")
    async with publisher_of(emulator, retry=RetryPolicy()) as publisher:
        first = await publisher.publish(TOPIC, b"1", ordering_key="k")
        others = [publisher.publish(TOPIC, b"%d" % n, ordering_key="k") for n in range(2, 5)]
        free = publisher.publish(TOPIC, b"free")
        await free.ack
        for flight in (first, *others):
            await flight.ack

    assert stored(emulator) == [b"free", b"1", b"2", b"3", b"4"]


@virtual
async def test_the_service_says_how_long_to_wait(emulator: MemoryEmulator) -> None:
    """R20, R21: at flow control the service's own delay is obeyed, named or not."""
    emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED", retry_delay=3)
    emulator.faults.fail("Publish", "UNAVAILABLE", retry_delay=0.5)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, retry=RetryPolicy()) as publisher:
        await publisher.publish(TOPIC, b"x").ack
        emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED")
        named = RetryPolicy(wait=1, codes=frozenset({"RESOURCE_EXHAUSTED"}))
        await publisher.publish(TOPIC, b"y", retry=named).ack

    assert tap.times("Publish") == [0, 3, 3.5, 3.5, 4.5]


@virtual
async def test_the_attempts_are_counted_with_the_first(emulator: MemoryEmulator) -> None:
    """R13: after so many attempts the publish fails."""
    emulator.faults.fail("Publish", "UNAVAILABLE", times=9)
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap) as publisher:
        for retries in (0, 1, 3):
            with pytest.raises(NoResponseFromTopicError) as caught:
                await publisher.publish(TOPIC, b"x", retry=RetryPolicy(retries=retries)).ack
            assert caught.value.attempts == retries + 1
    assert len(tap.times("Publish")) == 7


@virtual
async def test_a_message_that_is_refused_fails_alone(emulator: MemoryEmulator) -> None:
    """R11: of a batch that the service refuses, what it does not refuse is published."""
    emulator.create_topic(TOPIC)
    transport = Refusing(emulator)
    async with publisher_of(emulator, transport) as publisher:
        flights = [
            publisher.publish(TOPIC, data)
            for data in (b"0", b"1", b"bad 2", b"3", b"4", b"bad 5", b"6")
        ]
        outcomes = await asyncio.gather(*(flight.ack for flight in flights), return_exceptions=True)

    refused = [
        flight.data
        for flight, outcome in zip(flights, outcomes, strict=True)
        if isinstance(outcome, Exception)
    ]
    assert refused == [b"bad 2", b"bad 5"]
    assert sorted(stored(emulator)) == [b"0", b"1", b"3", b"4", b"6"]


@virtual
async def test_what_is_refused_at_once_was_published_before_it_is_acked(
    emulator: MemoryEmulator,
) -> None:
    """M26: though the batch was parted before anybody could be told that it departs."""

    class AtOnce(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "Publish" and b"bad" in request:
                raise service_error("INVALID_ARGUMENT", "a message does not fit the schema")
            return await super().call(rpc, request, timeout=timeout)

    listener = Listener()
    async with publisher_of(emulator, AtOnce(emulator.transport()), listener=listener) as publisher:
        for data in (b"1", b"bad", b"2", b"3"):
            publisher.publish(TOPIC, data)

    assert [listener.events(data) for data in (b"1", b"2", b"3")] == [["published", "acked"]] * 3
    assert listener.events(b"bad") == ["published", "completed_exceptionally"]


@virtual
async def test_what_was_refused_with_others_and_then_published_has_departed(
    emulator: MemoryEmulator,
) -> None:
    """M26: whoever waits for it, or stops to, finds it on its way; and a drain ends."""
    async with publisher_of(emulator, Refusing(emulator)) as publisher:
        good, bad = publisher.publish(TOPIC, b"good"), publisher.publish(TOPIC, b"bad")
        await good.ack
        with pytest.raises(ServiceError):
            await bad.ack
        async with asyncio.timeout(1):
            assert await good is good
        many = await publisher.publish_many(TOPIC, [b"a", b"bad", b"c"])
        outcomes = await asyncio.gather(*(one.ack for one in many), return_exceptions=True)
        assert [isinstance(outcome, str) for outcome in outcomes] == [True, False, True]
        await publisher.drain(timeout=1)


@virtual
async def test_nothing_of_a_key_overtakes_a_message_that_is_refused(
    emulator: MemoryEmulator,
) -> None:
    """P13: what comes after it in its batch is not sent, and fails."""
    transport = Refusing(emulator)
    async with publisher_of(emulator, transport, batching=Batching(max_messages=4)) as publisher:
        flights = [
            publisher.publish(TOPIC, data, ordering_key="k")
            for data in (b"0", b"1", b"bad", b"3", b"4", b"5", b"6")
        ]
        outcomes = await asyncio.gather(*(flight.ack for flight in flights), return_exceptions=True)

        assert [key for _, key in publisher.paused_keys()] == ["k"]
    assert [type(outcome).__name__ for outcome in outcomes] == [
        *("str", "str", "InvalidRequestError", *["KeyPausedError"] * 4)
    ]
    assert stored(emulator) == [b"0", b"1"]


@virtual
async def test_the_search_for_refused_messages_is_bounded(emulator: MemoryEmulator) -> None:
    """A program that publishes nothing but nonsense does not flood the service."""
    transport = Refusing(emulator)
    async with publisher_of(emulator, transport, max_in_flight=200) as publisher:
        flights = [publisher.publish(TOPIC, b"bad %d" % number) for number in range(100)]
        outcomes = await asyncio.gather(*(flight.ack for flight in flights), return_exceptions=True)

    assert {type(outcome).__name__ for outcome in outcomes} == {"InvalidRequestError"}
    assert transport.requests < 60


@virtual
async def test_an_answer_that_has_come_while_the_loop_was_blocked_is_in_time(
    emulator: MemoryEmulator,
) -> None:
    """It is heard of some turns of the loop after the time is over."""

    class Lagging(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            answer = await super().call(rpc, request, timeout=timeout)
            if rpc == "Publish":
                await asyncio.sleep(5)
                for _ in range(3):
                    await asyncio.sleep(0)
            return answer

    async with publisher_of(emulator, Lagging(emulator.transport())) as publisher:
        flight = publisher.publish(TOPIC, b"x", timeout=5)
        assert emulator.message(await flight.ack).data == b"x"


@virtual
async def test_a_timeout_tells_what_was_answered_last(emulator: MemoryEmulator) -> None:
    transport = Answering(emulator.transport(), (4, "UNAVAILABLE"), (1_000, None))
    async with publisher_of(emulator, transport, retry=RetryPolicy()) as publisher:
        with pytest.raises(PublishTimeoutError, match="2 attempts") as late:
            await publisher.publish(TOPIC, b"x").ack
        assert isinstance(late.value.__cause__, UnavailableError)


# The policy itself


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"retries": -2}, "retries must be at least -1"),
        ({"retries": 1.5}, "retries must be a whole number"),
        ({"wait": -1}, "wait must be at least 0"),
        ({"wait": ()}, "wait must be a number of seconds, or a tuple of numbers"),
        ({"multiplier": 0.5}, "multiplier must be at least 1"),
        ({"attempt_timeout": 0}, "attempt_timeout must be more than 0"),
        ({"deadline": 0}, "deadline must be more than 0"),
        ({"codes": {"TIMEOUT"}}, "codes must be a set of ABORTED, ALREADY_EXISTS"),
        ({"codes": "UNAVAILABLE"}, "codes must be a set of"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        RetryPolicy(**settings)  # type: ignore[arg-type]


def test_the_defaults_of_a_policy_are_those_of_the_seed() -> None:
    """P2, P3, P4: 0.25 seconds, two retries, for UNAVAILABLE only, without jitter."""
    policy = RetryPolicy()

    assert (policy.wait, policy.retries, policy.jitter) == (0.25, 2, False)
    assert policy.codes == {"UNAVAILABLE"}
    assert (policy.deadline, policy.attempt_timeout) == (None, None)


def test_googles_preset_is_what_googles_client_does() -> None:
    """M5: its own retry settings, read from the client itself."""
    import grpc
    from google.api_core import exceptions
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with grpc.insecure_channel("localhost:1") as channel:
        transport = PublisherGrpcTransport(channel=channel)
        publish: Any = transport._wrapped_methods[transport.publish]
        retry = publish._retry

    policy = RetryPolicy.google()
    assert (policy.wait, policy.multiplier, policy.max_wait) == (
        *(retry._initial, retry._multiplier, retry._maximum),
    )
    assert (policy.deadline, policy.retries) == (retry._deadline, -1)
    from_status: Any = exceptions.from_grpc_status
    retried = {
        code.name
        for code in grpc.StatusCode
        if code is not grpc.StatusCode.OK and retry._predicate(from_status(code, "x"))
    }
    assert policy.codes == retried


def test_the_preset_of_nats_is_its_backoff() -> None:
    """P2 and the reference: 250, 250, 500, 500, 3000 and 5000 ms, two retries."""
    policy = RetryPolicy.nats()

    assert policy.wait == (0.25, 0.25, 0.5, 0.5, 3.0, 5.0)
    assert (policy.retries, policy.deadline) == (2, None)


@virtual
async def test_waits_may_grow(emulator: MemoryEmulator) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", times=5)
    tap = Tapped(emulator.transport())
    growing = RetryPolicy(retries=5, wait=(1, 2), multiplier=3, max_wait=10)
    async with publisher_of(emulator, tap, wait_timeout=60) as publisher:
        await publisher.publish(TOPIC, b"x", retry=growing).ack

    assert tap.times("Publish") == [0, 1, 3, 9, 19, 29]


@virtual
async def test_a_publish_that_is_not_allowed_surfaces_at_once(emulator: MemoryEmulator) -> None:
    """R3: what no retry can change is not retried."""
    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    async with publisher_of(emulator, retry=RetryPolicy()) as publisher:
        with pytest.raises(PermissionDeniedError):
            await publisher.publish(TOPIC, b"x").ack
        assert now() == 0

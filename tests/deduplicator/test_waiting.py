"""While one message is being handled, others with its id wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pubsub_aio import (
    Deduplicator,
    FlowControl,
    Message,
    SettleError,
    ShutdownPolicy,
)
from pubsub_aio.testing import MemoryEmulator
from tests.deduplicator.conftest import attempts, counts, forget, hang, send, slowly
from tests.subscriber.conftest import (
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    client_of,
    now,
    virtual,
)

# While one is being handled


@virtual
async def test_a_repeat_waits_for_the_outcome_and_is_acked_then(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = [send(emulator, "a") for _ in range(3)]
    calls, dedupe = Calls(slowly), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(4)
        assert (emulator.backlog(WORKER), counts(dedupe)) == (3, (0, 0, 0))
        await asyncio.sleep(2)
        assert (emulator.backlog(WORKER), counts(dedupe)) == (0, (1, 2, 0))

    assert calls.data == [b"a"]
    assert attempts(emulator, *ids) == [1, 1, 1]


@virtual
async def test_a_repeat_is_handled_at_once_when_the_first_one_fails(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(
        WORKER, TOPIC, retry_policy={"minimum_backoff": timedelta(minutes=5)}
    )
    handled: list[str] = []

    async def work(message: Message) -> None:
        handled.append(message.message_id)
        await asyncio.sleep(3)
        if len(handled) == 1:
            raise ValueError("on purpose")
        message.ack()

    ids = [send(emulator, "a") for _ in range(3)]
    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(8)
        assert handled == ids[:2]
        assert calls.times == pytest.approx([0, 3], abs=0.1)
        assert calls.peak == 1
        assert counts(dedupe) == (1, 1, 0)
        await asyncio.sleep(20 * MINUTE)

    assert handled == ids[:2]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (1, 2, 0)


@virtual
async def test_a_repeat_that_has_waited_for_long_comes_again_later(
    emulator: MemoryEmulator,
) -> None:
    """It is given back, so that it does not take the place of others."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = [send(emulator, "a"), send(emulator, "a")]

    async def work(message: Message) -> None:
        await asyncio.sleep(200)
        message.ack()

    calls, dedupe = Calls(work), Deduplicator(max_wait=10)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(9)
        assert live.health().leased == 2
        await asyncio.sleep(2)
        assert live.health().leased == 1
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a"]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (1, 1, 3)
    assert attempts(emulator, *ids) == [1, 4]  # it waits for 10 s, and is away for 60


@virtual
async def test_without_waiting_a_repeat_is_given_back_at_once(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    send(emulator, "a")
    send(emulator, "a")
    calls, dedupe = Calls(slowly), Deduplicator(max_wait=0)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)
        assert (live.health().leased, counts(dedupe)) == (1, (0, 0, 1))
        await asyncio.sleep(2 * MINUTE)

    assert calls.data == [b"a"]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_what_was_given_back_comes_again_within_the_window(
    emulator: MemoryEmulator,
) -> None:
    """Or it would be handled, although the first one was acked in the meantime."""
    emulator.create_subscription(WORKER, TOPIC)
    send(emulator, "a")
    send(emulator, "a")
    calls, dedupe = Calls(slowly), Deduplicator(max_wait=1, window=20)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a"]
    assert counts(dedupe) == (1, 1, 1)


@virtual
async def test_with_room_for_one_message_nothing_waits_for_ever(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = [send(emulator, one) for one in ("a", "a", "b", "a", "b", "c")]
    calls, dedupe = Calls(slowly), Deduplicator()
    async with client_of(emulator) as client:
        flow = FlowControl(max_messages=1, resume_threshold=1, max_request_batch_size=1)
        client.subscribe(WORKER, dedupe(calls), flow_control=flow)
        await asyncio.sleep(MINUTE)

    assert sorted(calls.data) == [b"a", b"b", b"c"]
    assert emulator.backlog(WORKER) == 0
    assert attempts(emulator, *ids) == [1] * 6
    assert counts(dedupe) == (3, 3, 0)


@virtual
async def test_a_repeat_does_not_keep_those_away_that_the_first_one_waits_for(
    emulator: MemoryEmulator,
) -> None:
    """Two messages may be held, and are settled when there are two."""
    emulator.create_subscription(WORKER, TOPIC)
    held: list[Message] = []

    async def work(message: Message) -> None:
        held.append(message)
        if len(held) == 2:
            for one in held:
                one.ack()

    send(emulator, "a")
    send(emulator, "a")
    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        flow = FlowControl(max_messages=2, resume_threshold=1, max_request_batch_size=1)
        client.subscribe(WORKER, dedupe(calls), flow_control=flow)
        await asyncio.sleep(1)
        send(emulator, "b")
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a", b"b"]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (2, 1, 1)


@virtual
async def test_a_repeat_whose_own_lease_ends_while_it_waits_is_not_handled(
    emulator: MemoryEmulator,
) -> None:
    """It comes again, and waits again."""
    emulator.create_subscription(WORKER, TOPIC)

    async def work(message: Message) -> None:
        if message.data == b"first":
            await asyncio.sleep(30)
            message.nack(delay=300)
        else:
            message.ack()

    calls, dedupe = Calls(work), Deduplicator(max_wait=600)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, dedupe(calls))
        send(emulator, "a", "first")
        await asyncio.sleep(1)
        live.flow_control = FlowControl(max_lease_duration=20)
        again = send(emulator, "a", "again")
        await asyncio.sleep(28)
        assert attempts(emulator, again) == [2]
        assert live.health().running == 3
        await asyncio.sleep(10 * MINUTE)

    assert calls.data == [b"first", b"again"]
    assert calls.times == pytest.approx([0, 30], abs=0.2)
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (1, 1, 0)


@virtual
async def test_a_subscription_ends_in_time_although_repeats_wait(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = [send(emulator, "a"), send(emulator, "a")]
    calls, dedupe = Calls(hang), Deduplicator(max_wait=600)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, dedupe(calls), shutdown=ShutdownPolicy(timeout=7))
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() == pytest.approx(8, abs=0.5)
        client.subscribe(WORKER, dedupe(Calls()))
        await asyncio.sleep(2)

    assert attempts(emulator, *ids) == [2, 2]
    assert counts(dedupe) == (1, 1, 0)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_what_is_held_when_a_subscription_ends_leaves_its_id(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    send(emulator, "a")
    calls, dedupe = Calls(forget), Deduplicator()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)
        live.stop()
        await live
        calls.do = None
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)

    assert calls.data == [b"a", b"a"]
    assert counts(dedupe) == (1, 0, 0)


# Order


@virtual
async def test_where_order_matters_repeats_are_dropped_and_the_rest_stays_in_order(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    failures = {b"2", b"4"}

    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        if message.data in failures:
            failures.discard(message.data)
            message.nack()
        else:
            message.ack()

    for one in ("1", "1", "2", "2", "3", "1", "4", "4", "5"):
        send(emulator, one, key="k")
    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"1", b"2", b"2", b"3", b"4", b"4", b"5"]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (5, 4, 0)


@virtual
async def test_a_key_waits_while_its_message_is_handled_by_another_key(
    emulator: MemoryEmulator,
) -> None:
    """And goes on in order, also where the message had to be given back."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    order: list[str] = []

    async def work(message: Message) -> None:
        order.append(f"{message.ordering_key} {message.data.decode()}")
        if message.ordering_key == "x":
            await asyncio.sleep(100)
        message.ack()

    send(emulator, "same", key="x")
    send(emulator, "same", key="y")
    for one in ("1", "2", "3"):
        send(emulator, one, key="y")
    dedupe = Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(work))
        await asyncio.sleep(5)
        assert order == ["x same"]
        await asyncio.sleep(5 * MINUTE)

    assert order == ["x same", "y 1", "y 2", "y 3"]
    assert emulator.backlog(WORKER) == 0
    assert (dedupe.handled, dedupe.dropped) == (4, 1)


# Exactly-once


@virtual
async def test_a_repeat_waits_until_the_ack_is_confirmed(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    send(emulator, "a")
    send(emulator, "a")
    emulator.faults.delay("Acknowledge", 4)

    async def work(message: Message) -> None:
        message.ack_with_response()  # it is not waited for here

    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(3)
        assert counts(dedupe) == (0, 0, 0)
        await asyncio.sleep(3)
        assert counts(dedupe) == (1, 1, 0)

    assert calls.data == [b"a"]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_an_ack_that_is_refused_does_not_count(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    send(emulator, "a")
    send(emulator, "a")
    refused: list[SettleError] = []

    async def work(message: Message) -> None:
        if not refused:
            emulator.faults.fail_confirmations(WORKER, permanent=True)
        try:
            await message.ack_with_response()
        except SettleError as error:
            refused.append(error)

    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(5 * MINUTE)

    assert len(refused) == 1
    assert calls.data == [b"a", b"a"]
    assert emulator.backlog(WORKER) == 0
    assert (dedupe.handled, dedupe.dropped) == (1, 1)


@virtual
async def test_a_second_ack_that_fails_does_not_take_the_first_back(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    send(emulator, "a")
    send(emulator, "a")

    async def work(message: Message) -> None:
        message.ack()
        with pytest.raises(SettleError):
            await message.ack_with_response()

    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(MINUTE)

    assert calls.data == [b"a"]
    assert counts(dedupe) == (1, 1, 0)

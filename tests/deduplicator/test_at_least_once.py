"""Repeats are dropped, and nothing else is."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from pubsub_aio import (
    Deduplicator,
    FlowControl,
    Message,
    ShutdownPolicy,
)
from pubsub_aio.config import FLIGHT_ID
from pubsub_aio.testing import MemoryEmulator
from tests.deduplicator.conftest import attempts, counts, forget, hang, send, slowly
from tests.subscriber.conftest import (
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    client_of,
    virtual,
)

# What is dropped, and what is not


@virtual
async def test_of_messages_with_one_id_one_is_handled_and_all_are_acked(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for one in ("a", "b", "a", "a", "c"):
        send(emulator, one)
    calls, dedupe = Calls(), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)
        send(emulator, "b")
        await asyncio.sleep(1)

    assert sorted(calls.data) == [b"a", b"b", b"c"]
    assert emulator.backlog(WORKER) == 0
    assert (counts(dedupe), dedupe.forgotten) == ((3, 3, 0), 0)


@virtual
async def test_messages_without_an_id_are_handled_always(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for one in (None, None, "", ""):
        send(emulator, one, "x")
    calls, dedupe = Calls(), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)

    assert calls.data == [b"x"] * 4
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (0, 0, 0)


@virtual
async def test_any_attribute_can_be_the_id(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for one in ("1", "2", "1"):
        send(emulator, one, attribute="order_id")
    for _ in range(2):
        send(emulator, "the same", attribute=FLIGHT_ID)
    calls = Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, Deduplicator("order_id")(calls))
        await asyncio.sleep(1)

    assert sorted(calls.data) == [b"1", b"2", b"the same", b"the same"]


@virtual
async def test_every_subscription_gets_a_message_although_they_share_a_deduplicator(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    emulator.create_subscription("other", TOPIC)
    send(emulator, "a")
    calls, others, dedupe = Calls(), Calls(), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        client.subscribe("other", dedupe(others))
        await asyncio.sleep(1)

    assert (calls.data, others.data) == ([b"a"], [b"a"])


@virtual
async def test_what_one_subscription_has_handled_is_known_when_it_is_begun_anew(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls, dedupe = Calls(), Deduplicator()
    for _ in range(2):
        send(emulator, "a")
        async with client_of(emulator) as client:
            client.subscribe(WORKER, dedupe(calls))
            await asyncio.sleep(1)

    assert calls.data == [b"a"]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_message_whose_ack_was_lost_is_not_handled_again(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.lose_acks(WORKER)
    one = send(emulator, "a")
    calls, dedupe = Calls(), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(2 * MINUTE)

    assert calls.data == [b"a"]
    assert attempts(emulator, one) == [2]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (1, 1, 0)


@virtual
async def test_a_message_that_is_delivered_twice_is_handled_once(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.duplicate(WORKER, times=10)
    for number in range(10):
        send(emulator, str(number))
    calls, dedupe = Calls(), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)

    assert sorted(calls.data) == [b"%d" % number for number in range(10)]
    assert emulator.backlog(WORKER) == 0
    assert dedupe.handled == 10


# At least once stays at least once


Fail = Callable[[Message], Awaitable[None]]


async def fail(_: Message) -> None:
    raise ValueError("on purpose")


async def nack(message: Message) -> None:
    message.nack()


async def nack_for_long(message: Message) -> None:
    message.nack(delay=500)


async def drop(message: Message) -> None:
    message.drop()


async def give_back_by_deadline(message: Message) -> None:
    message.modify_ack_deadline(0)


@pytest.mark.parametrize(
    "how", [fail, nack, nack_for_long, drop, forget, hang, give_back_by_deadline]
)
@virtual
async def test_a_message_that_was_not_acked_leaves_its_id_to_the_other(
    emulator: MemoryEmulator, how: Fail
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    handled: list[str] = []

    async def work(message: Message) -> None:
        handled.append(message.message_id)
        if len(handled) == 1:
            await how(message)
        else:
            message.ack()

    ids = [send(emulator, "a"), send(emulator, "a")]
    dedupe = Deduplicator()
    async with client_of(emulator) as client:
        flow = FlowControl(max_lease_duration=5 * MINUTE)
        policy = ShutdownPolicy(mode="nack")
        client.subscribe(WORKER, dedupe(work), flow_control=flow, shutdown=policy)
        await asyncio.sleep(20 * MINUTE)

    assert emulator.backlog(WORKER) == 0
    assert {*handled} <= {*ids}
    assert len(handled) == 2
    assert (dedupe.handled, dedupe.dropped) == (1, 1)


@virtual
async def test_an_ack_counts_although_the_callback_raises_afterwards(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for _ in range(3):
        send(emulator, "a")

    async def work(message: Message) -> None:
        message.ack()
        raise ValueError("too late")

    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)

    assert calls.data == [b"a"]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (1, 2, 0)


# What is remembered


@virtual
async def test_an_id_is_forgotten_when_the_window_is_over(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls, dedupe = Calls(slowly), Deduplicator(window=30)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        for _ in range(3):
            send(emulator, "a")
            await asyncio.sleep(5 + 20)
        await asyncio.sleep(MINUTE)

    assert calls.times == pytest.approx([0, 50], abs=0.2)
    assert counts(dedupe) == (2, 1, 0)
    assert dedupe.forgotten == 0


@virtual
async def test_too_many_ids_are_forgotten_which_is_logged_once(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls, dedupe = Calls(), Deduplicator(max_ids=10)
    with caplog.at_level(logging.WARNING, "pubsub_aio.deduplicator"):
        async with client_of(emulator) as client:
            client.subscribe(WORKER, dedupe(calls))
            for number in [*range(30), 29, 0]:
                send(emulator, str(number))
                await asyncio.sleep(1)

    assert calls.data == [b"%d" % number for number in [*range(30), 0]]
    assert (counts(dedupe), dedupe.forgotten) == ((31, 1, 0), 21)
    (record,) = [one for one in caplog.records if one.name == "pubsub_aio.deduplicator"]
    assert "max_ids=10" in record.message
    assert "forgotten=21" in repr(dedupe)


@virtual
async def test_what_was_handled_can_be_forgotten_on_purpose(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls, dedupe = Calls(), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        for _ in range(2):
            send(emulator, "a")
            await asyncio.sleep(1)
            dedupe.clear()

    assert calls.data == [b"a", b"a"]


# All together


@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_whatever_goes_wrong_each_id_is_handled_until_it_was_acked_and_not_again(
    emulator: MemoryEmulator, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311
    emulator.create_subscription(
        WORKER,
        TOPIC,
        enable_message_ordering=seed % 3 == 1,
        enable_exactly_once_delivery=seed % 3 == 2,
    )
    held: dict[str, Message] = {}
    acked: Counter[str] = Counter()
    wrong: list[str] = []

    async def work(message: Message) -> None:
        one = message.attributes[FLIGHT_ID]
        if acked[one]:
            wrong.append(f"{one} was handled again")
        if one in held and held[one].lease is not None:
            wrong.append(f"{one} was handled twice at once")
        held[one] = message
        await asyncio.sleep(chance.choice([0, 0, 0.01, 1, 15]))
        how = chance.choice(["ack"] * 6 + ["confirmed", "raise", "nack", "drop", "later"])
        if how == "confirmed":
            await message.ack_with_response()
            acked[one] += 1
        elif how == "raise":
            raise ValueError("by chance")
        elif how in ("nack", "drop"):
            getattr(message, how)()
        elif how == "later":
            asyncio.get_running_loop().call_later(chance.choice([1, 20]), ack, one, message)
        else:
            ack(one, message)

    def ack(one: str, message: Message) -> None:
        acked[one] += message.lease is not None  # it may have been taken back meanwhile
        message.ack()

    ids = [f"{number}" for number in range(100)]
    dedupe = Deduplicator(window=HOUR)
    async with client_of(emulator) as client:
        flow = FlowControl(max_messages=chance.choice([1, 10, 1_000]))
        client.subscribe(WORKER, dedupe(work), flow_control=flow)
        for one in ids:
            key = f"key {chance.randrange(5)}"
            for _ in range(chance.choice([1, 1, 2, 3])):
                send(emulator, one, key=key)
            if chance.random() < 0.2:
                emulator.faults.duplicate(WORKER)
            if chance.random() < 0.1 and seed % 3 != 2:
                emulator.faults.lose_acks(WORKER)
            if chance.random() < 0.05:
                emulator.faults.cut_streams()
            await asyncio.sleep(chance.choice([0, 0, 0.05, 1]))
        await asyncio.sleep(40 * MINUTE)

    assert wrong == []
    assert acked == Counter(ids)
    assert emulator.backlog(WORKER) == 0
    assert dedupe.handled == len(ids)

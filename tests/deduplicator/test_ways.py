"""Callbacks of every kind, and those who do without; and mistakes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from typing import Any

import pytest

from pubsub_aio import (
    Batch,
    ConfigError,
    Deduplicator,
    Message,
    ThreadScheduler,
    WrongLoopError,
)
from pubsub_aio.config import FLIGHT_ID
from pubsub_aio.testing import MemoryEmulator
from tests.deduplicator.conftest import counts, forget, pull, send, slowly
from tests.subscriber.conftest import (
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    client_of,
    now,
    virtual,
)

# Settled later, elsewhere, or by returning


@virtual
async def test_returning_is_acking_where_that_is_wanted(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    failures = 1

    async def work(_: Message) -> None:
        nonlocal failures
        await asyncio.sleep(2)
        if failures:
            failures -= 1
            raise ValueError("on purpose")

    for one in ("a", "a", "b", "a", "b"):
        send(emulator, one)
    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls), auto_ack=True)
        await asyncio.sleep(30)

    assert Counter(calls.data) == {b"a": 2, b"b": 1}
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (2, 3, 0)


@virtual
async def test_callbacks_that_return_at_once_are_acked_in_time_for_their_repeats(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)

    async def work(_: Message) -> None:
        pass

    for _ in range(200):
        send(emulator, "a")
    calls, dedupe = Calls(work), Deduplicator(max_wait=0)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls), auto_ack=True)
        await asyncio.sleep(1)

    assert calls.data == [b"a"]
    assert counts(dedupe) == (1, 199, 0)


@pytest.mark.parametrize("how", ["ack", "nack"])
@virtual
async def test_what_a_callback_leaves_to_others_counts_when_they_settle_it(
    emulator: MemoryEmulator, how: str
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls, dedupe = Calls(forget), Deduplicator(window=30)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        send(emulator, "a", "first")
        await asyncio.sleep(MINUTE)  # longer than the window, which has not begun
        send(emulator, "a", "second")
        await asyncio.sleep(1)
        assert calls.data == [b"first"]
        if how == "ack":
            calls.messages[0].ack()
        else:
            calls.messages[0].nack(delay=300)
        await asyncio.sleep(1)
        assert counts(dedupe) == ((1, 1, 0) if how == "ack" else (0, 0, 0))
        assert calls.data == ([b"first"] if how == "ack" else [b"first", b"second"])
        await asyncio.sleep(40)
        calls.do = None
        send(emulator, "a", "third")
        await asyncio.sleep(MINUTE)
        if how == "nack":
            calls.messages[1].ack()
            await asyncio.sleep(2 * MINUTE)

    assert calls.data == [b"first", b"third" if how == "ack" else b"second"]


@virtual
async def test_messages_may_be_acked_in_another_thread(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for one in ("a", "b", "a"):
        send(emulator, one)

    async def work(message: Message) -> None:
        await asyncio.to_thread(message.ack)

    calls, dedupe = Calls(work), Deduplicator()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, dedupe(calls))
        await asyncio.sleep(1)

    assert sorted(calls.data) == [b"a", b"b"]
    assert counts(dedupe) == (2, 1, 0)


@virtual
async def test_plain_functions_run_in_threads_and_get_no_repeats(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for one in ("a", "b", "a", "b", "c"):
        send(emulator, one)
    called: list[bytes] = []

    def work(message: Message) -> None:
        called.append(message.data)
        time.sleep(0.01)
        if called.count(b"a") == 1 and message.data == b"a":
            raise ValueError("on purpose")
        message.ack()

    dedupe, threads = Deduplicator(), ThreadScheduler(max_workers=1)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, work, scheduler=dedupe.around(threads))
        await asyncio.sleep(MINUTE)
    dedupe.around(threads).close()

    assert Counter(called) == {b"a": 2, b"b": 1, b"c": 1}
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (3, 2, 0)
    with pytest.raises(RuntimeError):  # it is closed
        await threads.run(work, None)  # type: ignore[arg-type]


# By oneself


@virtual
async def test_who_iterates_over_messages_claims_each(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for one in ("a", "a", "b", "a", "end"):
        send(emulator, one)
    handled: list[bytes] = []
    dedupe = Deduplicator()
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            if dedupe.claim(message):
                assert dedupe.claim(message)  # it may be asked twice
                handled.append(message.data)
                message.ack()
            if message.data == b"end":
                break

    assert handled == [b"a", b"b", b"end"]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (3, 2, 0)


@virtual
async def test_of_a_batch_those_are_claimed_that_are_no_repeats(emulator: MemoryEmulator) -> None:
    """One whose like is in the same batch comes again, to be dropped then."""
    emulator.create_subscription(WORKER, TOPIC)
    handled: list[list[bytes]] = []
    dedupe = Deduplicator()

    async def work(batch: Batch) -> None:
        fresh = [message for message in batch if dedupe.claim(message)]
        handled.append([message.data for message in fresh])
        batch.ack()

    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, work, max_messages=3, max_latency=1)
        for one in ("a", "b", "a", "b", "c", "d"):
            send(emulator, one)
        await asyncio.sleep(0.5)
        assert handled == [[b"a", b"b"], [b"c", b"d"]]
        assert counts(dedupe) == (4, 1, 1)
        await asyncio.sleep(2 * MINUTE)

    assert [data for batch in handled for data in batch] == [b"a", b"b", b"c", b"d"]
    assert emulator.backlog(WORKER) == 0
    assert counts(dedupe) == (4, 2, 1)


@pytest.mark.parametrize("how", ["ack", "ack_with_response", "nack", "drop", "deadline"])
@virtual
async def test_what_is_pulled_is_claimed_as_well(emulator: MemoryEmulator, how: str) -> None:
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=600)
    for _ in range(3):
        send(emulator, "a")
    dedupe = Deduplicator()
    async with client_of(emulator) as client:
        first, second, third = await pull(client, 3)
        assert (dedupe.claim(first), dedupe.claim(second)) == (True, False)
        if how == "ack":
            first.ack()
        elif how == "ack_with_response":
            confirmation = first.ack_with_response()
            assert counts(dedupe) == (0, 0, 1)
            await confirmation
        elif how == "nack":
            first.nack()
        elif how == "deadline":
            first.modify_ack_deadline(20)
            first.modify_ack_deadline(0)
        else:
            first.drop()
        acked = how.startswith("ack")
        assert dedupe.claim(third) is not acked
        assert counts(dedupe) == ((1, 1, 1) if acked else (0, 0, 1))
        assert (third.lease is None) is acked


@virtual
async def test_a_pulled_message_that_nobody_settles_loses_its_id(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=10)
    send(emulator, "a")
    dedupe = Deduplicator()
    async with client_of(emulator) as client:
        (lost,) = await pull(client, 1)
        assert dedupe.claim(lost)
        while not dedupe.claim(again := (await pull(client, 1))[0]):
            assert now() < 11 * MINUTE
        again.ack()

    assert again.message_id == lost.message_id
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_pulled_message_keeps_its_id_while_its_deadline_is_moved(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=600)
    for _ in range(3):
        send(emulator, "a")
    dedupe = Deduplicator()
    async with client_of(emulator) as client:
        first, second, third = await pull(client, 3)
        assert dedupe.claim(first)
        for _ in range(3):
            await asyncio.sleep(400)
            first.modify_ack_deadline(600)
        await asyncio.sleep(400)
        assert not dedupe.claim(second)
        await asyncio.sleep(200)
        assert dedupe.claim(third)


@virtual
async def test_a_callback_may_be_tried_again_on_the_spot(emulator: MemoryEmulator) -> None:
    """Its message has its id until it is settled, whoever calls."""
    emulator.create_subscription(WORKER, TOPIC)
    send(emulator, "a")
    send(emulator, "a")

    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        if len(calls.began) < 3:
            raise ValueError("on purpose")
        message.ack()

    calls, dedupe = Calls(work), Deduplicator()
    handle = dedupe(calls)

    async def persistently(message: Message) -> None:
        for _ in range(3):
            with contextlib.suppress(ValueError):
                await handle(message)
                return

    async with client_of(emulator) as client:
        client.subscribe(WORKER, persistently)
        await asyncio.sleep(10)

    assert len({message.message_id for message in calls.messages}) == 1
    assert (len(calls.began), calls.peak) == (3, 1)
    assert counts(dedupe) == (1, 1, 0)


@virtual
async def test_a_message_that_was_settled_before_is_handled(emulator: MemoryEmulator) -> None:
    """Whoever acks first and handles then is not to lose it."""
    emulator.create_subscription(WORKER, TOPIC)
    send(emulator, "a")
    send(emulator, "a")
    calls, dedupe = Calls(forget), Deduplicator()
    handle = dedupe(calls)

    async def early(message: Message) -> None:
        message.ack()
        await handle(message)

    async with client_of(emulator) as client:
        client.subscribe(WORKER, early)
        await asyncio.sleep(1)

    assert calls.data == [b"a", b"a"]


@virtual
async def test_two_deduplicators_can_follow_one_another(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    for flight, order in (("1", "x"), ("1", "x"), ("2", "x"), ("3", "y"), ("3", "y")):
        attributes = {FLIGHT_ID: flight, "order": order}
        emulator.publish(TOPIC, f"{flight}{order}".encode(), attributes=attributes)
    by_flight, by_order, calls = Deduplicator(), Deduplicator("order"), Calls(slowly)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, by_flight(by_flight(by_order(calls))))
        await asyncio.sleep(MINUTE)

    assert sorted(calls.data) == [b"1x", b"3y"]
    assert (counts(by_flight), counts(by_order)) == ((3, 2, 0), (2, 1, 0))


# Mistakes


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"attribute": ""}, "attribute"),
        ({"attribute": None}, "attribute"),
        ({"attribute": ()}, "attribute"),
        ({"attribute": ("order", "")}, "attribute"),
        ({"window": 0}, "window"),
        ({"window": math.nan}, "window"),
        ({"window": "600"}, "window"),
        ({"max_ids": 0}, "max_ids"),
        ({"max_ids": 1.5}, "max_ids"),
        ({"max_wait": -1}, "max_wait"),
        ({"max_wait": 601}, "max_wait"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field} must be"):
        Deduplicator(**settings)


def test_a_plain_function_is_refused_with_a_hint() -> None:
    def plain(message: Message) -> None:
        message.ack()

    for callback in (plain, None, 7):
        with pytest.raises(ConfigError, match=r"callback must be an async function.*around"):
            Deduplicator()(callback)  # type: ignore[arg-type]


@virtual
async def test_a_callback_that_cannot_be_called_so_is_refused_by_subscribe(
    emulator: MemoryEmulator,
) -> None:
    async def two(message: Message, other: int) -> None:
        del message, other

    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match="other"):
            client.subscribe(WORKER, Deduplicator()(two))  # type: ignore[arg-type]


def test_a_wrapped_callback_keeps_its_name() -> None:
    assert getattr(Deduplicator()(slowly), "__name__", "") == "slowly"


def test_it_belongs_to_the_loop_that_it_was_used_in_first() -> None:
    dedupe, messages = Deduplicator(), []

    @virtual
    async def first(emulator: MemoryEmulator) -> None:
        emulator.create_subscription(WORKER, TOPIC)
        send(emulator, "a")
        async with client_of(emulator) as client:
            messages.extend(await pull(client, 1))
            assert dedupe.claim(messages[0])

    @virtual
    async def second(_: MemoryEmulator) -> None:
        with pytest.raises(WrongLoopError, match="another event loop"):
            dedupe.claim(messages[0])

    first()
    second()
    with pytest.raises(RuntimeError, match="no running event loop"):
        dedupe.claim(messages[0])


@virtual
async def test_several_attributes_may_tell_messages_apart(emulator: MemoryEmulator) -> None:
    """Also where their values put together are the same; the first must be there."""
    dedupe = Deduplicator(("order", "line"))
    marks = [
        *({"order": "a", "line": "1"}, {"order": "a", "line": "2"}, {"order": "a"}),
        *({"order": "a", "line": "1 b"}, {"order": "a 1", "line": "b"}),
    ]
    async with client_of(emulator) as client:
        emulator.create_subscription(WORKER, TOPIC)
        for attributes in (*marks, *marks, {"line": "1"}, {"line": "1"}):
            emulator.publish(TOPIC, b"x", attributes=attributes)
        client.subscribe(WORKER, dedupe(calls := Calls()))
        await asyncio.sleep(1)

    assert len(calls.data) == len(marks) + 2
    assert counts(dedupe) == (len(marks), len(marks), 0)

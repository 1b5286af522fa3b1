"""Record batches of the wanted size, in virtual time: gathered, kept alive, and settled in part."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest

from pubsub_aio import ArrowBatch, ConfigError, FlowControl, SubscriberClient, Subscription
from pubsub_aio.subscriber.assembly import Assembly, Rows
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Tapped,
    client_of,
    now,
    publish,
    virtual,
)


class Batches:
    """A callback that notes what came, takes its time, and acks."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.times: list[float] = []
        self.batches: list[list[int]] = []
        self.running = self.peak = 0

    async def __call__(self, batch: ArrowBatch) -> None:
        self.times.append(round(now(), 1))
        self.batches.append(numbers(batch))
        self.running += 1
        self.peak = max(self.peak, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        batch.ack()

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    @property
    def rows(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


def numbers(batch: ArrowBatch) -> list[int]:
    """What was published, without the key that may stand before it and the dots behind it."""
    return [int(data.strip(b"abc.")) for data in batch.records.column("data").to_pylist()]


def redelivered(emulator: MemoryEmulator) -> list[str]:
    """The ids of messages that were delivered more than once."""
    return [one.message_id for one in emulator.messages(TOPIC) if len(one.deliveries) > 1]


async def all_done(emulator: MemoryEmulator) -> None:
    await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)


# Gathering


@virtual
async def test_rows_are_kept_alive_as_long_as_they_wait_for_others(
    emulator: MemoryEmulator,
) -> None:
    """H6: however long that is, and though each came at another time."""
    emulator.create_subscription(WORKER, TOPIC)
    batches = Batches()
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, batches, max_latency=5 * MINUTE)
        await live.ready()
        for number in range(250):
            emulator.publish(TOPIC, b"%d" % number)
            await asyncio.sleep(1)
        await all_done(emulator)

    assert batches.batches == [list(range(250))]
    assert batches.times == [5 * MINUTE]
    assert redelivered(emulator) == []


@virtual
async def test_waiting_rows_are_not_renewed_more_often_than_they_must(
    emulator: MemoryEmulator,
) -> None:
    """With extensions of 10 seconds at least, no row needs more than one in 5."""
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        client.subscribe_arrow(WORKER, Batches(), max_latency=MINUTE)
        for number in range(600):
            emulator.publish(TOPIC, b"%d" % number)
            await asyncio.sleep(0.1)
        await all_done(emulator)

    assert redelivered(emulator) == []
    assert len(transport.times("ModifyAckDeadline")) <= MINUTE / 5 + 2
    assert max(len(message.modacks) for message in emulator.messages(TOPIC)) <= MINUTE / 5


@virtual
async def test_many_small_pieces_join_while_they_wait_and_large_ones_do_not(
    emulator: MemoryEmulator,  # noqa: ARG001 - of the scenario
) -> None:
    """What came a row at a time would take far more than is in it; to join all would take long."""
    kept: list[str] = []
    handed_over: list[list[Rows]] = []

    def keep_alive(ids: list[str]) -> float:
        kept.extend(ids)
        return MINUTE

    assembly = Assembly(
        max_messages=10_000,
        max_bytes=2**30,
        max_latency=HOUR,
        hand_over=handed_over.append,
        keep_alive=keep_alive,
    )
    for number in range(300):
        ids = pa.array([f"{number}"])
        size = 100_000 if number == 150 else 100
        assembly.add(Rows(pa.record_batch({"id": ids}), ids, size, now()))
    await asyncio.sleep(MINUTE)
    pieces = assembly.take()

    assert [(len(rows), rows.size) for rows in pieces] == [
        (150, 15_000),
        (1, 100_000),
        (149, 14_900),
    ]
    assert [one for rows in pieces for one in rows.ack_ids.to_pylist()] == [*map(str, range(300))]
    assert {*kept} == {*map(str, range(300))}


@virtual
async def test_a_great_many_rows_are_kept_alive(emulator: MemoryEmulator) -> None:
    """H6: more than are sent to the server at once."""
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        callback = Batches(seconds=MINUTE)
        flow = FlowControl(max_messages=50_000, max_request_batch_size=50_000)
        client.subscribe_arrow(WORKER, callback, max_messages=45_000, flow_control=flow)
        publish(emulator, 45_000)
        await all_done(emulator)

        assert callback.sizes == [45_000]
        assert redelivered(emulator) == []


@virtual
async def test_a_batch_is_never_larger_than_it_may_be(emulator: MemoryEmulator) -> None:
    """Though the server sends more at once."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 500)
    batches = Batches()
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, batches, max_messages=30)
        await all_done(emulator)

    assert max(batches.sizes) == 30
    assert sorted(batches.rows) == list(range(500))


@virtual
async def test_a_batch_is_filled_to_the_last_row(emulator: MemoryEmulator) -> None:
    """Though what is decoded together does not fit into it."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 9_000)
    batches = Batches()
    flow = FlowControl(max_messages=20_000)
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, batches, max_messages=2_900, flow_control=flow)
        await all_done(emulator)

    assert batches.sizes == [2_900, 2_900, 2_900, 300]
    assert batches.rows == list(range(9_000))


@virtual
async def test_bytes_limit_a_batch_too(emulator: MemoryEmulator) -> None:
    """About: it is not known which row takes how many of a response."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 500, size=1_000)
    sizes = []

    async def note(batch: ArrowBatch) -> None:
        sizes.append(batch.size)
        batch.ack()

    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, note, max_bytes=20_000)
        await all_done(emulator)

    assert max(sizes) <= 20_000
    assert sum(sizes) > 500_000
    assert len(sizes) < 40


@virtual
async def test_one_row_alone_may_be_larger_than_a_batch(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3, size=1_000)
    batches = Batches()
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, batches, max_bytes=10)
        await all_done(emulator)

    assert batches.sizes == [1, 1, 1]


@virtual
async def test_what_is_gathered_goes_back_when_it_ends(emulator: MemoryEmulator) -> None:
    """H9: at once, for others."""
    emulator.create_subscription(WORKER, TOPIC)
    batches = Batches()
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, batches, max_latency=HOUR)
        await live.ready()
        publish(emulator, 10)
        await asyncio.sleep(20)
        live.stop()
        await live

    assert batches.batches == []
    nacked = [one.modacks[-1].seconds for one in emulator.messages(TOPIC)]
    assert nacked == [0] * 10


@virtual
async def test_what_is_pulled_stays_within_the_limits_with_what_is_gathered(
    emulator: MemoryEmulator,
) -> None:
    """H5: where the server is asked for each message."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 60)
    flow = FlowControl(max_messages=100, resume_threshold=1.0, max_request_batch_size=100)
    transport = Tapped(emulator.transport(), streaming=False)
    async with client_of(emulator, transport) as client:
        client.subscribe_arrow(
            WORKER,
            Batches(seconds=HOUR),
            max_messages=70,
            max_latency=HOUR,
            max_concurrent=1,
            flow_control=flow,
        )
        await asyncio.sleep(30)
        publish(emulator, 1_000)
        await asyncio.sleep(30)
        delivered = [one for one in emulator.messages(TOPIC) if one.deliveries]

    assert len(delivered) == flow.max_outstanding_messages == 200


# So many callbacks at once


@virtual
@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_callbacks_run_at_once_than_may(emulator: MemoryEmulator, most: int) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 400)
    batches = Batches(seconds=10)
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, batches, max_messages=20, max_concurrent=most)
        await all_done(emulator)

    assert batches.peak == most
    assert sorted(batches.rows) == list(range(400))


@virtual
@pytest.mark.parametrize("ordered", [False, True])
async def test_while_callbacks_run_the_next_batch_becomes_larger(
    emulator: MemoryEmulator, *, ordered: bool
) -> None:
    """Otherwise each of many small ones would take as long as a large one.

    Where order matters one runs at a time, however many may.
    """
    most = 3 if ordered else 1
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=ordered)
    batches = Batches(seconds=30)
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, batches, max_latency=1, max_concurrent=most)
        await live.ready()
        for number in range(100):
            emulator.publish(TOPIC, b"%d" % number, ordering_key="a" if ordered else "")
            await asyncio.sleep(1)
        await all_done(emulator)

    assert batches.times == [1, 31, 61, 91, 121]
    assert batches.rows == list(range(100))
    assert redelivered(emulator) == []


@virtual
async def test_a_full_batch_waits_for_its_callback_beside_the_one_that_is_gathered(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 70)
    batches = Batches(seconds=MINUTE)
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, batches, max_messages=30, max_concurrent=1)
        await asyncio.sleep(30)
        assert (live.health().running, live.health().leased) == (1, 60)
        await all_done(emulator)

    assert batches.sizes == [30, 30, 10]
    assert redelivered(emulator) == []


@virtual
async def test_a_callback_that_fails_frees_its_slot(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    seen: list[list[int]] = []

    async def fail_first(batch: ArrowBatch) -> None:
        seen.append(numbers(batch))
        if len(seen) == 1:
            raise ValueError("it is bad the first time")
        batch.ack()

    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, fail_first, max_concurrent=1)
        await all_done(emulator)

    assert seen == [list(range(5))] * 2


@virtual
async def test_a_batch_that_is_let_go_before_its_turn_takes_no_slot(
    emulator: MemoryEmulator,
) -> None:
    """It was held too long behind others, and comes again."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 40)
    batches = Batches(seconds=50)
    flow = FlowControl(max_messages=40, max_lease_duration=60)
    async with client_of(emulator) as client:
        client.subscribe_arrow(
            WORKER, batches, max_messages=10, max_concurrent=1, flow_control=flow
        )
        await all_done(emulator)

    assert batches.peak == 1
    assert {*batches.rows} == {*range(40)}


@virtual
async def test_batches_that_are_let_go_do_not_pile_up_behind_one_that_hangs(
    emulator: MemoryEmulator,
) -> None:
    """They come again and again, and each time wait for their turn."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 40)
    alive: weakref.WeakSet[ArrowBatch] = weakref.WeakSet()
    made = ArrowBatch.__init__

    async def hang(batch: ArrowBatch) -> None:
        del batch
        gc.collect()
        await asyncio.sleep(2 * HOUR)

    def note(self: ArrowBatch, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        alive.add(self)

    flow = FlowControl(max_messages=40, max_lease_duration=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrowBatch, "__init__", note)
        async with client_of(emulator) as client:
            live = client.subscribe_arrow(
                WORKER, hang, max_messages=10, max_concurrent=1, flow_control=flow
            )
            await asyncio.sleep(HOUR)
            gc.collect()
            assert len(alive) < 10
            live.stop()
            live.stop()
            await live


@virtual
async def test_stopping_gives_back_what_waits_for_a_slot(emulator: MemoryEmulator) -> None:
    """H9: and lets the callback that runs finish."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 50)
    batches = Batches(seconds=5)
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, batches, max_messages=10, max_concurrent=1)
        await asyncio.sleep(1)
        live.stop()
        await live

    assert batches.batches == [list(range(10))]
    assert emulator.backlog(WORKER) == 40


@virtual
async def test_a_batch_is_not_larger_than_arrow_can_have_it(emulator: MemoryEmulator) -> None:
    """A column has 2 GiB at most."""
    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match="max_bytes must be at least 1 and at most"):
            client.subscribe_arrow(WORKER, Batches(), max_bytes=2**30 + 1)


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
@virtual
async def test_a_limit_that_cannot_be_is_refused(emulator: MemoryEmulator, value: int) -> None:
    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match="max_concurrent"):
            client.subscribe_arrow(WORKER, Batches(), max_concurrent=value)


# Settled in part


class Parts:
    """A callback that gives some rows back the first time they come, and acks the others."""

    def __init__(self, refuse: set[int], *, delay: float = 0.0) -> None:
        self.refuse = set(refuse)
        self.delay = delay
        self.taken: list[int] = []
        self.times: dict[int, float] = {}

    async def __call__(self, batch: ArrowBatch) -> None:
        came = numbers(batch)
        rows = [row for row, number in enumerate(came) if number in self.refuse]
        self.refuse.difference_update(came)
        self.taken += came
        self.times.update(dict.fromkeys(came, round(now(), 1)))
        batch.ack_all_but(rows, delay=self.delay)


def subscribed(client: SubscriberClient, callback: Parts) -> Subscription:
    return client.subscribe_arrow(WORKER, callback, max_messages=10)


@virtual
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("refuse", [{0}, {3, 7}, {9}, {*range(10)}])
async def test_rows_can_be_given_back_while_the_others_are_acked(
    emulator: MemoryEmulator, *, refuse: set[int], exactly_once: bool
) -> None:
    """They come again, and nothing else does."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=exactly_once)
    parts = Parts(refuse)
    publish(emulator, 10)
    async with client_of(emulator) as client:
        live = subscribed(client, parts)
        await all_done(emulator)
        assert live.health().leased == live.health().leased_bytes == 0

    assert sorted(parts.taken) == sorted([*range(10), *refuse])


@virtual
async def test_rows_that_are_given_back_come_when_they_are_wanted(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    parts = Parts({2, 5}, delay=20)
    publish(emulator, 10)
    async with client_of(emulator) as client:
        subscribed(client, parts)
        await all_done(emulator)

    assert {number for number, time in parts.times.items() if 20 <= time < 22} == {2, 5}


@virtual
async def test_no_rows_at_all_is_to_ack_it(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    parts = Parts(set())
    publish(emulator, 10)
    async with client_of(emulator) as client:
        subscribed(client, parts)
        await all_done(emulator)

    assert parts.taken == list(range(10))


@virtual
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("streaming", [True, False])
async def test_where_order_matters_what_is_behind_comes_again_too(
    emulator: MemoryEmulator, *, exactly_once: bool, streaming: bool
) -> None:
    """H3: so that for each key the last time that its messages came, they came in order."""
    if exactly_once and not streaming:
        exactly_once = False  # pulling cannot confirm
    emulator.create_subscription(
        WORKER,
        TOPIC,
        enable_message_ordering=True,
        enable_exactly_once_delivery=exactly_once,
    )
    parts = Parts({4, 17, 18, 30})
    for number in range(40):
        emulator.publish(TOPIC, b"%d" % number, ordering_key="ab"[number % 2])
    transport = Tapped(emulator.transport(), streaming=streaming)
    async with client_of(emulator, transport) as client:
        live = subscribed(client, parts)
        await all_done(emulator)
        assert live.health().leased == 0

    assert live.health().counts["acked"] == 40  # what comes again was not acked before
    last = {number: place for place, number in enumerate(parts.taken)}
    for key in (0, 1):
        in_order = sorted(range(key, 40, 2), key=last.__getitem__)
        assert in_order == list(range(key, 40, 2))
    assert parts.taken.count(3) == 1
    assert parts.taken.count(5) == 1  # of another key, though behind what was given back


@virtual
async def test_a_batch_is_settled_in_part_once(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10)
    came: list[list[int]] = []

    async def settle_twice(batch: ArrowBatch) -> None:
        came.append(numbers(batch))
        batch.ack_all_but([0] if len(came) == 1 else [])
        batch.ack_all_but([1])
        batch.nack()

    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, settle_twice)
        await all_done(emulator)
        assert live.health().leased == 0

    assert came == [list(range(10)), [0]]


@virtual
@pytest.mark.parametrize("rows", [[10], [-1], [0, 99]])
async def test_rows_that_there_are_not_are_refused(
    emulator: MemoryEmulator, rows: list[int]
) -> None:
    """And the batch is still held."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10)

    async def callback(batch: ArrowBatch) -> None:
        with pytest.raises(ConfigError, match="rows must be from 0 to 9"):
            batch.ack_all_but(rows)
        batch.ack()

    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, callback)
        await all_done(emulator)
        assert live.health().counts.get("raised", 0) == 0

"""Record batches, in virtual time: order, receipts, and what becomes of what is given back."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import ArrowBatch, FlowControl, SubscriberClient
from pubsub_aio._wire import schema
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    TOPIC,
    WORKER,
    Events,
    Tapped,
    client_of,
    now,
    publish,
    virtual,
)
from tests.subscriber.test_rush import Site as RushSite
from tests.subscriber.test_rush import rush

UNREADABLE = schema.RawResponses(
    received_messages=[
        b"\x0a\x01x\x12\x08\x12\x06\x0a\x01k\x12\x01\xff"
    ]  # an attribute is not UTF-8
).SerializeToString()

Row = tuple[str, int]
"""A key, and which of its messages."""


class Rows:
    """A callback that nacks some batches, acks the others, and notes the rows of those."""

    def __init__(self, nack: tuple[int, ...] = (), *, delay: float = 0.0) -> None:
        self.acked: list[Row] = []
        self._nack = nack
        self._delay = delay
        self._count = 0

    async def __call__(self, batch: ArrowBatch) -> None:
        self._count += 1
        await asyncio.sleep(0.1)
        if self._count in self._nack:
            batch.nack(delay=self._delay)
            return
        columns = batch.records.to_pydict()
        for key, data in zip(columns["ordering_key"], columns["data"], strict=True):
            self.acked.append((key, int(data.strip(b"abc"))))
        batch.ack()

    def of(self, key: str) -> list[int]:
        return [number for name, number in self.acked if name == key]


@virtual
@pytest.mark.parametrize("count", [1, 5])
async def test_a_batch_of_which_every_receipt_is_refused_is_forgotten(
    emulator: MemoryEmulator, count: int
) -> None:
    """H4: it comes again, and the subscription goes on."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    rows = Rows()
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, rows)
        await live.ready()
        emulator.faults.fail_confirmations(WORKER, times=count, permanent=True)
        publish(emulator, count)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert sorted(number for _, number in rows.acked) == list(range(count))


@virtual
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("delay", [0.0, 20.0])
async def test_a_batch_that_is_given_back_comes_again_before_what_is_later(
    emulator: MemoryEmulator, *, streaming: bool, exactly_once: bool, delay: float
) -> None:
    """H3: for each key, though batches are not recognised."""
    emulator.create_subscription(
        WORKER,
        TOPIC,
        enable_message_ordering=True,
        enable_exactly_once_delivery=exactly_once,
    )
    rows = Rows(nack=(1, 4, 5), delay=delay)
    for number in range(500):
        emulator.publish(TOPIC, b"%d" % number, ordering_key=f"key {number % 3}")
    transport = Tapped(emulator.transport(), streaming=streaming, lag=0.01)
    async with client_of(emulator, transport) as client:
        live = client.subscribe_arrow(
            WORKER, rows, max_messages=40, flow_control=FlowControl(max_messages=200)
        )
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)
        assert live.health().leased == 0

    for key in range(3):
        assert rows.of(f"key {key}") == list(range(key, 500, 3))
    assert now() < 5 * (delay + 10)


@virtual
async def test_a_batch_whose_lease_ends_comes_again_before_what_is_later(
    emulator: MemoryEmulator,
) -> None:
    """H3: its callback goes on, and the next one waits for it."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    rows = Rows()
    slow = asyncio.Event()

    async def work(batch: ArrowBatch) -> None:
        if not slow.is_set():
            slow.set()
            await asyncio.sleep(100)
        await rows(batch)

    for number in range(300):
        emulator.publish(TOPIC, b"%d" % number, ordering_key=f"key {number % 3}")
    flow = FlowControl(max_messages=100, max_lease_duration=30)
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, work, max_messages=40, flow_control=flow)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    for key in range(3):
        everything = list(range(key, 300, 3))
        seen = rows.of(f"key {key}")
        late = seen[:-100]  # the rows of the first batch, which was acked too late
        assert late
        assert seen == [*everything[: len(late)], *everything]


@virtual
async def test_a_subscription_that_begins_anew_can_be_stopped(emulator: MemoryEmulator) -> None:
    """H9: while it waits for what was given back."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    for number in range(300):
        emulator.publish(TOPIC, b"%d" % number, ordering_key=f"key {number % 3}")
    rows = Rows(nack=(1,), delay=500)
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, rows, max_messages=40)
        await asyncio.sleep(10)
        live.stop()
        await live
        assert now() < 12

    assert rows.acked == []


@virtual
async def test_a_subscription_that_ends_does_not_begin_anew(emulator: MemoryEmulator) -> None:
    """H9: while it waits for a callback, what was given back may come to others."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    publish(emulator, 1, key="a")

    async def work(_: ArrowBatch) -> None:
        await asyncio.sleep(HOUR)

    transport = Tapped(emulator.transport())
    flow = FlowControl(max_lease_duration=30)
    async with client_of(emulator, transport) as client:
        live = client.subscribe_arrow(WORKER, work, flow_control=flow, on_lease_expiry="drop")
        await asyncio.sleep(35)
        opened = len(transport.opened)
        assert emulator.streams(WORKER) == []
        live.stop()
        await live

    assert now() > 60
    assert len(transport.opened) == opened


@virtual
async def test_what_is_long_on_its_way_is_read_before_reading_begins_anew(
    emulator: MemoryEmulator,
) -> None:
    """H3: silence tells nothing; the server ends the stream behind all that it has sent."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    rows = Rows(nack=(2,))
    transport = Tapped(emulator.transport(), lag=0.6)
    async with client_of(emulator, transport) as client:
        client.subscribe_arrow(WORKER, rows)
        for number in range(300):
            emulator.publish(TOPIC, b"%d" % number, ordering_key="a")
            await asyncio.sleep(0.01)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert rows.of("a") == list(range(300))


def ordered_exactly_once(emulator: MemoryEmulator, *rows: Row) -> None:
    emulator.create_subscription(
        WORKER, TOPIC, enable_message_ordering=True, enable_exactly_once_delivery=True
    )
    for key, number in rows:
        emulator.publish(TOPIC, b"%d" % number, ordering_key=key)


@virtual
@pytest.mark.parametrize("lost", [1, 2])
async def test_a_batch_of_which_rows_are_lost_goes_back_as_a_whole(
    emulator: MemoryEmulator, lost: int
) -> None:
    """H3 H4: the other rows need not wait for their deadline, and are not overtaken."""
    ordered_exactly_once(emulator, ("a", 0), ("b", 0), ("b", 1))
    rows = Rows()
    begun = asyncio.Event()

    async def work(batch: ArrowBatch) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(5)
            emulator.faults.fail_confirmations(WORKER, times=lost, permanent=True)
            await asyncio.sleep(40)
            emulator.publish(TOPIC, b"2", ordering_key="b")
            batch.ack()  # in vain
            return
        await rows(batch)

    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, work)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert (rows.of("a"), rows.of("b")) == ([0], [0, 1, 2])
    assert now() < 50


@virtual
async def test_a_batch_of_which_a_receipt_is_refused_goes_back_as_a_whole(
    emulator: MemoryEmulator,
) -> None:
    """H3: where order matters; what is later of its key does not go on without it."""
    ordered_exactly_once(emulator, ("a", 0), ("a", 1), ("b", 0))
    emulator.faults.fail_confirmations(WORKER, permanent=True)
    rows = Rows()
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, rows)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert (rows.of("a"), rows.of("b")) == ([0, 1], [0])
    assert now() < 10


@virtual
async def test_acks_that_cannot_be_sent_do_not_keep_reading_from_beginning_anew(
    emulator: MemoryEmulator,
) -> None:
    """H1: only what was given back must be known to the server."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=100)
    rows = Rows(nack=(2,))
    async with client_of(emulator) as client:
        client.subscribe_arrow(WORKER, rows)
        publish(emulator, 1, key="a")
        await asyncio.sleep(1)
        emulator.publish(TOPIC, b"7", ordering_key="b")
        await asyncio.sleep(2)
        assert rows.of("b") == [7]


@virtual
async def test_a_response_that_cannot_be_read_costs_no_other_of_a_rush(
    emulator: MemoryEmulator,
) -> None:
    site, seen, events = RushSite(), list[str](), Events()

    async def note(batch: ArrowBatch) -> None:
        seen.extend(batch.records.column("message_id").to_pylist())
        batch.ack()

    async with SubscriberClient(project=emulator.project, transport=site) as client:
        live = client.subscribe_arrow("worker", note, on_event=events)
        await live.ready()
        await rush(site)
        site.send()
        site.send(UNREADABLE)
        site.send()
        await asyncio.sleep(1)
        live.stop()
        await live

    assert seen == [f"id of {ack_id}" for ack_id in site.sent]
    (warning,) = events.of("warning")
    assert "cannot be read" in warning.detail

"""How much is held at once: the seed's bounds, whatever the server sends."""

from __future__ import annotations

import asyncio
import itertools
import math
import random

import pytest

from pubsub_aio import ConfigError, FlowControl, Message, StreamPolicy, Subscription
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    Events,
    Tapped,
    client_of,
    now,
    publish,
    virtual,
)


async def hold(_: Message) -> None:
    """Return without settling it."""


class Peaks:
    """A callback that measures how much is held unsettled, and settles at random times."""

    def __init__(self, seed: int, *, least: float = 0.0, most: float = 30.0) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.least, self.most = least, most
        self.held = self.held_bytes = 0
        self.peak = self.peak_bytes = self.largest = 0
        self.peak_received = 0
        self.live: Subscription | None = None
        self.acked: set[bytes] = set()

    async def __call__(self, message: Message) -> None:
        self.held += 1
        self.held_bytes += message.size
        self.peak = max(self.peak, self.held)
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        self.largest = max(self.largest, message.size)
        self._look()
        if self.random.random() < 0.8:
            await asyncio.sleep(self.random.uniform(self.least, self.most))
        self.held -= 1
        self.held_bytes -= message.size
        match self.random.randrange(10):
            case 0:
                message.nack()
            case 1:
                message.nack(delay=self.random.choice([1, 15]))
            case 2:
                message.drop()
            case 3:
                raise ValueError
            case _:
                message.ack()
                self.acked.add(message.data)

    def _look(self) -> None:
        assert self.live
        health = self.live.health()
        self.peak = max(self.peak, health.leased)
        self.peak_bytes = max(self.peak_bytes, health.leased_bytes)
        self.peak_received = max(self.peak_received, health.received)


FEW_RESPONSES = 1_000
"""Messages that may wait to be leased, however little may be leased."""

FLOWS = [
    FlowControl(max_messages=1, resume_threshold=0.8, max_request_batch_size=1),
    FlowControl(max_messages=10, resume_threshold=0.8, max_request_batch_size=5),
    FlowControl(max_messages=7, resume_threshold=0.33, max_request_batch_size=3),
    FlowControl(max_messages=20, resume_threshold=1.0, max_request_batch_size=1),
    FlowControl(max_messages=5, resume_threshold=0.5, max_request_batch_size=50),
    FlowControl(max_messages=50, max_bytes=3_000, max_request_batch_size=4),
    FlowControl(max_messages=1_000, max_bytes=1, max_request_batch_size=2),
]


@pytest.mark.parametrize("limits", [True, False], ids=["obedient", "deaf"])
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("flow", FLOWS, ids=str)
@virtual
async def test_peaks_hold_under_random_load(
    emulator: MemoryEmulator, flow: FlowControl, streams: int, limits: bool
) -> None:
    """G15, G16, G17, G18: by count and by bytes, on a server that ignores the limits too."""
    rng = random.Random(7)  # noqa: S311
    emulator.create_subscription(WORKER, TOPIC)
    peaks = Peaks(3, most=3.0)
    transport = Tapped(emulator.transport(), limits=limits)
    async with client_of(emulator, transport) as client:
        peaks.live = client.subscribe(
            WORKER, peaks, flow_control=flow, streams=StreamPolicy(streams=streams)
        )
        sent = set()
        for number in range(30):
            data = str(number).encode().ljust(rng.choice([10, 100, 500]), b".")
            emulator.publish(TOPIC, data)
            sent.add(data)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0, 5))
            if rng.random() < 0.05:
                emulator.faults.cut_streams()
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=5 * HOUR)

    assert peaks.acked == sent
    assert peaks.peak <= flow.max_messages * flow.resume_threshold + flow.max_request_batch_size
    assert peaks.peak_bytes <= (
        flow.max_bytes * flow.resume_threshold + flow.max_request_batch_size * peaks.largest
    )
    assert peaks.peak_received <= max(flow.max_outstanding_messages, FEW_RESPONSES)


@virtual
async def test_a_byte_limit_stops_the_leasing_before_the_count_does(
    emulator: MemoryEmulator,
) -> None:
    """G17, G18: the lesser of the two limits rules."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100, size=1_000)
    calls = Calls(hold)
    flow = FlowControl(max_messages=1_000, max_bytes=10_000, max_request_batch_size=1)
    async with client_of(emulator, Tapped(emulator.transport(), limits=False)) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(2)
        size = calls.messages[0].size
        assert len(calls.began) == math.ceil(8_000 / size)
        assert live.health().leased_bytes == size * len(calls.began)
        assert live.health().counts["received"] <= 200  # it has stopped to read
        assert "as much is leased as the flow control allows" in live.health().reasons
        assert live.health().ok
        calls.messages[0].ack()
        await asyncio.sleep(1)
        assert len(calls.began) == math.ceil(8_000 / size) + 1


@virtual
async def test_a_message_larger_than_the_limit_is_leased_alone(emulator: MemoryEmulator) -> None:
    """G15: strictly less than the threshold; with nothing held there is room for one."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 4, size=50_000)

    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        message.ack()

    calls = Calls(work)
    flow = FlowControl(max_bytes=10_000, max_request_batch_size=1)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(MINUTE)

    assert (len(calls.ended), calls.peak) == (4, 1)


@virtual
async def test_the_server_is_told_the_limits(emulator: MemoryEmulator) -> None:
    """R5: the first request of a stream uploads them; several streams share them."""
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport())
    flow = FlowControl(max_messages=101, max_bytes=5_000, max_request_batch_size=10)
    async with client_of(emulator, transport) as client:
        await client.subscribe(WORKER, hold, flow_control=flow).ready()
        (one,) = (first for _, first in transport.opened)
        shared = client.subscribe(WORKER, hold, flow_control=flow, streams=StreamPolicy(streams=3))
        await shared.ready()
        await asyncio.sleep(1)
        several = [first for _, first in transport.opened[1:]]

    assert (one.max_outstanding_messages, one.max_outstanding_bytes) == (90, 5_000)
    assert (one.protocol_version, one.stream_ack_deadline_seconds) == (1, 10)
    assert [first.max_outstanding_messages for first in several] == [30] * 3
    assert [first.max_outstanding_bytes for first in several] == [1_667] * 3


@virtual
async def test_what_is_received_is_bounded_on_a_server_that_ignores_the_limits(
    emulator: MemoryEmulator,
) -> None:
    """Past the bound the client stops reading, and gives back what it cannot keep."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5_000, size=10)
    calls = Calls(hold)
    flow = FlowControl(max_messages=10, max_request_batch_size=2)
    async with client_of(emulator, Tapped(emulator.transport(), limits=False)) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        peak = 0
        for _ in range(300):
            await asyncio.sleep(0.1)
            peak = max(peak, live.health().received)
        assert 0 < peak <= FEW_RESPONSES
        assert len(calls.began) <= 10
        # It reads no further: what is on the way stays there.
        assert live.health().counts["received"] < 3_000
        calls.do = None
        for message in calls.messages:
            message.ack()
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert len(set(calls.data)) == 5_000


@virtual
async def test_received_bytes_are_bounded_too(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100, size=10_000)
    calls = Calls(hold)
    flow = FlowControl(max_messages=1_000, max_bytes=100_000, max_request_batch_size=1)
    async with client_of(emulator, Tapped(emulator.transport(), limits=False)) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        for _ in range(30):
            await asyncio.sleep(0.1)
            assert live.health().received <= 10
        assert live.health().counts["received"] <= 200
        calls.do = None
        for message in calls.messages:
            message.ack()
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert len(set(calls.data)) == 100


# Changes


async def work_a_second(message: Message) -> None:
    await asyncio.sleep(1)
    message.ack()


@virtual
async def test_more_may_be_held_at_once_after_a_change(emulator: MemoryEmulator) -> None:
    """R4: the stream is reopened by the same client id, and concurrency grows."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    calls, events = Calls(work_a_second), Events()
    small = FlowControl(max_messages=2, resume_threshold=1, max_request_batch_size=1)
    large = FlowControl(max_messages=20, resume_threshold=1, max_request_batch_size=1)
    transport = Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls, flow_control=small, on_event=events)
        await asyncio.sleep(10)
        assert calls.peak == 2
        (before,) = emulator.streams(WORKER)
        live.flow_control = large
        assert live.flow_control is large
        await asyncio.sleep(10)
        (after,) = emulator.streams(WORKER)
        assert calls.peak == 20
        assert live.settings["max_messages"].value == 20
        assert live.settings["max_messages"].source == "changed"

    assert before.client_id == after.client_id
    assert after.opened > before.opened
    assert [first.max_outstanding_messages for _, first in transport.opened] == [3, 21]
    assert "reconnecting" not in events.states


@virtual
async def test_less_may_be_held_at_once_after_a_change(emulator: MemoryEmulator) -> None:
    """R4: what is held already is worked on to its end."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    calls = Calls(work_a_second)
    large = FlowControl(max_messages=20, resume_threshold=1, max_request_batch_size=1)
    small = FlowControl(max_messages=2, resume_threshold=1, max_request_batch_size=1)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=large)
        await asyncio.sleep(2.5)
        assert calls.peak == 20
        live.flow_control = small
        await asyncio.sleep(1)
        calls.peak = 0
        await asyncio.sleep(10)
        assert 1 <= calls.peak <= 3
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert len(calls.data) == len(set(calls.data)) == 100


@pytest.mark.parametrize("half_close", [True, False])
@virtual
async def test_what_is_on_its_way_during_a_change_comes_at_once(
    emulator: MemoryEmulator, half_close: bool
) -> None:
    """And not when its deadline has passed, as what is in a stream that is cut."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    calls = Calls()
    way = Tapped(emulator.transport(), lag=0.1, half_close=half_close)
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        await asyncio.sleep(2)
        publish(emulator, 5)
        await asyncio.sleep(0.01)
        live.flow_control = FlowControl(max_messages=10)
        changed_at = now()
        await asyncio.sleep(2)

    assert len(calls.began) == 5
    opened_at, request = way.opened[-1]
    assert request.max_outstanding_messages == 108
    assert opened_at - changed_at < 1


@virtual
async def test_a_change_that_does_not_concern_the_server_reopens_nothing(
    emulator: MemoryEmulator,
) -> None:
    """A shorter `max_lease_duration` holds for what is leased from then on."""
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls(hold)
    transport = Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        live.flow_control = FlowControl(max_lease_duration=20)
        publish(emulator, 1)
        await asyncio.sleep(30)

    assert len(calls.began) == 2
    assert len(transport.opened) == 1


@virtual
async def test_changes_under_load_lose_nothing(emulator: MemoryEmulator) -> None:
    """Many changes, before the subscription has begun and while its streams are down, too."""
    rng = random.Random(1)  # noqa: S311
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls(work_a_second)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        live.flow_control = FLOWS[1]
        for number in range(200):
            publish(emulator, 3)
            if number % 5 == 0:
                live.flow_control = rng.choice(FLOWS[:5])
            if number % 17 == 0:
                emulator.faults.cut_streams()
                live.flow_control = rng.choice(FLOWS[:5])
            await asyncio.sleep(rng.uniform(0, 1))
        live.flow_control = FlowControl()
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)
        assert live.state == "running"

    assert len(calls.ended) >= 600


# Pulling, where there are no streams


@virtual
async def test_where_there_are_no_streams_messages_are_pulled_within_the_limits(
    emulator: MemoryEmulator,
) -> None:
    """R23, R28: each pull asks for no more than there is room for."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 60)
    calls = Calls(work_a_second)
    flow = FlowControl(max_messages=10, max_request_batch_size=2)
    transport = Tapped(emulator.transport(), streaming=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(MINUTE)
        assert live.health().ok

    assert len(calls.data) == len(set(calls.data)) == 60
    assert 8 <= calls.peak <= 10
    assert not transport.opened


@virtual
async def test_a_pull_refused_for_load_is_repeated_after_20_ms(emulator: MemoryEmulator) -> None:
    """R24: RESOURCE_EXHAUSTED on a pull."""
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport(), streaming=False)
    emulator.faults.fail("Pull", "RESOURCE_EXHAUSTED", times=5)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(1)
        times = transport.times("Pull")
        assert live.state != "reconnecting"

    assert len(times) == 6
    assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([0.02] * 5, abs=0.002)


@virtual
async def test_while_the_cache_is_full_no_pull_is_made(emulator: MemoryEmulator) -> None:
    """R26: it is looked again after a second, or as soon as there is room."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    calls = Calls(hold)
    flow = FlowControl(max_messages=5, resume_threshold=1, max_request_batch_size=1)
    transport = Tapped(emulator.transport(), streaming=False)
    async with client_of(emulator, transport) as client:
        client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(10)
        before = len(transport.times("Pull"))
        await asyncio.sleep(10 * MINUTE)
        assert len(transport.times("Pull")) == before
        held = len(calls.began)
        assert held in (5, 6)
        for message in calls.messages[:3]:
            message.ack()
        await asyncio.sleep(1.1)
        assert len(calls.began) > held


@virtual
async def test_room_that_nobody_told_of_is_found_within_a_second(
    emulator: MemoryEmulator,
) -> None:
    """R26: the limits are raised, and nothing else happens."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    calls = Calls(hold)
    small = FlowControl(max_messages=5, resume_threshold=1, max_request_batch_size=1)
    transport = Tapped(emulator.transport(), streaming=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls, flow_control=small)
        await asyncio.sleep(2.5)
        assert len(calls.began) <= 6
        live.flow_control = FlowControl(max_messages=100)
        await asyncio.sleep(1.1)
        assert len(calls.began) == 20


@virtual
async def test_pulls_that_fail_are_repeated_with_growing_delays(emulator: MemoryEmulator) -> None:
    """R27: the way streams are reopened."""
    emulator.create_subscription(WORKER, TOPIC)
    calls, events = Calls(), Events()
    transport = Tapped(emulator.transport(), streaming=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        publish(emulator, 1)
        await asyncio.sleep(1)
        assert len(calls.began) == 1
        emulator.faults.fail("Pull", "UNAVAILABLE", times=8)
        publish(emulator, 1)
        await asyncio.sleep(2 * MINUTE)
        assert live.state == "running"

    assert len(calls.began) == 2
    times = [time for time in transport.times("Pull") if time > 0.5][:9]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    for number, gap in enumerate(gaps):
        assert 0.05 * 2**number <= gap <= 0.1 * 2**number
    assert events.states[:3] == ["running", "reconnecting", "running"]


@virtual
async def test_what_is_acked_is_no_longer_counted(emulator: MemoryEmulator) -> None:
    """G15: at once, for whoever asks."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls := Calls(lambda _: asyncio.sleep(HOUR)))
        await asyncio.sleep(1)
        assert (live.health().leased, live.health().leased_bytes > 0) == (3, True)
        for message in calls.messages:
            message.ack()
        assert (live.health().leased, live.health().leased_bytes) == (0, 0)


@virtual
async def test_limits_that_are_none_are_refused_and_change_nothing(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        before = live.flow_control
        with pytest.raises(ConfigError, match="flow_control must be a FlowControl, not None"):
            live.flow_control = None  # type: ignore[assignment]

        assert live.flow_control is before

"""A stream that takes no requests, takes its time, or is not ended by the server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from pubsub_aio import FlowControl, Message, ReconnectError, StreamPolicy
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
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

POLICY = StreamPolicy()


def nacking_first(delay: float) -> Calls:
    """A callback that gives the first message back, to come again after that, and acks the rest."""

    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            message.nack(delay=delay)
        else:
            message.ack()

    calls = Calls(work)
    return calls


@virtual
async def test_a_stream_that_takes_no_ping_is_dead(emulator: MemoryEmulator) -> None:
    """The connection takes no more bytes, and nobody says so."""
    emulator.create_subscription(WORKER, TOPIC)
    way, events, calls = Tapped(emulator.transport()), Events(), Calls()
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await live.ready()
        await asyncio.sleep(2)
        way.write_lag, way.lag = HOUR, HOUR
        publish(emulator, 3)
        await asyncio.sleep(POLICY.ping_interval + POLICY.ping_timeout)
        way.write_lag, way.lag = 0, 0
        await asyncio.sleep(POLICY.ping_timeout + 11)  # and the deadline of what was in it

        assert "took no request for 15 s" in events.of("state")[1].detail
        assert sorted(calls.data) == [b"0", b"1", b"2"]
        assert live.health().ok


@virtual
async def test_streams_that_never_take_their_first_request_use_up_the_budget(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    way = Tapped(emulator.transport())
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, Calls())
        await live.ready()
        way.write_lag = HOUR
        emulator.faults.cut_connections()
        began = now()
        with pytest.raises(ReconnectError) as failed:
            await live

        assert now() - began < POLICY.reconnect_budget + 3 * POLICY.max_delay
        assert "took no request for 15 s" in str(failed.value.__cause__)


@virtual
async def test_nothing_is_written_to_a_stream_before_its_first_request(
    emulator: MemoryEmulator,
) -> None:
    """A nack where order matters has the stream pinged, and just then it is opened anew."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    way, calls = Tapped(emulator.transport()), nacking_first(2)
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        await asyncio.sleep(1.5)
        publish(emulator, 3, key="k")
        await asyncio.sleep(0.5)
        way.write_lag = 4
        emulator.faults.cut_connections()
        await asyncio.sleep(60)

        assert [one for one in calls.data if one != b"k0"] == [b"k1", b"k2"]
        assert len(way.opened) == 2


@pytest.mark.parametrize("pings", [True, False])
@virtual
async def test_new_limits_reach_a_server_that_does_not_end_a_stream(
    emulator: MemoryEmulator, pings: bool
) -> None:
    """However steadily messages come."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    way, calls = Tapped(emulator.transport(), half_close=False, pings=pings), Calls()
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        await asyncio.sleep(2)
        live.flow_control = FlowControl(max_messages=10)
        changed_at = now()
        for _ in range(100):
            publish(emulator, 1, key="k")
            await asyncio.sleep(1)

        opened_at, request = way.opened[-1]
        assert request.max_outstanding_messages == live.flow_control.max_outstanding_messages
        assert opened_at - changed_at <= 5 * POLICY.ping_timeout
        await asyncio.sleep(60)
        assert len(calls.ended) >= 100


@virtual
async def test_a_server_that_answers_no_more_pings_holds_up_no_key(
    emulator: MemoryEmulator,
) -> None:
    """What was given back and never comes again is waited for until a ping is answered."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    way, calls = Tapped(emulator.transport()), nacking_first(5)
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        await asyncio.sleep(2)
        way.pongs = False
        emulator.publish(TOPIC, b"nacked", ordering_key="k")
        await asyncio.sleep(1)
        await client.seek(WORKER, datetime.now(UTC) + timedelta(days=365))
        emulator.publish(TOPIC, b"next", ordering_key="k")
        for _ in range(200):  # never silent, or the stream would count as dead
            publish(emulator, 1, key="other")
            await asyncio.sleep(1)

        assert [one for one in calls.data if one in (b"nacked", b"next")] == [b"nacked", b"next"]


@virtual
async def test_a_stream_that_was_not_listened_to_is_not_silent(emulator: MemoryEmulator) -> None:
    """Reading begins again just before it is asked whether anything was heard: then all is read."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    way = Tapped(emulator.transport(), limits=False, lag=0.02)
    go_on = asyncio.Event()

    async def wait(message: Message) -> None:
        await go_on.wait()
        message.ack()

    def flow(most: int) -> FlowControl:
        return FlowControl(max_messages=most, min_duration_per_lease_extension=300)

    calls = Calls(wait)
    async with client_of(emulator, way) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow(1))
        await live.ready()
        await asyncio.sleep(2)
        for number in range(3_000):
            emulator.publish(TOPIC, b"%04d" % number, ordering_key="k")
            await asyncio.sleep(0.0001)
        await asyncio.sleep(20)
        assert any("reading is paused" in why for why in live.health().reasons)
        live.flow_control = flow(2)
        await asyncio.sleep(POLICY.ping_timeout - 0.01)
        go_on.set()
        await asyncio.sleep(10 * POLICY.ping_timeout)

    assert calls.data == [b"%04d" % number for number in range(3_000)]

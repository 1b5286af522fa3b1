"""Connections that are lost without a word: they are noticed, and others are made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcStream, GrpcTransport
from pubsub_aio._wire.keepalive import Keepalive
from pubsub_aio.emulator import Emulator, VirtualClock
from pubsub_aio.errors import ServiceError, UnavailableError
from tests.wire.tcp import Way, silencing

WITHIN = 30.0
SUBSCRIPTION = "projects/p/subscriptions/worker"
GET = schema.GetSubscriptionRequest(subscription=SUBSCRIPTION).SerializeToString()
PULL = schema.PullRequest(subscription=SUBSCRIPTION, max_messages=1).SerializeToString()
OPENING = schema.StreamingPullRequest(
    subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10
).SerializeToString()
REQUESTS = {"GetSubscription": GET, "Pull": PULL}

T = TypeVar("T")

SOON, NEVER = 0.1, 3_600.0


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(clock=VirtualClock(), project="p") as emulator:
        emulator.create_subscription("worker", "topic")
        yield emulator


@pytest.fixture
async def way(emulator: Emulator) -> AsyncIterator[Way]:
    async with silencing(emulator.address) as way:
        yield way


@contextlib.asynccontextmanager
async def opened(
    way: Way, *, answers: float = SOON, waits: float = SOON
) -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport(
        Connection(target=way.address, tls=False, source="test"),
        keepalive=Keepalive(answers=answers, waits=waits, timeout=1.0),
    )
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


async def stream_of(transport: GrpcTransport) -> GrpcStream:
    """A stream over which something came."""
    stream = transport.streaming_pull()
    async with asyncio.timeout(WITHIN):
        await stream.write(OPENING)
        await stream.read()
    return stream


async def at_last(attempt: Callable[[], Awaitable[T]]) -> T:
    """What comes of it in the end: while gRPC closes a connection, it may still be used."""
    async with asyncio.timeout(WITHIN):
        while True:
            with contextlib.suppress(UnavailableError):
                return await attempt()


@pytest.mark.parametrize("rpc", REQUESTS)
async def test_what_waits_on_a_silent_connection_fails_and_what_follows_takes_another(
    emulator: Emulator, way: Way, rpc: str
) -> None:
    async with opened(way) as transport:
        for data in (b"a", b"b"):
            emulator.publish("topic", data)
        assert await transport.call(rpc, REQUESTS[rpc], timeout=WITHIN)
        way.go_silent()
        with pytest.raises(UnavailableError) as caught:
            await transport.call(rpc, REQUESTS[rpc], timeout=WITHIN)
        assert await at_last(lambda: transport.call(rpc, REQUESTS[rpc], timeout=WITHIN))

    assert caught.value.code == "UNAVAILABLE"  # sooner than its time was over
    assert way.opened == 2


async def test_a_stream_over_a_silent_connection_ends_and_the_next_takes_another(
    emulator: Emulator, way: Way
) -> None:
    async with opened(way) as transport:
        stream = await stream_of(transport)
        way.go_silent()
        emulator.publish("topic", b"a")
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(stream.read(), WITHIN)
        await at_last(lambda: stream_of(transport))

    assert way.opened == 2


async def test_calls_that_are_given_up_one_after_another_do_not_keep_a_silent_connection(
    way: Way,
) -> None:
    """A publisher gives up sooner than a ping may take."""
    async with opened(way) as transport, asyncio.timeout(WITHIN):
        await transport.call("GetSubscription", GET, timeout=WITHIN)
        way.go_silent()
        while way.opened == 1:
            with contextlib.suppress(TimeoutError, ServiceError):
                async with asyncio.timeout(SOON):
                    await transport.call("GetSubscription", GET, timeout=WITHIN)
        assert await at_last(lambda: transport.call("GetSubscription", GET, timeout=WITHIN))


async def test_a_server_that_is_slow_keeps_its_connection(emulator: Emulator, way: Way) -> None:
    """It answers pings, as often as it is asked."""
    emulator.faults.delay("GetSubscription", 60)
    async with opened(way) as transport, asyncio.timeout(WITHIN):
        calling = asyncio.create_task(transport.call("GetSubscription", GET, timeout=WITHIN))
        await way.pinged(2)
        await emulator.advance(60)
        assert await calling

    assert way.opened == 1


async def test_a_stream_that_has_nothing_to_say_is_not_pinged_as_often_as_a_call(
    way: Way,
) -> None:
    async with opened(way, waits=NEVER) as transport, asyncio.timeout(WITHIN):
        stream = await stream_of(transport)
        reading = asyncio.create_task(stream.read())
        await transport.call("GetSubscription", GET, timeout=WITHIN)
        way.go_silent()
        with pytest.raises(UnavailableError):
            await transport.call("GetSubscription", GET, timeout=WITHIN)
        assert not reading.done()
        stream.cancel()
        with pytest.raises(ServiceError):
            await reading


@pytest.mark.parametrize(("tls", "waits"), [(True, 30_000), (False, 330_000)])
def test_how_often_a_server_is_pinged(*, tls: bool, waits: int) -> None:
    """Google's clients ping the service every 30 seconds; an emulator need not allow that."""
    transport = GrpcTransport(Connection(target="t:1", tls=tls, source="test"))
    keepalive = transport.keepalive

    assert dict(keepalive.where_answered()) == {
        "grpc.keepalive_time_ms": 10_000,
        "grpc.http2.ping_timeout_ms": 30_000,
    }
    assert dict(keepalive.where_waiting()) == {
        "grpc.keepalive_time_ms": waits,
        "grpc.http2.ping_timeout_ms": 30_000,
    }

"""`advance`: what falls due on the virtual clock happens at once, in order, and not before."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import grpc
import grpc.aio
import pytest
from google.api_core.exceptions import NotFound
from google.pubsub_v1 import (
    PullRequest,
    PullResponse,
    StreamingPullRequest,
    StreamingPullResponse,
    SubscriberAsyncClient,
)
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from pubsub_aio.emulator import Emulator, EmulatorThread, SystemClock, VirtualClock

MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR

Call = grpc.aio.StreamStreamCall[StreamingPullRequest, StreamingPullResponse]


@pytest.fixture
def subscriber(channel: grpc.aio.Channel) -> SubscriberAsyncClient:
    return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))


async def pull_now(channel: grpc.aio.Channel, subscription: str) -> list[str]:
    """What can be delivered at this moment: its data."""
    pull = channel.unary_unary(
        "/google.pubsub.v1.Subscriber/Pull",
        request_serializer=PullRequest.serialize,
        response_deserializer=PullResponse.deserialize,
    )
    request = PullRequest(subscription=subscription, max_messages=100, return_immediately=True)
    response: PullResponse = await pull(request)
    return [received.message.data.decode() for received in response.received_messages]


async def open_stream(
    channel: grpc.aio.Channel, subscription: str, *, ack_deadline: int = 10
) -> Call:
    """Open a stream, and read its first response."""
    stream = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=StreamingPullRequest.serialize,
        response_deserializer=StreamingPullResponse.deserialize,
    )
    call = stream()
    await call.write(
        StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=ack_deadline)
    )
    await call.read()
    return call


async def ending(call: Call) -> grpc.StatusCode:
    """Read a stream to its end: how it ended."""
    with suppress(grpc.RpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    return await call.code()


def delivery_times(emulator: Emulator, message_id: str) -> list[float]:
    """When a message was delivered, in seconds after it was published."""
    message = emulator.message(message_id)
    return [(d.time - message.publish_time).total_seconds() for d in message.deliveries]


async def test_time_stands_still_until_it_is_moved(emulator: Emulator) -> None:
    emulator.create_topic("orders")
    for seconds in (0, 1.5, HOUR):
        await emulator.advance(seconds)
        emulator.publish("orders", b"a")
    start = datetime(2026, 1, 1, tzinfo=UTC)

    passed = [message.publish_time - start for message in emulator.messages()]
    assert passed == [timedelta(seconds=seconds) for seconds in (0, 1.5, HOUR + 1.5)]


async def test_virtual_time_begins_when_it_is_told_to() -> None:
    noon = datetime(2001, 2, 3, 12, tzinfo=UTC)
    async with Emulator(clock=VirtualClock(noon.timestamp())) as emulator:
        emulator.create_topic("orders")
        emulator.publish("orders", b"a")

        assert emulator.messages()[0].publish_time == noon


async def test_nothing_happens_before_its_time(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    emulator.publish("orders", b"a")
    assert await pull_now(channel, worker) == ["a"]
    await emulator.advance(9.999)
    assert (emulator.outstanding(worker), await pull_now(channel, worker)) == (1, [])
    await emulator.advance(0.001)

    assert (emulator.outstanding(worker), await pull_now(channel, worker)) == (0, ["a"])


async def test_message_is_redelivered_at_each_deadline_on_the_way(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    call = await open_stream(channel, worker, ack_deadline=10)
    message_id = emulator.publish("orders", b"a")
    await emulator.advance(35)

    assert delivery_times(emulator, message_id) == [0, 10, 20, 30]
    for _ in range(4):
        response = await call.read()
        assert isinstance(response, StreamingPullResponse)
        assert [received.message.data for received in response.received_messages] == [b"a"]
    call.cancel()


async def test_steps_of_several_subscriptions_happen_in_the_order_of_their_times(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    calls = [
        await open_stream(
            channel, emulator.create_subscription(f"every-{s}", "orders"), ack_deadline=s
        )
        for s in (10, 15)
    ]
    message_id = emulator.publish("orders", b"a")
    await emulator.advance(31)

    steps = [
        (d.time.minute * 60 + d.time.second, d.subscription.rpartition("-")[2])
        for d in emulator.message(message_id).deliveries
    ]
    assert [step for step in steps if step[0] not in (0, 30)] == [
        (10, "10"),
        (15, "15"),
        (20, "10"),
    ]
    assert sorted(step for step in steps if step[0] in (0, 30)) == [
        (0, "10"),
        (0, "15"),
        (30, "10"),
        (30, "15"),
    ]
    for call in calls:
        call.cancel()


async def test_retry_delays_pass(emulator: Emulator, channel: grpc.aio.Channel) -> None:
    worker = emulator.create_subscription(
        "worker",
        "orders",
        retry_policy={
            "minimum_backoff": timedelta(seconds=100),
            "maximum_backoff": timedelta(seconds=300),
        },
    )
    call = await open_stream(channel, worker, ack_deadline=10)
    message_id = emulator.publish("orders", b"a")
    await emulator.advance(20 * MINUTE)
    call.cancel()

    times = delivery_times(emulator, message_id)
    waits = [later - earlier - 10 for earlier, later in pairwise(times)]
    assert waits[0] == 100
    assert waits == sorted(waits)
    assert waits[-1] == 300


async def test_retained_messages_age_out(emulator: Emulator, channel: grpc.aio.Channel) -> None:
    worker = emulator.create_subscription(
        "worker", "orders", message_retention_duration=timedelta(minutes=10)
    )
    emulator.publish("orders", b"old")
    await emulator.advance(9 * MINUTE)
    emulator.publish("orders", b"new")
    assert emulator.backlog(worker) == 2
    await emulator.advance(2 * MINUTE)

    assert emulator.backlog(worker) == 1
    assert await pull_now(channel, worker) == ["new"]


async def test_snapshot_expires(emulator: Emulator, subscriber: SubscriberAsyncClient) -> None:
    worker = emulator.create_subscription("worker", "orders")
    name = f"projects/{emulator.project}/snapshots/then"
    await subscriber.create_snapshot(name=name, subscription=worker)
    await emulator.advance(7 * DAY - 1)
    assert (await subscriber.get_snapshot(snapshot=name)).name == name
    await emulator.advance(1)

    with pytest.raises(NotFound):
        await subscriber.get_snapshot(snapshot=name)


async def test_idle_subscription_expires_and_one_with_a_stream_does_not(
    emulator: Emulator, subscriber: SubscriberAsyncClient, channel: grpc.aio.Channel
) -> None:
    settings = {
        "expiration_policy": {"ttl": timedelta(days=1)},
        "message_retention_duration": timedelta(hours=1),
    }
    idle = emulator.create_subscription("idle", "orders", **settings)
    busy = emulator.create_subscription("busy", "orders", **settings)
    for _ in range(47):
        call = await open_stream(channel, busy)
        await emulator.advance(HOUR / 2)
        call.cancel()
    assert (await subscriber.get_subscription(subscription=idle)).name == idle
    await emulator.advance(HOUR / 2)

    with pytest.raises(NotFound):
        await subscriber.get_subscription(subscription=idle)
    assert (await subscriber.get_subscription(subscription=busy)).name == busy


async def test_stream_ends_after_30_minutes(emulator: Emulator, channel: grpc.aio.Channel) -> None:
    call = await open_stream(channel, emulator.create_subscription("worker", "orders"))
    await emulator.advance(30 * MINUTE - 1)
    assert len(emulator.streams()) == 1
    await emulator.advance(1)

    assert await ending(call) is grpc.StatusCode.UNAVAILABLE


async def test_stream_ends_after_the_life_that_was_chosen() -> None:
    async with (
        Emulator(clock=VirtualClock(), stream_life=90) as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        call = await open_stream(channel, emulator.create_subscription("worker", "orders"))
        await emulator.advance(90)

        assert await ending(call) is grpc.StatusCode.UNAVAILABLE


async def test_one_advance_lets_unlike_things_happen_in_order(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    worker = emulator.create_subscription(
        "worker", "orders", message_retention_duration=timedelta(minutes=10)
    )
    call = await open_stream(channel, worker, ack_deadline=200)
    message_id = emulator.publish("orders", b"a")
    await emulator.advance(31 * MINUTE)

    # It is delivered again until it is too old, long before the stream's life is over.
    assert delivery_times(emulator, message_id) == [0, 200, 400]
    assert emulator.backlog(worker) == 0
    assert await ending(call) is grpc.StatusCode.UNAVAILABLE


async def test_stalled_stream_does_not_hold_time_up(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    stalled = await open_stream(channel, emulator.create_subscription("stalled", "orders"))
    lively = await open_stream(channel, emulator.create_subscription("lively", "bills"))
    message_id = emulator.publish("bills", b"a")
    name = f"projects/{emulator.project}/subscriptions/stalled"
    with emulator.faults.stall_streams(name):
        emulator.publish("orders", b"b")
        await emulator.advance(30 * MINUTE - 1)

    assert delivery_times(emulator, message_id) == list(range(0, 1_800, 10))
    for call in (stalled, lively):
        call.cancel()


def test_emulator_in_a_thread_advances_too() -> None:
    with EmulatorThread(clock=VirtualClock()) as emulator:
        worker = emulator.create_subscription(
            "worker", "orders", message_retention_duration=timedelta(minutes=10)
        )
        emulator.publish("orders", b"a")
        emulator.advance(11 * MINUTE)

        assert emulator.backlog(worker) == 0


async def test_only_a_virtual_clock_can_be_advanced() -> None:
    async with Emulator(clock=SystemClock()) as emulator:
        with pytest.raises(TypeError, match=r"Emulator\(clock=VirtualClock\(\)\)"):
            await emulator.advance(1)


@pytest.mark.parametrize("seconds", [-0.001, float("nan")])
async def test_time_only_moves_forward(emulator: Emulator, seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        await emulator.advance(seconds)

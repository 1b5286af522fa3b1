"""`Emulator(quotas=...)`: what goes beyond a quota waits, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import ResourceExhausted
from google.cloud.pubsub_v1 import PublisherClient as GooglesPublisher
from google.cloud.pubsub_v1.types import BatchSettings
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.rpc import error_details_pb2

from pubsub_aio import Batching, Message, PublisherClient, SubscriberClient
from pubsub_aio._wire import schema
from pubsub_aio.emulator import EmulatorThread, Quotas, VirtualClock
from pubsub_aio.testing import MemoryEmulator, run
from tests.emulator.conformance.rest import Rest
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.streams import WITHIN, gather

MESSAGE = b"x" * 900  # which counts as 1,000


@pytest.fixture
def server(quotas: Quotas) -> Iterator[Server]:
    with EmulatorThread(clock=VirtualClock(), quotas=quotas) as emulator:
        server = Server("embedded", emulator.address, let_time_pass=emulator.advance)
        server.emulator = emulator  # type: ignore[attr-defined]
        yield server
        server.close()


def having(**quotas: float) -> pytest.MarkDecorator:
    """Set the quotas of a test."""
    return pytest.mark.parametrize("quotas", [Quotas(**quotas)])  # type: ignore[arg-type]


def told_to_wait(error: ResourceExhausted) -> float:
    """The RetryInfo of a refusal, in seconds."""
    waits = [d.retry_delay for d in error.details if isinstance(d, error_details_pb2.RetryInfo)]
    assert len(waits) == 1
    return float(waits[0].ToTimedelta().total_seconds())


@having(publisher_throughput=2_000)
def test_publishing_too_much_is_refused_until_it_was_told(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "x" * 900, "y" * 900)
    with pytest.raises(ResourceExhausted) as refused:
        server.publish(topic, "z" * 900)
    wait = told_to_wait(refused.value)
    assert wait == 0.5
    server.let_time_pass(wait - 0.01)
    with pytest.raises(ResourceExhausted):
        server.publish(topic, "z" * 900)
    server.let_time_pass(0.01)
    server.publish(topic, "z" * 900)

    assert {text[0] for text in texts(server.receive(subscription, 3))} == {"x", "y", "z"}


@having(publisher_throughput=1_000)
def test_refusal_has_the_details_of_the_service(server: Server) -> None:
    topic = server.create_topic()
    server.publish(topic, "a")
    with pytest.raises(ResourceExhausted) as refused:
        server.publish(topic, "b")
    (info,) = [d for d in refused.value.details if isinstance(d, error_details_pb2.ErrorInfo)]
    assert (info.reason, info.domain) == ("RATE_LIMIT_EXCEEDED", "googleapis.com")
    assert dict(info.metadata) == {
        "consumer": f"projects/{server.project}",
        "quota_limit_value": "60",  # kB a minute
        "quota_metric": "pubsub.googleapis.com/regionalpublisher",
        "service": "pubsub.googleapis.com",
    }
    assert "publisher_throughput is 1000" in str(refused.value.message)

    answer = Rest(server.address, timeout=WITHIN).post(
        f"{topic}:publish", {"messages": [{"data": "YQ=="}]}
    )
    error = answer.body["error"]
    assert isinstance(error, dict)
    assert (answer.status, error["status"]) == (429, "RESOURCE_EXHAUSTED")
    details: Any = error["details"]
    assert [d["@type"].rpartition(".")[2] for d in details] == ["ErrorInfo", "RetryInfo"]
    assert details[1]["retryDelay"] == "1s"


@having(publisher_throughput=1_000)
def test_message_larger_than_a_second_of_the_quota_passes_all_the_same(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "x" * 4_990)
    server.let_time_pass(4)
    with pytest.raises(ResourceExhausted) as refused:
        server.publish(topic, "y" * 4_990)
    server.let_time_pass(told_to_wait(refused.value))
    server.publish(topic, "y" * 4_990)

    assert len(server.receive(subscription, 2)) == 2


@having(pull_subscriber_throughput=1_000)
def test_pulling_too_much_is_refused_and_nothing_lost(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *("x" * 900 for _ in range(3)))
    assert len(server.pull(subscription)) == 3
    with pytest.raises(ResourceExhausted) as refused:
        server.pull(subscription)
    wait = told_to_wait(refused.value)
    assert wait == 3
    server.let_time_pass(20)

    assert len(server.pull(subscription)) == 3


@having(acknowledger_throughput=2_000)
def test_acknowledging_too_much_is_refused(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    (delivery,) = server.receive(subscription, 1)
    server.modify_ack_deadline(subscription, delivery, seconds=60)
    server.modify_ack_deadline(subscription, delivery, seconds=60)
    with pytest.raises(ResourceExhausted) as refused:
        server.acknowledge(subscription, delivery)
    server.let_time_pass(told_to_wait(refused.value))
    server.acknowledge(subscription, delivery)
    server.let_time_pass(100)

    assert server.pull_now(subscription) == []


@having(administrator_operations=3)
def test_operations_are_counted_and_messages_are_not(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.get_topic(topic)
    with pytest.raises(ResourceExhausted, match="'Administrator operations per minute'") as refused:
        server.get_topic(topic)
    server.publish(topic, "a")
    server.acknowledge(subscription, *server.receive(subscription, 1))

    assert told_to_wait(refused.value) == 20
    server.let_time_pass(20)
    assert server.get_topic(topic).name == topic


@having(streaming_pull_subscriber_throughput=2_000)
def test_stream_slows_down(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription, stream_ack_deadline_seconds=600) as stream:
        server.publish(topic, *("x" * 600 for _ in range(10)))
        first = stream.messages(1)
        server.let_time_pass(60)
        gather(10 - len(first), stream)
        assert stream.settle() == []
    emulator: EmulatorThread = server.emulator  # type: ignore[attr-defined]
    emulator.project = server.project
    times = sorted(
        delivery.time.timestamp()
        for message in emulator.messages(topic)
        for delivery in message.deliveries
    )

    assert len(times) == 10
    in_the_first_second = sum(time - times[0] < 1 for time in times)
    assert in_the_first_second <= 5
    assert 3 <= times[-1] - times[0] <= 6


@having(streaming_pull_subscriber_throughput=100)
def test_slowed_stream_still_ends_and_is_answered(server: Server) -> None:
    topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
    with server.stream(subscription, stream_ack_deadline_seconds=600) as stream:
        server.publish(topic, "x" * 5_000, "y")
        (large,) = stream.messages(1)
        stream.acknowledge(large)
        server.let_time_pass(1)
        assert stream.settle() == []
        server.let_time_pass(2 * 60)
        (small,) = gather(1, stream)
        stream.acknowledge(small)
        assert stream.settle() == []
        server.let_time_pass(30 * 60)
        assert stream.ending() == "UNAVAILABLE"

    assert server.pull_now(subscription) == []


@having(open_streams=1)
def test_one_stream_too_many_is_refused(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as first:
        first.settle()
        with server.stream(subscription) as second:
            assert second.ending() == "RESOURCE_EXHAUSTED"
        assert first.settle() == []


@having(
    topics_per_project=2,
    subscriptions_per_project=3,
    subscriptions_per_topic=2,
    snapshots_per_project=1,
)
def test_resources_are_counted(server: Server) -> None:
    topics = [server.create_topic(), server.create_topic()]
    with pytest.raises(ResourceExhausted, match="topics_per_project is 2"):
        server.create_topic()
    subscriptions = [server.create_subscription(topics[0]) for _ in range(2)]
    with pytest.raises(ResourceExhausted, match="subscriptions_per_topic is 2"):
        server.create_subscription(topics[0])
    server.create_subscription(topics[1])
    with pytest.raises(ResourceExhausted, match="subscriptions_per_project is 3"):
        server.create_subscription(topics[1])
    create_snapshot(server, subscriptions[0])
    with pytest.raises(ResourceExhausted, match="snapshots_per_project is 1"):
        create_snapshot(server, subscriptions[0])
    server.call(server.publisher.delete_topic, {"topic": topics[1]})

    assert server.create_topic()
    server.project = "another"
    assert server.create_topic()


def create_snapshot(server: Server, subscription: str) -> None:
    request = {"name": server.snapshot_name(), "subscription": subscription}
    server.call(server.subscriber.create_snapshot, request)


# Clients


def test_googles_publisher_recovers_by_itself() -> None:
    quotas = Quotas(publisher_throughput=100_000)
    with (
        EmulatorThread(quotas=quotas, history=0, project="shop") as emulator,
        grpc.insecure_channel(emulator.address) as channel,
    ):
        worker = emulator.create_subscription("worker", "orders")
        publisher = GooglesPublisher(
            batch_settings=BatchSettings(max_messages=10),
            transport=PublisherGrpcTransport(channel=channel),
        )
        topic = "projects/shop/topics/orders"
        with pytest.raises(grpc.RpcError) as refused:
            exhaust(channel, topic)
        futures = [publisher.publish(topic, MESSAGE) for _ in range(50)]
        ids = {future.result(timeout=WITHIN) for future in futures}
        publisher.stop()
        backlog = emulator.backlog(worker)

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(ids) == 50
    assert backlog >= 50


def exhaust(channel: grpc.Channel, topic: str) -> None:
    """Publish until it is too much."""
    request = schema.PublishRequest(topic=topic, messages=[schema.PubsubMessage(data=MESSAGE * 60)])
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        "/google.pubsub.v1.Publisher/Publish"
    )
    data = request.SerializeToString()
    while True:
        method(data, timeout=WITHIN)


async def test_our_publisher_recovers_by_itself() -> None:
    quotas = Quotas(publisher_throughput=100_000)
    with EmulatorThread(quotas=quotas, history=0, project="shop") as emulator:
        worker = emulator.create_subscription("worker", "orders")
        async with PublisherClient.throughput(
            "shop", endpoint=f"http://{emulator.address}", batching=Batching(max_messages=10)
        ) as publisher:
            begun = time.monotonic()
            flights = [publisher.publish("orders", MESSAGE) for _ in range(150)]
            ids = {await flight.ack for flight in flights}
            took = time.monotonic() - begun

        assert took > 0.4  # the quota is that of 100 messages, and 100 more a second
        assert len(ids) == 150
        assert emulator.backlog(worker) == 150


def test_our_clients_keep_to_quotas_in_virtual_time() -> None:
    """Ten minutes of work for quotas of a kilobyte a second."""
    quotas = Quotas(publisher_throughput=1_000, streaming_pull_subscriber_throughput=1_000)

    async def scenario() -> None:
        async with MemoryEmulator(project="shop", quotas=quotas) as emulator:
            emulator.create_subscription("worker", "orders")
            loop = asyncio.get_running_loop()
            begun, seen = loop.time(), list[bytes]()
            all_seen = asyncio.Event()

            def take(message: Message) -> None:
                seen.append(message.data)
                message.ack()
                if len(seen) == len(bodies):
                    all_seen.set()

            async with SubscriberClient(transport=emulator.transport()) as subscriber:
                subscriber.subscribe("worker", take)
                one_by_one = Batching(max_messages=1)
                async with PublisherClient.throughput(
                    transport=emulator.transport(),
                    batching=one_by_one,
                    max_in_flight=5,
                    refill_allowed_at=0,
                ) as publisher:
                    for flight in [publisher.publish("orders", b, timeout=3_600) for b in bodies]:
                        await flight.ack
                await all_seen.wait()
            assert sorted(seen) == bodies
            assert 299 <= loop.time() - begun < 1_200

    bodies = [b"%03d" % number + MESSAGE for number in range(300)]
    run(scenario(), max_time=3_600)

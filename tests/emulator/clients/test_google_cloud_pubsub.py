"""Google's Python client, as its users use it, finds nothing to complain of."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager

import pytest
from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.futures import StreamingPullFuture
from google.cloud.pubsub_v1.subscriber.message import Message

from pubsub_aio.emulator import EmulatorThread

WITHIN = 30.0


@pytest.fixture
def publisher(pubsub_emulator: EmulatorThread) -> Iterator[pubsub_v1.PublisherClient]:
    del pubsub_emulator
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    client = pubsub_v1.PublisherClient(publisher_options=options)
    yield client
    client.stop()


@contextmanager
def subscribed(
    subscription: str, handle: Callable[[Message], None], *, max_messages: int = 1_000
) -> Iterator[StreamingPullFuture]:
    """A streaming subscriber for as long as the block lasts."""
    with pubsub_v1.SubscriberClient() as subscriber:
        control = pubsub_v1.types.FlowControl(max_messages=max_messages)
        future = subscriber.subscribe(subscription, handle, flow_control=control)
        try:
            yield future
        finally:
            future.cancel()
            future.result(timeout=WITHIN)


def topic_of(emulator: EmulatorThread, name: str = "topic") -> str:
    return f"projects/{emulator.project}/topics/{name}"


def test_what_is_published_is_received_once_and_acked(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    received: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def handle(message: Message) -> None:
        received.put(message)
        message.ack()

    topic = topic_of(pubsub_emulator)
    futures = [publisher.publish(topic, b"%d" % n, number=str(n)) for n in range(2_000)]
    ids = {future.result(timeout=WITHIN) for future in futures}
    with subscribed(subscription, handle):
        messages = [received.get(timeout=WITHIN) for _ in ids]
        pubsub_emulator.until(lambda: pubsub_emulator.backlog(subscription) == 0)

    assert {message.message_id for message in messages} == ids
    assert all(message.data.decode() == message.attributes["number"] for message in messages)
    assert received.empty()


def test_flow_control_holds_on_the_server(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    held: queue.SimpleQueue[Message] = queue.SimpleQueue()
    for future in [publisher.publish(topic_of(pubsub_emulator), b"x") for _ in range(50)]:
        future.result(timeout=WITHIN)

    with subscribed(subscription, held.put, max_messages=5):
        pubsub_emulator.until(lambda: pubsub_emulator.outstanding(subscription) == 5)
        first = [held.get(timeout=WITHIN) for _ in range(5)]
        (stream,) = pubsub_emulator.streams(subscription)
        assert stream.outstanding_messages == 5
        for message in first:
            message.ack()
        pubsub_emulator.until(lambda: pubsub_emulator.backlog(subscription) <= 45)
        assert pubsub_emulator.outstanding(subscription) <= 5


def test_a_nacked_message_comes_again(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    seen: list[str] = []
    twice = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message.message_id)
        if len(seen) == 1:
            message.nack()
        else:
            message.ack()
            twice.set()

    published = publisher.publish(topic_of(pubsub_emulator), b"x").result(timeout=WITHIN)
    with subscribed(subscription, handle):
        assert twice.wait(timeout=WITHIN)
        pubsub_emulator.until(lambda: pubsub_emulator.backlog(subscription) == 0)

    assert seen == [published, published]


def test_ordering_keys_arrive_in_order(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription(
        "worker", "topic", enable_message_ordering=True
    )
    keys = [f"key-{n}" for n in range(5)]
    topic = topic_of(pubsub_emulator)
    for n in range(100):
        for key in keys:
            publisher.publish(topic, b"%d" % n, ordering_key=key)
    received: dict[str, list[int]] = {key: [] for key in keys}
    complete = threading.Event()

    def handle(message: Message) -> None:
        received[message.ordering_key].append(int(message.data))
        message.ack()
        if all(len(of_key) == 100 for of_key in received.values()):
            complete.set()

    with subscribed(subscription, handle):
        assert complete.wait(timeout=WITHIN)

    assert received == {key: list(range(100)) for key in keys}


def test_exactly_once_acks_are_confirmed_and_stale_ones_refused(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription(
        "worker", "topic", enable_exactly_once_delivery=True
    )
    received: queue.SimpleQueue[Message] = queue.SimpleQueue()
    publisher.publish(topic_of(pubsub_emulator), b"x").result(timeout=WITHIN)

    with subscribed(subscription, received.put):
        message = received.get(timeout=WITHIN)
        assert message.ack_with_response().result(timeout=WITHIN) == AcknowledgeStatus.SUCCESS
        with pytest.raises(AcknowledgeError) as refused:
            message.ack_with_response().result(timeout=WITHIN)

    assert refused.value.error_code == AcknowledgeStatus.INVALID_ACK_ID


def test_a_transient_confirmation_failure_is_retried_by_the_client(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription(
        "worker", "topic", enable_exactly_once_delivery=True
    )
    received: queue.SimpleQueue[Message] = queue.SimpleQueue()
    publisher.publish(topic_of(pubsub_emulator), b"x").result(timeout=WITHIN)

    with subscribed(subscription, received.put):
        message = received.get(timeout=WITHIN)
        pubsub_emulator.faults.fail_confirmations(subscription)
        assert message.ack_with_response().result(timeout=WITHIN) == AcknowledgeStatus.SUCCESS

    acks = pubsub_emulator.message(message.message_id).acks
    assert [ack.effective for ack in acks] == [False, True]


def test_a_cut_stream_is_reopened_and_nothing_is_lost(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    received: queue.SimpleQueue[str] = queue.SimpleQueue()

    def handle(message: Message) -> None:
        received.put(message.message_id)
        message.ack()

    with subscribed(subscription, handle):
        pubsub_emulator.until(lambda: len(pubsub_emulator.streams(subscription)) == 1)
        assert pubsub_emulator.faults.cut_streams(subscription) == 1
        published = publisher.publish(topic_of(pubsub_emulator), b"x").result(timeout=WITHIN)
        assert received.get(timeout=WITHIN) == published


def test_a_deleted_subscription_ends_the_subscriber(pubsub_emulator: EmulatorThread) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    with pubsub_v1.SubscriberClient() as subscriber:
        future = subscriber.subscribe(subscription, lambda message: message.ack())
        pubsub_emulator.until(lambda: len(pubsub_emulator.streams(subscription)) == 1)
        subscriber.delete_subscription(subscription=subscription)
        with pytest.raises((NotFound, FutureTimeoutError)) as ended:
            future.result(timeout=WITHIN)

    assert isinstance(ended.value, NotFound)


def test_responses_stay_below_what_the_client_accepts(
    pubsub_emulator: EmulatorThread, publisher: pubsub_v1.PublisherClient
) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    topic = topic_of(pubsub_emulator)
    for future in [publisher.publish(topic, bytes(1_500_000)) for _ in range(6)]:
        future.result(timeout=WITHIN)

    def handle(message: Message) -> None:
        received.put(len(message.data))
        message.ack()

    with subscribed(subscription, handle):
        assert [received.get(timeout=WITHIN) for _ in range(6)] == [1_500_000] * 6


async def test_the_generated_async_clients_work(pubsub_emulator: EmulatorThread) -> None:
    import grpc.aio
    from google.pubsub_v1 import PublisherAsyncClient, PubsubMessage, SubscriberAsyncClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

    subscription = pubsub_emulator.create_subscription("worker", "topic")
    async with grpc.aio.insecure_channel(pubsub_emulator.address) as channel:
        publishing = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
        pulling = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
        answer = await publishing.publish(
            topic=topic_of(pubsub_emulator),
            messages=[PubsubMessage(data=b"a"), PubsubMessage(data=b"b")],
        )
        pulled = await pulling.pull(subscription=subscription, max_messages=10)
        await pulling.acknowledge(
            subscription=subscription, ack_ids=[m.ack_id for m in pulled.received_messages]
        )
        topics = [
            topic.name
            async for topic in await publishing.list_topics(
                project=f"projects/{pubsub_emulator.project}"
            )
        ]

    assert [m.message.message_id for m in pulled.received_messages] == list(answer.message_ids)
    assert pubsub_emulator.backlog(subscription) == 0
    assert topics == [topic_of(pubsub_emulator)]

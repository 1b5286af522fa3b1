"""What the emulator shows of messages, streams and subscriptions, and its ways to make them."""

import asyncio
from datetime import UTC, datetime, timedelta

import grpc.aio
import pytest
from google.pubsub_v1 import (
    PublisherAsyncClient,
    PubsubMessage,
    ReceivedMessage,
    StreamingPullRequest,
    StreamingPullResponse,
    SubscriberAsyncClient,
)
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from pubsub_aio.emulator import (
    Ack,
    Delivery,
    Emulator,
    Modack,
    OpenStream,
    PublishedMessage,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When virtual time begins."""


@pytest.fixture
def publisher(channel: grpc.aio.Channel) -> PublisherAsyncClient:
    return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))


@pytest.fixture
def subscriber(channel: grpc.aio.Channel) -> SubscriberAsyncClient:
    return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))


async def pull(subscriber: SubscriberAsyncClient, subscription: str) -> ReceivedMessage:
    """Pull one message."""
    response = await subscriber.pull(subscription=subscription, max_messages=1)
    (received,) = response.received_messages
    return received


def at(seconds: float) -> datetime:
    """So many seconds after the beginning."""
    return START + timedelta(seconds=seconds)


# Messages


async def test_message_is_shown_as_it_was_published(
    emulator: Emulator, publisher: PublisherAsyncClient
) -> None:
    topic = emulator.create_topic("orders")
    await emulator.advance(5)
    message = PubsubMessage(data=b"a", attributes={"k": "v"}, ordering_key="key")
    response = await publisher.publish(topic=topic, messages=[message])
    (message_id,) = response.message_ids

    shown = PublishedMessage(message_id, topic, b"a", {"k": "v"}, "key", at(5))
    assert emulator.messages() == [shown]
    assert emulator.message(message_id) == shown


def test_messages_are_those_of_one_topic_or_of_the_project_oldest_first(
    emulator: Emulator,
) -> None:
    for topic in ("orders", "bills", "projects/elsewhere/topics/orders"):
        emulator.create_topic(topic)
        emulator.publish(topic, topic.encode())
    emulator.publish("orders", b"more")

    assert [message.data for message in emulator.messages()] == [b"orders", b"bills", b"more"]
    assert [message.data for message in emulator.messages("orders")] == [b"orders", b"more"]


def test_unknown_message_is_a_key_error(emulator: Emulator) -> None:
    with pytest.raises(KeyError):
        emulator.message("1")


async def test_deliveries_show_attempts_and_ack_ids(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    auditor = emulator.create_subscription("auditor", "orders")
    message_id = emulator.publish("orders", b"a")
    first = await pull(subscriber, worker)
    await emulator.advance(11)
    second = await pull(subscriber, worker)
    other = await pull(subscriber, auditor)

    assert emulator.message(message_id).deliveries == [
        Delivery(worker, first.ack_id, 1, at(0)),
        Delivery(worker, second.ack_id, 2, at(11)),
        Delivery(auditor, other.ack_id, 1, at(11)),
    ]


async def test_acks_are_shown_whether_effective_or_not(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    message_id = emulator.publish("orders", b"a")
    old = (await pull(subscriber, worker)).ack_id
    await emulator.advance(11)
    current = (await pull(subscriber, worker)).ack_id
    for ack_id in (old, current, current):
        await subscriber.acknowledge(subscription=worker, ack_ids=[ack_id])

    assert emulator.message(message_id).acks == [
        Ack(worker, old, effective=False, time=at(11)),
        Ack(worker, current, effective=True, time=at(11)),
        Ack(worker, current, effective=False, time=at(11)),
    ]


async def test_modacks_are_shown_whether_effective_or_not(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    message_id = emulator.publish("orders", b"a")
    ack_id = (await pull(subscriber, worker)).ack_id
    for seconds in (30, 0, 20):
        await subscriber.modify_ack_deadline(
            subscription=worker, ack_ids=[ack_id], ack_deadline_seconds=seconds
        )

    assert emulator.message(message_id).modacks == [
        Modack(worker, ack_id, 30, effective=True, time=at(0)),
        Modack(worker, ack_id, 0, effective=True, time=at(0)),
        Modack(worker, ack_id, 20, effective=False, time=at(0)),
    ]


@pytest.mark.parametrize("history", [0, 10])
async def test_history_keeps_no_more_than_the_latest_messages(history: int) -> None:
    async with Emulator(history=history) as emulator:
        emulator.create_topic("orders")
        for number in range(25):
            emulator.publish("orders", b"%d" % number)
        kept = [int(message.data) for message in emulator.messages()]

    assert kept == list(range(25 - history, 25))


async def test_history_keeps_fewer_messages_where_they_are_large(emulator: Emulator) -> None:
    emulator.create_topic("orders")
    for _ in range(10):
        emulator.publish("orders", bytes(2**20))

    assert 1 < len(emulator.messages()) <= 4


# Subscriptions and streams


async def test_backlog_and_outstanding_follow_a_message(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    worker = emulator.create_subscription("worker", "orders")

    def counts() -> tuple[int, int]:
        return emulator.backlog("worker"), emulator.outstanding(worker)

    assert counts() == (0, 0)
    emulator.publish("orders", b"a")
    emulator.publish("orders", b"b")
    assert counts() == (2, 0)
    await pull(subscriber, worker)
    assert counts() == (2, 1)
    await emulator.advance(11)
    assert counts() == (2, 0)
    received = await pull(subscriber, worker)
    await subscriber.acknowledge(subscription=worker, ack_ids=[received.ack_id])
    assert counts() == (1, 0)


def test_messages_that_a_filter_leaves_out_are_no_backlog(emulator: Emulator) -> None:
    emulator.create_subscription("worker", "orders", filter="attributes:wanted")
    emulator.publish("orders", attributes={"wanted": "yes"})
    emulator.publish("orders", attributes={"unwanted": "yes"})

    assert emulator.backlog("worker") == 1


async def test_streams_show_what_is_open_and_what_they_hold(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    emulator.create_subscription("auditor", "orders")
    await emulator.advance(5)
    open_stream = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=StreamingPullRequest.serialize,
        response_deserializer=StreamingPullResponse.deserialize,
    )
    call = open_stream()
    first = StreamingPullRequest(
        subscription=worker, client_id="me", stream_ack_deadline_seconds=10
    )
    await call.write(first)
    await emulator.until(lambda: len(emulator.streams()) == 1)
    assert emulator.streams() == [OpenStream(worker, "me", at(5), 0, 0)]

    emulator.publish("orders", b"a")
    await emulator.until(lambda: emulator.outstanding(worker) == 1)
    (stream,) = emulator.streams("worker")
    assert stream.outstanding_messages == 1
    assert stream.outstanding_bytes > 0
    assert emulator.streams("auditor") == []

    call.cancel()
    await emulator.until(lambda: emulator.streams() == [])


@pytest.mark.parametrize("method", ["backlog", "outstanding", "streams"])
def test_unknown_subscription_is_a_value_error_that_names_it(
    emulator: Emulator, method: str
) -> None:
    with pytest.raises(ValueError, match="subscriptions/nobody"):
        getattr(emulator, method)("nobody")


# Making things


async def test_topic_is_made_in_one_call_with_its_settings(
    emulator: Emulator, publisher: PublisherAsyncClient
) -> None:
    name = emulator.create_topic(
        "orders", labels={"team": "a"}, message_retention_duration=timedelta(hours=1)
    )
    topic = await publisher.get_topic(topic=name)

    assert name == f"projects/{emulator.project}/topics/orders"
    assert dict(topic.labels) == {"team": "a"}
    assert topic.message_retention_duration == timedelta(hours=1)


async def test_subscription_is_made_in_one_call_with_its_topic_and_settings(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    dead_letters = emulator.create_topic("projects/morgue/topics/dead")
    name = emulator.create_subscription(
        "projects/here/subscriptions/worker",
        "projects/there/topics/orders",
        ack_deadline_seconds=30,
        dead_letter_policy={"dead_letter_topic": dead_letters, "max_delivery_attempts": 5},
        expiration_policy={"ttl": timedelta(days=2)},
    )
    subscription = await subscriber.get_subscription(subscription=name)

    assert subscription.topic == "projects/there/topics/orders"
    assert subscription.ack_deadline_seconds == 30
    assert subscription.dead_letter_policy.max_delivery_attempts == 5
    assert subscription.expiration_policy.ttl == timedelta(days=2)


@pytest.mark.parametrize(
    ("name", "settings", "naming"),
    [
        ("no", {}, "name"),
        ("good-name", {"labls": {}}, "labls"),
        ("good-name", {"labels": {"Not a key": "v"}}, "labels"),
        ("good-name", {"labels": 5}, "labels"),
        ("good-name", {"message_retention_duration": timedelta(1_000)}, "message_retention"),
    ],
)
def test_bad_topic_is_a_value_error_that_names_the_field(
    emulator: Emulator, name: str, settings: dict[str, object], naming: str
) -> None:
    with pytest.raises(ValueError, match=naming):
        emulator.create_topic(name, **settings)


@pytest.mark.parametrize(
    ("settings", "naming"),
    [
        ({"ack_deadline": 30}, "ack_deadline"),
        ({"ack_deadline_seconds": 5}, "ack_deadline_seconds"),
        ({"ack_deadline_seconds": "10"}, "ack_deadline_seconds"),
        ({"filter": "attributes"}, "filter"),
        ({"retry_policy": {"maximum_backoff": timedelta(hours=1)}}, "retry_policy"),
        ({"dead_letter_policy": {"max_delivery_attempts": 1}}, "dead_letter_policy"),
    ],
)
async def test_bad_subscription_is_a_value_error_that_names_the_field_and_leaves_no_topic(
    emulator: Emulator,
    publisher: PublisherAsyncClient,
    settings: dict[str, object],
    naming: str,
) -> None:
    with pytest.raises(ValueError, match=naming):
        emulator.create_subscription("worker", "orders", **settings)

    listed = await publisher.list_topics(project=f"projects/{emulator.project}")
    assert [topic.name async for topic in listed] == []


def test_what_exists_cannot_be_made_again(emulator: Emulator) -> None:
    name = emulator.create_subscription("worker", "orders")

    with pytest.raises(ValueError, match="topics/orders"):
        emulator.create_topic("orders")
    with pytest.raises(ValueError, match=name):
        emulator.create_subscription("worker", "orders")


async def test_published_message_reaches_subscribers(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    message_id = emulator.publish("orders", b"a", attributes={"k": "v"}, ordering_key="key")
    message = (await pull(subscriber, worker)).message

    assert (message.message_id, message.data) == (message_id, b"a")
    assert (dict(message.attributes), message.ordering_key) == ({"k": "v"}, "key")


@pytest.mark.parametrize(
    ("topic", "attributes", "naming"),
    [
        ("nowhere", {"k": "v"}, "topics/nowhere"),
        ("orders", {}, "data"),
        ("orders", {"goog-key": "v"}, "attributes"),
    ],
)
def test_message_that_cannot_be_published_is_a_value_error(
    emulator: Emulator, topic: str, attributes: dict[str, str], naming: str
) -> None:
    emulator.create_topic("orders")

    with pytest.raises(ValueError, match=naming):
        emulator.publish(topic, attributes=attributes)


async def test_deleted_project_loses_all_it_has_and_others_lose_nothing(
    emulator: Emulator, publisher: PublisherAsyncClient, subscriber: SubscriberAsyncClient
) -> None:
    worker = emulator.create_subscription("worker", "orders")
    await subscriber.create_snapshot(
        name=f"projects/{emulator.project}/snapshots/then", subscription=worker
    )
    other = emulator.create_subscription(
        "projects/other/subscriptions/worker", "projects/other/topics/orders"
    )
    emulator.delete_project()

    project = f"projects/{emulator.project}"
    assert [t.name async for t in await publisher.list_topics(project=project)] == []
    assert [s.name async for s in await subscriber.list_snapshots(project=project)] == []
    assert [s.name async for s in await subscriber.list_subscriptions(project=project)] == []
    assert (await subscriber.get_subscription(subscription=other)).name == other
    assert emulator.create_subscription("worker", "orders") == worker
    assert emulator.backlog("worker") == 0


# Waiting


async def test_until_returns_as_soon_as_its_condition_holds(
    emulator: Emulator, publisher: PublisherAsyncClient
) -> None:
    topic = emulator.create_topic("orders")
    await emulator.until(lambda: emulator.messages() == [])
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(emulator.until(lambda: len(emulator.messages()) == 2))
        await publisher.publish(topic=topic, messages=[PubsubMessage(data=b"a")])
        assert not waiting.done()
        await publisher.publish(topic=topic, messages=[PubsubMessage(data=b"b")])


async def test_until_gives_up_after_its_timeout(emulator: Emulator) -> None:
    with pytest.raises(TimeoutError):
        await emulator.until(lambda: False, timeout=0.01)

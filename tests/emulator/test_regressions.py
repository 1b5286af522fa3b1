"""Faults that were found once, each by its shortest way in."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio._wire import schema
from pubsub_aio.emulator import Emulator, VirtualClock
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.front import Front
from pubsub_aio.emulator.log import SPAN
from pubsub_aio.emulator.response import Consumer
from pubsub_aio.emulator.status import Code, StatusError
from pubsub_aio.emulator.subscriptions import Subscription

TOPIC, NAME = "projects/p/topics/topic", "projects/p/subscriptions/worker"
DAY = 86_400.0


def broker_with(**settings: object) -> tuple[Broker, Subscription]:
    """A broker with a topic and a subscription, at the time 1,000."""
    broker = Broker()
    broker.create_topic(schema.Topic(name=TOPIC), now=1_000.0)
    return broker, subscribe(broker, **settings)


def subscribe(broker: Broker, **settings: object) -> Subscription:
    made = schema.message_class("google.pubsub.v1.Subscription")
    broker.create_subscription(made(name=NAME, topic=TOPIC, **settings), now=1_000.0)
    return broker.subscription(NAME)


def publish(broker: Broker, *texts: str, key: str = "", now: float = 1_000.0) -> None:
    messages = [schema.PubsubMessage(data=text.encode(), ordering_key=key) for text in texts]
    broker.publish(TOPIC, [message.SerializeToString() for message in messages], now=now)


def pull(
    broker: Broker, subscription: Subscription, *, limit: int = 1_000, now: float = 1_000.0
) -> tuple[list[str], list[str]]:
    """What is delivered: texts, and ack ids."""
    payload, _ = broker.pull(subscription, limit=limit, now=now)
    received = schema.PullResponse.FromString(payload).received_messages
    return [item.message.data.decode() for item in received], [item.ack_id for item in received]


def test_a_detached_subscription_counts_nothing_that_is_published_later() -> None:
    broker, subscription = broker_with()
    broker.detach_subscription(NAME, now=1_000.0)
    publish(broker, "a")

    assert subscription.deliveries.backlog == 0
    broker.poll(1_000.0 + 8 * DAY)


def test_a_stream_that_took_over_more_than_it_may_hold_gets_nothing_more() -> None:
    broker, subscription = broker_with()
    publish(broker, *"abcdefghij")
    held = []
    for max_messages in (4, 2):
        stream = broker.open_stream(
            NAME,
            client_id="x",
            ack_deadline=60,
            max_messages=max_messages,
            max_bytes=0,
            now=1_000.0,
        )
        broker.take(subscription, stream, limit=1_000, now=1_000.0)
        held.append(stream.held_messages)

    assert held == [4, 4]


def test_a_subscription_can_be_detached_twice() -> None:
    broker, subscription = broker_with()
    publish(broker, "a")
    _, ids = pull(broker, subscription)
    broker.detach_subscription(NAME, now=1_000.0)
    publish(broker, "b")
    broker.detach_subscription(NAME, now=1_000.0)

    assert subscription.deliveries.backlog == 0
    broker.acknowledge(subscription, ids, now=1_000.0)


def test_seek_does_not_reach_what_was_dropped_before_retention_was_set() -> None:
    broker, subscription = broker_with()
    for text in ("a", "b", "c"):
        publish(broker, text)
        _, ids = pull(broker, subscription)
        broker.acknowledge(subscription, ids, now=1_000.0)
    subscription.topic.trim(1_000.0)
    kept = schema.Topic(name=TOPIC, message_retention_duration=schema.Duration(seconds=600))
    broker.update_topic(kept, schema.FieldMask(paths=["message_retention_duration"]), now=1_000.0)
    publish(broker, "d")
    broker.seek_to_time(NAME, 0.0, now=1_000.0)

    assert subscription.deliveries.backlog == 1
    assert pull(broker, subscription)[0] == ["d"]


def test_a_message_is_there_after_a_seek_to_its_own_publish_time() -> None:
    for tenth in range(50):
        broker, subscription = broker_with(retain_acked_messages=True, expiration_policy={})
        publish(broker, "a", now=1_794_812_965.0 + tenth / 7)
        payload, _ = broker.pull(subscription, limit=1, now=1_794_812_999.0)
        told = schema.PullResponse.FromString(payload).received_messages[0].message.publish_time
        broker.seek_to_time(NAME, told.ToMicroseconds() / 1_000_000, now=1_794_812_999.0)

        assert subscription.deliveries.backlog == 1


def test_a_late_ack_does_not_wake_a_deleted_subscription() -> None:
    broker, old = broker_with()
    publish(broker, "a")
    _, ids = pull(broker, old)
    broker.delete_subscription(NAME, now=1_000.0)
    with pytest.raises(StatusError) as refused:
        broker.acknowledge(old, ids, now=1_000.0)
    new = subscribe(broker)
    broker.poll(1_000.0 + 32 * DAY - 1)

    assert refused.value.code == Code.NOT_FOUND
    assert NAME not in broker.subscriptions or broker.subscription(NAME) is new


def test_the_copy_of_an_acked_message_can_be_acked() -> None:
    broker, subscription = broker_with()
    subscription.deliveries.duplicate_next = 1
    publish(broker, "a")
    for _ in range(2):
        texts, ids = pull(broker, subscription)
        assert texts == ["a"]
        assert broker.acknowledge(subscription, ids, now=1_000.0) == {}

    assert pull(broker, subscription)[0] == []


def test_a_duplicate_of_an_ordered_message_that_is_nacked_does_no_harm() -> None:
    broker, subscription = broker_with(enable_message_ordering=True)
    subscription.deliveries.duplicate_next = 1
    publish(broker, "a", "b", key="k")
    _, ids = pull(broker, subscription)
    broker.modify_ack_deadline(subscription, ids, 0, now=1_000.0)
    texts, _ = pull(broker, subscription)
    broker.poll(1_011.0)

    assert texts == ["a", "b"]
    assert pull(broker, subscription, now=1_011.0)[0] == ["a", "b"]


def test_an_early_ack_is_settled_when_what_was_before_it_ages_out() -> None:
    broker, subscription = broker_with(
        enable_message_ordering=True, message_retention_duration=schema.Duration(seconds=600)
    )
    publish(broker, "a", key="k")
    publish(broker, "b", key="k", now=1_100.0)
    _, ids = pull(broker, subscription, now=1_100.0)
    broker.acknowledge(subscription, ids[1:], now=1_100.0)
    broker.poll(1_601.0)
    publish(broker, "c", key="k", now=1_601.0)

    assert subscription.deliveries.backlog == 1
    assert pull(broker, subscription, now=1_601.0)[0] == ["c"]


def test_a_shorter_retention_of_the_topic_takes_effect_on_its_subscriptions() -> None:
    broker, subscription = broker_with(message_retention_duration=schema.Duration(seconds=600))
    topic = schema.Topic(name=TOPIC, message_retention_duration=schema.Duration(seconds=86_400))
    mask = schema.FieldMask(paths=["message_retention_duration"])
    broker.update_topic(topic, mask, now=1_000.0)
    publish(broker, "a")
    broker.update_topic(schema.Topic(name=TOPIC), mask, now=1_000.0)
    broker.poll(1_601.0)

    assert subscription.deliveries.backlog == 0


def test_retention_frees_a_topic_that_nobody_subscribes_to() -> None:
    broker = Broker()
    topic = schema.Topic(name=TOPIC, message_retention_duration=schema.Duration(seconds=600))
    broker.create_topic(topic, now=1_000.0)
    publish(broker, *["a"] * SPAN)
    publish(broker, "b", now=1_300.0)
    now = 1_000.0
    while broker.next_at < 3_000.0:
        now = broker.next_at
        broker.poll(now)

    assert broker.topic(TOPIC).log.first == SPAN + 1


def test_a_subscription_expires_by_its_ttl_after_a_pull_that_waited() -> None:
    ttl = {"ttl": schema.Duration(seconds=86_400)}
    broker, subscription = broker_with(expiration_policy=ttl)
    broker.begin_pull(subscription)
    broker.poll(1_000.0 + DAY)
    broker.end_pull(subscription, now=1_000.0 + DAY)
    broker.poll(1_000.0 + 2 * DAY)

    assert NAME not in broker.subscriptions


def test_a_mask_that_reaches_into_a_map_is_refused() -> None:
    broker, _ = broker_with()
    topic = schema.Topic(name=TOPIC, labels={"a": "b"})
    with pytest.raises(StatusError, match="update_mask"):
        broker.update_topic(topic, schema.FieldMask(paths=["labels.key"]), now=1_000.0)


def test_labels_can_be_changed_after_the_dead_letter_topic_was_deleted() -> None:
    broker = Broker()
    dead = "projects/p/topics/dead"
    for name in (TOPIC, dead):
        broker.create_topic(schema.Topic(name=name), now=1_000.0)
    subscribe(broker, dead_letter_policy={"dead_letter_topic": dead})
    broker.delete_topic(dead, now=1_000.0)
    changed = schema.Subscription(name=NAME, labels={"a": "b"})

    told = broker.update_subscription(changed, schema.FieldMask(paths=["labels"]), now=1_000.0)

    assert dict(told.labels) == {"a": "b"}


async def test_a_client_that_leaves_before_it_could_be_served_leaves_no_error() -> None:
    asked, may_fail = asyncio.Event(), asyncio.Event()

    async def fails(_: object) -> None:
        asked.set()
        await may_fail.wait()
        raise OSError("nobody is there")

    front = Front(grpc=fails, http=fails)
    port = await front.listen("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(10):
        await asked.wait()
        (opening,) = front.tasks
        front.cut()
        while front.connections:  # noqa: ASYNC110 - nothing tells when the last one is gone
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_fail.set()
        await opening
    writer.close()
    await front.close()


async def test_no_timer_is_left_when_the_emulator_has_stopped() -> None:
    async with Emulator() as emulator:
        emulator.create_subscription("worker", "topic")
        assert emulator._timer is not None

    assert emulator._timer is None


async def test_leaving_is_complete_even_if_it_is_cancelled() -> None:
    emulator = Emulator(clock=VirtualClock())
    await emulator.__aenter__()
    host, port = emulator.address.split(":")
    leaving = asyncio.create_task(emulator.__aexit__(None, None, None))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection(host, int(port))


def test_a_copy_goes_to_the_one_who_holds_its_key() -> None:
    broker, subscription = broker_with(enable_message_ordering=True)
    holder, other = (Consumer(number, ack_deadline=10.0) for number in (1, 2))
    subscription.deliveries.duplicate_next = 1
    publish(broker, "a", key="k")

    def texts(consumer: Consumer) -> list[str]:
        payload, _ = subscription.deliveries.take(consumer, limit=10, now=1_000.0)
        response = schema.PullResponse.FromString(payload)
        return [item.message.data.decode() for item in response.received_messages]

    assert texts(holder) == ["a"]
    assert texts(other) == []
    assert texts(holder) == ["a"]

"""gcloud-aio-pubsub, which speaks REST, finds nothing to complain of."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from gcloud.aio.pubsub import (
    PublisherClient,
    PubsubMessage,
    SubscriberClient,
    SubscriberMessage,
    subscribe,
)

from pubsub_aio.emulator import EmulatorThread

WITHIN = 30.0


async def test_topics_and_subscriptions_are_created_listed_and_deleted(
    pubsub_emulator: EmulatorThread,
) -> None:
    project = f"projects/{pubsub_emulator.project}"
    topic, subscription = f"{project}/topics/topic", f"{project}/subscriptions/worker"
    async with PublisherClient() as publisher, SubscriberClient() as subscriber:
        await publisher.create_topic(topic)
        made = await subscriber.create_subscription(
            subscription, topic, body={"ackDeadlineSeconds": 30, "labels": {"a": "b"}}
        )
        topics = await publisher.list_topics(project)
        found = await subscriber.list_subscriptions(project)
        await subscriber.delete_subscription(subscription)
        await publisher.delete_topic(topic)
        with pytest.raises(aiohttp.ClientResponseError) as missing:
            await subscriber.get_subscription(subscription)

    assert made["ackDeadlineSeconds"] == 30
    assert made["labels"] == {"a": "b"}
    assert [each["name"] for each in topics["topics"]] == [topic]
    assert [each["name"] for each in found["subscriptions"]] == [subscription]
    assert missing.value.status == 404


async def test_messages_are_published_pulled_extended_and_acked(
    pubsub_emulator: EmulatorThread,
) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    topic = f"projects/{pubsub_emulator.project}/topics/topic"
    async with PublisherClient() as publisher, SubscriberClient() as subscriber:
        answer = await publisher.publish(
            topic, [PubsubMessage(b"a", ordering_key="k", attribute="1"), PubsubMessage(b"b")]
        )
        pulled = await subscriber.pull(subscription, max_messages=10)
        ack_ids = [message.ack_id for message in pulled]
        await subscriber.modify_ack_deadline(subscription, ack_ids, ack_deadline_seconds=60)
        await subscriber.acknowledge(subscription, ack_ids)

    assert [message.message_id for message in pulled] == answer["messageIds"]
    assert [message.data for message in pulled] == [b"a", b"b"]
    assert pulled[0].attributes == {"attribute": "1"}
    assert pubsub_emulator.backlog(subscription) == 0


async def test_its_subscriber_consumes_everything(pubsub_emulator: EmulatorThread) -> None:
    subscription = pubsub_emulator.create_subscription("worker", "topic")
    ids = {pubsub_emulator.publish("topic", b"%d" % n) for n in range(500)}
    received: set[str] = set()
    complete = asyncio.Event()

    async def handle(message: SubscriberMessage) -> None:
        received.add(message.message_id)
        if received == ids:
            complete.set()

    async with SubscriberClient() as client, asyncio.timeout(WITHIN):
        consuming = asyncio.create_task(subscribe(subscription, handle, client, num_producers=1))
        await complete.wait()
        await asyncio.to_thread(
            pubsub_emulator.until, lambda: pubsub_emulator.backlog(subscription) == 0
        )
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming

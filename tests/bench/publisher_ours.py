"""This library's client, in each of the ways that are measured."""

from __future__ import annotations

from tests.bench.publisher_inbox import KEY
from tests.bench.publisher_trial import PROJECT, Figures, Trial, Window


async def throughput(trial: Trial) -> Figures:
    """The preset for many messages, a flight a message."""
    from pubsub_aio import PublisherClient

    topic = trial.topic

    async def publish(messages: Window) -> list[str]:
        flights = [
            publisher.publish(topic, data, attributes={KEY: value}) for data, value in messages
        ]
        return [await flight.ack for flight in flights]

    async with PublisherClient.throughput(PROJECT) as publisher:
        return await trial.measure(publish)


async def many(trial: Trial) -> Figures:
    """The same preset, a window of messages in one call."""
    from pubsub_aio import PublisherClient

    topic = trial.topic

    async def publish(messages: Window) -> list[str]:
        asked = [(data, {KEY: value}) for data, value in messages]
        flights = await publisher.publish_many(topic, asked)
        return [await flight.ack for flight in flights]

    async with PublisherClient.throughput(PROJECT) as publisher:
        return await trial.measure(publish)


async def managed(trial: Trial) -> Figures:
    """Default settings: a publish waits until there is room in flight."""
    from pubsub_aio import PublisherClient

    topic = trial.topic

    async def publish(messages: Window) -> list[str]:
        flights = [
            await publisher.publish(topic, data, attributes={KEY: value})
            for data, value in messages
        ]
        return [await flight.ack for flight in flights]

    async with PublisherClient(PROJECT) as publisher:
        return await trial.measure(publish)

"""Messages with ids, and callbacks that do this and that with them."""

from __future__ import annotations

import asyncio

from pubsub_aio import (
    Deduplicator,
    Message,
    SubscriberClient,
)
from pubsub_aio.config import FLIGHT_ID
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    TOPIC,
    WORKER,
)


def send(
    emulator: MemoryEmulator,
    one: str | None,
    data: str = "",
    *,
    key: str = "",
    attribute: str = FLIGHT_ID,
) -> str:
    """Publish a message with that id; returns the one that the server gave it."""
    attributes = {} if one is None else {attribute: one}
    body = (data or one or "").encode()
    return emulator.publish(TOPIC, body, attributes=attributes, ordering_key=key)


def attempts(emulator: MemoryEmulator, *messages: str) -> list[int]:
    """How often each was delivered."""
    return [len(emulator.message(one).deliveries) for one in messages]


def counts(dedupe: Deduplicator) -> tuple[int, int, int]:
    return dedupe.handled, dedupe.dropped, dedupe.deferred


async def slowly(message: Message) -> None:
    await asyncio.sleep(5)
    message.ack()


async def forget(_: Message) -> None:
    """Its lease ends some time."""


async def hang(_: Message) -> None:
    await asyncio.sleep(HOUR)


async def pull(client: SubscriberClient, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        messages += await client.pull(WORKER, max_messages=count)
    return messages

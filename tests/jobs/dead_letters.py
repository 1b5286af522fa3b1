"""Dead letters, where they are moved to, and who moves them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from pubsub_aio import (
    PublisherClient,
    RetryPolicy,
    SubscriberClient,
)
from pubsub_aio._wire.transport import Transport
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import SELDOM

BURIED, LETTERS = "buried", "letters"
"""A topic of dead letters, and its subscription."""

ORDERS, WORKER = "orders", "worker"

IMPATIENT = RetryPolicy(retries=1, wait=0.1)


@contextlib.asynccontextmanager
async def clients(
    emulator: MemoryEmulator,
    *,
    receiving: Transport | None = None,
    publishing: Transport | None = None,
) -> AsyncIterator[tuple[SubscriberClient, PublisherClient]]:
    """A subscriber and a publisher of the emulator."""
    async with (
        SubscriberClient(emulator.project, transport=receiving or emulator.transport()) as one,
        PublisherClient(
            emulator.project, transport=publishing or emulator.transport(), poll_time=SELDOM
        ) as other,
    ):
        yield one, other


def set_up(emulator: MemoryEmulator, count: int = 0, **settings: object) -> list[str]:
    """Topics, subscriptions and dead letters `b"0"`, `b"1"` and so on; returns their ids."""
    emulator.create_subscription(LETTERS, BURIED, **settings)
    emulator.create_subscription(WORKER, ORDERS)
    return [
        emulator.publish(BURIED, b"%d" % number, attributes={"odd": str(number % 2)})
        for number in range(count)
    ]


def moved(emulator: MemoryEmulator, topic: str = ORDERS) -> list[bytes]:
    """The data of what was moved to a topic, in order."""
    return [message.data for message in emulator.messages(topic)]


def numbers(*wanted: int) -> list[bytes]:
    return [b"%d" % number for number in wanted]


async def left(emulator: MemoryEmulator, subscription: str = LETTERS) -> list[bytes]:
    """What can be pulled at once."""
    async with SubscriberClient(emulator.project, transport=emulator.transport()) as client:
        messages = await client.pull(subscription, max_messages=1_000, timeout=1)
        for message in messages:
            message.nack()
        return sorted(message.data for message in messages)

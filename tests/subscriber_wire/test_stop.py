"""What a subscription leaves behind when it is stopped while messages come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from pubsub_aio import Message, SubscriberClient
from pubsub_aio.emulator import Emulator


@contextlib.asynccontextmanager
async def flooded(emulator: Emulator, topic: str) -> AsyncIterator[None]:
    """Publish all the time."""

    async def publish() -> None:
        while True:
            for number in range(20):
                emulator.publish(topic, b"x", ordering_key=str(number % 5))
            await asyncio.sleep(0.001)

    publishing = asyncio.create_task(publish())
    yield
    publishing.cancel()


@pytest.mark.parametrize("transport", ["grpc", "rest"])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_what_is_on_its_way_at_the_end_goes_back_at_once(
    transport: Literal["grpc", "rest"], *, ordered: bool, exactly_once: bool
) -> None:
    """H9: another subscriber need not wait until its ack deadline has passed."""
    async with Emulator() as emulator:
        emulator.create_subscription(
            "worker",
            "orders",
            enable_message_ordering=ordered,
            enable_exactly_once_delivery=exactly_once,
        )
        client = SubscriberClient(
            emulator.project, transport=transport, endpoint=f"http://{emulator.address}"
        )
        handled = 0

        async def handle(message: Message) -> None:
            nonlocal handled
            await asyncio.sleep(0)
            message.ack()
            handled += 1

        async with client, flooded(emulator, "orders"):
            live = client.subscribe("worker", handle)
            await emulator.until(lambda: handled > 500, timeout=30)
            live.stop()
            await live

        # What came too early for its key was put off by a second; a deadline takes ten.
        await emulator.until(lambda: emulator.outstanding("worker") == 0, timeout=5)

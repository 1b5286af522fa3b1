"""An hour of ack deadlines in milliseconds: a message that nobody acknowledges."""

from __future__ import annotations

import asyncio

import grpc.aio
from google.pubsub_v1 import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from pubsub_aio.emulator import Emulator, VirtualClock


async def main() -> None:
    """Pull a message every ten minutes of virtual time, and never acknowledge it."""
    async with (
        Emulator(clock=VirtualClock()) as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        client = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
        subscription = emulator.create_subscription("worker", "orders", ack_deadline_seconds=600)
        message_id = emulator.publish("orders", b"soup")
        for _ in range(6):
            await client.pull(subscription=subscription, max_messages=1)
            await emulator.advance(600)
        for delivery in emulator.message(message_id).deliveries:
            print(f"delivery {delivery.attempt} at {delivery.time:%H:%M}")


if __name__ == "__main__":
    asyncio.run(main())

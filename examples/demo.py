"""The subscriber at work on the embedded emulator: publish, receive, acknowledge, count.

Run it with `nox -s demo`; it ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter

from google.cloud import pubsub_v1

from pubsub_aio import Message, SubscriberClient
from pubsub_aio.emulator import EmulatorThread

MESSAGES = 10_000
PROJECT = "demo-project"


def main() -> None:
    """Send messages through the emulator and say what became of them."""
    began = time.perf_counter()
    with EmulatorThread(project=PROJECT) as emulator:
        ready = time.perf_counter() - began
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        subscription = emulator.create_subscription("orders-worker", "orders")
        print(f"Pub/Sub emulator on {emulator.address}, ready in {ready * 1000:.0f} ms")

        published, publish_time = publish(f"projects/{PROJECT}/topics/orders")
        print(f"published {len(published):,} messages with google-cloud-pubsub")
        received, receive_time = asyncio.run(receive(subscription, len(published)))
        print(f"received and acknowledged {received.total():,} with pubsub-aio, on one stream")

        lost = len(published - received.keys())
        duplicated = received.total() - len(received)
        left = emulator.backlog(subscription)
        print()
        publish_rate, receive_rate = len(published) / publish_time, len(received) / receive_time
        print("Summary")
        print(f"  published    {len(published):>8,}   {publish_rate:>8,.0f} a second")
        print(f"  received     {len(received):>8,}   {receive_rate:>8,.0f} a second")
        print(f"  lost         {lost:>8,}")
        print(f"  duplicated   {duplicated:>8,}")
        print(f"  left behind  {left:>8,}")
        if lost or left:
            raise SystemExit("the demo lost messages")


def publish(topic: str) -> tuple[set[str], float]:
    """Publish with Google's client; returns the ids and the seconds it took."""
    began = time.perf_counter()
    publisher = pubsub_v1.PublisherClient()
    futures = [publisher.publish(topic, f"order {n}".encode()) for n in range(MESSAGES)]
    ids = {future.result(timeout=60) for future in futures}
    taken = time.perf_counter() - began
    publisher.stop()
    return ids, taken


async def receive(subscription: str, count: int) -> tuple[Counter[str], float]:
    """Receive all there is; returns how often each id came and the seconds it took.

    Leaving the client's block sends the last acks before it returns.
    """
    received: Counter[str] = Counter()
    complete = asyncio.Event()

    async def handle(message: Message) -> None:
        received[message.message_id] += 1
        message.ack()
        if len(received) == count:
            complete.set()

    began = time.perf_counter()
    async with SubscriberClient() as client, asyncio.timeout(120):
        client.subscribe(subscription, handle)
        await complete.wait()
        taken = time.perf_counter() - began
    return received, taken


if __name__ == "__main__":
    main()

"""Publishing with retries and in order, while the service is down now and then."""

from __future__ import annotations

import asyncio

from pubsub_aio import (
    Flight,
    KeyPausedError,
    PublisherClient,
    PublisherListener,
    PubSubError,
    RetryPolicy,
)
from pubsub_aio.emulator import Emulator


class Log(PublisherListener):
    """Prints what becomes of each message."""

    def acked(self, flight: Flight) -> None:
        """It was published."""
        print(f"{flight.data.decode()}: published at attempt {flight.attempts}")

    def completed_exceptionally(self, flight: Flight) -> None:
        """It was not."""
        print(f"{flight.data.decode()}: {type(flight.error).__name__}")


async def main() -> None:
    """Publish orders of one table, in order."""
    async with (
        Emulator(project="restaurant") as emulator,
        PublisherClient(
            "restaurant", endpoint=f"http://{emulator.address}", listener=Log()
        ) as publisher,
    ):
        emulator.create_topic("orders")
        patient = RetryPolicy(retries=5, wait=0.01)

        emulator.faults.fail("Publish", "UNAVAILABLE", times=2)
        await publisher.publish("orders", b"soup", ordering_key="table 7", retry=patient).ack

        emulator.faults.fail("Publish", "UNAVAILABLE")
        lost = publisher.publish("orders", b"bread", ordering_key="table 7")
        try:
            await lost.ack
        except PubSubError:
            print("so what comes after it must wait")
        try:
            publisher.publish("orders", b"tea", ordering_key="table 7")
        except KeyPausedError as paused:
            print(f"tea: not taken, {paused.ordering_key!r} is paused")
        publisher.resume("orders", "table 7")
        for order in (b"bread", b"tea"):
            publisher.publish("orders", order, ordering_key="table 7")
        await publisher.drain()
        served = [message.data.decode() for message in emulator.messages("orders")]
        print(f"in order: {', '.join(served)}")


if __name__ == "__main__":
    asyncio.run(main())

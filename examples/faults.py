"""A publish whose answer is lost is retried by the client, and so the message comes twice."""

from __future__ import annotations

import os

from google.cloud import pubsub_v1

from pubsub_aio.emulator import EmulatorThread


def main() -> None:
    """Lose the answer to a publish, and look at what the server has."""
    with EmulatorThread() as emulator:
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        emulator.create_subscription("worker", "orders")
        emulator.faults.fail("Publish", "UNAVAILABLE", applied=True)

        publisher = pubsub_v1.PublisherClient()
        topic = f"projects/{emulator.project}/topics/orders"
        told = publisher.publish(topic, b"soup").result(timeout=30)
        publisher.stop()

        for message in emulator.messages("orders"):
            known = "the publisher knows it" if message.message_id == told else "nobody knows it"
            print(f"{message.message_id} {message.data!r}: {known}")


if __name__ == "__main__":
    main()

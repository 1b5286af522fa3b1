"""A worker without a loop of its own: it stops gracefully on Ctrl-C or SIGTERM.

Here it stops by itself when it has nothing left to do; the emulator stands in for the service.
"""

from __future__ import annotations

import os
import signal

from pubsub_aio import FlowControl, Message, SubscriberClient
from pubsub_aio.emulator import EmulatorThread

ORDERS = [b"soup", b"tea", b"poison", b"bread"]

served: list[bytes] = []


async def handle(message: Message) -> None:
    """Serve an order; what cannot be served comes again, and is thrown away then."""
    if message.data == b"poison" and message.delivery_attempt == 1:
        raise ValueError("nobody eats that")
    served.append(message.data)
    print(f"served {message.data.decode()}, delivery {message.delivery_attempt}")
    message.ack()
    if len(served) == len(ORDERS):
        signal.raise_signal(signal.SIGTERM)


def main() -> None:
    """Run the worker."""
    client = SubscriberClient()
    client.create_subscription(
        "waiter", "orders", dead_letter_policy={"dead_letter_topic": topic("refused")}
    )
    for order in ORDERS:
        emulator.publish("orders", order)
    keep_alive = client.subscribe(
        "waiter", handle, flow_control=FlowControl(max_messages=1, max_request_batch_size=1)
    )
    client.run_forever(keep_alive)
    print(f"stopped, {emulator.backlog('waiter')} left behind")


def topic(name: str) -> str:
    """Create a topic; returns its full name."""
    return emulator.create_topic(name)


if __name__ == "__main__":
    with EmulatorThread(project="restaurant") as emulator:
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        os.environ["GOOGLE_CLOUD_PROJECT"] = emulator.project
        topic("orders")
        main()

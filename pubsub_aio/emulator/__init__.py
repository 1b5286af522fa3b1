"""A Pub/Sub server in pure Python, for tests, demos and development.

    async with Emulator() as emulator:
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        emulator.create_subscription("orders-worker", "orders")
        ...

Google's own clients, in any language, work on it. Its clock can be moved, its faults be asked for,
and what became of each message be looked at.
"""

from pubsub_aio.emulator.clock import Clock, SystemClock, VirtualClock
from pubsub_aio.emulator.faults import Faults, Stall
from pubsub_aio.emulator.iam import Iam
from pubsub_aio.emulator.journal import Ack, Delivery, Modack, PublishedMessage
from pubsub_aio.emulator.quotas import Quotas
from pubsub_aio.emulator.server import Emulator, OpenStream
from pubsub_aio.emulator.thread import EmulatorThread

__all__ = [
    "Ack",
    "Clock",
    "Delivery",
    "Emulator",
    "EmulatorThread",
    "Faults",
    "Iam",
    "Modack",
    "OpenStream",
    "PublishedMessage",
    "Quotas",
    "Stall",
    "SystemClock",
    "VirtualClock",
]

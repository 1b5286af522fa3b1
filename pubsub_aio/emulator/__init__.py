"""A Pub/Sub server in pure Python, for tests, demos and development.

    async with Emulator() as emulator:
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        emulator.create_subscription("orders-worker", "orders")
        ...

Google's own clients, in any language, work on it. Its clock can be moved, its faults be asked for,
and what became of each message be looked at.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pubsub_aio.emulator.clock import Clock, SystemClock, VirtualClock
from pubsub_aio.emulator.contents import OpenStream
from pubsub_aio.emulator.faults import Faults, Stall
from pubsub_aio.emulator.journal import Ack, Delivery, Modack, PublishedMessage
from pubsub_aio.emulator.seeds import Export, Seeded, export_seed
from pubsub_aio.emulator.server import Emulator
from pubsub_aio.emulator.thread import EmulatorThread

if TYPE_CHECKING:
    from pubsub_aio.emulator.iam import Iam
    from pubsub_aio.emulator.quotas import Quotas

__all__ = [
    "Ack",
    "Clock",
    "Delivery",
    "Emulator",
    "EmulatorThread",
    "Export",
    "Faults",
    "Iam",
    "Modack",
    "OpenStream",
    "PublishedMessage",
    "Quotas",
    "Seeded",
    "Stall",
    "SystemClock",
    "VirtualClock",
    "export_seed",
]

# Most emulators are started without them.
_LATER = {"Iam": "iam", "Quotas": "quotas"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value

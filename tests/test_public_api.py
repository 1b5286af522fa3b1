"""The names that users import. A change here is a change for them."""

from __future__ import annotations

import subprocess
import sys

import pubsub_aio
from pubsub_aio import emulator


def test_the_public_names_are_these() -> None:
    assert pubsub_aio.__all__ == ["__version__"]
    assert emulator.__all__ == [
        "Ack",
        "Clock",
        "Delivery",
        "Emulator",
        "EmulatorThread",
        "Faults",
        "Modack",
        "OpenStream",
        "PublishedMessage",
        "Stall",
        "SystemClock",
        "VirtualClock",
    ]


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = modules_after("import pubsub_aio, pubsub_aio.pytest_plugin")

    assert not loaded & {"grpc", "google.protobuf", "aiohttp", "google.cloud.pubsub_v1"}


def test_the_emulator_does_without_googles_client() -> None:
    loaded = modules_after("import pubsub_aio.emulator")

    assert not loaded & {"google.pubsub_v1", "google.cloud.pubsub_v1", "proto", "aiohttp"}


def modules_after(statement: str) -> set[str]:
    """What is loaded in a fresh process after it."""
    code = f"{statement}; import sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())

"""An emulator in the test's own loop, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from pubsub_aio.emulator import Emulator, VirtualClock


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(clock=VirtualClock()) as emulator:
        yield emulator


@pytest.fixture
async def channel(emulator: Emulator) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(emulator.address) as channel:
        yield channel

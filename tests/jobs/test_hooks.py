"""Functions of the user's that have so much time and no more."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from pubsub_aio.jobs.hooks import TimeBox
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import now, virtual


@virtual
async def test_what_ends_in_time_is_waited_for(emulator: MemoryEmulator) -> None:
    del emulator
    box, called = TimeBox(1.0), list[str]()

    async def fails() -> None:
        await asyncio.sleep(0.5)
        raise ValueError("it cannot be done")

    await box.call(called.append, "plain")
    await box.call(asyncio.sleep, 0.5)
    with pytest.raises(ValueError, match="it cannot be done"):
        await box.call(fails)

    assert (called, now()) == (["plain"], 1)


@virtual
async def test_what_does_not_end_in_time_is_cancelled(emulator: MemoryEmulator) -> None:
    del emulator
    ends: list[float] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ends.append(now())

    with pytest.raises(TimeoutError, match=r"not ended within 1 s"):
        await TimeBox(1.0).call(endless)

    assert ends == [1]


@virtual
async def test_it_is_cancelled_with_whoever_waits_for_it(emulator: MemoryEmulator) -> None:
    del emulator
    ends: list[float] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ends.append(now())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await TimeBox(1.0).call(endless)
    await asyncio.sleep(0.1)

    assert ends == [0.5]


@virtual
async def test_no_more_than_a_hundred_that_take_no_notice_are_left_alone(
    emulator: MemoryEmulator,
) -> None:
    del emulator
    box, over = TimeBox(1.0), asyncio.Event()

    async def stubborn() -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    first = [asyncio.ensure_future(box.call(stubborn)) for _ in range(100)]
    await asyncio.sleep(2)
    assert all(isinstance(call.exception(), TimeoutError) for call in first)
    last = asyncio.ensure_future(box.call(stubborn))
    await asyncio.sleep(60)
    assert not last.done()
    over.set()
    with pytest.raises(TimeoutError):
        await last

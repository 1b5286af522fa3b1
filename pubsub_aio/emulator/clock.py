"""The emulator's time: the machine's, or one that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from typing import Protocol

START = 1_767_225_600.0
"""When virtual time begins unless told otherwise: 2026-01-01, midnight UTC."""


class Clock(Protocol):
    """What the emulator needs of a clock."""

    def now(self) -> float:
        """Seconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Return once that much time has passed."""


class SystemClock:
    """The machine's clock, which never runs backwards here."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return time.monotonic() + self._offset

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class VirtualClock:
    """A clock that stands still until the emulator's `advance` moves it.

    Args:
        start: The time it shows at first, in seconds since 1970.
    """

    def __init__(self, start: float = START) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        """Seconds since 1970."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved that far."""
        if seconds <= 0:
            return
        self._count += 1
        over = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, over))
        await over

    @property
    def next_at(self) -> float:
        """When the next sleeper wakes; infinity if nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():  # who gave up
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else math.inf

    def move_to(self, now: float) -> None:
        """Show another time, not an earlier one, and wake who waited for it."""
        self._now = max(self._now, now)
        while self.next_at <= self._now:
            _, _, over = heapq.heappop(self._sleepers)
            if not over.done():
                over.set_result(None)

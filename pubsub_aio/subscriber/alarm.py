"""A timer that can be set anew."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Rings once at the time it is set to, in the loop that it was made in.

    Args:
        ring: Called then.
    """

    __slots__ = ("_loop", "_ring", "_timer", "at")

    def __init__(self, ring: Callable[[], None]) -> None:
        self.at = math.inf
        """When it rings, or rang last; infinity if it is not set."""
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Ring at another time; never, if that is infinity."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.at = at
        if at < math.inf:
            self._timer = self._loop.call_at(at, self._due)

    def _due(self) -> None:
        self._timer = None
        self._ring()

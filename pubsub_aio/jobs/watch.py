"""How long ago something was, whatever happens to clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple


class Moment(NamedTuple):
    """A time, as the clock and the loop tell it."""

    by_clock: float
    by_loop: float


class Watch:
    """Tells how long ago something was, by the clock or by the loop, whichever says longer.

    A clock may be set back, and the time of the loop stands still while the machine sleeps.

    Args:
        clock: Tells the seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def now(self) -> Moment:
        """This moment."""
        return Moment(self._clock(), asyncio.get_running_loop().time())

    def since(self, then: Moment) -> float:
        """Seconds since a moment."""
        now = self.now()
        return max(now.by_clock - then.by_clock, now.by_loop - then.by_loop)

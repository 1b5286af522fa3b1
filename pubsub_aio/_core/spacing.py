"""Evenly spaced: so many a second, and never a burst to catch up."""

from __future__ import annotations

import math


class Spacing:
    """Gives out times, one after another.

    Args:
        rate: How many a second at most; none for as many as are asked for.
    """

    def __init__(self, rate: float | None) -> None:
        self._interval = 0.0 if rate is None else 1 / rate
        self._next_at = -math.inf

    def take(self, *, now: float) -> float:
        """When the next may begin: now, or later."""
        at = max(now, self._next_at)
        self._next_at = at + self._interval
        return at

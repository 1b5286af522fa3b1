"""Small responses in quick succession are taken in together.

To take in a response costs as much as ten of its messages do. Where servers send responses of a few
messages thousands of times a second it is worth to wait for the next; elsewhere none waits.
"""

from __future__ import annotations

import math
from collections import deque

MANY, WITHIN = 16, 0.008
"""More responses than these, in as many seconds, are a rush."""

PATIENCE = 0.001
"""Seconds that a response waits for others."""

ENOUGH_BYTES = 32 * 1024
"""Responses of so many bytes, alone or together, wait no more."""


class Rush:
    """Gathers responses while they come in quick succession."""

    def __init__(self) -> None:
        self.due_at = math.inf
        """When what waits must be taken in; infinity if nothing waits."""
        self._came_at = deque([-math.inf] * (MANY + 1), maxlen=MANY + 1)
        self._waiting: list[bytes] = []
        self._bytes = 0

    def add(self, response: bytes, *, now: float) -> list[bytes]:
        """A response came; returns those to be taken in now, none if it waits for others."""
        self._came_at.append(now)
        self._waiting.append(response)
        self._bytes += len(response)
        if now - self._came_at[0] > WITHIN or self._bytes >= ENOUGH_BYTES:
            return self.take()
        if self.due_at == math.inf:
            self.due_at = now + PATIENCE
        return []

    def take(self) -> list[bytes]:
        """Those that wait."""
        waiting, self._waiting = self._waiting, []
        self._bytes = 0
        self.due_at = math.inf
        return waiting

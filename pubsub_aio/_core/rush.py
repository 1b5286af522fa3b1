"""Small responses in quick succession are taken in together.

To take in a response costs as much as ten of its messages do. Where servers send responses of a few
messages thousands of times a second it is worth to wait for the next; elsewhere none waits.
"""

from __future__ import annotations

import math
from collections import deque

from pubsub_aio._core.batches import Gathering

MANY, WITHIN = 16, 0.008
"""More responses than these, in as many seconds, are a rush."""

PATIENCE = 0.001
"""Seconds that a response waits for others."""

ENOUGH_BYTES = 12 * 1024
"""Responses of so many bytes, alone or together, wait no more."""


class Rush:
    """Gathers responses while they come in quick succession."""

    def __init__(self) -> None:
        self._came_at = deque([-math.inf] * (MANY + 1), maxlen=MANY + 1)
        self._gathering: Gathering[bytes] = Gathering(
            max_count=MANY, max_bytes=ENOUGH_BYTES, max_latency=PATIENCE
        )

    @property
    def due_at(self) -> float:
        """When what waits must be taken in; infinity if nothing waits."""
        return self._gathering.due_at

    def add(self, response: bytes, *, now: float) -> list[bytes]:
        """A response came; returns those to be taken in now, none if it waits for others."""
        self._came_at.append(now)
        if now - self._came_at[0] > WITHIN:
            return [*self._gathering.take(), response]
        complete = self._gathering.add(response, size=len(response), now=now)
        return [one for responses in complete for one in responses]

    def take(self) -> list[bytes]:
        """Those that wait."""
        return self._gathering.take()

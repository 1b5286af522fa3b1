"""When to send acks: at once while they are few and far between, together when they are not.

A request costs about as much as the work of parsing a thousand messages, however few acks it
carries. So under load acks gather, and under little load, where that gains nothing, none waits.
"""

from __future__ import annotations

import math

PAUSE = 0.02
"""Seconds between requests, so that acks gather."""

FEW = 5
"""As many as these need not wait, while there are prompt requests left."""

PROMPT = 200
"""Prompt requests a second; so many in a row as well."""


class Pacing:
    """Knows when requests were sent."""

    def __init__(self) -> None:
        self._sent_at = -math.inf
        self._prompt = float(PROMPT)
        self._counted_at = 0.0

    def sent(self, *, now: float) -> None:
        """A request is sent."""
        self._sent_at = now

    def due_at(self, waiting: int, *, now: float) -> float:
        """When to send the acks that have begun to wait, that many so far."""
        at = self._sent_at + PAUSE
        if at <= now or (waiting <= FEW and self._take_prompt(now)):
            return now
        return at

    def _take_prompt(self, now: float) -> bool:
        self._prompt = min(PROMPT, self._prompt + (now - self._counted_at) * PROMPT)
        self._counted_at = now
        if self._prompt < 1:
            return False
        self._prompt -= 1
        return True

"""When a query with the trigger availableNow has all: the service does not say so."""

from __future__ import annotations

import math

from pubsub_aio.config import MAX_ACK_DEADLINE

_MARGIN = 10.0
LEASES_END = MAX_ACK_DEADLINE + _MARGIN
"""Seconds after which messages come again that somebody held who is gone."""


class Silence:
    """For how long nothing has come that was published before. It is told the time.

    Only what somebody listened to is silence.

    Args:
        needed: Seconds of it after which all is there.
        until: What was published later, in seconds of Unix time, is not waited for.
        now: When it begins.
    """

    def __init__(self, needed: float, *, until: float, now: float) -> None:
        self.until = until
        self._needed = needed
        self._since = now
        self._paused_at = math.inf
        self._is_connected = True
        self._leases_end = 0.0  # what may be held by others comes again, now or later

    def begin(self, *, now: float) -> None:
        """From now on something may come."""
        self._since = now
        if self._paused_at < now:
            self._paused_at = now

    def is_final(self, *, held_by_others: bool, grace: float = 0.0) -> None:
        """What has not come by the end never will, for the subscription is deleted then.

        Args:
            held_by_others: Whether somebody may have received messages before and not kept them.
            grace: For how long somebody may still receive of whom nobody knows.
        """
        self._leases_end = LEASES_END + grace
        if held_by_others or not self._is_connected:
            self._wait_for_leases()

    def came(self, published: float, *, now: float) -> None:
        """A message is kept."""
        if published <= self.until:
            self.begin(now=now)

    def pause(self, *, now: float) -> None:
        """Nobody listens."""
        self._paused_at = min(self._paused_at, now)

    def resume(self, *, now: float) -> None:
        """Somebody listens again."""
        self._since += max(0.0, now - self._paused_at)
        self._paused_at = math.inf

    def connection(self, *, works: bool, now: float) -> None:
        """The connection to the service is lost, or works again."""
        if not works:
            self._wait_for_leases()  # of what was on its way
        elif not self._is_connected:
            self.begin(now=now)
        self._is_connected = works

    def left(self, *, now: float) -> float:
        """How many seconds of it are missing; 0 or less if all is there."""
        if not self._is_connected:
            return self._needed
        return self._needed - (min(now, self._paused_at) - self._since)

    def _wait_for_leases(self) -> None:
        self._needed = max(self._needed, self._leases_end)

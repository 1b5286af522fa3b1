"""When a query with the trigger availableNow has all: the service does not say so."""

from __future__ import annotations

from pubsub_aio.config import MAX_ACK_DEADLINE

_MARGIN = 10.0
LEASES_END = MAX_ACK_DEADLINE + _MARGIN
"""Seconds after which messages come again that somebody held who is gone."""


class Silence:
    """For how long nothing has come that was published before. It is told the time.

    Args:
        needed: Seconds of it after which all is there.
        until: What was published later, in seconds of Unix time, is not waited for.
        now: When it begins.
    """

    def __init__(self, needed: float, *, until: float, now: float) -> None:
        self.until = until
        self._needed = needed
        self._since = now
        self._is_connected = True
        self._is_final = False

    def begin(self, *, now: float) -> None:
        """From now on something may come."""
        self._since = now

    def is_final(self, *, held_by_others: bool) -> None:
        """What has not come by the end never will, for the subscription is deleted then.

        Args:
            held_by_others: Whether somebody may have received messages before and not kept them.
        """
        self._is_final = True
        if held_by_others or not self._is_connected:
            self._wait_for_leases()

    def came(self, published: float, *, now: float) -> None:
        """A message is kept."""
        if published <= self.until:
            self._since = now

    def connection(self, *, works: bool, now: float) -> None:
        """The connection to the service is lost, or works again."""
        if not works:
            self._wait_for_leases()  # of what was on its way
        elif not self._is_connected:
            self._since = now
        self._is_connected = works

    def left(self, *, now: float) -> float:
        """How many seconds of it are missing; 0 or less if all is there."""
        return self._needed - (now - self._since if self._is_connected else 0.0)

    def _wait_for_leases(self) -> None:
        if self._is_final:
            self._needed = max(self._needed, LEASES_END)

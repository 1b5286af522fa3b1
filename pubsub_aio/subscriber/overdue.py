"""Messages whose callbacks and leases did not end together."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

M = TypeVar("M")


class Overdue(Generic[M]):
    """Knows which callbacks run on after their leases ended, and which leases outlast callbacks."""

    def __init__(self) -> None:
        self._running: set[M] = set()
        self._unsettled: set[M] = set()  # their callbacks have ended
        self._expired: weakref.WeakSet[M] = weakref.WeakSet()

    def __len__(self) -> int:
        """How many callbacks run on."""
        return len(self._running)

    @property
    def any_unsettled(self) -> bool:
        """Whether a callback ended without settling its message."""
        return bool(self._unsettled)

    def expire(self, message: M, *, begun: bool) -> None:
        """A message's lease has ended; `begun` tells whether its callback may run."""
        self._expired.add(message)
        if begun and message not in self._unsettled:
            self._running.add(message)

    def has_expired(self, message: M) -> bool:
        """Whether a message was let go because it was held too long."""
        return message in self._expired

    def left_unsettled(self, message: M) -> None:
        """A callback has ended, and its message is held on."""
        self._unsettled.add(message)

    def settled(self, message: M) -> None:
        """A message is let go."""
        self._unsettled.discard(message)

    def ended(self, message: M) -> bool:
        """A callback has ended; returns whether it had run on."""
        if message in self._running:
            self._running.discard(message)
            return True
        return False

"""Whether nothing is leased at the moment, and why."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from pubsub_aio._core.leases import LeaseTable
from pubsub_aio._core.outbox import Outbox
from pubsub_aio.subscriber.held import Held
from pubsub_aio.subscriber.overdue import Overdue

_MIN_UNSENT = 10_000  # acks and such that may wait for a slow server before leasing stops

M = TypeVar("M", bound=Held)


class Halts(Generic[M]):
    """Tells what keeps a subscription from leasing more.

    Args:
        leases: What is held.
        overdue: Callbacks that run on although their leases ended.
        outbox: What the server is to be told.
        room: Set while more may be read from the server.
        max_overdue: How many callbacks may run on; none for as many as messages may be held.
    """

    def __init__(
        self,
        leases: LeaseTable[M],
        overdue: Overdue[M],
        outbox: Outbox,
        room: asyncio.Event,
        max_overdue: int | None,
    ) -> None:
        self._leases = leases
        self._overdue = overdue
        self._outbox = outbox
        self._room = room
        self._max_overdue = max_overdue

    @property
    def stuck(self) -> bool:
        """Whether nothing is leased until overdue callbacks end, or the server answers."""
        unsent = len(self._outbox)
        if unsent > _MIN_UNSENT and unsent > self._max_unsent:  # the first is the cheaper one
            return True
        return self.at_overdue_cap

    @property
    def at_overdue_cap(self) -> bool:
        """Whether as many callbacks run on as may."""
        if not (overdue := len(self._overdue)):
            return False
        most = self._leases.flow.max_messages if self._max_overdue is None else self._max_overdue
        return overdue >= most

    def reasons(self) -> list[str]:
        """Why nothing more is leased at the moment, if nothing is."""
        reasons = []
        if self.at_overdue_cap:
            reasons.append(f"{len(self._overdue)} callbacks run on although their leases ended")
        if (unsent := len(self._outbox)) > self._max_unsent:
            reasons.append(f"{unsent} acks, nacks and extensions wait for the server")
        if not self._leases.has_room():
            reasons.append("as much is leased as the flow control allows")
        if not self._room.is_set():
            reasons.append("reading is paused until what was received is leased")
        return reasons

    @property
    def _max_unsent(self) -> int:
        return max(_MIN_UNSENT, 4 * self._leases.flow.max_outstanding_messages)

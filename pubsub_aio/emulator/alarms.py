"""Who wants to be called at what time."""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

T = TypeVar("T")

_STALE = 64  # entries that may be out of date before they are cleared away


class Alarms(Generic[T]):
    """At most one alarm for each owner; setting an earlier one replaces it.

    An owner whose alarm became needless is still called once and then says when it wants the next,
    so nothing is searched for when something happens sooner than expected.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._due_at: dict[T, float] = {}
        self._count = 0

    @property
    def next_at(self) -> float:
        """The earliest alarm; infinity when there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def set(self, owner: T, at: float) -> None:
        """Call `owner` at `at`, unless it will be called earlier anyway."""
        if at < self._due_at.get(owner, math.inf):
            self._due_at[owner] = at
            self._push(at, owner)
            self._clear_away()

    def pop_due(self, now: float) -> list[T]:
        """Take every owner whose time has come, the earliest first."""
        due: list[T] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, owner = heapq.heappop(self._heap)
            if self._due_at.get(owner) == at:
                del self._due_at[owner]
                due.append(owner)
        return due

    def forget(self, owner: T) -> None:
        """Never call `owner` again."""
        self._due_at.pop(owner, None)
        self._clear_away()

    def _push(self, at: float, owner: T) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, owner))

    def _clear_away(self) -> None:
        """Drop entries that are out of date once they are the most, lest they hold their owners."""
        if len(self._heap) > 2 * len(self._due_at) + _STALE:
            self._heap.clear()
            for owner, at in self._due_at.items():
                self._push(at, owner)

"""Ids that may be there more than once, added and removed many at a time."""

from __future__ import annotations

from collections import Counter


class Bag:
    """Holds each id as often as it was added; most of them once, which costs no more than a set."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._more: Counter[str] = Counter()  # how often beyond the first time

    def __contains__(self, one: str) -> bool:
        return one in self._ids

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add_new(self, ids: set[str]) -> bool:
        """Add these unless one of them is here; returns whether they were added."""
        if not self._ids.isdisjoint(ids):
            return False
        self._ids |= ids
        return True

    def add(self, ids: set[str]) -> None:
        """Add each of these once."""
        if not self._ids.isdisjoint(ids):
            self._more.update(self._ids & ids)
        self._ids |= ids

    def remove(self, ids: set[str]) -> set[str]:
        """Remove each of these once; returns those that are not here any more."""
        if self._more:
            kept = ids & self._more.keys()
            for one in kept:
                self._more[one] -= 1
                if not self._more[one]:
                    del self._more[one]
            ids = ids - kept
        self._ids -= ids
        return ids

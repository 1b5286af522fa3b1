"""Ids that may be there more than once, added and removed many at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection


class Bag:
    """Holds each id as often as it was added; most of them once, which costs no more than a set."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._more: Counter[str] = Counter()  # how often beyond the first time

    def __contains__(self, one: str) -> bool:
        return one in self._ids

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add_new(self, ids: Collection[str]) -> bool:
        """Add these if none of them is here, and each is another; returns whether it did."""
        if not self._ids.isdisjoint(ids):
            return False
        before = len(self._ids)
        self._ids.update(ids)
        if len(self._ids) == before + len(ids):
            return True
        self._ids.difference_update(ids)
        return False

    def add(self, ids: set[str]) -> None:
        """Add each of these once."""
        if not self._ids.isdisjoint(ids):
            self._more.update(self._ids & ids)
        self._ids |= ids

    def remove(self, ids: Collection[str]) -> Collection[str]:
        """Remove each of these, all different, once; returns those that are not here any more."""
        if self._more:
            kept = self._more.keys() & ids
            for one in kept:
                self._more[one] -= 1
                if not self._more[one]:
                    del self._more[one]
            ids = {*ids} - kept
        self._ids.difference_update(ids)
        return ids

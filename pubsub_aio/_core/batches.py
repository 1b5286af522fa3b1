"""When a batch is full, or old enough."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class Gathering(Generic[T]):
    """Gathers what comes until it is enough, or has waited long enough.

    Args:
        max_count: How many make a batch.
        max_bytes: How many bytes make one.
        max_latency: Seconds that the first of a batch waits at most.
    """

    def __init__(self, *, max_count: int, max_bytes: int, max_latency: float) -> None:
        self.max_count = max_count
        self._max_bytes = max_bytes
        self._max_latency = max_latency
        self.items: list[T] = []
        """What there is, in the order it came."""
        self._count = 0
        self._bytes = 0
        self.due_at = math.inf
        """When what there is must go; infinity if there is nothing."""

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    def add(self, item: T, *, size: int, now: float, count: int = 1) -> list[list[T]]:
        """Add something; returns the batches that are complete, none most of the time.

        What would not fit completes the batch without it; what alone is too large is a batch.
        """
        complete: list[list[T]] = []
        over = self._count + count > self.max_count or self._bytes + size > self._max_bytes
        if self.items and over:
            complete.append(self.take())
        if not self.items:
            self.due_at = now + self._max_latency
        self.items.append(item)
        self._count += count
        self._bytes += size
        if self._count >= self.max_count or self._bytes >= self._max_bytes:
            complete.append(self.take())
        return complete

    def take(self) -> list[T]:
        """What there is, as a batch."""
        items, self.items = self.items, []
        self._count = self._bytes = 0
        self.due_at = math.inf
        return items

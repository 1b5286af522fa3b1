"""What is on its way: how much may be, and what has taken too long."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Generic, TypeVar

B = TypeVar("B")

_SPARE = 64  # ends of what has landed that are kept, however little is on its way


class FlightTable(Generic[B]):
    """Counts the messages that wait for an answer, and puts a hold on when they are enough.

    The hold is put on when `max_in_flight` is reached, and taken off when no more than
    `refill_allowed_at` are left. A batch lands once: answered, failed, or out of time.

    Nothing departs either while `max_bytes` are on their way.

    Args:
        max_in_flight: The most messages on their way.
        refill_allowed_at: How many may be left when a hold ends.
        max_bytes: The most bytes on their way, but for the batch that reaches it.
    """

    def __init__(
        self, *, max_in_flight: int, refill_allowed_at: int, max_bytes: float = math.inf
    ) -> None:
        self.max_in_flight = max_in_flight
        self.refill_allowed_at = refill_allowed_at
        self._max_bytes = max_bytes
        self.bytes_in_flight = 0
        self.in_flight = 0
        """Messages on their way."""
        self.holding = False
        """Whether nothing more may depart."""
        self._numbers: dict[B, int] = {}
        self._flying: dict[int, tuple[B, int, int]] = {}
        self._ends: list[tuple[float, int]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        """Batches on their way."""
        return len(self._flying)

    @property
    def room(self) -> int:
        """How many messages may depart now."""
        if self.holding or self.bytes_in_flight >= self._max_bytes:
            return 0
        return self.max_in_flight - self.in_flight

    def change(self, *, max_in_flight: int, refill_allowed_at: int) -> None:
        """Go by other limits from now on."""
        self.max_in_flight = max_in_flight
        self.refill_allowed_at = refill_allowed_at
        if self.in_flight >= max_in_flight:
            self.holding = True
        elif self.in_flight <= refill_allowed_at:
            self.holding = False

    def depart(self, batch: B, count: int, *, ends_at: float, size: int = 0) -> None:
        """A batch of so many messages and bytes is on its way, and may be until then."""
        number = self._numbers[batch] = next(self._count)
        self._flying[number] = (batch, count, size)
        self.in_flight += count
        self.bytes_in_flight += size
        if self.in_flight >= self.max_in_flight:
            self.holding = True
        if ends_at < math.inf:
            heapq.heappush(self._ends, (ends_at, number))

    def land(self, batch: B) -> bool:
        """A batch is answered or has failed; false if it had landed before, and nothing is due."""
        number = self._numbers.pop(batch, None)
        if number is None:
            return False
        _, count, size = self._flying.pop(number)
        self.in_flight -= count
        self.bytes_in_flight -= size
        if self.in_flight <= self.refill_allowed_at:
            self.holding = False
        if len(self._ends) > 2 * len(self._flying) + _SPARE:
            self._ends = [end for end in self._ends if end[1] in self._flying]
            heapq.heapify(self._ends)
        return True

    def part(self, batch: B, first: B, count: int, *, ends_at: float, size: int = 0) -> None:
        """So many messages of a batch go on as one of their own; if it flies, both do."""
        number = self._numbers.get(batch)
        if number is not None:
            _, all_of_them, total = self._flying[number]
            self._flying[number] = (batch, all_of_them - count, total - size)
            self.in_flight -= count
            self.bytes_in_flight -= size
            self.depart(first, count, ends_at=ends_at, size=size)

    def overdue(self, *, now: float) -> list[B]:
        """The batches whose time is over; whoever is told lands them."""
        found = []
        while self._ends and self._ends[0][0] <= now:
            _, number = heapq.heappop(self._ends)
            if number in self._flying:
                found.append(self._flying[number][0])
        return found

    @property
    def next_end(self) -> float:
        """When the time of a batch may be over next; infinity if never."""
        return self._ends[0][0] if self._ends else math.inf

    def all(self) -> list[B]:
        """Every batch that is on its way."""
        return [batch for batch, _, _ in self._flying.values()]

"""Which rows make a function fail: found by halves."""

from __future__ import annotations

from bisect import insort
from collections import deque

_FEW = 4
"""Below so many rows none is kept for the end."""


class Bisection:
    """Says which rows to try next, and learns from how that went.

    It begins with rows of which it is known that they failed together.

    Args:
        rows: How many there are.
        max_poisonous: How many may be found before the search is given up.
        in_order: Whether earlier rows must be tried before later ones. Otherwise three rows, far
            from one another, are tried last, each alone: if one goes through, what failed before
            did so by its own fault.
    """

    def __init__(self, rows: int, *, max_poisonous: int, in_order: bool = False) -> None:
        self.poisonous: list[int] = []
        """Rows that fail alone, in order."""
        self.works = False
        """Whether any rows went through: otherwise it may not be the rows that are at fault."""
        self._rows = rows
        self._max_poisonous = max_poisonous
        self._through: list[range] = []
        self._to_do: deque[range] = deque()  # in order
        self._last: deque[range] = deque()
        if in_order or rows < _FEW:
            self._split(range(rows))
        else:
            middle = rows // 2
            self._last += (range(row, row + 1) for row in (middle, rows - 1, 0))
            self._to_do += filter(None, (range(1, middle), range(middle + 1, rows - 1)))

    @property
    def next(self) -> range | None:
        """The rows to try; none if the search is over."""
        to_do = self._now
        return to_do[0] if to_do else None

    @property
    def _now(self) -> deque[range]:
        over = len(self.poisonous) >= self._max_poisonous
        return self._last if over or not self._to_do else self._to_do

    def worked(self) -> None:
        """These went through."""
        self.works = True
        self._through.append(self._now.popleft())

    def failed(self) -> None:
        """These failed."""
        self._split(self._now.popleft())

    def _split(self, rows: range) -> None:
        if middle := len(rows) // 2:
            self._to_do.extendleft((rows[middle:], rows[:middle]))
        else:
            insort(self.poisonous, rows[0])

    @property
    def left(self) -> list[int]:
        """Rows that did not go through, poisonous or never tried alone, in order."""
        left: list[int] = []
        start = 0
        for rows in sorted(self._through, key=lambda rows: rows.start):
            left += range(start, rows.start)
            start = rows.stop
        return [*left, *range(start, self._rows)]

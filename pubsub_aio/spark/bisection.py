"""Which rows make a function fail: found by halves."""

from __future__ import annotations

from bisect import insort
from collections import deque


class Bisection:
    """Says which rows to try next, and learns from how that went.

    It begins with rows of which it is known that they failed together.

    Args:
        rows: How many there are.
        max_poisonous: How many may be found before the search is given up.
        in_order: Whether earlier rows must be tried before later ones. Otherwise the search changes
            ends as long as nothing has gone through: rows that fail often come together.
    """

    def __init__(self, rows: int, *, max_poisonous: int, in_order: bool = False) -> None:
        self.poisonous: list[int] = []
        """Rows that fail alone, in order."""
        self.works = False
        """Whether any rows went through: otherwise it may not be the rows that are at fault."""
        self._rows = rows
        self._max_poisonous = max_poisonous
        self._in_order = in_order
        self._at_end = False
        self._through: list[range] = []
        self._to_do: deque[range] = deque()  # in order
        self._split(range(rows))

    @property
    def next(self) -> range | None:
        """The rows to try; none if the search is over."""
        if len(self.poisonous) >= self._max_poisonous or not self._to_do:
            return None
        return self._to_do[-1] if self._at_end else self._to_do[0]

    def worked(self) -> None:
        """These went through."""
        self.works = True
        self._through.append(self._take())

    def failed(self) -> None:
        """These failed."""
        self._split(self._take())

    def _take(self) -> range:
        return self._to_do.pop() if self._at_end else self._to_do.popleft()

    def _split(self, rows: range) -> None:
        middle = len(rows) // 2
        if not middle:
            insort(self.poisonous, rows[0])
            self._at_end = not self._at_end and not self.works and not self._in_order
        elif self._at_end:
            self._to_do.extend((rows[:middle], rows[middle:]))
        else:
            self._to_do.extendleft((rows[middle:], rows[:middle]))

    @property
    def left(self) -> list[int]:
        """Rows that did not go through, poisonous or never tried alone, in order."""
        through = {row for rows in self._through for row in rows}
        return [row for row in range(self._rows) if row not in through]

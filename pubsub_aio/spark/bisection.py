"""Which rows make a function fail: found by halves."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from itertools import chain, takewhile

_FEW = 4
"""Below so many rows none is kept for the end."""


class Bisection:
    """Says which rows to try next, and learns from how that went.

    It begins with rows of which it is known that they failed together.

    Args:
        rows: How many there are.
        max_poisonous: How many may be found before the search is given up.
        keys: The ordering key of each, where order matters: earlier rows of a key are then tried
            before later ones. Otherwise three rows, far from one another, are tried last, each
            alone: if one goes through, what failed before did so by its own fault.
        blocking: Whether a poisonous row keeps later ones of its key from being tried.
    """

    def __init__(
        self,
        rows: int,
        *,
        max_poisonous: int,
        keys: Sequence[str] | None = None,
        blocking: bool = False,
    ) -> None:
        self.poisonous: list[int] = []
        """Rows that fail alone, in order."""
        self.works = False
        """Whether any rows went through: otherwise it may not be the rows that are at fault."""
        self._keys = keys
        self._order: Sequence[int] = range(rows) if keys is None else _by_key(keys)
        self._max_poisonous = max_poisonous
        self._blocking = blocking
        # Places in that order:
        self._through: list[range] = []
        self._to_do: deque[range] = deque()  # ascending
        self._last: deque[range] = deque()
        if keys is not None or rows < _FEW:
            self._split(range(rows))
        else:
            middle = rows // 2
            self._last += (range(row, row + 1) for row in (middle, rows - 1, 0))
            self._to_do += filter(None, (range(1, middle), range(middle + 1, rows - 1)))

    @property
    def next(self) -> Sequence[int] | None:
        """The rows to try; none if the search is over."""
        to_do = self._now
        return self._order[to_do[0].start : to_do[0].stop] if to_do else None

    @property
    def is_complete(self) -> bool:
        """Whether no row is left to be tried."""
        return not self._to_do and not self._last

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

    def _split(self, places: range) -> None:
        if middle := len(places) // 2:
            self._to_do.extendleft((places[middle:], places[:middle]))
        else:
            insort(self.poisonous, self._order[places.start])
            if self._blocking and self._keys is not None:
                self._leave_out_behind(places.start, self._keys)

    def _leave_out_behind(self, place: int, keys: Sequence[str]) -> None:
        """Try no later row of the same key."""
        if not (key := keys[self._order[place]]):
            return
        behind = self._order[place + 1 :]
        end = place + 1 + sum(1 for _ in takewhile(lambda row: keys[row] == key, behind))
        rest = (range(max(end, places.start), places.stop) for places in self._to_do)
        self._to_do = deque(filter(None, rest))

    @property
    def left(self) -> list[int]:
        """Rows that did not go through, poisonous or never tried alone, in order."""
        left: list[int] = []
        start = 0
        for places in sorted(self._through, key=lambda places: places.start):
            left += self._order[start : places.start]
            start = places.stop
        return sorted([*left, *self._order[start:]])


def _by_key(keys: Sequence[str]) -> list[int]:
    """Rows, those of a key together and in their order; one without a key stands alone."""
    rows_of: dict[str | int, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of.setdefault(key or row, []).append(row)
    return [*chain.from_iterable(rows_of.values())]

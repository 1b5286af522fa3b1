"""Which ids were dealt with, which are being dealt with, and which are forgotten."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Literal, TypeVar

_MAX_SWEPT = 1_000  # ids that are let go of at once; more would take too long

K = TypeVar("K", bound=Hashable)
H = TypeVar("H")


Claim = Literal["first", "again", "taken", "repeat"]
"""What is answered to who would deal with an id.

`"first"`: it is theirs now; `"again"`: it is theirs since before; `"taken"`: somebody else has it,
and it is not known yet how that ends; `"repeat"`: it was dealt with.
"""


class Repeats(Generic[K, H]):
    """Ids, and what is known of them. An id that is not known is free.

    Args:
        window: Seconds for which it is remembered that an id was dealt with.
        max_ids: How many ids may be known at once. The oldest are forgotten where there would be
            more: of those that were dealt with, and if there are none, of those that are taken.
    """

    def __init__(self, *, window: float, max_ids: int) -> None:
        self.forgotten = 0
        """Ids that had to be forgotten within the window."""
        self._window = window
        self._max_ids = max_ids
        # Not a plain dict: to find the oldest it would look at all places where older ones were.
        self._seen: OrderedDict[K, float] = OrderedDict()  # since when, the oldest first
        self._sweep_at = math.inf  # when the oldest of these is out of the window, or before
        self._taken: dict[K, H] = {}  # by whom

    def __len__(self) -> int:
        """How many ids are known."""
        return len(self._seen) + len(self._taken)

    def claim(self, one: K, holder: H, *, now: float) -> Claim:
        """Somebody would deal with an id.

        Args:
            one: The id.
            holder: Who, by identity.
            now: The time.
        """
        seen_at = self._seen.get(one)
        if seen_at is not None:
            if now - seen_at < self._window:
                return "repeat"
            del self._seen[one]
        taken = self._taken.get(one)
        if taken is not None:
            return "again" if taken is holder else "taken"
        self._taken[one] = holder
        if len(self._seen) + len(self._taken) > self._max_ids:
            self._make_room(now)
        return "first"

    def holder_of(self, one: K) -> H | None:
        """Who has an id."""
        return self._taken.get(one)

    def done(self, one: K, holder: H, *, now: float) -> None:
        """A holder has dealt with its id, whether it still has it or not."""
        self.release(one, holder)
        seen = self._seen
        if one in seen:
            seen.move_to_end(one)
        elif not seen:
            self._sweep_at = now + self._window
        seen[one] = now
        if now >= self._sweep_at:
            self._sweep(now)
        if len(seen) + len(self._taken) > self._max_ids:
            self._make_room(now)

    def release(self, one: K, holder: H) -> None:
        """A holder has not dealt with its id, and does no more: it is free, if it still has it."""
        if self._taken.get(one) is holder:
            del self._taken[one]

    def clear(self) -> None:
        """Forget what was dealt with."""
        self._seen.clear()

    def _sweep(self, now: float) -> None:
        """Let go of ids that are out of the window, unless they are very many."""
        seen = self._seen
        for _ in range(_MAX_SWEPT):
            seen_at = seen[oldest := next(iter(seen))]  # there is one at least, dealt with just now
            if now - seen_at < self._window:
                self._sweep_at = seen_at + self._window
                break
            del seen[oldest]

    def _make_room(self, now: float) -> None:
        """Forget the oldest ids, until there are not too many."""
        seen, taken = self._seen, self._taken
        while len(seen) + len(taken) > self._max_ids:
            if not seen:
                del taken[next(iter(taken))]
                self.forgotten += 1
            elif now - seen.popitem(last=False)[1] < self._window:
                self.forgotten += 1

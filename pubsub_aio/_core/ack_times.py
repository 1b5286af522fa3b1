"""How long messages take to be acked, and so by how much a lease is extended."""

from __future__ import annotations

import math
from itertools import accumulate

from pubsub_aio.config import (
    EXACTLY_ONCE_ACK_DEADLINE,
    MAX_ACK_DEADLINE,
    MIN_ACK_DEADLINE,
    FlowControl,
)

_LEAST = int(MIN_ACK_DEADLINE)
_MOST = int(MAX_ACK_DEADLINE)
_PERCENTILE = 0.99
_REMEMBERED = 100_000


class AckTimes:
    """A histogram of ack times in whole seconds; what is old counts less and less."""

    def __init__(self) -> None:
        self._counts = [0] * (_MOST - _LEAST + 1)
        self._total = 0

    def add(self, seconds: float, *, count: int = 1) -> None:
        """Note that this many messages took that long."""
        whole = min(max(math.ceil(seconds), _LEAST), _MOST)
        self._counts[whole - _LEAST] += count
        self._total += count
        if self._total > _REMEMBERED:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)

    def percentile(self) -> float:
        """The time within which 99 of 100 messages were acked, 10 to 600 s."""
        most_above = self._total * (1 - _PERCENTILE)
        within = enumerate(accumulate(self._counts), start=_LEAST)  # mostly all are in the first
        return float(next(at for at, count in within if self._total - count <= most_above))

    def extension(self, flow: FlowControl, *, exactly_once: bool) -> float:
        """By how many seconds to extend a lease."""
        least = flow.min_duration_per_lease_extension
        if exactly_once:
            least = max(least, EXACTLY_ONCE_ACK_DEADLINE)
        return min(max(self.percentile(), least), flow.max_duration_per_lease_extension)

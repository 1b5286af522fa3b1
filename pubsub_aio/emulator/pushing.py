"""When a push subscription may push the next message: a window that grows, and pauses."""

from __future__ import annotations

import math
from typing import NamedTuple

MAX_WINDOW = 100
"""The most messages of a subscription that are under way at once, each on its own connection."""

MIN_BACKOFF = 0.1
MAX_BACKOFF = 60.0

_FIRST_WINDOW = 4

_ACKS = frozenset({102, 200, 201, 202, 204})


def acks(status: int) -> bool:
    """Whether a response with this HTTP status acknowledges the message."""
    return status in _ACKS


class _Push(NamedTuple):
    number: int
    ends_at: float


class Pushing:
    """What a push subscription has under way, and whether it may push more.

    Each success lets one more message be under way at once, so their number grows exponentially as
    long as all goes well. A failure halves it, and all pushes pause, for twice as long as the last
    time if nothing has succeeded since. Pushes that were under way when one failed count as one
    failure together.
    """

    def __init__(self, *, pauses: bool) -> None:
        self.pauses = pauses
        """Whether a failure makes all pushes pause."""
        self._under_way: dict[str, _Push] = {}  # by ack id
        self._begun = 0
        self.start_over()

    def start_over(self) -> None:
        """Forget what was learnt of the endpoint: it is another."""
        self.window = _FIRST_WINDOW
        self._backoff = 0.0
        self._not_before = -math.inf
        self._failed_after = self._begun  # pushes up to this one tell nothing new

    def __contains__(self, ack_id: str) -> bool:
        return ack_id in self._under_way

    @property
    def under_way(self) -> int:
        """How many messages are under way."""
        return len(self._under_way)

    def may_begin(self, now: float) -> bool:
        """Whether another message may be pushed."""
        return len(self._under_way) < self.window and now >= self._not_before

    def begin(self, ack_id: str, *, ends_at: float) -> None:
        """Note that a message is under way; its response counts until `ends_at`."""
        self._begun += 1
        self._under_way[ack_id] = _Push(self._begun, ends_at)

    def finish(self, ack_id: str, *, acked: bool, now: float) -> bool:
        """Note what came of a push; false if its time had passed, and so it does not count."""
        push = self._under_way.pop(ack_id, None)
        if push is None:
            return False
        if not acked:
            self._fail(push, now)
            return True
        self.window = min(self.window + 1, MAX_WINDOW)
        if push.number > self._failed_after:
            self._backoff = 0.0
        return True

    def drop(self, ack_id: str) -> bool:
        """Forget a push that was not sent, and so says nothing of the endpoint; see `finish`."""
        return self._under_way.pop(ack_id, None) is not None

    def abandon(self) -> None:
        """Nothing that is under way counts any more."""
        self._under_way.clear()

    def poll(self, now: float) -> None:
        """Give up what had no response in time."""
        for ack_id, push in list(self._under_way.items()):
            if push.ends_at <= now:
                del self._under_way[ack_id]
                self._fail(push, now)

    def next_at(self, now: float) -> float:
        """When there is something to do: an end, or the end of a pause."""
        ends_at = min((push.ends_at for push in self._under_way.values()), default=math.inf)
        return min(ends_at, self._not_before) if self._not_before > now else ends_at

    def _fail(self, push: _Push, now: float) -> None:
        if push.number <= self._failed_after:
            return
        self._failed_after = self._begun
        self.window = max(1, self.window // 2)
        if self.pauses:
            self._backoff = min(max(MIN_BACKOFF, 2 * self._backoff), MAX_BACKOFF)
            self._not_before = now + self._backoff

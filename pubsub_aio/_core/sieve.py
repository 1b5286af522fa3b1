"""What became of messages that are looked at one by one, and when that is over."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

Stays = Literal["skipped", "failed", "held_back", "came_back"]
Ending = Literal["empty", "limit", "max_held", "failures"]

MAX_FAILURES = 3
"""Failures in a row that are no fault of the messages: it is no use to go on."""

MAX_REMEMBERED = 100_000
"""Ids of messages that are done with and are known should they come again: the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When to end.

    Attributes:
        limit: How many messages are taken at most; none for all of them.
        max_held: How many that stay may be held.
        max_held_bytes: What these may take.
        at_once: How many may be about to be taken.
        at_once_bytes: What these may take; one may be, however large.
        idle: Seconds without a message after which there are no more.
    """

    limit: int | None
    max_held: int
    max_held_bytes: int
    at_once: int
    at_once_bytes: int
    idle: float


class Sieve:
    """Counts messages that come and go. It decides; it never waits, sends or reads a clock.

    A message is under way from `came` to `went`. In between it is taken and done with, or it
    stays. Where the subscription has order, what stays holds back the later ones of its ordering
    key: these would come again behind it, acked or not.

    Args:
        bounds: When to end.
        ordered: Whether the subscription has order.
        now: When it begins.
    """

    def __init__(self, bounds: Bounds, *, ordered: bool, now: float) -> None:
        self.counts: Counter[str] = Counter()
        """How many were `taken`, `skipped`, `failed`, `held_back` and `came_back`."""
        self._bounds = bounds
        self._ordered = ordered
        self._under_way: set[str] = set()
        self._taking: dict[str, int] = {}  # with their bytes
        self._taking_bytes = 0
        self._done: dict[str, None] = {}
        self._held: dict[str, int] = {}  # with their bytes
        self._held_bytes = 0
        self._stopped_keys: set[str] = set()
        self._failures = 0
        self._quiet_since = now

    # A message

    def came(self, message_id: str, *, now: float) -> Literal["new", "done", "known"]:
        """A message came: a new one, or again one that is done with, or that is here."""
        self._quiet_since = now
        if message_id in self._done:
            return "done"
        if message_id in self._under_way or message_id in self._held:
            return "known"
        self._under_way.add(message_id)
        return "new"

    def went(self, message_id: str, *, now: float) -> None:
        """Nothing more is done with a message at the moment."""
        self._under_way.discard(message_id)
        self._quiet_since = now

    def holds_back(self, ordering_key: str) -> bool:
        """Whether an earlier message of the key stays."""
        return ordering_key in self._stopped_keys

    def take(self, message_id: str, *, size: int) -> bool:
        """Begin to take a message, unless as much is taken, or about to be, as may be."""
        bounds = self._bounds
        most = math.inf if bounds.limit is None else bounds.limit - self.counts["taken"]
        if len(self._taking) >= min(bounds.at_once, most):
            return False
        if self._taking and self._taking_bytes + size > bounds.at_once_bytes:
            return False
        self._taking[message_id] = size
        self._taking_bytes += size
        return True

    def let_go(self, message_id: str) -> None:
        """It is not about to be taken any more. Unless more is said of it, it comes again."""
        self._taking_bytes -= self._taking.pop(message_id, 0)

    def taken(self, message_id: str) -> None:
        """It was taken, and is done with."""
        self.let_go(message_id)
        self._failures = 0
        self.counts["taken"] += 1
        self._done[message_id] = None
        if len(self._done) > MAX_REMEMBERED:
            del self._done[next(iter(self._done))]

    def shown(self, message_id: str, *, size: int) -> None:
        """It was taken, and is held all the same."""
        self.let_go(message_id)
        self.counts["taken"] += 1
        self._hold(message_id, size)

    def stays(self, message_id: str, why: Stays, *, size: int, ordering_key: str) -> None:
        """It stays where it is, and is held until the end.

        Args:
            message_id: Which.
            why: How it is counted.
            size: Its bytes.
            ordering_key: Its key, if it has one.
        """
        self.let_go(message_id)
        self.counts[why] += 1
        self._hold(message_id, size)
        if self._ordered and ordering_key:
            self._stopped_keys.add(ordering_key)

    def failed(self) -> None:
        """Something failed that is no fault of a message."""
        self._failures += 1

    def _hold(self, message_id: str, size: int) -> None:
        self._held[message_id] = size
        self._held_bytes += size

    # The end

    def ending(self, *, now: float) -> Ending | None:
        """Whether it is over, and why."""
        bounds = self._bounds
        if self._failures >= MAX_FAILURES:
            return "failures"
        if bounds.limit is not None and self.counts["taken"] >= bounds.limit:
            return "limit"
        if len(self._held) >= bounds.max_held or self._held_bytes >= bounds.max_held_bytes:
            return "max_held"
        return "empty" if now >= self.empty_at else None

    @property
    def empty_at(self) -> float:
        """When there will be no more, if none comes before."""
        return math.inf if self._under_way else self._quiet_since + self._bounds.idle

    def wait_on(self, *, now: float) -> None:
        """Nothing could come until now: count the silence from here."""
        self._quiet_since = now

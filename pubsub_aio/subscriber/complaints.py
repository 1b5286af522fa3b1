"""What should not happen, in words that say what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

LATE = 1.0
"""Seconds by which a timer may be late before the loop counts as blocked."""

_ENOUGH = 20  # messages of which it is told that too many take too long


class Complaints:
    """Counts what should not happen, and tells of it.

    Args:
        counts: What has happened to messages so far, by what it was.
        report: Is told: a kind, and what to do about it.
    """

    def __init__(self, counts: Counter[str], report: Callable[[str, str], None]) -> None:
        self._counts = counts
        self._report = report

    def late(self, seconds: float) -> None:
        """A timer was late by so much; if that is long, the loop was blocked."""
        if seconds <= LATE:
            return
        self._counts["blocked"] += 1
        self._report(
            "blocked",
            f"the event loop was blocked for {seconds:.1f} s: leases are not renewed meanwhile. "
            "Let callbacks await, or give a ThreadScheduler to those that cannot",
        )

    def expired(self, count: int, max_lease_duration: float) -> None:
        """That many messages were held for too long."""
        counts = self._counts
        counts["expired"] += count
        self._report(
            "expired",
            f"{count} messages were held longer than max_lease_duration, "
            f"{max_lease_duration:g} s, and let go",
        )
        # Of messages that are held too long there are more than 5 % if, and only if, the 95th
        # percentile of the time that they take is above max_lease_duration.
        ended = sum(counts[how] for how in ("acked", "nacked", "dropped", "expired"))
        if ended >= _ENOUGH and counts["expired"] * 20 > ended and not counts["slow"]:
            counts["slow"] += 1
            self._report(
                "slow",
                f"{counts['expired']} of {ended} messages took longer than max_lease_duration "
                "allows: set it to no less than the 95th percentile of the time they take",
            )

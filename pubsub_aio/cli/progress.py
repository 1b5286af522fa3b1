"""How far `pubsub-aio ingest` has come: counted, shown in a line, and summed up."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

from pubsub_aio.cli.live import live_line
from pubsub_aio.cli.output import reason

if TYPE_CHECKING:
    from pubsub_aio.spark.batch import BatchReport
    from pubsub_aio.subscriber.subscription import Subscription

_LOOK_EVERY = 0.2  # seconds
_REMEMBERED = 10_000  # batches, for the median


class Tally:
    """Counts what was written.

    Args:
        limit: How many messages are to be written; none for all.
    """

    def __init__(self, *, limit: int | None) -> None:
        self.rows = 0
        self.failures = 0
        """Batches in a row that failed."""
        self.last_error = ""
        self._limit = limit
        self._batches = self._failed = self._given_back = 0
        self._longest = 0.0
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)  # that each batch took
        self._began_at = time.monotonic()
        self._first_at = math.inf
        self._last_at = -math.inf

    @property
    def room(self) -> int:
        """How many more may be written."""
        return sys.maxsize if self._limit is None else self._limit - self.rows

    @property
    def is_full(self) -> bool:
        """Whether no more may be written."""
        return self.room <= 0

    def add(self, report: BatchReport) -> None:
        """A batch has ended."""
        if self.is_full:
            return  # there was no room for it
        now = time.monotonic()
        self._first_at = min(self._first_at, now - report.seconds)
        self._last_at = now
        if report.outcome == "acked":
            self.rows += report.acked
            self.failures = 0
            self._batches += 1
            self._longest = max(self._longest, report.seconds)
            self._seconds.append(report.seconds)
        elif report.outcome == "cancelled":
            self._given_back += report.nacked
        else:
            self.failures += 1
            self._failed += 1
            self.last_error = reason(report.error)

    @property
    def is_empty(self) -> bool:
        """Whether no batch has ended."""
        return not self._batches and not self._failed

    @property
    def _rate(self) -> float:
        """Rows a second, from the first message to the last."""
        return self.rows / max(1e-9, self._last_at - self._first_at) if self.rows else 0.0

    def line(self, live: Subscription) -> str:
        """How it stands."""
        health = live.health()
        parts = [f"{self.rows:,} rows", f"{self._rate:,.0f} a second"]
        if self._seconds:
            parts.append(f"last batch {self._seconds[-1]:.1f} s")
        parts.append(f"{health.leased:,} in flight")
        if self.failures:
            parts.append(f"{self.failures} failed in a row: {self.last_error}")
        elif live.stopping:
            parts.append("finishing what has begun, again to stop at once")
        elif health.state != "running":
            parts.append(health.state)
        return " | ".join(parts)

    def summary(self, path: str, kind: str) -> list[str]:
        """What was done."""
        rate = f"   {self._rate:,.0f} a second, from the first to the last" if self.rows else ""
        lines = [
            f"{path} ({kind})",
            f"  rows       {self.rows:>12,}{rate}",
            f"  batches    {self._batches:>12,}" + self._batch_times(),
        ]
        if self._failed:
            twice = ", and may be there twice: tell them by message_id" if self.rows else ""
            lines.append(f"  failed     {self._failed:>12,}   their messages come again{twice}")
        if self._given_back:
            lines.append(f"  given back {self._given_back:>12,}   begun when it ended, come again")
        lines.append(f"  took       {time.monotonic() - self._began_at:>10.1f} s")
        return lines

    def _batch_times(self) -> str:
        if not self._seconds:
            return ""
        return f"   median {median(self._seconds):.1f} s, longest {self._longest:.1f} s"


async def watch(live: Subscription, tally: Tally, *, idle: float, stop: Callable[[], None]) -> None:
    """Show how it goes until cancelled; stop it when nothing has come for so many seconds."""
    before, since = (0, 0), time.monotonic()
    with live_line() as show:
        while True:
            now, health = time.monotonic(), live.health()
            seen = (health.counts.get("received", 0), tally.rows)
            waits = health.leased or health.received or health.state != "running"
            if seen != before or waits:
                before, since = seen, now
            if now - since >= idle:
                stop()
            show(tally.line(live))
            await asyncio.sleep(_LOOK_EVERY)

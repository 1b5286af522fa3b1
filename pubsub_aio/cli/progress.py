"""How far `pubsub-aio ingest` has come: counted, shown in a line, and summed up."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from pubsub_aio.cli.output import say

if TYPE_CHECKING:
    from pubsub_aio.spark.batch import BatchReport
    from pubsub_aio.subscriber.subscription import Subscription

_LOOK_EVERY = 0.2  # seconds
_SAY_EVERY = 10.0  # seconds, where there is no terminal


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
        self._seconds: list[float] = []  # that each batch took
        self._failed = self._came_again = 0
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
            self._seconds.append(report.seconds)
        elif report.outcome != "cancelled":
            self.failures += 1
            self._failed += 1
            self._came_again += report.nacked
            self.last_error = _reason(report.error)

    @property
    def is_empty(self) -> bool:
        """Whether no batch has ended."""
        return not self._seconds and not self._failed

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
        lines = [
            f"{path} ({kind})",
            f"  rows       {self.rows:>12,}   {self._rate:,.0f} a second",
            f"  batches    {len(self._seconds):>12,}" + self._batch_times(),
        ]
        if self._failed:
            lines.append(
                f"  failed     {self._failed:>12,}   {self._came_again:,} messages came again, "
                "some may be there twice: tell them by message_id"
            )
        lines.append(f"  took       {time.monotonic() - self._began_at:>10.1f} s")
        return lines

    def _batch_times(self) -> str:
        if not self._seconds:
            return ""
        return f"   median {median(self._seconds):.1f} s, longest {max(self._seconds):.1f} s"


def _reason(error: BaseException | None) -> str:
    """The line of an error that says what is wrong; Py4J begins with one that does not."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred")]
    return [*said, *lines][0]


async def watch(live: Subscription, tally: Tally, *, idle: float) -> None:
    """Show how it goes until cancelled; stop it when nothing has come for so many seconds."""
    console = Console(stderr=True)
    before, since, said_at = (0, 0), time.monotonic(), time.monotonic()
    spinner = Spinner("dots")
    with Live(spinner, console=console, transient=True, auto_refresh=console.is_terminal):
        while True:
            now, health = time.monotonic(), live.health()
            seen = (health.counts.get("received", 0), tally.rows)
            if seen != before or health.leased or health.state != "running":
                before, since = seen, now
            if now - since >= idle and not live.stopping:
                live.stop()
            spinner.update(text=tally.line(live))
            if not console.is_terminal and now - said_at >= _SAY_EVERY:
                said_at = now
                say(tally.line(live))
            await asyncio.sleep(_LOOK_EVERY)

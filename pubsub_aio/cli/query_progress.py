"""How far a streaming query of `pubsub-aio ingest` has come: counted, told, and summed up."""

from __future__ import annotations

import ast
import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Any

_REMEMBERED = 10_000  # batches, for the median


class QueryTally:
    """Counts what a query has written, from what Spark tells of its batches."""

    def __init__(self) -> None:
        self.rows = 0
        self.batches = 0
        self.duplicates = 0
        """Messages that came again and were dropped."""
        self.began = self.reached = 0
        """The batches of the log after which it began, and up to which it has come."""
        self._known_before: int | None = None  # duplicates, of earlier runs
        self._last_batch = -1
        self._waiting_rows = self._waiting_segments = 0
        self._longest = 0.0
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)  # that each batch took
        self._began_at = time.monotonic()
        self._first_time: datetime | None = None
        self._last_time: datetime | None = None

    def add(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Take what Spark has told, in order; what was taken before counts once."""
        for progress in told:
            self._add(progress, progress["sources"][0])

    def _add(self, progress: Mapping[str, Any], source: Mapping[str, Any]) -> None:
        end = _offset(source["endOffset"])
        if self._known_before is None:
            start = _offset(source["startOffset"])
            self._known_before = start.get("duplicatesDropped", 0)
            self.began = start.get("seq", 0)
        self.reached = end.get("seq", 0)
        self.duplicates = max(self.duplicates, end.get("duplicatesDropped", 0) - self._known_before)
        # What waits: since 4.2 as it is now, before that as it was when the batch was made.
        now = _offset(source["latestOffset"]) or end
        self._waiting_rows = now.get("backlogRows", 0)
        self._waiting_segments = now.get("segmentsWaiting", 0)
        if progress["numInputRows"] and progress["batchId"] > self._last_batch:
            self._add_batch(progress)

    def _add_batch(self, progress: Mapping[str, Any]) -> None:
        self._last_batch = progress["batchId"]
        self.rows += progress["numInputRows"]
        self.batches += 1
        seconds = progress["batchDuration"] / 1_000
        self._longest = max(self._longest, seconds)
        self._seconds.append(seconds)
        began = datetime.fromisoformat(progress["timestamp"])
        self._first_time = self._first_time or began
        self._last_time = began + timedelta(seconds=seconds)

    @property
    def _rate(self) -> float:
        """Rows a second, from the first batch to the last."""
        if self._first_time is None or self._last_time is None:
            return 0.0
        return self.rows / max(1e-3, (self._last_time - self._first_time).total_seconds())

    def line(self) -> str:
        """How it stands."""
        segments = "segment" if self._waiting_segments == 1 else "segments"
        parts = [
            f"{self.rows:,} rows",
            f"{self._rate:,.0f} a second",
            f"{self._waiting_rows:,} waiting in {self._waiting_segments:,} {segments}",
            f"{self.duplicates:,} duplicates",
        ]
        return " | ".join(parts)

    def summary(self, path: str, kind: str, *, checkpoint: str, wal: str) -> list[str]:
        """What was done."""
        rate = f"   {self._rate:,.0f} a second, from the first to the last" if self.rows else ""
        times = ""
        if self._seconds:
            times = f"   median {median(self._seconds):.1f} s, longest {self._longest:.1f} s"
        again = "   came again, and are not there twice" if self.duplicates else ""
        return [
            f"{path} ({kind}, exactly once)",
            f"  rows       {self.rows:>12,}{rate}",
            f"  batches    {self.batches:>12,}{times}",
            f"  duplicates {self.duplicates:>12,}{again}",
            f"  took       {time.monotonic() - self._began_at:>10.1f} s",
            f"To go on, give --to {path} and --checkpoint {checkpoint} again: what has come",
            f"and is not written yet is in the log, {wal}, not in the subscription any more.",
        ]


def _offset(text: object) -> dict[str, Any]:
    """An offset as Spark tells it: JSON, or before 4.2 as Python prints it; empty if none."""
    try:
        found = ast.literal_eval(str(text))  # there are but numbers and plain words in it
    except (SyntaxError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

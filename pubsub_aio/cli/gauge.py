"""How far an action on dead letters has come: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pubsub_aio.cli.output import say

if TYPE_CHECKING:
    from pubsub_aio.jobs.sifting import Report

_SAY_EVERY = 10.0  # seconds, where there is no terminal


class Gauge:
    """Shows reports as they come. It is a context manager.

    Args:
        done: What becomes of messages, in a word.
        limit: How many there are to be, if that is known.
    """

    def __init__(self, *, done: str, limit: int | None) -> None:
        self.last: Report | None = None
        """The last report, if there was one."""
        self._done = done
        console = Console(stderr=True)
        self._terminal = console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._terminal,
        )
        self._task = self._progress.add_task("looking ...", total=limit)
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, report: Report) -> None:
        """Show how it stands."""
        self.last = report
        line = self._line(report)
        self._progress.update(self._task, description=line, completed=report.moved)
        now = time.monotonic()
        if not self._terminal and now - self._said_at >= _SAY_EVERY:
            self._said_at = now
            say(line)

    def _line(self, report: Report) -> str:
        parts = [f"{report.moved:,} {self._done}"]
        for count, what in (
            (report.skipped, "not matching"),
            (report.held_back, "held back"),
            (report.came_back, "came back"),
            (report.failed, "failed"),
        ):
            if count:
                parts.append(f"{count:,} {what}")
        return ", ".join(parts)

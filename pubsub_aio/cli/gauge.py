"""How far an action on dead letters has come: a bar on a terminal, else a line now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pubsub_aio.cli.live import NowAndThen

if TYPE_CHECKING:
    from pubsub_aio.jobs.sifting import Report


class Gauge:
    """Shows reports as they come, on a bar.

    Args:
        done: What becomes of messages, in a word.
        limit: How many there are to be, if that is known.
    """

    def __init__(self, *, done: str, limit: int | None) -> None:
        self.last: Report | None = None
        """The last report, if there was one."""
        self._done = done
        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        """A context manager, which shows it."""
        self._task = self.bar.add_task("looking ...", total=limit)
        self._now_and_then = NowAndThen(console)

    def show(self, report: Report) -> None:
        """Show how it stands."""
        self.last = report
        line = self._line(report)
        self.bar.update(self._task, description=line, completed=report.moved)
        self._now_and_then.say(line)

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

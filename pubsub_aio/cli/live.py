"""What changes on the terminal while a command works; elsewhere it is said every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from pubsub_aio.cli.output import say

_SAY_EVERY = 10.0  # seconds


class NowAndThen:
    """Says one of many lines where there is no terminal that could show them all.

    Args:
        console: Where they would be shown.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said_at = time.monotonic()

    def say(self, line: str) -> None:
        """Say it, unless one was said lately."""
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said_at >= _SAY_EVERY:
            self._said_at = now
            say(line)


@contextmanager
def live_line() -> Iterator[Callable[[str], None]]:
    """A line that changes: what this gives is told the text to show from then on."""
    console = Console(stderr=True)
    now_and_then = NowAndThen(console)
    spinner = Spinner("dots")

    def show(text: str) -> None:
        spinner.update(text=text)
        now_and_then.say(text)

    with Live(spinner, console=console, transient=True, auto_refresh=console.is_terminal):
        yield show

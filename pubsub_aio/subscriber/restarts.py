"""Ordering keys whose messages were given back: when what comes for them can be trusted again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

Restart = tuple[str, int]
"""The key of a message that was given back, and which of its restarts that is."""


class Reader(Protocol):
    """Who reads messages from the server."""

    async def run(self) -> None:
        """Read until cancelled."""

    def reopen(self) -> None:
        """Tell the server anew what it is told at the beginning."""

    async def everything_read(self) -> bool:
        """Return when all that the server had sent at the call has been read.

        Returns whether that is so; it is not if the stream ended before.
        """


class Restarts:
    """Waits, for as long as its `run` runs, until everything sent before has been read.

    Args:
        readers: Everybody who reads messages.
        all_read: Is told the restarts for which that holds.
        deadline: Returns the seconds after which what was not read has expired on the server.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        all_read: Callable[[list[Restart]], None],
        deadline: Callable[[], float],
    ) -> None:
        self._readers = readers
        self._all_read = all_read
        self._deadline = deadline
        self._ended = False
        self._due: list[Restart] = []
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._later: dict[Restart, asyncio.TimerHandle] = {}  # by the first of each group

    def add(self, restarts: list[Restart], delay: float) -> None:
        """Messages were given back, and may come again after that many seconds."""
        if self._ended:
            return
        if delay:
            timer = self._loop.call_later(delay, self._after, restarts)
            self._later[restarts[0]] = timer
        else:
            self._due += restarts
            self._wake.set()

    def _after(self, restarts: list[Restart]) -> None:
        del self._later[restarts[0]]
        self.add(restarts, 0.0)

    async def run(self) -> None:
        """Do so until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                due, self._due = self._due, []
                read = await asyncio.gather(*(one.everything_read() for one in self._readers))
                if all(read):
                    self._all_read(due)
                else:  # what was in a stream that ended comes again when it expires
                    self.add(due, self._deadline())
        finally:
            self._ended = True
            for timer in self._later.values():
                timer.cancel()

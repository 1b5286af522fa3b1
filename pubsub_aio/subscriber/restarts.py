"""Ordering keys whose messages were given back: when what comes for them can be trusted again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol


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
        all_read: Is told the restarts, keys and numbers, for which that holds.
        deadline: Returns the seconds after which what was not read has expired on the server.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        all_read: Callable[[list[tuple[str, int]]], None],
        deadline: Callable[[], float],
    ) -> None:
        self._readers = readers
        self._all_read = all_read
        self._deadline = deadline
        self._ended = False
        self._due: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._later: dict[tuple[str, int], asyncio.TimerHandle] = {}

    def add(self, key: str, number: int, delay: float) -> None:
        """A message of this key was given back, and may come again after the delay.

        Args:
            key: The ordering key.
            number: Which of its restarts this is.
            delay: Seconds.
        """
        if self._ended:
            return
        if delay:
            if (sooner := self._later.pop((key, number), None)) is not None:
                sooner.cancel()
            timer = self._loop.call_later(delay, self._after, key, number)
            self._later[key, number] = timer
        else:
            self._due[key] = max(number, self._due.get(key, number))
            self._wake.set()

    def _after(self, key: str, number: int) -> None:
        self._later.pop((key, number), None)
        self.add(key, number, 0.0)

    async def run(self) -> None:
        """Do so until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    due, self._due = self._due, {}
                    tasks.create_task(self._follow(due))
        finally:
            self._ended = True
            for timer in self._later.values():
                timer.cancel()

    async def _follow(self, restarts: dict[str, int]) -> None:
        read = await asyncio.gather(*(reader.everything_read() for reader in self._readers))
        if all(read):
            self._all_read(list(restarts.items()))
            return
        # What was in a stream that ended is lost; the server sends it again when it expires.
        for key, number in restarts.items():
            self.add(key, number, self._deadline())

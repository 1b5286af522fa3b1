"""Ordering keys whose messages were given back: when what comes for them can be trusted again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from pubsub_aio._core.lanes import Lanes
from pubsub_aio.subscriber.held import Held

SLACK = 1.0
"""Seconds by which the server may be late with a message that was delayed."""

M = TypeVar("M", bound=Held)

Restart = tuple[str, int]
"""The key of a message that was given back, and which of its restarts that is."""


class Reader(Protocol):
    """Who reads messages from the server."""

    async def run(self) -> None:
        """Read until cancelled."""

    async def finish(self) -> None:
        """Take what is on its way, and return when nothing comes any more."""

    def reopen(self) -> None:
        """Tell the server anew what it is told at the beginning."""

    async def pause(self) -> bool:
        """Take what is on its way, and return when nothing comes until `resume` is called.

        Returns whether all that the server had sent was read.
        """

    def resume(self) -> None:
        """Read again."""

    async def everything_read(self) -> bool:
        """Return when all that the server had sent at the call has been read.

        Returns whether that is so; it is not if the stream ended before.
        """


class GivenBack(Generic[M]):
    """Messages that were given back and are waited for, until the server knows of it.

    Args:
        lanes: Know for which of them is waited.
    """

    def __init__(self, lanes: Lanes[M]) -> None:
        self._lanes = lanes
        self.on_restart: Callable[[list[Restart], float], None] = lambda *_: None
        """Called with restarts of which the server knows, and the seconds after which their
        messages may come again."""
        self._by_id: dict[str, tuple[Restart, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, messages: list[M], *, told: bool = True, stale: bool = False) -> None:
        """Messages were given back.

        Args:
            messages: All of them.
            told: Whether the server is told of it, and so will answer.
            stale: Whether they came too early.
        """
        for message in messages:
            if (number := self._lanes.restart_of(message)) is not None:
                restart = (message.ordering_key, number)
                if told:
                    self._by_id[message.ack_id] = (restart, stale)
                else:
                    self.on_restart([restart], 0.0)

    def answered(self, ack_ids: Iterable[str], seconds: int, *, now: float) -> None:
        """The server knows that these were given back, to come again after that many seconds."""
        found = [self._by_id.pop(one) for one in ack_ids if one in self._by_id]
        if not found:
            return
        delay = seconds + SLACK if seconds else 0.0
        for (key, _), stale in found:
            if delay and not stale:
                self._lanes.put_off(key, until=now + delay)
        self.on_restart([restart for restart, _ in found], delay)


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

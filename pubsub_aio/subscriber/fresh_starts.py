"""Order where it cannot be told which message comes again: everything goes back, and begins anew.

A record batch is never the same twice, so nothing tells what was given back from what was sent
before. When one is given back, reading ends; what came meanwhile goes back as well; and only when
the server knows of all that is it read again. Then it sends everything in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pubsub_aio.subscriber.restarts import Reader, Restart
from pubsub_aio.subscriber.sender import Sender


class FreshStarts:
    """Begins anew whenever something was given back, for as long as its `run` runs.

    Args:
        readers: Everybody who reads messages.
        sender: Tells the server.
        deadline: Returns the seconds after which what was not read has expired on the server.
        give_back: Gives back what came and was put aside.
        trust: Is called when what comes is in order again.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        sender: Sender,
        deadline: Callable[[], float],
        *,
        give_back: Callable[[], None],
        trust: Callable[[], None],
    ) -> None:
        self._readers = readers
        self._sender = sender
        self._deadline = deadline
        self._give_back = give_back
        self._trust = trust
        self._not_before = 0.0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, restarts: list[Restart], delay: float) -> None:
        """Batches were given back, and may come again after that many seconds."""
        del restarts
        self._wait_for(delay)
        self._wake.set()

    def _wait_for(self, delay: float) -> None:
        self._not_before = max(self._not_before, self._loop.time() + delay)

    async def run(self) -> None:
        """Do so until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            read = await asyncio.gather(*(reader.pause() for reader in self._readers))
            if not all(read):  # what was in a stream that ended comes again when it expires
                self._wait_for(self._deadline())
            self._give_back()
            await self._sender.nacks_answered()
            await asyncio.sleep(self._not_before - self._loop.time())
            self._trust()
            for reader in self._readers:
                reader.resume()

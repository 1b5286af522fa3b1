"""What happens once before a publisher begins."""

from __future__ import annotations

import asyncio
import logging

from pubsub_aio.errors import Check
from pubsub_aio.publisher.topics import Topics

log = logging.getLogger("pubsub_aio.publisher")


class Startup:
    """Opens what is needed and checks what can be checked, once.

    Args:
        topics: Who checks.
        to_check: Full names of the topics.
        timeout: Seconds for an endpoint to answer.
    """

    def __init__(self, topics: Topics, to_check: list[str], *, timeout: float) -> None:
        self._topics = topics
        self._to_check = to_check
        self._timeout = timeout
        self._lock = asyncio.Lock()
        self._checking: asyncio.Task[list[Check]] | None = None
        self._over = False

    async def run(self) -> None:
        """Do it, unless it was done or given up.

        Raises:
            StartupError: It is no use to go on.
        """
        async with self._lock:
            if self._over:
                return
            check = self._topics.check(self._to_check, timeout=self._timeout)
            self._checking = asyncio.get_running_loop().create_task(check)
            try:
                checks = await self._checking
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                return  # it was given up
            for each in checks:
                log.log(logging.DEBUG if each.outcome == "ok" else logging.WARNING, each)
            self._over = True

    def give_up(self) -> None:
        """Do not go on with it."""
        self._over = True
        if self._checking is not None:
            self._checking.cancel()

    async def ended(self) -> None:
        """Return when nothing of it runs any more."""
        if self._checking is not None and not self._checking.done():
            await asyncio.wait([self._checking])

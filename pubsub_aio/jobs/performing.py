"""Where jobs are performed, and how many at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from pubsub_aio.jobs.job import Job
from pubsub_aio.jobs.options import Handler
from pubsub_aio.jobs.threads import JobThreads, Run
from pubsub_aio.subscriber.schedulers import is_async

Slot = Callable[[], contextlib.AbstractAsyncContextManager[Run]]
"""Waits for its turn, and gives what runs a handler then."""

THREADS = 10
"""Plain functions that run at once, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Performing:
    """A handler, and how it has its turn."""

    handler: Handler
    slot: Slot


class Workplace:
    """Where the jobs of one worker are performed: in the loop, or in threads.

    Args:
        concurrency: How many at once; none for as many as come in the loop, and ten in threads.
    """

    def __init__(self, concurrency: int | None) -> None:
        self._concurrency = concurrency
        self._turns: contextlib.AbstractAsyncContextManager[object] = (
            asyncio.Semaphore(concurrency) if concurrency else contextlib.nullcontext()
        )
        self._threads: JobThreads | None = None

    def of(self, handler: Handler) -> Performing:
        """How a handler performs jobs here."""
        if is_async(handler):
            return Performing(handler, self._in_loop)
        if self._threads is None:
            self._threads = JobThreads(max_workers=self._concurrency or THREADS)
        return Performing(handler, self._threads.slot)

    @contextlib.asynccontextmanager
    async def _in_loop(self) -> AsyncIterator[Run]:
        async with self._turns:
            yield _awaited

    def close(self) -> None:
        """Begin no plain function any more."""
        if self._threads is not None:
            self._threads.close()


async def _awaited(handler: Handler, job: Job) -> None:
    await handler(job)  # type: ignore[misc] # it is async

"""Threads in which plain functions perform jobs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pubsub_aio.config import check
from pubsub_aio.errors import ClosedError
from pubsub_aio.jobs.job import Job
from pubsub_aio.jobs.options import Handler
from pubsub_aio.subscriber.schedulers import Outcome, outcome_of

log = logging.getLogger("pubsub_aio.jobs")

Run = Callable[[Handler, Job], Coroutine[Any, Any, None]]
"""Runs a function with a job in a thread, and returns when it has ended, or raises what it raised.

If the function returns something that can be awaited, that is awaited in the loop.
"""


class JobThreads:
    """Runs plain functions in threads of its own, each of which must be free first.

        async with threads.slot() as run:  # waits for a thread
            if not is_dropped(job):
                await run(function, job)

    Whoever has a slot has a thread that waits for it, so that what is looked at inside of the block
    still holds when the function begins. There is no way to run a function without a slot.

    A function that runs cannot be stopped. If whoever awaits it is cancelled, the block is left at
    once, but the function goes on, and its slot is free again only when it has ended. One that has
    not begun by then never does.

    The threads belong to one event loop. They are begun when they are needed, and end when this is
    closed or nobody has it any more; a program that ends waits for functions that still run.

    Args:
        max_workers: How many threads there are at most.
    """

    def __init__(self, *, max_workers: int = 10) -> None:
        check("max_workers", max_workers, 1, whole=True)
        self._pool = ThreadPoolExecutor(max_workers, thread_name_prefix="pubsub-aio-jobs")
        self._free = asyncio.Semaphore(max_workers)
        self._closed = False

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[Run]:
        """Wait for a thread, and have it inside of the block.

        What it gives runs a function there, one at a time, and only inside of the block.

        Raises:
            ClosedError: No function begins any more.
        """
        await self._free.acquire()
        slot = _Slot(self._pool)
        try:
            if self._closed:
                raise ClosedError("the threads of this worker are closed: make another worker")
            yield slot.run
        finally:
            slot.leave(self._free.release)

    def close(self) -> None:
        """Begin no function any more. Those that run go on; who waits for a thread is told."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._free.release()  # wakes one, who wakes the next in leaving


class _Slot:
    """A thread of a pool that is kept for whoever has this."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._call: Future[Outcome] | None = None
        self._left = False

    async def run(self, function: Handler, job: Job) -> None:
        if self._left or not (self._call is None or self._call.done()):
            raise RuntimeError("a slot runs one function at a time, and none once it was left")
        # The pool's own future is lost when whoever awaits it is cancelled: this one tells the end.
        self._call = call = Future[Outcome]()
        perform = functools.partial(contextvars.copy_context().run, outcome_of, function, job)
        try:
            await self._loop.run_in_executor(self._pool, _make, call, perform)
        except BaseException:
            if not call.cancel():
                call.add_done_callback(functools.partial(_forget, job))
            raise
        await call.result().take()

    def leave(self, free: Callable[[], None]) -> None:
        """Run no more, and say so when the thread is free."""
        self._left = True
        if (call := self._call) is None or call.done():
            free()
        else:
            call.add_done_callback(lambda _: self._in_loop(free))

    def _in_loop(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits there
            self._loop.call_soon_threadsafe(function)


def _make(call: Future[Outcome], perform: Callable[[], Outcome]) -> None:
    """In the thread: make a call, unless it was cancelled."""
    if call.set_running_or_notify_cancel():
        call.set_result(perform())


def _forget(job: Job, call: Future[Outcome]) -> None:
    """In the thread: let go of the outcome of a call that nobody awaits any more."""
    outcome = call.result()
    if outcome.raised is not None:
        log.warning(
            "%r was cancelled, and failed in its thread later", job, exc_info=outcome.raised
        )
    elif inspect.iscoroutine(outcome.returned):
        outcome.returned.close()

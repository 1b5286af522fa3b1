"""Calls the user's function with a DataFrame, away from the event loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Protocol

from pubsub_aio.spark.batch import MicroBatch
from pubsub_aio.spark.frames import dataframe
from pubsub_aio.spark.jobs import Jobs
from pubsub_aio.spark.threads import DaemonThreads
from pubsub_aio.subscriber.schedulers import check_callback, is_async

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Handle = Callable[["DataFrame", MicroBatch], object]

_INTERRUPT_EVERY = 1.0  # seconds, for a handler that begins one job after another

log = logging.getLogger("pubsub_aio.spark")


class Handler(Protocol):
    """Who does something with a micro-batch."""

    async def run(self, batch: MicroBatch) -> Exception | None:
        """Deal with a batch; returns what was raised, if anything was."""

    async def ended(self, batch: MicroBatch) -> None:
        """Return when nothing runs any more for a batch whose `run` was cancelled."""

    def close(self) -> None:
        """No more batches come."""


class SparkHandler:
    """Hands micro-batches to a function as DataFrames.

    A plain function runs in a thread, and its jobs in Spark can be cancelled. An async one runs in
    the loop; what it does with Spark should not, and cannot be cancelled from here.

    Args:
        spark: Where the DataFrames are made.
        handle: The function.
        max_in_flight: How many threads there are.
    """

    def __init__(self, spark: SparkSession, handle: Handle, *, max_in_flight: int) -> None:
        check_callback(handle, "a DataFrame and a batch", name="handle", arguments=2)
        self._spark = spark
        self._handle = handle
        self._is_async = is_async(handle)
        self._jobs = Jobs(spark)
        self._threads = DaemonThreads(max_in_flight, "pubsub-aio spark")
        self._others = DaemonThreads(2 * max_in_flight, "pubsub-aio spark, aside")
        self._running: dict[MicroBatch, asyncio.Task[Exception | None]] = {}

    async def run(self, batch: MicroBatch) -> Exception | None:
        """Deal with a batch; returns what was raised, if anything was.

        Raises:
            SparkGoneError: Every batch would fail.
        """
        # A task of its own: when time is over it may take long to end, and `ended` waits for it.
        working = asyncio.create_task(self._work(batch))
        self._running[batch] = working
        working.add_done_callback(lambda _: self._running.pop(batch))
        try:
            error = await asyncio.shield(working)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not working.cancelled():
                working.cancel()
                raise
            error = RuntimeError("handle cancelled the task it ran in")
        if error is not None:
            await asyncio.wrap_future(self._others.submit(self._jobs.check_alive))
        return error

    async def _work(self, batch: MicroBatch) -> Exception | None:
        """Make a DataFrame and have it handled; ends when nothing runs for it any more."""
        try:
            result = await self._in_thread(batch, self._make if self._is_async else self._call)
            if isinstance(result, BaseException):
                return _as_failure(result)
            if self._is_async:
                result = self._handle(result, batch)  # type: ignore[arg-type] # a DataFrame
            await _completed(result)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            return _as_failure(error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the batch has failed
            return _as_failure(error)
        return None

    async def _in_thread(self, batch: MicroBatch, work: Callable[[MicroBatch], object]) -> object:
        running = self._threads.submit(self._tagged, batch, work)
        return await _to_its_end(
            running, lambda: self._others.submit(self._interrupt, batch, running)
        )

    def _tagged(self, batch: MicroBatch, work: Callable[[MicroBatch], object]) -> object:
        """Work in a thread; what it raises is returned, for a future cannot carry everything."""
        try:
            with self._jobs.tagged(batch.id):
                return work(batch)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it is told by the loop
            return error

    def _make(self, batch: MicroBatch) -> DataFrame:
        return dataframe(self._spark, batch.records)

    def _call(self, batch: MicroBatch) -> object:
        return self._handle(self._make(batch), batch)

    def _interrupt(self, batch: MicroBatch, running: Future[object]) -> None:
        """Have Spark fail whatever it runs for a batch, until that has ended."""
        while not running.done():
            try:
                self._jobs.interrupt(batch.id)
            except Exception:
                log.exception("the jobs of batch %s cannot be cancelled", batch.id)
                return
            wait([running], timeout=_INTERRUPT_EVERY)

    async def ended(self, batch: MicroBatch) -> None:
        """Return when nothing runs any more for a batch whose `run` was cancelled."""
        if working := self._running.get(batch):
            try:
                await asyncio.wait([working])
            except asyncio.CancelledError:
                working.cancel()  # nobody waits for it any more
                raise

    def close(self) -> None:
        """No more batches come. What runs goes on to its end."""
        self._threads.close()
        self._others.close()


async def _completed(result: object) -> None:
    """Wait for what a function returned, if that is still to come, and for what comes of it.

    Raises:
        TypeError: It is a generator, and nobody would run it.
    """
    while inspect.isawaitable(result) or isinstance(result, Future):
        if isinstance(result, Future):
            result = await _to_its_end(result, result.cancel)
        else:
            result = await result
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(f"handle must do its work and return, but it returned {result!r}")


async def _to_its_end(running: Future[object], cancel: Callable[[], object]) -> object:
    """Wait for a future; if nobody wants to wait any more, have it end, and wait for that."""
    waiting = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([waiting])
        raise


def _as_failure(error: BaseException) -> Exception:
    """What was raised, as an error like others: a panic in an extension is none."""
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"handle raised {type(error).__name__}")
    failure.__cause__ = error
    return failure

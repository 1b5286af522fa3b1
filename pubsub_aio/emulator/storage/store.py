"""Saving what a broker does: many changes in one write, and the log kept short."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pubsub_aio.emulator.status import Code, StatusError
from pubsub_aio.emulator.storage.directory import DataDirectory
from pubsub_aio.emulator.storage.ledger import SEGMENT, Batch, DamagedFileError, Ledger
from pubsub_aio.errors import DataDirectoryError

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.clock import Clock

T = TypeVar("T")

log = logging.getLogger("pubsub_aio.emulator")

_TRY_AGAIN = 1.0  # seconds until what could not be written is tried again
_LOOK_EVERY = 1.0  # seconds between looks at what the log's files are still needed for


class Store:
    """Keeps a broker's resources and messages in a directory.

    What changes is gathered while the last write is under way, and written and synced together.

    Args:
        path: The directory.
        broker: Whose changes to save; one that is new, for it goes on where the directory ends.
        clock: The broker's time.
        segment: Bytes after which a file of the log is followed by another.
    """

    def __init__(self, path: Path, broker: Broker, clock: Clock, *, segment: int = SEGMENT) -> None:
        self._directory = DataDirectory(path)
        self._ledger = Ledger(broker, full=segment)
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pubsub-emulator-store")
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._closing = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._trouble = ""
        self._writing = False
        self._look_at = 0.0

    # Life

    async def open(self) -> None:
        """Let the broker go on where the directory ends, and save what it does from now on.

        Raises:
            DataDirectoryError: The directory cannot be used; it was not changed.
        """
        try:
            await self._in_thread(self._load)
            await self._write_changes()
            if self._trouble:
                raise DataDirectoryError(self._trouble)
        except BaseException:
            await self._let_go()
            raise
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _load(self) -> None:
        directory = self._directory
        directory.open()
        try:
            needless = self._ledger.read(
                directory.numbers(),
                directory.read,
                now=self._clock.now(),
                ended_at=directory.ended_at,
            )
        except DamagedFileError as error:
            raise directory.damaged(directory.name(error.number), str(error)) from error
        if left_out := self._ledger.left_out:
            log.warning(
                "%s: %d bytes at the end were not written to their end, and are left out",
                directory.path,
                left_out,
            )
        for number in needless:  # it was let go of, and then there was no time to delete it
            directory.remove(number)

    async def close(self) -> None:
        """Save what is left, and let go of the directory.

        Raises:
            DataDirectoryError: It could not be written; what was not answered is lost.
        """
        task, self._task = self._task, None
        try:
            if task:
                self._closing.set()
                self._wanted.set()
                await task
                self._ledger.note_all_activity()
                await self._save()
                if not self._trouble:
                    await self._in_thread(self._directory.end, self._ledger.length)
        finally:
            await self._let_go()
        if self._trouble:
            raise DataDirectoryError(f"{self._trouble}: the latest changes are not saved")

    async def _let_go(self) -> None:
        # Whoever is cancelled while it closes must not leave it locked.
        await asyncio.shield(self._in_thread(self._directory.close))
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    # Asked by the service

    def check(self) -> None:
        """Refuse changes while they cannot be saved."""
        if self._trouble:
            raise StatusError(Code.UNAVAILABLE, f"{self._trouble}; try again when it can")

    def look(self) -> None:
        """Something may have changed."""
        if self._ledger.is_behind:
            self._wanted.set()

    async def saved(self) -> None:
        """Return once all that has changed so far is on disk.

        Raises:
            StatusError: It cannot be written.
        """
        self.check()
        if (self._ledger.is_behind or self._writing) and self._task:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._wanted.set()
            await waiting

    # Saving

    async def _run(self) -> None:
        while not self._closing.is_set():
            if not self._ledger.is_busy:
                await self._wanted_or_time_to_look()
            await self._save()
            if self._trouble:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TRY_AGAIN):
                        await self._closing.wait()

    async def _wanted_or_time_to_look(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY if self._ledger.has_older_files else None):
                await self._wanted.wait()

    def _look_after_files(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._look_at and not self._ledger.look_after_files():
            self._look_at = loop.time() + _LOOK_EVERY

    async def _save(self) -> None:
        """Write what has changed, and tell those who wait for it."""
        self._wanted.clear()
        waiting, self._waiting = self._waiting, []
        why = "the emulator is stopping"
        try:
            await self._write_changes()
            why = self._trouble
        finally:
            for one in waiting:
                if not one.done() and why:
                    one.set_exception(StatusError(Code.UNAVAILABLE, why))
                elif not one.done():
                    one.set_result(None)

    async def _write_changes(self) -> None:
        batch, why = None, ""
        try:
            self._look_after_files()
            batch = self._ledger.next_batch()
            if batch is None:
                return
            self._writing = True
            await self._in_thread(self._write, batch)
            self._ledger.written(batch)
        except OSError as error:
            why = f"{self._directory.path} cannot be written to: {error.strerror or error}"
        except Exception as bug:
            log.exception("saving failed")
            why = f"{self._directory.path} was not written to: a fault in the emulator, {bug!r}"
        finally:
            self._writing = False
        if why:
            self._ledger.failed(batch)
        if why and why != self._trouble:
            log.error("%s", why)
        elif self._trouble and not why:
            log.warning("%s can be written to again", self._directory.path)
        self._trouble = why

    def _write(self, batch: Batch) -> None:
        if batch.begins:
            self._directory.begin(batch.file, batch.parts)
        else:
            self._directory.append(batch.parts)
        for segment in batch.gone:
            try:
                self._directory.remove(segment.number)
            except OSError as error:  # the next start deletes it
                log.warning("%s stays: %s", self._directory.name(segment.number), error)

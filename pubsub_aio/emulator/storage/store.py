"""Saving what a broker does: many changes in one write, and the log kept short."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError

from pubsub_aio.emulator.status import Code, StatusError
from pubsub_aio.emulator.storage import capturing
from pubsub_aio.emulator.storage.directory import DataDirectory
from pubsub_aio.emulator.storage.frames import DamagedError, framed, unframed
from pubsub_aio.emulator.storage.restoring import Life
from pubsub_aio.emulator.storage.saved import Saved
from pubsub_aio.emulator.storage.segments import Held, Segment, worth_clearing
from pubsub_aio.emulator.topics import Topic
from pubsub_aio.errors import DataDirectoryError

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.changes import Changes
    from pubsub_aio.emulator.clock import Clock

T = TypeVar("T")

log = logging.getLogger("pubsub_aio.emulator")

SEGMENT = 64 * 1024 * 1024
"""Bytes after which a file of the log is followed by another."""

_TRY_AGAIN = 1.0  # seconds until what could not be written is tried again
_LOOK_EVERY = 1.0  # seconds between looks at what the log's files are still needed for


@dataclass(slots=True)
class _Batch:
    """What is written at once."""

    payloads: list[bytes] = field(default_factory=list)
    messages: list[Saved] = field(default_factory=list)
    saved_to: dict[Topic, int] = field(default_factory=dict)
    gone: list[Segment] = field(default_factory=list)
    begins: bool = False
    """Whether a file of the log begins with it."""


class Store:
    """Keeps a broker's resources and messages in a directory.

    What changes is gathered while the last write is under way, and written and synced together.

    Args:
        path: The directory.
        broker: Whose changes to save; one that is new, for it goes on where the directory ends.
        clock: The broker's time.
        segment: See `SEGMENT`.
    """

    def __init__(self, path: Path, broker: Broker, clock: Clock, *, segment: int = SEGMENT) -> None:
        self._directory = DataDirectory(path)
        self._broker = broker
        self._clock = clock
        self._full = segment
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pubsub-emulator-store")
        self._task: asyncio.Task[None] | None = None
        self._changes: Changes | None = None
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._trouble = ""
        self._closing = asyncio.Event()
        self._current = Segment(0)
        self._frames = 0
        self._begin_next = True
        self._older: list[Segment] = []
        self._dead: list[Segment] = []
        self._clearing: Segment | None = None
        self._to_clear: list[Held] = []
        self._look_at = 0.0

    # Life

    async def open(self) -> None:
        """Let the broker go on where the directory ends, and save what it does from now on.

        Raises:
            DataDirectoryError: The directory cannot be used; it was not changed.
        """
        try:
            await self._in_thread(self._directory.open)
            await self._in_thread(self._load)
            self._changes = self._broker.save_changes()
            if first := self._capture():
                await self._write(first)
        except OSError as error:
            await self._let_go()
            path, why = self._directory.path, error.strerror or error
            raise DataDirectoryError(f"{path} cannot be written to: {why}") from error
        except BaseException:
            await self._let_go()
            raise
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _load(self) -> None:
        life, numbers = Life(), self._directory.numbers()
        if numbers:
            self._current.number = numbers[-1]
            self._read(numbers[-1], life)
            for number, length in life.segments.items():
                self._older.append(self._read_messages(number, length, life))
            life.hand_over(self._broker, now=self._clock.now())
        for number in set(numbers) - {segment.number for segment in self._older}:
            if number != self._current.number:
                self._directory.remove(number)  # it was let go of, but not deleted any more

    def _read(self, number: int, life: Life) -> None:
        """Read the newest file, which says what there is."""
        payloads, self._current.length = self._frames_of(number, self._directory.read(number))
        for at, payload in enumerate(payloads):
            saved = self._parsed(number, payload)
            if not at and not saved.whole:
                break
            life.take_in(saved)
            self._current.note(saved.messages)
        else:
            if payloads:
                return
        raise self._directory.damaged(self._directory.name(number), "its beginning is missing")

    def _read_messages(self, number: int, length: int, life: Life) -> Segment:
        """Read the messages of an older file."""
        data = self._directory.read(number)[:length]
        payloads, end = self._frames_of(number, data)
        if end != length:
            raise self._directory.damaged(self._directory.name(number), f"it ends at byte {end}")
        segment = Segment(number, length)
        for payload in payloads:
            saved = self._parsed(number, payload)
            life.take_in_messages(saved.messages)
            segment.note(saved.messages)
        return segment

    def _frames_of(self, number: int, data: bytes) -> tuple[list[memoryview], int]:
        try:
            return unframed(data, file=number)
        except DamagedError as error:
            raise self._directory.damaged(self._directory.name(number), str(error)) from error

    def _parsed(self, number: int, payload: memoryview) -> Saved:
        try:
            return Saved.FromString(bytes(payload))
        except DecodeError as error:
            raise self._directory.damaged(self._directory.name(number), str(error)) from error

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
                subscriptions = self._broker.subscriptions.values()
                self._known_changes.traffic.update(dict.fromkeys(subscriptions))  # when active
                await self._save()
        finally:
            await self._let_go()
        if self._trouble:
            raise DataDirectoryError(f"{self._trouble}: the latest changes are not saved")

    async def _let_go(self) -> None:
        await self._in_thread(self._directory.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    @property
    def _known_changes(self) -> Changes:
        assert self._changes is not None, "the store is open"  # noqa: S101 - for the type checker
        return self._changes

    # Asked by the service

    def check(self) -> None:
        """Refuse changes while they cannot be saved."""
        if self._trouble:
            raise StatusError(Code.UNAVAILABLE, f"{self._trouble}: nothing is changed until it can")

    def look(self) -> None:
        """Something may have changed."""
        if self._changes:
            self._wanted.set()

    async def saved(self) -> None:
        """Return once all that has changed so far is on disk.

        Raises:
            StatusError: It cannot be written.
        """
        self.check()
        if self._changes and self._task:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._wanted.set()
            await waiting

    # Saving

    async def _run(self) -> None:
        while not self._closing.is_set():
            if not (self._clearing or self._dead):
                await self._wanted.wait()
            await self._save()
            if self._trouble:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TRY_AGAIN):
                        await self._closing.wait()

    async def _save(self) -> None:
        """Write what has changed, and tell those who wait for it."""
        self._wanted.clear()
        waiting, self._waiting = self._waiting, []
        why = "the emulator is stopping"
        try:
            why = await self._write_changes()
        finally:
            for one in waiting:
                if not one.done() and why:
                    one.set_exception(StatusError(Code.UNAVAILABLE, why))
                elif not one.done():
                    one.set_result(None)

    async def _write_changes(self) -> str:
        """Write what has changed; returns why it could not be, if so."""
        batch, why = self._capture(), ""
        try:
            if batch:
                await self._write(batch)
        except OSError as error:
            why = f"{self._directory.path} cannot be written to: {error.strerror or error}"
        except Exception as bug:
            log.exception("saving failed")
            why = f"saving to {self._directory.path} failed: {bug!r}"
        if why and why != self._trouble:
            log.error("%s: changes are refused until it can", why)
        elif self._trouble and not why:
            log.warning("%s can be written to again", self._directory.path)
        self._trouble = why
        if batch and why:
            self._begin_anew(batch)
        return why

    def _begin_anew(self, failed: _Batch) -> None:
        """Write everything again, to another file: of this one the end is not known any more."""
        self._begin_next = True
        self._dead = [*failed.gone, *self._dead]
        self._clearing, self._to_clear = None, []

    def _capture(self) -> _Batch | None:
        """What is to be written now, if anything is."""
        self._look_after_files()
        changes, batch = self._known_changes, _Batch()
        batch.begins = self._begin_next or self._current.length >= self._full
        topics = self._broker.kept_topics() if batch.begins else changes.traffic
        for topic in topics:
            if not isinstance(topic, Topic) or not self._broker.exists(topic):
                continue
            if topic.saved < topic.log.next:
                batch.messages += capturing.unsaved_messages(topic)
                batch.saved_to[topic] = topic.log.next
        batch.messages += self._portion_to_clear()
        batch.gone, self._dead = self._dead, []
        if not (batch.begins or batch.messages or batch.gone or changes):
            return None
        if batch.begins:
            kept = [s for s in (*self._older, self._current) if s.number and s not in batch.gone]
            state = capturing.everything(self._broker, {s.number: s.length for s in kept})
        else:
            state = capturing.changed(self._broker, changes)
            state.gone_segments.extend(segment.number for segment in batch.gone)
        changes.clear()
        parts = [state, *batch.messages] if batch.begins else [*batch.messages, state]
        batch.payloads = [part.SerializeToString() for part in parts]
        return batch

    async def _write(self, batch: _Batch) -> None:
        if batch.begins:
            await self._begin(batch)
        else:
            number, first = self._current.number, self._frames
            parts = framed(batch.payloads, file=number, first=first)
            self._current.length += await self._in_thread(self._directory.append, parts)
        self._frames += len(batch.payloads)
        for topic, offset in batch.saved_to.items():
            topic.saved = offset
        for saved in batch.messages:
            self._current.note(saved.messages)
        for segment in batch.gone:
            self._older.remove(segment)
            try:
                await self._in_thread(self._directory.remove, segment.number)
            except OSError as error:  # it is deleted with the next start
                log.warning("a file that is not needed stays: %s", error)

    async def _begin(self, batch: _Batch) -> None:
        """Begin another file of the log."""
        number = self._current.number + 1
        parts = framed(batch.payloads, file=number, first=0)
        length = await self._in_thread(self._directory.begin, number, parts)
        if self._current.number:
            self._older.append(self._current)
        self._current, self._frames, self._begin_next = Segment(number, length), 0, False
        self._look_at = 0.0

    # Clearing

    def _look_after_files(self) -> None:
        """See now and then which older files are needed no more, or hardly."""
        now = time.monotonic()
        if self._clearing or not self._older or now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        asyncio.get_running_loop().call_later(_LOOK_EVERY, self._wanted.set)
        first_of = {topic.serial: topic.log.first for topic in self._broker.kept_topics()}
        for segment in worth_clearing(self._older, first_of.get, full=self._full):
            if segment in self._dead:
                continue
            if segment.needed(first_of.get):
                self._clearing, self._to_clear = segment, [replace(held) for held in segment.held]
                return
            self._dead.append(segment)

    def _portion_to_clear(self) -> Iterable[Saved]:
        """A few messages of the file that is being cleared, to be written again."""
        topics = (
            {topic.serial: topic for topic in self._broker.kept_topics()} if self._to_clear else {}
        )
        portion: Iterator[Saved]
        while self._to_clear:
            held = self._to_clear[-1]
            topic = topics.get(held.topic)
            portion = capturing.messages(topic, held.start, held.stop) if topic else iter(())
            for saved in portion:
                written = saved.messages[0]
                held.start = written.first + len(written.records)
                return [saved]
            self._to_clear.pop()
        if self._clearing:
            self._dead.append(self._clearing)
            self._clearing = None
        return ()

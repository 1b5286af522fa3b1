"""What is to be written when: decisions about the log, apart from writing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pubsub_aio.emulator.storage import capturing
from pubsub_aio.emulator.storage.frames import DamagedError, framed, unframed
from pubsub_aio.emulator.storage.restoring import Life
from pubsub_aio.emulator.storage.saved import Saved
from pubsub_aio.emulator.storage.segments import Held, Segment, worth_clearing
from pubsub_aio.emulator.topics import Topic

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.changes import Changes

SEGMENT = 64 * 1024 * 1024
"""Bytes after which a file of the log is followed by another."""


class DamagedFileError(Exception):
    """A file of the log cannot be read.

    Attributes:
        number: Which.
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(what)
        self.number = number


@dataclass(slots=True)
class Batch:
    """What is written and synced at once, to the file of that number."""

    file: int
    begins: bool
    """Whether it is the whole of a new file; otherwise it goes to the end of the latest."""
    parts: list[bytes]
    frames: int
    messages: list[Saved]
    saved_to: dict[Topic, int]
    gone: list[Segment] = field(default_factory=list)
    """Files that are to be deleted once it is written."""


class Ledger:
    """The log of a broker: its files, what they hold and what is not written yet.

    Each file begins with all of the broker but for its messages, so that of older files only
    messages count. It decides and reads no clock; whoever writes does what a batch says, and tells
    how that went before asking for the next.

    Args:
        broker: Whose log; one that is new, for it goes on where the log ends.
        full: See `SEGMENT`.
    """

    def __init__(self, broker: Broker, *, full: int = SEGMENT) -> None:
        self._broker = broker
        self._changes: Changes = broker.save_changes()
        self._full = full
        self.left_out = 0
        """Bytes at the end of the log that were not written to their end, as at a kill."""
        self._latest = Segment(0)
        self._full_at = full
        self._frames = 0
        self._begin_next = True
        self._older: list[Segment] = []
        self._dead: list[Segment] = []
        self._clearing: Segment | None = None
        self._to_clear: list[Held] = []

    # Reading

    def read(
        self,
        numbers: Sequence[int],
        file: Callable[[int], bytes],
        *,
        now: float,
        ended_at: int | None = None,
    ) -> list[int]:
        """Let the broker go on where the log ends.

        Args:
            numbers: The files that are there, the oldest first.
            file: Reads one.
            now: The time.
            ended_at: How long the last one is, if it was ended; none if it was killed.

        Returns:
            The files that are needed no more.

        Raises:
            DamagedFileError: What was written cannot be read.
        """
        if not numbers:
            return []
        life = Life(ended=ended_at is not None)
        self._latest = self._read_latest(numbers[-1], file, life)
        if ended_at not in (None, self._latest.length):
            what = f"byte {self._latest.length} is wrong, or one after it"
            raise DamagedFileError(numbers[-1], what)
        for number, length in life.segments.items():
            self._older.append(self._read_older(number, length, file, life))
        life.hand_over(self._broker, now=now)
        self._changes = self._broker.save_changes()
        self.look_after_files()
        needed = {segment.number for segment in (*self._older, self._latest)}
        return [number for number in numbers if number not in needed]

    def _read_latest(self, number: int, file: Callable[[int], bytes], life: Life) -> Segment:
        """Read the file that says what there is."""
        data = file(number)
        frames, length = _frames_of(number, data)
        self.left_out = len(data) - length
        changes = [_parsed(number, frame) for frame in frames]
        if not changes or not changes[0].whole:
            raise DamagedFileError(number, "its beginning is missing")
        segment = Segment(number, length)
        for saved in changes:
            life.take_in(saved)
            segment.note(saved.messages)
        return segment

    def _read_older(
        self, number: int, length: int, file: Callable[[int], bytes], life: Life
    ) -> Segment:
        """Read the messages of another file."""
        frames, end = _frames_of(number, file(number)[:length])
        if end != length:
            raise DamagedFileError(number, f"it ends at byte {end}, not at {length}")
        segment = Segment(number, length)
        for frame in frames:
            saved = _parsed(number, frame)
            life.take_in_messages(saved.messages)
            segment.note(saved.messages)
        return segment

    # Writing

    @property
    def is_busy(self) -> bool:
        """Whether there is something to write although nothing has changed."""
        return self._begin_next or bool(self._clearing or self._dead)

    @property
    def length(self) -> int:
        """Bytes of the latest file."""
        return self._latest.length

    @property
    def has_older_files(self) -> bool:
        """Whether there is something to look after."""
        return bool(self._older)

    @property
    def is_behind(self) -> bool:
        """Whether something has changed."""
        return bool(self._changes)

    def note_all_activity(self) -> None:
        """Write with the next batch when each subscription was last active."""
        self._changes.traffic.update(dict.fromkeys(self._broker.subscriptions.values()))

    def next_batch(self) -> Batch | None:
        """What is to be written now, if anything is."""
        changes = self._changes
        begins = self._begin_next or (bool(changes) and self._latest.length >= self._full_at)
        messages: list[Saved] = []
        saved_to: dict[Topic, int] = {}
        for topic in self._broker.kept_topics() if begins else changes.traffic:
            if isinstance(topic, Topic) and topic.saved < topic.log.next:
                messages += capturing.unsaved_messages(topic)
                saved_to[topic] = topic.log.next
        messages += self._portion_to_clear()
        gone, self._dead = self._dead, []
        if not (begins or messages or gone or changes):
            return None
        state = self._state(gone, whole=begins)
        changes.clear()
        written = [state, *messages] if begins else [*messages, state]
        payloads = [saved.SerializeToString() for saved in written]
        number = self._latest.number + begins
        first = 0 if begins else self._frames
        parts = framed(payloads, file=number, first=first)
        return Batch(number, begins, parts, len(payloads), messages, saved_to, gone)

    def _state(self, gone: Sequence[Segment], *, whole: bool) -> Saved:
        """All but messages: what has changed, or the whole of it."""
        if not whole:
            state = capturing.changed(self._broker, self._changes)
            state.gone_segments.extend(segment.number for segment in gone)
            return state
        older = [*self._older, self._latest] if self._latest.number else []
        kept = {segment.number: segment.length for segment in older if segment not in gone}
        return capturing.everything(self._broker, kept)

    def written(self, batch: Batch) -> None:
        """The batch is on disk."""
        length = sum(map(len, batch.parts))
        if batch.begins:
            if self._latest.number:
                self._older.append(self._latest)
            self._latest, self._frames = Segment(batch.file), 0
            self._begin_next = False
            self._full_at = length + self._full  # however large the broker is that it begins with
        self._latest.length += length
        self._frames += batch.frames
        for topic, offset in batch.saved_to.items():
            topic.saved = offset
        for saved in batch.messages:
            self._latest.note(saved.messages)
        for segment in batch.gone:
            self._older.remove(segment)

    def failed(self, batch: Batch | None) -> None:
        """It may be on disk or not, or in part: begin another file, with all there is.

        Without a batch: there was a fault in making one.
        """
        self._begin_next = True
        self._dead = [*(batch.gone if batch else ()), *self._dead]
        self._clearing, self._to_clear = None, []

    # Clearing

    def look_after_files(self) -> bool:
        """See which older files are needed no more, or so little that it is written again.

        Returns whether there are any, so that it is worth looking again soon.
        """
        if self._clearing or not self._older:
            return bool(self._clearing)
        first_of = {topic.serial: topic.log.first for topic in self._broker.kept_topics()}
        for segment in worth_clearing(self._older, first_of.get, full=self._full):
            if segment in self._dead:
                continue
            if segment.needed(first_of.get):
                self._clearing, self._to_clear = segment, [replace(held) for held in segment.held]
                return True
            self._dead.append(segment)
        return bool(self._dead)

    def _portion_to_clear(self) -> list[Saved]:
        """A few messages of the file that is being cleared; once there are none, it is dead."""
        if self._clearing is None:
            return []
        topics = {topic.serial: topic for topic in self._broker.kept_topics()}
        while self._to_clear:
            held = self._to_clear[-1]
            topic = topics.get(held.topic)
            for saved in capturing.messages(topic, held.start, held.stop) if topic else ():
                portion = saved.messages[0]
                held.start = portion.first + len(portion.records)
                return [saved]
            self._to_clear.pop()
        self._dead.append(self._clearing)
        self._clearing = None
        return []


def _frames_of(number: int, data: bytes) -> tuple[list[memoryview], int]:
    try:
        return unframed(data, file=number)
    except DamagedError as error:
        raise DamagedFileError(number, f"byte {error.position} is wrong, or one after it") from None


def _parsed(number: int, frame: memoryview) -> Saved:
    try:
        return Saved.FromString(bytes(frame))
    except DecodeError as error:
        raise DamagedFileError(number, str(error)) from None

"""The log that makes Pub/Sub replayable: what came is kept, and batches are made of it.

    wal.json                       whose log it is
    incoming/<time>-<id>.segment   messages: written first, acknowledged then
    log/<seq>.json                 manifests: which rows a batch has, and which are duplicates
    ids/<since>-<until>.ids        the ids of batches whose segments were deleted
    marks/<what>                   what has happened once: Spark has noted the first batch

A segment may be written by anybody, at any time. A manifest is put if there is none of its number,
so that all agree on what a batch is, whoever tries to seal it and however often.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator

import numpy as np

from pubsub_aio.errors import DataLossError, WalError
from pubsub_aio.spark.streaming import segments
from pubsub_aio.spark.streaming.candidates import Candidates, Limit, as_rows
from pubsub_aio.spark.streaming.collection import Collection, Collector, Group
from pubsub_aio.spark.streaming.layout import (
    FOLDERS,
    IDENTITY,
    IDS,
    INCOMING,
    LOG,
    names_in,
    number_of_segment,
)
from pubsub_aio.spark.streaming.ledger import Ledger
from pubsub_aio.spark.streaming.manifests import Ids, Manifest, Waiting, sealed
from pubsub_aio.spark.streaming.marks import Marks, identity_of
from pubsub_aio.spark.streaming.pieces import Piece, cut
from pubsub_aio.spark.streaming.seen import Run, Seen, merged
from pubsub_aio.spark.streaming.segments import Chunk, Segment
from pubsub_aio.spark.streaming.stores import Buffer, Store, check_store, reading, writing

logger = logging.getLogger("pubsub_aio.spark")

_LONGEST_GAP = 60.0
"""Seconds between two batches that count; for as long as nothing comes nothing is forgotten."""
_LOADS = 10
"""How often the log is read while others delete from it."""


class Wal:
    """The log of one query. It is told the time, and does nothing but with its store.

    Args:
        store: Where it is kept.
        window: Seconds for which ids are remembered.
        max_ids: How many may be remembered at most.
        fail_on_loss: Whether it is an error that messages are missing.
        in_order: Whether batches have segments in the order in which they were written.
    """

    def __init__(
        self,
        store: Store,
        *,
        window: float,
        max_ids: int,
        fail_on_loss: bool = True,
        in_order: bool = True,
    ) -> None:
        self.store = store
        self.marks = Marks(store)
        self.id = ""
        """Unlike that of any other log."""
        self._window = window
        self._max_ids = max_ids
        self._fail_on_loss = fail_on_loss
        self._in_order = in_order
        self._ledger = Ledger(store, self.id)
        self._clear()

    def _clear(self) -> None:
        self._head: Manifest | None = None
        self._seen = Seen(self._window)
        self._candidates = Candidates(in_order=self._in_order)
        self._collector = Collector(self._window)
        self._since = 0.0  # by the clock of the log, when what arrives now is first compared
        self._sealed: set[str] = set()  # segments that may be there and are in batches
        self._gone: set[str] = set()  # those that were deleted last
        self._chunks: dict[str, tuple[Chunk, ...]] = {}

    # The beginning

    def open(self, subscription: str) -> None:
        """Begin a log, or go on with the one that is there.

        Raises:
            WalError: It belongs to another subscription, or cannot be used.
            DataLossError: Something of it is missing or damaged.
        """
        check_store(self.store, FOLDERS)
        self._check_identity()
        made = {"wal": uuid.uuid4().hex, "subscription": subscription}
        with writing(self.store):
            self.store.put_if_absent(IDENTITY, [sealed(made)])
        there = identity_of(self.store)
        if there["subscription"] != subscription:
            raise WalError(
                f"walLocation: {self.store.location} has messages of {there['subscription']}, not "
                f"of {subscription}: give a walLocation for each subscription"
            )
        self.id = there["wal"]
        self._ledger = Ledger(self.store, self.id)
        self.load()

    def _check_identity(self) -> None:
        """Refuse to give a log that has lost its identity another one."""
        try:
            self._get(IDENTITY)
        except FileNotFoundError as error:
            if any(self._names(folder) for folder in (INCOMING, LOG, IDS)):
                raise WalError(
                    f"walLocation: {self.store.location}/{IDENTITY} is missing, and the rest of a "
                    "log is there: bring it back, or give another walLocation and checkpoint"
                ) from error

    def load(self) -> None:
        """Read what is there; again if others may have deleted some of it meanwhile.

        If that fails, what was known before still is.
        """
        before = dict(vars(self))
        try:
            self._load()
        except BaseException:
            vars(self).update(before)
            raise

    def _load(self) -> None:
        covered = -1
        for _ in range(_LOADS):
            self._clear()
            self._load_ids()
            is_still = self._collector.covered == covered
            covered = self._collector.covered
            try:
                self._load_batches(lost=self._lost if is_still else _raised)
                break
            except DataLossError:
                if is_still:
                    raise
        self.look()
        if self._head:
            self._since = self._head.clock

    def _load_ids(self) -> None:
        left: set[str] = set()
        for name in self._names(IDS):
            path = f"{IDS}/{name}"
            try:
                ids = Ids.read(self._get(path))
                if ids.wal != self.id:
                    raise ValueError(f"it belongs to another log, {ids.wal!r}")
            except FileNotFoundError:
                continue  # another driver has just forgotten it
            except ValueError as error:
                raise WalError(
                    f"walLocation: {self.store.location}/{path} is damaged ({error}): bring it "
                    "back. If you delete it instead, messages that come again are not recognised"
                ) from error
            self._seen.add(ids.run)
            self._collector.add_group(Group(ids.since, ids.until, ids.run.until))
            left.update(ids.segments)
        if left:
            there = {f"{INCOMING}/{name}" for name in self._names(INCOMING)}
            with writing(self.store):
                self.store.delete(sorted(left & there))  # a driver that died had no time to

    def _load_batches(self, *, lost: Callable[[DataLossError], None]) -> None:
        covered = self._collector.covered
        last = self._ledger.last
        if last <= covered and covered:
            self._head = self.manifest(covered)
        for number in range(covered + 1, last + 1):
            manifest = self.manifest(number)
            self._append(manifest, self._run_of(manifest, lost))
        if self._head is None:
            return
        # What waits was compared before, with ids that are all there yet.
        self._since = self._head.horizon
        self._seen.forget(now=self._since)
        if (rest := self._head.rest) is not None:
            self._look_at(rest.segment, rest.start, lost)

    def _run_of(self, manifest: Manifest, lost: Callable[[DataLossError], None]) -> Run:
        """The keys of a batch, from its segments."""
        runs = [_no_keys(manifest.clock)]
        for part in manifest.parts:
            try:
                segment = segments.load(self.store, part.segment, self.id)
            except DataLossError as error:
                lost(error)
                continue
            self._chunks[segment.name] = segment.chunks
            keys = segment.keys.between(part.start, part.stop).without(as_rows(part.drop))
            runs.append(Run(keys.lows, keys.highs, manifest.clock, manifest.clock))
        return merged(runs)

    def _lost(self, error: DataLossError) -> None:
        if self._fail_on_loss:
            raise error
        logger.warning("%s", segments.left_out(error))

    # Arrival

    def look(self) -> None:
        """See whether others have written segments, and whether the log is still there.

        Raises:
            WalError: It is not, or another one is.
        """
        if (there := identity_of(self.store)["wal"]) != self.id:
            raise WalError(
                f"walLocation: {self.store.location} has another log now, {there!r} and not "
                f"{self.id!r}: bring this one back, and start the query again"
            )
        for name in self._names(INCOMING):
            path = f"{INCOMING}/{name}"
            if path not in self._candidates and path not in self._sealed:
                self._look_at(path, 0, self._lost)

    def _look_at(self, path: str, start: int, lost: Callable[[DataLossError], None]) -> None:
        try:
            self.arrived(segments.load(self.store, path, self.id), start)
        except DataLossError as error:
            if isinstance(error.__cause__, FileNotFoundError) and not start:
                return  # another driver had it in a batch, which is done
            lost(error)
            self._sealed.add(path)  # not to be looked at again

    def arrived(self, segment: Segment, start: int = 0) -> None:
        """A segment is durable, from that row on it is in no batch yet."""
        name = segment.name
        if name in self._candidates or name in self._gone or (name in self._sealed and not start):
            return
        self._candidates.add(segment, start, self._seen, since=self._since)
        self._chunks[name] = segment.chunks

    @property
    def waiting(self) -> Waiting:
        """What is durable and in no batch yet."""
        return self._candidates.waiting

    @property
    def newest(self) -> int:
        """The number of the last segment that waits, as far as is known; 0 if none does."""
        return number_of_segment(self._candidates.newest or "0")

    @property
    def newest_of_all(self) -> int:
        """The number of the last segment that is there; 0 if there is none."""
        return max(map(number_of_segment, self.segments()), default=0)

    @property
    def oldest(self) -> float:
        """When the first message of that was published, in seconds of Unix time."""
        return self._candidates.oldest

    # Batches

    @property
    def last(self) -> Manifest | None:
        """The last batch that was sealed."""
        return self._head

    @property
    def seq(self) -> int:
        """Its number; 0 before the first."""
        return self._head.seq if self._head else 0

    @property
    def done(self) -> Manifest | None:
        """The last batch whose messages were deleted, for it was done with."""
        covered = self._collector.covered
        return self.manifest(covered) if covered else None

    def seal(self, after: int, limit: Limit, *, now: float) -> Manifest | None:
        """The batch after that one: as it is in the log, or made of what waits.

        Returns:
            None if nothing waits.

        Raises:
            WalError: The log has not come that far, or others have gone on with it long ago, or
                more ids would have to be remembered than may be.
        """
        if after > self.seq:
            self.load()  # another driver has gone on with it
        if after > self.seq:
            raise WalError(
                f"walLocation: {self.store.location} has {self.seq} batches, and the checkpoint "
                f"says {after}: give the walLocation that belongs to the checkpoint"
            )
        if after < self.seq:
            return self.manifest(after + 1)
        if not self.waiting.segments:
            return None
        manifest, run = self._next(limit, now)
        if not self._ledger.put(manifest):
            self.load()  # another driver was first
            return self.manifest(after + 1)
        self._seen.forget(now=manifest.horizon)
        self._append(manifest, run)
        return manifest

    def _next(self, limit: Limit, now: float) -> tuple[Manifest, Run]:
        head = self._head
        gap = now - head.time if head else 0.0
        clock = (head.clock if head else 0.0) + min(max(0.0, gap), _LONGEST_GAP)
        parts = tuple(self._candidates.choose(limit))
        keys = [self._candidates.keys_of(part) for part in parts]
        run = merged([_no_keys(clock), *(Run(k.lows, k.highs, clock, clock) for k in keys)])
        horizon = min(clock, self._candidates.since_without(parts))
        if (ids := self._seen.count(now=horizon) + len(run)) > self._max_ids:
            raise WalError(
                f"dedupeWindow: {ids:,} ids would be remembered, those of {self._window:g} s of "
                "the log's own time, in which a pause is a minute at most, and of the time for "
                f"which messages have waited; no more than {self._max_ids:,} may be: raise "
                "dedupeMaxIds (16 bytes of the driver's memory each), or shorten the window"
            )
        rows = sum(part.rows for part in parts)
        manifest = Manifest(
            wal=self.id,
            seq=self.seq + 1,
            clock=clock,
            horizon=horizon,
            time=now,
            first=head.end if head else 0,
            parts=parts,
            size=self.waiting.size - (left := self._candidates.without(parts)).size,
            rows=(head.rows if head else 0) + len(run),
            duplicates=(head.duplicates if head else 0) + rows - len(run),
            waiting=left,
        )
        return manifest, run

    def _append(self, manifest: Manifest, run: Run) -> None:
        self._head = manifest
        self._since = manifest.clock
        self._seen.add(run)
        self._collector.add(manifest, run)
        self._sealed.update(part.segment for part in manifest.parts)
        self._candidates.remove(manifest.parts)

    def manifest(self, seq: int) -> Manifest:
        """A batch that is in the log.

        Raises:
            WalError: It was done with long ago.
            DataLossError: It is not there any more, or damaged.
        """
        if self._head and self._head.seq == seq:
            return self._head
        return self._ledger.get(seq)

    def pieces(self, after: int, until: int) -> Iterator[Piece]:
        """What there is to read for some batches, in the order of sequence numbers."""
        for seq in range(after + 1, until + 1):
            manifest = self.manifest(seq)
            sequence = manifest.first
            for part in manifest.parts:
                try:
                    chunks = self._chunks_of(part.segment)
                except DataLossError as error:
                    is_missing = isinstance(error.__cause__, FileNotFoundError)
                    if is_missing and self._ledger.has_forgotten(seq):
                        remedy = (
                            "Bring back the newer one, or set the option failOnDataLoss to false"
                        )
                        told = self._ledger.too_old(seq)
                        error = DataLossError(f"{told}. {remedy} to go on behind it")
                    self._lost(error)
                else:
                    yield from cut(part, chunks, sequence)
                sequence += part.rows

    def _chunks_of(self, name: str) -> tuple[Chunk, ...]:
        if name not in self._chunks:
            self._chunks[name] = segments.load(self.store, name, self.id).chunks
        return self._chunks[name]

    # The end

    def commit(self, seq: int) -> Collection | None:
        """Batches up to that one are done with.

        Returns:
            From time to time, what may be deleted. Have it performed, here or in another thread,
            and tell `collected` or `not_collected`.
        """
        return self._collector.due(seq)

    def not_collected(self) -> None:
        """Some of that may be left."""
        self._collector.again()

    def collected(self, collection: Collection) -> None:
        """That is deleted."""
        self._collector.collected(collection)
        self._gone = {*collection.segments}
        self._sealed -= self._gone
        for name in collection.segments:
            self._chunks.pop(name, None)

    # The store

    def segments(self) -> list[str]:
        """The names of the segments that are there."""
        return self._names(INCOMING)

    def _names(self, folder: str) -> list[str]:
        with reading(self.store, folder):
            return names_in(self.store, folder)

    def _get(self, name: str) -> Buffer:
        with reading(self.store, name):
            return self.store.get(name)


def _raised(error: DataLossError) -> None:
    raise error


def _no_keys(clock: float) -> Run:
    none = np.zeros(0, np.uint64)
    return Run(none, none, clock, clock)

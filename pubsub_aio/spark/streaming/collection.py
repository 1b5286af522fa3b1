"""What of the log may be deleted: segments of batches that are done, and ids that are old."""

from __future__ import annotations

from dataclasses import dataclass

from pubsub_aio.config import GIB
from pubsub_aio.spark.streaming.layout import ids_name, log_name
from pubsub_aio.spark.streaming.manifests import Ids, Manifest
from pubsub_aio.spark.streaming.seen import Run, merged
from pubsub_aio.spark.streaming.stores import Store

_GROUP_BATCHES, _GROUP_ROWS, _GROUP_BYTES, _GROUP_SECONDS = 100, 4_000_000, GIB, 60.0
"""When segments of batches that are done are deleted: the ids of so many are kept in one file."""


@dataclass(frozen=True, slots=True)
class Group:
    """Batches whose ids are in one file.

    Attributes:
        since: The number of the first.
        until: The number of the last.
        clock: When that was sealed, by the clock of the log.
    """

    since: int
    until: int
    clock: float

    @property
    def name(self) -> str:
        """Of the file."""
        return ids_name(self.since, self.until)


@dataclass(frozen=True, slots=True)
class Collection:
    """What is to be deleted, and what is to be kept of it.

    Attributes:
        wal: The id of the log.
        group: Batches that are done.
        runs: Their keys.
        segments: Those that no later batch has rows of.
        forgotten: Batches that are older than the window.
    """

    wal: str
    group: Group
    runs: tuple[Run, ...]
    segments: tuple[str, ...]
    forgotten: tuple[Group, ...]

    def perform(self, store: Store) -> None:
        """Keep the ids, then delete. Whoever is interrupted leaves a log that is whole."""
        ids = Ids(
            wal=self.wal,
            since=self.group.since,
            until=self.group.until,
            segments=self.segments,
            run=merged(self.runs),
        )
        if not store.put_if_absent(self.group.name, ids.write()):
            Ids.read(store.get(self.group.name))  # it is whole, or nothing may go
        store.delete(self.segments)
        for group in self.forgotten:
            numbers = range(group.since, group.until + 1)
            store.delete([log_name(number) for number in numbers])
            store.delete([group.name])


class Collector:
    """Knows which batches there are, and decides when they may go. It deletes nothing itself.

    Args:
        window: Seconds for which ids are remembered.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._groups: list[Group] = []
        self._later: list[tuple[Manifest, Run]] = []  # that are in no group
        self._collecting = False

    @property
    def covered(self) -> int:
        """The number of the last batch that is in a group; 0 if there is none."""
        return max((group.until for group in self._groups), default=0)

    def add_group(self, group: Group) -> None:
        """There is a file of ids."""
        self._groups.append(group)

    def add(self, manifest: Manifest, run: Run) -> None:
        """A batch is sealed, or was."""
        self._later.append((manifest, run))

    def due(self, seq: int) -> Collection | None:
        """What may be deleted if batches up to that one are done; nothing as long as it is little.

        Nor as long as the last collection is under way.
        """
        done = [(manifest, run) for manifest, run in self._later if manifest.seq <= seq]
        if not done or self._collecting:
            return None
        first, last = done[0][0], done[-1][0]
        is_much = (
            len(done) >= _GROUP_BATCHES
            or sum(len(run) for _, run in done) >= _GROUP_ROWS
            or sum(manifest.size for manifest, _ in done) >= _GROUP_BYTES
            or last.time - first.time >= _GROUP_SECONDS
        )
        if not is_much:
            return None
        self._collecting = True
        # The newest group stays: by it a manifest that is missing is told from one that is old.
        newest = self.covered
        old = [group for group in self._groups if group.clock < last.horizon - self._window]
        return Collection(
            first.wal,
            Group(first.seq, last.seq, last.clock),
            tuple(run for _, run in done),
            tuple(name for manifest, _ in done for name in manifest.finished),
            tuple(group for group in old if group.until < newest),
        )

    def again(self) -> None:
        """Some of it may be left: it is due once more."""
        self._collecting = False

    def collected(self, collection: Collection) -> None:
        """It is deleted."""
        self._collecting = False
        until = collection.group.until
        self._later = [(manifest, run) for manifest, run in self._later if manifest.seq > until]
        gone = {*collection.forgotten}
        self._groups = [group for group in self._groups if group not in gone]
        self._groups.append(collection.group)

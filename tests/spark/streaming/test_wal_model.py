"""The log against a model: drivers that crash, restart and race, messages that come again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming import collection
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.stores import Buffer
from pubsub_aio.spark.streaming.wal import Wal
from tests.spark.streaming.logs import (
    NOW,
    CrashError,
    MemoryStore,
    commit,
    opened,
    read,
    write,
)

DRIVERS = st.integers(0, 1)
SMALL = st.integers(1, 7)


class FaultyStore(MemoryStore):
    """A store that may also fail once, or lose an answer, and go on."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_in: int | None = None
        """So many operations from now."""
        self.loses_in: int | None = None
        """So many puts from now."""
        self.faults = 0

    def _may_fail(self) -> None:
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                self.faults += 1
                raise OSError("try later")

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        self._may_fail()
        absent = super().put_if_absent(name, parts)
        if self.loses_in is not None:
            self.loses_in -= 1
            if self.loses_in < 0:
                self.loses_in = None
                return False  # it was put, and tried again
        return absent

    def get(self, name: str) -> Buffer:
        self._may_fail()
        return super().get(name)

    def names(self, folder: str) -> list[str]:
        self._may_fail()
        return super().names(folder)

    def delete(self, names: Iterable[str]) -> None:
        for name in [*names]:
            self._may_fail()
            super().delete([name])


class Model(RuleBasedStateMachine):
    """Two drivers of one query share a log and a checkpoint.

    Either may die at any operation, and the store may fail at any.
    """

    window = 10_000.0  # longer than any history

    def __init__(self) -> None:
        super().__init__()
        self.store = FaultyStore()
        self.drivers: list[Wal | None] = [None, None]
        self.now = NOW
        self.published = 0
        self.durable: set[str] = set()
        """Messages that may have been acknowledged."""
        self.noted = 0
        """The last batch in Spark's offset log."""
        self.batches: dict[int, list[tuple[int, str]]] = {}

    def driver(self, number: int) -> Wal:
        wal = self.drivers[number]
        if wal is None:
            self.store.dies_in = self.store.fails_in = self.store.loses_in = None
            wal = self.drivers[number] = opened(self.store, window=self.window)
        return wal

    def mortal(self, number: int, action: Callable[[Wal], None]) -> None:
        driver, faults = self.driver(number), self.store.faults
        try:
            action(driver)
        except CrashError:
            self.drivers[number] = None
        except (WalError, OSError):
            assert self.store.faults > faults  # it was told, and the driver goes on

    # What happens

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=DRIVERS, new=st.integers(0, 5), again=st.lists(st.integers(0, 30), max_size=5))
    def receive(self, number: int, new: int, again: list[int]) -> None:
        """New messages, and some that came before, or come twice at once."""
        fresh = [str(self.published + place) for place in range(new)]
        self.published += new
        ids = fresh + self.repeated(again)
        if not ids:
            return

        def keep(wal: Wal) -> None:
            segment = write(self.store, wal.id, ids)
            self.durable.update(ids)
            wal.arrived(segment)

        self.mortal(number, keep)

    def repeated(self, again: list[int]) -> list[str]:
        return [str(which % self.published) for which in again if self.published]

    @rule(new=SMALL)
    def fetch(self, new: int) -> None:
        """A task keeps messages, and tells nobody."""
        ids = [str(self.published + place) for place in range(new)]
        self.published += new

        def keep(wal: Wal) -> None:
            write(self.store, wal.id, ids)
            self.durable.update(ids)

        self.mortal(0, keep)

    @rule(number=DRIVERS)
    def look(self, number: int) -> None:
        self.mortal(number, lambda wal: wal.look())

    @rule(number=DRIVERS, rows=st.none() | SMALL, size=st.none() | st.integers(1, 100))
    def seal(self, number: int, rows: int | None, size: int | None) -> None:
        limit = Limit(rows=rows, size=size)
        self.mortal(number, lambda wal: self.sealed(wal, self.noted, limit))

    @rule(number=DRIVERS)
    def seal_late(self, number: int) -> None:
        """A driver that was asleep goes on where it was, whatever others did."""

        def sealed(wal: Wal) -> None:
            faults = self.store.faults
            try:
                self.sealed(wal, wal.seq, Limit(rows=3))
            except WalError:
                if self.store.faults > faults:
                    raise
                self.drivers[number] = None  # others have gone on
                assert wal.seq < self.noted

        self.mortal(number, sealed)

    def sealed(self, wal: Wal, after: int, limit: Limit) -> None:
        manifest = wal.seal(after, limit, now=self.now)
        if manifest is not None:
            assert manifest.seq == after + 1
            self.same(wal, manifest.seq)

    @rule(number=DRIVERS)
    @precondition(lambda self: self.noted + 1 in self.batches)
    def note(self, number: int) -> None:
        """Spark notes the batch; what was before it is done with."""
        done, self.noted = self.noted, self.noted + 1
        self.mortal(number, lambda wal: commit(wal, done))

    @rule(number=DRIVERS)
    def replay(self, number: int) -> None:
        """The last batch that was noted is read again, for its task failed."""
        if self.noted:
            self.mortal(number, lambda wal: self.same(wal, self.noted))

    @rule(number=DRIVERS)
    def restart(self, number: int) -> None:
        self.drivers[number] = None

    @rule(operations=st.integers(0, 6), after=st.booleans())
    def die_soon(self, operations: int, after: bool) -> None:
        self.store.dies_in, self.store.dies_after = operations, after

    @rule(operations=st.integers(0, 12))
    def fail_soon(self, operations: int) -> None:
        self.store.fails_in = operations

    @rule(puts=st.integers(0, 2))
    def lose_an_answer_soon(self, puts: int) -> None:
        self.store.loses_in = puts

    def same(self, wal: Wal, seq: int) -> None:
        if seq >= self.noted:  # what is before it may be deleted
            found = read(wal, seq)
            assert self.batches.setdefault(seq, found) == found

    # What must hold

    @invariant()
    def nothing_is_there_twice(self) -> None:
        rows = [row for seq in sorted(self.batches) for row in self.batches[seq]]
        ids, numbers = [each for _, each in rows], [number for number, _ in rows]
        assert len(set(ids)) == len(ids)
        assert numbers == sorted(set(numbers))

    def teardown(self) -> None:
        """A driver that lives on has every message that was kept, once."""
        self.store.dies_in = self.store.fails_in = self.store.loses_in = None
        wal = opened(self.store, window=self.window)
        while (manifest := wal.seal(self.noted, Limit(rows=5), now=self.now)) is not None:
            self.same(wal, manifest.seq)
            commit(wal, self.noted)
            self.noted = manifest.seq
        self.nothing_is_there_twice()
        ids = {message_id for found in self.batches.values() for _, message_id in found}
        assert self.durable <= ids
        assert ids <= {str(number) for number in range(self.published)}


class Forgetful(Model):
    """The same with a window so short that old batches are forgotten; nothing comes so late."""

    window = 1.0

    def repeated(self, again: list[int]) -> list[str]:
        del again
        return []


@pytest.mark.parametrize("group", [1, 3, 100])
@pytest.mark.parametrize("machine", [Model, Forgetful])
def test_every_message_that_was_kept_is_in_one_batch(
    machine: type[Model], group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H10: whatever dies, fails, races and comes again."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", group)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None)
    )

"""Drivers that were asleep, died in the middle of a collection, or read while another deletes."""

from __future__ import annotations

import pytest

from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming import collection
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.layout import INCOMING, LOG
from pubsub_aio.spark.streaming.wal import Wal
from tests.spark.streaming.logs import (
    NOW,
    CrashError,
    MemoryStore,
    arrive,
    commit,
    ids_of,
    opened,
)


@pytest.fixture(autouse=True)
def each_batch_is_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)


def run(wal: Wal, batches: int, *, every: float = 10.0) -> None:
    """Have messages come, and batches sealed and committed."""
    for _ in range(batches):
        arrive(wal, [f"message {wal.seq}"])
        assert wal.seal(wal.seq, Limit(), now=NOW + every * wal.seq)
        commit(wal, wal.seq - 1)


def test_a_driver_that_slept_while_others_went_on_and_forgot_is_stopped() -> None:
    """Its number is free again, so that only this tells it."""
    store = MemoryStore()
    asleep, awake = opened(store, window=20.0), opened(store, window=20.0)
    run(asleep, 1)
    awake.load()
    run(awake, 9)
    assert f"{2:020}.json" not in store.names(LOG)
    arrive(asleep, ["late"])

    with pytest.raises(WalError, match="others have gone on with memory"):
        asleep.seal(1, Limit(), now=NOW + 100)

    assert f"{2:020}.json" not in store.names(LOG)  # nobody is to take it for the batch of then

    again = opened(store, window=20.0)
    assert again.seq == 10
    assert again.seal(10, Limit(), now=NOW + 101)
    assert ids_of(again, 11) == ["late"]


def test_what_is_forgotten_is_not_taken_for_lost() -> None:
    store = MemoryStore()
    wal = opened(store, window=5.0)
    run(wal, 6, every=50.0)
    assert f"{1:020}.json" not in store.names(LOG)

    again = opened(store, window=5.0)

    assert (again.seq, again.waiting) == (wal.seq, wal.waiting)


def test_segments_are_deleted_that_a_driver_which_died_had_no_time_to_delete() -> None:
    store = MemoryStore()
    wal = opened(store)
    arrive(wal, ["a", "b"])
    wal.seal(0, Limit(), now=NOW)
    store.dies_in = 1  # the ids are kept, and nothing is deleted
    with pytest.raises(CrashError):
        commit(wal, 1)
    assert len(store.names(INCOMING)) == 1

    again = opened(store)

    assert store.names(INCOMING) == []
    assert again.waiting.segments == 0
    arrive(again, ["a", "c"])
    assert again.seal(1, Limit(), now=NOW)
    assert ids_of(again, 2) == ["c"]


class Deleting(MemoryStore):
    """A store from which another driver deletes while somebody reads the log."""

    other: Wal | None = None

    def names(self, folder: str) -> list[str]:
        found = super().names(folder)
        if folder == LOG and self.other:
            other, self.other = self.other, None
            commit(other, other.seq)
        return found


def test_a_log_that_another_driver_collects_is_read_again() -> None:
    store = Deleting()
    wal = opened(store)
    arrive(wal, ["a"])
    wal.seal(0, Limit(), now=NOW)
    store.other = wal

    reader = opened(store)

    assert (reader.seq, store.names(INCOMING)) == (1, [])
    arrive(reader, ["a", "b"])
    assert reader.seal(1, Limit(), now=NOW)
    assert ids_of(reader, 2) == ["b"]

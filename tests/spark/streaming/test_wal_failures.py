"""The log on a store that fails now and then, is slow to tell, or has files of others."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

import pytest

from pubsub_aio.errors import DataLossError, WalError
from pubsub_aio.spark.streaming import candidates, collection, segments
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.layout import IDS, INCOMING, LOG, log_name
from pubsub_aio.spark.streaming.marks import identity_of
from pubsub_aio.spark.streaming.stores import Buffer
from pubsub_aio.spark.streaming.wal import Wal
from tests.spark.streaming.logs import (
    NOW,
    SUBSCRIPTION,
    CrashError,
    MemoryStore,
    arrive,
    commit,
    ids_of,
    opened,
    write,
)

ALL = Limit()


class Failing(MemoryStore):
    """A store that does not answer for some names, or loses the answers to some puts."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: Callable[[str], bool] = lambda _: False
        self.loses_answer: Callable[[str], bool] = lambda _: False

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        absent = super().put_if_absent(name, parts)
        return absent and not self.loses_answer(name)  # it was put, and tried again

    def get(self, name: str) -> Buffer:
        if self.silent(name):
            raise OSError("503 try later")
        return super().get(name)

    def names(self, folder: str) -> list[str]:
        if self.silent(folder):
            raise OSError("503 try later")
        return super().names(folder)

    def delete(self, names: Iterable[str]) -> None:
        if any(self.silent(f"delete {name}") for name in names):
            raise OSError("503 try later")
        super().delete(names)


@pytest.fixture
def store() -> Failing:
    return Failing()


def tolerant(store: MemoryStore, *, window: float = 1_000.0) -> Wal:
    made = Wal(store, window=window, max_ids=10**6, fail_on_loss=False)
    made.open(SUBSCRIPTION)
    return made


# A store that does not answer: nothing is missing, nothing is damaged


@pytest.mark.parametrize("opens", [opened, tolerant])
@pytest.mark.parametrize("silent", ["wal.json", INCOMING, LOG, IDS, log_name(2), "segment", ".ids"])
def test_what_cannot_be_read_now_is_not_lost(
    store: Failing,
    monkeypatch: pytest.MonkeyPatch,
    opens: Callable[[MemoryStore], Wal],
    silent: str,
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store)
    for seq in range(3):
        arrive(wal, [f"{seq}", f"{seq} again"])
        assert wal.seal(seq, Limit(rows=1 + seq % 2), now=NOW)
    commit(wal, 1)
    store.silent = lambda name: silent in name and not name.startswith("probe")

    with pytest.raises(WalError, match=r"cannot be read now: 503 try later\. Nothing is"):
        opens(store)

    store.silent = lambda _: False
    later = opens(store)
    found = [ids_of(later, seq) for seq in (1, 2, 3)]
    assert later.seal(3, ALL, now=NOW)
    assert found == [["0"], ["0 again", "1"], ["1 again"]]
    assert ids_of(later, 4) == ["2", "2 again"]


def test_rows_that_cannot_be_read_now_are_not_lost(store: Failing) -> None:
    wal = tolerant(store)
    segment = arrive(wal, ["1"])
    store.silent = lambda _: True

    with pytest.raises(WalError, match=rf"memory/{segment.name} cannot be read now: 503") as caught:
        segments.read_chunk(store, segment.name, segment.chunks[0])
    assert not isinstance(caught.value, DataLossError)
    with pytest.raises(WalError, match=r"wal.json cannot be read now: 503"):
        identity_of(store)


@pytest.mark.parametrize("operation", range(20))
def test_a_log_that_could_not_be_read_again_is_as_it_was(store: Failing, operation: int) -> None:
    """An answer was lost, so all is read again; that fails; nothing of the rest is forgotten."""
    wal = opened(store)
    arrive(wal, list("abcdefghijklm"))
    assert wal.seal(0, Limit(rows=4), now=NOW)
    left = iter(range(operation))
    store.loses_answer = lambda name: name.startswith(LOG)
    store.silent = lambda _: next(left, None) is None
    with contextlib.suppress(WalError):  # with many operations none fails
        wal.seal(1, Limit(rows=4), now=NOW)
    store.loses_answer = store.silent = lambda _: False

    for seq in (1, 2, 3):
        assert wal.seal(seq, Limit(rows=4), now=NOW)

    assert "".join("".join(ids_of(wal, seq)) for seq in (1, 2, 3, 4)) == "abcdefghijklm"


def test_a_log_that_others_collect_meanwhile_keeps_its_ids(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what is lost is passed over: it is not lost."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store)
    arrive(wal, ["a", "b"])
    assert wal.seal(0, ALL, now=NOW)

    def collect(folder: str) -> bool:
        if folder == LOG:
            store.silent = lambda _: False
            commit(wal, 1)
        return False

    store.silent = collect
    later = tolerant(store)

    assert store.names(INCOMING) == []
    arrive(later, ["a", "b", "c"])
    assert later.seal(1, ALL, now=NOW)
    assert ids_of(later, 2) == ["c"]


def test_a_collection_that_failed_is_due_again(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store)
    arrive(wal, ["a"])
    assert wal.seal(0, ALL, now=NOW)
    first = wal.commit(1)
    assert first
    store.silent = lambda name: name.startswith("delete")
    with pytest.raises(OSError, match="503"):
        first.perform(store)
    store.silent = lambda _: False

    assert wal.commit(1) is None  # it may be under way
    wal.not_collected()
    commit(wal, 1)

    assert store.names(INCOMING) == []
    arrive(wal, ["a", "b"])
    assert wal.seal(1, ALL, now=NOW)
    assert ids_of(wal, 2) == ["b"]


# A log that goes while it is used


@pytest.mark.parametrize("other", [False, True])
def test_a_log_that_is_not_there_any_more_is_noticed(store: Failing, other: bool) -> None:
    """What came from then on would be in no log, or in another's."""
    wal = opened(store)
    arrive(wal, ["a"])
    store.files.clear()
    if other:
        opened(store)

    with pytest.raises(WalError) as caught:
        wal.look()

    told = "memory has another log now" if other else "memory/wal.json cannot be read: wal.json."
    assert str(caught.value).startswith(f"walLocation: {told}")


def test_nothing_is_deleted_for_ids_that_are_not_there(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the store says of the file that should have them."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store)
    arrive(wal, ["a"])
    assert wal.seal(0, ALL, now=NOW)
    monkeypatch.setattr(store, "put_if_absent", lambda *_: False)

    with pytest.raises(FileNotFoundError, match="ids/"):
        commit(wal, 1)

    monkeypatch.undo()
    assert ids_of(opened(store), 1) == ["a"]


# Drivers that slept


def test_a_driver_that_slept_since_the_log_was_empty_is_stopped(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    asleep, awake = opened(store, window=20.0), opened(store, window=20.0)
    for seq in range(9):
        arrive(awake, [f"message {seq}"])
        assert awake.seal(seq, ALL, now=NOW + 10 * seq)
        commit(awake, seq)
    assert f"{1:020}.json" not in store.names(LOG)
    arrive(asleep, ["late"])

    with pytest.raises(WalError, match="others have gone on with memory since this query was last"):
        asleep.seal(0, ALL, now=NOW + 100)

    awake.look()
    assert awake.seal(9, ALL, now=NOW + 100)
    assert ids_of(awake, 10) == ["late"]


# The window


@pytest.mark.parametrize("restarts", [(), (30,), range(50)])
def test_a_repeat_that_waits_is_still_known_when_it_is_sealed(
    store: Failing, restarts: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many batches wait before it, and whoever restarts and compares it once more."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store, window=100.0)
    arrive(wal, ["m"])
    assert wal.seal(0, ALL, now=NOW)
    for seq in range(1, 51):
        arrive(wal, [f"{seq}"])
    arrive(wal, ["m", "last"])
    for seq in range(1, 51):
        assert wal.seal(seq, Limit(rows=1), now=NOW + 60 * seq)
        commit(wal, seq)
        wal = opened(store, window=100.0) if seq in restarts else wal

    assert wal.seal(51, ALL, now=NOW + 3_100)
    assert ids_of(wal, 52) == ["last"]
    commit(wal, 51)

    for seq in range(52, 56):
        arrive(wal, [f"{seq}"])
        assert wal.seal(seq, ALL, now=NOW + 60 * seq)
        commit(wal, seq)
    assert store.names(IDS)[0] > f"{50:020}"  # what it was known by is forgotten then


def test_a_key_is_forgotten_also_by_who_goes_on(store: Failing) -> None:
    """As by who has restarted: then a message is like any other."""
    wal = opened(store, window=100.0)
    for seq in range(5):
        arrive(wal, [f"order {seq}"])
        assert wal.seal(seq, ALL, now=NOW + 60 * seq)

    arrive(wal, ["order 0", "order 4"])
    assert wal.seal(5, ALL, now=NOW + 300)

    assert ids_of(wal, 6) == ["order 0"]


def test_keys_of_batches_do_not_pile_up_while_something_always_waits(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_STALE_KEYS", 10)
    wal = opened(store, window=100.0)
    arrive(wal, ["first"])
    for seq in range(50):
        arrive(wal, [f"order {seq}"])
        assert wal.seal(seq, Limit(rows=1), now=NOW)

    assert len(wal._candidates._keys) < 20


# Checkpoints of before, as they come from a backup


@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_a_batch_whose_rows_were_deleted_is_told_from_one_that_is_lost(
    store: Failing, fail_on_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store)
    for seq in range(3):
        arrive(wal, [f"{seq}"])
        assert wal.seal(seq, ALL, now=NOW)
        commit(wal, seq)
    later = Wal(store, window=1_000.0, max_ids=100, fail_on_loss=fail_on_loss)
    later.open(SUBSCRIPTION)

    if not fail_on_loss:
        assert [piece.sequence for piece in later.pieces(0, 3)] == [2]  # what was not done with
        return
    with pytest.raises(DataLossError) as caught:
        [*later.pieces(0, 3)]
    assert str(caught.value) == (
        "walLocation: memory has deleted what was in batch 1, for it was done with: the "
        "checkpoint is older than the log, as one is that comes from a backup. Bring back the "
        "newer one, or set the option failOnDataLoss to false to go on behind it"
    )


def test_a_batch_that_is_forgotten_is_told_from_one_that_is_lost(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store, window=10.0)
    for seq in range(5):
        arrive(wal, [f"{seq}"])
        assert wal.seal(seq, ALL, now=NOW + 20 * seq)
        commit(wal, seq)

    with pytest.raises(WalError) as caught:
        wal.seal(0, ALL, now=NOW + 100)

    assert str(caught.value) == (
        "walLocation: memory has deleted what was in batch 1, for it was done with: the "
        "checkpoint is older than the log, as one is that comes from a backup. Bring back the "
        "newer one; or begin with a new one, and delete marks/begun in the walLocation: the "
        "query then has all that was not done with"
    )


# Order


@pytest.mark.parametrize("in_order", [True, False])
def test_what_is_found_late_is_where_it_was_written(store: Failing, in_order: bool) -> None:
    """With its repeats: what is first of all is no repeat."""
    wal = Wal(store, window=1_000.0, max_ids=100, in_order=in_order)
    wal.open(SUBSCRIPTION)
    arrive(wal, ["a", "b"])
    assert wal.seal(0, Limit(rows=1), now=NOW)
    write(store, wal.id, ["c", "d"])
    arrive(wal, ["c", "e"])
    wal.look()

    assert wal.seal(1, ALL, now=NOW)

    assert ids_of(wal, 2) == (["b", "c", "d", "e"] if in_order else ["b", "c", "e", "d"])
    again = opened(store)
    assert (ids_of(again, 2), again.waiting.segments) == (ids_of(wal, 2), 0)


# Files that are not the log's


def test_files_of_others_are_left_alone(store: Failing, caplog: pytest.LogCaptureFixture) -> None:
    wal = opened(store)
    write(store, wal.id, ["a"])
    for folder in (INCOMING, LOG, IDS, "marks"):
        for name in (".DS_Store", "README.txt", f"{1:020}.json.bak"):
            store.files[f"{folder}/{name}"] = b"theirs"

    with caplog.at_level(logging.WARNING):
        later = opened(store)
    assert later.seal(0, ALL, now=NOW)

    assert (ids_of(later, 1), later.segments(), caplog.text) == (["a"], wal.segments(), "")
    assert store.files["incoming/README.txt"] == b"theirs"


def test_a_batch_that_cannot_be_sealed_forgets_nothing() -> None:
    store = MemoryStore()
    wal = opened(store, window=50.0)
    arrive(wal, ["a"])
    wal.seal(0, ALL, now=NOW)
    arrive(wal, ["b"])
    wal.seal(1, ALL, now=NOW + 50)
    arrive(wal, ["c"])
    store.dies_in = 0
    with pytest.raises(CrashError):
        wal.seal(2, ALL, now=NOW + 100)

    arrive(wal, ["a", "d"])  # kept by another, long ago

    assert wal.seal(2, ALL, now=NOW + 50)
    assert ids_of(wal, 3) == ["c", "d"]


def test_a_segment_that_came_and_went_before_its_writer_heard_of_it_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer came late: it was found, sealed and collected meanwhile."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    store = MemoryStore()
    wal = opened(store)
    segment = write(store, wal.id, ["a"])
    wal.look()
    wal.seal(0, ALL, now=NOW)
    commit(wal, 1)
    assert segment.name not in store.files

    wal.arrived(segment)

    assert wal.waiting.segments == 0

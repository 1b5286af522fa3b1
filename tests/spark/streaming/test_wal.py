"""The log: what a batch has, whatever dies in between, and what is said when it cannot be."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

import pytest

from pubsub_aio.errors import DataLossError, WalError
from pubsub_aio.spark.streaming import collection
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.layout import log_name
from pubsub_aio.spark.streaming.manifests import Manifest, Part, Waiting
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
    read,
    write,
)

ALL = Limit()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def wal(store: MemoryStore) -> Wal:
    return opened(store)


@pytest.fixture
def collects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done may be deleted, however little it is."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)


def numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


def seal(wal: Wal, after: int, limit: Limit = ALL, *, now: float = NOW) -> Manifest:
    manifest = wal.seal(after, limit, now=now)
    assert manifest is not None
    assert manifest.seq == after + 1
    return manifest


def batches(wal: Wal, limit: Limit) -> list[list[str]]:
    """Seal until nothing waits; returns the ids of each batch."""
    found = []
    while (manifest := wal.seal(wal.seq, limit, now=NOW)) is not None:
        found.append(ids_of(wal, manifest.seq))
    return found


def tolerant(store: MemoryStore) -> Wal:
    """A log that goes on without what is lost."""
    made = Wal(store, window=1_000.0, max_ids=10**6, fail_on_loss=False)
    made.open(SUBSCRIPTION)
    return made


# Batches


def test_a_batch_is_what_came(wal: Wal) -> None:
    first, second = arrive(wal, ["7", "5"]), arrive(wal, ["6"])

    assert seal(wal, 0) == Manifest(
        wal=wal.id,
        seq=1,
        clock=0.0,
        horizon=0.0,
        time=NOW,
        first=0,
        parts=(Part(first.name, 0, 2, 2), Part(second.name, 0, 1, 1)),
        size=30,
        rows=3,
        duplicates=0,
        waiting=Waiting(),
    )
    assert read(wal, 1) == [(0, "7"), (1, "5"), (2, "6")]


def test_no_batch_is_made_of_nothing(wal: Wal, store: MemoryStore) -> None:
    assert wal.seal(0, ALL, now=NOW) is None
    assert store.names("log") == []


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 10, 11, 99])
def test_a_batch_has_as_many_rows_as_it_may(wal: Wal, rows: int) -> None:
    everything = numbers(0, 11)
    for start, stop in ((0, 3), (3, 4), (4, 11)):
        arrive(wal, everything[start:stop])

    found = batches(wal, Limit(rows=rows))

    assert found == [everything[start : start + rows] for start in range(0, 11, rows)]


def test_duplicates_do_not_count_as_rows(wal: Wal) -> None:
    arrive(wal, ["1", "1", "1", "2", "1", "3"])

    assert batches(wal, Limit(rows=2)) == [["1", "2"], ["3"]]


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(1, [1] * 7), (10, [1] * 7), (25, [2, 2, 2, 1]), (70, [7]), (69, [6, 1])],
)
def test_a_batch_has_as_many_bytes_as_it_may_but_one_row_at_least(
    wal: Wal, size: int, sizes: list[int]
) -> None:
    """Each message has ten bytes here."""
    arrive(wal, numbers(0, 7))

    assert [len(found) for found in batches(wal, Limit(size=size))] == sizes


def test_both_limits_hold_across_segments(wal: Wal) -> None:
    for start in range(0, 12, 2):
        arrive(wal, numbers(start, start + 2))

    found = batches(wal, Limit(rows=5, size=40))

    assert [len(each) for each in found] == [4, 4, 4]
    assert [each for batch in found for each in batch] == numbers(0, 12)


def test_what_waits_is_told(wal: Wal) -> None:
    arrive(wal, numbers(0, 4))
    arrive(wal, numbers(4, 6))
    before = wal.waiting

    manifest = seal(wal, 0, Limit(rows=3))

    assert before == Waiting(segments=2, rows=6, size=60)
    assert manifest.waiting == wal.waiting == Waiting(segments=2, rows=3, size=30)


def test_what_others_wrote_is_found_by_looking(wal: Wal, store: MemoryStore) -> None:
    write(store, wal.id, ["1"])
    assert wal.seal(0, ALL, now=NOW) is None

    wal.look()
    seal(wal, 0)
    wal.look()

    assert ids_of(wal, 1) == ["1"]
    assert wal.seal(1, ALL, now=NOW) is None


# Duplicates


def test_duplicates_within_a_segment(wal: Wal) -> None:
    arrive(wal, ["1", "2", "1", "1", "3", "2"])

    manifest = seal(wal, 0)

    assert read(wal, 1) == [(0, "1"), (1, "2"), (4, "3")]
    assert (manifest.rows, manifest.duplicates) == (3, 3)
    assert [part.drop for part in manifest.parts] == [((2, 2), (5, 1))]


def test_duplicates_between_segments_that_wait(wal: Wal) -> None:
    arrive(wal, ["1", "2"])
    arrive(wal, ["2", "3"])

    assert (seal(wal, 0).duplicates, ids_of(wal, 1)) == (1, ["1", "2", "3"])


def test_duplicates_of_what_was_sealed(wal: Wal) -> None:
    arrive(wal, ["1", "2"])
    seal(wal, 0)
    arrive(wal, ["2", "3", "1"])

    assert (seal(wal, 1).duplicates, ids_of(wal, 2)) == (2, ["3"])


def test_a_batch_of_nothing_but_duplicates_has_no_rows(wal: Wal) -> None:
    arrive(wal, ["1"])
    seal(wal, 0)
    arrive(wal, ["1"])

    manifest = seal(wal, 1)

    assert (manifest.rows, manifest.duplicates, read(wal, 2)) == (1, 1, [])
    assert wal.seal(2, ALL, now=NOW) is None


def test_a_duplicate_of_what_still_waits_in_a_segment_that_was_begun(store: MemoryStore) -> None:
    before = opened(store)
    arrive(before, numbers(0, 6))
    seal(before, 0, Limit(rows=2))
    wal = opened(store)
    arrive(wal, ["4", "1"])

    assert batches(wal, Limit(rows=3)) == [["2", "3", "4"], ["5"]]


def test_ids_that_are_alike_but_not_equal_are_two_messages(wal: Wal) -> None:
    arrive(wal, ["1", "01", "1.0", "", "x", "X"])

    assert (seal(wal, 0).duplicates, ids_of(wal, 1)) == (0, ["1", "01", "1.0", "", "x", "X"])


# Crash points


def test_what_was_durable_and_not_acknowledged_is_dropped_when_it_comes_again(
    store: MemoryStore,
) -> None:
    before = opened(store)
    write(store, before.id, ["1", "2"])  # and the process dies before the ack

    wal = opened(store)
    arrive(wal, ["1", "2", "3"])
    manifest = seal(wal, 0)

    assert (ids_of(wal, 1), manifest.duplicates) == (["1", "2", "3"], 2)


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_while_it_writes_a_segment(store: MemoryStore, after: bool) -> None:
    """What came is not acknowledged: it comes again, and is there once."""
    wal = opened(store)
    store.dies_in, store.dies_after = 0, after
    with pytest.raises(CrashError):
        arrive(wal, ["1", "2"])

    wal = opened(store)
    arrive(wal, ["1", "2"])
    seal(wal, 0)

    assert ids_of(wal, 1) == ["1", "2"]


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_while_it_seals(store: MemoryStore, after: bool) -> None:
    """The manifest is adopted if it is there, and otherwise made anew."""
    wal = opened(store)
    arrive(wal, numbers(0, 5))
    store.dies_in, store.dies_after = 0, after
    with pytest.raises(CrashError):
        wal.seal(0, Limit(rows=2), now=NOW)

    wal = opened(store)
    seal(wal, 0, Limit(rows=3))
    seal(wal, 1)

    first = 2 if after else 3
    assert [ids_of(wal, seq) for seq in (1, 2)] == [numbers(0, first), numbers(first, 5)]


def test_a_batch_that_was_sealed_and_not_noted_is_adopted(store: MemoryStore) -> None:
    wal = opened(store)
    arrive(wal, ["1", "2"])
    before = seal(wal, 0, Limit(rows=1))
    arrive(wal, ["3"])

    wal = opened(store)

    assert seal(wal, 0, ALL, now=NOW + 1) == before


def test_a_batch_that_was_noted_and_not_finished_has_the_same_rows(store: MemoryStore) -> None:
    wal = opened(store)
    arrive(wal, ["1", "2", "1", "3"])
    seal(wal, 0, Limit(rows=2))
    rows = read(wal, 1)
    seal(wal, 1)
    arrive(wal, ["4"])

    assert read(opened(store), 1) == rows == [(0, "1"), (1, "2")]


def test_a_batch_that_is_done_can_be_read_until_spark_says_so(
    store: MemoryStore, collects_at_once: None
) -> None:
    del collects_at_once
    wal = opened(store)
    arrive(wal, ["1"])
    seal(wal, 0)
    arrive(wal, ["2"])
    seal(wal, 1)
    commit(wal, 1)

    assert read(opened(store), 2) == [(1, "2")]


def test_of_two_drivers_one_seals_and_the_other_adopts(store: MemoryStore) -> None:
    one, two = opened(store), opened(store)
    arrive(one, ["1", "2"])
    arrive(two, ["2", "3"])

    first = seal(one, 0)
    adopted = seal(two, 0)

    assert adopted == first
    assert read(one, 1) == read(two, 1)
    two.look()
    one.look()
    seal(two, 1)
    assert seal(one, 1) == two.last
    assert sorted(ids_of(one, 1) + ids_of(one, 2)) == ["1", "2", "3"]


def test_a_driver_that_slept_while_others_forgot_is_refused(
    store: MemoryStore, collects_at_once: None
) -> None:
    del collects_at_once
    wal = opened(store, window=1.0)
    arrive(wal, ["1"])
    seal(wal, 0)
    sleeper = opened(store, window=1.0)
    for seq in range(1, 6):
        arrive(wal, [str(seq + 1)])
        seal(wal, seq, now=NOW + 60 * seq)
        commit(wal, seq)
    arrive(sleeper, ["99"])

    with pytest.raises(WalError) as caught:
        sleeper.seal(1, ALL, now=NOW)

    assert str(caught.value) == (
        "walLocation: others have gone on with memory since this query was last awake: stop all "
        "but one"
    )
    later = opened(store, window=1.0)
    assert later.seq == 6
    seal(later, 6)
    assert ids_of(later, 7) == ["99"]


# The window


def test_more_ids_than_may_be_remembered_are_an_error(store: MemoryStore) -> None:
    wal = opened(store, window=50.0, max_ids=5)
    arrive(wal, numbers(0, 3))
    seal(wal, 0)
    arrive(wal, numbers(3, 6))

    with pytest.raises(WalError) as caught:
        wal.seal(1, ALL, now=NOW)

    assert str(caught.value) == (
        "dedupeWindow: 6 ids would be remembered, those of 50 s of the log's own time, in which a "
        "pause is a minute at most, and of the time for which messages have waited; no more than 5 "
        "may be: raise dedupeMaxIds (16 bytes of the driver's memory each), or shorten the window"
    )
    raised = opened(store, window=50.0, max_ids=6)
    seal(raised, 1)
    assert ids_of(raised, 2) == numbers(3, 6)


def test_ids_are_forgotten_when_messages_came_for_longer_than_the_window(
    store: MemoryStore,
) -> None:
    wal = opened(store, window=100.0)
    for seq in range(5):
        arrive(wal, [str(seq)])
        seal(wal, seq, now=NOW + 50 * seq)
    arrive(later := opened(store, window=100.0), ["0", "2", "4"])

    seal(later, 5, now=NOW + 200)

    assert ids_of(later, 6) == ["0"]


def test_an_outage_forgets_nothing(store: MemoryStore) -> None:
    """The window counts the time in which messages came: after a day the last ones come again."""
    wal = opened(store, window=100.0)
    arrive(wal, ["1"])
    seal(wal, 0)
    arrive(wal, ["1", "2"])

    manifest = seal(wal, 1, now=NOW + 86_400)

    assert (ids_of(wal, 2), manifest.clock) == (["2"], 60.0)


def test_a_clock_that_goes_back_forgets_nothing(store: MemoryStore) -> None:
    wal = opened(store, window=100.0)
    arrive(wal, ["1"])
    seal(wal, 0)
    arrive(wal, ["1", "2"])

    manifest = seal(wal, 1, now=NOW - 86_400)

    assert (ids_of(wal, 2), manifest.clock) == (["2"], 0.0)


# Collection


def test_segments_of_batches_that_are_done_are_deleted(
    wal: Wal, store: MemoryStore, collects_at_once: None
) -> None:
    del collects_at_once
    first, second = arrive(wal, numbers(0, 3)), arrive(wal, numbers(3, 6))
    seal(wal, 0, Limit(rows=4))
    commit(wal, 1)

    assert first.name not in store.files
    assert second.name in store.files  # a part of it is in no batch yet
    seal(wal, 1)
    commit(wal, 2)
    assert store.names("incoming") == []


def test_little_is_not_worth_a_collection(wal: Wal, store: MemoryStore) -> None:
    arrive(wal, ["1"])
    seal(wal, 0)
    commit(wal, 1)

    assert (len(store.names("incoming")), store.names("ids")) == (1, [])


def test_ids_outlive_their_segments(wal: Wal, store: MemoryStore, collects_at_once: None) -> None:
    del collects_at_once
    arrive(wal, ["1", "x", "2"])
    seal(wal, 0)
    commit(wal, 1)

    later = opened(store)
    arrive(later, ["2", "x", "1"])
    manifest = seal(later, 1)

    assert (ids_of(later, 2), manifest.rows) == ([], 3)


def test_what_is_older_than_the_window_is_deleted(
    store: MemoryStore, collects_at_once: None
) -> None:
    del collects_at_once
    wal = opened(store, window=100.0)
    for seq in range(20):
        arrive(wal, [str(seq)])
        seal(wal, seq, now=NOW + 60 * seq)
        commit(wal, seq)

    assert store.names("ids")[0] == f"{18:020}-{18:020}.ids"
    assert [int(name.removesuffix(".json")) for name in store.names("log")] == [18, 19, 20]
    assert opened(store, window=100.0).seq == 20


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operations", range(8))
def test_a_collection_that_is_interrupted_leaves_a_log_that_is_whole(
    store: MemoryStore, collects_at_once: None, operations: int, after: bool
) -> None:
    del collects_at_once
    wal = opened(store, window=70.0)
    for seq in range(6):
        arrive(wal, [f"{seq}", f"{seq} again"])
        seal(wal, seq, now=NOW + 60 * seq)
        if seq < 5:
            commit(wal, seq)
    found = read(wal, 6)
    store.dies_in, store.dies_after = operations, after
    with contextlib.suppress(CrashError):
        commit(wal, 5)
    store.dies_in = None

    later = opened(store, window=70.0)

    assert (later.seq, read(later, 6)) == (6, found)
    arrive(later, ["5", "4", "new"])
    seal(later, 6, now=NOW + 300)
    assert ids_of(later, 7) == ["new"]
    commit(later, 6)
    assert len(store.names("incoming")) == 1


# What is damaged or missing


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda data: data[:0],
    lambda data: data[:-1],
    lambda data: data[: len(data) // 2],
    lambda data: flipped(data, 5),
    lambda data: flipped(data, len(data) // 2),
    lambda data: b"\xff" * len(data),
    lambda data: data[:0] + b"{}",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_identity_is_named(
    wal: Wal, store: MemoryStore, damage: Callable[[bytes], bytes]
) -> None:
    del wal
    store.files["wal.json"] = damage(store.files["wal.json"])

    with pytest.raises(
        WalError,
        match=r"^walLocation: memory/wal.json cannot be read: .*. Bring it back, or give another "
        "walLocation and checkpoint$",
    ):
        opened(store)


def test_a_log_without_its_identity_gets_no_other(wal: Wal, store: MemoryStore) -> None:
    arrive(wal, ["a"])
    seal(wal, 0)
    del store.files["wal.json"]

    with pytest.raises(
        WalError,
        match=r"^walLocation: memory/wal.json is missing, and the rest of a log is there: bring it "
        "back, or give another walLocation and checkpoint$",
    ):
        opened(store)

    assert "wal.json" not in store.files


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("open_again", [opened, tolerant])
def test_a_damaged_manifest_is_named(
    wal: Wal,
    store: MemoryStore,
    damage: Callable[[bytes], bytes],
    open_again: Callable[[MemoryStore], Wal],
) -> None:
    for seq in range(3):
        arrive(wal, [str(seq)])
        seal(wal, seq)
    name = log_name(2)
    store.files[name] = damage(store.files[name])

    with pytest.raises(
        DataLossError,
        match=rf"^walLocation: memory/{name} is damaged \(.*\). Nobody knows without it which "
        "messages were in that batch: bring it back, or begin anew with another walLocation and "
        "checkpoint$",
    ):
        open_again(store)


@pytest.mark.parametrize("open_again", [opened, tolerant])
def test_a_missing_manifest_is_named(
    wal: Wal, store: MemoryStore, open_again: Callable[[MemoryStore], Wal]
) -> None:
    for seq in range(3):
        arrive(wal, [str(seq)])
        seal(wal, seq)
    del store.files[log_name(2)]

    with pytest.raises(DataLossError, match=f"memory/{log_name(2)} is missing"):
        open_again(store)


def test_a_manifest_in_the_place_of_another_is_damage(wal: Wal, store: MemoryStore) -> None:
    for seq in range(2):
        arrive(wal, [str(seq)])
        seal(wal, seq)
    store.files[log_name(1)] = store.files[log_name(2)]

    with pytest.raises(DataLossError, match=rf"is damaged \(it is batch 2 of the log '{wal.id}'\)"):
        opened(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_ids_are_named(
    wal: Wal, store: MemoryStore, collects_at_once: None, damage: Callable[[bytes], bytes]
) -> None:
    del collects_at_once
    arrive(wal, numbers(0, 9))
    seal(wal, 0)
    commit(wal, 1)
    (name,) = store.names("ids")
    store.files[f"ids/{name}"] = damage(store.files[f"ids/{name}"])

    with pytest.raises(
        WalError,
        match=rf"^walLocation: memory/ids/{name} is damaged \(.*\): bring it back. If you delete "
        "it instead, messages that come again are not recognised$",
    ):
        opened(store)


def lose(store: MemoryStore, name: str) -> None:
    del store.files[name]


def damage_header(store: MemoryStore, name: str) -> None:
    store.files[name] = flipped(store.files[name], 30)


@pytest.mark.parametrize("harm", [lose, damage_header])
def test_a_sealed_segment_that_is_lost_is_an_error_or_a_warning(
    wal: Wal,
    store: MemoryStore,
    harm: Callable[[MemoryStore, str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    arrive(wal, ["1", "2"])
    lost = arrive(wal, ["3", "4"])
    arrive(wal, ["5"])
    seal(wal, 0)
    harm(store, lost.name)

    with pytest.raises(DataLossError, match=f"memory/{lost.name} is (missing|damaged)"):
        opened(store)
    with caplog.at_level(logging.WARNING, "pubsub_aio.spark"):
        later = tolerant(store)

    assert f"memory/{lost.name} is " in caplog.text
    assert read(later, 1) == [(0, "1"), (1, "2"), (4, "5")]
    arrive(later, ["2", "5", "6"])
    seal(later, 1)
    assert ids_of(later, 2) == ["6"]


def test_a_waiting_segment_that_is_damaged_is_an_error_or_a_warning(
    wal: Wal, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    arrive(wal, ["1"])
    lost = arrive(wal, ["2"])
    arrive(wal, ["3"])
    damage_header(store, lost.name)

    with pytest.raises(DataLossError, match=f"memory/{lost.name} is damaged"):
        opened(store)
    with caplog.at_level(logging.WARNING, "pubsub_aio.spark"):
        later = tolerant(store)
        later.look()

    assert caplog.text.count(lost.name) == 1
    seal(later, 0)
    assert ids_of(later, 1) == ["1", "3"]


def test_the_rest_of_a_segment_that_is_lost_is_an_error_or_a_warning(
    wal: Wal, store: MemoryStore
) -> None:
    lost = arrive(wal, numbers(0, 4))
    seal(wal, 0, Limit(rows=2))
    arrive(wal, ["9"])
    lose(store, lost.name)

    with pytest.raises(DataLossError, match=f"memory/{lost.name} is missing"):
        opened(store)
    later = tolerant(store)
    seal(later, 1)

    assert (read(later, 1), ids_of(later, 2)) == ([], ["9"])


# Whose log it is


def test_a_log_of_another_subscription_is_refused(wal: Wal, store: MemoryStore) -> None:
    del wal
    other = Wal(store, window=1.0, max_ids=1)

    with pytest.raises(WalError) as caught:
        other.open("projects/test/subscriptions/other")

    assert str(caught.value) == (
        f"walLocation: memory has messages of {SUBSCRIPTION}, not of "
        "projects/test/subscriptions/other: give a walLocation for each subscription"
    )


def test_a_log_that_is_behind_the_checkpoint_is_refused(wal: Wal) -> None:
    arrive(wal, ["1"])
    seal(wal, 0)
    arrive(wal, ["2"])

    with pytest.raises(WalError) as caught:
        wal.seal(7, ALL, now=NOW)

    assert str(caught.value) == (
        "walLocation: memory has 1 batches, and the checkpoint says 7: give the walLocation that "
        "belongs to the checkpoint"
    )
    seal(wal, 1)
    assert ids_of(wal, 2) == ["2"]


def test_a_log_is_itself_after_a_restart(store: MemoryStore) -> None:
    assert opened(store).id == opened(store).id != opened(MemoryStore()).id


def test_a_segment_of_another_log_is_no_part_of_this(wal: Wal, store: MemoryStore) -> None:
    write(store, "another", ["1"])

    with pytest.raises(DataLossError, match="it belongs to another log, 'another'"):
        wal.look()


def test_what_has_happened_once_is_remembered(store: MemoryStore) -> None:
    first, second = opened(store), opened(store)

    assert first.marks.who("begun") is None
    assert first.marks.put("begun", "one") == "one"
    assert first.marks.put("begun", "one") == "one"  # as if the answer had been lost
    assert second.marks.put("begun", "two") == "one"
    assert opened(store).marks.who("begun") == "one"
    assert opened(store).marks.who("sought") is None


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mark_is_named(
    wal: Wal, store: MemoryStore, damage: Callable[[bytes], bytes]
) -> None:
    wal.marks.put("begun", "one")
    store.files["marks/begun"] = damage(store.files["marks/begun"])

    with pytest.raises(WalError, match=r"memory/marks/begun is damaged \(.*\): bring it back$"):
        wal.marks.who("begun")


def test_pieces_of_several_batches_come_in_the_order_of_their_numbers(wal: Wal) -> None:
    arrive(wal, numbers(0, 5))
    arrive(wal, numbers(5, 8))
    for seq, rows in enumerate((2, 4, 2)):
        seal(wal, seq, Limit(rows=rows))

    found: Sequence[tuple[int, int, int]] = [
        (piece.start, piece.stop, piece.sequence) for piece in wal.pieces(0, 3)
    ]

    assert found == [(0, 2, 0), (2, 5, 2), (0, 1, 5), (1, 3, 6)]

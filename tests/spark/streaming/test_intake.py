"""The driver's side of the source, called as Spark calls it, over the wire and without Spark."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="the source needs PySpark 4.0")

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming import collection, intake
from pubsub_aio.spark.streaming.intake import Intake
from pubsub_aio.spark.streaming.options import SourceOptions, source_options
from pubsub_aio.spark.streaming.receiver import Receiver
from pubsub_aio.spark.streaming.segment_writer import SegmentWriter
from pubsub_aio.spark.streaming.source import FetchPartition, PubSubStreamReader
from pubsub_aio.spark.streaming.stores import LocalStore
from tests.spark.streaming.logs import rows
from tests.spark.wire import TOPIC, WITHIN, WORKER

Offset = dict[str, Any]
_PAUSE = threading.Event()


class Driver:
    """What Spark does with a reader: one of these is one life of a driver."""

    def __init__(self, emulator: EmulatorThread, folder: Path, **options: str) -> None:
        self.reader = PubSubStreamReader(options_of(folder, emulator, **options))
        self.emulator = emulator

    def next(self, start: Offset) -> Offset:
        """The next batch, as soon as there is one."""
        while (end := self.reader.latestOffset(start))["seq"] == start["seq"]:
            _PAUSE.wait(0.01)
        return end

    def rows(self, start: Offset, end: Offset) -> list[bytes]:
        """Note a batch, and read it."""
        tasks = [
            task
            for task in self.reader.partitions(start, end)
            if not isinstance(task, FetchPartition)
        ]
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        return [data for batch in batches for data in batch.column("data").to_pylist()]

    def end(self) -> None:
        self.reader.stop()


def options_of(folder: Path, emulator: EmulatorThread | None, **options: str) -> SourceOptions:
    given = {
        "subscription": WORKER,
        "project": emulator.project if emulator else "p",
        "endpoint": f"http://{emulator.address}" if emulator else "http://localhost:1",
        "walLocation": str(folder / "wal"),
    }
    return source_options(given | options)


def publish(emulator: EmulatorThread, *data: bytes) -> None:
    for each in data:
        emulator.publish(TOPIC, each)


# Where a query is


def test_before_4_2_a_query_goes_on_where_spark_says_it_ended(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """Spark first asks for an empty batch, which ends there, and then for offsets without a start.

    All batches but that of the offset log may be sealed already.
    """
    first = Driver(emulator, tmp_path)
    start = first.reader.initialOffset()
    publish(emulator, b"a")
    one = first.next(start)
    assert first.rows(start, one) == [b"a"]
    publish(emulator, b"b")
    two = first.next(one)  # sealed, and Spark has not noted it
    first.end()

    second = Driver(emulator, tmp_path)
    assert second.rows(one, one) == []
    assert second.reader.latestOffset() == two
    assert second.rows(one, two) == [b"b"]
    assert second.reader.latestOffset() == two
    second.end()


def test_before_4_2_the_first_batch_may_come_again(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    first = Driver(emulator, tmp_path)
    start = first.reader.initialOffset()
    publish(emulator, b"a")
    one = first.next(start)
    assert first.rows(start, one) == [b"a"]
    first.end()

    second = Driver(emulator, tmp_path)
    assert second.rows(one, one) == []
    assert second.rows(second.reader.initialOffset(), one) == [b"a"]
    second.end()


@pytest.mark.parametrize("told", [True, False])
def test_a_log_that_was_begun_is_refused_to_a_new_query(
    emulator: EmulatorThread, tmp_path: Path, told: bool
) -> None:
    """Also if nothing has come since, and whether or not Spark tells where it is."""
    first = Driver(emulator, tmp_path)
    start = first.reader.initialOffset()
    publish(emulator, b"a")
    one = first.next(start)
    first.rows(start, one)
    first.end()

    second = Driver(emulator, tmp_path)
    start = second.reader.initialOffset()
    with pytest.raises(WalError, match="belongs to another query, which has come to batch 1"):
        second.reader.latestOffset(start if told else None)
    assert emulator.streams() == []
    second.end()


def test_of_two_new_queries_one_has_the_log(emulator: EmulatorThread, tmp_path: Path) -> None:
    """Also after restarts: each is known by what its checkpoint has."""
    first, second = Driver(emulator, tmp_path), Driver(emulator, tmp_path)
    start, other_start = first.reader.initialOffset(), second.reader.initialOffset()
    publish(emulator, b"a")
    one, other_one = first.next(start), second.next(other_start)
    assert one["seq"] == other_one["seq"] == 1

    assert first.rows(start, one) == [b"a"]
    with pytest.raises(WalError, match="belongs to another query"):
        second.rows(other_start, other_one)
    first.end()
    second.end()

    first, second = Driver(emulator, tmp_path), Driver(emulator, tmp_path)
    assert first.rows(first.reader.initialOffset(), one) == [b"a"]
    for ask in (
        lambda: second.rows(other_one, other_one),
        lambda: second.rows(second.reader.initialOffset(), other_one),
        lambda: second.reader.latestOffset(other_one),
    ):
        with pytest.raises(WalError, match="belongs to another query"):
            ask()
    assert emulator.streams() == []
    first.end()
    second.end()


def test_a_log_that_nobody_has_begun_is_taken_over(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """However many batches were sealed before Spark could note one."""
    first = Driver(emulator, tmp_path)
    start = first.reader.initialOffset()
    publish(emulator, b"a")
    one = first.next(start)
    publish(emulator, b"b")
    two = first.next(one)
    first.end()

    second = Driver(emulator, tmp_path)
    start = second.reader.initialOffset()
    assert second.next(start) == one | {"query": start["query"]}
    assert second.rows(start, two | {"query": start["query"]}) == [b"a", b"b"]
    second.end()


def test_a_checkpoint_of_another_log_is_refused_before_anything_is_received(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    publish(emulator, b"a")
    driver = Driver(emulator, tmp_path)
    foreign = {"seq": 1, "wal": "another", "query": "another"}

    for ask in (
        lambda: driver.reader.partitions(foreign, foreign),  # before 4.2
        lambda: driver.reader.latestOffset(foreign),
    ):
        with pytest.raises(WalError, match="is not the log that the checkpoint goes with"):
            ask()

    assert emulator.backlog(WORKER) == 1
    assert emulator.streams() == []


# All there is, and no more


@pytest.mark.parametrize("told", [True, False])
def test_all_there_is_comes_though_some_was_sealed_before(
    emulator: EmulatorThread, tmp_path: Path, told: bool
) -> None:
    limits: list[object] = []
    if told:
        kinds = pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 tells")
        limits = [kinds.ReadAllAvailable()]
    first = Driver(emulator, tmp_path)
    start = first.reader.initialOffset()
    publish(emulator, b"a")
    first.next(start)
    first.end()
    publish(emulator, b"b", b"c")

    second = Driver(emulator, tmp_path, availableNowIdle="1s")
    start = second.reader.initialOffset()
    end = second.reader.latestOffset(start if told else None, *limits)

    assert second.rows(start, end) == [b"a", b"b", b"c"]
    assert emulator.streams() == []
    second.end()


def test_a_query_that_has_all_receives_no_more(emulator: EmulatorThread, tmp_path: Path) -> None:
    """Spark asks again if another source of the query has not, or if there is state."""
    publish(emulator, b"a")
    driver = Driver(emulator, tmp_path, availableNowIdle="0.5s")
    driver.reader.prepareForTriggerAvailableNow()
    start = driver.reader.initialOffset()
    one = driver.reader.latestOffset(start)
    assert driver.rows(start, one) == [b"a"]
    assert driver.reader.latestOffset(one) == one
    publish(emulator, b"b")

    assert driver.reader.latestOffset(one) == one
    assert (emulator.streams(), emulator.backlog(WORKER)) == ([], 1)
    driver.end()


class Batch:
    """Messages as the receiver hands them over."""

    def __init__(self, *ids: str, size: int = 10, published: float = 0.0) -> None:
        found = rows(ids)
        place = found.schema.get_field_index("publish_time")
        field = found.schema.field(place)
        times = [datetime.fromtimestamp(published, UTC)] * len(ids)
        self.records = found.set_column(place, field, pa.array(times, field.type))
        self.size = size

    def __len__(self) -> int:
        return int(self.records.num_rows)


class Kept:
    """An intake whose receiver is a thread of the test."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.intake = Intake(options_of(folder, None, **options))
        self.intake.open()
        self.intake._writer = SegmentWriter(self.intake.wal.store, self.intake.wal.id, "")
        self.kept: list[bool] = []

    def receive(self, batches: Iterable[Batch]) -> threading.Thread:
        def receive() -> None:
            for batch in batches:
                self.kept.append(self.intake.keep(batch))  # type: ignore[arg-type]
                self.intake.rest()

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        return thread

    def all(self, *, everything: bool) -> int:
        """Batch by batch, as with the trigger availableNow; returns how many rows there were."""
        last = None
        while batch := self.intake.latest(
            last.seq if last else 0, everything=everything, patient=True
        ):
            last = batch
        self.intake.release()
        return last.rows if last else 0


def test_nobody_rests_while_everything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rest may be longer than the silence after which a query ends."""
    monkeypatch.setattr(intake, "_RESTS", ((10, 100.0),))
    kept = Kept(tmp_path, availableNowIdle="1s")
    kept.intake.begin_available_now()

    receiver = kept.receive(Batch(f"{number}") for number in range(30))
    found = kept.all(everything=True)
    receiver.join(WITHIN)

    assert (found, kept.kept) == (30, [True] * 30)


def test_what_was_published_before_has_room_though_the_log_is_full_of_what_came_later(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, availableNowIdle="1s", maxBytesPerTrigger="1m")
    kept.intake.begin_available_now()
    later = time.time() + 3_600

    def batches() -> Iterator[Batch]:
        number = 0
        while kept.intake._has_room():
            yield Batch(f"later {number}", size=32 << 20, published=later)
            number += 1
        yield Batch("before")

    receiver = kept.receive(batches())
    found = kept.all(everything=False)
    receiver.join(WITHIN)

    assert kept.kept[-1]
    assert found == len(kept.kept)


# How much a batch has


def test_a_batch_of_large_messages_does_not_wait_for_rows_for_which_there_is_no_room(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, minRowsPerTrigger="1000", maxBytesPerTrigger="1m", maxTriggerDelay="1h")
    kept.receive([Batch("a", size=500_000)]).join(WITHIN)
    assert kept.intake.latest(0, everything=False, patient=False) is None

    kept.receive([Batch("b", size=700_000)]).join(WITHIN)

    assert kept.intake.latest(0, everything=False, patient=False)


# What fails beside Spark


class Flaky(LocalStore):
    """A folder from which nothing can be deleted for a while."""

    failures = 0

    def delete(self, names: Iterable[str]) -> None:
        found = [*names]
        if self.failures and any(name.startswith("incoming") for name in found):
            self.failures -= 1
            raise OSError("503 try later")
        super().delete(found)


def collecting(kept: Kept, batches: int) -> None:
    """Have batches come, noted and done, and each collected when it is."""
    for number in range(batches):
        kept.receive([Batch(f"{number}")]).join(WITHIN)
        manifest = kept.intake.latest(number, everything=False, patient=False)
        assert manifest
        if not number:
            kept.intake.begin("query")
        kept.intake.pieces(number, manifest.seq)
        kept.intake.commit(number)
        kept.intake._chores.submit(int).result(WITHIN)  # all before it is done


def test_a_delete_that_fails_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 2)
    monkeypatch.setattr(intake, "store_at", lambda location: Flaky(Path(location)))
    kept = Kept(tmp_path)
    store = kept.intake.wal.store
    assert isinstance(store, Flaky)
    store.failures = 3

    collecting(kept, 20)

    assert store.failures == 0
    assert len(kept.intake.wal.segments()) < 5
    assert caplog.text.count("503 try later") == 3


def test_a_delete_that_always_fails_ends_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be deleted would pile up."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 2)
    monkeypatch.setattr(intake, "store_at", lambda location: Flaky(Path(location)))
    kept = Kept(tmp_path)
    store = kept.intake.wal.store
    assert isinstance(store, Flaky)
    store.failures = 1_000

    with pytest.raises(WalError, match="cannot be written to: 503 try later"):
        collecting(kept, 100)


class Cancelled(Receiver):
    """One that ends by what is no Exception."""

    async def _receive(self) -> None:
        self._started.set()
        raise asyncio.CancelledError


def test_a_receiver_that_has_ended_is_noticed_however_it_has(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    receiver = Cancelled(kept.intake._options, kept.intake, seek=False)
    kept.intake._receiver = receiver
    receiver._thread.start()
    receiver._thread.join(WITHIN)

    with pytest.raises(RuntimeError, match=r"the receiver has ended: CancelledError\(\)"):
        kept.intake.latest(0, everything=False, patient=False)

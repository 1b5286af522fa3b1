"""The driver's side of the source, called as Spark calls it, over the wire and without Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="the source needs PySpark 4.0")

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming import collection, intake
from pubsub_aio.spark.streaming.layout import number_of_segment
from pubsub_aio.spark.streaming.receiver import Receiver, receiving
from pubsub_aio.spark.streaming.segment_writer import SegmentWriter
from pubsub_aio.spark.streaming.stores import LocalStore
from pubsub_aio.subscriber.client import SubscriberClient
from tests.spark.streaming.drivers import Batch, Driver, Kept, options_of, publish
from tests.spark.wire import TOPIC, WITHIN, WORKER

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


def test_a_new_query_has_what_one_was_not_done_with_that_is_gone(
    emulator: EmulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint is lost, say, or a mistake in it cannot be mended; its mark is deleted."""
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    gone = Driver(emulator, tmp_path)
    offset = gone.reader.initialOffset()
    for each in (b"done", b"begun", b"sealed"):
        publish(emulator, each)
        before, offset = offset, gone.next(offset)
        if each != b"sealed":
            assert gone.rows(before, offset) == [each]
            gone.reader.commit(before)
    gone.end()  # what it has begun to delete is deleted
    publish(emulator, b"later")

    with pytest.raises(WalError, match="If that query is gone, delete marks/begun in the walLoc"):
        Driver(emulator, tmp_path).reader.latestOffset()
    (tmp_path / "wal" / "marks" / "begun").unlink()
    new = Driver(emulator, tmp_path)
    offset = new.reader.initialOffset()
    found = []
    for _ in range(3):
        before, offset = offset, new.next(offset)
        found += new.rows(before, offset)

    assert found == [b"begun", b"sealed", b"later"]
    new.end()


def test_who_goes_on_before_4_2_begins_where_the_query_that_is_gone_was_done(
    emulator: EmulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    gone = Driver(emulator, tmp_path)
    start = gone.reader.initialOffset()
    publish(emulator, b"done")
    one = gone.next(start)
    gone.rows(start, one)
    gone.reader.commit(one)
    publish(emulator, b"sealed")
    gone.next(one)
    gone.end()
    (tmp_path / "wal" / "marks" / "begun").unlink()

    new = Driver(emulator, tmp_path)
    start = new.reader.initialOffset()
    two = new.reader.latestOffset()

    assert (start["seq"], new.rows(start, two)) == (1, [b"sealed"])
    new.end()


# Order


def test_what_another_driver_has_kept_of_an_ordered_subscription_comes_first(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """It acked that, and only then the service gave what is behind it to this one."""
    emulator.create_subscription("ordered", TOPIC, enable_message_ordering=True)
    driver = Driver(emulator, tmp_path, subscription="ordered")
    start = driver.reader.initialOffset()
    publish(emulator, b"a")
    one = driver.next(start)
    assert driver.rows(start, one) == [b"a"]
    wal = driver.reader._opened().wal
    ahead = time.time_ns() + 10**12  # by the clock of its machine
    SegmentWriter(wal.store, wal.id, "").write(Batch("b"), after=ahead)  # type: ignore[arg-type]

    publish(emulator, b"c")

    assert driver.rows(one, driver.next(one)) == [b"b", b"c"]
    driver.end()


# How long messages are held


async def test_messages_are_held_for_however_long_the_log_is_full(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """To give them back would count as a failed delivery, and make dead letters of them."""
    options = options_of(tmp_path, emulator)
    failed = asyncio.get_running_loop().create_future()
    async with (
        SubscriberClient(**options.connection.arguments()) as client,
        receiving(client, options, Kept(tmp_path).intake, failed, most=10) as live,
    ):
        assert live.flow_control.max_lease_duration > 365 * 86_400


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


def test_what_has_failed_is_noticed_while_batches_are_sealed_ahead(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for number in range(2):
        kept.receive([Batch(f"{number}")]).join(WITHIN)
        assert kept.intake.latest(number, everything=False, patient=False)
    kept.intake._error = WalError("it cannot be written to")

    with pytest.raises(WalError, match="cannot be written to"):
        kept.intake.latest(0, everything=False, patient=False)


def test_what_comes_is_behind_what_another_has_kept_whose_clock_is_ahead(tmp_path: Path) -> None:
    kept, other = Kept(tmp_path), Kept(tmp_path)
    ahead = time.time_ns() + 10**12
    other.intake._writer.write(Batch("a"), after=ahead)  # type: ignore[union-attr, arg-type]
    kept.intake.wal.look()

    kept.receive([Batch("b"), Batch("c")]).join(WITHIN)

    assert [number_of_segment(name) for name in kept.intake.wal.segments()] == [
        ahead + 1,
        ahead + 2,
        ahead + 3,
    ]


class Cancelled(Receiver):
    """One that ends by what is no Exception."""

    async def _receive(self) -> None:
        self._started.set()
        raise asyncio.CancelledError


def test_a_receiver_that_has_ended_is_noticed_however_it_has(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    receiver = Cancelled(kept.intake._options, kept.intake, wal="", seek=False)
    kept.intake._receiver = receiver
    receiver._thread.start()
    receiver._thread.join(WITHIN)

    with pytest.raises(RuntimeError, match=r"the receiver has ended: CancelledError\(\)"):
        kept.intake.latest(0, everything=False, patient=False)

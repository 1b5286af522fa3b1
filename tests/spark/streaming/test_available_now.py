"""A query with the trigger availableNow: it ends when it has all that was published before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="the source needs PySpark 4.0")

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark.streaming import intake
from pubsub_aio.spark.streaming.receiver import Receiver
from tests.spark.streaming.drivers import Batch, Driver, Kept, options_of, publish
from tests.spark.wire import TOPIC, WITHIN, WORKER

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


def test_it_ends_though_messages_keep_coming(tmp_path: Path) -> None:
    """As fast as Spark reads them: nothing is sealed ahead then."""
    kept = Kept(tmp_path, availableNowIdle="0.2s", maxRowsPerTrigger="2")
    kept.intake.begin_available_now()
    later = time.time() + 3_600
    kept.receive([Batch("before")]).join(WITHIN)

    seq = 0
    while seq < 20 and (batch := kept.intake.latest(seq, everything=False, patient=True)):
        kept.receive([Batch(*f"{seq}a {seq}b {seq}c".split(), published=later)]).join(WITHIN)
        kept.intake.pieces(seq, batch.seq)
        kept.intake._chores.submit(int).result(WITHIN)  # what is sealed ahead is sealed
        seq = batch.seq
    kept.intake.release()

    assert seq == 1


class Told:
    """A keeper that notes what it is told of the connection."""

    def __init__(self) -> None:
        self.connections: list[bool] = []

    def keep(self, batch: object) -> bool:
        raise NotImplementedError

    def rest(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        pass

    def connection(self, *, works: bool) -> None:
        self.connections.append(works)


def test_it_is_told_when_the_connection_is_lost_and_works_again(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    told = Told()
    receiver = Receiver(options_of(tmp_path, emulator), told, seek=False)
    receiver.start()
    refused = emulator.faults.refuse_connections()
    emulator.faults.cut_connections()
    emulator.until(lambda: told.connections == [True, False], timeout=WITHIN)
    refused.resume()

    emulator.until(lambda: told.connections == [True, False, True], timeout=WITHIN)
    receiver.stop()


# The end of a subscription

DELETES = {
    "availableNowIdle": "0.2s",
    "createSubscription": "true",
    "topic": TOPIC,
    "deleteSubscriptionOnStreamStop": "true",
}


def exists(emulator: EmulatorThread, subscription: str) -> bool:
    try:
        return emulator.backlog(subscription) >= 0
    except ValueError:  # as the emulator says
        return False


def test_a_subscription_that_was_there_before_is_not_deleted(
    emulator: EmulatorThread, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(emulator, tmp_path, **DELETES)
    start = driver.reader.initialOffset()
    driver.reader.prepareForTriggerAvailableNow()

    assert driver.reader.latestOffset(start) == start

    assert exists(emulator, WORKER)
    assert f"subscriptions/{WORKER} was there before the query, and stays" in caplog.text
    driver.end()


def test_a_subscription_of_the_query_is_deleted_at_the_end_and_may_be_made_again(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    for _ in range(2):
        driver = Driver(emulator, tmp_path, subscription="mine", **DELETES)
        start = driver.reader.initialOffset()
        driver.reader.prepareForTriggerAvailableNow()
        assert driver.reader.latestOffset(start) == start
        assert not exists(emulator, "mine")
        driver.end()


def test_a_subscription_that_a_run_has_created_is_deleted_by_a_later_one(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """It need not wait for leases: the run before has come to its end, and given back all."""
    for deletes in ("false", "true"):
        options = {**DELETES, "deleteSubscriptionOnStreamStop": deletes}
        driver = Driver(emulator, tmp_path, subscription="mine", **options)
        start = driver.reader.initialOffset()
        driver.reader.prepareForTriggerAvailableNow()
        assert driver.reader.latestOffset(start) == start
        assert exists(emulator, "mine") == (deletes == "false")
        driver.end()


def test_before_it_is_deleted_what_a_run_held_that_was_killed_has_time_to_come_again(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    left = []
    for _ in range(2):
        driver = Driver(emulator, tmp_path, subscription="mine", **DELETES)
        driver.reader.prepareForTriggerAvailableNow()
        made = driver.reader._opened()
        made.start(ends=True)
        assert made._silence
        left.append(made._silence.left(now=time.monotonic()))
        driver.end()  # it does not come to its end

    assert exists(emulator, "mine")
    assert (left[0] <= 0.2, left[1] > 600) == (True, True)


def test_tasks_fetch_only_while_the_query_receives(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """Not when it has all, and not in a batch of before: the subscription may be gone."""
    publish(emulator, b"a")
    driver = Driver(emulator, tmp_path, numFetchPartitions="2")
    start = driver.reader.initialOffset()
    one = driver.next(start)
    assert driver.fetchers(start, one) == 2
    driver.end()

    again = Driver(emulator, tmp_path, numFetchPartitions="2", availableNowIdle="1s")
    assert again.fetchers(start, one) == 0
    publish(emulator, b"b")
    two = again.reader.latestOffset()

    assert two["rows"] == 2
    assert again.fetchers(one, two) == 0
    again.end()

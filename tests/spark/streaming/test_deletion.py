"""The end of a subscription that a query has created: what somebody may hold has time to come."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.datasource", reason="the source needs PySpark 4.0")

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark.streaming.marks import Marks, Runs
from tests.spark.streaming.drivers import Clock, Driver, beginning, publish
from tests.spark.streaming.logs import MemoryStore
from tests.spark.streaming.queries import administer
from tests.spark.wire import TOPIC, WITHIN, WORKER

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


def test_a_subscription_that_others_made_by_that_name_is_not_deleted(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    options = {**DELETES, "deleteSubscriptionOnStreamStop": "false", "subscription": "mine"}
    first, made = beginning(emulator, tmp_path, **options)
    made.finish()
    first.end()
    administer(emulator, lambda admin: admin.delete_subscription("mine"))
    emulator.create_subscription("mine", TOPIC)

    driver = Driver(emulator, tmp_path, subscription="mine", **DELETES)
    start = driver.reader.initialOffset()
    driver.reader.prepareForTriggerAvailableNow()
    assert driver.reader.latestOffset(start) == start

    assert exists(emulator, "mine")
    driver.end()


def test_a_subscription_that_is_gone_already_is_deleted(
    emulator: EmulatorThread, tmp_path: Path
) -> None:
    """As if the answer had been lost, and it had been tried again."""
    driver, made = beginning(emulator, tmp_path, subscription="mine", **DELETES)
    emulator.faults.fail("DeleteSubscription", "NOT_FOUND")

    made.finish()

    assert made.wal.marks.all("receives") == []
    driver.end()


def test_before_it_is_deleted_what_a_task_held_that_was_killed_has_time_to_come_again(
    emulator: EmulatorThread, tmp_path: Path, clock: Clock
) -> None:
    """The driver does not hear of it, so it waits as long after each batch with such tasks."""
    options = {**DELETES, "numFetchPartitions": "2", "maxFetchPeriod": "30s"}
    driver, made = beginning(emulator, tmp_path, subscription="mine", **options)
    silence = made._silence
    assert silence.left(now=clock.monotonic()) > 630
    publish(emulator, b"a")
    start = {"seq": 0, "wal": made.wal.id, "query": "q"}
    one = driver.next(start)
    assert driver.fetchers(start, one) == 2
    silence.begin(now=0.0)
    publish(emulator, b"b")
    emulator.until(lambda: made.waiting.rows == 1, timeout=WITHIN)
    silence.begin(now=0.0)

    driver.next(one)

    assert silence.left(now=clock.monotonic()) > 630
    driver.end()


def test_runs_that_may_hold_messages_are_known_until_the_subscription_is_deleted() -> None:
    marks = Marks(MemoryStore())
    a, b, c, d = (Runs(marks, name) for name in "abcd")

    assert not a.begin()
    a.end()
    assert not b.begin()  # it is killed
    assert c.begin()
    c.end()
    assert d.begin()
    d.forget()
    assert not a.begin()


def test_a_run_that_ends_says_nothing_of_one_that_began_meanwhile() -> None:
    marks = Marks(MemoryStore())
    a, b, c = (Runs(marks, name) for name in "abc")
    a.begin()
    b.begin()
    a.end()  # and b is killed

    assert c.begin()
    assert len(marks.all("receives")) == 1  # however many were killed

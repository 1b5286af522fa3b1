"""A query delivers each message once, whatever is repeated, lost, or shared with others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pubsub_aio.emulator import EmulatorThread, VirtualClock
from tests.spark.streaming.queries import (
    IS_TOLD,
    ONE_BATCH,
    Query,
    forget_last_commit,
    forget_last_offset,
    ids,
    publish,
)
from tests.spark.wire import TOPIC, WITHIN, WORKER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Messages that come again


def test_messages_that_come_twice_are_delivered_once(
    query: Query, emulator: EmulatorThread
) -> None:
    emulator.faults.duplicate(WORKER, times=8)
    published = publish(emulator, 20)

    assert ids(query.run()) == published
    assert (query.last["rows"], query.last["duplicatesDropped"]) == (20, 8)
    assert emulator.backlog(WORKER) == 0


def test_messages_whose_acks_were_lost_are_delivered_once(
    session: SparkSession, tmp_path: Path
) -> None:
    start = datetime.now(UTC).timestamp() - 100_000
    with EmulatorThread(clock=VirtualClock(start)) as emulator:
        emulator.create_subscription(WORKER, TOPIC)
        query = Query(session, emulator, tmp_path)
        published = publish(emulator, 20)
        emulator.faults.lose_acks(WORKER, times=6)
        assert ids(query.run()) == published
        assert emulator.backlog(WORKER) == 6
        emulator.advance(700)  # their leases end
        published += publish(emulator, 3)

        query.run()

        assert query.ids == published
        assert (query.last["rows"], query.last["duplicatesDropped"]) == (23, 6)
        assert emulator.backlog(WORKER) == 0


def test_messages_are_recognised_by_an_attribute(query: Query, emulator: EmulatorThread) -> None:
    def send(*orders: str) -> None:
        for order in orders:
            emulator.publish(
                TOPIC, order.encode(), attributes={"order": order} if order else {"n": ""}
            )

    send("a", "b", "a", "", "")
    first = query.run(dedupeAttribute="order")
    send("b", "c", "")
    second = query.run(dedupeAttribute="order")

    assert sorted(bytes(row.data) for row in first) == [b"", b"", b"a", b"b"]
    assert sorted(bytes(row.data) for row in second) == [b"", b"c"]
    assert query.last["duplicatesDropped"] == 2


@pytest.mark.parametrize(
    "forget", [forget_last_commit, pytest.param(forget_last_offset, marks=ONE_BATCH)]
)
def test_a_batch_that_comes_again_has_the_same_rows(
    query: Query, emulator: EmulatorThread, forget: Callable[[Path], None]
) -> None:
    published = publish(emulator, 5)
    query.run()
    published += publish(emulator, 5)
    query.run()
    seen = dict(query.batches)
    forget(query.checkpoint)
    published += publish(emulator, 5)

    query.run()  # batches are compared as they come
    if not IS_TOLD:
        query.run()  # the first only repeats what was not finished

    assert {number: query.batches[number] for number in seen} == seen
    assert query.ids == published


# Order


def test_sequence_numbers_have_the_order_of_each_key(
    query: Query, emulator: EmulatorThread
) -> None:
    emulator.create_subscription("ordered", TOPIC, enable_message_ordering=True)
    keys = [f"key {number % 3}" for number in range(60)]
    for number, key in enumerate(keys):
        emulator.publish(TOPIC, b"%d" % number, ordering_key=key)

    rows = query.run(subscription="ordered", maxRowsPerTrigger="20", numPartitions="2")

    of_a_key: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: int(row.sequence)):
        of_a_key.setdefault(row.ordering_key, []).append(int(row.data))
    assert of_a_key == {f"key {k}": [*range(k, 60, 3)] for k in range(3)}


def test_tasks_do_not_fetch_from_an_ordered_subscription(
    query: Query, emulator: EmulatorThread
) -> None:
    emulator.create_subscription("ordered", TOPIC, enable_message_ordering=True)
    published = publish(emulator, 5)

    with pytest.raises(
        Exception, match="numFetchPartitions must be 0, for ordered has message ord"
    ):
        query.run(subscription="ordered", numFetchPartitions="2")

    assert ids(query.run(subscription="ordered")) == published


# Tasks that fetch


def test_messages_that_tasks_fetched_are_delivered_once(
    query: Query, emulator: EmulatorThread
) -> None:
    published = publish(emulator, 400)
    options = {"numFetchPartitions": "2", "maxFetchPeriod": "1s", "maxRowsPerTrigger": "100"}
    running = query.start(query.stream(**options))
    query.until(running, lambda: query.ids == published)
    query.stop(running)
    published += publish(emulator, 10)
    running = query.start(query.stream(**options))
    query.until(running, lambda: query.ids == published)
    query.stop(running)

    assert query.ids == published
    assert emulator.backlog(WORKER) == 0


# Several queries


def test_two_queries_on_one_subscription_share_its_messages(
    query: Query, emulator: EmulatorThread
) -> None:
    other = Query(query.session, emulator, query.wal.parent / "other")
    running = [each.start(each.stream()) for each in (query, other)]
    emulator.until(lambda: len(emulator.streams(WORKER)) >= 2, timeout=WITHIN)
    published = publish(emulator, 200)
    emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=WITHIN)
    for each in running:
        each.processAllAvailable()
    for each in running:
        each.stop()

    assert query.ids + other.ids == published


def test_queries_with_subscriptions_of_their_own_get_everything(
    query: Query, emulator: EmulatorThread
) -> None:
    emulator.create_subscription("second", TOPIC)
    other = Query(query.session, emulator, query.wal.parent / "other")
    published = publish(emulator, 20)

    assert (ids(query.run()), ids(other.run(subscription="second"))) == (published, published)

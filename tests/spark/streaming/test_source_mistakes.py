"""Each mistake is told, and when it is mended everything is there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.spark.streaming.full_disk import FULL, FullDiskDataSource
from tests.spark.streaming.queries import (
    IS_TOLD,
    Query,
    administer,
    forget_last_commit,
    ids,
    publish,
)
from tests.spark.wire import TOPIC, WITHIN, WORKER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pubsub_aio.emulator import EmulatorThread


def test_a_mistaken_option_is_told_before_anything_happens(query: Query) -> None:
    for options, message in (
        ({"maxRowsPerTrigger": "many"}, "maxRowsPerTrigger must be a whole number, not 'many'"),
        ({"subscriptionId": "x"}, "there is no such option here: give subscription"),
        ({"maxRowsPerTriger": "1"}, "did you mean maxRowsPerTrigger"),
        ({"walLocation": ""}, "walLocation is missing"),
    ):
        with pytest.raises(Exception, match=message):
            query.stream(**options)

    assert not query.wal.exists()


def start_and_wait(query: Query, df: DataFrame) -> None:
    """Spark may tell a mistake at once, or when the query runs."""
    assert query.start(df, availableNow=True).awaitTermination(int(WITHIN))


def test_a_schema_that_does_not_fit_is_told(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 3)
    reader = query.session.readStream.format("pubsub").options(**query.options())

    with pytest.raises(
        Exception, match=r"ConfigError: schema: the columns are struct<message_id:string,.*leave"
    ) as caught:
        start_and_wait(query, reader.schema("message_id string, data string").load())
    assert "UnboundLocalError" not in str(caught.value)  # as Spark says of what streamReader raises

    assert ids(query.run()) == published


def test_a_subscription_that_there_is_not_is_told(query: Query, emulator: EmulatorThread) -> None:
    with pytest.raises(Exception, match="subscriptions/gone"):
        query.run(subscription="gone")

    emulator.create_subscription("gone", TOPIC)
    published = publish(emulator, 3)
    assert ids(query.run(subscription="gone")) == published


def test_a_subscription_that_is_deleted_while_it_is_read_is_told(
    query: Query, emulator: EmulatorThread
) -> None:
    published = publish(emulator, 3)
    running = query.start(query.stream())
    query.until(running, lambda: query.ids == published)
    administer(emulator, lambda admin: admin.delete_subscription(WORKER))

    with pytest.raises(Exception, match=r"ConfigError: worker: there is none \(any more\): create"):
        running.awaitTermination(int(WITHIN))

    emulator.create_subscription(WORKER, TOPIC)
    published += publish(emulator, 3)
    query.run()
    assert query.ids == published


def test_a_subscription_has_no_end_that_could_be_read_to(query: Query) -> None:
    reader = query.session.read.format("pubsub").options(**query.options())

    with pytest.raises(Exception, match=r"spark\.read: a subscription has no end; use"):
        reader.load().count()


def test_a_log_of_another_query_is_told(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 3)
    query.run()
    query.run()
    published += publish(emulator, 3)
    other = Query(query.session, emulator, query.wal.parent / "other")

    with pytest.raises(Exception, match=r"belongs to another query, which has come to batch \d"):
        other.run(walLocation=str(query.wal))

    query.run()
    assert (query.ids, other.ids) == (published, Counter())


def test_a_log_of_another_subscription_is_told(query: Query, emulator: EmulatorThread) -> None:
    emulator.create_subscription("other", TOPIC)
    published = publish(emulator, 3)
    query.run()
    other = Query(query.session, emulator, query.wal.parent / "other")

    with pytest.raises(Exception, match=r"has messages of .*/worker, not of .*/other: give a wal"):
        other.run(subscription="other", walLocation=str(query.wal))

    assert ids(other.run(subscription="other")) == published


def test_a_checkpoint_with_another_log_is_told(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 3)
    query.run()
    published += publish(emulator, 3)

    with pytest.raises(Exception, match="is not the log that the checkpoint goes with: give the"):
        query.run(walLocation=str(query.wal.parent / "new"))

    query.run()
    assert query.ids == published


def test_a_full_disk_is_told_and_nothing_is_acked_that_is_not_on_it(
    query: Query, emulator: EmulatorThread
) -> None:
    query.session.dataSource.register(FullDiskDataSource)
    published = publish(emulator, 3)
    running = query.start(query.stream("fulldisk"))
    query.until(running, lambda: query.ids == published)
    full = query.wal.parent / FULL
    full.touch()
    published += publish(emulator, 3)

    with pytest.raises(
        Exception,
        match=r"WalError: walLocation: .*/wal cannot be written to: \[Errno 28\] No space left on "
        r"device\. Make room there, and start the query again",
    ):
        running.awaitTermination(int(WITHIN))

    assert emulator.backlog(WORKER) == 3
    full.unlink()
    query.run()
    assert query.ids == published


def test_damage_is_an_error_or_passed_over(query: Query, emulator: EmulatorThread) -> None:
    """The rows of a batch that was noted, and has to be read again, are damaged."""
    published = publish(emulator, 4)
    first = query.run()
    last_ids = publish(emulator, 4)
    query.run()
    last = max((query.wal / "incoming").iterdir())
    whole = last.read_bytes()
    last.write_bytes(whole[:-100] + b"!" * 100)
    seen = dict(query.batches)
    forget_last_commit(query.checkpoint)

    with pytest.raises(Exception, match=rf"{last.name} is damaged .* failOnDataLoss to false"):
        query.run()
    last.write_bytes(whole)
    query.run()

    assert query.batches == seen
    assert query.ids == published + last_ids
    last.write_bytes(whole[:-100] + b"!" * 100)
    forget_last_commit(query.checkpoint)
    query.batches.clear()
    later = publish(emulator, 2)
    found = query.run(failOnDataLoss="false")
    if not IS_TOLD:
        found += query.run(failOnDataLoss="false")  # the first only repeats what was not finished
    assert ids(found) == later
    assert ids(first) == published

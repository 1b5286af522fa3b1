"""What a query reads of a subscription: which columns, when, how much, and from where on."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pubsub_aio.spark.streaming import reading
from tests.spark.streaming.queries import ONE_BATCH, Query, administer, ids, publish
from tests.spark.wire import TOPIC, WITHIN, WORKER

if TYPE_CHECKING:
    from pubsub_aio.emulator import EmulatorThread


# Without Spark


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_python_does_not_have_is_no_time(text: str) -> None:
    """Whoever collects it would fail, and again with each restart."""
    assert reading._time(text) is None


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31t12:00:00z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
        ("-1", datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("253402300799999", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_times_of_events(text: str, time: datetime) -> None:
    assert reading._time(text) == time


# What a row has


def test_every_column(query: Query, emulator: EmulatorThread) -> None:
    for data, attributes, key in (
        (b"tea", {"a": "1", "b": ""}, ""),
        (b"", {"é": "ü"}, "customer"),
        (b"\x00\xff", {}, "x"),
    ):
        emulator.publish(TOPIC, data, attributes=attributes, ordering_key=key)
    df = query.stream()

    rows = query.run()

    assert df.schema == StructType(
        StructType()
        .add("message_id", StringType())
        .add("data", BinaryType())
        .add("attributes", MapType(StringType(), StringType()))
        .add("publish_time", TimestampType())
        .add("ordering_key", StringType())
        .add("delivery_attempt", IntegerType())
        .add("sequence", LongType())
        .fields
    )
    published = {message.message_id: message for message in emulator.messages(TOPIC)}
    assert sorted((row.sequence, row.delivery_attempt) for row in rows) == [
        (0, None),
        (1, None),
        (2, None),
    ]
    assert sorted(
        (row.message_id, bytes(row.data), row.attributes, row.ordering_key) for row in rows
    ) == sorted((m.message_id, m.data, m.attributes, m.ordering_key) for m in published.values())
    for row in rows:
        stated = published[row.message_id].publish_time.astimezone(UTC)
        given = row.publish_time.astimezone(UTC)
        assert abs(given - stated) < timedelta(milliseconds=1)


def test_the_time_of_an_event_is_taken_from_an_attribute(
    query: Query, emulator: EmulatorThread
) -> None:
    then = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    stated = {
        "zulu": "2026-01-31T12:00:00.123Z",
        "zone": "2026-01-31T13:00:00.123+01:00",
        "nanoseconds": "2026-01-31T12:00:00.123000000Z",
        "milliseconds": str(int(then.timestamp() * 1000)),
    }
    odd = {"nonsense": "tomorrow", "empty": "", "far": "9" * 15}
    buried = emulator.create_topic("buried")
    emulator.create_subscription(
        "attempts", TOPIC, dead_letter_policy={"dead_letter_topic": buried}
    )
    for name, text in (stated | odd).items():
        emulator.publish(TOPIC, name.encode(), attributes={"at": text})
    emulator.publish(TOPIC, b"missing", attributes={"other": "2026-01-31T12:00:00Z"})

    options = {"eventTimeAttribute": "at", "subscription": "attempts"}
    df = query.stream(**options)
    rows = {bytes(row.data).decode(): row for row in query.run(**options)}

    assert {row.delivery_attempt for row in rows.values()} == {1}
    assert df.schema.fieldNames()[-1] == "event_time"
    assert {*rows} == {*stated, *odd, "missing"}
    assert {rows[name].event_time.astimezone(UTC) for name in stated} == {then}
    for name in (*odd, "missing"):
        assert rows[name].event_time == rows[name].publish_time


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.session.timeZone", "Asia/Tokyo"),
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "3"),
    ],
)
def test_settings_of_the_session_change_nothing(
    query: Query, emulator: EmulatorThread, setting: str, value: str
) -> None:
    published = publish(emulator, 10)
    before = query.session.conf.get(setting, None)
    query.session.conf.set(setting, value)
    try:
        rows = query.run(eventTimeAttribute="at")
    finally:
        query.session.conf.unset(setting)
        if before is not None:
            query.session.conf.set(setting, before)

    assert ids(rows) == published
    newest = max(row.publish_time.timestamp() for row in rows)
    assert abs(newest - max(m.publish_time.timestamp() for m in emulator.messages())) < 0.01


# Triggers


@pytest.mark.parametrize("trigger", [{}, {"processingTime": "200 milliseconds"}])
def test_a_query_goes_on_until_it_is_stopped_and_then_where_it_was(
    query: Query, emulator: EmulatorThread, trigger: dict[str, str]
) -> None:
    published = publish(emulator, 20)
    running = query.start(query.stream(), **trigger)
    query.until(running, lambda: query.ids == published)
    published += publish(emulator, 5)
    query.until(running, lambda: query.ids == published)
    query.stop(running)
    published += publish(emulator, 7)

    running = query.start(query.stream(), **trigger)
    query.until(running, lambda: query.ids == published)
    query.stop(running)

    assert query.ids == published
    assert [row.sequence for row in query.rows] == [*range(32)]


def test_what_is_available_now_is_read_and_then_it_ends(
    query: Query, emulator: EmulatorThread
) -> None:
    for _ in range(2):
        published = publish(emulator, 30)

        assert ids(query.run()) == published

    assert ids(query.run()) == Counter()
    assert emulator.backlog(WORKER) == 0


def test_an_empty_subscription_has_no_batch(query: Query) -> None:
    assert query.run() == []
    assert query.rows == []


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_trigger_once_reads_everything_in_one_batch(
    query: Query, emulator: EmulatorThread
) -> None:
    published = publish(emulator, 30)
    df = query.stream(availableNowIdle="1s", maxRowsPerTrigger="10")

    running = query.start(df, once=True)
    assert running.awaitTermination(int(WITHIN))

    assert (query.ids, len(query.batches)) == (published, 1)


# Limits


def test_no_batch_has_more_rows_than_it_may(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 25)
    running = query.start(query.stream(maxRowsPerTrigger="10"))
    query.until(running, lambda: query.ids == published)
    query.stop(running)

    assert max(map(len, query.batches.values())) <= 10


def test_no_batch_has_more_bytes_than_it_may(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 12, size=1_000)
    running = query.start(query.stream(maxBytesPerTrigger="5k"))
    query.until(running, lambda: query.ids == published)
    query.stop(running)

    assert max(map(len, query.batches.values())) <= 5


@ONE_BATCH
def test_limits_hold_for_what_is_available_now(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 25)

    assert ids(query.run(maxRowsPerTrigger="10")) == published
    assert max(map(len, query.batches.values())) <= 10


def test_a_batch_waits_until_it_has_enough_rows(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 10)
    running = query.start(query.stream(minRowsPerTrigger="20"))
    emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=WITHIN)  # it has them
    before = query.rows
    published += publish(emulator, 10)
    query.until(running, lambda: query.ids == published)
    query.stop(running)

    assert (before, [len(rows) for rows in query.batches.values() if rows]) == ([], [20])


def test_a_batch_does_not_wait_for_ever(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 10)
    running = query.start(query.stream(minRowsPerTrigger="1000", maxTriggerDelay="500ms"))
    query.until(running, lambda: query.ids == published)
    query.stop(running)


def test_a_message_larger_than_any_limit_is_delivered(
    query: Query, emulator: EmulatorThread
) -> None:
    data = bytes(range(250)) * 40_000
    emulator.publish(TOPIC, data)
    emulator.publish(TOPIC, b"small")

    running = query.start(query.stream(maxBytesPerTrigger="1m", maxOutstandingBytes="1m"))
    query.until(running, lambda: len(query.rows) == 2)
    query.stop(running)

    assert {bytes(row.data) for row in query.rows} == {data, b"small"}


def test_a_batch_has_as_many_partitions_as_are_asked_for(
    query: Query, emulator: EmulatorThread
) -> None:
    """A segment of few rows is not divided: so they are published one after another."""
    running = query.start(query.stream(numPartitions="2", minRowsPerTrigger="30"))
    published: Counter[str] = Counter()
    for _ in range(3):
        published += publish(emulator, 10)
        emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=WITHIN)
    query.until(running, lambda: query.ids == published)
    query.stop(running)

    assert [query.partitions[number] for number, rows in query.batches.items() if rows] == [2]


# Where it begins


def test_a_subscription_can_be_created_and_deleted(query: Query, emulator: EmulatorThread) -> None:
    made = {"subscription": "made", "topic": TOPIC, "createSubscription": "true"}
    assert query.run(**made) == []
    published = publish(emulator, 5)

    assert ids(query.run(**made)) == published
    published = publish(emulator, 3)
    assert ids(query.run(**made, deleteSubscriptionOnStreamStop="true")) == published
    with pytest.raises(Exception, match=r"not found|NOT_FOUND"):
        emulator.backlog("made")


def test_a_query_begins_at_a_time_and_goes_on_where_it_was(
    query: Query, emulator: EmulatorThread
) -> None:
    publish(emulator, 4)
    begin = emulator.message(emulator.publish(TOPIC, b"begin")).publish_time
    published = Counter(m.message_id for m in emulator.messages() if m.publish_time >= begin)

    first = query.run(startingTimestamp=begin.astimezone(UTC).isoformat())
    published += publish(emulator, 2)
    query.run(startingTimestamp=begin.astimezone(UTC).isoformat())

    assert [bytes(row.data) for row in first] == [b"begin"]
    assert query.ids == published


def test_a_query_begins_at_a_snapshot(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 4)

    administer(emulator, lambda admin: admin.create_snapshot("before", WORKER))
    other = Query(query.session, emulator, query.wal.parent / "other")
    assert ids(other.run()) == published

    with pytest.raises(Exception, match=r"ConfigError: startingSnapshot gone: there is none"):
        query.run(startingSnapshot="gone")
    assert ids(query.run(startingSnapshot="before")) == published


# How it is reached


def test_it_has_another_name_too(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 3)

    assert ids(query.run("pubsub_aio")) == published


def test_it_can_be_reached_by_rest(query: Query, emulator: EmulatorThread) -> None:
    published = publish(emulator, 30)

    assert ids(query.run(transport="rest")) == published
    assert emulator.backlog(WORKER) == 0

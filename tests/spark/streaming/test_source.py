"""A query reads a subscription: each message once, whatever is mistaken, lost or repeated."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pubsub_aio import AdminClient
from pubsub_aio.emulator import EmulatorThread, VirtualClock
from pubsub_aio.spark import PubSubAioDataSource, PubSubDataSource
from pubsub_aio.spark.streaming import reading
from tests.spark.streaming.full_disk import FULL, FullDiskDataSource
from tests.spark.wire import TOPIC, WITHIN, WORKER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

IS_TOLD = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Whether Spark tells the source where a query is, and supports AvailableNow: since 4.2."""

ONE_BATCH = pytest.mark.skipif(
    not IS_TOLD, reason="before 4.2 Spark makes one batch of all that is available"
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(PubSubDataSource)
    spark.dataSource.register(PubSubAioDataSource)
    return spark


@pytest.fixture
def emulator() -> Iterator[EmulatorThread]:
    with EmulatorThread() as running:
        running.create_subscription(WORKER, TOPIC)
        yield running


class Query:
    """A query with its checkpoint and its log, and what it has delivered.

    Batches that Spark repeats must be the same, as a sink that skips them relies on.
    """

    def __init__(self, session: SparkSession, emulator: EmulatorThread, folder: Path) -> None:
        self.session = session
        self.emulator = emulator
        self.checkpoint = folder / "checkpoint"
        self.wal = folder / "wal"
        self.batches: dict[int, list[Row]] = {}
        self.partitions: dict[int, int] = {}
        self.last: dict[str, Any] = {}
        """The offset that it came to."""
        self._came = threading.Condition()

    def options(self, **options: str) -> dict[str, str]:
        return {
            "subscription": WORKER,
            "project": self.emulator.project,
            "endpoint": f"http://{self.emulator.address}",
            "walLocation": str(self.wal),
        } | options

    def stream(self, kind: str = "pubsub", **options: str) -> DataFrame:
        return self.session.readStream.format(kind).options(**self.options(**options)).load()

    def start(self, df: DataFrame, **trigger: Any) -> StreamingQuery:
        def note(batch: DataFrame, number: int) -> None:
            rows = batch.collect()
            with self._came:
                assert self.batches.setdefault(number, rows) == rows
                self.partitions[number] = batch.rdd.getNumPartitions()
                self._came.notify_all()

        writer = df.writeStream.option("checkpointLocation", str(self.checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(note).start()

    def run(self, kind: str = "pubsub", **options: str) -> list[Row]:
        """Run until nothing comes any more; returns the rows that it delivered."""
        before = {*self.batches}
        df = self.stream(kind, **{"availableNowIdle": "1s"} | options)
        query = self.start(df, availableNow=True)
        try:
            assert query.awaitTermination(int(WITHIN))
            self._note_progress(query)
        finally:
            self.stop(query)
        return [row for number in sorted({*self.batches} - before) for row in self.batches[number]]

    def stop(self, query: StreamingQuery) -> None:
        """Stop it, and wait until its process is gone: what comes to that now comes late again."""
        query.stop()
        self.emulator.until(lambda: not self.emulator.streams(), timeout=WITHIN)

    def _note_progress(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            offset = progress["sources"][0]["endOffset"]
            if offset:
                self.last = ast.literal_eval(offset) if isinstance(offset, str) else dict(offset)

    def until(self, query: StreamingQuery, condition: Callable[[], bool]) -> None:
        """Wait for batches; a query that fails ends the wait."""
        with self._came:
            ended = self._came.wait_for(lambda: condition() or not query.isActive, WITHIN)
        if error := query.exception():
            raise error
        assert ended
        assert condition()

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def ids(self) -> Counter[str]:
        """How often each message was delivered."""
        return Counter(row.message_id for row in self.rows)


@pytest.fixture
def query(session: SparkSession, emulator: EmulatorThread, tmp_path: Path) -> Query:
    return Query(session, emulator, tmp_path)


def publish(emulator: EmulatorThread, count: int, *, size: int = 1) -> Counter[str]:
    return Counter(emulator.publish(TOPIC, b"x" * size) for _ in range(count))


def ids(rows: Iterable[Row]) -> Counter[str]:
    return Counter(row.message_id for row in rows)


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


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died right before Spark noted that the batch is done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def forget_last_offset(checkpoint: Path) -> None:
    """As if it had died right before Spark noted the batch, which was sealed by then."""
    forget_last_commit(checkpoint)
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


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


def administer(
    emulator: EmulatorThread, act: Callable[[AdminClient], Coroutine[Any, Any, object]]
) -> None:
    async def run() -> None:
        endpoint = f"http://{emulator.address}"
        async with AdminClient(project=emulator.project, endpoint=endpoint) as admin:
            await act(admin)

    asyncio.run(run())


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


# Mistakes: each is told, and when it is mended everything is there


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
    last.write_bytes(whole[:-100] + bytes(100))
    seen = dict(query.batches)
    forget_last_commit(query.checkpoint)

    with pytest.raises(Exception, match=rf"{last.name} is damaged .* failOnDataLoss to false"):
        query.run()
    last.write_bytes(whole)
    query.run()

    assert query.batches == seen
    assert query.ids == published + last_ids
    last.write_bytes(whole[:-100] + bytes(100))
    forget_last_commit(query.checkpoint)
    query.batches.clear()
    later = publish(emulator, 2)
    found = query.run(failOnDataLoss="false")
    if not IS_TOLD:
        found += query.run(failOnDataLoss="false")  # the first only repeats what was not finished
    assert ids(found) == later
    assert ids(first) == published


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

"""Micro-batches with a real Spark session, over the wire."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - so it is called
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pubsub_aio import (
    ConfigError,
    FlowControl,
    ShutdownPolicy,
    StuckHandlerError,
    SubscriberClient,
)
from pubsub_aio._wire.arrow import SCHEMA as SCHEMA_OF_ARROW
from pubsub_aio.emulator import Emulator
from pubsub_aio.spark import MicroBatch, microbatches
from pubsub_aio.spark.frames import COLUMNS, dataframe
from pubsub_aio.spark.handlers import SparkHandler
from tests.spark.wire import BURIED, TOPIC, WORKER, Lake, publish, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType(
    [
        StructField("message_id", StringType()),
        StructField("data", BinaryType()),
        StructField("attributes", MapType(StringType(), StringType())),
        StructField("publish_time", TimestampType()),
        StructField("ordering_key", StringType()),
        StructField("delivery_attempt", IntegerType()),
    ]
)


async def test_messages_become_rows(
    spark: SparkSession, emulator: Emulator, either_client: SubscriberClient
) -> None:
    """With the columns of a micro-batch and what was published, and are acked."""
    plain = emulator.publish(TOPIC, b"\x00\xff binary", attributes={"colour": "blue", "grün": "ü"})
    keyed = emulator.publish(TOPIC, attributes={"only": "attributes"}, ordering_key="key")
    frames: list[tuple[StructType, list[Any], MicroBatch]] = []

    def handle(df: DataFrame, batch: MicroBatch) -> None:
        frames.append((df.schema, df.collect(), batch))

    microbatches(spark, either_client, WORKER, handle)
    await until(lambda: emulator.backlog(WORKER) == 0)

    ((schema, rows, batch),) = frames
    assert schema == SCHEMA
    assert [row.message_id for row in rows] == batch.message_ids == [plain, keyed]
    first, second = rows
    assert (first.data, first.attributes) == (b"\x00\xff binary", {"colour": "blue", "grün": "ü"})
    assert (second.data, second.attributes) == (b"", {"only": "attributes"})
    assert (first.ordering_key, second.ordering_key) == ("", "key")
    assert (first.delivery_attempt, second.delivery_attempt) == (None, None)
    published = emulator.message(plain).publish_time
    assert datetime.fromtimestamp(first.publish_time.timestamp(), UTC) == published
    assert (len(batch), batch.part_of) == (2, "")


async def test_delivery_attempts_are_told_with_a_dead_letter_policy(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient
) -> None:
    policy = {"dead_letter_topic": emulator.create_topic("refused"), "max_delivery_attempts": 5}
    emulator.create_subscription("watched", TOPIC, dead_letter_policy=policy)
    emulator.publish(TOPIC, b"soup")
    attempts = []

    def handle(df: DataFrame, _: MicroBatch) -> None:
        attempts.append(df.collect()[0].delivery_attempt)
        if len(attempts) < 2:
            raise ValueError("not yet")

    microbatches(spark, client, "watched", handle)
    await until(lambda: emulator.backlog("watched") == 0)

    assert attempts == [1, 2]


async def test_a_batch_that_fails_comes_again(
    spark: SparkSession, emulator: Emulator, either_client: SubscriberClient, lake: Lake
) -> None:
    """Nothing is lost by it; the rows that were written before it failed are there twice."""
    failed = threading.Event()

    def handle(df: DataFrame, batch: MicroBatch) -> None:
        lake.append(df, batch)
        if not failed.is_set():
            failed.set()
            raise ValueError("the connection was lost right after the write")

    ids = publish(emulator, 1_000)
    microbatches(spark, either_client, WORKER, handle, on_batch=lake.reports.append)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert lake.ids.keys() == set(ids)
    assert lake.outcomes[0] == "failed"
    assert lake.outcomes[1:] == ["acked"] * (len(lake.outcomes) - 1)
    assert lake.ids.total() == 1_000 + lake.reports[0].rows


async def test_an_async_function_is_called_in_the_loop(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient
) -> None:
    counts = []

    async def handle(df: DataFrame, _: MicroBatch) -> None:
        assert asyncio.current_task() is not None
        counts.append(await asyncio.to_thread(df.count))

    publish(emulator, 10)
    microbatches(spark, client, WORKER, handle)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert sum(counts) == 10


@pytest.mark.parametrize("itself", [False, True])
async def test_an_async_function_that_cancels_what_is_its_own_has_failed(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, lake: Lake, *, itself: bool
) -> None:
    """It is not the subscription that is cancelled; the messages come again."""

    async def handle(df: DataFrame, _: MicroBatch) -> None:
        counting = asyncio.ensure_future(asyncio.to_thread(df.count))
        own = asyncio.current_task() if itself else counting
        if own and not lake.reports:
            own.cancel()
        await counting

    publish(emulator, 10)
    live = microbatches(spark, client, WORKER, handle, on_batch=lake.reports.append)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert (lake.outcomes, live.done()) == (["failed", "acked"], False)
    said = "handle cancelled the task it ran in" if itself else "handle raised CancelledError"
    assert str(lake.reports[0].error) == said


async def test_an_async_function_that_does_not_end_ends_the_subscription(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, lake: Lake
) -> None:
    """As a plain one does: its messages go back when its time is over, whatever it does."""
    over = asyncio.Event()

    async def handle(_df: DataFrame, _: MicroBatch) -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    publish(emulator, 10)
    reports = lake.reports
    live = microbatches(
        spark, client, WORKER, handle, on_batch=reports.append, max_batch_duration=1
    )
    with pytest.raises(StuckHandlerError):
        await live
    over.set()

    assert [(report.outcome, report.nacked) for report in reports] == [("timed out", 10)]
    last = {message.modacks[-1].seconds for message in emulator.messages(TOPIC)}
    assert last <= {0, 1}  # back, at once or after the delay of a batch that failed


class Panic(BaseException):
    """Extensions in other languages raise such."""


async def fail_async(*_: object) -> None:
    raise Panic


def fail(*_: object) -> None:
    raise Panic


def pending(*_: object) -> object:
    return (number for number in range(3))


async def pending_async(*_: object) -> AsyncIterator[int]:
    yield 3


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (fail, "handle raised Panic"),
        (fail_async, "handle raised Panic"),
        (pending, "handle must do its work and return, but it returned <generator"),
        (lambda *_: pending_async(), "but it returned <async_generator"),
    ],
)
async def test_whatever_is_raised_and_whatever_was_not_done_is_a_failure(
    spark: SparkSession,
    emulator: Emulator,
    client: SubscriberClient,
    lake: Lake,
    does: Any,
    why: str,
) -> None:
    """It is reported, and comes again a second later."""

    def handle(df: DataFrame, batch: MicroBatch) -> object:
        if not lake.reports:
            return does()
        lake.append(df, batch)
        return None

    ids = publish(emulator, 10)
    microbatches(spark, client, WORKER, handle, on_batch=lake.reports.append)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert lake.outcomes == ["failed", "acked"]
    assert why in str(lake.reports[0].error)
    assert lake.ids == dict.fromkeys(ids, 1)


Begun = list[concurrent.futures.Future[None]]


def plain(begun: Begun) -> Any:
    def handle(*_: object) -> object:
        begun.append(concurrent.futures.Future())
        return begun[-1]

    return handle


def of_a_coroutine(begun: Begun) -> Any:
    async def handle(*_: object) -> object:
        begun.append(concurrent.futures.Future())
        return begun[-1]

    return handle


def of_the_loop(begun: Begun) -> Any:
    async def handle(*_: object) -> object:
        begun.append(concurrent.futures.Future())
        return asyncio.wrap_future(begun[-1])

    return handle


@pytest.mark.parametrize("kind", [plain, of_a_coroutine, of_the_loop])
async def test_what_is_still_to_come_is_waited_for(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, lake: Lake, kind: Any
) -> None:
    """The work may be left to an executor of one's own."""
    begun: Begun = []
    handle = kind(begun)
    publish(emulator, 10)
    live = microbatches(spark, client, WORKER, handle, on_batch=lake.reports.append)
    await until(lambda: begun)
    assert (live.health().running, lake.reports) == (1, [])
    begun[0].set_exception(OSError("there is no room left"))
    await until(lambda: len(begun) == 2)
    begun[1].set_result(None)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert lake.outcomes == ["failed", "acked"]


async def test_work_that_was_left_to_others_keeps_its_place_until_it_has_ended(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, lake: Lake
) -> None:
    """Or ever more of it would run, when each takes too long."""
    begun: Begun = []

    def handle(*_: object) -> object:
        begun.append(concurrent.futures.Future())
        begun[-1].set_running_or_notify_cancel()  # from now on it cannot be cancelled
        return begun[-1]

    publish(emulator, 10)
    live = microbatches(
        spark, client, WORKER, handle, on_batch=lake.reports.append, max_batch_duration=1
    )
    with pytest.raises(StuckHandlerError):
        await live
    begun[0].set_result(None)

    assert (len(begun), lake.outcomes) == (1, ["timed out"])


async def test_spark_does_not_block_the_loop(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient
) -> None:
    """The function waits for the loop here: if the loop waited for it, neither would go on."""
    loop, went_on = asyncio.get_running_loop(), []

    def handle(df: DataFrame, _: MicroBatch) -> None:
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        went_on.append(turned.wait(30))
        df.count()

    publish(emulator, 10)
    microbatches(spark, client, WORKER, handle)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert went_on == [True]


@pytest.mark.parametrize("most", [1, 2])
async def test_so_many_batches_are_handled_at_once(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, most: int
) -> None:
    running = peak = 0
    lock, both = threading.Lock(), threading.Barrier(most)

    def handle(df: DataFrame, batch: MicroBatch) -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        if len(batch) == 10:
            both.wait(30)  # for the other, if there is to be one
        df.count()
        with lock:
            running -= 1

    publish(emulator, 40)
    microbatches(spark, client, WORKER, handle, max_messages=10, max_in_flight=most)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert peak == most


async def test_a_batch_that_takes_too_long_is_cancelled_in_spark(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, lake: Lake
) -> None:
    """Its job ends long before it would by itself, and its messages come again."""
    ended: list[str] = []

    def handle(df: DataFrame, batch: MicroBatch) -> None:
        if not ended:
            try:
                spark.range(10**15).selectExpr("sum(id % 7)").collect()  # days
            except Exception as error:
                ended.append(type(error).__name__)
                raise
        lake.append(df, batch)

    ids = publish(emulator, 10)
    microbatches(spark, client, WORKER, handle, max_batch_duration=3, on_batch=lake.reports.append)
    await until(lambda: emulator.backlog(WORKER) == 0)

    *before, last = lake.outcomes
    assert ({*before}, last) == ({"timed out"}, "acked")
    assert lake.reports[0].nacked == 10
    assert len(ended) == 1
    assert lake.ids.keys() == set(ids)


async def test_a_batch_that_runs_when_all_is_stopped_at_once_is_cancelled_in_spark(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient, lake: Lake
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def handle(_df: DataFrame, _: MicroBatch) -> None:
        begun.set()
        try:
            spark.range(10**15).selectExpr("sum(id % 7)").collect()  # days
        finally:
            ended.set()

    publish(emulator, 10)
    live = microbatches(
        spark,
        client,
        WORKER,
        handle,
        on_batch=lake.reports.append,
        shutdown=ShutdownPolicy(timeout=0.1),
    )
    await until(begun.is_set)
    live.stop()
    await live

    assert lake.outcomes == ["cancelled"]
    assert emulator.backlog(WORKER) == 10
    await until(ended.is_set)


async def test_a_function_that_hangs_does_not_keep_a_loop_from_ending(spark: SparkSession) -> None:
    """At its end a loop cancels every task at once, and then waits for all of them."""
    begun, free = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        free.wait()

    handler = SparkHandler(spark, hang, max_in_flight=1)
    batch = MicroBatch(5, lambda: records(5))

    async def deal_with_it() -> None:
        try:
            await handler.run(batch)
        finally:
            await handler.ended(batch)

    dealing = asyncio.create_task(deal_with_it())
    await until(begun.is_set)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.wait([dealing], timeout=0.1)
    dealing.cancel()
    _, pending = await asyncio.wait(tasks, timeout=100)
    free.set()
    handler.close()

    assert not pending


@pytest.mark.parametrize("dead_letters", [True, False])
async def test_a_poisonous_message_does_not_keep_the_others_back(
    spark: SparkSession,
    emulator: Emulator,
    either_client: SubscriberClient,
    lake: Lake,
    *,
    dead_letters: bool,
) -> None:
    """It is Spark that fails with it, in the middle of the job."""

    def handle(df: DataFrame, batch: MicroBatch) -> None:
        number = F.col("data").cast("string").cast("int")
        checked = F.when(number != 77, number).otherwise(F.raise_error(F.lit("77 is bad")))
        lake.append(df.withColumn("number", checked), batch)

    ids = publish(emulator, 100)
    microbatches(
        spark,
        either_client,
        WORKER,
        handle,
        bisect=True,
        dead_letter_topic=BURIED if dead_letters else None,
        on_batch=lake.reports.append,
    )
    await until(lambda: lake.reports)

    (report,) = lake.reports
    assert (report.outcome, report.acked) == ("bisected", 99 + dead_letters)
    assert report.poisonous == (ids[77],)
    assert lake.ids.keys() == {*ids} - {ids[77]}
    buried = [
        (one.data, one.attributes["pubsub_aio_message_id"]) for one in emulator.messages(BURIED)
    ]
    assert buried == [(b"77", ids[77])] * dead_letters
    await until(lambda: emulator.backlog(WORKER) == 1 - dead_letters)


async def test_keys_stay_in_order(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient
) -> None:
    """Over batches, and where some fail, however many may be handled at once."""
    emulator.create_subscription("ordered", TOPIC, enable_message_ordering=True)
    for number in range(200):
        emulator.publish(TOPIC, b"%d" % number, ordering_key="ab"[number % 2])
    through: list[int] = []
    calls = 0

    def handle(df: DataFrame, _: MicroBatch) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ValueError("the second fails")
        through.extend(int(row.data) for row in df.collect())

    microbatches(spark, client, "ordered", handle, max_messages=30, max_in_flight=3)
    await until(lambda: emulator.backlog("ordered") == 0)

    for key in (0, 1):
        assert [number for number in through if number % 2 == key] == [*range(key, 200, 2)]


def test_settings_of_the_session_are_as_they_were(spark: SparkSession) -> None:
    """Also where no DataFrame could be made."""
    names = ["localRelationThreshold", "maxRecordsPerBatch"]
    full = [f"spark.sql.execution.arrow.{name}" for name in names]
    spark.conf.set(full[1], "77")
    before = [spark.conf.get(name) for name in full]
    try:
        dataframe(spark, records(5))
        with pytest.raises(Exception, match="UNSUPPORTED"):
            dataframe(spark, pa.record_batch({"number": pa.array([1], pa.uint64())}))
        assert [spark.conf.get(name) for name in full] == before
    finally:
        spark.conf.unset(full[1])


@pytest.mark.parametrize(
    ("rows", "most"),
    [(1, "10000"), (5, "10000"), (50_001, "10000"), (1_001, "100"), (1_001, "0"), (1_001, "-1")],
)
def test_a_dataframe_has_a_partition_for_each_core(
    spark: SparkSession, rows: int, most: str
) -> None:
    """And not one for each Arrow batch, however many rows such a batch may have."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, most)
    try:
        df = dataframe(spark, records(rows))
        assert spark.conf.get(name) == most
    finally:
        spark.conf.unset(name)

    assert df.count() == rows
    assert df.rdd.getNumPartitions() == min(rows, spark.sparkContext.defaultParallelism)


def test_dataframes_made_at_once_have_their_partitions_all_the_same(spark: SparkSession) -> None:
    """Settings that one of them changes for a moment are not what the others go by."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "0")
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = [*pool.map(lambda rows: dataframe(spark, records(rows)), range(1_001, 1_101))]
    finally:
        spark.conf.unset(name)

    cores = spark.sparkContext.defaultParallelism
    assert {df.rdd.getNumPartitions() for df in made} == {cores}


def test_partitions_are_not_too_large_to_be_sent(spark: SparkSession) -> None:
    """Spark refuses a task of more than 128 MiB on a cluster."""
    large = pa.record_batch({"data": pa.array([b"x" * 2**20] * 100)})
    df = dataframe(spark, large)

    assert df.rdd.getNumPartitions() == 4
    assert df.selectExpr("sum(length(data))").collect()[0][0] == 100 * 2**20


def records(count: int) -> pa.RecordBatch:
    """Rows of a micro-batch."""
    columns = [[f"{number}" for number in range(count)], [b""] * count, [[("a", "b")]] * count]
    columns += [[datetime(2026, 1, 1, tzinfo=UTC)] * count, [""] * count, [None] * count]
    types = [SCHEMA_OF_ARROW.field(name).type for name in COLUMNS]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


# What cannot be


async def listen(report: object) -> None: ...


REFUSED: dict[str, dict[str, Any]] = {
    "client must be a SubscriberClient, not None": {"client": None},
    "spark must be a SparkSession, not 'local'": {"spark": "local"},
    "bisect must be True or False, not 'yes'": {"bisect": "yes"},
    "flow_control must be a FlowControl, not 5": {"flow_control": 5},
    "on_batch must be a function that takes a BatchReport, not 5": {"on_batch": 5},
    "on_batch must be a plain function": {"on_batch": listen},
    "max_bytes: 1,073,741,824 times max_in_flight=1 needs about 5,120 MiB": {"max_bytes": 2**30},
    "max_bytes: .* max_in_flight=4 .*; lower one of them, or start Spark": {"max_in_flight": 4},
    "max_messages": {"max_messages": 0},
    "max_bytes": {"max_bytes": -1},
    "max_latency": {"max_latency": float("nan")},
    "max_in_flight": {"max_in_flight": 0},
    "max_batch_duration": {"max_batch_duration": 0},
    "max_poisonous": {"max_poisonous": 0},
    "dead_letter_topic: only bisect=True": {"dead_letter_topic": BURIED},
    "topic": {"dead_letter_topic": "projects/p/subscriptions/s", "bisect": True},
    "auto_ack: leave it out": {"auto_ack": True},
    "there is no such option": {"max_rows": 1},
    "max_messages: 2,000 does not fit": {
        "max_messages": 2_000,
        "flow_control": FlowControl(max_messages=1_000),
    },
    "max_bytes: 2,000 does not fit": {
        "max_bytes": 2_000,
        "max_messages": 10,
        "flow_control": FlowControl(max_bytes=1_000),
    },
    "max_batch_duration: 600.0 does not fit": {
        "max_messages": 10,
        "flow_control": FlowControl(max_lease_duration=500),
    },
}


@pytest.mark.parametrize("message", REFUSED)
async def test_what_cannot_be_is_refused(
    spark: SparkSession, client: SubscriberClient, message: str
) -> None:
    arguments: dict[str, Any] = {
        "spark": spark,
        "client": client,
        "subscription": WORKER,
        "handle": print,
    }
    with pytest.raises(ConfigError, match=message):
        microbatches(**arguments | REFUSED[message])


def yielding(df: DataFrame, batch: MicroBatch) -> Iterator[object]:
    yield df, batch


@pytest.mark.parametrize(
    "handle",
    [None, "print", lambda df: df, lambda: 1, lambda a, b, c: (a, b, c), yielding, pending_async],
)
async def test_what_cannot_be_called_is_refused(
    spark: SparkSession, client: SubscriberClient, handle: Any
) -> None:
    with pytest.raises(ConfigError, match="handle must"):
        microbatches(spark, client, WORKER, handle)


async def test_limits_are_derived_from_the_batches(
    spark: SparkSession, emulator: Emulator, client: SubscriberClient
) -> None:
    """Room for those that are handled, and one that is gathered; the server is told."""
    held = threading.Event()
    live = microbatches(
        spark,
        client,
        WORKER,
        lambda *_: held.wait(60),
        max_messages=70,
        max_bytes=2_000_000,
        max_in_flight=3,
        max_batch_duration=40,
    )
    await live.ready()

    flow = live.flow_control
    assert flow.max_outstanding_messages == 4 * 70
    assert flow.max_bytes == 4 * 2_000_000
    assert flow.max_lease_duration >= 2 * 40
    publish(emulator, 1_000)
    await until(lambda: emulator.outstanding(WORKER) == 280)
    held.set()

"""Micro-batches side by side with other ways: into Arrow, into a DataFrame, and all the way.

    nox -s bench -- microbatch [--rounds 7]

Turns are interleaved, every second round in reverse order, and ratios are of turns of one round,
since machines are noisy. The JVM is warm: a few rounds are run first and not counted. A DataFrame
is made and then read to its last row, by Spark's sink that writes nothing, for what is saved when
it is made must not be paid for later.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pubsub_aio import SubscriberClient
from pubsub_aio._wire import schema
from pubsub_aio._wire.arrow import SCHEMA, ArrowCodec
from pubsub_aio.spark import BatchReport, MicroBatch, dataframe, microbatches, session
from pubsub_aio.spark.frames import columns_of
from tests.bench.load import Load
from tests.bench.report import Figure, plot
from tests.bench.servers import OURS, Server, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_RESPONSE, RESPONSES = 100, 20
SIZES = (10_000, 50_000, 200_000)
"""Rows of a DataFrame; the last is a full micro-batch."""
END_TO_END = 400_000
WARM_UP = 3

OURS_ALONE = (
    "spark.sql.execution.arrow.localRelationThreshold",
    "spark.sql.execution.arrow.pyspark.enabled",
)
"""Settings of `session()` that bear on `createDataFrame`; here they are as Spark has them."""


def main() -> None:
    """Measure everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved turns of each way")
    rounds = parser.parse_args().rounds
    figures = [*to_arrow(rounds)]
    spark = session()
    for name in OURS_ALONE:
        spark.conf.unset(name)
    figures += to_dataframe(spark, rounds)
    end_to_end(spark, rounds)
    spark.stop()
    print()
    for figure in figures:
        print(figure)
    print(f"\nplot: {plot(figures, 'microbatch')}")


def turns(
    rounds: int, *ways: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> Iterator[tuple[float, ...]]:
    """What each way took in each round."""
    for number in range(-WARM_UP, rounds):
        taken = [0.0] * len(ways)
        for place in range(len(ways))[:: -1 if number % 2 else 1]:
            gc.collect()
            began = clock()
            ways[place]()
            taken[place] = clock() - began
        if number >= 0:
            yield tuple(taken)


# Messages into Arrow


def response() -> bytes:
    """What the server sends: messages of 100 bytes with one attribute."""
    made = schema.PullResponse()
    for number in range(PER_RESPONSE):
        received = made.received_messages.add(ack_id=f"{number:0184}")
        received.message.data = b"x" * 100
        received.message.message_id = f"{10**16 + number}"
        received.message.attributes["key"] = "value"
        received.message.publish_time.FromDatetime(datetime.now(UTC))
    return made.SerializeToString()


def to_arrow(rounds: int) -> Iterator[Figure]:
    """Responses into record batches: by columns, and by Python lists."""
    responses, codec = [response()] * RESPONSES, ArrowCodec()
    times = 20

    def ours() -> None:
        for _ in range(times):
            schema.RawResponses.FromString(b"".join(responses))  # as a subscription counts them
            codec.decode(responses)

    def lists() -> None:
        for _ in range(times):
            by_lists(responses)

    assert codec.decode(responses)[0].equals(by_lists(responses))
    taken = [*turns(rounds, ours, lists, clock=time.process_time)]
    count = times * RESPONSES * PER_RESPONSE
    for name, place in (("ours", 0), ("Python lists", 1)):
        cost = median(each[place] for each in taken) / count
        print(f"{name:<32} {cost * 1e9:>8,.0f} ns CPU a message, wire to Arrow")
    values = [theirs / mine for mine, theirs in taken]
    yield Figure("messages into Arrow: Python lists / ours, CPU", values, 8, "x")


def by_lists(responses: Sequence[bytes]) -> pa.RecordBatch:
    """The same by a list for each column."""
    columns: list[list[Any]] = [[] for _ in SCHEMA]
    for data in responses:
        for received in schema.PullResponse.FromString(data).received_messages:
            message = received.message
            row = (
                message.message_id,
                message.publish_time.ToDatetime(UTC),
                message.data,
                [*message.attributes.items()],
                message.ordering_key,
                received.delivery_attempt,
            )
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# Arrow into DataFrames


def to_dataframe(spark: SparkSession, rounds: int) -> Iterator[Figure]:
    """A DataFrame of rows, made and read: ours, and `createDataFrame` with Spark's settings."""
    codec, one = ArrowCodec(), response()
    cores = spark.sparkContext.defaultParallelism
    print(f"\nSpark {spark.version}, {cores} cores; seconds to make a DataFrame and read it")
    print(f"{'rows':>10} {'ours':>8} {'Arrow':>8} {'tuples':>8} {'no rows':>8}   Arrow / ours")
    for rows in SIZES:
        records = columns_of(codec.decode([one] * (rows // PER_RESPONSE))[0])
        ways = [*ways_to_make_it(spark, records)]
        ways.append(lambda: spark.range(0, cores, numPartitions=cores))  # what any job costs
        taken = [*turns(rounds, *(partial(made_and_read, way) for way in ways))]
        medians = [median(each[place] for each in taken) for place in range(len(ways))]
        ratios = [[each[place] / each[0] for each in taken] for place in (1, 2)]
        low, high = min(ratios[0]), max(ratios[0])
        print(
            f"{rows:>10,}",
            *(f"{seconds:>8.3f}" for seconds in medians),
            f"  {median(ratios[0]):.2f}x ({low:.2f} to {high:.2f})",
        )
    size = f"{SIZES[-1]:,} rows"
    yield Figure(f"a DataFrame of {size}: createDataFrame of Arrow / ours", ratios[0], 4, "x")
    yield Figure(f"a DataFrame of {size}: createDataFrame of tuples / ours", ratios[1], 4, "x")


def ways_to_make_it(
    spark: SparkSession, records: pa.RecordBatch
) -> Iterator[Callable[[], DataFrame]]:
    """Ours; then `createDataFrame` of the same rows, as an Arrow table and as Python tuples."""
    table = pa.Table.from_batches([records])
    tuples = [
        tuple(dict(value) if isinstance(value, list) else value for value in row.values())
        for row in records.to_pylist()
    ]
    like = dataframe(spark, records).schema
    yield lambda: dataframe(spark, records)
    yield lambda: spark.createDataFrame(table)
    yield lambda: spark.createDataFrame(tuples, like)


def made_and_read(make: Callable[[], DataFrame]) -> None:
    """Have Spark read every row of a DataFrame."""
    make().write.format("noop").mode("overwrite").save()


# All the way


def end_to_end(spark: SparkSession, rounds: int) -> None:
    """From the emulator to Parquet files; and how much of the time is Spark's."""
    rates, shares = [], []
    with running(OURS) as server, Load(server.address) as load:
        for number in range(-1, rounds):
            topic, subscription = load.create()
            load.publish(topic, END_TO_END)
            with tempfile.TemporaryDirectory() as folder:
                seconds, in_spark = asyncio.run(drain(spark, server, subscription, folder))
                written = pq.read_table(folder, columns=["message_id"]).num_rows
            if written != END_TO_END:
                raise AssertionError(f"{written:,} rows are in the files, not {END_TO_END:,}")
            load.delete(topic, subscription)
            if number >= 0:
                rates.append(END_TO_END / seconds)
                shares.append(in_spark / seconds)
    print(
        f"\n{END_TO_END:,} messages from the emulator to Parquet: {median(rates):,.0f} a second "
        f"({min(rates):,.0f} to {max(rates):,.0f}); Spark has a batch for {median(shares):.0%} of "
        f"the time ({min(shares):.0%} to {max(shares):.0%})"
    )


async def drain(
    spark: SparkSession, server: Server, subscription: str, folder: str
) -> tuple[float, float]:
    """Write all there is; returns the seconds that took, and those in which Spark had a batch."""
    in_spark, acked = 0.0, 0
    done = asyncio.Event()

    def handle(df: DataFrame, _: MicroBatch) -> None:
        df.write.mode("append").parquet(folder)

    def note(report: BatchReport) -> None:
        nonlocal in_spark, acked
        in_spark += report.seconds
        acked += report.acked
        if acked >= END_TO_END:
            done.set()

    began = time.perf_counter()
    async with SubscriberClient("bench", endpoint=f"http://{server.address}") as client:
        microbatches(spark, client, subscription, handle, on_batch=note)
        async with asyncio.timeout(120):
            await done.wait()
        return time.perf_counter() - began, in_spark


if __name__ == "__main__":
    main()

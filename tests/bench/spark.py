"""The source side by side with Spark's own `rate` source, and with one that yields tuples.

    nox -s bench -- spark [--rounds 7]

Each turn is a query of its own, which reads batches of 500,000 rows into the sink that writes
nothing; its first batch is not counted. What our source reads is in its log already, messages of
100 bytes with an attribute, so that all three are measured at what a query does with a source.
Turns are interleaved, every second round in reverse order, and ratios are of turns of one round.
The JVM is warm: a round is run first and not counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark import PubSubDataSource, session
from pubsub_aio.spark.streaming import segments
from pubsub_aio.spark.streaming.keys import keys_of
from pubsub_aio.spark.streaming.layout import segment_name
from pubsub_aio.spark.streaming.receiver import SEGMENT_ROWS
from pubsub_aio.spark.streaming.stores import store_at
from pubsub_aio.spark.streaming.wal import Wal
from tests.bench.report import Figure, plot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

ROWS = 500_000
BATCHES = 5
"""Of a turn; the first is not counted."""
SMALL_BATCHES = 25
LOOK_AGAIN = 0.02
TIMEOUT = 120.0
SUBSCRIPTION = "lake"


def main() -> None:
    """Measure everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved turns of each source")
    rounds = parser.parse_args().rounds
    spark = session()
    spark.sparkContext.setLogLevel("OFF")  # it tells at length that queries were stopped
    for source in (PubSubDataSource, Tuples):
        spark.dataSource.register(source)
    with EmulatorThread() as emulator, tempfile.TemporaryDirectory() as folder:
        emulator.create_subscription(SUBSCRIPTION, "orders")
        options = {
            "subscription": SUBSCRIPTION,
            "project": emulator.project,
            "endpoint": f"http://{emulator.address}",
        }
        bench = Bench(spark, Path(folder), options)
        figures = [*bench.rows(rounds), *bench.fixed_cost(rounds)]
    spark.stop()
    print()
    for figure in figures:
        print(figure)
    print(f"\nplot: {plot(figures, 'spark')}")


class Bench:
    """Queries over the same rows, by several sources."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._folder = folder
        self._options = options
        self._turns = 0

    def rows(self, rounds: int) -> Iterator[Figure]:
        """Full batches."""
        log = self._filled("full", ROWS * BATCHES, SEGMENT_ROWS)
        ways = {
            "rate": lambda: self._rate(ROWS, BATCHES),
            "ours": lambda: self._ours(log, ROWS, BATCHES),
            "tuples": lambda: self._tuples(ROWS, BATCHES),
        }
        taken = turns(rounds, ways)
        for name, seconds in taken.items():
            print(
                f"{name:<8} {ROWS / median(seconds):>12,.0f} rows a second, batches of {ROWS:,}: "
                f"{median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"
            )
        ratios = {name: divided(taken[name], taken["ours"]) for name in ("rate", "tuples")}
        yield Figure("rows a second: ours / Spark's rate source", ratios["rate"], 0.4, "x")
        yield Figure("rows a second: ours / a source of tuples", ratios["tuples"], 2.5, "x")

    def fixed_cost(self, rounds: int) -> Iterator[Figure]:
        """Batches of one row, the smallest that the rate source has, and of none: of repeats."""
        single = self._filled("single", SMALL_BATCHES, 1)
        empty = self._filled("empty", SMALL_BATCHES, 1, repeats=True)
        ways = {
            "rate, a row": lambda: self._rate(1, SMALL_BATCHES),
            "ours, a row": lambda: self._ours(single, 1, SMALL_BATCHES),
            "ours, empty": lambda: self._ours(empty, 1, SMALL_BATCHES, maxBytesPerTrigger="1"),
        }
        taken = turns(rounds, ways)
        for name, seconds in taken.items():
            print(
                f"{name:<12} {median(seconds):>8.3f} s a batch "
                f"({min(seconds):.3f} to {max(seconds):.3f})"
            )
        for name, told in (("ours, empty", "an empty batch"), ("ours, a row", "a batch of a row")):
            ratios = divided(taken[name], taken["rate, a row"])
            title = f"cost of {told}: ours / Spark's rate source"
            yield Figure(title, ratios, 1.5, "x", at_least=False)

    # Sources

    def _rate(self, rows: int, batches: int) -> float:
        reader = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        return self._run(reader, batches)

    def _tuples(self, rows: int, batches: int) -> float:
        return self._run(self._spark.readStream.format("tuples").option("rows", rows), batches)

    def _ours(self, log: Path, rows: int, batches: int, **options: str) -> float:
        self._turns += 1
        copy = self._folder / f"wal-{self._turns}"
        for file in log.rglob("*.*"):
            to = copy / file.relative_to(log)
            to.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, to)
        reader = (
            self._spark.readStream.format("pubsub")
            .options(**self._options, **options)
            .option("walLocation", str(copy))
            .option("maxRowsPerTrigger", rows)
        )
        return self._run(reader, batches)

    def _run(self, reader: DataStreamReader, batches: int) -> float:
        """The median of seconds that a batch takes."""
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                reader.load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .start()
            )
            until = time.monotonic() + TIMEOUT
            while len(done := progress(query)) < batches:
                if query.exception() or time.monotonic() > until:
                    raise RuntimeError(f"{len(done)} batches") from query.exception()
                time.sleep(LOOK_AGAIN)
            query.stop()
        taken = [float(each["durationMs"]["triggerExecution"]) for each in done[1:batches]]
        return median(taken) / 1000

    def _filled(self, name: str, rows: int, each: int, *, repeats: bool = False) -> Path:
        """A log with rows that wait, in segments of so many; all may have the same."""
        folder = self._folder / name
        store = store_at(str(folder))
        wal = Wal(store, window=1.0, max_ids=1)
        wal.open(f"projects/{self._options['project']}/subscriptions/{SUBSCRIPTION}")
        for number, first in enumerate(range(0, rows, each)):
            records = messages(0 if repeats else first, min(each, rows - first))
            path = segment_name(number, "bench")
            segments.write(store, path, wal.id, records, keys_of(records), 220 * records.num_rows)
        return folder


def messages(first: int, count: int) -> pa.RecordBatch:
    """Messages of 100 bytes with one attribute."""
    numbers = range(10**15 + first, 10**15 + first + count)
    columns = [
        [str(number) for number in numbers],
        [b"x" * 100] * count,
        [[("key", "value")]] * count,
        [datetime.now(UTC)] * count,
        [""] * count,
        [None] * count,
    ]
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, segments.SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=segments.SCHEMA)


def progress(query: Any) -> list[Any]:
    """What Spark tells of the batches that it ran."""
    return [each for each in query.recentProgress if "addBatch" in each["durationMs"]]


def turns(rounds: int, ways: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each way took in each round."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        for name in [*ways][:: -1 if number % 2 else 1]:
            seconds = ways[name]()
            if number >= 0:
                taken[name].append(seconds)
    return taken


def divided(some: list[float], others: list[float]) -> list[float]:
    """Ratios of turns of one round."""
    return [one / other for one, other in zip(some, others, strict=True)]


class Tuples(DataSource):
    """The same rows as Python tuples, as most sources written in Python have them."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return (
            "message_id STRING, data BINARY, attributes MAP<STRING, STRING>, "
            "publish_time TIMESTAMP, ordering_key STRING, delivery_attempt INT, sequence BIGINT"
        )

    def streamReader(self, schema: object) -> TuplesReader:  # noqa: ARG002, N802 - Spark's own
        return TuplesReader(int(self.options["rows"]))


class TuplesReader(DataSourceStreamReader):
    """Has a batch of so many rows whenever it is asked."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's own name
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's own
        return {"row": start["row"] + self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        cuts = [int(cut) for cut in np.linspace(start["row"], end["row"], 3)]
        return [InputPartition(range(*pair)) for pair in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        now = datetime.now(UTC)
        for number in partition.value:
            yield (
                str(10**15 + number),
                b"x" * 100,
                {"key": "value"},
                now,
                "",
                None,
                number,
            )


if __name__ == "__main__":
    main()

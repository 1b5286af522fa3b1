"""Micro-batches over Spark Connect: a session that has neither a JVM nor a context here."""

from __future__ import annotations

import asyncio
import json

from pubsub_aio.emulator import Emulator
from tests.spark.wire import Lake, publish
from tests.subscriber_wire.conftest import Program

WITHIN = 110.0
COUNT = 500

PROGRAM = """
import asyncio, json, os, sys

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession

quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
spark = SparkSession.builder.config(map=quiet).remote("local[2]").getOrCreate()
from pubsub_aio import SubscriberClient
from pubsub_aio.spark import microbatches

ended, outcomes = [], []

def handle(df, batch):
    if not ended:
        try:
            spark.range(10**15).selectExpr("sum(id % 7)").collect()  # days
        except Exception as error:
            ended.append(type(error).__name__)
            raise
    df.write.mode("append").parquet({folder!r})

async def main():
    done = asyncio.Event()

    def note(report):
        outcomes.append(report.outcome)
        if report.outcome == "acked":
            done.set()

    async with SubscriberClient() as client:
        microbatches(spark, client, "worker", handle, on_batch=note, max_batch_duration=8)
        await done.wait()

asyncio.run(main())
print(json.dumps([type(spark).__module__, outcomes, len(ended)]), flush=True)
spark.stop()
"""


async def test_batches_go_through_and_are_cancelled_over_spark_connect(
    emulator: Emulator, lake: Lake
) -> None:
    """The first takes too long: its job ends, and its messages come again."""
    ids = publish(emulator, COUNT)
    source = PROGRAM.replace("{folder!r}", repr(str(lake.folder)))
    where = {"address": emulator.address, "project": emulator.project}
    with Program(source, **where, warnings="default") as program:
        code, said = await asyncio.to_thread(program.ending, timeout=WITHIN)

    assert code == 0, said
    module, (*before, last), ended = json.loads(program.lines[-1])
    assert "connect" in module
    assert ({*before}, last, ended) == ({"timed out"}, "acked", 1)
    assert lake.ids == dict.fromkeys(ids, 1)

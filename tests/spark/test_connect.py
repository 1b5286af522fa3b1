"""Micro-batches over Spark Connect: a session that has neither a JVM nor a context here."""

from __future__ import annotations

import asyncio
import json

from pubsub_aio.emulator import Emulator
from tests.spark.wire import TOPIC, Lake
from tests.subscriber_wire.conftest import Program

WITHIN = 200.0
COUNT = 500

PROGRAM = """
import asyncio, json, os, sys

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession

quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
spark = SparkSession.builder.config(map=quiet).remote("local[2]").getOrCreate()
from pubsub_aio import ConfigError, SparkGoneError, SubscriberClient
from pubsub_aio.spark import microbatches

ended, outcomes, plans = [], [], []
kept_above = "spark.sql.session.localRelationCacheThreshold"
before = spark.conf.get(kept_above)

def handle(df, batch):
    if not ended:
        try:
            spark.range(10**15).selectExpr("sum(id % 7)").collect()  # days
        except Exception as error:
            ended.append(type(error).__name__)
            raise
    plan = df._plan
    while plan._child is not None:
        plan = plan._child
    plans.append(type(plan).__name__)
    df.write.mode("append").parquet({folder!r})

def stop(df, batch):
    spark.stop()
    raise ValueError("Spark was stopped")

async def main():
    done = asyncio.Event()

    def note(report):
        outcomes.append(report.outcome)
        if report.outcome == "acked":
            done.set()

    async with SubscriberClient() as client:
        microbatches(spark, client, "worker", handle, on_batch=note, max_batch_duration=8)
        await done.wait()
        is_set_back = spark.conf.get(kept_above) == before
        try:
            microbatches(spark, client, "worker", stop, max_bytes=2**27)
        except ConfigError as error:
            refused = str(error)
        try:
            await microbatches(spark, client, "other", stop)
        except SparkGoneError as error:
            gone = str(error)
    found = dict(outcomes=outcomes, ended=len(ended), plans=plans, is_set_back=is_set_back)
    print(json.dumps(found | dict(module=type(spark).__module__, refused=refused, gone=gone)))

asyncio.run(main())
"""


async def test_batches_go_through_and_are_cancelled_over_spark_connect(
    emulator: Emulator, lake: Lake
) -> None:
    """The first takes too long: its job ends, and its messages come again.

    What newer versions keep on the server until the session ends is sent with the plan. Then the
    session is stopped, and that ends the subscription.
    """
    emulator.create_subscription("other", TOPIC)
    ids = [emulator.publish(TOPIC, b"x" * 10_000) for _ in range(COUNT)]
    source = PROGRAM.replace("{folder!r}", repr(str(lake.folder)))
    where = {"address": emulator.address, "project": emulator.project}
    with Program(source, **where, warnings="default") as program:
        code, said = await asyncio.to_thread(program.ending, timeout=WITHIN)

    assert code == 0, said
    found = json.loads(program.lines[-1])
    assert "connect" in found["module"]
    *before, last = found["outcomes"]
    assert ({*before}, last, found["ended"]) == ({"timed out"}, "acked", 1)
    assert lake.ids == dict.fromkeys(ids, 1)
    assert {*found["plans"]} == {"LocalRelation"}
    assert found["is_set_back"]
    assert found["refused"].startswith("max_bytes: 134,217,728 is more than Spark Connect takes")
    assert found["gone"].startswith("Spark was stopped")

"""From Pub/Sub to Parquet on this machine: publish, subscribe, micro-batches, Spark, files.

One batch fails on purpose, after it was written and before it was acknowledged, as if the machine
had gone down there. Then the same by Structured Streaming, in a process that is killed in the
middle and started again. Run it with `nox -s demo`; it ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from google.cloud import pubsub_v1

from pubsub_aio import SubscriberClient
from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark import BatchReport, MicroBatch, decode_json, microbatches, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 50_000
BATCHES = 3
"""Of the streaming query, before it is killed."""
ITEMS = ("bread", "soup", "tea")
ORDER = "number INT, item STRING, price DOUBLE"


def main() -> None:
    """Send orders all the way, and say what became of them."""
    began = time.perf_counter()
    spark = session()
    print(f"Spark {spark.version} started in {time.perf_counter() - began:.1f} s")
    with EmulatorThread() as emulator:
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        os.environ["GOOGLE_CLOUD_PROJECT"] = emulator.project
        emulator.create_subscription("lake", "orders")
        print(f"Pub/Sub emulator on {emulator.address}")
        published = publish(f"projects/{emulator.project}/topics/orders")
        print(f"published {len(published):,} orders with google-cloud-pubsub")

        folder = tempfile.mkdtemp(prefix="pubsub-aio-demo-")
        seconds = asyncio.run(ingest(spark, folder, len(published)))
        summarise(spark, folder, published, seconds)
        stream_and_kill(spark, publish(f"projects/{emulator.project}/topics/orders"))
        left = emulator.backlog("lake")
    spark.stop()
    if left:
        raise SystemExit(f"{left} messages were left behind")


def publish(topic: str) -> set[str]:
    """Publish orders with Google's client; returns their ids."""
    publisher = pubsub_v1.PublisherClient()
    futures = [
        publisher.publish(
            topic,
            b'{"number": %d, "item": "%s", "price": %d.5}'
            % (number, ITEMS[number % 3].encode(), number % 7),
        )
        for number in range(MESSAGES)
    ]
    ids = {future.result(timeout=60) for future in futures}
    publisher.stop()
    return ids


async def ingest(spark: SparkSession, folder: str, count: int) -> float:
    """Append all there is to Parquet files; returns the seconds it took."""
    acked = 0
    failed, done = threading.Event(), asyncio.Event()

    def handle(df: DataFrame, _: MicroBatch) -> None:
        decode_json(df, ORDER).write.mode("append").parquet(folder)
        if not failed.is_set():
            failed.set()
            raise ConnectionError("the machine went down, so to say")

    def note(report: BatchReport) -> None:
        nonlocal acked
        acked += report.acked
        print(f"batch of {report.rows:>6,} messages {report.outcome:<6} in {report.seconds:.1f} s")
        if acked >= count:
            done.set()

    logging.getLogger("pubsub_aio.spark").setLevel(logging.CRITICAL)  # the failure is on purpose
    began = time.perf_counter()
    async with SubscriberClient() as client, asyncio.timeout(120):
        microbatches(spark, client, "lake", handle, max_messages=10_000, on_batch=note)
        await done.wait()
        return time.perf_counter() - began


def summarise(spark: SparkSession, folder: str, published: set[str], seconds: float) -> None:
    """Compare what is in the files with what was published."""
    rows = spark.read.parquet(folder)
    written = [row.message_id for row in rows.select("message_id").collect()]
    once = rows.dropDuplicates(["message_id"])
    lost = len(published - {*written})
    duplicated = len(written) - len({*written})
    print("\nOrders in the files, each counted once")
    once.groupBy("item").agg({"number": "count", "price": "sum"}).orderBy("item").show()
    print("Summary")
    print(f"  published   {len(published):>8,}")
    print(f"  rows        {len(written):>8,}   {len(written) / seconds:,.0f} a second")
    print(f"  lost        {lost:>8,}")
    print(f"  duplicated  {duplicated:>8,}   a batch that was written and then failed came again")
    print(f"  once each   {once.count():>8,}   by dropDuplicates(['message_id'])")
    print(f"  files       {folder}")
    if lost:
        raise SystemExit("the demo lost messages")


def stream_and_kill(spark: SparkSession, published: set[str]) -> None:
    """Have another process append the orders, kill it in the middle, and start it again."""
    folder = tempfile.mkdtemp(prefix="pubsub-aio-demo-")
    print(f"\npublished {len(published):,} orders more, for a streaming query in another process")
    line = [sys.executable, str(Path(__file__).with_name("streaming.py")), folder]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True) as query:  # noqa: S603 - ours
        until = time.monotonic() + 120
        try:
            while len([*Path(folder, "checkpoint", "commits").glob("[0-9]*")]) < BATCHES:
                if query.poll() is not None or time.monotonic() > until:
                    raise SystemExit("the streaming query does not run")
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(query.pid, signal.SIGKILL)
    before = spark.read.parquet(f"{folder}/orders").count()
    print(f"killed with SIGKILL, {before:,} rows in the files; started again")
    subprocess.run([*line, "--until-empty"], stderr=subprocess.DEVNULL, check=True)  # noqa: S603
    rows = spark.read.parquet(f"{folder}/orders").select("message_id").collect()
    written = [row.message_id for row in rows]
    print("Summary")
    print(f"  published   {len(published):>8,}")
    print(f"  rows        {len(written):>8,}")
    print(f"  lost        {len(published - {*written}):>8,}")
    print(
        f"  duplicated  {len(written) - len({*written}):>8,}   exactly once, without deduplication"
    )
    print(f"  files       {folder}/orders")
    if sorted(written) != sorted(published):
        raise SystemExit("the streaming query lost or doubled messages")


if __name__ == "__main__":
    main()

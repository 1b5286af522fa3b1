"""Nothing is lost: whatever the server, Spark, the function or the machine does."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import pytest

from pubsub_aio import SubscriberClient
from pubsub_aio.emulator import Emulator
from pubsub_aio.spark import MicroBatch, microbatches
from tests.spark.wire import WITHIN, WORKER, Lake, publish, until
from tests.subscriber_wire.conftest import Program

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 1_500


# The server and the network


@asynccontextmanager
async def trouble(emulator: Emulator, chance: random.Random) -> AsyncIterator[None]:
    """Cut streams, deliver twice and lose acks, now and then."""

    over = asyncio.Event()

    async def make() -> None:
        while not over.is_set():
            emulator.faults.cut_streams(WORKER)
            emulator.faults.duplicate(WORKER, times=chance.randint(1, 100))
            emulator.faults.lose_acks(WORKER, times=chance.randint(1, 100))
            emulator.faults.fail("Acknowledge", "UNAVAILABLE", applied=chance.random() < 0.5)
            seen = emulator.activity()
            while emulator.activity() < seen + 50 and not over.is_set():
                await emulator.activity_after(emulator.activity())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(make())
        yield
        over.set()
    emulator.faults.clear()


async def test_every_message_is_in_the_sink_whatever_the_server_does(
    spark: SparkSession, emulator: Emulator, either_client: SubscriberClient, lake: Lake
) -> None:
    """H1 H2 H10: at least once in a plain sink, while streams are cut, messages come twice, acks
    are lost, and Spark is slow and fails; and exactly once in one that dedupes."""
    chance = random.Random(7)  # noqa: S311 - it guards nothing
    deduped = Lake(lake.folder.with_name("deduped"))
    slow = threading.Event()

    def handle(df: DataFrame, batch: MicroBatch) -> None:
        slow.wait(0.2)
        lake.append(df, batch)
        new = df.dropDuplicates(["message_id"])
        if deduped.batches:
            there = spark.read.parquet(str(deduped.folder)).select("message_id")
            new = new.join(there, "message_id", "left_anti")
        deduped.append(new, batch)
        if chance.random() < 0.3:
            raise ValueError("it fails now and then, when all is written")

    ids = []
    live = microbatches(
        spark,
        either_client,
        WORKER,
        handle,
        max_messages=200,
        max_latency=0.1,
        on_batch=lake.reports.append,
    )
    await live.ready()
    async with trouble(emulator, chance):
        for start in range(0, COUNT, 100):
            ids += publish(emulator, 100, start=start)
            await asyncio.sleep(0)
        await until(lambda: sum(report.acked for report in lake.reports) >= COUNT / 2)
    await until(lambda: emulator.backlog(WORKER) == 0)

    assert not live.done()
    assert lake.ids.keys() == set(ids)
    assert lake.ids.total() > COUNT
    assert "failed" in lake.outcomes
    assert deduped.ids == dict.fromkeys(ids, 1)


# The driver


DRIVER = """
import os, signal, sys, threading
from pubsub_aio import SubscriberClient
from pubsub_aio.spark import microbatches, session

folder, ends = {folder!r}, {ends!r}
spark = session(config={{"spark.sql.shuffle.partitions": 1}})
handled = 0

def handle(df, batch):
    global handled
    handled += 1
    if ends == "before" and handled == 2:
        print("about to write", flush=True)
        threading.Event().wait()
    df.write.mode("append").parquet(folder)
    if ends == "after" and handled == 2:
        print("written", flush=True)
        threading.Event().wait()
    if ends == "stopped":
        spark.stop()
        raise ValueError("Spark was stopped")
    if ends == "killed":
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        df.count()
    if ends == "exit":
        sys.exit(3)
    print("handled", len(batch), flush=True)

client = SubscriberClient()
live = microbatches(spark, client, "worker", handle, max_messages=500, max_batch_duration=60)
client.run_forever(live)
print("stopped gracefully", flush=True)
"""


@contextmanager
def driver(emulator: Emulator, lake: Lake, *, ends: str) -> Iterator[Program]:
    source = DRIVER.format(folder=str(lake.folder), ends=ends)
    # Python's warnings are not ours: PySpark leaves sockets open.
    with Program(
        source, address=emulator.address, project=emulator.project, warnings="default"
    ) as it:
        yield it


async def says(program: Program, line: str) -> None:
    await until(lambda: any(one.startswith(line) for one in program.lines))


async def test_a_driver_that_is_killed_loses_nothing(emulator: Emulator, lake: Lake) -> None:
    """H1 H10: before it wrote, and after it wrote and before it acked; then it stops gracefully."""
    ids = publish(emulator, COUNT)
    for ends, line in (("before", "about to write"), ("after", "written")):
        with driver(emulator, lake, ends=ends) as program:
            await says(program, line)
            program.send(signal.SIGKILL)
            await asyncio.to_thread(program.ending, timeout=WITHIN)
        assert emulator.backlog(WORKER) > 0
    with driver(emulator, lake, ends="never") as program:
        await until(lambda: emulator.backlog(WORKER) == 0)
        program.send(signal.SIGTERM)
        code, _ = await asyncio.to_thread(program.ending, timeout=WITHIN)

    assert (code, program.lines[-1]) == (0, "stopped gracefully")
    assert lake.ids.keys() == set(ids)
    assert lake.ids.total() > COUNT  # what was written and not acked came again


@pytest.mark.parametrize("ends", ["stopped", "killed"])
async def test_when_spark_is_gone_the_driver_ends_and_says_why(
    emulator: Emulator, lake: Lake, ends: str
) -> None:
    """Whoever watches it can start another; what it held goes back at once."""
    publish(emulator, 10)
    with driver(emulator, lake, ends=ends) as program:
        code, said = await asyncio.to_thread(program.ending, timeout=WITHIN)

    assert code == 1
    assert "SparkGoneError: Spark was stopped, or its JVM has died" in said
    assert "stopped gracefully" not in program.lines
    assert (emulator.backlog(WORKER), emulator.outstanding(WORKER)) == (10, 0)


async def test_a_function_can_end_the_process(emulator: Emulator, lake: Lake) -> None:
    """That is no failure of its batch to be tried again; what is not acked comes again."""
    publish(emulator, 10)
    with driver(emulator, lake, ends="exit") as program:
        code, said = await asyncio.to_thread(program.ending, timeout=WITHIN)

    assert code == 3
    assert "Traceback" not in said
    assert lake.ids.total() == emulator.backlog(WORKER) == 10

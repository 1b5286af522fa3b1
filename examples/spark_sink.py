"""A sink in which each message is once: by its message_id, and without what cannot be handled.

Some are delivered twice here, and one is no order at all. The emulator stands in for the service.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pubsub_aio import SubscriberClient
from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark import MicroBatch, decode_json, microbatches, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS = 200


async def main() -> None:
    """Fill the lake, and look into it."""
    emulator.faults.duplicate("lake", times=50)
    for number in range(ORDERS):
        emulator.publish("orders", b'{"number": %d}' % number)
    emulator.publish("orders", b"not an order")
    async with SubscriberClient() as client, asyncio.timeout(100):
        microbatches(
            spark,
            client,
            "lake",
            append_new,
            bisect=True,
            dead_letter_topic="refused",
        )
        while emulator.backlog("lake"):  # noqa: ASYNC110 - the emulator has a thread of its own
            await asyncio.sleep(0.1)


def append_new(df: DataFrame, _: MicroBatch) -> None:
    """Append the orders that are not there yet."""
    orders = decode_json(df.dropDuplicates(["message_id"]), "number INT")
    if orders.where("undecoded IS NOT NULL").count():
        raise ValueError("there is something that is no order")
    if any(lake.glob("*.parquet")):
        there = spark.read.parquet(str(lake)).select("message_id")
        orders = orders.join(there, "message_id", "left_anti")
    orders.drop("undecoded").write.mode("append").parquet(str(lake))


if __name__ == "__main__":
    logging.getLogger("pubsub_aio.spark").setLevel(logging.CRITICAL)  # it fails on purpose
    lake = Path(tempfile.mkdtemp(prefix="pubsub-aio-lake-"))
    spark = session()
    with EmulatorThread() as emulator:
        os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
        os.environ["GOOGLE_CLOUD_PROJECT"] = emulator.project
        emulator.create_topic("refused")
        emulator.create_subscription("lake", "orders")
        asyncio.run(main())
        rows = spark.read.parquet(str(lake))
        once = rows.count() == rows.dropDuplicates(["number"]).count()
        print(f"rows in the lake: {rows.count()}, each {'once' if once else 'more than once'}")
        refused = [message.data for message in emulator.messages("refused")]
        print(f"refused: {len(refused)}")
        print(*refused)
    spark.stop()

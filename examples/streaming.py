"""Orders of a subscription in Parquet files, each exactly once, by Structured Streaming.

    python examples/streaming.py [FOLDER] [--until-empty]

Kill it whenever you like and start it again with the same folder: no order is lost, and none is
there twice. Without PUBSUB_EMULATOR_HOST it has an emulator of its own, with some orders.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark import PubSubDataSource, decode_json, session

ORDER = "number INT, item STRING, price DOUBLE"
ORDERS = 1_000


def stream(folder: Path, *, until_empty: bool) -> None:
    """Append orders to files, until it is killed or nothing is left."""
    spark = session("orders")
    spark.dataSource.register(PubSubDataSource)
    source = (
        spark.readStream.format("pubsub")
        .option("subscription", "lake")
        .option("walLocation", f"{folder}/wal")  # what came, until Spark is done with it
        .option("maxRowsPerTrigger", 5_000)
    )
    if until_empty:
        source = source.option("availableNowIdle", "3s")
    sink = (
        decode_json(source.load(), ORDER)
        .writeStream.format("parquet")
        .option("path", f"{folder}/orders")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    query = (sink.trigger(availableNow=True) if until_empty else sink).start()
    query.awaitTermination()
    print(f"orders in the files: {spark.read.parquet(f'{folder}/orders').count():,}")
    spark.stop()


def main() -> None:
    """Run the query, with an emulator if there is none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--until-empty", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        alone = "PUBSUB_EMULATOR_HOST" not in os.environ
        if alone:
            emulator = stack.enter_context(EmulatorThread())
            os.environ["PUBSUB_EMULATOR_HOST"] = emulator.address
            os.environ["GOOGLE_CLOUD_PROJECT"] = emulator.project
            emulator.create_subscription("lake", "orders")
            emulator.faults.duplicate("lake", times=100)  # which nobody will notice
            for number in range(ORDERS):
                emulator.publish("orders", b'{"number": %d, "item": "tea", "price": 2.5}' % number)
        folder = Path(given.folder or tempfile.mkdtemp(prefix="pubsub-aio-streaming-"))
        stream(folder.absolute(), until_empty=given.until_empty or alone)


if __name__ == "__main__":
    main()

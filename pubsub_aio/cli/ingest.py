"""`pubsub-aio ingest`: a subscription into files, by way of Spark."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from pubsub_aio.cli.output import say
from pubsub_aio.errors import MissingExtraError

if TYPE_CHECKING:
    from pubsub_aio.cli.sinks import Sink

_EXTRAS = "spark,cli"
_MAX_FAILURES = 3  # batches in a row, after which it is no use to go on


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser's; returns its own parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ingest",
        help="append the messages of a subscription to files",
        description="Append the messages of a subscription to files, with Spark on this machine, "
        "until it is interrupted. A message is acknowledged when it is written: each is there at "
        "least once, and can be told by its message_id. It goes to PUBSUB_EMULATOR_HOST if that "
        "is set.",
    )
    parser.add_argument("subscription", metavar="SUBSCRIPTION", help="name, full or short")
    parser.add_argument("--to", required=True, metavar="PATH", help="folder or URL to append to")
    formats = ("parquet", "json", "delta")
    parser.add_argument(
        "--format",
        choices=formats,
        default="parquet",
        help="parquet unless told otherwise; JSON has data in base64",
    )
    parser.add_argument(
        "--max-messages", type=_count, metavar="N", help="stop when so many are written"
    )
    parser.add_argument("--until-empty", action="store_true", help="stop when nothing comes")
    parser.add_argument(
        "--idle",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="with --until-empty: for how long nothing must come, %(default)g s unless told",
    )
    parser.add_argument(
        "--batch-messages",
        type=_count,
        default=200_000,
        metavar="N",
        help="most in a batch, %(default)s unless told",
    )
    parser.add_argument(
        "--batch-latency",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="how long a message waits for others, %(default)g s unless told",
    )
    parser.add_argument("--project", metavar="NAME", help="project of a short name")
    parser.add_argument(
        "--transport", choices=("grpc", "rest"), default="grpc", help="grpc unless told"
    )
    parser.add_argument("--master", default="local[*]", help="where Spark runs, here unless told")
    parser.set_defaults(run=_run)
    return parser


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages: give 1 or more")
    return count


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _run(options: argparse.Namespace) -> int:
    try:
        import rich as _  # noqa: F401 - before Spark starts, which takes a while

        from pubsub_aio.cli.sinks import sink_for
        from pubsub_aio.spark import session
    except ImportError as error:
        raise MissingExtraError("pubsub-aio ingest", _EXTRAS) from error
    if not options.verbose:
        logging.getLogger("pubsub_aio").setLevel(logging.CRITICAL)  # what matters is said here
    sink = sink_for(options.format, options.to)
    say("starting Spark ...")
    spark = session("pubsub-aio ingest", master=options.master)
    try:
        return asyncio.run(_ingest(options, spark, sink))
    finally:
        with contextlib.suppress(Exception):  # it may be gone
            spark.stop()


async def _ingest(options: argparse.Namespace, spark: Any, sink: Sink) -> int:
    from pubsub_aio.cli.progress import Tally, watch
    from pubsub_aio.spark import BatchReport, MicroBatch, dataframe, microbatches
    from pubsub_aio.subscriber.client import SubscriberClient

    tally = Tally(limit=options.max_messages)

    def handle(df: Any, batch: MicroBatch) -> None:
        room, records = tally.room, batch.records
        if room < len(batch):
            batch.give_back(range(room, len(batch)))
            records = records.slice(0, room)
            df = dataframe(spark, records)
        if records.num_rows:
            sink(df, records)

    def note(report: BatchReport) -> None:
        tally.add(report)
        if (tally.is_full or tally.failures >= _MAX_FAILURES) and not live.stopping:
            live.stop()

    async with SubscriberClient(options.project, transport=options.transport) as client:
        live = microbatches(
            spark,
            client,
            options.subscription,
            handle,
            max_messages=options.batch_messages,
            max_latency=options.batch_latency,
            on_batch=note,
        )
        idle = options.idle + options.batch_latency if options.until_empty else math.inf
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch(live, tally, idle=idle))
            error = await _ended(client.run_forever(live))
            watching.cancel()
    if not error or not tally.is_empty:
        print(*tally.summary(options.to, options.format), sep="\n")
    if tally.failures:
        failed = "a batch" if tally.failures == 1 else f"{tally.failures} batches in a row"
        say(f"pubsub-aio: stopped, {failed} failed: {tally.last_error}")
        return 1
    if error:
        say(f"pubsub-aio: {error}")
        return 1
    return 0


async def _ended(running: Any) -> Exception | None:
    """Wait for the end; returns what it ended with."""
    try:
        await running
    except Exception as error:  # noqa: BLE001 - it is said in a line
        return error
    return None

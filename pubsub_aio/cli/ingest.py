"""`pubsub-aio ingest`: a subscription into files, by way of Spark."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import threading
from typing import TYPE_CHECKING, Any

from pubsub_aio.cli.arguments import add_client, add_subscription, count, seconds
from pubsub_aio.cli.output import say
from pubsub_aio.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pubsub_aio.cli.sinks import Sink
    from pubsub_aio.subscriber.client import SubscriberClient

_EXTRAS = "spark,cli"
_IDLE = 5.0  # seconds
_MAX_FAILURES = 3  # batches in a row, after which it is no use to go on
_STOP_TIMEOUT = 5.0  # seconds


def add_to(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser's; returns its own parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ingest",
        help="append the messages of a subscription to files",
        description="Append the messages of a subscription to files, with Spark on this machine, "
        "until it is interrupted. A message is acknowledged when it is written: each is there at "
        "least once, and can be told by its message_id; with --streaming exactly once. It goes to "
        "PUBSUB_EMULATOR_HOST if that is set.",
    )
    add_subscription(parser)
    parser.add_argument(
        "--to", required=True, type=_path, metavar="PATH", help="folder or URL to append to"
    )
    formats = ("parquet", "json", "delta")
    parser.add_argument(
        "--format",
        choices=formats,
        default="parquet",
        help="parquet unless told otherwise; JSON has data in base64",
    )
    parser.add_argument(
        "--max-messages", type=count, metavar="N", help="stop when so many are written"
    )
    parser.add_argument("--until-empty", action="store_true", help="stop when nothing comes")
    parser.add_argument(
        "--idle",
        type=seconds,
        metavar="SECONDS",
        help=f"with --until-empty: for how long nothing must come, {_IDLE:g} s unless told",
    )
    parser.add_argument(
        "--batch-messages",
        type=count,
        default=200_000,
        metavar="N",
        help="most in a batch, %(default)s unless told",
    )
    parser.add_argument(
        "--batch-latency",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="how long a message waits for others, %(default)g s unless told",
    )
    _add_streaming(parser)
    add_client(parser)
    parser.add_argument("--master", default="local[*]", help="where Spark runs, here unless told")
    parser.set_defaults(run=lambda options: _run(parser, options))
    return parser


def _add_streaming(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "exactly once",
        "With --streaming, Spark's Structured Streaming writes each message exactly once, however "
        "often this is stopped, killed and run again. Messages are acknowledged when they are in "
        "a log, and written from there; so run it again with the same --checkpoint to have all "
        "that has come. One of these can write to a folder, and nobody else.",
    )
    group.add_argument("--streaming", action="store_true", help="write each message exactly once")
    group.add_argument(
        "--checkpoint",
        type=_path,
        metavar="DIR",
        help="folder or URL where Spark notes how far it has come: one for each --to",
    )
    group.add_argument(
        "--wal",
        type=_path,
        metavar="DIR",
        help="folder, or URL that begins with file:, gs: or s3:, for the log of what has come and "
        "is not written yet; wal in the checkpoint's folder unless told",
    )


def _path(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: give a folder or a URL")
    return text


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    client, idle = _checked(parser, options)
    try:
        import rich as _  # noqa: F401 - before Spark starts, which takes a while

        from pubsub_aio.cli.folders import refuse_streamed
        from pubsub_aio.cli.sinks import check_path, sink_for
        from pubsub_aio.spark import session
    except ImportError as error:
        raise MissingExtraError("pubsub-aio ingest", _EXTRAS) from error
    if options.streaming:
        from pubsub_aio.cli import streaming

        name = client.subscription_name(options.subscription)
        query = streaming.Query.of(options, name, _idle(options) if options.until_empty else None)
    else:
        sink = sink_for(options.format, options.to)
    say("starting Spark ...")
    spark = session("pubsub-aio ingest", master=options.master)
    try:
        if not options.verbose:  # what matters is said here
            logging.disable()
            spark.sparkContext.setLogLevel("OFF")
        check_path(spark, options.format, options.to)
        if options.streaming:
            return streaming.ingest(spark, query)
        if options.format != "delta":  # which Spark does not write
            refuse_streamed(spark, options.to)
        return asyncio.run(_ingest(options, client, spark, sink, idle=idle))
    finally:
        _stop(spark)


def _checked(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> tuple[SubscriberClient, float]:
    """A client, and after how many silent seconds to stop; arguments that cannot be end it here."""
    from pubsub_aio.subscriber.client import SubscriberClient

    if options.idle is not None and not options.until_empty:
        parser.error("--idle goes with --until-empty")
    if options.idle == 0:
        parser.error("--idle must be more than 0")
    _check_streaming(parser, options)
    try:
        client = SubscriberClient(options.project, transport=options.transport)
        client.subscription_name(options.subscription)
    except ConfigError as error:
        parser.error(str(error))
    idle = _idle(options) + options.batch_latency
    return client, idle if options.until_empty else math.inf


def _idle(options: argparse.Namespace) -> float:
    return _IDLE if options.idle is None else float(options.idle)


def _check_streaming(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse arguments that do not go together."""
    if not options.streaming:
        for name in ("checkpoint", "wal"):
            if getattr(options, name):
                parser.error(f"--{name} goes with --streaming")
        return
    if not options.checkpoint:
        parser.error("--streaming needs --checkpoint, where it notes how far it has come")
    if options.max_messages:
        parser.error(
            "--max-messages does not go with --streaming: messages are received ahead of those "
            "that are written, and would be in the log alone"
        )
    for name in ("checkpoint", "wal"):
        if (getattr(options, name) or "").rstrip("/") == options.to.rstrip("/"):
            parser.error(f"--{name} must be another folder than --to")


def _stop(spark: Any) -> None:
    """Stop Spark, unless it is gone, or does not answer any more."""
    stopping = threading.Thread(target=_stopped, args=[spark], daemon=True)
    stopping.start()
    stopping.join(_STOP_TIMEOUT)


def _stopped(spark: Any) -> None:
    with contextlib.suppress(Exception):
        spark.stop()


async def _ingest(
    options: argparse.Namespace, client: SubscriberClient, spark: Any, sink: Sink, *, idle: float
) -> int:
    from pubsub_aio.cli.progress import Tally, watch
    from pubsub_aio.spark import BatchReport, MicroBatch, dataframe, microbatches

    tally = Tally(limit=options.max_messages)
    by_itself = False

    def handle(df: Any, batch: MicroBatch) -> None:
        room, records = tally.room, batch.records
        if room < len(batch):
            batch.give_back(range(room, len(batch)))
            if not room:
                return
            records = records.slice(0, room)
            df = dataframe(spark, records)
        sink(df, records)

    def note(report: BatchReport) -> None:
        tally.add(report)
        if tally.is_full or tally.failures >= _MAX_FAILURES:
            stop()

    def stop() -> None:
        nonlocal by_itself
        if not live.stopping:  # a second time would be to hurry
            by_itself = True
            live.stop()

    async with client:
        live = microbatches(
            spark,
            client,
            options.subscription,
            handle,
            max_messages=options.batch_messages,
            max_latency=options.batch_latency,
            on_batch=note,
        )
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch(live, tally, idle=idle, stop=stop))
            error = await _ended(client.run_forever(live))
            watching.cancel()
    if not error or not tally.is_empty:
        print(*tally.summary(options.to, options.format), sep="\n")
    if error:
        say(f"pubsub-aio: {error}")
    elif by_itself and tally.failures:
        failed = "a batch" if tally.failures == 1 else f"{tally.failures} batches in a row"
        say(f"pubsub-aio: stopped, {failed} failed: {tally.last_error}")
    else:
        return 0
    return 1


async def _ended(running: Any) -> Exception | None:
    """Wait for the end; returns what it ended with."""
    try:
        await running
    except Exception as error:  # noqa: BLE001 - it is said in a line
        return error
    return None

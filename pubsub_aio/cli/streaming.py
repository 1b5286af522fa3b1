"""`pubsub-aio ingest --streaming`: a streaming query that writes each message exactly once."""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pubsub_aio.cli.folders import check_folders
from pubsub_aio.cli.output import reason, say
from pubsub_aio.errors import PubSubError, SparkGoneError
from pubsub_aio.spark import PubSubDataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pubsub_aio.cli.query_progress import QueryTally

_LOOK_EVERY = 0.2  # seconds
_FINISH_WITHIN = 10.0  # seconds that a batch has to end in when it is interrupted
_STOP_WITHIN = 20.0  # seconds, with that
_ARGUMENTS = {
    "walLocation": "--wal",
    "maxRowsPerTrigger": "--batch-messages",
    "availableNowIdle": "--idle",
}
"""What the source calls them, and what they are called here."""

_OURS = re.compile(r"^pubsub_aio\.errors\.\w+: ", re.MULTILINE)
_PYTHONS = re.compile(r"^(?=[\w.]+(?:Error|Exception): )", re.MULTILINE)
_AFTER_IT = re.compile(r"\s*(\n\n|\n\s+at |\nDuring handling|\nThe above|SQLSTATE: |\Z)")


class TalkingSource(PubSubDataSource):
    """The source, with all that it logs."""

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's own
        """What Spark reads with; this is called in the process that receives."""
        logging.basicConfig(format="%(levelname)s %(message)s")
        logging.getLogger("pubsub_aio").setLevel(logging.DEBUG)
        return super().streamReader(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is read, and where it goes."""

    subscription: str
    """Its full name."""
    to: str
    kind: str
    checkpoint: str
    wal: str
    transport: str
    batch_messages: int
    batch_latency: float
    idle: float | None
    """After how many silent seconds it ends; none for never."""
    verbose: bool

    @classmethod
    def of(cls, options: argparse.Namespace, subscription: str, idle: float | None) -> Query:
        """The query that the command's arguments ask for."""
        wal = options.wal or f"{options.checkpoint.rstrip('/')}/wal"
        return cls(
            subscription=subscription,
            to=options.to,
            kind=options.format,
            checkpoint=options.checkpoint,
            # The process that receives may be started in another folder.
            wal=wal if re.match(r"\w{2,}:", wal) else str(Path(wal).absolute()),
            transport=options.transport,
            batch_messages=options.batch_messages,
            batch_latency=options.batch_latency,
            idle=idle,
            verbose=options.verbose,
        )

    def start(self, spark: Any) -> Any:
        """Start it; returns Spark's handle."""
        spark.dataSource.register(TalkingSource if self.verbose else PubSubDataSource)
        options = {
            "subscription": self.subscription,
            "walLocation": self.wal,
            "transport": self.transport,
            "maxRowsPerTrigger": str(self.batch_messages),
        }
        if self.idle is not None:
            options["availableNowIdle"] = f"{self.idle:f}s"
        rows = spark.readStream.format("pubsub").options(**options).load()
        writer = rows.writeStream.format(self.kind).option("checkpointLocation", self.checkpoint)
        if self.idle is None:
            every = round(self.batch_latency * 1_000)
            writer = writer.trigger(processingTime=f"{every} milliseconds")
        else:
            writer = writer.trigger(availableNow=True)
        return writer.start(self.to)


def ingest(spark: Any, query: Query) -> int:
    """Run a query until it ends or is interrupted; returns the exit status."""
    from pubsub_aio.cli.live import live_line
    from pubsub_aio.cli.query_progress import QueryTally

    check_folders(spark, query.kind, to=query.to, checkpoint=query.checkpoint)
    # How often Spark tells what waits while there is nothing to do, in milliseconds.
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1000")
    if not query.verbose:
        _silence(spark)
    tally = QueryTally()
    run = _Run(spark, query, tally)
    with _interrupts() as interrupts, live_line() as show:
        run.start()
        while not run.over.wait(_LOOK_EVERY):
            if interrupts:
                run.stop()
            if len(interrupts) > 1 or run.is_overdue:
                break
            show(f"{tally.line()} | {run.doing}")
    if not run.error or tally.rows:
        where = {"checkpoint": query.checkpoint, "wal": query.wal}
        print(*tally.summary(query.to, query.kind, **where), sep="\n")
    if not run.error:
        return 0
    say(f"pubsub-aio: {why(run.error)}")
    if query.verbose:
        say(str(run.error))
    return 1


def _silence(spark: Any) -> None:
    """Have Spark and its Python processes print nothing: what matters is said here.

    They log there, and print stacks when a query has ended or the JVM has died.
    """
    java = spark._jvm.java  # noqa: SLF001 - no public way
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001


class _Run:
    """A query from its start to its end, in a thread of its own: Spark may not answer any more."""

    def __init__(self, spark: Any, query: Query, tally: QueryTally) -> None:
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.doing = "starting"
        """What it is at."""
        self._spark = spark
        self._query = query
        self._tally = tally
        self._stop = threading.Event()
        self._stop_at = 0.0

    def start(self) -> None:
        threading.Thread(target=self._run, name="query", daemon=True).start()

    def stop(self) -> None:
        """Have it end soon."""
        self._stop_at = self._stop_at or time.monotonic()
        self.doing = "stopping, again to stop at once"
        self._stop.set()

    @property
    def is_overdue(self) -> bool:
        """Whether it was stopped long ago."""
        return self._stop.is_set() and time.monotonic() > self._stop_at + _STOP_WITHIN

    def _run(self) -> None:
        try:
            self._follow(self._query.start(self._spark))
            before = self._tally.began
            # Before 4.2 a query ends after one batch, which may be one that was begun before.
            while self._may_be_left() and self._tally.reached > before:
                before = self._tally.reached
                self._follow(self._query.start(self._spark))
        except Exception as error:  # noqa: BLE001 - it is said in a line
            self.error = error
        finally:
            self.over.set()

    def _may_be_left(self) -> bool:
        return self._query.idle is not None and not _ends_when_empty() and not self._stop.is_set()

    def _follow(self, live: Any) -> None:
        """Count what it writes until it ends."""
        seen = None
        while live.isActive and not self._is_to_stop(live):
            last = live.lastProgress
            idle = "listening" if last else "connecting"
            self.doing = "writing" if _is_writing(live) else idle
            if last is not None and last["timestamp"] != seen:
                seen = last["timestamp"]
                self._tally.add(live.recentProgress)
            self._stop.wait(_LOOK_EVERY)
        live.stop()
        self._tally.add(live.recentProgress)
        if error := live.exception():
            raise error

    def _is_to_stop(self, live: Any) -> bool:
        """Whether it was interrupted, when the batch that has begun is done."""
        if not self._stop.is_set():
            return False
        batches = self._tally.batches
        while live.isActive and time.monotonic() < self._stop_at + _FINISH_WITHIN:
            self._tally.add(live.recentProgress)
            if self._tally.batches > batches or not _is_writing(live):
                break
            time.sleep(_LOOK_EVERY)
        return True


def _is_writing(live: Any) -> bool:
    status = live.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _ends_when_empty() -> bool:
    """Whether Spark asks the source if there is more before it ends."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _  # noqa: F401
    except ImportError:
        return False
    return True


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The signals that have come and would have ended this."""
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)  # no more: one may come while another is noted

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one, handler in before.items():
        if handler is not signal.SIG_IGN:  # as in the background
            signal.signal(one, note)
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def why(error: BaseException) -> str:
    """What an error says, without the stacks of Python and the JVM around it."""
    from py4j.protocol import Py4JError, Py4JJavaError

    is_spark_gone = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    if is_spark_gone or isinstance(error, OSError):
        return str(SparkGoneError())
    if isinstance(error, PubSubError):
        return str(error)
    text = str(error)
    said = ""
    for kind in (_OURS, _PYTHONS):
        if found := [*kind.finditer(text)]:
            rest = text[found[-1].end() :]
            said = rest[: end.start()] if (end := _AFTER_IT.search(rest)) else rest
            break
    if not said:
        _, _, cause = text.rpartition("terminated with exception: ")
        said = re.sub(r"\s*SQLSTATE: \w+", "", reason(Exception(cause)))
    for name, argument in _ARGUMENTS.items():
        said = said.replace(name, argument)
    return said

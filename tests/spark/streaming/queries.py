"""Queries of the tests, what they have delivered, and what becomes of their checkpoints."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.sql import Row

from pubsub_aio import AdminClient
from pubsub_aio.emulator import EmulatorThread
from tests.spark.wire import TOPIC, WITHIN, WORKER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

IS_TOLD = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Whether Spark tells the source where a query is, and supports AvailableNow: since 4.2."""

ONE_BATCH = pytest.mark.skipif(
    not IS_TOLD, reason="before 4.2 Spark makes one batch of all that is available"
)


class Query:
    """A query with its checkpoint and its log, and what it has delivered.

    Batches that Spark repeats must be the same, as a sink that skips them relies on.
    """

    def __init__(self, session: SparkSession, emulator: EmulatorThread, folder: Path) -> None:
        self.session = session
        self.emulator = emulator
        self.checkpoint = folder / "checkpoint"
        self.wal = folder / "wal"
        self.batches: dict[int, list[Row]] = {}
        self.partitions: dict[int, int] = {}
        self.last: dict[str, Any] = {}
        """The offset that it came to."""
        self._came = threading.Condition()

    def options(self, **options: str) -> dict[str, str]:
        return {
            "subscription": WORKER,
            "project": self.emulator.project,
            "endpoint": f"http://{self.emulator.address}",
            "walLocation": str(self.wal),
        } | options

    def stream(self, kind: str = "pubsub", **options: str) -> DataFrame:
        return self.session.readStream.format(kind).options(**self.options(**options)).load()

    def start(self, df: DataFrame, **trigger: Any) -> StreamingQuery:
        def note(batch: DataFrame, number: int) -> None:
            rows = batch.collect()
            with self._came:
                assert self.batches.setdefault(number, rows) == rows
                self.partitions[number] = batch.rdd.getNumPartitions()
                self._came.notify_all()

        writer = df.writeStream.option("checkpointLocation", str(self.checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(note).start()

    def run(self, kind: str = "pubsub", **options: str) -> list[Row]:
        """Run until nothing comes any more; returns the rows that it delivered."""
        before = {*self.batches}
        df = self.stream(kind, **{"availableNowIdle": "1s"} | options)
        query = self.start(df, availableNow=True)
        try:
            assert query.awaitTermination(int(WITHIN))
            self._note_progress(query)
        finally:
            self.stop(query)
        return [row for number in sorted({*self.batches} - before) for row in self.batches[number]]

    def stop(self, query: StreamingQuery) -> None:
        """Stop it, and wait until its process is gone: what comes to that now comes late again."""
        query.stop()
        self.emulator.until(lambda: not self.emulator.streams(), timeout=WITHIN)

    def _note_progress(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            offset = progress["sources"][0]["endOffset"]
            if offset:
                self.last = ast.literal_eval(offset) if isinstance(offset, str) else dict(offset)

    def until(self, query: StreamingQuery, condition: Callable[[], bool]) -> None:
        """Wait for batches; a query that fails ends the wait."""
        with self._came:
            ended = self._came.wait_for(lambda: condition() or not query.isActive, WITHIN)
        if error := query.exception():
            raise error
        assert ended
        assert condition()

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def ids(self) -> Counter[str]:
        """How often each message was delivered."""
        return Counter(row.message_id for row in self.rows)


def publish(emulator: EmulatorThread, count: int, *, size: int = 1) -> Counter[str]:
    return Counter(emulator.publish(TOPIC, b"x" * size) for _ in range(count))


def ids(rows: Iterable[Row]) -> Counter[str]:
    return Counter(row.message_id for row in rows)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died right before Spark noted that the batch is done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def forget_last_offset(checkpoint: Path) -> None:
    """As if it had died right before Spark noted the batch, which was sealed by then."""
    forget_last_commit(checkpoint)
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def administer(
    emulator: EmulatorThread, act: Callable[[AdminClient], Coroutine[Any, Any, object]]
) -> None:
    async def run() -> None:
        endpoint = f"http://{emulator.address}"
        async with AdminClient(project=emulator.project, endpoint=endpoint) as admin:
            await act(admin)

    asyncio.run(run())

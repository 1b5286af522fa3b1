"""What Spark does with a reader, and an intake alone, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.spark.streaming.intake import Intake
from pubsub_aio.spark.streaming.options import SourceOptions, source_options
from pubsub_aio.spark.streaming.segment_writer import SegmentWriter
from pubsub_aio.spark.streaming.source import FetchPartition, PubSubStreamReader
from tests.spark.streaming.logs import rows
from tests.spark.wire import TOPIC, WORKER

Offset = dict[str, Any]
_PAUSE = threading.Event()


class Driver:
    """What Spark does with a reader: one of these is one life of a driver."""

    def __init__(self, emulator: EmulatorThread, folder: Path, **options: str) -> None:
        self.reader = PubSubStreamReader(options_of(folder, emulator, **options))
        self.emulator = emulator

    def next(self, start: Offset) -> Offset:
        """The next batch, as soon as there is one."""
        while (end := self.reader.latestOffset(start))["seq"] == start["seq"]:
            _PAUSE.wait(0.01)
        return end

    def rows(self, start: Offset, end: Offset) -> list[bytes]:
        """Note a batch, and read it."""
        tasks = [
            task
            for task in self.reader.partitions(start, end)
            if not isinstance(task, FetchPartition)
        ]
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        return [data for batch in batches for data in batch.column("data").to_pylist()]

    def fetchers(self, start: Offset, end: Offset) -> int:
        """How many tasks of a batch fetch."""
        tasks = self.reader.partitions(start, end)
        return sum(isinstance(task, FetchPartition) for task in tasks)

    def end(self) -> None:
        self.reader.stop()


def options_of(folder: Path, emulator: EmulatorThread | None, **options: str) -> SourceOptions:
    given = {
        "subscription": WORKER,
        "project": emulator.project if emulator else "p",
        "endpoint": f"http://{emulator.address}" if emulator else "http://localhost:1",
        "walLocation": str(folder / "wal"),
    }
    return source_options(given | options)


def publish(emulator: EmulatorThread, *data: bytes) -> None:
    for each in data:
        emulator.publish(TOPIC, each)


def beginning(emulator: EmulatorThread, folder: Path, **options: str) -> tuple[Driver, Any]:
    """A driver that receives, and is to have all there is; and its intake."""
    driver = Driver(emulator, folder, **{"availableNowIdle": "0.3s", **options})
    driver.reader.initialOffset()
    driver.reader.prepareForTriggerAvailableNow()
    made = driver.reader._opened()
    made.start(ends=True)
    return driver, made


class Clock:
    """The time, and so many seconds more."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + 3_600  # whatever is published in a test, was before


class Batch:
    """Messages as the receiver hands them over."""

    def __init__(self, *ids: str, size: int = 10, published: float = 0.0) -> None:
        found = rows(ids)
        place = found.schema.get_field_index("publish_time")
        field = found.schema.field(place)
        times = [datetime.fromtimestamp(published, UTC)] * len(ids)
        self.records = found.set_column(place, field, pa.array(times, field.type))
        self.size = size

    def __len__(self) -> int:
        return int(self.records.num_rows)


class Kept:
    """An intake whose receiver is a thread of the test."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.intake = Intake(options_of(folder, None, **options))
        self.intake.open()
        self.intake._writer = SegmentWriter(self.intake.wal.store, self.intake.wal.id, "")
        self.kept: list[bool] = []

    def receive(self, batches: Iterable[Batch]) -> threading.Thread:
        def receive() -> None:
            for batch in batches:
                self.kept.append(self.intake.keep(batch))  # type: ignore[arg-type]
                self.intake.rest()

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        return thread

    def all(self, *, everything: bool) -> int:
        """Batch by batch, as with the trigger availableNow; returns how many rows there were."""
        last = None
        while batch := self.intake.latest(
            last.seq if last else 0, everything=everything, patient=True
        ):
            last = batch
        self.intake.release()
        return last.rows if last else 0

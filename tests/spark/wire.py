"""What the tests of micro-batches share: an emulator over the wire, a sink, and what is in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pubsub_aio import SubscriberClient
from pubsub_aio.emulator import Emulator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pubsub_aio.spark import BatchReport, MicroBatch

TOPIC, WORKER, BURIED = "orders", "worker", "buried"
WITHIN = 150.0
"""Seconds in which something must have happened that a test waits for."""

_LOOK_AGAIN = 0.01


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as the condition holds; it is tried over and over."""
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110 - it may be about another thread
            await asyncio.sleep(_LOOK_AGAIN)


def client_of(emulator: Emulator, *, transport: str = "grpc") -> SubscriberClient:
    endpoint = f"http://{emulator.address}"
    return SubscriberClient(emulator.project, transport=transport, endpoint=endpoint)


def publish(emulator: Emulator, count: int, *, start: int = 0, key: str = "") -> list[str]:
    """Publish `b"0"`, `b"1"` and so on; returns the ids."""
    numbers = range(start, start + count)
    return [emulator.publish(TOPIC, b"%d" % number, ordering_key=key) for number in numbers]


class Lake:
    """A folder of Parquet files that batches are appended to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: list[MicroBatch] = []
        self.reports: list[BatchReport] = []

    def append(self, df: DataFrame, batch: MicroBatch) -> None:
        self.batches.append(batch)
        df.write.mode("append").parquet(str(self.folder))

    def column(self, name: str) -> list[object]:
        if not self.folder.exists():
            return []
        values: list[object] = pq.read_table(self.folder, columns=[name])[name].to_pylist()
        return values

    @property
    def ids(self) -> Counter[object]:
        """How often each message is there."""
        return Counter(self.column("message_id"))

    @property
    def outcomes(self) -> list[str]:
        return [report.outcome for report in self.reports]

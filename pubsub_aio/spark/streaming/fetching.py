"""Receiving in a task: what comes is kept for later batches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pubsub_aio.spark.streaming.options import SourceOptions
from pubsub_aio.spark.streaming.receiver import receiving
from pubsub_aio.spark.streaming.segment_writer import SegmentWriter
from pubsub_aio.spark.streaming.sight import check_same_log, warn_of_one_disk
from pubsub_aio.spark.streaming.stores import store_at
from pubsub_aio.subscriber.client import SubscriberClient

if TYPE_CHECKING:
    from pubsub_aio.subscriber.arrow import ArrowBatch

_LOOK_AGAIN = 0.05  # seconds


class Fetched:
    """Keeps messages until there are enough.

    Args:
        writer: Has them durable.
        rows: How many are enough, about.
    """

    def __init__(self, writer: SegmentWriter, rows: int) -> None:
        self._writer = writer
        self._enough = rows
        self.rows = 0
        """How many were kept."""
        self._released = False

    @property
    def is_full(self) -> bool:
        """Whether there are enough."""
        return self._released or self.rows >= self._enough

    def keep(self, batch: ArrowBatch) -> bool:
        """Have messages durable, unless there are enough."""
        if self.is_full:
            return False
        self._writer.write(batch)
        self.rows += len(batch)
        return True

    def rest(self) -> None:
        """More may come at once."""

    def release(self) -> None:
        """There are enough."""
        self._released = True


def fetch(options: SourceOptions, wal: str, rows: int, *, driver: str) -> int:
    """Receive for a while; returns how many messages were kept.

    Args:
        options: Of the source.
        wal: The id of the log.
        rows: After so many it ends, about.
        driver: The host that has the log.

    Raises:
        PubSubError: Nothing can be received or kept.
    """
    store = store_at(options.wal_location)
    check_same_log(store, wal, driver)
    warn_of_one_disk(store)
    writer = SegmentWriter(store, wal, options.dedupe_attribute)
    return asyncio.run(_fetch(options, Fetched(writer, rows), rows))


async def _fetch(options: SourceOptions, fetched: Fetched, rows: int) -> int:
    most = min(rows, options.max_outstanding_messages)
    loop = asyncio.get_running_loop()
    failed = loop.create_future()
    async with (
        SubscriberClient(**options.connection.arguments()) as client,
        receiving(client, options, fetched, failed, most=most) as live,
    ):
        ends: set[asyncio.Future[Any]] = {live, failed}
        until = loop.time() + options.fetch_period
        while not fetched.is_full and (left := until - loop.time()) > 0:
            done, _ = await asyncio.wait(
                ends, timeout=min(left, _LOOK_AGAIN), return_when=asyncio.FIRST_COMPLETED
            )
            for end in done:
                end.result()
    return fetched.rows

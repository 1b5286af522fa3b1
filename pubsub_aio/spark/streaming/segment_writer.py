"""Messages that came, written into the log."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from pubsub_aio.spark.frames import columns_of
from pubsub_aio.spark.streaming import segments
from pubsub_aio.spark.streaming.keys import keys_of
from pubsub_aio.spark.streaming.layout import segment_name
from pubsub_aio.spark.streaming.segments import Segment
from pubsub_aio.spark.streaming.stores import Store, writing

if TYPE_CHECKING:
    from pubsub_aio.subscriber.arrow import ArrowBatch


class SegmentWriter:
    """Writes segments whose names are in the order in which they are written.

    Args:
        store: Where the log is.
        wal: Its id.
        attribute: By which messages are recognised; empty for their ids.
    """

    def __init__(self, store: Store, wal: str, attribute: str) -> None:
        self._store = store
        self._wal = wal
        self._attribute = attribute
        self._last = 0

    def write(self, batch: ArrowBatch, *, after: int = 0) -> Segment:
        """Keep the messages of a batch; when it returns they may be acknowledged.

        Args:
            batch: The messages.
            after: The number of the last segment that there is already, whoever wrote it.

        Raises:
            WalError: They cannot be kept.
        """
        records = segments.conformed(columns_of(batch.records))
        self._last = max(time.time_ns(), self._last + 1, after + 1)
        name = segment_name(self._last, uuid.uuid4().hex)
        keys = keys_of(records, self._attribute)
        with writing(self._store):
            return segments.write(self._store, name, self._wal, records, keys, batch.size)

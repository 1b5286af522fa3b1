"""Rows that have come and are gathered into batches, kept alive meanwhile."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pubsub_aio._core.batches import Gathering
from pubsub_aio._core.leases import RENEW_AT
from pubsub_aio.config import MIN_ACK_DEADLINE
from pubsub_aio.subscriber.alarm import Alarm

if TYPE_CHECKING:
    import pyarrow as pa

_RENEWED_TOGETHER = MIN_ACK_DEADLINE / 2
"""Seconds after which rows are first renewed, and before which none is renewed again."""

_MANY = 100  # pieces
_SMALL = 16_384  # bytes, below which a piece takes more than what is in it


@dataclass(slots=True, eq=False)
class Rows:
    """Messages that were decoded together."""

    records: pa.RecordBatch
    ack_ids: Any
    """The column of their ack ids."""
    size: int
    """What they took on the wire, in bytes."""
    came_at: float
    renew_at: float = math.inf
    """When their deadlines must be moved."""

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def part(self, start: int, count: int) -> Rows:
        """So many of them, from that one on."""
        if count == len(self):
            return self
        records, ack_ids = self.records.slice(start, count), self.ack_ids.slice(start, count)
        size = math.ceil(self.size * count / len(self))
        return replace(self, records=records, ack_ids=ack_ids, size=size)


def joined(parts: list[Rows]) -> Rows:
    """Rows that came one after another, as one."""
    import pyarrow as pa

    first = parts[0]
    if len(parts) == 1:
        return first
    table = pa.Table.from_batches([rows.records for rows in parts]).combine_chunks()
    (records,) = table.to_batches()  # a column of more than 2 GiB would make more of them
    return replace(
        first,
        records=records,
        ack_ids=pa.concat_arrays([rows.ack_ids for rows in parts]),
        size=sum(rows.size for rows in parts),
        renew_at=min(rows.renew_at for rows in parts),
    )


class Assembly:
    """Gathers rows until they make a batch and somebody can take it.

    Args:
        max_messages: How many rows make a batch.
        max_bytes: How many bytes make one.
        max_latency: Seconds that a row waits for others; longer only while nobody can take it.
        hand_over: Takes the rows of a batch.
        keep_alive: Moves the deadlines of these ack ids; returns by how many seconds.
    """

    def __init__(
        self,
        *,
        max_messages: int,
        max_bytes: int,
        max_latency: float,
        hand_over: Callable[[list[Rows]], None],
        keep_alive: Callable[[list[str]], float],
    ) -> None:
        self.has_taker: Callable[[], bool] = lambda: True
        """Whether somebody can take a batch that is not full."""
        self._max_bytes = max_bytes
        self._gathering: Gathering[Rows] = Gathering(
            max_count=max_messages, max_bytes=max_bytes, max_latency=max_latency
        )
        self._hand_over = hand_over
        self._keep_alive = keep_alive
        self._renew_at = math.inf
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self.look)

    def __len__(self) -> int:
        """How many rows are gathered."""
        return len(self._gathering)

    def add(self, rows: Rows) -> None:
        """Gather these; what does not fit into a batch begins the next one."""
        rows.renew_at = rows.came_at + _RENEWED_TOGETHER
        total, start = len(rows), 0
        most = max(1, total * self._max_bytes // rows.size)
        while start < total:
            room = self._gathering.max_count - len(self)
            part = rows.part(start, min(total - start, room, most))
            start += len(part)
            for batch in self._gathering.add(
                part, size=part.size, count=len(part), now=rows.came_at
            ):
                self._renew_at = math.inf
                self._hand_over(batch)
        if len(self):
            self._renew_at = min(self._renew_at, rows.renew_at)
        self.look()

    def take(self) -> list[Rows]:
        """What there is, whether it is enough or not."""
        rows = self._gathering.take()
        self._renew_at = math.inf
        self._alarm.set(math.inf)
        return rows

    def look(self) -> None:
        """Hand over what has waited long enough, if somebody can take it; keep the rest alive."""
        now = self._loop.time()
        due_at = self._gathering.due_at
        if due_at <= now and self.has_taker():
            self._hand_over(self.take())
            return
        if self._renew_at <= now:
            self._renew(now)
        self._alarm.set(min(due_at, self._renew_at) if due_at > now else self._renew_at)

    def _renew(self, now: float) -> None:
        """Move the deadlines of what is due soon; where there are many pieces, small ones join.

        Large ones do not: that would hold the loop, and they are joined in the end anyway.
        """
        gathered = self._gathering.items
        due = [rows for rows in gathered if rows.renew_at <= now + _RENEWED_TOGETHER]
        ids = [ack_id for rows in due for ack_id in rows.ack_ids.to_pylist()]
        renew_at = now + self._keep_alive(ids) * RENEW_AT
        for rows in due:
            rows.renew_at = renew_at
        if len(gathered) > _MANY:
            gathered[:] = [
                rows
                for small, run in groupby(gathered, key=lambda rows: rows.size < _SMALL)
                for rows in ([joined([*run])] if small else run)
            ]
        self._renew_at = min(rows.renew_at for rows in gathered)

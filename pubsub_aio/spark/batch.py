"""A micro-batch as its handler sees it, and what became of it."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pubsub_aio.errors import ClosedError, ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Outcome = Literal["acked", "bisected", "failed", "timed out", "cancelled"]


class MicroBatch:
    """Messages that are handed to Spark together.

    Attributes:
        id: Unlike that of any other; a message that comes again comes in a batch with another id.
        part_of: The id of the batch that failed, if this is a part of it that is tried alone;
            otherwise empty.
    """

    __slots__ = ("_records", "_rows", "given_back", "id", "is_settled", "part_of")

    def __init__(self, rows: int, records: Callable[[], pa.RecordBatch]) -> None:
        self.id = uuid.uuid4().hex
        self.part_of = ""
        self.given_back: set[int] = set()
        """Rows that are to come again although it was handled. The library's own."""
        self.is_settled = False
        """Whether it is too late to give rows back. The library's own."""
        self._rows = rows
        self._records: pa.RecordBatch | Callable[[], pa.RecordBatch] = records

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"MicroBatch({self.id}, {len(self)} messages)"

    @property
    def records(self) -> pa.RecordBatch:
        """The rows of the DataFrame, as Arrow has them."""
        if callable(self._records):
            self._records = self._records()
        return self._records

    @property
    def message_ids(self) -> list[str]:
        """The ids of its messages, in the order of the rows."""
        ids: list[str] = self.records.column("message_id").to_pylist()
        return ids

    def give_back(self, rows: Iterable[int]) -> None:
        """Have these rows come again though the handler returns; they are counted from 0.

        Where order matters what is behind them, of the same ordering keys, comes again as well.

        Raises:
            ClosedError: The handler has returned.
        """
        if self.is_settled:
            raise ClosedError("the batch is settled: give rows back before the handler returns")
        numbers = {operator.index(row) for row in rows}
        if wrong := [row for row in numbers if not 0 <= row < len(self)]:
            raise ConfigError(f"rows must be from 0 to {len(self) - 1}, not {wrong[0]!r}")
        self.given_back |= numbers

    @property
    def ordering_keys(self) -> list[str]:
        """The ordering keys of its messages. The library's own."""
        keys: list[str] = self.records.column("ordering_key").to_pylist()
        return keys

    def part(self, rows: Sequence[int]) -> MicroBatch:
        """Some of its rows, to be tried alone. The library's own."""
        whole = self.records

        def records() -> pa.RecordBatch:
            if isinstance(rows, range):
                return whole.slice(rows.start, len(rows))
            return whole.take(rows)

        part = MicroBatch(len(rows), records)
        part.part_of = self.id
        return part

    def row(self, row: int) -> MicroBatch:
        """One of its rows, alone. The library's own."""
        return self.part(range(row, row + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What became of a micro-batch."""

    id: str
    """The batch."""

    outcome: Outcome
    """`"acked"` if its handler returned; `"bisected"` if it failed, and some of its rows went
    through alone; `"failed"` if nothing did; `"timed out"` if it took longer than
    `max_batch_duration`; `"cancelled"` if the subscription ended first."""

    rows: int
    """Its messages."""

    size: int
    """What they took on the wire, in bytes."""

    seconds: float
    """How long it took."""

    acked: int
    """Messages that are dealt with, those that were dead-lettered included."""

    dead_lettered: int = 0
    """Messages that were published to the dead-letter topic."""

    poisonous: tuple[str, ...] = ()
    """The ids of messages with which the handler failed, while it worked with others."""

    error: BaseException | None = None
    """What was raised first."""

    @property
    def nacked(self) -> int:
        """Messages that come again."""
        return self.rows - self.acked

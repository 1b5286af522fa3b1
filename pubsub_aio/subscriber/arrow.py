"""Messages as Arrow record batches: gathered, handed over and settled together."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from threading import get_ident
from typing import TYPE_CHECKING, Self

from pubsub_aio._core.batches import Gathering
from pubsub_aio._core.leases import Block
from pubsub_aio._wire import schema
from pubsub_aio.config import MIB
from pubsub_aio.errors import ConfigError
from pubsub_aio.message import Confirmation, all_confirmed, whole_seconds
from pubsub_aio.subscriber.alarm import Alarm
from pubsub_aio.subscriber.assembly import Assembly, Rows, joined
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.sender import Sender

if TYPE_CHECKING:
    import pyarrow as pa

    from pubsub_aio._wire.arrow import ArrowCodec

ArrowCallback = Callable[["ArrowBatch"], Awaitable[object]]

_numbers = itertools.count()
_ALL = "*"  # the key of every batch, where order matters

# To decode many responses together costs less, but the loop waits for it.
_DECODED_TOGETHER = 2_000
_BYTES_DECODED_TOGETHER = 10 * MIB
_DECODED_AFTER = 0.05  # seconds


class ArrowBatch:
    """Messages as an Arrow record batch, held until they are settled together."""

    __slots__ = (
        *("__weakref__", "_custody", "_parts", "lease", "message_id", "ordering_key"),
        *("place", "size"),
    )

    def __init__(self, parts: list[Rows], custody: ArrowCustody, *, ordered: bool) -> None:
        self.ordering_key = _ALL if ordered else ""
        """With ordering on, all batches count as of one key, and so come one after another."""
        self._parts = parts
        self._custody = custody
        self.size = sum(rows.size for rows in parts)
        """What it took on the wire, in bytes."""
        self.lease: object | None = None
        """Who keeps it alive; none once it is settled. The library's own."""
        number = next(_numbers)
        self.message_id = f"batch {number}"
        self.place = (number,)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __repr__(self) -> str:
        return f"ArrowBatch({len(self)} rows)"

    @property
    def records(self) -> pa.RecordBatch:
        """The messages, one a row, in the order they came.

        A large batch is put together at the first call, which may be made in another thread.
        """
        return self._whole().records

    def _whole(self) -> Rows:
        whole = joined(self._parts)
        self._parts = [whole]
        return whole

    @property
    def ack_ids(self) -> list[str]:
        """The ids of these deliveries, in the order of the rows."""
        return [ack_id for rows in self._parts for ack_id in rows.ack_ids.to_pylist()]

    @property
    def ack_id(self) -> str:
        """The first of them."""
        return self.ack_ids[0]

    def ack(self) -> None:
        """All of it is dealt with, and is not to come again."""
        self._custody.ack(self)

    def nack(self, *, delay: float = 0.0) -> None:
        """All of it is to come again, after that many seconds, 0 to 600."""
        self._custody.nack(self, whole_seconds(delay, "delay"))

    def ack_all_but(self, rows: Iterable[int], *, delay: float = 0.0) -> None:
        """Ack all of it but these rows, which are to come again after that many seconds, 0 to 600.

        Where order matters what is behind them, of the same ordering keys, comes again as well.
        What is left of the batch here then are the rows that come again.
        """
        numbers = sorted({operator.index(row) for row in rows})
        if numbers and not 0 <= numbers[0] <= numbers[-1] < len(self):
            raise ConfigError(f"rows must be from 0 to {len(self) - 1}, not {numbers}")
        self._custody.ack_all_but(self, numbers, whole_seconds(delay, "delay"))

    async def ack_with_response(self) -> None:
        """Ack all of it; returns when the server has confirmed every row.

        Raises:
            ExceptionGroup: Of `SettleError`, one for each row that was refused.
        """
        confirmations = self._custody.confirmations(self)
        if self.lease is not None:
            self._custody.ack(self)
        await all_confirmed(confirmations)

    def leave_out(self, ack_ids: set[str]) -> None:
        """Forget rows. The library's own."""
        self._keep([ack_id not in ack_ids for ack_id in self.ack_ids])

    def and_behind(self, rows: list[int]) -> list[int]:
        """These rows and, where order matters, later ones of their keys. The library's own."""
        if not self.ordering_key or not rows:
            return rows
        chosen, blocked, behind = {*rows}, set(), []
        for row, key in enumerate(self.records.column("ordering_key").to_pylist()):
            if row in chosen or key in blocked:
                behind.append(row)
                if key:
                    blocked.add(key)
        return behind

    def split_off(self, rows: Sequence[int]) -> list[str]:
        """Keep these rows only; returns the ack ids of the others. The library's own."""
        kept = [False] * len(self)
        for row in rows:
            kept[row] = True
        ids = self._whole().ack_ids
        others: list[str] = ids.filter([not stays for stays in kept]).to_pylist()
        self._keep(kept)
        return others

    def _keep(self, kept: list[bool]) -> None:
        whole = self._whole()
        records, ack_ids = whole.records.filter(kept), whole.ack_ids.filter(kept)
        self._parts = [replace(whole, records=records, ack_ids=ack_ids)]

    def renew_with(self, copy: Self) -> None:
        """Batches are never copies of one another. The library's own."""


class ArrowCustody(Custody[ArrowBatch]):
    """Custody of record batches.

    Args:
        sender: Tells the server.
        options: How the subscription is to be.
        report: Is told of what should not happen.
        codec: Decodes responses.
        max_messages: How many rows make a batch.
        max_bytes: How many bytes make one.
        max_latency: Seconds that a row waits for others.
    """

    def __init__(
        self,
        sender: Sender,
        options: Options,
        report: Callable[[str, str], None],
        *,
        codec: ArrowCodec,
        max_messages: int,
        max_bytes: int,
        max_latency: float,
    ) -> None:
        super().__init__(sender, options, report)
        self.knows_what_comes_again = False
        self._codec = codec
        self._arrived: Gathering[tuple[float, list[bytes]]] = Gathering(
            max_count=min(max_messages, _DECODED_TOGETHER),
            max_bytes=min(max_bytes, _BYTES_DECODED_TOGETHER),
            max_latency=min(max_latency, _DECODED_AFTER),
        )
        self._due = Alarm(self._on_due)
        self.assembly = Assembly(
            max_messages=max_messages,
            max_bytes=max_bytes,
            max_latency=max_latency,
            hand_over=self._complete,
            keep_alive=self._keep_alive,
        )
        """What was decoded, until it makes a batch."""

    # Arrival

    def receive(self, responses: list[bytes]) -> bool:
        """Take in responses, of a stream or of a pull; returns whether they brought messages."""
        data = b"".join(responses)
        read = schema.RawResponses.FromString(data)
        self._heed(read.subscription_properties)
        count = len(read.received_messages)
        if not count:
            return False
        now = self._loop.time()
        for arrived in self._arrived.add((now, responses), size=len(data), count=count, now=now):
            self._decode_all(arrived)
        if self.ending:
            self._complete_all()
        if self._due.at == math.inf:
            self._due.set(self._arrived.due_at)
        return True

    @property
    def gathered(self) -> int:
        """Messages that came and make no batch yet."""
        return len(self._arrived) + len(self.assembly)

    def _on_due(self) -> None:
        """What arrived has waited long enough, unless it went and other came."""
        try:
            if self._arrived.due_at <= self._loop.time():
                self._decode_all(self._arrived.take())
        finally:
            self._due.set(self._arrived.due_at)

    def _decode_all(self, arrived: list[tuple[float, list[bytes]]]) -> None:
        responses = [response for _, responses in arrived for response in responses]
        self._decode(responses, came_at=arrived[0][0])

    def _decode(self, responses: list[bytes], *, came_at: float) -> None:
        """Turn responses into rows; one that cannot be read does not cost the others."""
        try:
            records, ack_ids = self._codec.decode(responses)
        except ValueError as error:
            if len(responses) == 1:
                self._report("warning", f"a response cannot be read, it comes again: {error}")
                return
            for response in responses:
                self._decode([response], came_at=came_at)
            return
        size = sum(map(len, responses))
        self.assembly.add(Rows(records, ack_ids, size, came_at))

    def _keep_alive(self, ack_ids: list[str]) -> float:
        """Have rows kept for whom no batch is complete yet; returns for how many seconds."""
        self.counts["extended"] += len(ack_ids)
        self._sender.extend(ack_ids, extension := self.extension)
        self._sender.flush()
        return extension

    def _complete(self, parts: list[Rows]) -> None:
        """Rows make a batch."""
        batch = ArrowBatch(parts, self, ordered=self.ordered is not False)
        if self._lanes.is_restarting(_ALL):
            self.counts["received"] += len(batch)
            self.counts["stale"] += 1
            self._put_aside.append(batch)
        else:
            self._take_in(self._block(batch), [batch])

    def _complete_all(self) -> None:
        """Whatever has come makes a batch."""
        if len(self._arrived):
            self._decode_all(self._arrived.take())
        if len(self.assembly):
            self._complete(self.assembly.take())

    def give_back_aside(self) -> None:
        """Give back what came and was not kept."""
        self._complete_all()
        super().give_back_aside()

    def trust(self) -> None:
        """Whatever comes is in order from now on."""
        self._lanes.trust(_ALL)

    def _keep_sure(self, messages: list[ArrowBatch]) -> None:
        """Keep batches whose receipt is confirmed; all of them before the first is leased."""
        *others, last = messages
        for batch in others:
            self.leases.receive(self._block(batch), [batch])
        self._keep(self._block(last), [last])

    def _block(self, batch: ArrowBatch) -> Block[ArrowBatch]:
        """A block for a batch alone; each of its rows counts."""
        block: Block[ArrowBatch] = Block(self._loop.time(), batch.size, weight=len(batch))
        batch.lease = block
        return block

    def _leave_out(self, message: ArrowBatch, ack_ids: set[str]) -> bool:
        """Forget rows that were refused; returns whether any is left.

        Where order matters none is: what is later must not go on without them.
        """
        if self.ordered is not False or ack_ids.issuperset(message.ack_ids):
            return False
        self._sender.nack([*ack_ids], 0)
        message.leave_out(ack_ids)
        return True

    # Settling

    def ack_all_but(self, batch: ArrowBatch, rows: list[int], seconds: int) -> None:
        """Ack a batch, and give back these rows of it."""
        if get_ident() != self._thread:
            self._hop(self.ack_all_but, batch, rows, seconds)
        elif not rows:
            self.ack(batch)
        elif batch.lease is None:
            self._too_late(batch, None)
        else:
            place, acked = batch.place, batch.split_off(batch.and_behind(rows))
            if self.ordered is not False and self.exactly_once:
                self._sender.ack_in_order(_ALL, place, acked)
            else:
                self._sender.acks += acked
                self._sender.acks_wait()
            self.nack(batch, seconds)

    def confirmations(self, batch: ArrowBatch) -> list[Confirmation]:
        """One for each row of a batch that is about to be acked."""
        if batch.lease is None:
            confirmation = Confirmation()
            self._too_late(batch, confirmation)
            return [confirmation]
        confirmations = []
        for ack_id in batch.ack_ids:
            confirmations.append(confirmation := Confirmation())
            self._sender.confirm(ack_id, None, confirmation)
        return confirmations

    def _ids(self, messages: Sequence[ArrowBatch]) -> list[str]:
        return [ack_id for batch in messages for ack_id in batch.ack_ids]

    # The end

    def close(self) -> None:
        """Lease no more; give back what waits to be leased."""
        self._due.set(math.inf)
        self._complete_all()
        super().close()

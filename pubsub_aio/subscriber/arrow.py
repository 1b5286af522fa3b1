"""Messages as Arrow record batches: gathered, handed over and settled together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from pubsub_aio._core.batches import Gathering
from pubsub_aio._core.leases import Block
from pubsub_aio._wire import schema
from pubsub_aio._wire.arrow import ArrowCodec
from pubsub_aio.message import Confirmation, all_confirmed, whole_seconds
from pubsub_aio.subscriber.alarm import Alarm
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.sender import Sender

if TYPE_CHECKING:
    import pyarrow as pa

ArrowCallback = Callable[["ArrowBatch"], Awaitable[object]]

_numbers = itertools.count()
_ALL = "*"  # the key of every batch, where order matters


class ArrowBatch:
    """Messages as an Arrow record batch, held by this subscriber until they are settled together.

    Attributes:
        records: The messages, one a row, in the order they came.
    """

    __slots__ = (
        *("__weakref__", "_ack_ids", "_custody", "lease", "message_id", "ordering_key"),
        *("place", "records", "size"),
    )

    def __init__(
        self,
        records: pa.RecordBatch,
        ack_ids: Any,
        size: int,
        custody: ArrowCustody,
        *,
        ordered: bool,
    ) -> None:
        self.ordering_key = _ALL if ordered else ""
        """With ordering on, all batches count as of one key, and so come one after another."""
        self.records = records
        self._ack_ids = ack_ids
        self._custody = custody
        self.size = size
        """What it took on the wire, in bytes."""
        self.lease: object | None = None
        """Who keeps it alive; none once it is settled. The library's own."""
        number = next(_numbers)
        self.message_id = f"batch {number}"
        self.place = (number,)

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def __repr__(self) -> str:
        return f"ArrowBatch({len(self)} rows)"

    @property
    def ack_ids(self) -> list[str]:
        """The ids of these deliveries, in the order of the rows."""
        ids: list[str] = self._ack_ids.to_pylist()
        return ids

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
        kept = [ack_id not in ack_ids for ack_id in self.ack_ids]
        self.records = self.records.filter(kept)
        self._ack_ids = self._ack_ids.filter(kept)

    def renew_with(self, copy: Self) -> None:
        """Batches are never copies of one another. The library's own."""


class ArrowCustody(Custody[ArrowBatch]):
    """Custody of record batches.

    Args:
        sender: Tells the server.
        options: How the subscription is to be.
        report: Is told of what should not happen.
        codec: Decodes responses.
        gathering: When a batch is complete.
    """

    def __init__(
        self,
        sender: Sender,
        options: Options,
        report: Callable[[str, str], None],
        *,
        codec: ArrowCodec,
        gathering: Gathering[list[bytes]],
    ) -> None:
        super().__init__(sender, options, report)
        self.knows_what_comes_again = False
        self._codec = codec
        self._gathering = gathering
        self._due = Alarm(self._on_due)

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
        for batch in self._gathering.add(responses, size=len(data), count=count, now=now):
            self._decode_all(batch)
        if self._closed and len(self._gathering):
            self._decode_all(self._gathering.take())
        if self._due.at == math.inf:
            self._due.set(self._gathering.due_at)
        return True

    def _on_due(self) -> None:
        """What was gathered has waited long enough, unless it went and other came."""
        if self._gathering.due_at <= self._loop.time():
            self._decode_all(self._gathering.take())
        self._due.set(self._gathering.due_at)

    def _decode_all(self, taken_in: list[list[bytes]]) -> None:
        self._decode([response for responses in taken_in for response in responses])

    def _decode(self, responses: list[bytes]) -> None:
        """Turn responses into a batch; one that cannot be read does not cost the others."""
        try:
            records, ack_ids = self._codec.decode(responses)
        except ValueError as error:
            if len(responses) == 1:
                self._report("warning", f"a response cannot be read, it comes again: {error}")
                return
            for response in responses:
                self._decode([response])
            return
        size = sum(map(len, responses))
        batch = ArrowBatch(records, ack_ids, size, self, ordered=self.ordered is not False)
        if self._lanes.is_restarting(_ALL):
            self.counts["received"] += len(batch)
            self.counts["stale"] += 1
            self._put_aside.append(batch)
        else:
            self._take_in(self._block(batch), [batch])

    def give_back_aside(self) -> None:
        """Give back what came and was not kept."""
        if len(self._gathering):
            self._decode_all(self._gathering.take())
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
        if len(self._gathering):
            self._decode_all(self._gathering.take())
        super().close()

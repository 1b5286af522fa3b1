"""Record batches, in virtual time: order, receipts, and what becomes of what is given back."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import ArrowBatch
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import HOUR, TOPIC, WORKER, client_of, publish, virtual

Row = tuple[str, int]
"""A key, and which of its messages."""


class Rows:
    """A callback that nacks some batches, acks the others, and notes the rows of those."""

    def __init__(self, nack: tuple[int, ...] = (), *, delay: float = 0.0) -> None:
        self.acked: list[Row] = []
        self._nack = nack
        self._delay = delay
        self._count = 0

    async def __call__(self, batch: ArrowBatch) -> None:
        self._count += 1
        await asyncio.sleep(0.1)
        if self._count in self._nack:
            batch.nack(delay=self._delay)
            return
        columns = batch.records.to_pydict()
        keys, data = columns["ordering_key"], columns["data"]
        self.acked += [(key, int(number)) for key, number in zip(keys, data, strict=True)]
        batch.ack()

    def of(self, key: str) -> list[int]:
        return [number for name, number in self.acked if name == key]


@virtual
@pytest.mark.parametrize("count", [1, 5])
async def test_a_batch_of_which_every_receipt_is_refused_is_forgotten(
    emulator: MemoryEmulator, count: int
) -> None:
    """H4: it comes again, and the subscription goes on."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    rows = Rows()
    async with client_of(emulator) as client:
        live = client.subscribe_arrow(WORKER, rows)
        await live.ready()
        emulator.faults.fail_confirmations(WORKER, times=count, permanent=True)
        publish(emulator, count)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert sorted(number for _, number in rows.acked) == list(range(count))

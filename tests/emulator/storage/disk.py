"""Files of a log that are bytes in memory: what a power cut leaves is easily made of them."""

from __future__ import annotations

from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.storage.ledger import Batch, Ledger


class Disk:
    """The files of one log."""

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.ledger = Ledger(Broker())

    def save(self, ledger: Ledger, *, most: int = 1_000) -> None:
        """Write what has changed, and go on as long as there is more to do."""
        while most and (batch := ledger.next_batch()):
            self.write(batch)
            ledger.written(batch)
            most -= 1

    def write(self, batch: Batch) -> None:
        data = b"".join(batch.parts)
        self.files[batch.file] = data if batch.begins else self.files[batch.file] + data
        for segment in batch.gone:
            del self.files[segment.number]

    def read(self, broker: Broker, *, now: float, full: int) -> Ledger:
        """Let a new broker go on with what is there."""
        ledger = Ledger(broker, full=full)
        for needless in ledger.read(sorted(self.files), self.files.__getitem__, now=now):
            del self.files[needless]
        self.save(ledger)
        self.ledger = ledger
        return ledger

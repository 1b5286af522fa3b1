"""A snapshot: which messages a subscription had not acked at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_aio.emulator.settings import DAY
from pubsub_aio.emulator.status import Code, StatusError

if TYPE_CHECKING:
    from pubsub_aio._wire import schema
    from pubsub_aio.emulator.progress import Position
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.topics import Topic

LIFETIME = 7.0 * DAY
_LEAST = 3_600.0


class Snapshot:
    """A subscription's position, kept until it expires."""

    def __init__(
        self, serial: int, config: schema.Snapshot, topic: Topic, position: Position
    ) -> None:
        self.serial = serial
        self.config = config
        self.topic = topic
        self.position = position

    @classmethod
    def of(
        cls, source: Subscription, config: schema.Snapshot, *, serial: int, now: float
    ) -> Snapshot:
        """A snapshot of where a subscription stands now."""
        oldest = source.oldest_unacked_time()
        lifetime = LIFETIME - (now - oldest if oldest is not None else 0.0)
        if lifetime < _LEAST:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"the oldest unacked message of {source.config.name} is so old that a snapshot "
                "would expire within an hour; acknowledge or seek first",
            )
        config.topic = source.config.topic
        config.expire_time.FromNanoseconds(round((now + lifetime) * 1_000_000) * 1_000)
        return cls(serial, config, source.topic, source.deliveries.progress.position())

    @property
    def expires_at(self) -> float:
        """When it is deleted."""
        return float(self.config.expire_time.ToNanoseconds()) / 1e9

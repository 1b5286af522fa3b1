"""A topic: its settings, its messages, and who still needs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pubsub_aio.emulator import records
from pubsub_aio.emulator.durations import seconds_of
from pubsub_aio.emulator.log import TopicLog

if TYPE_CHECKING:
    from pubsub_aio._wire import schema
    from pubsub_aio.emulator.journal import Journal
    from pubsub_aio.emulator.snapshots import Snapshot
    from pubsub_aio.emulator.subscriptions import Subscription

    Admit = Callable[[schema.SchemaSettings, Sequence[bytes | None]], list[bytes | None]]

_IDS, _MOST_SERIALS = 10**16, 900
"""Ids of a topic begin with its serial number, and go on with microseconds of Unix time: a server
that is started again, and knows nothing of the last one, gives no id twice. They fit 64 bits."""


class Topic:
    """Messages in order, kept for as long as a subscription, a snapshot or retention needs them."""

    def __init__(self, serial: int, config: schema.Topic, journal: Journal, *, now: float) -> None:
        self.serial = serial
        self.config = config
        self.log = TopicLog()
        self.saved = 0
        """Messages before this offset are saved, if somebody saves them."""
        self.first_id = _first_id(serial, now)
        """The id of the message at offset 0, had there been one."""
        self.ids_to = 0
        """No id from this one on was given, as far as is saved."""
        self.admit: Admit | None = None
        """Checks messages against the topic's schema, if it has one."""
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self._journal = journal
        self._time = 0.0

    def go_on(self, log: TopicLog, *, ids_to: int, now: float) -> None:
        """Take over the messages of an earlier life, which gave no id from `ids_to` on."""
        self.log = log
        self.saved = log.next
        self.first_id = max(ids_to, _first_id(self.serial, now)) - log.next
        self.ids_to = self.next_id
        self._time = log.time(log.next - 1) if log.first < log.next else 0.0

    @property
    def retention(self) -> float:
        """Seconds for which messages are kept, acked or not."""
        return seconds_of(self.config.message_retention_duration)

    @property
    def next_id(self) -> int:
        """The id of the message that is published next."""
        return self.first_id + self.log.next

    def use_up_ids(self, count: int) -> None:
        """Give the next ids to messages that are not kept."""
        self.first_id += count

    def publish(self, bodies: Sequence[bytes], *, now: float) -> int:
        """Add messages; returns the id of the first, the others follow it."""
        # To the microsecond, as clients are told it: they may seek to the time of a message.
        self._time = max(self._time, round(now, 6))
        first = self.log.next
        first_id = self.next_id
        framed = records.frame(bodies, first_id=first_id, time=self._time)
        if self.subscriptions or self.snapshots or self.retention:
            self.log.append(framed, time=self._time)
        else:
            self.log.skip(len(framed))
        self._journal.published(self.serial, self.config.name, first, framed, first_id, self._time)
        return first_id

    def kept_since(self, now: float) -> int:
        """The first message that retention keeps; `log.next` without retention."""
        return self.log.first_since(now - self.retention) if self.retention else self.log.next

    def trim(self, now: float) -> None:
        """Drop the messages that nobody needs any more."""
        needed = [self.kept_since(now)]
        needed += [subscription.needs_from(now) for subscription in self.subscriptions.values()]
        needed += [snapshot.position.low for snapshot in self.snapshots.values()]
        self.log.drop_before(min(needed))

    def poll(self, now: float) -> float:
        """Drop what retention lets go; returns when to look again."""
        self.trim(now)
        if not self.retention or self.log.first == self.log.next:
            return math.inf
        # Whole chunks go at once, so there is no hurry.
        return now + self.retention / 10


def _first_id(serial: int, now: float) -> int:
    return serial % _MOST_SERIALS * _IDS + int(now * 1e6)

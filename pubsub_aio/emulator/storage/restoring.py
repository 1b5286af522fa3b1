"""From what was written back to a broker."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator.log import TopicLog
from pubsub_aio.emulator.snapshots import Snapshot
from pubsub_aio.emulator.storage.blocks import restored
from pubsub_aio.emulator.subscriptions import Subscription
from pubsub_aio.emulator.topics import Topic

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.policies import Resource
    from pubsub_aio.emulator.progress import Position
    from pubsub_aio.emulator.storage.saved import (
        Saved,
        SavedMessages,
        SavedProgress,
        SavedSchema,
        SavedSnapshot,
        SavedSubscription,
        SavedTopic,
    )


_EPOCHS = 1 << 12
"""More than there can be seeks between two writes."""


class _Progress:
    """What a subscription, or a snapshot, has settled."""

    def __init__(self) -> None:
        self.low = 0
        self.active_at = 0.0
        self.blocks: dict[int, bytes] = {}

    def take_in(self, saved: SavedProgress) -> None:
        if saved.whole:
            self.blocks.clear()
        self.low, self.active_at = saved.low, saved.active_at
        self.blocks.update(zip(saved.numbers, saved.blocks, strict=True))


class Life:
    """An earlier life of a broker, in the making: changes go in, resources come out.

    Args:
        ended: Whether it was ended. Of one that was killed it is not known when subscriptions were
            last used, so that a start counts as use.
    """

    def __init__(self, *, ended: bool) -> None:
        self.segments: dict[int, int] = {}
        """The other files that hold messages, with how much of them counts."""
        self._serial = 0
        self._policy_changes = 0
        self._topics: dict[int, SavedTopic] = {}
        self._subscriptions: dict[int, SavedSubscription] = {}
        self._snapshots: dict[int, SavedSnapshot] = {}
        self._schemas: dict[str, SavedSchema] = {}
        self._iam: Saved | None = None
        self._ended = ended
        self._progress: dict[int, _Progress] = {}
        self._messages: dict[int, list[SavedMessages]] = {}

    def take_in(self, saved: Saved) -> None:
        """Take in changes, which came after those before."""
        if saved.whole:
            for kept in (self._topics, self._subscriptions, self._snapshots, self._progress):
                kept.clear()
            self._schemas.clear()
            self.segments = {other.number: other.length for other in saved.segments}
        self._serial = max(self._serial, saved.serial)
        self._policy_changes = max(self._policy_changes, saved.policy_changes)
        for name in saved.gone_schemas:  # before those that are there: one may have its name
            self._schemas.pop(name, None)
        self._schemas.update((kept.name, kept) for kept in saved.schemas)
        self._topics.update((topic.serial, topic) for topic in saved.topics)
        self._subscriptions.update((kept.uid, kept) for kept in saved.subscriptions)
        self._snapshots.update((kept.serial, kept) for kept in saved.snapshots)
        for progress in saved.progress:
            self._progress.setdefault(progress.uid, _Progress()).take_in(progress)
        for serial in saved.gone_topics:
            self._topics.pop(serial, None)
        for uid in saved.gone_subscriptions:
            self._subscriptions.pop(uid, None)
            self._progress.pop(uid, None)
        for serial in saved.gone_snapshots:
            self._snapshots.pop(serial, None)
        for number in saved.gone_segments:
            self.segments.pop(number, None)
        if saved.iam:
            self._iam = saved
        self.take_in_messages(saved.messages)

    def take_in_messages(self, saved: Iterable[SavedMessages]) -> None:
        """Take in messages, in any order."""
        for messages in saved:
            self._messages.setdefault(messages.topic, []).append(messages)

    def hand_over(self, broker: Broker, *, now: float) -> None:
        """Let a broker that is new go on from here."""
        broker.serial = self._serial
        topics = self._topics_of(broker, now)
        snapshots = [
            Snapshot(kept.serial, kept.config, topics[kept.topic], self._at(kept, topics))
            for kept in self._snapshots.values()
        ]
        subscriptions = [
            self._subscription(broker, kept, topics, now) for kept in self._subscriptions.values()
        ]
        there = [topic for serial, topic in topics.items() if not self._topics[serial].deleted]
        policies: dict[Resource, schema.Policy] = {}
        policies |= _policies(topics.values(), self._topics.values())
        policies |= _policies(subscriptions, self._subscriptions.values())
        policies |= _policies(snapshots, self._snapshots.values())
        schemas = [
            broker.schemas.go_on(kept.name, kept.revisions) for kept in self._schemas.values()
        ]
        policies |= _policies(schemas, self._schemas.values())
        broker.policies.go_on(self._policy_changes, policies)
        if self._iam:
            broker.policies.projects.update((p.name, p.policy) for p in self._iam.projects)
            roles = ((role.name, frozenset(role.permissions)) for role in self._iam.roles)
            broker.policies.roles.update(roles)
        broker.go_on(there, subscriptions, snapshots, now=now)

    def _topics_of(self, broker: Broker, now: float) -> dict[int, Topic]:
        lows, topics = self._lows(), {}
        for serial, saved in self._topics.items():
            topic = topics[serial] = Topic(serial, saved.config, broker.journal, now=now)
            topic.go_on(self._log(serial, lows.get(serial, 0)), ids_to=saved.ids_to, now=now)
        return topics

    def _log(self, topic: int, low: int) -> TopicLog:
        """The messages of a topic: of what was kept, that which hangs together up to the last.

        Before a gap lies what nobody needed any more when it came to be, and before `low`, if
        that is beyond them, lie all.
        """
        log = TopicLog()
        for messages in sorted(self._messages.pop(topic, ()), key=lambda kept: kept.first):
            if messages.first > log.next:
                log.skip(messages.first - log.next)
            known = log.next - messages.first  # it was written again, from a file that is cleared
            if known < len(messages.records):
                log.extend(messages.records[known:], array("d", messages.times[known:]))
        if low > log.next:
            log.skip(low - log.next)
        return log

    def _lows(self) -> dict[int, int]:
        """By topic, the furthest of the low marks of its subscriptions and snapshots."""
        lows: dict[int, int] = {}
        for uid, subscription in self._subscriptions.items():
            if uid in self._progress:
                low = self._progress[uid].low
                lows[subscription.topic] = max(low, lows.get(subscription.topic, 0))
        for snapshot in self._snapshots.values():
            lows[snapshot.topic] = max(snapshot.position.low, lows.get(snapshot.topic, 0))
        return lows

    def _subscription(
        self, broker: Broker, saved: SavedSubscription, topics: dict[int, Topic], now: float
    ) -> Subscription:
        topic = topics.get(saved.topic)
        if topic is None:  # it was detached, and then its topic deleted
            topic = Topic(saved.topic, schema.Topic(), broker.journal, now=now)
        subscription = Subscription(saved.uid, saved.config, topic, broker.journal, now=now)
        progress = self._progress.get(saved.uid, _Progress())
        active_at = progress.active_at if self._ended else now
        if saved.config.detached:
            saved.config.detached = False  # so that it can be
            subscription.detach()
            # Where it ended: of its topic nothing may be left to tell it.
            subscription.log.skip(max(0, progress.low - subscription.log.next))
            subscription.deliveries.settle_before(subscription.log.next)
            subscription.deliveries.leases.epoch = _next_epoch(saved.epoch)
            subscription.active_at = active_at
            return subscription
        subscription.go_on(
            self._position(progress, topic.log),
            acked_from=saved.acked_after - 1 if saved.acked_after else None,
            epoch=_next_epoch(saved.epoch),
            active_at=active_at,
        )
        return subscription

    def _at(self, saved: SavedSnapshot, topics: dict[int, Topic]) -> Position:
        progress = _Progress()
        progress.take_in(saved.position)
        return self._position(progress, topics[saved.topic].log)

    @staticmethod
    def _position(progress: _Progress, log: TopicLog) -> Position:
        return restored(progress.low, progress.blocks, first=log.first, end=log.next)


def _next_epoch(epoch: int) -> int:
    """One that is later than any that was begun since, and perhaps not saved."""
    return (epoch // _EPOCHS + 1) * _EPOCHS


def _policies(
    resources: Iterable[Resource],
    saved: Iterable[SavedTopic | SavedSubscription | SavedSnapshot | SavedSchema],
) -> dict[Resource, schema.Policy]:
    pairs = zip(resources, saved, strict=True)
    return {resource: kept.policy for resource, kept in pairs if kept.HasField("policy")}

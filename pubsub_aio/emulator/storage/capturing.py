"""From a broker to what is written: its changes, or all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pubsub_aio.emulator.progress import WHOLE
from pubsub_aio.emulator.snapshots import Snapshot
from pubsub_aio.emulator.storage.blocks import saved_position, saved_progress
from pubsub_aio.emulator.storage.saved import (
    Saved,
    SavedMessages,
    SavedProject,
    SavedRole,
    SavedSchema,
    SavedSegment,
    SavedSnapshot,
    SavedSubscription,
    SavedTopic,
)
from pubsub_aio.emulator.subscriptions import Subscription
from pubsub_aio.emulator.topics import Topic

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.changes import Changes
    from pubsub_aio.emulator.policies import Resource
    from pubsub_aio.emulator.schemas.registry import VersionedSchema

PORTION = 4 * 1024 * 1024
"""Bytes of messages that are written in one piece, about."""


def changed(broker: Broker, changes: Changes) -> Saved:
    """What was made, changed, deleted and settled since the last time; all but messages."""
    saved = _counters(broker)
    if changes.projects:
        _add_iam(saved, broker)
    for resource in changes.settings:
        _add(saved, broker, resource)
    for active in changes.traffic:
        if isinstance(active, Subscription) and broker.exists(active):
            _add_progress(saved, active, active.deliveries.progress.touched or set())
    return saved


def everything(broker: Broker, segments: Mapping[int, int]) -> Saved:
    """All of the broker but for its messages, and the files (with their lengths) that have them."""
    saved = _counters(broker)
    saved.whole = True
    _add_iam(saved, broker)
    for versioned in broker.schemas.named.values():
        _add(saved, broker, versioned)
    for topic in broker.kept_topics():
        _add(saved, broker, topic)
    for snapshot in broker.snapshots.values():
        _add(saved, broker, snapshot)
    for subscription in broker.subscriptions.values():
        _add(saved, broker, subscription)
        _add_progress(saved, subscription, {WHOLE})
    for number, length in segments.items():
        saved.segments.append(SavedSegment(number=number, length=length))
    return saved


def unsaved_messages(topic: Topic) -> Iterator[Saved]:
    """The messages of a topic that are kept and not saved."""
    return messages(topic, topic.saved, topic.log.next)


def messages(topic: Topic, start: int, stop: int) -> Iterator[Saved]:
    """The messages of a topic from `start` up to `stop`, as far as they are kept, in portions."""
    start = max(start, topic.log.first)
    saved, portion, size = *_portion(topic, start), 0
    for records, times in topic.log.parts(start, stop):
        for begin, end in _by_size(records):
            portion.records.extend(records[begin:end])
            portion.times.extend(times[begin:end])
            start += end - begin
            size += sum(map(len, records[begin:end]))
            if size > PORTION and start < stop:
                yield saved
                saved, portion, size = *_portion(topic, start), 0
    if portion.records:
        yield saved


def _by_size(records: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Where to cut records so that no piece is large, unless one record is."""
    begin = size = 0
    if sum(map(len, records)) > PORTION:
        for at, record in enumerate(records):
            if size and size + len(record) > PORTION:
                yield begin, at
                begin, size = at, 0
            size += len(record)
    yield begin, len(records)


def _portion(topic: Topic, start: int) -> tuple[Saved, SavedMessages]:
    saved = Saved(messages=[SavedMessages(topic=topic.serial, first=start)])
    return saved, saved.messages[0]  # filled in its place: messages are large


def _counters(broker: Broker) -> Saved:
    return Saved(serial=broker.serial, policy_changes=broker.policies.changes)


def _add_iam(saved: Saved, broker: Broker) -> None:
    """Add what is granted on projects, and roles."""
    saved.iam = True
    for project, policy in broker.policies.projects.items():
        saved.projects.append(SavedProject(name=project, policy=policy))
    for role, permissions in broker.policies.roles.items():
        saved.roles.append(SavedRole(name=role, permissions=sorted(permissions)))


def _add(saved: Saved, broker: Broker, resource: Resource) -> None:
    """Add a resource's settings, or that it is gone."""
    there = broker.exists(resource)
    if isinstance(resource, Topic):
        if there:
            saved.topics.append(_topic(broker, resource))
        else:
            saved.gone_topics.append(resource.serial)
    elif isinstance(resource, Subscription):
        if there:
            saved.subscriptions.append(_subscription(broker, resource))
        else:
            saved.gone_subscriptions.append(resource.uid)
    elif isinstance(resource, Snapshot):
        if there:
            saved.snapshots.append(_snapshot(broker, resource))
        else:
            saved.gone_snapshots.append(resource.serial)
    elif there:
        saved.schemas.append(_schema(broker, resource))
    else:
        saved.gone_schemas.append(resource.name)


def _topic(broker: Broker, topic: Topic) -> SavedTopic:
    return SavedTopic(
        serial=topic.serial,
        ids_to=topic.ids_to,
        deleted=broker.topics.get(topic.config.name) is not topic,
        config=topic.config,
        policy=broker.policies.kept(topic),
    )


def _subscription(broker: Broker, subscription: Subscription) -> SavedSubscription:
    acked_from = subscription.acked_from
    return SavedSubscription(
        uid=subscription.uid,
        topic=subscription.topic.serial,
        epoch=subscription.deliveries.leases.epoch,
        acked_after=0 if acked_from is None else acked_from + 1,
        config=subscription.config,
        policy=broker.policies.kept(subscription),
    )


def _snapshot(broker: Broker, snapshot: Snapshot) -> SavedSnapshot:
    return SavedSnapshot(
        serial=snapshot.serial,
        topic=snapshot.topic.serial,
        config=snapshot.config,
        policy=broker.policies.kept(snapshot),
        position=saved_position(snapshot.position),
    )


def _schema(broker: Broker, versioned: VersionedSchema) -> SavedSchema:
    return SavedSchema(
        name=versioned.name,
        revisions=[revision.config for revision in versioned.revisions.values()],
        policy=broker.policies.kept(versioned),
    )


def _add_progress(saved: Saved, subscription: Subscription, touched: set[int]) -> None:
    progress, active_at = subscription.deliveries.progress, subscription.active_at
    saved.progress.append(saved_progress(subscription.uid, progress, touched, active_at=active_at))
    progress.touched = set()

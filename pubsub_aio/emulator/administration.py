"""Topics, subscriptions, snapshots and schemas: made, changed, deleted, published to and sought.

Pure, as all of the broker is: every call is told the time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence

from pubsub_aio._wire import schema
from pubsub_aio.emulator import resources, settings
from pubsub_aio.emulator.alarms import Alarms
from pubsub_aio.emulator.catalogue import Catalogue
from pubsub_aio.emulator.dead_letters import forwarded
from pubsub_aio.emulator.intake import taken_in
from pubsub_aio.emulator.journal import Journal
from pubsub_aio.emulator.names import DELETED_TOPIC, check_name, project_of
from pubsub_aio.emulator.push_settings import keep_version, modified
from pubsub_aio.emulator.schemas.registry import DELETED_SCHEMA, VersionedSchema
from pubsub_aio.emulator.snapshots import Snapshot
from pubsub_aio.emulator.status import Code, StatusError, already_exists, not_found
from pubsub_aio.emulator.subscriptions import Stream, Subscription, detached, not_pulled
from pubsub_aio.emulator.topics import Topic

_TRIM_BYTES = 4 * 1024 * 1024
_IDS_AT_ONCE = 1 << 20


class Administration(Catalogue):
    """What there is, and what becomes of it when somebody changes it.

    Args:
        instance: A number that tells this broker's ack ids from another's.
        journal: What remembers events for inspection.
    """

    def __init__(self, *, instance: int, journal: Journal | None) -> None:
        super().__init__()
        self.journal = journal or Journal()
        self.changed: dict[Subscription, None] = {}  # a set, in the order of what happened
        """Subscriptions that may have something new to deliver or streams that ended."""
        self.unserved: dict[Subscription, None] = {}
        """Subscriptions that began to push; whoever pushes takes them out."""
        self._alarms: Alarms[Topic | Subscription | Snapshot | Stream] = Alarms()
        self._instance = instance

    def _settle(self, subscription: Subscription, now: float) -> None:
        """After something happened to a subscription: see to the consequences."""
        next_at = subscription.poll(now)
        deliveries = subscription.deliveries
        if deliveries.dead:
            self._forward_dead(subscription, now)
        if deliveries.progress.touched:
            self._mark_traffic(subscription)
        if deliveries.progress.freed or deliveries.leases.released_bytes > _TRIM_BYTES:
            deliveries.progress.freed = False
            deliveries.leases.released_bytes = 0
            subscription.topic.trim(now)
        self._alarms.set(subscription, next_at)
        self.changed[subscription] = None

    def go_on(
        self,
        topics: Iterable[Topic],
        subscriptions: Iterable[Subscription],
        snapshots: Iterable[Snapshot],
        *,
        now: float,
    ) -> None:
        """Take over the resources of an earlier life."""
        for snapshot in snapshots:
            self.snapshots[snapshot.config.name] = snapshot
            snapshot.topic.snapshots[snapshot.config.name] = snapshot
            self._alarms.set(snapshot, snapshot.expires_at)
        for subscription in subscriptions:
            self.subscriptions[subscription.config.name] = subscription
            if not subscription.config.detached:
                subscription.topic.subscriptions[subscription.config.name] = subscription
        for topic in topics:
            self.topics[topic.config.name] = topic
            self._alarms.set(topic, topic.poll(now))
            self._ask_schema(topic)
        for subscription in self.subscriptions.values():
            self._settle(subscription, now)
        self._retell()

    def _forward_dead(self, subscription: Subscription, now: float) -> None:
        """Publish what was tried often enough to the dead-letter topic.

        What that does not take, since it is gone or by its schema, stays and is tried again.
        """
        deliveries, name = subscription.deliveries, subscription.config.name
        dead, deliveries.dead = deliveries.dead, []
        target = self.topics.get(subscription.config.dead_letter_policy.dead_letter_topic)
        for offset, attempts in dead if target else ():
            if target and not deliveries.progress.is_settled(offset):
                record = subscription.log.record(offset)
                body = forwarded(record, subscription=name, attempts=attempts)
                with contextlib.suppress(StatusError):
                    bodies = taken_in(target, [body])
                    self.publish(target.config.name, bodies, now=now)
                    deliveries.discard(offset)

    # Topics

    def create_topic(self, config: schema.Topic, *, now: float) -> schema.Topic:
        """Create a topic with these settings."""
        settings.check_topic(config)
        if config.HasField("schema_settings"):
            self.schemas.check_settings(config.schema_settings, schema.SchemaSettings())
        if config.name in self.topics:
            raise already_exists(config.name)
        topic = Topic(self._next_serial(), config, self.journal, now=now)
        self._ask_schema(topic)
        self.topics[config.name] = topic
        self._alarms.set(topic, topic.poll(now))
        self._mark(topic)
        return config

    def _ask_schema(self, topic: Topic) -> None:
        """Let the topic's messages be checked against its schema, if it has one."""
        has_one = topic.config.HasField("schema_settings")
        topic.admit = self.schemas.admit if has_one else None

    def topic(self, name: str) -> Topic:
        """The topic of that name."""
        return resources.find(self.topics, name, "topics", field="topic")

    def update_topic(
        self, config: schema.Topic, mask: schema.FieldMask, *, now: float
    ) -> schema.Topic:
        """Change the named settings of a topic."""
        topic = resources.find(self.topics, config.name, "topics", field="topic.name")
        settings.check_mask(mask, settings.MUTABLE_TOPIC, config)
        changed = resources.merged(topic.config, config, mask)
        settings.check_topic(changed)
        if changed.HasField("schema_settings"):
            self.schemas.check_settings(changed.schema_settings, topic.config.schema_settings)
        topic.config = changed
        self._ask_schema(topic)
        for subscription in topic.subscriptions.values():
            resources.show_retention(subscription.config, changed)
            self._settle(subscription, now)
        self._alarms.set(topic, topic.poll(now))
        self._mark(topic, *topic.subscriptions.values())
        return changed

    def delete_topic(self, name: str, *, now: float) -> None:
        """Delete a topic; its subscriptions keep what they have not acked."""
        topic = self.topic(name)
        del self.topics[name]
        self._alarms.forget(topic)
        topic.config.ClearField("message_retention_duration")
        for subscription in topic.subscriptions.values():
            subscription.config.topic = DELETED_TOPIC
            resources.show_retention(subscription.config, topic.config)
            self._settle(subscription, now)
        for snapshot in topic.snapshots.values():
            snapshot.config.topic = DELETED_TOPIC
        topic.trim(now)
        self._mark(topic, *topic.subscriptions.values(), *topic.snapshots.values())

    def publish(self, name: str, bodies: Sequence[bytes], *, now: float) -> int:
        """Publish messages that were checked; returns the first's id, the others follow it."""
        topic = self.topics.get(name) or self.topic(name)
        first_id = topic.publish(bodies, now=now)
        if topic.retention:
            self._alarms.set(topic, now + topic.retention)
        self._note_ids(topic)
        if topic.log.first < topic.log.next:
            self._mark_traffic(topic)
        self.changed.update(dict.fromkeys(topic.subscriptions.values()))
        return first_id

    def _note_ids(self, topic: Topic) -> None:
        """See to it that no id is given again in another life: many are set aside at once."""
        if self.changes is not None and topic.next_id > topic.ids_to:
            topic.ids_to = topic.next_id + _IDS_AT_ONCE
            self._mark(topic)

    def publish_some(self, name: str, bodies: Sequence[bytes | None], *, now: float) -> int:
        """The same for messages of which some, the none, are not kept but get their ids."""
        topic = self.topic(name)
        first_id = topic.next_id
        for kept, run in itertools.groupby(bodies, key=lambda body: body is not None):
            if kept:
                self.publish(name, [body for body in run if body is not None], now=now)
            else:
                topic.use_up_ids(len(list(run)))
                self._note_ids(topic)
        return first_id

    # Schemas; whatever touches nothing else is done by `schemas`

    def delete_schema_revision(self, name: str) -> VersionedSchema:
        """Delete a revision, `projects/P/schemas/S@REVISION`; returns its schema."""
        left = self.schemas.delete_revision(name)
        self._retell()
        return left

    def delete_schema(self, name: str) -> None:
        """Delete a schema; nothing more can be published to topics that have it."""
        self.schemas.delete(name)
        for topic in self.topics.values():
            if topic.config.schema_settings.schema == name:
                topic.config.schema_settings.schema = DELETED_SCHEMA
                self._mark(topic)
        self._retell()

    def _retell(self) -> None:
        """From now on messages may name a schema or a revision that is deleted."""
        logs = [topic.log for topic in self.topics.values()]
        logs += [subscription.log for subscription in self.subscriptions.values()]
        for log in logs:
            log.retold = self.schemas.retold

    # Subscriptions

    def create_subscription(
        self, config: schema.Subscription, *, now: float
    ) -> schema.Subscription:
        """Create a subscription; it gets what is published from now on."""
        for output in ("detached", "analytics_hub_subscription_info"):
            config.ClearField(output)
        topic = resources.find(self.topics, config.topic, "topics", field="topic")
        if not config.name:
            project = project_of(config.topic)
            config.name = f"projects/{project}/subscriptions/subscription-{self._next_serial()}"
        settings.check_subscription(config)
        self._check_dead_letter_topic(config)
        if config.name in self.subscriptions:
            raise already_exists(config.name)
        resources.show_retention(config, topic.config)
        uid = (self._instance << 32) | self._next_serial()
        subscription = Subscription(uid, config, topic, self.journal, now=now)
        self.subscriptions[config.name] = topic.subscriptions[config.name] = subscription
        self._mark_new(subscription)
        self._see_to_push(subscription)
        self._settle(subscription, now)
        return config

    def subscription(self, name: str) -> Subscription:
        """The subscription of that name."""
        return resources.find(self.subscriptions, name, "subscriptions", field="subscription")

    def update_subscription(
        self, config: schema.Subscription, mask: schema.FieldMask, *, now: float
    ) -> schema.Subscription:
        """Change the named settings of a subscription."""
        name = config.name
        subscription = resources.find(
            self.subscriptions, name, "subscriptions", field="subscription.name"
        )
        settings.check_mask(mask, settings.MUTABLE_SUBSCRIPTION, config)
        changed = resources.merged(subscription.config, config, mask)
        keep_version(changed, subscription.config)
        settings.check_subscription(changed)
        if any(path.startswith("dead_letter_policy") for path in mask.paths):
            self._check_dead_letter_topic(changed)
        self._configure(subscription, changed, now)
        return changed

    def modify_push_config(self, name: str, config: schema.PushConfig, *, now: float) -> None:
        """Let a subscription push, push elsewhere, or be pulled."""
        subscription = self.subscription(name)
        changed = modified(subscription.config, config)
        settings.check_subscription(changed)
        self._configure(subscription, changed, now)

    def _configure(
        self, subscription: Subscription, config: schema.Subscription, now: float
    ) -> None:
        subscription.configure(config)
        self._mark(subscription)
        self._see_to_push(subscription)
        self._settle(subscription, now)

    def _see_to_push(self, subscription: Subscription) -> None:
        if subscription.pushes:
            self.unserved[subscription] = None
            subscription.end_streams(not_pulled(subscription.config.name))

    def _check_dead_letter_topic(self, config: schema.Subscription) -> None:
        name = config.dead_letter_policy.dead_letter_topic
        if name and name not in self.topics:
            raise not_found(name)

    def delete_subscription(self, name: str, *, now: float) -> None:
        """Delete a subscription; its streams end."""
        subscription = self.subscription(name)
        del self.subscriptions[name]
        self._disconnect(subscription, not_found(name), now)
        self._alarms.forget(subscription)

    def detach_subscription(self, name: str, *, now: float) -> None:
        """Cut a subscription off its topic; its messages are dropped and its streams end."""
        subscription = self.subscription(name)
        subscription.detach()
        self._mark_traffic(subscription)
        self._disconnect(subscription, detached(name), now)

    def _disconnect(self, subscription: Subscription, error: StatusError, now: float) -> None:
        subscription.topic.subscriptions.pop(subscription.config.name, None)
        subscription.topic.trim(now)
        subscription.end_streams(error)
        self.unserved.pop(subscription, None)
        if subscription.pushing:
            subscription.pushing.abandon()
        self.changed[subscription] = None
        self._mark(subscription, subscription.topic)

    # Snapshots

    def create_snapshot(
        self, config: schema.Snapshot, subscription: str, *, now: float
    ) -> schema.Snapshot:
        """Remember what a subscription has not acked."""
        source = self.subscription(subscription)
        source.check_attached()
        if not config.name:
            project = project_of(subscription)
            config.name = f"projects/{project}/snapshots/snapshot-{self._next_serial()}"
        check_name(config.name, "snapshots", field="name")
        settings.check_labels(config.labels)
        if config.name in self.snapshots:
            raise already_exists(config.name)
        snapshot = Snapshot.of(source, config, serial=self._next_serial(), now=now)
        self.snapshots[config.name] = source.topic.snapshots[config.name] = snapshot
        self._alarms.set(snapshot, snapshot.expires_at)
        self._mark(snapshot)
        return config

    def snapshot(self, name: str) -> Snapshot:
        """The snapshot of that name."""
        return resources.find(self.snapshots, name, "snapshots", field="snapshot")

    def update_snapshot(self, config: schema.Snapshot, mask: schema.FieldMask) -> schema.Snapshot:
        """Change the named settings of a snapshot."""
        snapshot = resources.find(self.snapshots, config.name, "snapshots", field="snapshot.name")
        settings.check_mask(mask, settings.MUTABLE_SNAPSHOT, config)
        changed = resources.merged(snapshot.config, config, mask)
        settings.check_snapshot(changed)
        snapshot.config = changed
        self._alarms.set(snapshot, snapshot.expires_at)
        self._mark(snapshot)
        return changed

    def delete_snapshot(self, name: str, *, now: float) -> None:
        """Delete a snapshot, and what only it kept."""
        self._remove_snapshot(self.snapshot(name), now)

    def _remove_snapshot(self, snapshot: Snapshot, now: float) -> None:
        del self.snapshots[snapshot.config.name]
        snapshot.topic.snapshots.pop(snapshot.config.name, None)
        snapshot.topic.trim(now)
        self._alarms.forget(snapshot)
        self._mark(snapshot, snapshot.topic)

    def seek_to_snapshot(self, name: str, snapshot: str, *, now: float) -> None:
        """Let a subscription stand where a snapshot of its topic was taken."""
        subscription, target = self.subscription(name), self.snapshot(snapshot)
        subscription.check_attached()
        if target.topic is not subscription.topic:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"{snapshot} belongs to {target.config.topic}, "
                f"but {name} to {subscription.config.topic}",
            )
        subscription.deliveries.seek(target.position)
        subscription.active_at = now
        self._mark(subscription)
        self._settle(subscription, now)

    def seek_to_time(self, name: str, time: float, *, now: float) -> None:
        """Ack what was published before `time`; bring back what was published since and is kept."""
        subscription = self.subscription(name)
        subscription.check_attached()
        target = subscription.log.first_since(time)
        subscription.deliveries.seek_offset(target, kept_from=subscription.kept_from(now))
        subscription.active_at = now
        self._mark(subscription)
        self._settle(subscription, now)

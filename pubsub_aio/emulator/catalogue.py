"""What there is in a broker, and what of it is to be saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pubsub_aio.emulator.changes import Changes
from pubsub_aio.emulator.policies import Policies
from pubsub_aio.emulator.progress import WHOLE
from pubsub_aio.emulator.schemas.registry import Schemas, VersionedSchema
from pubsub_aio.emulator.subscriptions import Subscription
from pubsub_aio.emulator.topics import Topic

if TYPE_CHECKING:
    from pubsub_aio.emulator.policies import Resource, Target
    from pubsub_aio.emulator.snapshots import Snapshot


class Catalogue:
    """Topics, subscriptions, snapshots, schemas and policies, by their names."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.schemas = Schemas(self._next_serial, self._mark)
        self.policies = Policies(self._mark_policy)
        self.tables: Mapping[str, Mapping[str, Resource]] = {
            "topics": self.topics,
            "subscriptions": self.subscriptions,
            "snapshots": self.snapshots,
            "schemas": self.schemas.named,
        }
        """What has a policy, by its kind and its name."""
        self.policies_changed = False
        """Whether somebody may have lost a permission since this was last looked at."""
        self.changes: Changes | None = None
        """What is to be saved, if somebody saves it."""
        self.serial = 0
        """The last number that was given to a resource or a consumer."""

    def _next_serial(self) -> int:
        self.serial += 1
        return self.serial

    def exists(self, resource: Resource) -> bool:
        """Whether it, or something that needs it, was not deleted."""
        if isinstance(resource, Topic):
            there = self.topics.get(resource.config.name) is resource
            return there or bool(resource.subscriptions or resource.snapshots)
        if isinstance(resource, Subscription):
            return self.subscriptions.get(resource.config.name) is resource
        if isinstance(resource, VersionedSchema):
            return self.schemas.named.get(resource.name) is resource
        return self.snapshots.get(resource.config.name) is resource

    def kept_topics(self) -> list[Topic]:
        """The topics that are there, and the deleted ones that something still needs."""
        topics = dict.fromkeys(self.topics.values())
        topics |= dict.fromkeys(kept.topic for kept in self.subscriptions.values())
        topics |= dict.fromkeys(kept.topic for kept in self.snapshots.values())
        return [topic for topic in topics if self.exists(topic)]

    # What is to be saved

    def save_changes(self) -> Changes:
        """Note from now on what changes."""
        for subscription in self.subscriptions.values():
            subscription.deliveries.progress.touched = set()
        self.changes = Changes()
        return self.changes

    def _mark(self, *resources: Resource) -> None:
        """Note what was made, changed or deleted."""
        if self.changes is not None:
            self.changes.settings.update(dict.fromkeys(resources))

    def _mark_new(self, subscription: Subscription) -> None:
        """Note a subscription that was made, and where it stands."""
        if self.changes is not None:
            subscription.deliveries.progress.touched = {WHOLE}
            self._mark(subscription)

    def _mark_traffic(self, busy: Topic | Subscription) -> None:
        """Note that messages came to a topic, or that a subscription settled some."""
        if self.changes is not None:
            self.changes.traffic[busy] = None

    def _mark_policy(self, target: Target) -> None:
        """Note that something has another policy."""
        self.policies_changed = True
        if self.changes is not None and isinstance(target, str):
            self.changes.projects = True
        elif not isinstance(target, str):
            self._mark(target)

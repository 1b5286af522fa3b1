"""What has to be done for a seed, where some of it may be there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator.seeds.bare import bare
from pubsub_aio.emulator.seeds.calls import Calls
from pubsub_aio.emulator.seeds.mistakes import joined
from pubsub_aio.emulator.seeds.revisions import commit_schema, count_there, create_schema
from pubsub_aio.emulator.settings import MUTABLE_SUBSCRIPTION, MUTABLE_TOPIC

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.seeds.fields import Settings
    from pubsub_aio.emulator.seeds.reading import Seed

_CONSTANT = "is {} where it is there already, and cannot be changed: delete that, or leave it so"


@dataclass(slots=True)
class Step:
    """One call that has to be made."""

    run: Callable[[], object]
    resource: str
    settings: Settings


class Planner:
    """Compares what a seed wants with what is there.

    Args:
        seed: What is wanted.
        wanted: A broker on which it is there.
        real: Where it is wanted.
    """

    def __init__(self, seed: Seed, wanted: Calls, real: Calls) -> None:
        self.steps: list[Step] = []
        self.there: set[str] = set()
        """The resources that are there already."""
        self._seed = seed
        self._wanted = wanted
        self._real = real

    def run(self) -> None:
        """Find out what has to be done; what cannot be is noted as a mistake."""
        for name, revisions in self._seed.schemas.items():
            self._schema(name, revisions)
        for name, settings in self._seed.topics.items():
            self._topic(name, settings)
        for name, settings in self._seed.subscriptions.items():
            self._subscription(name, settings)
        for resource, settings in self._seed.policies.items():
            self._policy(resource, settings)

    def _schema(self, name: str, revisions: list[Settings]) -> None:
        wanted = [_schema_of(settings) for settings in revisions]
        there = self._real.revisions(name)
        if there:
            self.there.add(name)
        done = count_there(there, wanted)
        for index, settings in list(enumerate(revisions))[done:]:
            if there or index:
                self._add("CommitSchema", commit_schema(wanted[index]), name, settings)
            else:
                self._add("CreateSchema", create_schema(wanted[index]), name, settings)

    def _topic(self, name: str, settings: Settings) -> None:
        there, wanted = self._real.topic(name), self._wanted.topic(name)
        assert wanted is not None  # noqa: S101 - it was rehearsed
        if there is None:
            self._add("CreateTopic", wanted, name, settings)
            return
        self.there.add(name)
        mask = self._changed(there, wanted, settings, MUTABLE_TOPIC)
        if mask:
            request = schema.UpdateTopicRequest(topic=wanted, update_mask=mask)
            self._add("UpdateTopic", request, name, settings)

    def _subscription(self, name: str, settings: Settings) -> None:
        there, wanted = self._real.subscription(name), self._wanted.subscription(name)
        assert wanted is not None  # noqa: S101 - it was rehearsed
        if there is None:
            self._add("CreateSubscription", wanted, name, settings)
            return
        self.there.add(name)
        if there.detached:
            what = "is there, but detached from its topic: delete it, or leave it out"
            self._seed.mistakes.add(settings.at, settings.path, what)
            return
        mask = self._changed(there, wanted, settings, MUTABLE_SUBSCRIPTION)
        if mask:
            request = schema.UpdateSubscriptionRequest(subscription=wanted, update_mask=mask)
            self._add("UpdateSubscription", request, name, settings)

    def _policy(self, resource: str, settings: Settings) -> None:
        there = self._real.policy(resource)
        wanted = settings.message
        assert isinstance(wanted, schema.Policy)  # noqa: S101 - for the type checker
        if _bindings(there or schema.Policy()) != _bindings(wanted):
            self.steps.append(
                Step(partial(self._real.set_policy, resource, wanted), resource, settings)
            )

    def _changed(
        self, there: Message, wanted: Message, settings: Settings, mutable: frozenset[str]
    ) -> schema.FieldMask | None:
        """The fields to change; what cannot be changed is noted as a mistake."""
        old, new = _by_field(bare(there)), _by_field(bare(wanted))
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        for name in changed:
            if name not in mutable:
                self._refuse(settings, name, getattr(there, name))
        return schema.FieldMask(paths=changed) if changed else None

    def _refuse(self, settings: Settings, field: str, there: object) -> None:
        shown = repr(there) if isinstance(there, str) else str(there).lower()
        path = joined(settings.path, field)
        self._seed.mistakes.add(settings.place(field), path, _CONSTANT.format(shown[:300]))

    def _add(self, rpc: str, request: Message, resource: str, settings: Settings) -> None:
        self.steps.append(Step(partial(self._real, rpc, request), resource, settings))


def _schema_of(settings: Settings) -> schema.Schema:
    assert isinstance(settings.message, schema.Schema)  # noqa: S101 - for the type checker
    return settings.message


def _by_field(config: Message) -> Mapping[str, object]:
    return {field.name: value for field, value in config.ListFields()}


def _bindings(policy: schema.Policy) -> list[tuple[str, list[str], bytes]]:
    return sorted(
        (binding.role, sorted(binding.members), binding.condition.SerializeToString())
        for binding in policy.bindings
    )

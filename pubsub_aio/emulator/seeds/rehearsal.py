"""A seed rehearsed: on a broker of its own, so that all its mistakes are known beforehand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.names import check_name, id_of
from pubsub_aio.emulator.seeds.calls import Calls, Check
from pubsub_aio.emulator.seeds.mistakes import joined, nearest
from pubsub_aio.emulator.seeds.revisions import commit_schema, count_there, create_schema
from pubsub_aio.emulator.status import Code, StatusError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.seeds.fields import Settings
    from pubsub_aio.emulator.seeds.reading import Seed

    Config = TypeVar("Config", bound=Message)

_MOST_REFUSALS = 20
_REQUESTS = r"(?:(?:topic|subscription|schema|policy)\.)?"
_REFUSAL = re.compile(rf"{_REQUESTS}([a-z_][\w.\[\]]*): (.*)|([a-z_][\w.]*)\b", re.DOTALL)


class Rehearsal:
    """Creates all that a seed wants, and notes what is refused.

    Args:
        seed: What is wanted.
        real: Where it is wanted; it is only looked at.
        now: The time.
        check: Refuses what a broker itself cannot check.
    """

    def __init__(self, seed: Seed, real: Calls, now: float, check: Check) -> None:
        self.calls = Calls(Broker(), now, check)
        """The broker on which everything is there as it would be."""
        self._seed = seed
        self._real = real
        self._refused = set(seed.broken)

    def run(self) -> None:
        """Create everything, in an order in which it can be."""
        for name, revisions in self._seed.schemas.items():
            if name not in self._refused:
                self._schema(name, revisions)
        for name, settings in self._seed.topics.items():
            self._topic(name, settings)
        for name, settings in self._seed.subscriptions.items():
            self._subscription(name, settings)
        for resource, settings in self._seed.policies.items():
            if resource not in self._refused:
                self._policy(resource, settings)

    # Kinds

    def _schema(self, name: str, revisions: list[Settings]) -> None:
        wanted = [_schema_of(settings) for settings in revisions]
        try:
            check_name(name, "schemas", field="name")
            there = self._real.revisions(name)
            self._copy_schema(there)
        except StatusError as refusal:
            self._tell(revisions[0], refusal)
            self._refused.add(name)
            return
        done = count_there(there, wanted)
        for settings, revision in zip(revisions[done:], wanted[done:], strict=True):
            try:
                self._add_revision(revision)
            except StatusError as refusal:
                self._tell(settings, refusal)
                self._refused.add(name)
                return

    def _add_revision(self, revision: schema.Schema) -> None:
        if self.calls.revisions(revision.name):
            self.calls("CommitSchema", commit_schema(revision))
        else:
            self.calls("CreateSchema", create_schema(revision))

    def _copy_schema(self, revisions: list[schema.Schema]) -> None:
        """Have a schema here that is there: what is committed must be compatible with it."""
        for revision in revisions:
            self._add_revision(_copy(revision))

    def _topic(self, name: str, settings: Settings) -> None:
        config = _copy(settings.message)
        assert isinstance(config, schema.Topic)  # noqa: S101 - for the type checker
        wanted = config.schema_settings.schema
        if wanted and not self._has_schema(settings, wanted):
            config.ClearField("schema_settings")
        if not self._create("CreateTopic", config, settings) and not self._stand_in(name):
            self._refused.add(name)

    def _subscription(self, name: str, settings: Settings) -> None:
        config = _copy(settings.message)
        assert isinstance(config, schema.Subscription)  # noqa: S101 - for the type checker
        there = self._has_topic(settings, "topic", config.topic)
        dead = config.dead_letter_policy.dead_letter_topic
        field = "dead_letter_policy.dead_letter_topic"
        if dead and not self._has_topic(settings, field, dead):
            config.ClearField("dead_letter_policy")
        if not there or not self._create("CreateSubscription", config, settings):
            self._refused.add(name)

    def _policy(self, resource: str, settings: Settings) -> None:
        policy = _copy(settings.message)
        assert isinstance(policy, schema.Policy)  # noqa: S101 - for the type checker
        try:
            self.calls.set_policy(resource, policy)
        except StatusError as refusal:
            self._tell(settings, refusal)

    # What they need

    def _has_topic(self, settings: Settings, field: str, name: str) -> bool:
        """Whether the topic is there now; a mistake is noted if it should not be."""
        if name not in self._seed.topics:
            request = schema.GetTopicRequest(topic=name)
            why = self._missing("GetTopic", request, name, self._seed.topics)
            if why:
                self._note(settings, field, why)
            self._stand_in(name)
        return self.calls.broker.topics.get(name) is not None

    def _has_schema(self, settings: Settings, name: str) -> bool:
        """The same for a schema."""
        if name in self._seed.schemas:
            return name not in self._refused
        request = schema.GetSchemaRequest(name=name)
        why = self._missing("GetSchema", request, name, self._seed.schemas)
        if why:
            self._note(settings, "schema_settings.schema", why)
            return False
        if not self.calls.revisions(name):
            self._copy_schema(self._real.revisions(name))
        return True

    def _missing(self, rpc: str, request: Message, name: str, known: Iterable[str]) -> str:
        """Why there is no such thing where the seed goes; empty if there is."""
        try:
            self._real(rpc, request)
        except StatusError as refusal:
            if refusal.code == Code.NOT_FOUND:
                near = nearest(id_of(name), map(id_of, known))
                return f"{name} is neither in this file nor in the emulator{near}"
            return _why(refusal)[1]
        return ""

    def _stand_in(self, name: str) -> bool:
        """Have a topic of that name, whatever its settings: others are to be looked at with it."""
        if name not in self.calls.broker.topics:
            try:
                self.calls("CreateTopic", schema.Topic(name=name))
            except StatusError:
                return False
        return True

    # Refusals

    def _create(self, rpc: str, config: Message, settings: Settings) -> bool:
        """Create something, without what is refused; returns whether it is there then."""
        for _ in range(_MOST_REFUSALS):
            try:
                self.calls(rpc, _copy(config))
            except StatusError as refusal:
                field, _ = _why(refusal)
                given = {field.name for field, _ in config.ListFields()} - {"name", "topic"}
                top = re.split(r"[.\[]", field)[0]
                self._tell(settings, refusal)
                if top not in given:
                    return False
                config.ClearField(top)
            else:
                return True
        return False

    def _tell(self, settings: Settings, refusal: StatusError) -> None:
        self._note(settings, *_why(refusal))

    def _note(self, settings: Settings, field: str, why: str) -> None:
        path = joined(settings.path, field) if field and field != "name" else settings.path
        self._seed.mistakes.add(settings.place(field), path, why)


def _why(refusal: StatusError) -> tuple[str, str]:
    """The field that a refusal names, and what it says of it."""
    found = _REFUSAL.match(refusal.message)
    if found and found[1]:
        return found[1], found[2]
    return (found[3] if found and "." in found[3] else ""), refusal.message


def _schema_of(settings: Settings) -> schema.Schema:
    assert isinstance(settings.message, schema.Schema)  # noqa: S101 - for the type checker
    return _copy(settings.message)


def _copy(message: Config) -> Config:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy

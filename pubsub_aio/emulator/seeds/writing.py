"""What was found in a project as the text of a seed file: always the same for the same."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from pubsub_aio._wire import schema
from pubsub_aio.emulator.seeds.bare import bare
from pubsub_aio.emulator.seeds.durations import written
from pubsub_aio.errors import MissingExtraError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.seeds.survey import Survey

_OTHER_BREAKS = set("\r\x85\u2028\u2029")
_HEAD = """\
# Written by `pubsub-aio emulator export`, read by `pubsub-aio emulator --seed`.
# Left out: what has its default; messages, snapshots, detached subscriptions and those of deleted
# topics, ids of schema revisions, IAM bindings of the project.
"""


def as_text(found: Survey) -> str:
    """The file."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("`pubsub-aio emulator export`", "emulator") from error

    class Dumper(yaml.SafeDumper):
        """Texts of several lines as they are, and nothing for nothing."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        style = "|" if "\n" in value else None
        if _OTHER_BREAKS & set(value):
            style = '"'  # elsewhere YAML takes each for a line's end
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def nothing(dumper: yaml.SafeDumper, _: None) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:null", "")

    Dumper.add_representer(str, text)
    Dumper.add_representer(type(None), nothing)
    Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    wide = 1_000_000
    body = yaml.dump(
        _Writer(found).file(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=wide
    )
    return _HEAD + body


class _Writer:
    def __init__(self, found: Survey) -> None:
        self._found = found
        self._below: dict[str, list[schema.Subscription]] = {}
        for _, subscription in sorted(found.subscriptions.items()):
            self._below.setdefault(subscription.topic, []).append(subscription)

    def file(self) -> dict[str, Any]:
        """The whole file as plain values."""
        found = self._found
        sections = {
            "project": found.project,
            "schemas": {
                self._short(name): self._schema(name, revisions)
                for name, revisions in sorted(found.schemas.items())
            },
            "topics": {
                self._short(name): self._topic(topic)
                for name, topic in sorted(found.topics.items())
            },
        }
        return {key: value for key, value in sections.items() if value}

    def _schema(self, name: str, revisions: list[schema.Schema]) -> dict[str, Any]:
        kind = schema.Schema.Type.Name(revisions[-1].type_)
        texts = [revision.definition for revision in revisions]
        if len(texts) == 1:
            given: dict[str, Any] = {"type": kind, "definition": texts[0]}
        else:
            given = {"type": kind, "revisions": [{"definition": text} for text in texts]}
        return given | self._iam_of(name)

    def _topic(self, topic: schema.Topic) -> dict[str, Any] | None:
        config = bare(topic)
        config.ClearField("name")
        if config.schema_settings.schema:
            config.schema_settings.schema = self._short(config.schema_settings.schema)
        below = {
            self._short(subscription.name): self._subscription(subscription)
            for subscription in self._below.get(topic.name, ())
        }
        subscriptions = {"subscriptions": below} if below else {}
        return (plain(config) | self._iam_of(topic.name) | subscriptions) or None

    def _subscription(self, subscription: schema.Subscription) -> dict[str, Any] | None:
        config = bare(subscription)
        config.ClearField("name")
        config.ClearField("topic")
        dead = config.dead_letter_policy
        if dead.dead_letter_topic:
            dead.dead_letter_topic = self._short(dead.dead_letter_topic)
        return (plain(config) | self._iam_of(subscription.name)) or None

    def _iam_of(self, resource: str) -> dict[str, Any]:
        policy = self._found.policies.get(resource)
        if policy is None:
            return {}
        bindings = sorted(policy.bindings, key=lambda b: (b.role, b.condition.title, str(b)))
        roles = {binding.role: sorted(binding.members) for binding in bindings}
        if len(roles) < len(bindings) or any(b.HasField("condition") for b in bindings):
            return {"iam": {"bindings": [plain(binding) for binding in bindings]}}
        return {"iam": roles}

    def _short(self, name: str) -> str:
        """A name without its project, if that is the file's."""
        own = f"projects/{self._found.project}/"
        return name.rpartition("/")[2] if name.startswith(own) else name


def plain(message: Message) -> dict[str, Any]:
    """The fields that are set, as they are written in a file."""
    return {
        field.name.rstrip("_"): _value(field, value)
        for field, value in sorted(message.ListFields(), key=lambda item: item[0].name)
    }


def _value(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind and kind.GetOptions().map_entry:
        return dict(sorted(value.items()))
    if field.is_repeated:
        return [_one(field, item) for item in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else value
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if not field.message_type:
        return value
    name = field.message_type.full_name
    if name == "google.protobuf.Duration":
        return written(value.seconds * 10**9 + value.nanos)
    if name == "google.protobuf.Timestamp":
        return value.ToJsonString()
    if name == "google.protobuf.Struct":
        return _ordered(json_format.MessageToDict(value, descriptor_pool=schema.pool))
    return plain(value)


def _ordered(value: Any) -> Any:
    """A value of no declared type with its keys in order, at any depth."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value

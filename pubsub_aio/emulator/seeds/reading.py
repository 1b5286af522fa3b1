"""A seed file as the resources that it wants."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pubsub_aio._wire import schema
from pubsub_aio.emulator.names import check_project
from pubsub_aio.emulator.seeds.fields import Settings, SettingsReader
from pubsub_aio.emulator.seeds.files import read_text
from pubsub_aio.emulator.seeds.mistakes import Mistakes, joined, nearest
from pubsub_aio.emulator.seeds.tree import Mapping, Node, Scalar, Sequence, read_tree
from pubsub_aio.emulator.status import StatusError

_SECTIONS = ("project", "schemas", "topics", "subscriptions", "iam")
_TYPES = {".avsc": schema.Schema.Type.AVRO, ".proto": schema.Schema.Type.PROTOCOL_BUFFER}
_WITH_CONDITIONS = 3  # the version of a policy that may have them


@dataclass(eq=False)
class Seed:
    """What a file wants to be there, each resource by its full name."""

    mistakes: Mistakes
    project: str
    schemas: dict[str, list[Settings]] = field(default_factory=dict)
    """The revisions of each, the oldest first."""

    topics: dict[str, Settings] = field(default_factory=dict)
    subscriptions: dict[str, Settings] = field(default_factory=dict)
    policies: dict[str, Settings] = field(default_factory=dict)
    """By the resource that they are of."""

    broken: set[str] = field(default_factory=set)
    """Schemas of which it is known already that they cannot be as they are."""


def read_seed(path: Path, *, project: str | None, default_project: str) -> Seed:
    """Read a file.

    Args:
        path: The file.
        project: The project of short names, whatever the file says.
        default_project: The same, if the file does not say.

    Raises:
        SeedError: It cannot be read. Other mistakes are in the seed, for more may be found.
    """
    mistakes = Mistakes(str(path))
    try:
        text = read_text(path)
    except ValueError as error:
        raise mistakes.stop(None, "", str(error)) from error
    root = read_tree(text, mistakes)
    if not isinstance(root, Mapping):
        what = f"must have one of {', '.join(_SECTIONS)}, such as `topics:`"
        raise mistakes.stop(root, "", what)
    reader = _Reader(mistakes, path.parent)
    reader.seed.project = project or reader.project(root) or default_project
    reader.read(root)
    return reader.seed


class _Reader:
    """Goes through a file; what is wrong is noted."""

    def __init__(self, mistakes: Mistakes, folder: Path) -> None:
        self.seed = Seed(mistakes, "")
        self._mistakes = mistakes
        self._settings = SettingsReader(mistakes, folder)

    def project(self, root: Mapping) -> str | None:
        """The project that the file names."""
        node = root.get("project")
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return None
        text = node.text if isinstance(node, Scalar) else ""
        try:
            check_project(f"projects/{text}", field="project")
        except StatusError:
            self._mistakes.add(node, "project", f"{text[:80]!r} is no valid project id")
            return None
        return text

    def read(self, root: Mapping) -> None:
        """Read all sections."""
        for key, node in root.entries:
            if key.text == "schemas":
                for name, given, path in self._named(node, "schemas"):
                    self._schema(name, given, path)
            elif key.text == "topics":
                for name, given, path in self._named(node, "topics"):
                    self._topic(name, given, path)
            elif key.text == "subscriptions":
                for name, given, path in self._named(node, "subscriptions"):
                    self._subscription(name, given, path, topic="")
            elif key.text == "iam":
                self._policy(f"projects/{self.seed.project}", node, "iam")
            elif key.text not in _SECTIONS and not key.text.startswith("x-"):
                what = f"no such section{nearest(key.text, _SECTIONS)}"
                known = f"; there are {', '.join(_SECTIONS)}"
                self._mistakes.add(key, key.text, what + ("" if "mean" in what else known))

    # Kinds

    def _schema(self, name: Scalar, given: Node, path: str) -> None:
        full, before = self._full(name.text, "schemas"), len(self._mistakes)
        settings = Settings(schema.Schema(name=full), path, name)
        self._settings.read(settings, given, without=("iam", "revisions"))
        self._infer_type(settings, given)
        revisions = [settings]
        several = given.get("revisions") if isinstance(given, Mapping) else None
        if several is not None:
            revisions = self._revisions(settings, several)
        if self._is_new(full, self.seed.schemas, name, path):
            self.seed.schemas[full] = revisions
        if len(self._mistakes) > before:
            self.seed.broken.add(full)
        self._policy_in(given, full, path)

    def _infer_type(self, settings: Settings, given: Node) -> None:
        """The type that the name of a definition's file tells."""
        file = given.get("definition_file") if isinstance(given, Mapping) else None
        if isinstance(file, Scalar) and not settings.message.type_:  # type: ignore[attr-defined]
            kind = _TYPES.get(Path(file.text).suffix, schema.Schema.Type.TYPE_UNSPECIFIED)
            settings.message.type_ = kind  # type: ignore[attr-defined]

    def _revisions(self, whole: Settings, several: Node) -> list[Settings]:
        path = joined(whole.path, "revisions")
        if "definition" in whole.places:
            self._mistakes.add(several, path, "excludes definition: it is the last of these")
        if not isinstance(several, Sequence) or not several.items:
            what = "must be a list, the oldest first, each with a definition"
            self._mistakes.add(several, path, what)
            return []
        revisions = []
        for index, item in enumerate(several.items):
            revision = Settings(schema.Schema(), f"{path}[{index}]", item)
            revision.message.CopyFrom(whole.message)
            self._settings.read(revision, item)
            self._infer_type(revision, item)
            revisions.append(revision)
        return revisions

    def _topic(self, name: Scalar, given: Node, path: str) -> None:
        full = self._full(name.text, "topics")
        settings = Settings(schema.Topic(name=full), path, name)
        self._settings.read(settings, given, without=("subscriptions", "iam"))
        topic = settings.message
        assert isinstance(topic, schema.Topic)  # noqa: S101 - for the type checker
        if topic.schema_settings.schema:
            topic.schema_settings.schema = self._full(topic.schema_settings.schema, "schemas")
        if self._is_new(full, self.seed.topics, name, path):
            self.seed.topics[full] = settings
        self._policy_in(given, full, path)
        below = given.get("subscriptions") if isinstance(given, Mapping) else None
        if below is not None:
            for named, inner, inner_path in self._named(below, joined(path, "subscriptions")):
                self._subscription(named, inner, inner_path, topic=full)

    def _subscription(self, name: Scalar, given: Node, path: str, *, topic: str) -> None:
        full = self._full(name.text, "subscriptions")
        config = schema.Subscription(name=full, topic=topic)
        settings = Settings(config, path, name)
        own = given.get("topic") if isinstance(given, Mapping) else None
        if topic and own is not None:
            self._mistakes.add(own, joined(path, "topic"), "is the topic above: leave it out")
        self._settings.read(settings, given, without=("iam", "topic") if topic else ("iam",))
        if not config.topic:
            what = "must name its topic, unless it stands below one"
            self._mistakes.add(settings.place("topic"), joined(path, "topic"), what)
            return
        config.topic = self._full(config.topic, "topics")
        policy = config.dead_letter_policy
        if policy.dead_letter_topic:
            policy.dead_letter_topic = self._full(policy.dead_letter_topic, "topics")
        if self._is_new(full, self.seed.subscriptions, name, path):
            self.seed.subscriptions[full] = settings
        self._policy_in(given, full, path)

    def _policy_in(self, given: Node, resource: str, path: str) -> None:
        node = given.get("iam") if isinstance(given, Mapping) else None
        if node is not None:
            self._policy(resource, node, joined(path, "iam"))

    def _policy(self, resource: str, node: Node, path: str) -> None:
        """Who may do what with a resource: `role: [member, ...]`, or the API's bindings."""
        policy = schema.Policy()
        settings = Settings(policy, path, node)
        settings.places[""] = node
        if not isinstance(node, Mapping):
            if not (isinstance(node, Scalar) and node.is_null):
                what = "must be roles with a list of members each, or `bindings`"
                self._mistakes.add(node, path, what)
            return
        if node.get("bindings") is not None:
            self._settings.read(settings, node)
        else:
            for role, members in node.entries:
                self._binding(settings, policy, role, members)
        policy.version = max(policy.version, _WITH_CONDITIONS * _has_conditions(policy))
        self.seed.policies[resource] = settings

    def _binding(
        self, settings: Settings, policy: schema.Policy, role: Scalar, members: Node
    ) -> None:
        items = members.items if isinstance(members, Sequence) else [members]
        texts = [item.text for item in items if isinstance(item, Scalar) and not item.is_null]
        if len(texts) < len(items):
            what = "must be a list of members, such as user:me@example.com"
            at = role if isinstance(members, Scalar) else members
            self._mistakes.add(at, joined(settings.path, role.text), what)
            return
        place = f"bindings[{len(policy.bindings)}]"
        settings.places |= {place: role, f"{place}.members": members}
        policy.bindings.add(role=role.text, members=texts)

    # Names

    def _named(self, node: Node, path: str) -> Iterator[tuple[Scalar, Node, str]]:
        """The resources of a section: a name and what it is given, or a list of these."""
        if isinstance(node, Scalar) and node.is_null:
            return
        if isinstance(node, Mapping):
            for key, value in node.entries:
                yield key, value, joined(path, key.text)
            return
        if not isinstance(node, Sequence):
            what = "must be a list of names, or names with settings, each a line `name:`"
            self._mistakes.add(node, path, what)
            return
        for index, item in enumerate(node.items):
            name = item.get("name") if isinstance(item, Mapping) else item
            if not isinstance(name, Scalar) or name.is_null:
                what = "must be a name, or settings with a `name`"
                self._mistakes.add(item, f"{path}[{index}]", what)
            elif isinstance(item, Mapping):
                rest = [entry for entry in item.entries if entry[1] is not name]
                yield name, Mapping(item.line, item.column, rest), joined(path, name.text)
            else:
                yield name, Scalar(item.line, item.column, "", plain=True), joined(path, name.text)

    def _full(self, name: str, kind: str) -> str:
        return name if "/" in name else f"projects/{self.seed.project}/{kind}/{name}"

    def _is_new(self, full: str, known: Container[str], name: Scalar, path: str) -> bool:
        if full in known:
            self._mistakes.add(name, path, f"{full} is given twice: leave one of them out")
        return full not in known


def _has_conditions(policy: schema.Policy) -> bool:
    return any(binding.HasField("condition") for binding in policy.bindings)

"""What a running emulator has in a project, asked over its REST API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlencode

from google.protobuf import json_format

from pubsub_aio._wire import schema
from pubsub_aio.emulator.names import DELETED_TOPIC, project_of
from pubsub_aio.emulator.seeds.calls import SHOW_CONDITIONS
from pubsub_aio.errors import NotFoundError, ServiceError, UnavailableError, UnsupportedError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    Parsed = TypeVar("Parsed", bound=Message)

DELETED_SCHEMA = "_deleted-schema_"
"""What a topic shows as its schema once that was deleted."""

_PATIENCE = 30.0  # seconds to wait for an answer
_MAX_ANSWER = 64 * 1024 * 1024
_MAX_PAGES = 10_000
_PAGE = 1_000


@dataclass
class Survey:
    """The resources of a project, by their full names, and what they need of other projects."""

    project: str
    schemas: dict[str, list[schema.Schema]] = field(default_factory=dict)
    """The revisions of each, the oldest first."""

    topics: dict[str, schema.Topic] = field(default_factory=dict)
    subscriptions: dict[str, schema.Subscription] = field(default_factory=dict)
    policies: dict[str, schema.Policy] = field(default_factory=dict)
    """By the resource that they are of; only those with bindings."""

    left_out: list[str] = field(default_factory=list)
    """What there is but cannot be in a file, a line each."""


def survey(address: str, project: str) -> Survey:
    """Ask an emulator for all that it has in a project.

    Raises:
        ServiceError: It does not answer, or refuses.
    """
    with _Rest(address) as rest:
        return _Surveyor(rest, project).run()


class _Surveyor:
    def __init__(self, rest: _Rest, project: str) -> None:
        self._rest = rest
        self._found = Survey(project)

    def run(self) -> Survey:
        found, parent = self._found, f"projects/{self._found.project}"
        for item in self._rest.pages(f"{parent}/topics", "topics"):
            self._add_topic(_parsed(schema.Topic, item))
        for item in self._rest.pages(f"{parent}/subscriptions", "subscriptions"):
            self._add_subscription(_parsed(schema.Subscription, item))
        for name in self._schema_names(parent):
            self._add_schema(name)
        for resource in [*found.schemas, *found.topics, *found.subscriptions]:
            self._add_policy(resource)
        for item in self._rest.pages(f"{parent}/snapshots", "snapshots"):
            found.left_out.append(f"{item['name']}: a snapshot is of messages")
        return found

    def _add_topic(self, topic: schema.Topic) -> None:
        self._found.topics[topic.name] = topic
        settings = topic.schema_settings
        if settings.schema == DELETED_SCHEMA:
            self._leave_out(f"{topic.name}: its schema was deleted; it is there without one")
            topic.ClearField("schema_settings")
        elif settings.first_revision_id or settings.last_revision_id:
            self._leave_out(
                f"{topic.name}: the revisions of its schema that it takes; ids of revisions are "
                "new wherever they are made"
            )
            settings.first_revision_id = settings.last_revision_id = ""
        if settings.schema and project_of(settings.schema) != self._found.project:
            self._add_schema(settings.schema)

    def _add_subscription(self, config: schema.Subscription) -> None:
        if config.detached or config.topic == DELETED_TOPIC:
            why = "it is detached" if config.detached else "its topic was deleted"
            self._leave_out(f"{config.name}: {why}")
            return
        if not self._has_topic(config.topic):
            self._leave_out(f"{config.name}: {config.topic} is not there")
            return
        self._found.subscriptions[config.name] = config
        dead = config.dead_letter_policy.dead_letter_topic
        if dead and not self._has_topic(dead):
            self._leave_out(f"{config.name}: its dead_letter_policy, whose topic was deleted")
            config.ClearField("dead_letter_policy")

    def _has_topic(self, name: str) -> bool:
        """Whether a topic is there; one of another project is looked for."""
        if name not in self._found.topics and project_of(name) != self._found.project:
            topic = self._rest.find(name)
            if topic is not None:
                self._add_topic(_parsed(schema.Topic, topic))
        return name in self._found.topics

    def _schema_names(self, parent: str) -> list[str]:
        try:
            return [item["name"] for item in self._rest.pages(f"{parent}/schemas", "schemas")]
        except UnsupportedError:
            return []

    def _add_schema(self, name: str) -> None:
        pages = self._rest.pages(f"{name}:listRevisions", "schemas", view="FULL")
        revisions = [_parsed(schema.Schema, item) for item in pages]
        if revisions:
            self._found.schemas[name] = revisions[::-1]

    def _add_policy(self, resource: str) -> None:
        query = {"options.requestedPolicyVersion": str(SHOW_CONDITIONS)}
        try:
            found = self._rest.find(f"{resource}:getIamPolicy", **query)
        except ServiceError as refusal:
            if refusal.code != "INVALID_ARGUMENT":
                raise
            found = None  # Google's emulator takes the whole for the name of a schema
        policy = _parsed(schema.Policy, found or {})
        if policy.bindings:
            self._found.policies[resource] = policy

    def _leave_out(self, line: str) -> None:
        self._found.left_out.append(line)


_AS_OWNER = {"x-emulator-principal": "owner"}
"""For an emulator that enforces permissions."""


class _Rest:
    """Calls to an emulator, one after another on one connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        try:
            self._connection = http.client.HTTPConnection(address, timeout=_PATIENCE)
        except http.client.InvalidURL as error:
            raise self._silent(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def pages(self, path: str, of: str, **query: str) -> Iterator[dict[str, Any]]:
        """What is listed there, on all pages."""
        token = ""
        for _ in range(_MAX_PAGES):
            if token:
                query["pageToken"] = token
            page = self._get(path, pageSize=str(_PAGE), **query)
            yield from page.get(of, ())
            token = page.get("nextPageToken", "")
            if not token:
                return
        raise ServiceError("OUT_OF_RANGE", f"{path} does not end")

    def find(self, path: str, **query: str) -> dict[str, Any] | None:
        """What is there; none if nothing is, or nothing of the kind can be."""
        try:
            return self._get(path, **query)
        except (NotFoundError, UnsupportedError):
            return None

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        target = f"/v1/{quote(path, safe='/:~+%')}?{urlencode(query)}"
        try:
            self._connection.request("GET", target, headers=_AS_OWNER)
            response = self._connection.getresponse()
            data = response.read(_MAX_ANSWER)
            answer = json.loads(data or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._silent(error) from error
        if not isinstance(answer, dict):
            raise self._silent(ValueError("it does not answer as Pub/Sub does"))
        if response.status == 200:
            return answer
        raise _refusal(response.status, answer)

    def _silent(self, error: Exception) -> UnavailableError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        why = " ".join(str(why).split())[:200]
        what = f"no emulator answers at {self._address} ({why}): start one, or name its address"
        return UnavailableError("UNAVAILABLE", what)


def _refusal(status: int, answer: dict[str, Any]) -> Exception:
    error = answer.get("error")
    message = str(error.get("message", "")) if isinstance(error, dict) else ""
    message = message or f"it answered {status}"
    if status == 404:
        return NotFoundError("NOT_FOUND", message)
    if status == 501:
        return UnsupportedError(message)
    code = str(error.get("status", "")) if isinstance(error, dict) else ""
    return ServiceError(code or "UNKNOWN", message)


def _parsed(kind: type[Parsed], answer: dict[str, Any]) -> Parsed:
    """An answer as a message; what is new in it is of no use here."""
    message = kind()
    try:
        json_format.ParseDict(
            answer, message, ignore_unknown_fields=True, descriptor_pool=schema.pool
        )
    except json_format.ParseError as error:
        raise ServiceError("INTERNAL", f"an answer that is no {kind.__name__}: {error}") from error
    return message

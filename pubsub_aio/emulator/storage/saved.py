"""What is written to the log, as protobuf messages: a `Saved` is a set of changes.

Fields may be added; a change of meaning is another `FORMAT` (see directory.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2

from pubsub_aio._wire import schema

if TYPE_CHECKING:
    from google.protobuf.message import Message

    class SavedTopic(Message):
        """A topic, deleted or not, that something still needs."""

        serial: int
        ids_to: int
        deleted: bool
        config: schema.Topic
        policy: schema.Policy

    class SavedSubscription(Message):
        """A subscription, without its messages."""

        uid: int
        topic: int
        epoch: int
        acked_after: int
        """One more than the first offset that is kept although it was acked; zero for none."""
        config: schema.Subscription
        policy: schema.Policy

    class SavedProgress(Message):
        """Which messages are settled: all before `low`, and those that the blocks say."""

        uid: int
        whole: bool
        """Whether what was said before is void."""
        low: int
        active_at: float
        numbers: list[int]
        blocks: list[bytes]
        """For each number a bit for each message, or nothing if all are settled."""

    class SavedSnapshot(Message):
        """A snapshot, with its position."""

        serial: int
        topic: int
        config: schema.Snapshot
        policy: schema.Policy
        position: SavedProgress

    class SavedSchema(Message):
        """A schema with all its revisions, the oldest first."""

        name: str
        revisions: list[schema.Schema]
        policy: schema.Policy

    class SavedProject(Message):
        """What is granted on a project."""

        name: str
        policy: schema.Policy

    class SavedRole(Message):
        """A role that was defined."""

        name: str
        permissions: list[str]

    class SavedMessages(Message):
        """Messages of a topic at consecutive offsets, as records."""

        topic: int
        first: int
        records: list[bytes]
        times: list[float]

    class SavedSegment(Message):
        """Another file of the log, and how much of it counts."""

        number: int
        length: int

    class Saved(Message):
        """Changes that happened together."""

        whole: bool
        """Whether this is everything but for messages: what was said before is void."""
        serial: int
        policy_changes: int
        topics: list[SavedTopic]
        subscriptions: list[SavedSubscription]
        snapshots: list[SavedSnapshot]
        progress: list[SavedProgress]
        messages: list[SavedMessages]
        gone_topics: list[int]
        gone_subscriptions: list[int]
        gone_snapshots: list[int]
        segments: list[SavedSegment]
        gone_segments: list[int]
        schemas: list[SavedSchema]
        gone_schemas: list[str]
        iam: bool
        """Whether it has all of the following; what was said of them before is void."""
        projects: list[SavedProject]
        roles: list[SavedRole]


_FIELD = descriptor_pb2.FieldDescriptorProto
_NUMBER, _REAL, _FLAG = _FIELD.TYPE_UINT64, _FIELD.TYPE_DOUBLE, _FIELD.TYPE_BOOL
_BYTES, _TEXT = _FIELD.TYPE_BYTES, _FIELD.TYPE_STRING
_PACKAGE = "pubsub_aio.storage"

_MESSAGES: dict[str, list[tuple[str, int, Any]]] = {
    "SavedTopic": [
        ("serial", 1, _NUMBER),
        ("ids_to", 2, _NUMBER),
        ("deleted", 3, _FLAG),
        ("config", 4, ".google.pubsub.v1.Topic"),
        ("policy", 5, ".google.iam.v1.Policy"),
    ],
    "SavedSubscription": [
        ("uid", 1, _NUMBER),
        ("topic", 2, _NUMBER),
        ("epoch", 3, _NUMBER),
        ("acked_after", 4, _NUMBER),
        ("config", 5, ".google.pubsub.v1.Subscription"),
        ("policy", 6, ".google.iam.v1.Policy"),
    ],
    "SavedProgress": [
        ("uid", 1, _NUMBER),
        ("whole", 2, _FLAG),
        ("low", 3, _NUMBER),
        ("active_at", 4, _REAL),
        ("numbers*", 5, _NUMBER),
        ("blocks*", 6, _BYTES),
    ],
    "SavedSnapshot": [
        ("serial", 1, _NUMBER),
        ("topic", 2, _NUMBER),
        ("config", 3, ".google.pubsub.v1.Snapshot"),
        ("policy", 4, ".google.iam.v1.Policy"),
        ("position", 5, "SavedProgress"),
    ],
    "SavedSchema": [
        ("name", 1, _TEXT),
        ("revisions*", 2, ".google.pubsub.v1.Schema"),
        ("policy", 3, ".google.iam.v1.Policy"),
    ],
    "SavedProject": [("name", 1, _TEXT), ("policy", 2, ".google.iam.v1.Policy")],
    "SavedRole": [("name", 1, _TEXT), ("permissions*", 2, _TEXT)],
    "SavedMessages": [
        ("topic", 1, _NUMBER),
        ("first", 2, _NUMBER),
        ("records*", 3, _BYTES),
        ("times*", 4, _REAL),
    ],
    "SavedSegment": [("number", 1, _NUMBER), ("length", 2, _NUMBER)],
    "Saved": [
        ("whole", 1, _FLAG),
        ("serial", 2, _NUMBER),
        ("policy_changes", 3, _NUMBER),
        ("topics*", 4, "SavedTopic"),
        ("subscriptions*", 5, "SavedSubscription"),
        ("snapshots*", 6, "SavedSnapshot"),
        ("progress*", 7, "SavedProgress"),
        ("messages*", 8, "SavedMessages"),
        ("gone_topics*", 9, _NUMBER),
        ("gone_subscriptions*", 10, _NUMBER),
        ("gone_snapshots*", 11, _NUMBER),
        ("segments*", 12, "SavedSegment"),
        ("gone_segments*", 13, _NUMBER),
        ("schemas*", 14, "SavedSchema"),
        ("gone_schemas*", 15, _TEXT),
        ("iam", 16, _FLAG),
        ("projects*", 17, "SavedProject"),
        ("roles*", 18, "SavedRole"),
    ],
}
"""Name, number and type of each field; a star is for many."""


def _add() -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="pubsub_aio/emulator/storage/saved.proto", package=_PACKAGE, syntax="proto3"
    )
    file.dependency.append("pubsub_aio/_wire/pubsub.proto")
    file.dependency.append("pubsub_aio/_wire/schema.proto")
    file.dependency.append("google/iam/v1/policy.proto")
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = _FIELD.LABEL_REPEATED if field.endswith("*") else _FIELD.LABEL_OPTIONAL
            added = made.field.add(name=field.rstrip("*"), number=number, label=label)
            if isinstance(kind, str):
                added.type = _FIELD.TYPE_MESSAGE
                added.type_name = kind if kind.startswith(".") else f".{_PACKAGE}.{kind}"
            else:
                added.type = kind
    schema.pool.Add(file)


_add()

if not TYPE_CHECKING:
    for _name in _MESSAGES:
        globals()[_name] = schema.message_class(f"{_PACKAGE}.{_name}")

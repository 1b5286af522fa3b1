"""Our protobuf classes are Google's, in a pool of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.pubsub_v1.types import pubsub as google_pubsub
from google.pubsub_v1.types import schema as google_schema
from google.rpc import error_details_pb2, status_pb2

from pubsub_aio._wire import schema


def google_messages() -> dict[str, Any]:
    """The descriptors of every message that Google's library has for the service."""
    wrapped = [
        getattr(module, name).pb().DESCRIPTOR
        for module in (google_pubsub, google_schema)
        for name in module.__protobuf__.manifest
        if hasattr(getattr(module, name), "pb")
    ]
    plain = [
        descriptor
        for module in (iam_policy_pb2, policy_pb2, status_pb2, error_details_pb2)
        for descriptor in module.DESCRIPTOR.message_types_by_name.values()
    ]
    return {descriptor.full_name: descriptor for descriptor in [*wrapped, *plain]}


GOOGLE = google_messages()


def shape(descriptor: Descriptor) -> dict[str, object]:
    """What of a message shows on the wire or in JSON."""
    return {
        "fields": {
            field.name: (
                field.number,
                field.type,
                field.is_repeated,
                field.json_name,
                field.message_type.full_name if field.message_type else None,
                field.enum_type.full_name if field.enum_type else None,
                field.containing_oneof.name if field.containing_oneof else None,
                field.has_presence,
            )
            for field in descriptor.fields
        },
        "nested": {nested.name: shape(nested) for nested in descriptor.nested_types},
        "enums": {
            enum.name: dict(enum.values_by_name.items()).keys() for enum in descriptor.enum_types
        },
    }


@pytest.mark.parametrize("name", sorted(GOOGLE))
def test_a_message_has_the_shape_that_google_gives_it(name: str) -> None:
    assert shape(schema.message_class(name).DESCRIPTOR) == shape(GOOGLE[name])


def test_a_message_means_the_same_to_both() -> None:
    ours = schema.Subscription(name="projects/p/subscriptions/s", labels={"a": "b"})
    ours.retry_policy.minimum_backoff.seconds = 7

    theirs = google_pubsub.Subscription.deserialize(ours.SerializeToString())

    assert theirs.name == ours.name
    assert theirs.labels == {"a": "b"}
    assert theirs.retry_policy.minimum_backoff.total_seconds() == 7
    assert json_format.MessageToDict(ours) == json_format.MessageToDict(theirs._pb)


def test_an_unknown_message_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no message named Nonsense"):
        schema.Nonsense  # noqa: B018 - reading it is the test


@pytest.mark.parametrize(
    "order",
    [
        "from pubsub_aio._wire import schema; schema.Topic; from google.cloud import pubsub_v1",
        "from google.cloud import pubsub_v1; from pubsub_aio._wire import schema; schema.Topic",
    ],
    ids=["ours first", "Google's first"],
)
def test_both_live_in_one_process(order: str) -> None:
    code = f"{order}; print(schema.Topic(name='t').name, pubsub_v1.types.Topic(name='t').name)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["t", "t"]

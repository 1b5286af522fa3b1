"""The service's protobuf classes, in a descriptor pool of our own.

`google.pubsub_v1` takes a third of a second and 30 MiB to import, and its wrapper objects are slow
to read. These are the same messages as plain protobuf classes, made from descriptors packaged with
this library (see hatch_build.py). The pool is private, so both can live in one process.

A class is made when its name is first used: `schema.Topic`, `schema.PublishRequest`. So is an enum
that is not inside a message: `schema.Encoding`.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

if TYPE_CHECKING:
    from google.iam.v1.iam_policy_pb2 import GetIamPolicyRequest as GetIamPolicyRequest
    from google.iam.v1.iam_policy_pb2 import SetIamPolicyRequest as SetIamPolicyRequest
    from google.iam.v1.iam_policy_pb2 import TestIamPermissionsRequest as TestIamPermissionsRequest
    from google.iam.v1.iam_policy_pb2 import (
        TestIamPermissionsResponse as TestIamPermissionsResponse,
    )
    from google.iam.v1.policy_pb2 import Binding as Binding
    from google.iam.v1.policy_pb2 import Policy as Policy
    from google.protobuf.duration_pb2 import Duration as Duration
    from google.protobuf.empty_pb2 import Empty as Empty
    from google.protobuf.field_mask_pb2 import FieldMask as FieldMask
    from google.protobuf.message import Message as Message
    from google.protobuf.timestamp_pb2 import Timestamp as Timestamp
    from google.rpc.error_details_pb2 import ErrorInfo as ErrorInfo
    from google.rpc.error_details_pb2 import RetryInfo as RetryInfo
    from google.rpc.status_pb2 import Status as Status

    from pubsub_aio._wire.pubsub_pb2 import *  # noqa: F403 - every message of the service
    from pubsub_aio._wire.schema_pb2 import *  # noqa: F403 - every message of the service
    from pubsub_aio._wire.schema_pb2 import Schema as Schema

    class RawPublishRequest(Message):
        """A PublishRequest whose messages are left as bytes."""

        messages: list[bytes]

    class Responses(Message):
        """StreamingPullResponses one after another, or the same of a pull."""

        received_messages: list[ReceivedMessage]  # noqa: F405
        subscription_properties: list[StreamingPullResponse.SubscriptionProperties]  # noqa: F405

    class RawResponses(Message):
        """The same; messages are left as bytes."""

        received_messages: list[bytes]
        subscription_properties: list[StreamingPullResponse.SubscriptionProperties]  # noqa: F405

    class MergedResponses(Message):
        """The same; messages are merged into one."""

        received_messages: MergedReceived
        subscription_properties: list[StreamingPullResponse.SubscriptionProperties]  # noqa: F405

    class MergedReceived(Message):
        """Many ReceivedMessages in one: each field has the values of all of them."""

        ack_id: list[str]
        message: list[bytes]
        delivery_attempt: list[int]

    class MergedMessage(Message):
        """Many PubsubMessages in one."""

        data: list[bytes]
        message_id: list[str]


PACKAGES = ("google.pubsub.v1", "google.iam.v1", "google.protobuf", "google.rpc")
"""Where a bare name is looked up, in this order."""


def _load() -> descriptor_pool.DescriptorPool:
    try:
        data = pkgutil.get_data("pubsub_aio._wire", "descriptors.binpb")
    except FileNotFoundError:
        data = None
    if data is None:
        raise ImportError(
            "pubsub_aio/_wire/descriptors.binpb is missing: it is made when the package is built; "
            "in a source checkout run `pip install -e .`"
        )
    private = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        private.Add(file)
    return private


pool = _load()


def _add_our_own() -> None:
    """Add what reads the same bytes in other ways.

    Raw ones leave messages as bytes: protobuf slices faster than we can. Others make use of what
    protobuf does with a field that occurs more than once: where it is a message, what occurs is
    merged; where it is repeated, it is added. So responses one after another are read as one, with
    all that was said in each of them, and many messages as a list for each field, without an object
    for each message.
    """
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    package = "google.pubsub.v1"
    properties = (
        *("subscription_properties", 4, many),
        *(field.TYPE_MESSAGE, "StreamingPullResponse.SubscriptionProperties"),
    )
    messages: dict[str, list[tuple[str, int, int, Any, str]]] = {
        "RawPublishRequest": [("messages", 2, many, field.TYPE_BYTES, "")],
        "Responses": [
            ("received_messages", 1, many, field.TYPE_MESSAGE, "ReceivedMessage"),
            properties,
        ],
        "RawResponses": [("received_messages", 1, many, field.TYPE_BYTES, ""), properties],
        "MergedResponses": [
            ("received_messages", 1, one, field.TYPE_MESSAGE, "MergedReceived"),
            properties,
        ],
        "MergedReceived": [
            ("ack_id", 1, many, field.TYPE_STRING, ""),
            ("message", 2, many, field.TYPE_BYTES, ""),
            ("delivery_attempt", 3, many, field.TYPE_INT32, ""),
        ],
        "MergedMessage": [
            ("data", 1, many, field.TYPE_BYTES, ""),
            # Of no use, but what is not declared is kept as unknown, which takes longer.
            ("attributes", 2, one, field.TYPE_BYTES, ""),
            ("message_id", 3, many, field.TYPE_STRING, ""),
            ("publish_time", 4, one, field.TYPE_BYTES, ""),
            ("ordering_key", 5, one, field.TYPE_BYTES, ""),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="pubsub_aio/_wire/our_own.proto", package=package, syntax="proto3"
    )
    file.dependency.append("pubsub_aio/_wire/pubsub.proto")
    for name, fields in messages.items():
        made = file.message_type.add(name=name)
        for field_name, number, label, kind, type_name in fields:
            added = made.field.add(name=field_name, number=number, label=label, type=kind)
            if type_name:
                added.type_name = f".{package}.{type_name}"
    pool.Add(file)


_add_our_own()


def message_class(full_name: str) -> type[Any]:
    """The class of a message, by its full protobuf name. KeyError if there is none."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))


def _enum(full_name: str) -> Any:
    return EnumTypeWrapper(pool.FindEnumTypeByName(full_name))


def __getattr__(name: str) -> Any:
    for package in PACKAGES:
        for find in (message_class, _enum):
            try:
                found = find(f"{package}.{name}")
            except KeyError:
                continue
            globals()[name] = found
            return found
    raise AttributeError(f"the Pub/Sub API has no message named {name}")

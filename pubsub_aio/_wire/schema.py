"""The service's protobuf classes, in a descriptor pool of our own.

`google.pubsub_v1` takes a third of a second and 30 MiB to import, and its wrapper objects are slow
to read. These are the same messages as plain protobuf classes, made from descriptors packaged with
this library (see hatch_build.py). The pool is private, so both can live in one process.

A class is made when its name is first used: `schema.Topic`, `schema.PublishRequest`.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from google.iam.v1.iam_policy_pb2 import GetIamPolicyRequest as GetIamPolicyRequest
    from google.iam.v1.iam_policy_pb2 import SetIamPolicyRequest as SetIamPolicyRequest
    from google.iam.v1.iam_policy_pb2 import TestIamPermissionsRequest as TestIamPermissionsRequest
    from google.iam.v1.iam_policy_pb2 import (
        TestIamPermissionsResponse as TestIamPermissionsResponse,
    )
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

    class RawStreamingPullResponse(Message):
        """A StreamingPullResponse whose messages are left as bytes."""

        received_messages: list[bytes]
        subscription_properties: StreamingPullResponse.SubscriptionProperties  # noqa: F405


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


def _add_raw() -> None:
    """Add requests and responses whose messages are bytes: protobuf slices faster than we can."""
    raw = descriptor_pb2.FileDescriptorProto(
        name="pubsub_aio/_wire/raw.proto", package="google.pubsub.v1", syntax="proto3"
    )
    raw.dependency.append("pubsub_aio/_wire/pubsub.proto")
    field = descriptor_pb2.FieldDescriptorProto
    request = raw.message_type.add(name="RawPublishRequest")
    request.field.add(name="messages", number=2, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
    response = raw.message_type.add(name="RawStreamingPullResponse")
    response.field.add(
        name="received_messages", number=1, type=field.TYPE_BYTES, label=field.LABEL_REPEATED
    )
    response.field.add(
        name="subscription_properties",
        number=4,
        type=field.TYPE_MESSAGE,
        type_name=".google.pubsub.v1.StreamingPullResponse.SubscriptionProperties",
        label=field.LABEL_OPTIONAL,
    )
    pool.Add(raw)


_add_raw()


def message_class(full_name: str) -> type[Any]:
    """The class of a message, by its full protobuf name. KeyError if there is none."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))


def __getattr__(name: str) -> Any:
    for package in PACKAGES:
        try:
            found = message_class(f"{package}.{name}")
        except KeyError:
            continue
        globals()[name] = found
        return found
    raise AttributeError(f"the Pub/Sub API has no message named {name}")

"""Writes the protobuf descriptors that pubsub_aio/_wire/schema.py loads.

They are taken from the installed google-cloud-pubsub, whose message classes are the newest
description of the service (the .proto files in its wheel are older than its code).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = Path("pubsub_aio", "_wire", "descriptors.binpb")

# Our copies carry our own file names, so that they can never be mistaken for the originals.
RENAMED = {
    "google/pubsub_v1/types/pubsub.proto": "pubsub_aio/_wire/pubsub.proto",
    "google/pubsub_v1/types/schema.proto": "pubsub_aio/_wire/schema.proto",
}


class DescriptorHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version, build_data
        target = Path(self.root) / TARGET
        target.write_bytes(descriptor_set().SerializeToString(deterministic=True))


def descriptor_set() -> Any:
    """Every file that the service's messages need, each after the files it depends on."""
    from google.iam.v1 import iam_policy_pb2
    from google.protobuf import descriptor_pb2, empty_pb2
    from google.pubsub_v1.types import Schema, Topic
    from google.rpc import error_details_pb2, status_pb2

    files = descriptor_pb2.FileDescriptorSet()
    done: set[str] = set()

    def add(file: Any) -> None:
        if file.name in done or file.name.startswith("google/api/"):
            return
        done.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        proto = files.file.add()
        file.CopyToProto(proto)
        slim(proto)

    for descriptor in (Schema.pb().DESCRIPTOR, Topic.pb().DESCRIPTOR):
        add(descriptor.file)
    for module in (iam_policy_pb2, empty_pb2, status_pb2, error_details_pb2):
        add(module.DESCRIPTOR)
    return files


def slim(file: Any) -> None:
    """Leave out services and annotations: messages are all that is used, and loading them is time.

    Message options stay, for `map_entry` is one.
    """
    file.name = RENAMED.get(file.name, file.name)
    kept = [name for name in file.dependency if not name.startswith("google/api/")]
    del file.dependency[:], file.service[:]
    file.dependency.extend(RENAMED.get(name, name) for name in kept)
    file.ClearField("options")
    for message in file.message_type:
        clear_field_options(message)


def clear_field_options(message: Any) -> None:
    for field in message.field:
        field.ClearField("options")
    for nested in message.nested_type:
        clear_field_options(nested)


if __name__ == "__main__":
    TARGET.write_bytes(descriptor_set().SerializeToString(deterministic=True))

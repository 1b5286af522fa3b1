"""Named resources: finding one, listing them, merging changed settings into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pubsub_aio._wire import schema
from pubsub_aio.emulator.names import check_name, check_project
from pubsub_aio.emulator.paging import page_of
from pubsub_aio.emulator.status import not_found

Resource = TypeVar("Resource")
Config = TypeVar("Config", schema.Topic, schema.Subscription, schema.Snapshot)


def find(found: Mapping[str, Resource], name: str, kind: str, *, field: str) -> Resource:
    """The resource of that name, or the service's refusal."""
    resource = found.get(name)
    if resource is None:
        check_name(name, kind, field=field)
        raise not_found(name)
    return resource


def page(
    found: Mapping[str, Resource], project: str, size: int, token: str
) -> tuple[list[Resource], str]:
    """A page of the resources of a project, and the token of the next page."""
    check_project(project, field="project")
    names = [name for name in found if name.startswith(f"{project}/")]
    names, next_token = page_of(names, size=size, token=token)
    return [found[name] for name in names], next_token


def merged(old: Config, new: Config, mask: schema.FieldMask) -> Config:
    """A copy of `old` with the fields that the mask names as they are in `new`, there or not."""
    merged, given = type(old)(), type(old)()
    merged.CopyFrom(old)
    given.CopyFrom(new)
    for path in mask.paths:
        _have_parents(given, merged, path)
    mask.MergeMessage(given, merged, replace_message_field=True, replace_repeated_field=True)
    return merged


def _have_parents(given: schema.Message, merged: schema.Message, path: str) -> None:
    """Have the messages around a field: merging passes over what lies in one that is not there."""
    for parent in path.split(".")[:-1]:
        if not merged.HasField(parent):
            return
        given, merged = getattr(given, parent), getattr(merged, parent)
        given.SetInParent()


def show_retention(config: schema.Subscription, topic: schema.Topic) -> None:
    """A subscription shows its topic's retention."""
    if topic.HasField("message_retention_duration"):
        config.topic_message_retention_duration.CopyFrom(topic.message_retention_duration)
    else:
        config.ClearField("topic_message_retention_duration")

"""Our values as wire bytes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pubsub_aio._wire import schema
from pubsub_aio.errors import ConfigError


def acknowledge(subscription: str, ack_ids: Iterable[str]) -> bytes:
    """An AcknowledgeRequest."""
    request = schema.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids)
    return request.SerializeToString()


def modify_ack_deadline(subscription: str, ack_ids: Iterable[str], seconds: int) -> bytes:
    """A ModifyAckDeadlineRequest."""
    request = schema.ModifyAckDeadlineRequest(
        subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds
    )
    return request.SerializeToString()


def with_settings(resource: Any, settings: Mapping[str, object]) -> Any:
    """Set fields of a resource by keyword, as Google's client takes them.

    Values may be plain, dicts, timedeltas, or objects of Google's own.

    Raises:
        ConfigError: A field that there is not, or a value that it cannot have.
    """
    kind = schema.message_class(resource.DESCRIPTOR.full_name)
    for name, value in settings.items():
        if name not in resource.DESCRIPTOR.fields_by_name:
            fields = ", ".join(sorted(resource.DESCRIPTOR.fields_by_name))
            raise ConfigError(f"{name}: a {resource.DESCRIPTOR.name} has {fields}")
        try:
            resource.MergeFrom(kind(**{name: _plain(value, resource.DESCRIPTOR, name)}))
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{name}: {value!r} cannot be its value: {error}") from error
    return resource


def _plain(value: object, descriptor: Any, name: str) -> object:
    """Turn Google's own objects into ours, through their bytes."""
    serialized: bytes | None = None
    kind = type(value)
    if hasattr(kind, "pb") and hasattr(kind, "serialize"):  # proto-plus
        serialized = kind.serialize(value)
    elif hasattr(value, "SerializeToString"):
        serialized = value.SerializeToString()
    if serialized is None:
        return value
    field = descriptor.fields_by_name[name]
    return schema.message_class(field.message_type.full_name).FromString(serialized)

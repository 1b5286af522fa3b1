"""What a message says of itself where it is published again because it could not be handled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pubsub_aio._wire.publishing import MAX_ATTRIBUTES, MAX_VALUE_BYTES

ERROR = "pubsub_aio_error"
"""The attribute that says why."""

MESSAGE_ID = "pubsub_aio_message_id"
"""The attribute with the id that the message had."""

SOURCE = "CloudPubSubDeadLetterSource"
"""Begins the names of the attributes that the service itself gives to a dead letter."""


def notes(
    *,
    message_id: str,
    publish_time: datetime,
    delivery_attempt: int | None,
    subscription: str,
    error: BaseException | None,
) -> dict[str, str]:
    """Attributes that say which message it was, why it is here, and where it comes from."""
    _, project, _, name = subscription.split("/")
    published = publish_time.isoformat(timespec="milliseconds")
    return {
        ERROR: _reason(error),
        MESSAGE_ID: message_id,
        f"{SOURCE}Subscription": name,
        f"{SOURCE}SubscriptionProject": project,
        f"{SOURCE}TopicPublishTime": published.replace("+00:00", "Z"),
        f"{SOURCE}DeliveryCount": str(delivery_attempt or 1),
    }


def is_note(attribute: str) -> bool:
    """Whether an attribute was added when a message became a dead letter."""
    return attribute in (ERROR, MESSAGE_ID) or attribute.startswith(SOURCE)


def with_notes(attributes: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Attributes, and as many more as a message may have, the first of them first."""
    full = dict(attributes)
    for name, value in more.items():
        if name in full or len(full) < MAX_ATTRIBUTES:
            full[name] = value
    return full


def _reason(error: BaseException | None) -> str:
    """What an error says, as far as it fits."""
    try:
        reason = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error may fail to say what it is
        reason = type(error).__name__
    return reason.encode(errors="replace")[:MAX_VALUE_BYTES].decode(errors="ignore")

"""What a message looks like when it is forwarded to a dead-letter topic."""

from __future__ import annotations

from pubsub_aio.emulator import records
from pubsub_aio.emulator.names import id_of, project_of

_PREFIX = "CloudPubSubDeadLetterSource"


def forwarded(record: bytes, *, subscription: str, attempts: int) -> bytes:
    """The message of a record, as it is published again, with where it comes from."""
    message = records.message_of(record)
    published = message.publish_time.ToDatetime().isoformat(timespec="milliseconds")
    message.attributes[f"{_PREFIX}DeliveryCount"] = str(attempts)
    message.attributes[f"{_PREFIX}Subscription"] = id_of(subscription)
    message.attributes[f"{_PREFIX}SubscriptionProject"] = project_of(subscription)
    message.attributes[f"{_PREFIX}TopicPublishTime"] = f"{published}Z"
    message.ClearField("message_id")
    message.ClearField("publish_time")
    return message.SerializeToString()

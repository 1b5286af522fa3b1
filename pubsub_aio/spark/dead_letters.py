"""Poisonous messages, published to a topic of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pubsub_aio.subscriber.client import SubscriberClient

if TYPE_CHECKING:
    import pyarrow as pa

_SOURCE = "CloudPubSubDeadLetterSource"
"""Begins the names of the attributes that the service itself gives to a dead letter."""

_MAX_ATTRIBUTES = 100
_MAX_VALUE_BYTES = 1_024


class DeadLetters:
    """Publishes messages again, with where they come from and why.

    Args:
        client: By whose connection.
        topic: Where to.
    """

    def __init__(self, client: SubscriberClient, topic: str) -> None:
        self.topic = client.topic_name(topic)
        self._client = client

    async def send(
        self, records: pa.RecordBatch, *, subscription: str, error: Exception | None
    ) -> None:
        """Publish these rows.

        Raises:
            PubSubError: They may not have been published.
        """
        for row in records.to_pylist():
            attributes = dict(row["attributes"])
            for name, value in _origin(row, subscription, error).items():
                if len(attributes) < _MAX_ATTRIBUTES:
                    attributes[name] = value
            await self._client.forward(
                self.topic,
                data=row["data"],
                attributes=attributes,
                ordering_key=row["ordering_key"],
            )


def _origin(row: dict[str, Any], subscription: str, error: Exception | None) -> dict[str, str]:
    """Attributes that say where a dead letter comes from, as the service has them, and why."""
    _, project, _, name = subscription.split("/")
    published = row["publish_time"].isoformat(timespec="milliseconds")
    reason = f"{type(error).__name__}: {error}".encode(errors="replace")[:_MAX_VALUE_BYTES]
    return {
        f"{_SOURCE}Subscription": name,
        f"{_SOURCE}SubscriptionProject": project,
        f"{_SOURCE}TopicPublishTime": published.replace("+00:00", "Z"),
        f"{_SOURCE}DeliveryCount": str(row["delivery_attempt"] or 1),
        "pubsub_aio_message_id": row["message_id"],
        "pubsub_aio_error": reason.decode(errors="ignore"),
    }

"""Poisonous messages, published to a topic of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import InvalidRequestError
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

    async def check(self, subscription: str) -> None:
        """Make sure that the topic can be used, as far as may be asked.

        Raises:
            ConfigError: There is no such topic, or it is the one that the messages come from.
        """
        await self._client.check_forwarding(subscription, self.topic, name="dead_letter_topic")

    async def send(
        self, records: pa.RecordBatch, *, subscription: str, error: Exception | None
    ) -> None:
        """Publish these rows.

        Raises:
            PubSubError: They may not have been published.
        """
        for row in records.to_pylist():
            own = dict(row["attributes"])
            more = {**_reason(row, error), **_origin(row, subscription)}
            room = _MAX_ATTRIBUTES - len(own)
            try:
                await self._publish(row, own | dict([*more.items()][:room]))
            except InvalidRequestError:  # it is as large as a message may be
                await self._publish(row, own)

    async def _publish(self, row: dict[str, Any], attributes: dict[str, str]) -> None:
        await self._client.forward(
            self.topic, data=row["data"], attributes=attributes, ordering_key=row["ordering_key"]
        )


def _reason(row: dict[str, Any], error: Exception | None) -> dict[str, str]:
    """Attributes that say which message it was, and why it is here."""
    try:
        reason = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error may fail to say what it is
        reason = type(error).__name__
    cut = reason.encode(errors="replace")[:_MAX_VALUE_BYTES]
    return {
        "pubsub_aio_error": cut.decode(errors="ignore"),
        "pubsub_aio_message_id": row["message_id"],
    }


def _origin(row: dict[str, Any], subscription: str) -> dict[str, str]:
    """Attributes that say where it comes from, as the service has them."""
    _, project, _, name = subscription.split("/")
    published = row["publish_time"].isoformat(timespec="milliseconds")
    return {
        f"{_SOURCE}Subscription": name,
        f"{_SOURCE}SubscriptionProject": project,
        f"{_SOURCE}TopicPublishTime": published.replace("+00:00", "Z"),
        f"{_SOURCE}DeliveryCount": str(row["delivery_attempt"] or 1),
    }

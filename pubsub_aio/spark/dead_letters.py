"""Poisonous messages, published to a topic of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import InvalidRequestError
from pubsub_aio.subscriber.client import SubscriberClient
from pubsub_aio.subscriber.dead_letters import notes, with_notes

if TYPE_CHECKING:
    import pyarrow as pa


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
            more = notes(
                message_id=row["message_id"],
                publish_time=row["publish_time"],
                delivery_attempt=row["delivery_attempt"],
                subscription=subscription,
                error=error,
            )
            try:
                await self._publish(row, with_notes(own, more))
            except InvalidRequestError:  # it is as large as a message may be
                await self._publish(row, own)

    async def _publish(self, row: dict[str, Any], attributes: dict[str, str]) -> None:
        await self._client.forward(
            self.topic, data=row["data"], attributes=attributes, ordering_key=row["ordering_key"]
        )

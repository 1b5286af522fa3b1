"""Dead letters on their way to a topic, as the messages that they were."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets

from pubsub_aio.config import RetryPolicy
from pubsub_aio.errors import PubSubError, QueueFullError
from pubsub_aio.jobs.attributes import REDRIVEN, REDRIVEN_BY, RESURRECTIONS
from pubsub_aio.jobs.forwarding import acked, own_attributes
from pubsub_aio.message import Message
from pubsub_aio.publisher.client import PublisherClient

RETRY = dataclasses.replace(RetryPolicy.google(), max_wait=5.0, deadline=60.0)
"""When a message that could not be published is sent again. It may then be there twice, which its
attribute REDRIVEN tells. Waits are short, since it ends if the next would be past the deadline."""

_ROOM_AFTER = 0.1  # seconds after which a publisher that was full is asked again


class Mover:
    """Moves dead letters to a topic, and knows what it has moved. It belongs to one run.

    Args:
        publisher: Who publishes.
        topic: The full name of the topic.
        retry: When a message that could not be published is sent again.
    """

    def __init__(
        self, publisher: PublisherClient, topic: str, *, retry: RetryPolicy | None = None
    ) -> None:
        self._publisher = publisher
        self._topic = topic
        self._retry = retry or RETRY
        self._run = secrets.token_hex(8)

    def has_moved(self, message: Message) -> bool:
        """Whether a dead letter is one again that was moved here."""
        return message.attribute(REDRIVEN_BY) == self._run

    async def move(self, message: Message) -> bool:
        """Publish a dead letter, and ack it then; returns whether it is there.

        It is not if its lease has ended before it could be published: then it comes again.

        Raises:
            PubSubError: It cannot be published.
        """
        if not await self._publish(message, self._as_it_was(message)):
            return False
        await acked(message)
        return True

    def _as_it_was(self, message: Message) -> dict[str, str]:
        """The attributes of the message that a dead letter was, and what tells that it is moved."""
        own = own_attributes(message)
        own[REDRIVEN] = message.message_id
        own[REDRIVEN_BY] = self._run
        if RESURRECTIONS in own:
            own[RESURRECTIONS] = "0"
        return own

    async def _publish(self, message: Message, attributes: dict[str, str]) -> bool:
        """Publish a message as soon as the publisher has room, while its lease is kept."""
        key = message.ordering_key
        while message.lease is not None:
            try:
                await self._publisher.publish(
                    self._topic,
                    message.data,
                    attributes=attributes,
                    ordering_key=key,
                    retry=self._retry,
                ).ack
            except QueueFullError:
                await asyncio.sleep(_ROOM_AFTER)
            except PubSubError:
                if key:
                    self._publisher.resume(self._topic, key)
                raise
            else:
                return True
        return False

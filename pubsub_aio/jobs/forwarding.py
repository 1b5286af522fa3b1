"""Jobs on their way from a queue to its dead letters and back: published first, then acked."""

from __future__ import annotations

import asyncio
import logging

from pubsub_aio.config import FLIGHT_ID, PUBLISHER_ID
from pubsub_aio.errors import (
    ClosedError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    PubSubError,
    SettleError,
)
from pubsub_aio.jobs.assurance import Assurance, Ensure
from pubsub_aio.jobs.attributes import JOB_ID, RESURRECTIONS, resurrections_of
from pubsub_aio.jobs.names import check_name
from pubsub_aio.message import Message
from pubsub_aio.publisher.client import PublisherClient
from pubsub_aio.subscriber.dead_letters import is_note, notes, with_notes

log = logging.getLogger("pubsub_aio.jobs")

AGAIN_AFTER = 1.0
"""Seconds after which a job that could not be forwarded, or acked, is tried to be so again."""

_OF_A_PUBLISH = (FLIGHT_ID, PUBLISHER_ID)
"""Attributes that tell one publish from another, and not one job: with them, a job that returns for
the second time would be taken for the first."""

_SAY_EVERY = 60  # times that it was tried in vain


class RefusedError(PubSubError):
    """A job cannot be published as it is, now or later; the cause says why."""


class Forwarding:
    """Publishes jobs to a topic until they are there. It belongs to a queue.

    Args:
        publisher: Who publishes.
        topic: Where to.
        field: What that is called where it is given.
        ensure: Creates the topic, and a subscription of it, if they are missing; none if its owner
            does that. An `Assurance` may be shared with others.
    """

    def __init__(
        self,
        publisher: PublisherClient,
        topic: str,
        *,
        field: str,
        ensure: Ensure | None,
    ) -> None:
        self.topic = publisher.topic_name(topic)
        check_name(field, self.topic)
        self._publisher = publisher
        self._kept = ensure if isinstance(ensure, Assurance) else Assurance(ensure)

    async def bury(self, message: Message, error: Exception) -> bool:
        """Publish a message as a dead letter; returns whether it is one.

        It is not if its lease has ended meanwhile: then it comes again.

        Raises:
            RefusedError: It cannot be one.
        """
        own = message.attributes
        more = notes(
            message_id=message.message_id,
            publish_time=message.publish_time,
            delivery_attempt=message.delivery_attempt,
            subscription=message.settler.subscription,
            error=error,
        )
        return await self._forward(message, more, resurrections=resurrections_of(own))

    async def resurrect(self, message: Message) -> bool:
        """Publish a dead letter as the job that it was; returns whether it is one again.

        Raises:
            RefusedError: It cannot be one.
        """
        own = message.attributes
        more = {name: value for name, value in own.items() if is_note(name)}
        return await self._forward(message, more, resurrections=resurrections_of(own) + 1)

    async def _forward(self, message: Message, more: dict[str, str], *, resurrections: int) -> bool:
        """Publish a message as the same job, with notes on it as far as there is room."""
        own = own_attributes(message)
        own[JOB_ID] = own.get(JOB_ID) or message.message_id
        own[RESURRECTIONS] = str(resurrections)
        try:
            return await self._publish(message, with_notes(own, more))
        except RefusedError:  # it is as large as a message may be
            return await self._publish(message, own)

    async def _publish(self, message: Message, attributes: dict[str, str]) -> bool:
        """Publish a message, however often that fails, while its lease is kept."""
        key, failures = message.ordering_key, 0
        while message.lease is not None:
            try:
                if await self._kept.is_given():
                    await self._publisher.publish(
                        self.topic, message.data, attributes=attributes, ordering_key=key
                    ).ack
                    return True
            except (ConfigError, InvalidRequestError) as error:
                self._resume(key)
                raise RefusedError(f"{self.topic} does not take it: {error}") from error
            except ClosedError:
                raise
            except PubSubError as error:
                if failures % _SAY_EVERY == 0:
                    log.warning(
                        "%s: %s is not there yet, tried again: %s",
                        *(self.topic, message.message_id, error),
                    )
                if isinstance(error, NotFoundError):
                    self._kept.doubt()
            failures += 1
            await asyncio.sleep(AGAIN_AFTER)
            self._resume(key)
        return False

    def _resume(self, key: str) -> None:
        """Let others of an ordering key go on, and this one once more."""
        if key:
            self._publisher.resume(self.topic, key)


def own_attributes(message: Message) -> dict[str, str]:
    """What a message was published with at first, without what dead letters and publishers add."""
    return {
        name: value
        for name, value in message.attributes.items()
        if not is_note(name) and name not in _OF_A_PUBLISH
    }


async def acked(message: Message) -> None:
    """Ack a message, and return when the server has it, or has said that the message comes again.

    What fails in passing is tried again meanwhile.
    """
    try:
        await message.ack_with_response()
    except SettleError as error:
        log.warning("message %s may come again: %s", message.message_id, error)

"""Brings dead letters back to the queue that failed them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from pubsub_aio.config import MAX_ACK_DEADLINE, FlowControl
from pubsub_aio.jobs.forwarding import Forwarding, RefusedError
from pubsub_aio.message import Message
from pubsub_aio.publisher.client import PublisherClient

log = logging.getLogger("pubsub_aio.jobs")

_HELD = 1_000
"""Dead letters that are held until it is time for them. Others wait on the server, and the sooner
return when they come."""

_SPARE = 3_600.0
"""Seconds that a lease lasts beyond the time that a dead letter waits: for a topic that is away."""


class Returns:
    """A handler of dead letters, which brings them back when their time has come.

    Each is published to the return topic of its queue, and only then acked.

    Args:
        publisher: Who publishes them.
        return_topic: Where to.
        ttl: Seconds that a dead letter waits, since it became one.
        clock: Tells the seconds since 1970.
        restore: Creates the return topic if it is missing.
    """

    def __init__(
        self,
        publisher: PublisherClient,
        return_topic: str,
        *,
        ttl: float,
        clock: Callable[[], float] = time.time,
        restore: Callable[[], Awaitable[object]],
    ) -> None:
        self._way = Forwarding(publisher, return_topic, restore)
        self._ttl = ttl
        self._clock = clock
        self.flow_control = FlowControl(max_messages=_HELD, max_lease_duration=ttl + _SPARE)

    async def __call__(self, message: Message) -> None:
        """Bring a dead letter back when its time has come."""
        due_at = message.publish_time.timestamp() + self._ttl
        # Not longer than that, should the clocks of the server and of this machine differ.
        await asyncio.sleep(min(self._ttl, due_at - self._clock()))
        try:
            returned = await self._way.resurrect(message)
        except RefusedError:
            log.exception("dead letter %s cannot return, and is tried again", message.message_id)
            message.nack(delay=MAX_ACK_DEADLINE)
            return
        if returned:
            message.ack()

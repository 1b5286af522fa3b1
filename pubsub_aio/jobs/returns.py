"""Brings dead letters back to the queue that failed them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from pubsub_aio.config import FlowControl, JobPolicy, check_kind
from pubsub_aio.errors import PubSubError
from pubsub_aio.jobs.assurance import Ensure
from pubsub_aio.jobs.attributes import check_clock
from pubsub_aio.jobs.forwarding import Forwarding, RefusedError
from pubsub_aio.jobs.giving_up import GivingUp, OnGiveUp
from pubsub_aio.jobs.job import Job
from pubsub_aio.message import Message
from pubsub_aio.publisher.client import PublisherClient

log = logging.getLogger("pubsub_aio.jobs")

_HELD = 1_000
"""Dead letters that are held until it is time for them. Others wait on the server, and the sooner
return when they come."""

_SPARE = 3_600.0
"""Seconds that a lease lasts beyond the time that a dead letter waits: for a topic that is away."""


class NobodyFinishedError(PubSubError):
    """A job was delivered as often as the server allows, and no worker lived to the end of it."""


class Returns:
    """A handler of dead letters, which brings them back when their time has come.

    Each is published to the return topic of its queue, and only then acked. One that has returned
    as often as it may is given up. A worker does that itself; but it may be that none lives long
    enough, or that it leaves the counting to the server.

    Args:
        publisher: Who publishes them.
        return_topic: Where to.
        policy: How long a dead letter waits, since it became one, and how often it returns.
        on_give_up: Called, or awaited, with a job that is given up, and an error.
        clock: Tells the seconds since 1970.
        ensure: Called before the first returns, and when the topic is missing: creates it, and a
            subscription of it. Until that succeeds nothing is published there.

    Attributes:
        flow_control: For the subscription that it handles.
    """

    def __init__(
        self,
        publisher: PublisherClient,
        return_topic: str,
        *,
        policy: JobPolicy | None = None,
        on_give_up: OnGiveUp | None = None,
        clock: Callable[[], float] = time.time,
        ensure: Ensure | None = None,
    ) -> None:
        check_kind("policy", policy, JobPolicy, optional=True)
        check_clock(clock)
        self._policy = policy = policy or JobPolicy()
        self._way = Forwarding(publisher, return_topic, field="return_topic", ensure=ensure)
        self._give_up = GivingUp(on_give_up, again_after=policy.max_backoff)
        self._clock = clock
        self._over = asyncio.Event()
        self.flow_control = FlowControl(
            max_messages=_HELD, max_lease_duration=policy.dead_letter_ttl + _SPARE
        )

    async def __call__(self, message: Message) -> None:
        """Bring a dead letter back when its time has come."""
        job = Job.of(message)
        if job.resurrections >= self._policy.max_resurrections:
            if await self._give_up(job, NobodyFinishedError("no worker finished it")):
                message.ack()
            return
        if not await self._is_due(message):
            message.nack()  # it waits for somebody else
            return
        try:
            returned = await self._way.resurrect(message)
        except RefusedError as refusal:
            returned = await self._give_up(job, refusal)
        if returned:
            message.ack()

    async def _is_due(self, message: Message) -> bool:
        """Wait until a dead letter was one for long enough; false if this is over before."""
        ttl = self._policy.dead_letter_ttl
        # Not longer than that, should the clocks of the server and of this machine differ.
        wait = min(ttl, message.publish_time.timestamp() + ttl - self._clock())
        if wait > 0 and not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._over.wait()
        return not self._over.is_set()

    def close(self) -> None:
        """Wait for no dead letter any more: what is not due goes back."""
        self._over.set()

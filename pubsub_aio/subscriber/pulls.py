"""Messages by pulling, for transports that have no streams."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport, service_error
from pubsub_aio.config import StreamPolicy
from pubsub_aio.errors import ServiceError
from pubsub_aio.subscriber.alarm import Alarm
from pubsub_aio.subscriber.reconnect import FATAL, before_next_attempt
from pubsub_aio.subscriber.streams import GRACE, QUIET

if TYPE_CHECKING:
    from pubsub_aio.subscriber.custody import Custody
    from pubsub_aio.subscriber.vitals import Vitals

FULL_DELAY = 1.0
"""Seconds after which it is looked again whether there is room, if nobody says so before."""

EXHAUSTED_DELAY = 0.02
"""Seconds after which a pull is repeated that the server refused to limit its load."""

_PATIENCE = 90.0
_BUSY = 2.0  # seconds in which a pull ends where there are messages
_MAX_MESSAGES = 1_000  # the most that the service returns for one pull


class PullReader:
    """Pulls for as long as its `run` runs.

    Args:
        transport: By which way.
        subscription: The full name of the subscription.
        custody: Takes what comes.
        vitals: Is told how it goes.
        policy: How failures are treated.
    """

    def __init__(
        self,
        transport: Transport,
        subscription: str,
        *,
        custody: Custody[Any],
        vitals: Vitals,
        policy: StreamPolicy,
    ) -> None:
        self._transport = transport
        self._subscription = subscription
        self._custody = custody
        self._vitals = vitals
        self._policy = policy
        self._open = False
        self._finishing = False
        self._busy = False  # the last pull brought messages
        self._pulled = asyncio.Event()
        self._pulled.set()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._loop = asyncio.get_running_loop()
        self._grace = Alarm(self._opened)

    async def run(self) -> None:
        """Pull, as long as there is room.

        Raises:
            ServiceError: It is no use to try again.
            ReconnectError: No pull succeeded within the reconnect budget.
        """
        failures = 0
        while True:
            wanted = await self._room()
            if self._finishing:
                return
            if not self._resumed.is_set():
                await self._resumed.wait()
                continue
            try:
                await self._pull(wanted)
                failures = 0
            except ServiceError as error:
                failures += 1
                await self._refused(error, failures)

    async def _room(self) -> int:
        """Return when there is room for more, with how many messages."""
        while (wanted := self._custody.wanted) < 1:
            self._custody.freed.clear()
            try:
                async with asyncio.timeout(FULL_DELAY):
                    await self._custody.freed.wait()
            except TimeoutError:
                continue
        return min(wanted, _MAX_MESSAGES)

    async def _pull(self, wanted: int) -> None:
        request = schema.PullRequest(subscription=self._subscription, max_messages=wanted)
        self._pulled.clear()
        if not self._open:
            self._grace.set(self._loop.time() + GRACE)
        try:
            data = await self._transport.call(
                "Pull", request.SerializeToString(), timeout=_PATIENCE
            )
        finally:
            self._pulled.set()
            self._grace.set(math.inf)
        self._opened()
        try:
            self._busy = self._custody.receive([data])
        except DecodeError as error:
            raise service_error("INTERNAL", f"a response cannot be read: {error}") from error

    def _opened(self) -> None:
        """A pull was answered, or is under way and was not refused."""
        if not self._open:
            self._open = True
            self._vitals.opened()

    async def _refused(self, error: ServiceError, failures: int) -> None:
        """Wait before the next pull, if there is to be one."""
        if error.code in FATAL:
            raise error
        if error.code == "RESOURCE_EXHAUSTED":
            await asyncio.sleep(error.retry_delay or EXHAUSTED_DELAY)
            return
        self._vitals.lost(error, was_open=self._open, worked=self._open)
        self._open = False
        await before_next_attempt(error, failures, policy=self._policy, vitals=self._vitals)

    async def finish(self) -> None:
        """Return when the pull that is under way has ended, or brings nothing."""
        self._finishing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BUSY if self._busy else QUIET):
                await self._pulled.wait()

    def reopen(self) -> None:
        """Nothing is remembered of a pull: the next one heeds what has changed."""

    async def pause(self) -> bool:
        """Return when the pull that is under way has ended; there is none until `resume`."""
        self._resumed.clear()
        await self._pulled.wait()
        return True

    def resume(self) -> None:
        """Pull again."""
        self._resumed.set()

    async def everything_read(self) -> bool:
        """Return when the pull that was under way at the call has ended."""
        await self._pulled.wait()
        return True

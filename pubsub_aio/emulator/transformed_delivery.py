"""Takes messages for a consumer and has each transformed before it is sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator.response import MAX_BYTES, Consumer
from pubsub_aio.emulator.transforms import STRETCH, ScriptError, Transform

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.subscriptions import Subscription

log = logging.getLogger("pubsub_aio.emulator")


class TransformedDelivery:
    """One subscription's way out: every message as its transforms make it.

    Messages are leased one by one, so that none waits here while its lease runs. One that is left
    out is settled, one whose transform fails is given back, and what is not sent for any other
    reason is withdrawn: that was no delivery.
    """

    def __init__(
        self,
        broker: Broker,
        subscription: Subscription,
        transform: Transform,
        *,
        now: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._subscription = subscription
        self._transform = transform
        self._now = now

    async def take(
        self, consumer: Consumer, *, limit: int, space: int = MAX_BYTES
    ) -> tuple[bytes, bool]:
        """As the broker's `take`."""
        taken: list[schema.ReceivedMessage] = []
        size, ends_at = 0, time.monotonic() + STRETCH
        try:
            while len(taken) < limit and time.monotonic() < ends_at:
                payload, more = self._broker.take(
                    self._subscription,
                    consumer,
                    limit=1,
                    now=self._now(),
                    space=space,
                    beside=size,
                )
                if not payload:
                    return _response(taken), more
                received = schema.PullResponse.FromString(payload).received_messages[0]
                taken.append(received)  # already, so that it is withdrawn if we are cancelled
                kept = await self._transformed(received)
                self._broker.check_consumer(self._subscription, consumer)
                if not kept:
                    taken.pop()
                elif size and size + received.ByteSize() > space:
                    self._withdraw([taken.pop()])
                    break
                else:
                    size += received.ByteSize()
        except BaseException:
            self._withdraw(taken)
            raise
        return _response(taken), True

    async def _transformed(self, received: schema.ReceivedMessage) -> bool:
        """Transform a message; whether it is to be delivered."""
        message_id = received.message.message_id
        try:
            kept = await self._transform(received.message)
        except ScriptError as error:
            log.warning("%s: message %s: %s", self._subscription.config.name, message_id, error)
            self._broker.fail(self._subscription, received.ack_id, now=self._now())
            return False
        if kept is None:
            self._broker.leave_out(self._subscription, received.ack_id, now=self._now())
            return False
        return True

    def _withdraw(self, taken: list[schema.ReceivedMessage]) -> None:
        ids = [received.ack_id for received in taken]
        self._broker.withdraw(self._subscription, ids, now=self._now())


def _response(taken: list[schema.ReceivedMessage]) -> bytes:
    return schema.PullResponse(received_messages=taken).SerializeToString()

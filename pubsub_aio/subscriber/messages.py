"""Responses of the server as messages, each an object of its own."""

from __future__ import annotations

from pubsub_aio._core.leases import Block
from pubsub_aio._wire import schema
from pubsub_aio.message import Message
from pubsub_aio.subscriber.custody import Custody


class MessageCustody(Custody[Message]):
    """Custody of single messages."""

    def receive(self, data: bytes) -> bool:
        """Take in a response, of a stream or of a pull; returns whether it brought messages."""
        response = schema.StreamingPullResponse.FromString(data)
        if response.HasField("subscription_properties"):
            self._heed(response.subscription_properties)
        received = response.received_messages
        if not received:
            return False
        block: Block[Message] = Block(self._loop.time(), len(data))
        self._take_in(block, [Message(one, one.message, self, block) for one in received])
        return True

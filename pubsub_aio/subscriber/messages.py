"""Responses of the server as messages, each an object of its own."""

from __future__ import annotations

from pubsub_aio._core.leases import Block
from pubsub_aio._wire import schema
from pubsub_aio._wire.columns import columns_of
from pubsub_aio.message import Message, WholeMessage
from pubsub_aio.subscriber.custody import Custody


class MessageCustody(Custody[Message]):
    """Custody of single messages."""

    def receive(self, responses: list[bytes]) -> bool:
        """Take in responses, of a stream or of a pull; returns whether they brought messages."""
        data = b"".join(responses)
        block: Block[Message] = Block(self._loop.time(), len(data))
        # Where order matters every field of a message is looked at.
        columns = columns_of(data) if self.ordered is False else None
        if columns is not None:
            self._heed(columns.properties)
            messages = Message.all_in(columns, self, block)
            block.ids = columns.message_ids
        else:
            read = schema.Responses.FromString(data)
            self._heed(read.subscription_properties)
            messages = WholeMessage.all_of(read.received_messages, self, block)
        if messages:
            self._take_in(block, messages)
        return bool(messages)

"""Messages that were pulled one call at a time: nobody keeps them alive but their user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport
from pubsub_aio.errors import AlreadySettledError, UnconfirmedError
from pubsub_aio.message import Confirmation, Message, WholeMessage
from pubsub_aio.subscriber.sender import Sender

_FLUSH_AT = 250


class Pulled:
    """Settles the messages that were pulled from one subscription, while its `run` runs."""

    exactly_once = False  # a pull does not tell
    gathers_in = 0  # it is the lease of its messages too, and hears of every ack

    def __init__(self, transport: Transport, subscription: str) -> None:
        self.sender = Sender(transport, subscription, flush_at=_FLUSH_AT)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def messages(self, received: Iterable[schema.ReceivedMessage]) -> list[Message]:
        """Messages whose user can settle them."""
        return WholeMessage.all_of(received, self, self)

    def ack(self, message: Message, confirmation: Confirmation | None = None) -> None:
        """Tell the server that the message is dealt with."""
        self._settle(message, None, confirmation)

    def nack(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        """Give it back."""
        self._settle(message, seconds, confirmation)

    def extend(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        """Move its deadline."""
        self._settle(message, seconds, confirmation, keep=seconds > 0)

    def drop(self, message: Message) -> None:
        """Forget it; it comes again when its deadline has passed."""
        message.lease = None

    def _settle(
        self,
        message: Message,
        seconds: int | None,
        confirmation: Confirmation | None,
        *,
        keep: bool = False,
    ) -> None:
        if threading.get_ident() != self._thread:
            try:
                self._loop.call_soon_threadsafe(
                    lambda: self._settle(message, seconds, confirmation, keep=keep)
                )
            except RuntimeError:  # the loop is closed, and with it the client
                if confirmation is not None:
                    confirmation.set_exception(UnconfirmedError(message.ack_id))
            return
        if message.lease is None:
            if confirmation is not None:
                confirmation.set_exception(AlreadySettledError(message.ack_id))
            return
        if not keep:
            message.lease = None
        if confirmation is not None:
            self.sender.confirm(message.ack_id, seconds, confirmation, is_extension=keep)
        if seconds is None and message.ordering_key:  # it may have exactly-once delivery too
            self.sender.ack_in_order(message.ordering_key, message.place, [message.ack_id])
        elif seconds is None:
            self.sender.acks.append(message.ack_id)
            self.sender.acks_wait()
        else:
            (self.sender.extend if keep else self.sender.nack)([message.ack_id], seconds)

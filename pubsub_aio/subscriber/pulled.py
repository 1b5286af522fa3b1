"""Messages that were pulled one call at a time: nobody keeps them alive but their user."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable

from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import MAX_ACK_DEADLINE
from pubsub_aio.errors import AlreadySettledError, UnconfirmedError
from pubsub_aio.message import Confirmation, Message, Told, WholeMessage
from pubsub_aio.subscriber.fates import Fates
from pubsub_aio.subscriber.sender import Sender

_FLUSH_AT = 250


class Pulled:
    """Settles the messages that were pulled from one subscription, while its `run` runs."""

    exactly_once = False  # a pull does not tell
    ending = False
    gathers_in = 0  # it is the lease of its messages too, and hears of every ack

    def __init__(self, transport: Transport, subscription: str) -> None:
        self.subscription = subscription
        self.sender = Sender(transport, subscription, flush_at=_FLUSH_AT)
        self._fates: Fates[Message] = Fates()
        self._lapses_at: dict[Message, float] = {}  # those of which is to be told
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
        if threading.get_ident() != self._thread:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the client
                self._loop.call_soon_threadsafe(self.drop, message)
        elif message.lease is not None:
            message.lease = None
            self._tell(message, acked=False)

    def watch(self, message: Message, told: Told) -> None:
        """Have somebody told, once, what becomes of a message that is held.

        One that is neither settled nor extended for as long as a deadline can be counts as let go.
        """
        self.catch_up()
        self._fates.watch(message, told)
        self._lapses_at[message] = self._loop.time() + MAX_ACK_DEADLINE

    def catch_up(self) -> None:
        """Tell now whatever is to be told."""
        while self._lapses_at:
            oldest, at = next(iter(self._lapses_at.items()))
            if at > self._loop.time():
                break
            self._tell(oldest, acked=False)

    def _tell(self, message: Message, *, acked: bool) -> None:
        self._lapses_at.pop(message, None)
        self._fates.tell([message], acked=acked)

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
            if seconds is None:
                self._fates.tell_when_confirmed(message, confirmation)
        if not keep:
            self._tell(message, acked=seconds is None)
        elif self._lapses_at.pop(message, None) is not None:
            self._lapses_at[message] = self._loop.time() + MAX_ACK_DEADLINE
        if seconds is None and message.ordering_key:  # it may have exactly-once delivery too
            self.sender.ack_in_order(message.ordering_key, message.place, [message.ack_id])
        elif seconds is None:
            self.sender.acks.append(message.ack_id)
            self.sender.acks_wait()
        else:
            (self.sender.extend if keep else self.sender.nack)([message.ack_id], seconds)

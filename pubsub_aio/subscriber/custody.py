"""What becomes of messages: settled by their users, or by how their callbacks end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from threading import get_ident
from typing import TypeVar
from weakref import WeakValueDictionary

from pubsub_aio._core.leases import Block
from pubsub_aio._core.outbox import Outcome, Request
from pubsub_aio.errors import AlreadySettledError, InvalidAckIdError, LeaseExpiredError
from pubsub_aio.message import Confirmation, Told
from pubsub_aio.subscriber.held import Held
from pubsub_aio.subscriber.keeping import Keeping
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.sender import Sender

log = logging.getLogger("pubsub_aio.subscriber")

M = TypeVar("M", bound=Held)


class Custody(Keeping[M]):
    """Everything that is done with what a subscription holds. It belongs to its loop.

    Only `ack`, `nack`, `extend` and `drop`, which messages call, may be called in any thread.

    Args:
        sender: Tells the server.
        options: How the subscription is to be.
        report: Is told of what should not happen: a kind, and what to do about it.
    """

    def __init__(
        self, sender: Sender, options: Options, report: Callable[[str, str], None]
    ) -> None:
        super().__init__(sender, options, report)
        self.subscription = sender.subscription
        """The full name of the subscription."""
        self._thread = get_ident()
        # Messages whose deadlines users have moved, until the server has answered to that.
        self._moved: WeakValueDictionary[tuple[str, int], M] = WeakValueDictionary()
        sender.on_outcome = self._answered

    def watch(self, message: M, told: Told) -> None:
        """Have somebody told, once, what becomes of a message that is held."""
        self._fates.watch(message, told)

    def catch_up(self) -> None:
        """Tell now whatever is to be told."""
        self.count_acks()

    # Settling

    def ack(self, message: M, confirmation: Confirmation | None = None) -> None:
        """Tell the server that the message is dealt with."""
        block: Block[M] | None = message.lease  # type: ignore[assignment] # opaque to messages
        if get_ident() != self._thread:
            self._hop(self.ack, message, confirmation)
        elif block is None:
            self._too_late(message, confirmation)
        else:
            message.lease = None
            if not block.acked:
                self._acks_wait(block)
            block.acked.append(message)
            if confirmation is not None:
                self._sender.confirm(message.ack_id, None, confirmation)
                self._fates.tell_when_confirmed(message, confirmation)
            if self._follow_up:
                self._follow_ack(message)
            else:
                block.gathers_in = self._thread

    def _follow_ack(self, message: M) -> None:
        """Something depends on which message was acked."""
        self.count_acks()
        self._settled(message, acked=True)
        if self.leases.received:
            self.lease_more()

    def nack(self, message: M, seconds: int, confirmation: Confirmation | None = None) -> None:
        """Give it back, to come again after that many seconds."""
        if get_ident() != self._thread:
            self._hop(self.nack, message, seconds, confirmation)
            return
        if self.leases.release(message) is None:
            self._too_late(message, confirmation)
            return
        if confirmation is not None:
            self._sender.confirm(message.ack_id, seconds, confirmation)
        self.counts["nacked"] += 1
        self._tell_nack([message], seconds)
        self._settled(message, acked=False, delay=seconds)
        self.lease_more()

    def extend(self, message: M, seconds: int, confirmation: Confirmation | None = None) -> None:
        """Move its deadline; to now, and it is given back."""
        if get_ident() != self._thread:
            self._hop(self.extend, message, seconds, confirmation)
        elif seconds == 0:
            self.nack(message, 0, confirmation)
        elif message.lease is None:
            self._too_late(message, confirmation)
        else:
            if confirmation is not None:
                self._sender.confirm(message.ack_id, seconds, confirmation, is_extension=True)
            self._sender.extend([message.ack_id, *self._copies.of([message])], seconds)
            self._moved[message.ack_id, seconds] = message
            self._renew_within(seconds, [message])

    def drop(self, message: M) -> None:
        """Let go of it without a word to the server."""
        if get_ident() != self._thread:
            self._hop(self.drop, message)
        elif self.leases.release(message) is None:
            self._too_late(message, None)
        else:
            self.counts["dropped"] += 1
            self._leave(message)
            self.lease_more()

    def _hop(self, method: Callable[..., None], message: M, *rest: object) -> None:
        """Go on in the loop's own thread."""
        try:
            self._loop.call_soon_threadsafe(method, message, *rest)
        except RuntimeError:  # the loop is closed, and with it the subscription
            if rest and isinstance(confirmation := rest[-1], Confirmation):
                confirmation.set_exception(LeaseExpiredError(message.ack_id))

    def _too_late(self, message: M, confirmation: Confirmation | None) -> None:
        """Somebody settles what is settled; reported if its lease ended before."""
        late = self._overdue.has_expired(message)
        if late:
            self.counts["late"] += 1
            self._report("late", f"message {message.message_id} was settled after its lease ended")
        if confirmation is not None:
            error = LeaseExpiredError if late else AlreadySettledError
            confirmation.set_exception(error(message.ack_id))

    # How callbacks end

    def returned(self, message: M) -> None:
        """A callback ended, or was never begun because its message had been given back."""
        if message.lease is not None and self._options.auto_ack:
            self.ack(message)
        elif message.lease is not None:
            self._overdue.left_unsettled(message)
            self._follow_acks()
        elif self._overdue.ended(message):
            self._watch()
            self.lease_more()
        if self._ordered is not False and message.ordering_key:
            self._run(self._lanes.returned(message))

    def raised(self, message: M, error: BaseException) -> None:
        """A callback failed: its message comes again, and the subscription goes on."""
        self.failed(f"message {message.message_id}", error)
        if message.lease is not None:
            self.nack(message, 0)
        self.returned(message)

    def failed(self, what: str, error: BaseException) -> None:
        """A callback failed; that it was cancelled at the end, or ends the process, is none."""
        cancelled = self.ending and isinstance(error, asyncio.CancelledError)
        if not cancelled and not isinstance(error, SystemExit | KeyboardInterrupt):
            self.counts["raised"] += 1
            log.error("the callback failed on %s", what, exc_info=error)

    # What the server answers

    def _answered(self, request: Request, outcome: Outcome) -> None:
        """Heed what the server said to a request."""
        self.freed.set()
        if request.seconds is None:
            self.counts["acked"] += len(outcome.confirmed)
        if outcome.failed:
            self.counts["refused"] += len(outcome.failed)
        if self._moved and request.is_extension and request.seconds:
            self._heed_moved(outcome.confirmed, request.seconds)
        if self._receipts and request.is_extension:
            self._received_surely(outcome)
        if outcome.failed and request.is_extension and self.exactly_once:
            self._lose(_invalid(outcome))
        if self.given_back and request.seconds is not None and not request.is_extension:
            answered = (*outcome.confirmed, *outcome.failed)
            self.given_back.answered(answered, request.seconds, now=self._loop.time())
        if self.leases.received or not self.room.is_set():
            self.lease_more()

    def _heed_moved(self, ack_ids: list[str], seconds: int) -> None:
        """Deadlines were moved: perhaps just now, after a renewal that overtook that."""
        for ack_id in ack_ids:
            if (message := self._moved.pop((ack_id, seconds), None)) is not None:
                self._renew_within(seconds, [message])

    def _received_surely(self, outcome: Outcome) -> None:
        """Keep the messages whose receipt is confirmed, forget the others."""
        refused = self._receipts.answered(outcome)
        for message in refused:
            message.lease = None
        self._let_go_of(refused, lost=_invalid(outcome))
        if ready := self._receipts.ready():
            self._keep_sure(ready)
        if not self.room.is_set():
            self._bound()

    def _lose(self, ack_ids: set[str]) -> None:
        """The server has given these to somebody else; who works on them goes on."""

        def is_lost(message: M) -> bool:
            return not ack_ids.isdisjoint(self._ids([message]))

        self.counts["lost"] += len(ack_ids)
        lost = [message for message in self.leases.held() if is_lost(message)]
        for message in lost:
            self.leases.release(message)
            self._overdue.expire(message, begun=not self._lanes.waits(message))
        lost += self.leases.withdraw(is_lost)
        self._let_go_of(lost, lost=ack_ids)
        self._watch()

    def _let_go_of(self, messages: list[M], *, lost: set[str]) -> None:
        """Give back what the server may still count as held here."""
        for message in messages:
            self._sender.nack([one for one in self._ids([message]) if one not in lost], 0)
            self._settled(message, acked=False, told=message.ack_id not in lost)


def _invalid(outcome: Outcome) -> set[str]:
    """The ids that the server calls invalid: they are somebody else's."""
    failed = outcome.failed.items()
    return {ack_id for ack_id, why in failed if isinstance(why, InvalidAckIdError)}

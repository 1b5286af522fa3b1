"""Tells the server what the outbox holds: acks, nacks and extensions."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable

from pubsub_aio._core.lanes import Place
from pubsub_aio._core.outbox import Outbox, Outcome, Request
from pubsub_aio._core.pacing import Pacing
from pubsub_aio._wire import codec
from pubsub_aio._wire.transport import Transport
from pubsub_aio.errors import ServiceError, UnconfirmedError
from pubsub_aio.message import Confirmation

log = logging.getLogger("pubsub_aio.subscriber")

_MAX_CALLS = 16  # at once, and as many for extensions; what comes meanwhile gathers in the outbox
_CALL_TIMEOUT = 10.0
_EXTENSION_TIMEOUT = 5.0


class Sender:
    """Sends a subscription's outbox, for as long as its `run` runs.

    Args:
        transport: By which way.
        subscription: The full name of the subscription.
        flush_at: How many acks are sent without waiting for more.
    """

    def __init__(
        self,
        transport: Transport,
        subscription: str,
        *,
        flush_at: int,
    ) -> None:
        self.outbox = Outbox()
        self.acks = self.outbox.acks
        """Ids to be acked; `acks_wait` is to be called when the first is added, or many are."""
        self.flush_at = flush_at
        self._transport = transport
        self.subscription = subscription
        self.on_outcome: Callable[[Request, Outcome], None] = lambda *_: None
        """Is told what became of each request."""
        self.on_end: Callable[[], None] = lambda: None
        """Is told that nothing more is sent, and nothing more answered."""
        self.call = self._call
        """Makes the call of a request; who wants to see each wraps it."""
        self._confirmations: dict[tuple[str, int | None, bool], list[Confirmation]] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._nacked = asyncio.Event()  # set while every nack was answered
        self._nacked.set()
        self._timer: asyncio.TimerHandle | None = None
        self._pacing = Pacing()
        self._ended = False

    # Adding

    def acks_wait(self) -> None:
        """Send the acks that wait soon, or now if there are many."""
        self._soon()
        if len(self.acks) >= self.flush_at:
            self.flush()

    def ack_in_order(self, key: str, place: Place, ack_ids: list[str]) -> None:
        """Ack a message of an ordering key, not before any that is earlier and acked too."""
        self.outbox.ack_in_order(key, place, ack_ids, now=self._loop.time())
        self._soon()

    def extend(self, ack_ids: list[str], seconds: int) -> None:
        """Ask for more time, soon."""
        if ack_ids:
            self.outbox.extend(ack_ids, seconds)
            self._soon()

    def nack(self, ack_ids: list[str], seconds: int) -> None:
        """Give messages back, soon."""
        if ack_ids:
            self._nacked.clear()
            self._tell_struck(self.outbox.nack(ack_ids, seconds))
            self._soon()

    def confirm(
        self,
        ack_id: str,
        seconds: int | None,
        confirmation: Confirmation,
        *,
        is_extension: bool = False,
    ) -> None:
        """Have the next answer about this id told to somebody.

        Args:
            ack_id: Which.
            seconds: Its deadline; none if it is acked.
            confirmation: Resolved then.
            is_extension: Whether it is held on to; otherwise it is given back, if not acked.
        """
        if self._ended:
            confirmation.set_exception(UnconfirmedError(ack_id))
            return
        asked = (ack_id, seconds, is_extension)
        self._confirmations.setdefault(asked, []).append(confirmation)

    def flush(self) -> None:
        """Send everything now."""
        self._wake.set()

    def _soon(self) -> None:
        self._idle.clear()
        if self._timer is None and not self._ended:
            at = self._pacing.due_at(len(self.acks), now=self._loop.time())
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake.set()

    # Sending

    async def run(self) -> None:
        """Send until cancelled; what is not sent then stays in the outbox."""
        # Apart, or a server that takes no acks would cost the leases of what is held.
        slots, extension_slots = asyncio.Semaphore(_MAX_CALLS), asyncio.Semaphore(_MAX_CALLS)
        try:
            async with asyncio.TaskGroup() as calls:
                while True:
                    await self._wait(slots, extension_slots)
                    self._stop_timer()  # whatever it was set for goes now
                    for request in self.outbox.take(
                        now=self._loop.time(),
                        owed=not slots.locked(),
                        extensions=not extension_slots.locked(),
                    ):
                        self._pacing.sent(now=self._loop.time())
                        of_its_kind = extension_slots if request.is_extension else slots
                        calls.create_task(self._send(request, of_its_kind))
                    if self.outbox.cut_short:
                        self._wake.set()
                        await asyncio.sleep(0)  # others have their turn
        finally:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def _wait(self, slots: asyncio.Semaphore, extension_slots: asyncio.Semaphore) -> None:
        """Return when there is something to be sent."""
        at = self.outbox.next_at(owed=not slots.locked(), extensions=not extension_slots.locked())
        if at > self._loop.time() and not self._wake.is_set():
            try:
                async with asyncio.timeout_at(at if at < math.inf else None):
                    await self._wake.wait()
            except TimeoutError:
                return
        self._wake.clear()

    async def _send(self, request: Request, slots: asyncio.Semaphore) -> None:
        async with slots:
            error = await self.call(request)
            more_may_wait = slots.locked()
        outcome = self.outbox.answered(
            request,
            error,
            now=self._loop.time(),
            chance=random.random(),  # noqa: S311
        )
        self._tell(request, outcome)
        self.on_outcome(request, outcome)
        if more_may_wait or self.outbox.next_at() < math.inf:
            self._wake.set()
        elif self.outbox.waiting:
            self._soon()
        if not len(self.outbox):
            self._idle.set()
        if not self.outbox.nacking:
            self._nacked.set()

    async def _call(self, request: Request) -> ServiceError | None:
        timeout = _EXTENSION_TIMEOUT if request.is_extension else _CALL_TIMEOUT
        if request.seconds is None:
            rpc, data = "Acknowledge", codec.acknowledge(self.subscription, request.ids)
        else:
            rpc = "ModifyAckDeadline"
            data = codec.modify_ack_deadline(self.subscription, request.ids, request.seconds)
        try:
            await self._transport.call(rpc, data, timeout=timeout)
        except ServiceError as error:
            log.debug("%s of %d ids: %s", rpc, len(request.ids), error)
            return error
        return None

    def _tell(self, request: Request, outcome: Outcome) -> None:
        if not self._confirmations:
            return
        self._tell_struck(outcome.struck)
        asked = (request.seconds, request.is_extension)
        for ack_id in outcome.confirmed:
            for confirmation in self._confirmations.pop((ack_id, *asked), ()):
                confirmation.set_result(None)
        for ack_id, error in outcome.failed.items():
            for confirmation in self._confirmations.pop((ack_id, *asked), ()):
                confirmation.set_exception(error)

    def _tell_struck(self, struck: list[tuple[str, int]]) -> None:
        """Extensions are not sent any more."""
        for ack_id, seconds in struck:
            for confirmation in self._confirmations.pop((ack_id, seconds, True), ()):
                confirmation.set_exception(UnconfirmedError(ack_id))

    # Ending

    async def nacks_answered(self) -> None:
        """Return when the server knows of everything that was given back, or that was given up."""
        self.flush()
        await self._nacked.wait()

    async def drained(self) -> None:
        """Return when everything was sent and answered, or given up."""
        self.flush()
        await self._idle.wait()

    def end(self) -> None:
        """Nothing more is sent: tell those who wait for a confirmation that none will come."""
        self._ended = True
        waiting, self._confirmations = self._confirmations, {}
        for (ack_id, *_), confirmations in waiting.items():
            for confirmation in confirmations:
                confirmation.set_exception(UnconfirmedError(ack_id))
        self.on_end()

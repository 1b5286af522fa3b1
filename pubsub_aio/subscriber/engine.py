"""What runs behind a live subscription: readers, custody, consumer and sender, and their end."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import FlowControl
from pubsub_aio.errors import PubSubError, ReconnectError, ServiceError, UnsupportedError
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.fresh_starts import FreshStarts
from pubsub_aio.subscriber.held import Held
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.pulls import PullReader
from pubsub_aio.subscriber.restarts import Reader, Restarts
from pubsub_aio.subscriber.sender import Sender
from pubsub_aio.subscriber.startup import Startup
from pubsub_aio.subscriber.streams import StreamReader
from pubsub_aio.subscriber.vitals import Health, Vitals

log = logging.getLogger("pubsub_aio.subscriber")

_MAX_FLUSH = 2_500
_LAST_FLUSH = 0.2  # seconds for the last nacks of one that has to hurry
_MAX_LAST_READ = 2.0  # seconds, for what is on its way at the end
_STUBBORN = 1.0  # seconds that a cancelled callback has to end


M = TypeVar("M", bound=Held)


class Consumer(Protocol[M]):
    """Who takes the messages that are leased."""

    def put(self, messages: list[M]) -> None:
        """Take these."""

    @property
    def busy(self) -> int:
        """How many callbacks have begun and not ended."""

    def withdraw(self) -> list[M]:
        """Take back what has not been begun."""

    async def finished(self) -> None:
        """Return when no callback runs."""

    async def stop(self, *, timeout: float) -> int:
        """Cancel the callbacks that run; returns how many did not end within the timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[M]):
    """How messages are kept and handed over: one by one, in batches, or as columns."""

    custody: Callable[[Sender, Options, Callable[[str, str], None]], Custody[M]]
    """Makes the custody, given a sender, the options, and whom to report to."""

    consumer: Callable[[Custody[M]], Consumer[M]]
    """Makes the consumer, given the custody that messages come from."""

    close: Callable[[], None] = lambda: None
    """Called at the end."""


class Engine(Generic[M]):
    """Runs one subscription. It is made in the loop that it runs in.

    Args:
        name: The full name of the subscription.
        transport: By which way.
        kind: How messages are kept and handed over.
        options: How it is to be.
        client_ids: What the streams call themselves, one each; the same when they are reopened.
        started: Set when the first stream works.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        kind: Kind[M],
        options: Options,
        client_ids: list[str],
        *,
        started: asyncio.Event,
    ) -> None:
        self.failure: Exception | None = None
        """Why it had to end, if it had to."""
        self.startup = Startup(transport, name, timeout=options.startup_timeout)
        self.vitals = Vitals(
            name,
            options.on_event,
            started=started,
            budgets=(options.startup_timeout, options.streams.reconnect_budget),
        )
        self._name = name
        self._transport = transport
        self._options = options
        self._client_ids = client_ids
        flow = options.flow_control
        self._sender = Sender(transport, name, flush_at=_flush_at(flow))
        self.custody = kind.custody(self._sender, options, self.vitals.report)
        self._consumer = kind.consumer(self.custody)
        self.custody.deliver = self._consumer.put
        self._readers: list[Reader] = []
        self._failed = asyncio.Event()
        self._gone = False  # everything was let go of

    # Life

    async def start(self, before: asyncio.Future[object] | None) -> None:
        """Check what can be checked before the first message.

        Raises:
            StartupError: It is no use to go on.
            UnsupportedError: The subscription needs what the transport cannot do.
        """
        if before is not None:
            await asyncio.shield(before)
        await self.startup.run()
        for check in self.startup.checks:
            if check.outcome == "warning":
                self.vitals.report("warning", str(check))
        self._heed()

    def _heed(self) -> None:
        """Go by what the server says of the subscription, if it said anything."""
        found = self.startup.found
        if found is None:
            return
        self.custody.ordered = found.enable_message_ordering
        self.custody.exactly_once = found.enable_exactly_once_delivery
        if found.enable_exactly_once_delivery and not self._transport.can.confirmations:
            raise UnsupportedError(
                f"{self._name} has exactly-once delivery, and the {self._transport.name} transport "
                'cannot confirm acks: use transport="grpc"'
            )

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Read and hand over until told to stop, or until it fails; then end by the policy.

        Args:
            stop: Set to end it.
            hurry: Set to end it without waiting for callbacks.
        """
        self._readers = [self._reader(client_id) for client_id in self._client_ids]
        restarts = self._restarts()
        self.custody.given_back.on_restart = restarts.add
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self._sender.run())
                others = [tasks.create_task(restarts.run()), tasks.create_task(self._refresh())]
                reading = [tasks.create_task(self._read(reader)) for reader in self._readers]
                await _first_of(stop, self._failed)
                self.vitals.change("stopping")
                self.custody.close()
                self.custody.give_back(self._consumer.withdraw())
                async with asyncio.TaskGroup() as ends:
                    ends.create_task(self._read_the_rest(reading, hurry))
                    await self._end_callbacks(hurry)
                await self._flush(hurry)
                for task in (sending, *others):
                    task.cancel()
        finally:
            try:
                await self._let_go()
            finally:
                self._sender.end()

    def _restarts(self) -> Restarts | FreshStarts:
        """Who sees to the order when something was given back."""
        custody = self.custody

        def deadline() -> float:
            return custody.extension

        if custody.knows_what_comes_again:
            return Restarts(self._readers, custody.all_read, deadline)
        return FreshStarts(
            self._readers,
            self._sender,
            deadline,
            give_back=custody.give_back_aside,
            trust=custody.trust,
        )

    async def _refresh(self) -> None:
        """Look at the subscription's settings now and then, if that is wanted."""
        while self._options.refresh_interval is not None:
            await asyncio.sleep(self._options.refresh_interval)
            try:
                self.startup.found = await self.startup.look()
                self._heed()
            except PubSubError as error:
                self.vitals.report("warning", f"the settings could not be refreshed: {error}")

    def _reader(self, client_id: str) -> Reader:
        if not self._transport.can.streaming:
            return PullReader(
                self._transport,
                self._name,
                custody=self.custody,
                vitals=self.vitals,
                policy=self._options.streams,
            )
        return StreamReader(
            self._transport,
            self._name,
            custody=self.custody,
            vitals=self.vitals,
            policy=self._options.streams,
            first_request=lambda: self._first_request(client_id),
        )

    def _first_request(self, client_id: str) -> schema.StreamingPullRequest:
        flow, streams = self.custody.leases.flow, len(self._client_ids)
        return schema.StreamingPullRequest(
            subscription=self._name,
            client_id=client_id,
            stream_ack_deadline_seconds=self.custody.extension,
            max_outstanding_messages=math.ceil(flow.max_outstanding_messages / streams),
            max_outstanding_bytes=math.ceil(flow.max_bytes / streams),
            protocol_version=1,
        )

    async def _read(self, reader: Reader) -> None:
        try:
            await reader.run()
        except (ServiceError, ReconnectError) as error:
            self._fail(error if self.vitals.started.is_set() else self.startup.refused(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the subscription has failed
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._failed.set()

    # The end

    async def _read_the_rest(self, reading: list[asyncio.Task[None]], hurry: asyncio.Event) -> None:
        """Read what is on its way: it goes back at once, instead of when its deadline passes."""
        most = min(self._options.shutdown.timeout, _MAX_LAST_READ)
        await _within(most, self._readers_end(reading), hurry)
        for task in reading:
            task.cancel()
        await _all_of(reading)
        self.custody.give_back_aside()

    async def _readers_end(self, reading: list[asyncio.Task[None]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            finishing = [tasks.create_task(reader.finish()) for reader in self._readers]
            waiting = [tasks.create_task(_all_of(each)) for each in (finishing, reading)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in (*finishing, *waiting):
                task.cancel()

    async def _end_callbacks(self, hurry: asyncio.Event) -> None:
        """Wait for callbacks that have begun, if that is wanted, and cancel them after that."""
        policy, consumer = self._options.shutdown, self._consumer
        if policy.mode == "wait" and consumer.busy:
            await _within(policy.timeout, consumer.finished(), hurry)
        await self._let_go()

    async def _flush(self, hurry: asyncio.Event) -> None:
        """Send the last acks."""
        flush_timeout = self._options.shutdown.flush_timeout
        await _within(flush_timeout, self._sender.drained(), hurry)
        if hurry.is_set():
            await _within(_LAST_FLUSH, self._sender.drained(), asyncio.Event())

    async def _let_go(self) -> None:
        """Cancel the callbacks that run, and give back whatever is held; once."""
        if self._gone:
            return
        try:
            stubborn = await self._consumer.stop(timeout=_STUBBORN)
            if stubborn:
                log.error("%s: %d callbacks did not end although cancelled", self._name, stubborn)
        finally:
            self.custody.stop()
            self._gone = True

    # On the way

    def change_flow(self, flow: FlowControl) -> None:
        """Go on with other limits; the server is told where it must be."""
        before = self.custody.leases.flow
        self.custody.leases.flow = flow
        self._sender.flush_at = _flush_at(flow)
        self.custody.lease_more()
        told = (flow.max_outstanding_messages, flow.max_bytes)
        if told != (before.max_outstanding_messages, before.max_bytes):
            for reader in self._readers:
                reader.reopen()

    async def everything_read(self) -> bool:
        """Return when all that the server had sent at the call was read; returns whether it was."""
        read = await asyncio.gather(*(reader.everything_read() for reader in self._readers))
        return bool(read) and all(read)

    def health(self) -> Health:
        """How it fares."""
        self.custody.count_acks()
        custody, leases = self.custody, self.custody.leases
        state = self.vitals.state
        reasons = []
        if state != "running":
            reasons.append(f"it is {state}")
        if self.vitals.last_error and state == "reconnecting":
            reasons.append(f"the stream was lost: {self.vitals.last_error}")
        reasons += custody.halts.reasons()
        return Health(
            ok=state == "running" and not custody.halts.stuck,
            state=state,
            reasons=tuple(reasons),
            streams=self.vitals.streams,
            leased=leases.leased,
            leased_bytes=leases.leased_bytes,
            received=leases.received + custody.gathered,
            running=self._consumer.busy,
            overdue=custody.overdue,
            unsent=len(self._sender.outbox),
            counts=dict(custody.counts),
            last_error=self.vitals.last_error,
        )


def _flush_at(flow: FlowControl) -> int:
    """Half of what may be held: acks go out while the rest is worked on."""
    return max(1, min(_MAX_FLUSH, flow.max_messages // 2))


async def _first_of(*events: asyncio.Event) -> None:
    """Return when one of these is set."""
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(event.wait()) for event in events]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()


async def _all_of(tasks: list[asyncio.Task[None]]) -> None:
    """Return when all of these have ended."""
    await asyncio.wait(tasks)


async def _within(seconds: float, work: Awaitable[object], hurry: asyncio.Event) -> None:
    """Wait for something, but not too long."""
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(_awaited(work))
        hurrying = tasks.create_task(hurry.wait())
        await asyncio.wait(
            (working, hurrying), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        working.cancel()
        hurrying.cancel()


async def _awaited(work: Awaitable[object]) -> None:
    await work

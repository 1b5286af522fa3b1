"""SubscriberClient: what users begin with."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from pubsub_aio._core.batches import Gathering
from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import GIB, MIB, FlowControl, Setting, check
from pubsub_aio.errors import ConfigError
from pubsub_aio.message import Message
from pubsub_aio.subscriber.batches import BatchCallback, BatchConsumer, check_batch, for_batches
from pubsub_aio.subscriber.callbacks import WorkerChain
from pubsub_aio.subscriber.calls import SubscriberCalls
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.engine import Consumer, Kind
from pubsub_aio.subscriber.inbox import Inbox
from pubsub_aio.subscriber.loops import on_signals
from pubsub_aio.subscriber.messages import MessageCustody
from pubsub_aio.subscriber.options import Options, SubscribeOptions, complete
from pubsub_aio.subscriber.schedulers import AnyCallback, Scheduler, check_callback, in_loop
from pubsub_aio.subscriber.sender import Sender
from pubsub_aio.subscriber.slots import Slots
from pubsub_aio.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from opentelemetry.trace import TracerProvider

    from pubsub_aio.subscriber.arrow import ArrowBatch, ArrowCallback, ArrowCustody
    from pubsub_aio.subscriber.traced import Tracing


class SubscriberClient(SubscriberCalls):
    """Receives messages in an asyncio program, or in one that has no loop yet.

    In a running loop use it with `async with`. Without one it brings its own: `create_subscription`
    blocks until it is done, and `run_forever` runs the subscriptions. A client serves one loop, the
    first that it is used in.

    Args:
        project: The project of subscriptions and topics that are named without one; otherwise the
            environment's, GOOGLE_CLOUD_PROJECT or PUBSUB_PROJECT_ID.
        transport: `"grpc"`, `"rest"`, or a transport of your own.
        endpoint: `host:port` of the service; otherwise PUBSUB_EMULATOR_HOST if that is set, or
            Google's global endpoint.
        region: A region whose locational endpoint is used.
        credentials: Google credentials; otherwise found as Google's libraries find them.
        tracing: Whether messages have OpenTelemetry spans, like those of Google's clients. They go
            to the program's tracer provider, or to the one that is given here.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        transport: str | Transport = "grpc",
        endpoint: str | None = None,
        region: str | None = None,
        credentials: Credentials | None = None,
        tracing: bool | TracerProvider = False,
    ) -> None:
        if not isinstance(tracing, bool) and not hasattr(tracing, "get_tracer"):
            raise ConfigError(f"tracing must be a bool or a tracer provider, not {tracing!r}")
        super().__init__(
            project,
            transport=transport,
            endpoint=endpoint,
            region=region,
            credentials=credentials,
        )
        self._tracing = tracing
        source = "default" if tracing is False else "argument"
        self._settings["tracing"] = Setting(tracing is not False, source)
        self._roots: dict[Subscription, asyncio.Task[None]] = {}

    # Life

    async def __aenter__(self) -> Self:
        self._loop.get()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Stop every subscription by its policy, send what is to be sent, and disconnect.

        Closing it again does nothing.
        """
        self._closed = True
        for subscription in self._roots:
            if not subscription.stopping:
                subscription.stop()
        if self._roots:
            await asyncio.wait(self._roots.values())
        await self._end_creations()
        await self._end_pulls()
        await self._transport.close()

    def close(self) -> None:
        """The same, where no loop runs; the client's own loop is closed too."""
        if self._loop.running:
            raise ConfigError("close: a loop runs here, use `await client.aclose()`")
        if self._closed:
            return
        self._loop.get().run_until_complete(self.aclose())
        self._loop.close()

    # Subscriptions

    def subscribe(
        self,
        subscription: str,
        callback: AnyCallback,
        *,
        flow_control: FlowControl | None = None,
        scheduler: Scheduler | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """Receive messages, each handed to a callback.

        Args:
            subscription: Its name.
            callback: Called with each message. An async function runs in this loop; a plain one in
                a thread, see `scheduler`. If it raises, the message is nacked. If it returns
                without settling the message, the message is held until `max_lease_duration`.
            flow_control: How much may be held at once, and for how long.
            scheduler: Decides where callbacks run; without one, async functions run in this loop
                and plain ones in a `ThreadScheduler`.
            **options: See `SubscribeOptions`.

        Returns:
            The live subscription, a future that keeps the program alive while it is awaited.
        """
        run, made = in_loop(callback, scheduler)
        tracing = self._tracing_of(subscription)
        if tracing:
            run = tracing.callback(run)
        kind: Kind[Message] = Kind(
            custody=MessageCustody,
            consumer=lambda custody: WorkerChain(run, custody),
            close=made.close if made else lambda: None,
        )
        if tracing:
            kind = tracing.kind(kind)
        return self._begin(subscription, kind, flow_control or FlowControl(), options)

    def subscribe_batches(
        self,
        subscription: str,
        callback: BatchCallback,
        *,
        max_messages: int = 100,
        max_bytes: int = 10 * MIB,
        max_latency: float = 0.1,
        flow_control: FlowControl | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """Receive messages in batches, each handed to an async callback and settled at once.

        Args:
            subscription: Its name.
            callback: Called with each `Batch`. If it raises, what it did not settle is nacked.
            max_messages: How many messages make a batch.
            max_bytes: How many bytes make one.
            max_latency: Seconds that a message waits for others.
            flow_control: How much may be held at once; room for four batches unless told otherwise.
            **options: See `SubscribeOptions`.
        """
        check_callback(callback, "a batch")
        check_batch(max_messages, max_bytes, max_latency)
        flow = flow_control or for_batches(max_messages, max_bytes)
        if flow.max_outstanding_messages < max_messages:
            raise ConfigError(
                f"max_messages: a batch of {max_messages} does not fit into the flow control, "
                f"which allows {flow.max_outstanding_messages} at once"
            )

        tracing = self._tracing_of(subscription)
        if tracing:
            callback = tracing.batch_callback(callback)

        def consumer(custody: Custody[Message]) -> BatchConsumer:
            gathering: Gathering[Message] = Gathering(
                max_count=max_messages, max_bytes=max_bytes, max_latency=max_latency
            )
            return BatchConsumer(callback, custody, gathering)

        kind: Kind[Message] = Kind(custody=MessageCustody, consumer=consumer)
        if tracing:
            kind = tracing.kind(kind)
        return self._begin(subscription, kind, flow, options)

    def subscribe_arrow(
        self,
        subscription: str,
        callback: ArrowCallback,
        *,
        max_messages: int = 2_000,
        max_bytes: int = 10 * MIB,
        max_latency: float = 0.05,
        max_concurrent: int | None = None,
        flow_control: FlowControl | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """Receive messages as Arrow record batches, each handed to an async callback.

        No Python object is made for a message, so this costs the least. It needs the extra
        `spark`. Messages that the server delivers twice are not recognised here.

        Args:
            subscription: Its name.
            callback: Called with each `ArrowBatch`. If it raises, the batch is nacked.
            max_messages: How many messages make a batch.
            max_bytes: How many bytes make one, about; 1 GiB at most.
            max_latency: Seconds that a message waits for others.
            max_concurrent: How many callbacks run at once. While so many run what comes is
                gathered, so that the next batch is the larger. No limit unless told.
            flow_control: How much may be held at once; room for four batches unless told otherwise.
            **options: See `SubscribeOptions`.
        """
        from pubsub_aio._wire.arrow import ArrowCodec
        from pubsub_aio.subscriber.arrow import ArrowCustody

        check_callback(callback, "a batch")
        check_batch(max_messages, max_bytes, max_latency)
        check("max_bytes", max_bytes, 1, GIB, whole=True)  # a column of Arrow has 2 at most
        if max_concurrent is not None:
            check("max_concurrent", max_concurrent, 1, whole=True)
        flow = flow_control or for_batches(max_messages, max_bytes)
        codec = ArrowCodec()

        def custody(
            sender: Sender, options: Options, report: Callable[[str, str], None]
        ) -> ArrowCustody:
            return ArrowCustody(
                sender,
                options,
                report,
                codec=codec,
                max_messages=max_messages,
                max_bytes=max_bytes,
                max_latency=max_latency,
            )

        def consumer(custody: Custody[ArrowBatch]) -> Consumer[ArrowBatch]:
            if max_concurrent is None:
                return WorkerChain(callback, custody)
            assert isinstance(custody, ArrowCustody)  # noqa: S101 - tells the type checker
            slots = Slots(callback, custody, max_concurrent)
            custody.assembly.has_taker = lambda: slots.any_free
            slots.on_free = custody.assembly.look
            return slots

        kind = Kind(custody=custody, consumer=consumer)
        return self._begin(subscription, kind, flow, options)

    def messages(
        self,
        subscription: str,
        *,
        flow_control: FlowControl | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> AsyncGenerator[Message, None]:
        """Receive messages with `async for`, one at a time; leaving the loop ends it.

            async for message in client.messages("worker"):
                ...
                message.ack()

        Args:
            subscription: Its name.
            flow_control: How much may be held at once, and so be fetched ahead.
            **options: See `SubscribeOptions`.
        """
        inbox = Inbox()
        kind: Kind[Message] = Kind(custody=MessageCustody, consumer=inbox.attach)
        tracing = self._tracing_of(subscription)
        if tracing:
            kind = tracing.kind(kind)
        messages = inbox.messages(
            lambda: self._begin(subscription, kind, flow_control or FlowControl(), options)
        )
        return tracing.each(messages) if tracing else messages

    def _tracing_of(self, subscription: str) -> Tracing | None:
        """What makes a subscription's spans, if it is to have any."""
        if self._tracing is False:
            return None
        from pubsub_aio.subscriber.traced import Tracing
        from pubsub_aio.tracing.receiving import ReceiveTracer

        provider = None if self._tracing is True else self._tracing
        return Tracing(ReceiveTracer(self.subscription_name(subscription), provider))

    def _begin(
        self,
        subscription: str,
        kind: Kind[Any],
        flow: FlowControl,
        options: SubscribeOptions,
    ) -> Subscription:
        """Start a subscription, whatever becomes of its messages."""
        checked = complete(flow, options)
        self._check_open()
        loop = self._loop.get()
        name = self.subscription_name(subscription)
        settings = self._settings | {
            field.name: Setting(value, "default" if value == field.default else "argument")
            for field in dataclasses.fields(flow)
            if (value := getattr(flow, field.name)) is not None
        }
        live = Subscription(name, self._transport, kind, checked, loop=loop, settings=settings)
        root = loop.create_task(live.run(self._creating.get(name)), name=f"pubsub-aio {name}")
        self._roots[live] = root
        root.add_done_callback(lambda _: self._ended(live, kind))
        return live

    def _ended(self, live: Subscription, kind: Kind[Any]) -> None:
        self._roots.pop(live, None)
        kind.close()

    def run_forever(self, *keep_alive: Subscription) -> Coroutine[Any, Any, None] | None:
        """Run until a subscription ends; SIGINT and SIGTERM stop it gracefully, twice at once.

        Inside a running loop it returns a coroutine to be awaited. Without one it blocks, and
        closes the client at the end.

        Raises:
            PubSubError: A subscription failed.
        """
        if self._loop.running:
            return self._run_until_ended(keep_alive)
        loop = self._loop.get()
        try:
            loop.run_until_complete(self._run_until_ended(keep_alive))
        finally:
            self.close()
        return None

    async def _run_until_ended(self, keep_alive: tuple[Subscription, ...]) -> None:
        live = keep_alive or tuple(self._roots)
        if not live:
            raise ConfigError("keep_alive: there is nothing to run, subscribe first")

        def react() -> None:
            for subscription in live:
                subscription.stop()

        with on_signals(asyncio.get_running_loop(), react):
            ended, _ = await asyncio.wait(live, return_when=asyncio.FIRST_COMPLETED)
            for subscription in live:
                if not subscription.done() and not subscription.stopping:
                    subscription.stop()
            await asyncio.wait(live)
        for subscription in (*ended, *live):
            if not subscription.cancelled():
                subscription.result()

"""A subscription with tracing on: the same parts, which tell a tracer what happens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from threading import get_ident

from pubsub_aio._core.leases import Block
from pubsub_aio._core.outbox import Outcome, Request
from pubsub_aio._wire import schema
from pubsub_aio.errors import ServiceError
from pubsub_aio.message import Confirmation, Message
from pubsub_aio.subscriber.batches import Batch, BatchCallback
from pubsub_aio.subscriber.engine import Consumer, Kind
from pubsub_aio.subscriber.messages import MessageCustody
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.sender import Sender
from pubsub_aio.tracing.receiving import Operation, ReceiveTracer, TracedMessage, spans_of

MessageCallback = Callable[[Message], Awaitable[object]]


class Tracing:
    """What a client does to a subscription so that it is traced.

    Args:
        tracer: Makes the spans.
    """

    def __init__(self, tracer: ReceiveTracer) -> None:
        self._tracer = tracer

    def callback(self, callback: MessageCallback) -> MessageCallback:
        """A callback in whose spans those of its own belong."""
        processing = self._tracer.processing

        async def traced(message: Message) -> None:
            with processing([message], current=True):
                await callback(message)

        return traced

    def batch_callback(self, callback: BatchCallback) -> BatchCallback:
        """The same for many messages, none of which is the current one."""
        processing = self._tracer.processing

        async def traced(batch: Batch) -> None:
            with processing(batch, current=False):
                await callback(batch)

        return traced

    async def each(self, messages: AsyncGenerator[Message, None]) -> AsyncGenerator[Message, None]:
        """The same messages; each is worked on until the next one is asked for.

        Its span is not made the current one: whoever leaves a loop would be left with it.
        """
        async with contextlib.aclosing(messages):
            async for message in messages:
                self._tracer.began(spans_of(message))
                yield message

    def kind(self, kind: Kind[Message]) -> Kind[Message]:
        """The same kind of subscription, with spans."""
        tracer = self._tracer

        def custody(
            sender: Sender, options: Options, report: Callable[[str, str], None]
        ) -> TracedCustody:
            return TracedCustody(sender, options, report, tracer=tracer)

        return Kind(
            custody=custody,
            consumer=lambda custody: TracedConsumer(kind.consumer(custody), tracer),
            close=kind.close,
        )


class TracedCustody(MessageCustody):
    """Custody of messages with spans.

    Args:
        sender: Tells the server.
        options: How the subscription is to be.
        report: Is told of what should not happen.
        tracer: Makes the spans.
    """

    def __init__(
        self,
        sender: Sender,
        options: Options,
        report: Callable[[str, str], None],
        *,
        tracer: ReceiveTracer,
    ) -> None:
        super().__init__(sender, options, report)
        self._tracer = tracer
        self._call = sender.call
        sender.call = self._traced_call
        sender.on_end = tracer.close

    def receive(self, responses: list[bytes]) -> bool:
        """Take in responses, of a stream or of a pull; returns whether they brought messages."""
        data = b"".join(responses)
        block: Block[Message] = Block(self._loop.time(), len(data))
        read = schema.Responses.FromString(data)
        self._heed(read.subscription_properties)
        messages = TracedMessage.all_of(read.received_messages, self, block)
        for message in messages:
            self._tracer.received(message, exactly_once=self.exactly_once)
        if messages:
            self._take_in(block, messages)
        return bool(messages)

    # Settling

    def ack(self, message: Message, confirmation: Confirmation | None = None) -> None:
        """Tell the server that the message is dealt with."""
        if self._is_held(message):
            self._tracer.called(spans_of(message), "ack")
        super().ack(message, confirmation)

    def nack(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        """Give it back, to come again after that many seconds."""
        if self._is_held(message):
            self._tracer.called(spans_of(message), "nack")
        super().nack(message, seconds, confirmation)

    def drop(self, message: Message) -> None:
        """Let go of it without a word to the server."""
        if self._is_held(message):
            self._tracer.dropped(spans_of(message))
        super().drop(message)

    def _is_held(self, message: Message) -> bool:
        """Whether it can be settled, here and now."""
        return message.lease is not None and get_ident() == self._thread

    def returned(self, message: Message) -> None:
        """Nobody works on the message any more, or nobody ever will."""
        self._tracer.returned(spans_of(message))
        super().returned(message)

    def _expire(self, expired: list[Message]) -> None:
        for message in expired:
            self._tracer.expired(spans_of(message))
        super()._expire(expired)

    def _let_go_of(self, messages: list[Message], *, lost: set[str]) -> None:
        for message in messages:
            if message.ack_id in lost:
                self._tracer.expired(spans_of(message))
        super()._let_go_of(messages, lost=lost)

    # Requests

    async def _traced_call(self, request: Request) -> ServiceError | None:
        span = self._tracer.sending(_operation(request), request.ids, request.seconds or 0)
        error: BaseException | None = None
        try:
            error = refusal = await self._call(request)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._tracer.sent(span, error)
        return refusal

    def _answered(self, request: Request, outcome: Outcome) -> None:
        self._tracer.answered(_operation(request), outcome.confirmed, outcome.failed)
        super()._answered(request, outcome)


def _operation(request: Request) -> Operation:
    if request.seconds is None:
        return "ack"
    return "modack" if request.is_extension else "nack"


class TracedConsumer:
    """Tells a tracer what is handed over to another consumer.

    Args:
        consumer: The other.
        tracer: Makes the spans.
    """

    def __init__(self, consumer: Consumer[Message], tracer: ReceiveTracer) -> None:
        self._consumer = consumer
        self._tracer = tracer

    def put(self, messages: list[Message]) -> None:
        """Take these."""
        for message in messages:
            self._tracer.handed_over(spans_of(message))
        self._consumer.put(messages)

    @property
    def busy(self) -> int:
        """How many callbacks have begun and not ended."""
        return self._consumer.busy

    def withdraw(self) -> list[Message]:
        """Take back what has not been begun."""
        return self._consumer.withdraw()

    async def finished(self) -> None:
        """Return when no callback runs."""
        await self._consumer.finished()

    async def stop(self, *, timeout: float) -> int:
        """Cancel the callbacks that run; returns how many did not end within the timeout."""
        return await self._consumer.stop(timeout=timeout)

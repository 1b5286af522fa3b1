"""Spans of a subscriber: of each message from its arrival until it is settled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from typing import Literal, Self, cast

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)

from pubsub_aio.message import Message, WholeMessage
from pubsub_aio.tracing.context import extracted
from pubsub_aio.tracing.spans import (
    SYSTEM,
    Containment,
    end,
    link_back,
    links_to,
    note,
    place_of,
    sampled,
    tracer_of,
)

Operation = Literal["ack", "nack", "modack"]


@dataclass(slots=True, eq=False)
class DeliverySpans:
    """The spans of one delivery."""

    tracer: ReceiveTracer
    ack_id: str
    subscribe: Span = INVALID_SPAN
    """From its arrival until the server knows what became of it."""
    origin: Span = INVALID_SPAN
    """The publisher's."""
    waiting: Span | None = None
    """For room, or for a callback."""
    process: Span | None = None
    extended: bool = False
    ended: bool = False


class TracedMessage(WholeMessage):
    """A message with spans, whose settler hears of every ack."""

    __slots__ = ("spans",)

    spans: DeliverySpans

    def ack(self) -> None:
        """It is dealt with, and is not to come again."""
        self._settler.ack(self)

    def renew_with(self, copy: Self) -> None:
        """Go on with the ack id of another delivery, and leave it the own. The library's own."""
        super().renew_with(copy)
        self.spans.tracer.renewed(self.spans, copy.spans)


def spans_of(message: Message) -> DeliverySpans:
    """The spans of a message of a traced subscription."""
    return cast("TracedMessage", message).spans


def span_of(message: Message) -> Span:
    """The span below which your own spans of a message belong.

    In a callback with one message it is the current one anyway. Where there are many messages, or
    no callback, none is: choose one with `opentelemetry.trace.use_span(span_of(message))`.

    Returns:
        The message's `process` span, or its `subscribe` span before it is handed over. An invalid
        one if it is not traced.
    """
    if not isinstance(message, TracedMessage):
        return INVALID_SPAN
    return message.spans.process or message.spans.subscribe


class ReceiveTracer:
    """Makes the spans of one subscription, as Google's subscriber makes them.

    It belongs to the subscription's loop. Nothing here raises: an error of the tracer is logged,
    once.

    Args:
        subscription: The full name of the subscription.
        provider: Where the spans go; to the program's own provider unless told otherwise.
    """

    def __init__(self, subscription: str, provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(provider)
        self._contained = Containment()
        self._place = place_of(subscription)
        self._name = self._place["messaging.destination.name"]
        self._open: dict[str, DeliverySpans] = {}  # by ack id, until the server has answered
        self._processing: set[DeliverySpans] = set()
        self._closed = False

    # On the way to a callback

    def received(self, message: Message, *, exactly_once: bool) -> None:
        """A message came; the same delivery may come twice."""
        spans = self._open.get(message.ack_id)
        if spans is None:
            spans = self._open[message.ack_id] = DeliverySpans(self, message.ack_id)
            with self._contained:
                self._begin(spans, message, exactly_once=exactly_once)
        cast("TracedMessage", message).spans = spans

    def _begin(self, spans: DeliverySpans, message: Message, *, exactly_once: bool) -> None:
        context = extracted(message.attributes)
        spans.origin = get_current_span(context)
        spans.subscribe = self._tracer.start_span(
            f"{self._name} subscribe",
            context,
            SpanKind.CONSUMER,
            {
                **SYSTEM,
                **self._place,
                "code.function": "_on_response",
                "messaging.message.id": message.message_id,
                "messaging.message.body.size": len(message.data),
                "messaging.gcp_pubsub.message.ack_id": message.ack_id,
                "messaging.gcp_pubsub.message.ordering_key": message.ordering_key,
                "messaging.gcp_pubsub.message.exactly_once_delivery": exactly_once,
                "messaging.gcp_pubsub.message.delivery_attempt": message.delivery_attempt or 0,
            },
        )
        spans.waiting = self._below(spans.subscribe, "subscriber scheduler")

    def handed_over(self, spans: DeliverySpans) -> None:
        """A message is leased, it is its turn, and it waits for a callback to begin."""
        self._wait_no_more(spans)
        with self._contained:
            if not spans.ended:
                spans.waiting = self._below(spans.subscribe, "subscriber concurrency control")

    def _below(self, span: Span, name: str) -> Span:
        return self._tracer.start_span(name, set_span_in_context(span, Context()))

    def _wait_no_more(self, spans: DeliverySpans) -> None:
        waiting, spans.waiting = spans.waiting, None
        with self._contained:
            if waiting is not None:
                end(waiting)

    def renewed(self, held: DeliverySpans, copy: DeliverySpans) -> None:
        """A message that is held came again; what becomes of it is told to the later delivery."""
        if copy is held or held.ended:
            return
        self._end(copy, "copy")
        self._open.pop(held.ack_id, None)
        held.ack_id = copy.ack_id
        self._open[held.ack_id] = held

    # In a callback

    @contextlib.contextmanager
    def processing(self, messages: Sequence[Message], *, current: bool) -> Iterator[None]:
        """Messages are worked on in the block.

        Args:
            messages: All of them.
            current: Whether the span of the first is the current one in it.
        """
        for message in messages:
            self.began(spans_of(message))
        token = self._attached(spans_of(messages[0])) if current else None
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if token is not None:
                with self._contained:
                    detach(token)
            for message in messages:
                self.returned(spans_of(message), error)

    def _attached(self, spans: DeliverySpans) -> Token[Context] | None:
        with self._contained:
            if spans.process is not None:
                return attach(set_span_in_context(spans.process))
        return None

    def began(self, spans: DeliverySpans) -> None:
        """A message is worked on from now on."""
        self._wait_no_more(spans)
        if spans.ended or self._closed:
            return
        with self._contained:
            origin = [spans.origin] if spans.origin.get_span_context().is_valid else []
            spans.process = self._tracer.start_span(
                f"{self._name} process",
                set_span_in_context(spans.subscribe, Context()),
                attributes=SYSTEM,
                links=links_to(origin),
            )
            self._processing.add(spans)

    def returned(self, spans: DeliverySpans, error: BaseException | None = None) -> None:
        """It is not worked on any more; it may have failed."""
        if spans in self._processing:
            self._processing.discard(spans)
            with self._contained:
                end(spans.process or INVALID_SPAN, error)

    def called(self, spans: DeliverySpans, operation: str) -> None:
        """Somebody who works on a message acks or nacks it."""
        if spans in self._processing:
            with self._contained:
                note(spans.process or INVALID_SPAN, f"{operation} called")

    # What the server is told

    def sending(self, operation: Operation, ack_ids: Sequence[str], seconds: int) -> Span:
        """The server is told of these; returns the span of the request, for `sent`.

        Args:
            operation: What it is told.
            ack_ids: Of which deliveries.
            seconds: To when their deadlines are moved.
        """
        about = [spans for one in ack_ids if (spans := self._open.get(one)) is not None]
        first = bool(about) and not any(spans.extended for spans in about)
        with self._contained:
            for spans in about:
                note(spans.subscribe, f"{operation} start")
            linked = sampled(spans.subscribe for spans in about)
            rpc = self._tracer.start_span(
                f"{self._name} {operation}",
                Context(),  # it is about messages of many traces, and so of none
                SpanKind.CLIENT,
                {
                    **SYSTEM,
                    **self._place,
                    "messaging.batch.message_count": len(ack_ids),
                    **_said_of(operation, seconds, is_receipt=first),
                },
                links_to(linked),
            )
            with self._contained:
                if rpc.get_span_context().trace_flags.sampled:
                    link_back(linked, rpc.get_span_context(), operation)
            if operation == "modack":
                for spans in about:
                    spans.extended = True
            return rpc
        return INVALID_SPAN

    def sent(self, rpc: Span, error: BaseException | None) -> None:
        """The request was answered, or could not be."""
        with self._contained:
            end(rpc, error)

    def answered(
        self, operation: Operation, confirmed: Iterable[str], failed: Mapping[str, Exception]
    ) -> None:
        """The server has heeded some of what it was told, and the rest is not told again."""
        for ack_id in confirmed:
            if (spans := self._open.get(ack_id)) is not None:
                with self._contained:
                    note(spans.subscribe, f"{operation} end")
                if operation != "modack":
                    self._end(spans, f"{operation}ed")
        for ack_id, error in failed.items():
            if operation != "modack" and (spans := self._open.get(ack_id)) is not None:
                self._end(spans, None, error)

    # Its end

    def expired(self, spans: DeliverySpans) -> None:
        """A message was held for too long, or the server has given it to somebody else."""
        if spans in self._processing:
            with self._contained:
                note(spans.process or INVALID_SPAN, "expired")
        self.returned(spans)  # whoever works on it may never end
        self._end(spans, "expired")

    def dropped(self, spans: DeliverySpans) -> None:
        """A message was let go without a word to the server."""
        self._end(spans, "dropped")

    def _end(
        self, spans: DeliverySpans, result: str | None, error: BaseException | None = None
    ) -> None:
        if self._open.get(spans.ack_id) is spans:
            del self._open[spans.ack_id]
        if spans.ended:
            return
        spans.ended = True
        self._wait_no_more(spans)
        with self._contained:
            if result is not None:
                spans.subscribe.set_attribute("messaging.gcp_pubsub.result", result)
        with self._contained:
            end(spans.subscribe, error)

    def close(self) -> None:
        """The subscription has ended: leave no span open."""
        self._closed = True
        for spans in list(self._processing):
            self.returned(spans)
        for spans in list(self._open.values()):
            self._end(spans, None)


def _said_of(operation: Operation, seconds: int, *, is_receipt: bool) -> dict[str, str | int]:
    """What the span of a request says of it."""
    if operation == "modack":
        return {
            "messaging.operation.name": operation,
            "code.function": "_send_lease_modacks",
            "messaging.gcp_pubsub.message.ack_deadline": seconds,
            "messaging.gcp_pubsub.is_receipt_modack": is_receipt,
        }
    function = "ack" if operation == "ack" else "modify_ack_deadline"
    return {"messaging.operation": operation, "code.function": function}

"""Spans of a publisher: of each message from `publish` to its id, and of each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, TracerProvider, set_span_in_context

from pubsub_aio.tracing.context import injected
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


@dataclass(slots=True, eq=False)
class PublishSpans:
    """The spans of one message; opaque to the publisher."""

    create: Span = INVALID_SPAN
    waiting: Span | None = None
    """For room, or for others to be sent with."""


class PublishTracer:
    """Makes the spans of a publisher, as Google's publisher makes them.

    Plain calls, from any thread. None of them raises: an error of the tracer is logged, once.

    Args:
        provider: Where the spans go; to the program's own provider unless told otherwise.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(provider)
        self._contained = Containment()

    def create(
        self, topic: str, ordering_key: str, size: int, *, waits: bool = False
    ) -> tuple[PublishSpans, dict[str, str]]:
        """A message is published: begin its span, as a child of the caller's.

        Args:
            topic: The full name of the topic.
            ordering_key: The message's key, or "".
            size: The bytes of its data.
            waits: Whether it waits for room first; `admit` is to be called when there is some.

        Returns:
            Its spans, and attributes to be added to the message, in place of any that it has.
        """
        spans = PublishSpans()
        attributes: dict[str, str] = {}
        with self._contained:
            place = place_of(topic)
            spans.create = self._tracer.start_span(
                f"{place['messaging.destination.name']} create",
                kind=SpanKind.PRODUCER,
                attributes={
                    **SYSTEM,
                    **place,
                    "code.function": "publish",
                    "messaging.operation": "create",
                    "messaging.gcp_pubsub.message.ordering_key": ordering_key,
                    "messaging.message.body.size": size,
                },
            )
            note(spans.create, "publish start")
            attributes = injected(spans.create)
            spans.waiting = self._child(spans, "publisher flow control")
            if not waits:
                self._batch(spans)
        return spans, attributes

    def admit(self, spans: PublishSpans) -> None:
        """A message that waited for room has it, and waits for others now."""
        with self._contained:
            self._batch(spans)

    def depart(self, topic: str, spans: Sequence[PublishSpans]) -> Span:
        """Messages are sent together.

        It may be called again with the same ones, if they are sent again.

        Args:
            topic: The full name of the topic.
            spans: Of all of them.

        Returns:
            The span of the request, for `land`.
        """
        for each in spans:
            self._wait_no_more(each)
        with self._contained:
            place = place_of(topic)
            linked = sampled(each.create for each in spans)
            rpc = self._tracer.start_span(
                f"{place['messaging.destination.name']} publish",
                context=Context(),  # it is about messages of many traces, and so of none
                kind=SpanKind.CLIENT,
                attributes={
                    **SYSTEM,
                    **place,
                    "messaging.batch.message_count": len(spans),
                    "messaging.operation": "publish",
                    "code.function": "_commit",
                },
                links=links_to(linked),
            )
            with self._contained:
                link_back(linked, rpc.get_span_context())
            return rpc
        return INVALID_SPAN

    def land(
        self,
        rpc: Span,
        spans: Sequence[PublishSpans],
        *,
        message_ids: Sequence[str] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """A request was answered: end its span, and those of its messages.

        Args:
            rpc: What `depart` returned.
            spans: Of the messages; of none of them if they will be sent again.
            message_ids: What the server calls them, in the same order.
            error: Why they were not published, if they were not.
        """
        with self._contained:
            end(rpc, error)
        for each, message_id in zip_longest(spans, (message_ids or ())[: len(spans)]):
            with self._contained:
                if message_id is not None:
                    note(each.create, "publish end")
                    each.create.set_attribute("messaging.message.id", message_id)
                end(each.create, error)

    def abandon(self, spans: Sequence[PublishSpans], error: BaseException) -> None:
        """Messages will not be sent: end their spans."""
        for each in spans:
            self._wait_no_more(each, error)
            with self._contained:
                end(each.create, error)

    def _batch(self, spans: PublishSpans) -> None:
        self._wait_no_more(spans)
        spans.waiting = self._child(spans, "publisher batching")

    def _child(self, spans: PublishSpans, name: str) -> Span:
        return self._tracer.start_span(name, set_span_in_context(spans.create, Context()))

    def _wait_no_more(self, spans: PublishSpans, error: BaseException | None = None) -> None:
        waiting, spans.waiting = spans.waiting, None
        with self._contained:
            if waiting is not None:
                end(waiting, error)

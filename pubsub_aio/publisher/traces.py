"""The traces of a publisher's messages, where they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pubsub_aio._core.outgoing import Batch
from pubsub_aio.errors import ConfigError
from pubsub_aio.publisher.flight import Flight

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from pubsub_aio.tracing.publishing import PublishSpans, PublishTracer

ADDED = ("googclient_traceparent", "googclient_tracestate")
"""Attributes that carry the context of a trace."""


class Traces:
    """Notes in a trace what becomes of each message.

    Args:
        tracer: Makes the spans.
    """

    def __init__(self, tracer: PublishTracer) -> None:
        self._tracer = tracer

    def begin(self, flight: Flight, topic: str, ordering_key: str, size: int) -> dict[str, str]:
        """A message is published; returns the attributes that tell others of its trace."""
        spans, attributes = self._tracer.create(topic, ordering_key, size)
        flight.interest_of().spans = spans
        return attributes

    def refused(self, flight: Flight, error: BaseException) -> None:
        """It was not taken after all."""
        self._tracer.abandon(_spans([flight]), error)

    def sent(self, batch: Batch[Flight]) -> Span:
        """A batch is sent; returns the span of the request."""
        return self._tracer.depart(batch.lane.topic, _spans(batch.passengers))

    def answered(
        self, request: Span, batch: Batch[Flight], answer: list[str] | BaseException
    ) -> None:
        """A request was answered, or not; of a failure the messages hear when it is final."""
        if isinstance(answer, BaseException):
            self._tracer.land(request, [], error=answer)
        else:
            self._tracer.land(request, _spans(batch.passengers), message_ids=answer)

    def failed(self, batch: Batch[Flight], error: BaseException) -> None:
        """A batch will not be sent again."""
        self._tracer.abandon(_spans(batch.passengers), error)


def make_traces(tracing: object) -> Traces | None:
    """The traces that a publisher is told to make, if it is.

    Raises:
        ConfigError: It is told nonsense.
    """
    if tracing is False:
        return None
    if tracing is not True and not hasattr(tracing, "get_tracer"):
        raise ConfigError(f"tracing must be a bool or a tracer provider, not {tracing!r}")
    from pubsub_aio.tracing.publishing import PublishTracer

    provider: Any = None if tracing is True else tracing
    return Traces(PublishTracer(provider))


def _spans(flights: list[Flight]) -> list[PublishSpans]:
    found: list[Any] = [
        flight.interest.spans for flight in flights if flight.interest and flight.interest.spans
    ]
    return found

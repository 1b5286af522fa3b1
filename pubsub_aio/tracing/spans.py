"""What spans have in common, and how their faults are kept away from messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType

from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_tracer,
)

from pubsub_aio import __version__

SYSTEM = {"messaging.system": "gcp_pubsub"}
"""What every span of a message says."""

log = logging.getLogger("pubsub_aio.tracing")


def tracer_of(provider: TracerProvider | None) -> Tracer:
    """The library's tracer; without a provider, of the one that the program has or will have."""
    return get_tracer("pubsub_aio", __version__, provider)


def place_of(name: str) -> dict[str, str]:
    """What spans say of a topic or subscription, given its full name."""
    _, project, _, short = name.split("/", maxsplit=3)
    return {"messaging.destination.name": short, "gcp.project_id": project}


def note(span: Span, event: str) -> None:
    """Something happened."""
    if span.is_recording():
        span.add_event(event, {"timestamp": str(datetime.now(UTC))})


def end(span: Span, error: BaseException | None = None) -> None:
    """What the span stands for is over, or went wrong; only the first end counts."""
    if not span.is_recording():
        return
    try:
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    finally:
        span.end()


def sampled(spans: Iterable[Span]) -> list[Span]:
    """Those spans that somebody will see, and that are worth a link."""
    return [span for span in spans if span.get_span_context().trace_flags.sampled]


def links_to(spans: Iterable[Span]) -> list[Link]:
    """A link to each."""
    return [Link(span.get_span_context()) for span in spans]


def link_back(spans: Iterable[Span], to: SpanContext, operation: str | None = None) -> None:
    """Link each of these to the span of a call that is about all of them."""
    attributes = {"messaging.operation.name": operation} if operation else None
    for span in spans:
        span.add_link(to, attributes)


class Containment:
    """Keeps what a tracer, a processor or an exporter raises away from messages.

    It is used with `with`, over and over. The first error is logged.
    """

    def __init__(self) -> None:
        self._complained = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._complained:
            self._complained = True
            log.error("tracing fails; no message suffers, and it is not told again", exc_info=error)
        return True

"""What the tests of tracing share: spans that can be looked at, and that must all be ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext, SpanKind
from opentelemetry.util.types import AttributeValue

COMPLAINTS = ("opentelemetry", "pubsub_aio.tracing")
"""Who logs when a span is ended twice or changed after its end, or when tracing fails."""


class Spans(SpanProcessor):
    """Every span of a tracer provider, in the order of their ends."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.open: dict[int, str] = {}
        self.ended: list[ReadableSpan] = []
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        del parent_context
        self.open[context_of(span).span_id] = span.name

    def on_end(self, span: ReadableSpan) -> None:
        del self.open[context_of(span).span_id]
        self.ended.append(span)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.ended]

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    def parent_of(self, span: ReadableSpan) -> str | None:
        """The name of a span's parent, if it is here."""
        if span.parent is None:
            return None
        return self.named([span.parent]).pop()

    def linked_to(self, span: ReadableSpan) -> list[str]:
        """The names of the spans that a span has links to."""
        return self.named([link.context for link in span.links])

    def named(self, contexts: list[SpanContext]) -> list[str]:
        names = {context_of(span).span_id: span.name for span in self.ended} | self.open
        return [names.get(context.span_id, "unknown") for context in contexts]

    def clear(self) -> None:
        self.open.clear()
        self.ended.clear()


class Broken(SpanProcessor):
    """Raises at every end of a span, or at every start."""

    def __init__(self, where: str) -> None:
        self._where = where

    def on_start(self, span: object, parent_context: object = None) -> None:
        del span, parent_context
        if self._where == "start":
            raise ZeroDivisionError("broken start")

    def on_end(self, span: ReadableSpan) -> None:
        del span
        if self._where == "end":
            raise ZeroDivisionError("broken end")


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def said(span: ReadableSpan) -> Mapping[str, AttributeValue]:
    assert span.attributes is not None
    return span.attributes


def result_of(span: ReadableSpan) -> object:
    return said(span).get("messaging.gcp_pubsub.result")


def events_of(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


@dataclass(frozen=True)
class Looks:
    """All that a dashboard knows of a span."""

    name: str
    kind: SpanKind
    attributes: frozenset[tuple[str, object]]
    events: tuple[str, ...]
    parent: str | None
    links: tuple[tuple[str, frozenset[tuple[str, object]]], ...]


def looks_of(spans: Spans, span: ReadableSpan) -> Looks:
    return Looks(
        span.name,
        span.kind,
        frozenset(said(span).items()),
        tuple(events_of(span)),
        spans.parent_of(span),
        tuple(
            (spans.named([link.context])[0], frozenset((link.attributes or {}).items()))
            for link in span.links
        ),
    )


@pytest.fixture
def spans(caplog: pytest.LogCaptureFixture) -> Iterator[Spans]:
    """Spans of a provider of the test's own; none is left open, and nobody complains."""
    spans = Spans()
    yield spans
    assert spans.open == {}
    assert complaints(caplog) == []


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = caplog.get_records("call")
    return [one.getMessage() for one in records if one.name.startswith(COMPLAINTS)]


@pytest.fixture(scope="session")
def global_provider() -> Spans:
    """Spans of the process's provider, which can be set once; Google's client knows no other."""
    spans = Spans()
    trace.set_tracer_provider(spans.provider)
    assert trace.get_tracer_provider() is spans.provider
    return spans


@pytest.fixture
def global_spans(global_provider: Spans) -> Iterator[Spans]:
    global_provider.clear()
    yield global_provider
    global_provider.clear()

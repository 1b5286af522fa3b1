"""The trace context in the attributes of messages."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    get_current_span,
)

from pubsub_aio.tracing.context import extracted, injected
from tests.tracing.conftest import Spans


def test_a_span_is_told_in_attributes_and_read_from_them() -> None:
    context = SpanContext(
        trace_id=1,
        span_id=2,
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState([("vendor", "x")]),
    )

    attributes = injected(NonRecordingSpan(context))

    assert attributes == {
        "googclient_traceparent": f"00-{1:032x}-{2:016x}-01",
        "googclient_tracestate": "vendor=x",
    }
    read = get_current_span(extracted(attributes | {"other": "y"})).get_span_context()
    assert (read.trace_id, read.span_id, read.trace_flags, read.is_remote) == (1, 2, 1, True)
    assert read.trace_state == context.trace_state


def test_a_span_that_is_not_sampled_is_told_as_such() -> None:
    span = Spans(ALWAYS_OFF).provider.get_tracer("test").start_span("test")

    attributes = injected(span)

    read = get_current_span(extracted(attributes)).get_span_context()
    assert read.trace_id == span.get_span_context().trace_id
    assert not read.trace_flags.sampled


def test_no_span_is_told_by_no_attributes() -> None:
    assert injected(INVALID_SPAN) == {}


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"traceparent": f"00-{1:032x}-{2:016x}-01"},
        {"googclient_traceparent": ""},
        {"googclient_traceparent": "nonsense"},
        {"googclient_traceparent": f"00-{0:032x}-{2:016x}-01"},
        {"googclient_tracestate": "vendor=x"},
    ],
)
def test_what_tells_of_no_span_gives_an_empty_context(attributes: dict[str, str]) -> None:
    assert extracted(attributes) == {}

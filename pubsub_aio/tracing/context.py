"""The trace context of a message: in its attributes, where Google's clients have it too."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

PREFIX = "googclient_"
"""Of the attributes that hold it; what follows are the names of the W3C's headers."""

_propagator = TraceContextTextMapPropagator()


def injected(span: Span) -> dict[str, str]:
    """The attributes that tell of a span; none if it is none.

    They are told of a span that is not sampled too: whoever receives them does not sample either.
    """
    headers: dict[str, str] = {}
    _propagator.inject(headers, set_span_in_context(span, Context()))
    return {PREFIX + name: value for name, value in headers.items()}


def extracted(attributes: Mapping[str, str]) -> Context:
    """The context with the span that the attributes tell of; an empty one if they tell of none."""
    headers = {
        name: attributes[PREFIX + name]
        for name in _propagator.fields
        if PREFIX + name in attributes
    }
    return _propagator.extract(headers, Context())

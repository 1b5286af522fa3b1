"""OpenTelemetry spans of messages, in the form in which Google's clients make them.

Loaded only where tracing is on: it needs opentelemetry, which everything else does without.
"""

from pubsub_aio.tracing.receiving import span_of

__all__ = ["span_of"]

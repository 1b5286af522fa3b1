"""Quotas as a user sets them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from pubsub_aio.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """How much each project may use; what is not given is not limited.

    What goes beyond a rate is refused with RESOURCE_EXHAUSTED and a RetryInfo; a StreamingPull is
    not refused, but slowed down. A rate allows for bursts: of a second where it is bytes a second,
    of a minute where it is operations a minute. As the service counts, each request or response is
    at least 1,000 bytes, and rounded up to the next 1,000.
    """

    publisher_throughput: float | None = None
    """Bytes a second of messages that are published."""

    pull_subscriber_throughput: float | None = None
    """Bytes a second of messages that Pulls are answered with."""

    streaming_pull_subscriber_throughput: float | None = None
    """Bytes a second of messages that StreamingPulls are sent."""

    acknowledger_throughput: float | None = None
    """Bytes a second of Acknowledge and ModifyAckDeadline requests."""

    administrator_operations: float | None = None
    """Calls a minute that are about resources and not messages; the service allows 6,000."""

    open_streams: int | None = None
    """StreamingPulls that are open at once."""

    topics_per_project: int | None = None
    """Topics; the service allows 10,000."""

    subscriptions_per_project: int | None = None
    """Subscriptions; the service allows 10,000."""

    subscriptions_per_topic: int | None = None
    """Subscriptions of one topic; the service allows 10,000."""

    snapshots_per_project: int | None = None
    """Snapshots; the service allows 5,000."""

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is None:
                continue
            counted = str(field.type).startswith("int")
            if isinstance(limit, bool) or not isinstance(limit, int if counted else (int, float)):
                kind = "a whole number" if counted else "a number"
                raise ConfigError(f"{field.name} must be {kind}, not {limit!r}")
            if not 0 < limit < math.inf:
                raise ConfigError(f"{field.name} must be above 0, not {limit}")

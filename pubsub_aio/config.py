"""Settings: frozen, checked when they are made. Every default of the library is stated here."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

from pubsub_aio.errors import ConfigError

MIB = 1024 * 1024
GIB = 1024 * MIB
MIN_ACK_DEADLINE = 10.0
MAX_ACK_DEADLINE = 600.0
EXACTLY_ONCE_ACK_DEADLINE = 60.0
"""With exactly-once delivery a lease is extended by at least this much."""

FLIGHT_ID = "pubsub_aio_flight_id"
"""The attribute that carries the id which the publisher gave a message."""

_UNUSED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowControl:
    """How much a subscriber may hold at once, and for how long.

    More is leased while fewer than `resume_threshold * max_messages` messages **and** fewer than
    `resume_threshold * max_bytes` bytes are held. What is leased then, a round, is at most
    `max_request_batch_size` messages. So at its peak a subscription holds at most
    `max_messages * resume_threshold + max_request_batch_size` messages.
    """

    max_messages: int = 1_000
    """Messages that may be held at once, see above."""

    max_bytes: int = 100 * MIB
    """Bytes that may be held at once, see above."""

    resume_threshold: float = 0.8
    """The part of both limits below which more is leased."""

    max_request_batch_size: int = 100
    """The most messages leased in one round."""

    max_request_batch_latency: float = 0.01
    """Seconds that a round stays open for more. No message waits for it."""

    max_lease_duration: float = 3_600.0
    """Seconds after which a message is let go, finished or not."""

    max_requests: int = _UNUSED
    """Accepted for compatibility; it never had an effect."""

    min_duration_per_lease_extension: float = MIN_ACK_DEADLINE
    """The least seconds by which a lease is extended, 10 to 600."""

    max_duration_per_lease_extension: float = MAX_ACK_DEADLINE
    """The most seconds by which a lease is extended, 10 to 600."""

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_bytes", "max_request_batch_size"):
            check(name, getattr(self, name), 1, whole=True)
        check("resume_threshold", self.resume_threshold, 0, 1, above=True)
        check("max_request_batch_latency", self.max_request_batch_latency, 0)
        check("max_lease_duration", self.max_lease_duration, 0, above=True)
        for name in ("min_duration_per_lease_extension", "max_duration_per_lease_extension"):
            check(name, getattr(self, name), MIN_ACK_DEADLINE, MAX_ACK_DEADLINE)
        if self.max_requests != _UNUSED:
            warnings.warn("max_requests has no effect, and never had one", stacklevel=3)
        if self.min_duration_per_lease_extension > self.max_duration_per_lease_extension:
            raise ConfigError(
                "min_duration_per_lease_extension must not be more than "
                f"max_duration_per_lease_extension, {self.max_duration_per_lease_extension}"
            )

    @property
    def max_outstanding_messages(self) -> int:
        """The most messages that can be leased at once; the server is told this limit."""
        return math.floor(self.max_messages * self.resume_threshold) + self.max_request_batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownPolicy:
    """How a subscription ends."""

    mode: Literal["wait", "nack"] = "wait"
    """`"wait"` lets callbacks that have begun finish; `"nack"` gives everything back at once."""

    timeout: float = 30.0
    """Seconds for the callbacks to finish; those that have not are cancelled and nacked."""

    flush_timeout: float = 5.0
    """Seconds for the last acks and nacks to be sent."""

    def __post_init__(self) -> None:
        if self.mode not in ("wait", "nack"):
            raise ConfigError(f"mode must be 'wait' or 'nack', not {self.mode!r}")
        check("timeout", self.timeout, 0)
        check("flush_timeout", self.flush_timeout, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPolicy:
    """How the streams of a subscription are kept alive."""

    streams: int = 1
    """Streams to open; more than one only helps where one cannot carry the traffic."""

    ping_interval: float = 30.0
    """Seconds between two signs of life."""

    ping_timeout: float = 15.0
    """Seconds without an answer after which a stream counts as dead and is reopened."""

    first_delay: float = 0.1
    """Seconds before the first attempt to reopen; doubled for each further one."""

    max_delay: float = 30.0
    """The most seconds between two attempts."""

    reconnect_budget: float = 600.0
    """Seconds without a working stream after which the subscription fails."""

    def __post_init__(self) -> None:
        check("streams", self.streams, 1, 100, whole=True)
        check("ping_interval", self.ping_interval, 0, above=True)
        check("ping_timeout", self.ping_timeout, 0, above=True)
        check("first_delay", self.first_delay, 0, above=True)
        check("max_delay", self.max_delay, self.first_delay)
        check("reconnect_budget", self.reconnect_budget, 0)


CALL_TIMEOUT = 60.0
"""Seconds for a call with all its attempts, unless told otherwise."""

STARTUP_TIMEOUT = 30.0
"""Seconds within which an unreachable server is tried again before a subscription begins."""


def check(
    name: str,
    value: float,
    least: float,
    most: float = math.inf,
    *,
    above: bool = False,
    whole: bool = False,
) -> None:
    """Refuse a number out of bounds; with `above`, the least itself is refused too."""
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise ConfigError(f"{name} must be a {'whole ' * whole}number, not {value!r}")
    if value != value or value < least or value > most or (above and value == least):
        lower = f"{'more than' if above else 'at least'} {_number(least)}"
        upper = f" and at most {_number(most)}" if most < math.inf else ""
        raise ConfigError(f"{name} must be {lower}{upper}, not {value!r}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"

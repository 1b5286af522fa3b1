"""Settings: frozen, checked when they are made. Every default of the library is stated here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
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

PUBLISHER_ID = "pubsub_aio_publisher_id"
"""The attribute that tells publishers apart whose ids begin alike."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a message that could not be published is sent again.

    The next attempt goes to an endpoint that was not tried yet, at once, if there is one; otherwise
    it waits. Waits are part of the time that a publish may take: where not enough is left for the
    next one, the publish ends with `PublishTimeoutError`.
    """

    retries: int = 2
    """How many times a message is sent again, so 3 sends in all; -1 for as often as time allows."""

    wait: float | tuple[float, ...] = 0.25
    """Seconds before each retry; several for the first, the second and so on, the last for all
    that follow."""

    multiplier: float = 1.0
    """What the last wait is multiplied by each further time."""

    max_wait: float = 60.0
    """The most seconds that it waits, unless the service asks for more."""

    jitter: bool = False
    """Whether a wait is any time up to that, so that many clients do not come back together."""

    attempt_timeout: float | None = None
    """Seconds for one attempt; as much as there is for all of them unless told otherwise, or its
    share of that where there are several endpoints and DEADLINE_EXCEEDED is one of the `codes`."""

    deadline: float | None = None
    """Seconds for all attempts and waits together. Where a publisher has this and a `wait_timeout`,
    the shorter one counts. A policy that is given with a message counts more than both, and a
    `timeout` that is given with it counts more than all of them."""

    codes: frozenset[str] = frozenset({"UNAVAILABLE"})
    """Which refusals are worth another attempt. RESOURCE_EXHAUSTED is one, named or not, if the
    service says how long to wait. After DEADLINE_EXCEEDED and such the message may be there, and
    twice after another attempt."""

    def __post_init__(self) -> None:
        check("retries", self.retries, -1, whole=True)
        _check_wait(self.wait)
        check("multiplier", self.multiplier, 1, MAX_MULTIPLIER)
        check("max_wait", self.max_wait, 0, MAX_SECONDS)
        if not isinstance(self.jitter, bool):
            raise ConfigError(f"jitter must be True or False, not {self.jitter!r}")
        for name in ("attempt_timeout", "deadline"):
            if (value := getattr(self, name)) is not None:
                check(name, value, 0, MAX_SECONDS, above=True)
        # It may be another kind of collection.
        object.__setattr__(self, "codes", _checked_codes(self.codes))

    @classmethod
    def google(cls) -> RetryPolicy:
        """What google-cloud-pubsub does: retries for ten minutes, also where that may duplicate."""
        return cls(
            retries=-1,
            wait=0.1,
            multiplier=4.0,
            max_wait=60.0,
            jitter=True,
            attempt_timeout=60.0,
            deadline=600.0,
            codes=frozenset(
                {
                    *("ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL"),
                    *("RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN"),
                }
            ),
        )

    @classmethod
    def nats(cls) -> RetryPolicy:
        """The backoff that NATS clients retry a publish with."""
        return cls(retries=2, wait=(0.25, 0.25, 0.5, 0.5, 3.0, 5.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """How often a job that fails is tried, and what becomes of one that keeps failing.

    A job has a round of `max_attempts`, with growing waits between them. If all fail it is put on
    the dead-letter topic of its queue, and after `dead_letter_ttl` it returns to the queue for
    another round. After `max_resurrections` of these it is given up. So with the defaults a job is
    tried 3 * (1 + 3) = 12 times.
    """

    max_attempts: int = 3
    """How often a job is tried in a round, the first time included."""

    initial_backoff: float = 2.0
    """Seconds between the first attempt and the second."""

    max_backoff: float = 10.0
    """The most seconds between two attempts of a round."""

    multiplier: float = 2.0
    """By how much each wait is longer than the one before."""

    dead_letter_ttl: float = 3.0
    """Seconds that a job is a dead letter before it returns."""

    max_resurrections: int = 3
    """How often it returns before it is given up."""

    expires: float = 300.0
    """Seconds without use after which a queue may be deleted, by a janitor and if that was asked
    for."""

    dead_letter_expires: float = 300.0
    """The same for its dead letters, which are never deleted while there are any."""

    def __post_init__(self) -> None:
        check("max_attempts", self.max_attempts, 1, whole=True)
        check("initial_backoff", self.initial_backoff, 0, MAX_SECONDS)
        check("max_backoff", self.max_backoff, self.initial_backoff, MAX_SECONDS)
        check("multiplier", self.multiplier, 1, MAX_MULTIPLIER)
        check("dead_letter_ttl", self.dead_letter_ttl, 0, MAX_DEAD_LETTER_TTL)
        check("max_resurrections", self.max_resurrections, 0, whole=True)
        check("expires", self.expires, MIN_EXPIRES, MAX_SECONDS)
        check("dead_letter_expires", self.dead_letter_expires, MIN_EXPIRES, MAX_SECONDS)


STATUS_CODES = frozenset(
    {
        *("ABORTED", "ALREADY_EXISTS", "CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED"),
        *("FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE"),
        *("UNIMPLEMENTED", "UNKNOWN"),
    }
)
"""The canonical codes of refusals."""

MAX_SECONDS = 1e9
"""The longest time limit; none at all is None."""

MAX_MULTIPLIER = 1e12

MAX_DEAD_LETTER_TTL = 6 * 86_400.0
"""A server may hold a dead letter for no longer than a week, and it has to return before that."""

MIN_EXPIRES = 60.0
"""A queue that is in use says so five times within its time; more often would take too many
calls."""

MAX_PUBLISH_MESSAGES = 1_000
MAX_PUBLISH_BYTES = 10_000_000
"""What the service takes in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How many messages go in one request, and how long one waits for others.

    What waits anyway, during a hold or while the loop was busy, goes together; nothing waits for
    that. Only a `max_latency` above zero makes a message wait for more to come.
    """

    max_messages: int = 100
    """The most messages in a request, up to 1,000."""

    max_bytes: int = 1_000_000
    """The most bytes in a request, up to 10,000,000; a message that is larger goes alone."""

    max_latency: float = 0.0
    """Seconds that a message waits for others to join it."""

    def __post_init__(self) -> None:
        check("max_messages", self.max_messages, 1, MAX_PUBLISH_MESSAGES, whole=True)
        check("max_bytes", self.max_bytes, 1, MAX_PUBLISH_BYTES, whole=True)
        check("max_latency", self.max_latency, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimit:
    """How much may wait to be published, and what happens to more."""

    max_messages: int = 10_000
    """Messages that may wait."""

    max_bytes: int = 100 * MIB
    """Bytes that may wait."""

    when_full: Literal["block", "error"] = "block"
    """`"block"` lets those wait who await `publish`, however many they are, and counts only what
    nobody awaits; `"error"` counts all. Past the limit `publish` raises `QueueFullError`."""

    def __post_init__(self) -> None:
        check("max_messages", self.max_messages, 1, whole=True)
        check("max_bytes", self.max_bytes, 1, whole=True)
        if self.when_full not in ("block", "error"):
            raise ConfigError(f"when_full must be 'block' or 'error', not {self.when_full!r}")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as it is in force, and where it came from."""

    value: object
    source: str


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


def check_kind(name: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Refuse what is of another kind."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise ConfigError(f"{name} must be a {kind.__name__}, not {value!r}")


def _check_wait(wait: float | tuple[float, ...]) -> None:
    waits = wait if isinstance(wait, tuple) else (wait,)
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in waits)
    if not waits or not numbers:
        raise ConfigError(f"wait must be a number of seconds, or a tuple of numbers, not {wait!r}")
    for each in waits:
        check("wait", each, 0, MAX_SECONDS)


def _checked_codes(codes: Iterable[str]) -> frozenset[str]:
    try:
        found = frozenset(codes)
    except TypeError:
        found = frozenset("?")  # which is none
    if not found <= STATUS_CODES:
        known = ", ".join(sorted(STATUS_CODES))
        raise ConfigError(f"codes must be a set of {known}, not {codes!r}")
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"

"""How a publisher is to be."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, TypedDict

from pubsub_aio.config import (
    MAX_SECONDS,
    MIB,
    STARTUP_TIMEOUT,
    Batching,
    QueueLimit,
    RetryPolicy,
    check,
    check_kind,
)
from pubsub_aio.errors import ConfigError
from pubsub_aio.publisher.listening import PublisherListener

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


MAX_PREFIX = 200
"""Characters of an `id_prefix`, so that an id fits into an attribute, whatever they are."""


class Unset:
    """What an argument is that was not given, where none is a value."""

    def __repr__(self) -> str:
        return "the publisher's"


UNSET: Final = Unset()


class PublisherOptions(TypedDict, total=False):
    """What a `PublisherClient` takes, each as a keyword.

    Attributes:
        id_prefix: Begins the id of each flight, `<id_prefix>-<number>`; random unless told
            otherwise. Numbers are given as ids are asked for, or sent.
        max_in_flight: The most messages that wait for an answer at once, 50.
        max_in_flight_bytes: The most bytes of them, 100 MiB; the request that reaches it is still
            sent.
        refill_allowed_at: When `max_in_flight` is reached nothing more departs until so many are
            left, 0.
        retry: When a message is sent again; never unless told otherwise.
        poll_time: The most seconds that a runner waits before it looks again by itself, 0.1.
        hold_pause_time: The same while nothing may depart, 0.1.
        wait_timeout: Seconds from its departure within which a message must be answered, with all
            its retries, 5 or what the deadline of `retry` is; none for no limit but that of the
            attempts.
        listener: Is told what becomes of each flight, see `PublisherListener`.
        batching: How many messages go in one request, and how long one waits for others.
        queue: How much may wait to depart, and what happens to more.
        enable_message_ordering: Whether messages may have an ordering key; yes unless told
            otherwise.
        resume_after: Seconds after which an ordering key goes on by itself that a failure has
            paused; never unless told otherwise.
        compress_above: Bytes from which on a request is compressed with gzip, if that makes it a
            fifth smaller at least; never unless told otherwise, for it costs CPU.
        send_flight_id: Whether each message gets its flight's id as the attribute
            `pubsub_aio_flight_id`, by which a `Deduplicator` knows messages that were published
            twice by a retry; and, where `id_prefix` is told, `pubsub_aio_publisher_id`, since ids
            then come again after a restart.
        tracing: Whether messages have OpenTelemetry spans, like those of Google's clients. They go
            to the program's own tracer provider if it is true, or to the one that is given.
        topics: Topics that are checked at the start, so that a mistake is told then.
        check_topics: Whether a topic is looked up before the first message to it departs; yes
            unless told otherwise.
        refresh_interval: Seconds between two looks at the topics; never unless told, for each is a
            call that counts against a quota.
        probe_interval: Seconds between two probes of an endpoint that has failed, 10.
        startup_timeout: Seconds within which an unreachable server is tried again before the
            publisher begins.
        drain_timeout: Seconds that leaving `async with` waits for what was published to be
            answered, 60.
    """

    id_prefix: str
    max_in_flight: int
    max_in_flight_bytes: int
    refill_allowed_at: int
    retry: RetryPolicy | None
    poll_time: float
    hold_pause_time: float
    wait_timeout: float | None
    listener: PublisherListener | object
    batching: Batching
    queue: QueueLimit
    enable_message_ordering: bool
    resume_after: float | None
    compress_above: int | None
    send_flight_id: bool
    tracing: bool | TracerProvider
    topics: Sequence[str]
    check_topics: bool
    refresh_interval: float | None
    probe_interval: float
    startup_timeout: float
    drain_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`PublisherOptions`, complete and checked."""

    id_prefix: str = field(default_factory=lambda: secrets.token_hex(11))
    max_in_flight: int = 50
    max_in_flight_bytes: int = 100 * MIB
    refill_allowed_at: int = 0
    retry: RetryPolicy | None = None
    poll_time: float = 0.1
    hold_pause_time: float = 0.1
    wait_timeout: float | None = 5.0
    listener: PublisherListener | object = None
    batching: Batching = field(default_factory=Batching)
    queue: QueueLimit = field(default_factory=QueueLimit)
    enable_message_ordering: bool = True
    resume_after: float | None = None
    compress_above: int | None = None
    send_flight_id: bool = False
    tracing: bool | TracerProvider = False
    topics: Sequence[str] = ()
    check_topics: bool = True
    refresh_interval: float | None = None
    probe_interval: float = 10.0
    startup_timeout: float = STARTUP_TIMEOUT
    drain_timeout: float = 60.0

    def __post_init__(self) -> None:
        prefix = self.id_prefix
        fits = isinstance(prefix, str) and 0 < len(prefix) <= MAX_PREFIX
        if not fits or not prefix.isprintable():
            raise ConfigError(
                f"id_prefix must be a text of 1 to {MAX_PREFIX} characters, all of them "
                f"printable, not {prefix!r:.60}"
            )
        check_hold(self.max_in_flight, self.refill_allowed_at)
        check("max_in_flight_bytes", self.max_in_flight_bytes, 1, whole=True)
        for name in ("check_topics", "enable_message_ordering", "send_flight_id"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, not {value!r}")
        if isinstance(self.listener, type):
            raise ConfigError(f"listener must be an object, not the class {self.listener.__name__}")
        for name in ("poll_time", "hold_pause_time", "probe_interval"):
            check(name, getattr(self, name), 0, above=True)
        for name in ("wait_timeout", "refresh_interval", "resume_after"):
            if (value := getattr(self, name)) is not None:
                check(name, value, 0, MAX_SECONDS, above=name != "resume_after")
        if self.compress_above is not None:
            check("compress_above", self.compress_above, 0, whole=True)
        check("startup_timeout", self.startup_timeout, 0)
        check("drain_timeout", self.drain_timeout, 0)
        _check_topics(self.topics)
        for name, kind in (("batching", Batching), ("queue", QueueLimit)):
            check_kind(name, getattr(self, name), kind)
        check_retry(self.retry, self.wait_timeout)


def _check_topics(topics: Sequence[str]) -> None:
    several = isinstance(topics, Collection) and not isinstance(topics, str | bytes | Mapping)
    if not several or not all(isinstance(topic, str) for topic in topics):
        raise ConfigError(f"topics must be a list of names, not {topics!r}")


def check_hold(max_in_flight: int, refill_allowed_at: int) -> None:
    """Refuse limits of what is in flight that cannot be."""
    check("max_in_flight", max_in_flight, 1, whole=True)
    check("refill_allowed_at", refill_allowed_at, 0, max_in_flight - 1, whole=True)


def check_retry(retry: RetryPolicy | None, timeout: float | None) -> None:
    """Refuse a policy that is none, or that has no end."""
    if retry is None:
        return
    if not isinstance(retry, RetryPolicy):
        raise ConfigError(f"retry must be a RetryPolicy or None, not {retry!r}")
    if retry.retries == -1 and retry.deadline is None and timeout is None:
        raise ConfigError(
            "retry: retries=-1 goes on until a deadline, and there is none: give a timeout, or a "
            "RetryPolicy with a deadline"
        )


def complete(options: PublisherOptions) -> Options:
    """All options, with what was told.

    Raises:
        ConfigError: One that there is not, or that cannot be.
    """
    known = [each.name for each in fields(Options)]
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"{unknown[0]}: there is no such option; there are {', '.join(known)}")
    made = Options(**options)
    deadline = made.retry.deadline if made.retry is not None else None
    if deadline is None:
        return made
    told = options.get("wait_timeout")
    return dataclasses.replace(made, wait_timeout=deadline if told is None else min(told, deadline))


_THROUGHPUT: Final = PublisherOptions(
    max_in_flight=50_000,
    refill_allowed_at=40_000,
    wait_timeout=600.0,
    poll_time=1.0,
    hold_pause_time=1.0,
    batching=Batching(max_messages=1_000, max_bytes=1_000_000, max_latency=0.01),
    queue=QueueLimit(max_messages=100_000),
)


def for_throughput(options: PublisherOptions) -> PublisherOptions:
    """Options for many messages, but for those that are given."""
    # Google's policy, but for its deadline: that is `wait_timeout` here, so that it can be told.
    policy = dataclasses.replace(RetryPolicy.google(), deadline=None)
    preset: PublisherOptions = {**_THROUGHPUT, "retry": policy}
    given = options.get("retry")
    if isinstance(given, RetryPolicy) and given.deadline is not None:
        del preset["wait_timeout"]
    return {**preset, **options}

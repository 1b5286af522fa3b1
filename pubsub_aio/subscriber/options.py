"""How a subscription is to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Literal, TypedDict

from pubsub_aio.config import (
    STARTUP_TIMEOUT,
    FlowControl,
    ShutdownPolicy,
    StreamPolicy,
    check,
    check_kind,
)
from pubsub_aio.errors import ConfigError
from pubsub_aio.subscriber.vitals import Event

OnExpiry = Literal["nack", "drop"]


class SubscribeOptions(TypedDict, total=False):
    """What every way to subscribe takes, each as a keyword."""

    auto_ack: bool
    """Ack a message when its callback returns."""

    on_lease_expiry: OnExpiry
    """What becomes of a message that was held for `max_lease_duration`: it is nacked, or dropped
    and so comes again when its ack deadline has passed."""

    max_overdue_callbacks: int
    """How many callbacks may run on after that before nothing more is leased; as many as
    `max_messages` unless told otherwise."""

    streams: StreamPolicy
    """How many streams there are, and how they are kept alive."""

    shutdown: ShutdownPolicy
    """How it ends."""

    startup_timeout: float
    """Seconds within which an unreachable server is tried again before it begins."""

    refresh_interval: float
    """Seconds between two looks at the subscription's settings on the server; never unless told,
    for each is a call that counts against a quota. A stream brings what matters most by itself."""

    on_event: Callable[[Event], None]
    """Called with each `Event`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`SubscribeOptions` and the flow control, complete and checked."""

    flow_control: FlowControl = field(default_factory=FlowControl)
    auto_ack: bool = False
    on_lease_expiry: OnExpiry = "nack"
    max_overdue_callbacks: int | None = None
    streams: StreamPolicy = field(default_factory=StreamPolicy)
    shutdown: ShutdownPolicy = field(default_factory=ShutdownPolicy)
    startup_timeout: float = STARTUP_TIMEOUT
    refresh_interval: float | None = None
    on_event: Callable[[Event], None] | None = None

    def __post_init__(self) -> None:
        if self.on_lease_expiry not in ("nack", "drop"):
            raise ConfigError(
                f"on_lease_expiry must be 'nack' or 'drop', not {self.on_lease_expiry!r}"
            )
        if self.max_overdue_callbacks is not None:
            check("max_overdue_callbacks", self.max_overdue_callbacks, 1, whole=True)
        check("startup_timeout", self.startup_timeout, 0)
        if self.refresh_interval is not None:
            check("refresh_interval", self.refresh_interval, 0, above=True)
        for name, kind in (
            ("flow_control", FlowControl),
            ("streams", StreamPolicy),
            ("shutdown", ShutdownPolicy),
        ):
            check_kind(name, getattr(self, name), kind)


def complete(flow: FlowControl, options: SubscribeOptions) -> Options:
    """All options, with what was told.

    Raises:
        ConfigError: One that there is not, or that cannot be.
    """
    known = [each.name for each in fields(Options)]
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"{unknown[0]}: there is no such option; there are {', '.join(known)}")
    return Options(flow_control=flow, **options)

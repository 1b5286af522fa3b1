"""What to look for among the messages of a subscription, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pubsub_aio._core.sieve import Bounds, Ending
from pubsub_aio.config import MAX_SECONDS, MIB, check
from pubsub_aio.errors import ConfigError
from pubsub_aio.filters import FilterError, parse_filter
from pubsub_aio.message import Message
from pubsub_aio.subscriber.schedulers import check_callback, is_async

IDLE = 5.0
"""Seconds without a message after which a subscription counts as empty: the service does not
tell."""

MAX_HELD = 10_000
"""Messages that are held because they stay, at most."""

MAX_HELD_BYTES = 100 * MIB
"""What these may take."""

AT_ONCE = 500
"""Messages that are about to be taken, at most."""

AT_ONCE_BYTES = 50 * MIB
"""What these may take: half of what a publisher lets wait unless told."""

Where = str | Callable[[Message], bool]
"""Which messages: a filter in Pub/Sub's language, or a function that says of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the messages of a subscription, so far.

    Attributes:
        moved: Moved, or purged; with `dry_run`, those that would be.
        skipped: Not asked for; they stay.
        failed: They stay, because of an error.
        held_back: They stay, because an earlier one of their ordering key does, in a subscription
            that has order.
        came_back: Dead letters again, of what was moved here: they stay, since whoever works on
            them fails still.
        fans_out: The subscriptions that get what is moved, if they are several.
        ended_by: `"empty"` when nothing more came, `"limit"`, `"max_held"` when too many had to be
            held because they stay, or `"failures"`; none as long as it goes on.
        first_error: What failed first.
        dry_run: Whether nothing was moved.
    """

    moved: int = 0
    skipped: int = 0
    failed: int = 0
    held_back: int = 0
    came_back: int = 0
    fans_out: tuple[str, ...] = ()
    ended_by: Ending | None = None
    first_error: Exception | None = None
    dry_run: bool = False

    @property
    def looked_at(self) -> int:
        """How many there were."""
        return self.moved + self.skipped + self.failed + self.held_back + self.came_back

    @property
    def complete(self) -> bool:
        """Whether everything was looked at."""
        return self.ended_by == "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifting:
    """What to look for, and when to end.

    Attributes:
        where: Which messages; all of them unless told.
        limit: How many are taken at most.
        rate: How many a second at most, evenly spaced.
        idle: Seconds without a message after which there are no more.
        max_held: How many that stay may be held.
        on_progress: Called with a `Report` as it goes on.
    """

    where: Where | None = None
    limit: int | None = None
    rate: float | None = None
    idle: float = IDLE
    max_held: int = MAX_HELD
    on_progress: Callable[[Report], object] | None = None

    def __post_init__(self) -> None:
        matcher(self.where)
        if self.limit is not None:
            check("limit", self.limit, 1, whole=True)
        if self.rate is not None:
            check("rate", self.rate, 0, above=True)
        check("idle", self.idle, 0, MAX_SECONDS, above=True)
        check("max_held", self.max_held, 1, whole=True)
        if self.on_progress is not None:
            check_callback(self.on_progress, "a Report", name="on_progress")
            if is_async(self.on_progress):
                raise ConfigError("on_progress must be a plain function: nobody waits for it")

    @property
    def bounds(self) -> Bounds:
        """When to end."""
        return Bounds(
            limit=self.limit,
            max_held=self.max_held,
            max_held_bytes=MAX_HELD_BYTES,
            at_once=AT_ONCE,
            at_once_bytes=AT_ONCE_BYTES,
            idle=self.idle,
        )


def matcher(where: Where | None) -> Callable[[Message], object]:
    """What says of a message whether it is asked for.

    Raises:
        ConfigError: It is neither a filter nor a function.
    """
    if where is None:
        return lambda _: True
    if not isinstance(where, str):
        if not callable(where):
            raise ConfigError(
                "where must be a filter, such as 'attributes.kind = \"tea\"', or a function that "
                f"takes a message, not {where!r}"
            )
        check_callback(where, "a message", name="where")
        if is_async(where):
            raise ConfigError("where must be a plain function: nobody waits for it")
        return where
    try:
        matches = parse_filter(where).matches
    except FilterError as error:
        raise ConfigError(f"where: {error}") from error
    return lambda message: matches(message.attributes)

"""How a subscription fares: its state, what happens to it, and what it says of its health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pubsub_aio.errors import ServiceError

log = logging.getLogger("pubsub_aio.subscriber")

State = Literal["starting", "running", "reconnecting", "stopping", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a subscription.

    Attributes:
        kind: `"state"` when its state changed; otherwise what should not happen: `"late"`,
            `"expired"`, `"overdue"`, `"blocked"`, `"slow"`, `"warning"`.
        subscription: The full name of the subscription.
        state: The state it is in.
        detail: What happened, in words.
        error: What caused it, if anything did.
    """

    kind: str
    subscription: str
    state: State
    detail: str = ""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a subscription fares, for probes.

    Attributes:
        ok: Whether it receives messages, or is only waiting for callbacks to take them.
        state: What it is doing.
        reasons: Why it is not ok, or why it leases nothing at the moment.
        streams: Open streams.
        leased: Messages that are held, handed over or about to be.
        leased_bytes: What they take.
        received: Messages that came and wait to be leased.
        running: Callbacks that have begun and not ended.
        overdue: Those of them whose leases have ended.
        unsent: Acks, nacks and extensions that the server has not answered.
        counts: What became of messages so far.
        last_error: The last failure of a stream.
    """

    ok: bool
    state: State
    reasons: tuple[str, ...] = ()
    streams: int = 0
    leased: int = 0
    leased_bytes: int = 0
    received: int = 0
    running: int = 0
    overdue: int = 0
    unsent: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    last_error: BaseException | None = None


class Vitals:
    """The state of a subscription, and those who are told of changes.

    Args:
        subscription: Its full name.
        on_event: Is told of every event; what it raises is logged.
        started: Set when the first stream works.
        budgets: Seconds that it may be without a stream, before it has started and after.
    """

    def __init__(
        self,
        subscription: str,
        on_event: Callable[[Event], None] | None,
        *,
        started: asyncio.Event,
        budgets: tuple[float, float],
    ) -> None:
        self.state: State = "starting"
        self.last_error: BaseException | None = None
        self.streams = 0
        """Streams that are open."""
        self.started = started
        self._budgets = budgets
        self.subscription = subscription
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._worked_at = self._loop.time()

    def opened(self) -> None:
        """A stream works."""
        self.streams += 1
        if self.state in ("starting", "reconnecting"):
            self.change("running")
        self.started.set()

    def lost(self, error: ServiceError | None, *, was_open: bool, worked: bool) -> None:
        """A stream ended; without an error, because it is to be opened anew.

        Args:
            error: How it ended.
            was_open: Whether it had been told as opened.
            worked: Whether it was of any use; one that opens and ends at once is not.
        """
        if was_open:
            self.streams -= 1
        if worked:
            self._worked_at = self._loop.time()
        if error is not None:
            self.last_error = error
            if self.state == "running" and not self.streams:
                self.change("reconnecting", str(error), error)

    @property
    def seconds_alone(self) -> float:
        """For how long no stream has worked."""
        return 0.0 if self.streams else self._loop.time() - self._worked_at

    @property
    def is_given_up(self) -> bool:
        """Whether it has been without a stream for too long."""
        return self.seconds_alone > self._budgets[self.started.is_set()]

    def change(self, state: State, detail: str = "", error: BaseException | None = None) -> None:
        """Enter a state."""
        if state != self.state:
            self.state = state
            level = logging.WARNING if error else logging.INFO
            log.log(level, "%s: %s%s", self.subscription, state, f": {detail}" if detail else "")
            self._tell("state", detail, error)

    def report(self, kind: str, detail: str) -> None:
        """Tell of something that should not happen."""
        log.warning("%s: %s", self.subscription, detail)
        self._tell(kind, detail)

    def _tell(self, kind: str, detail: str, error: BaseException | None = None) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(Event(kind, self.subscription, self.state, detail, error))
        except Exception:
            log.exception("%s: on_event failed", self.subscription)

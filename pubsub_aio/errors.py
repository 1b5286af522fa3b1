"""Every error that this library raises; all of them are `PubSubError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class PubSubError(Exception):
    """Something went wrong with Pub/Sub, or with how it is used."""

    def __reduce__(self) -> tuple[object, ...]:
        """Errors travel between processes, whatever arguments they are made with."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[PubSubError], args: tuple[object, ...], state: dict[str, object]
) -> PubSubError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


# How the library is used


class ConfigError(PubSubError, ValueError):
    """A setting or an argument cannot be as it is; the message names it and says what can be."""


class UnsupportedError(PubSubError):
    """What was chosen, a transport or a version, cannot do this; the message says what can."""


class MissingExtraError(PubSubError, ImportError):
    """A part of the library needs packages that are not installed.

    Attributes:
        extra: The extra that installs them.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs more packages: pip install "pubsub-aio[{extra}]"')
        self.extra = extra


class WrongLoopError(PubSubError, RuntimeError):
    """A client serves one event loop, the first that used it, and was called from another."""


class DataDirectoryError(PubSubError):
    """The emulator cannot use its data directory, which was not changed; the message says why."""


class ForkedError(PubSubError, RuntimeError):
    """A client that was opened before a fork was used in the child; open one there instead."""


class ClosedError(PubSubError, RuntimeError):
    """The client or the subscription is closed."""


@dataclass(frozen=True, slots=True)
class SeedMistake:
    """Something in a seed file that cannot be as it is.

    Attributes:
        file: The file's path, as it was given.
        line: The line, from one; zero if it is about the file itself.
        column: The column, from one.
        path: What it is about, such as `topics.orders.labels`; empty for the file.
        what: What is wrong, and what to do about it.
    """

    file: str
    line: int
    column: int
    path: str
    what: str

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}: " + (f"{self.path}: " if self.path else "") + self.what


class SeedError(PubSubError, ValueError):
    """A seed file has mistakes. The message has a line for each, with where it is and what to do.

    Attributes:
        file: The file's path, as it was given.
        mistakes: What is wrong, in the order of the file.
        untold: How many more there are.
    """

    def __init__(
        self,
        file: str,
        mistakes: Sequence[SeedMistake],
        *,
        untold: int = 0,
        outcome: str = "nothing was created",
    ) -> None:
        count = len(mistakes) + untold
        lines = "".join(f"\n{mistake}" for mistake in mistakes)
        more = f"\nand {untold:,} more" if untold else ""
        number = "a mistake" if count == 1 else f"{count:,} mistakes"
        super().__init__(f"{file} has {number}, {outcome}:{lines}{more}")
        self.file = file
        self.mistakes = tuple(mistakes)
        self.untold = untold


# What the service answers


class ServiceError(PubSubError):
    """The service refused a call, or could not be reached.

    Attributes:
        code: The canonical code, such as `"UNAVAILABLE"`.
        message: What the service said.
        retry_delay: Seconds after which the service invites another try, if it said so.
        ack_errors: For each ack id that failed, why, where the service tells.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retry_delay: float | None = None,
        ack_errors: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_delay = retry_delay
        self.ack_errors = dict(ack_errors or {})


class NotFoundError(ServiceError):
    """There is no such topic, subscription, snapshot or schema."""


class AlreadyExistsError(ServiceError):
    """The name is taken."""


class PermissionDeniedError(ServiceError):
    """The credentials do not allow this."""


class InvalidRequestError(ServiceError):
    """The service does not accept the request as it is."""


class UnavailableError(ServiceError):
    """The service cannot be reached, or cannot answer now; it may later."""


# A subscription


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at before a subscription or a publisher began.

    Attributes:
        name: What was checked.
        outcome: `"ok"`, `"warning"`, `"failed"` or `"not reached"`.
        detail: What was found, and what to do about it.
    """

    name: str
    outcome: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}" + (f" - {self.detail}" if self.detail else "")


class StartupError(PubSubError):
    """A subscription or a publisher could not begin. The message lists each check and what to do.

    Attributes:
        name: The full name of the subscription, or of the topics.
        checks: What was checked, in order.
    """

    def __init__(self, name: str, checks: Sequence[Check], *, action: str = "subscribe to") -> None:
        lines = "".join(f"\n  {check}" for check in checks)
        super().__init__(f"cannot {action} {name}:{lines}")
        self.name = name
        self.checks = tuple(checks)


class ReconnectError(PubSubError):
    """No stream could be kept open within the reconnect budget; the cause is the last failure.

    Attributes:
        subscription: Its full name.
        attempts: How many times it was tried.
        seconds: For how long.
    """

    def __init__(self, subscription: str, *, attempts: int, seconds: float) -> None:
        super().__init__(
            f"{subscription}: no stream could be kept open for {seconds:.0f} s, "
            f"{attempts} attempts; see the cause"
        )
        self.subscription = subscription
        self.attempts = attempts
        self.seconds = seconds


class SparkGoneError(PubSubError):
    """Spark was stopped or has died, so that no batch can be handled; see the cause."""

    def __init__(self) -> None:
        super().__init__(
            "Spark was stopped, or its JVM has died: start this process anew, what it held comes "
            "again"
        )


class WalError(PubSubError):
    """The log of a Spark source cannot be used, or is not as it was left; nothing was changed."""


class DataLossError(WalError):
    """Messages that were acknowledged are not in the log of a Spark source any more.

    With the option `failOnDataLoss` set to false the query goes on without them.
    """


class StuckHandlerError(PubSubError, TimeoutError):
    """A function that was given a batch does not end, and keeps the next from beginning.

    Attributes:
        seconds: How long it was waited for since it was cancelled.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the handler has not ended {seconds:g} s after its batch took too long: start this "
            "process anew, what it held comes again"
        )
        self.seconds = seconds


# A publisher


class PublishTimeoutError(PubSubError, TimeoutError):
    """No answer came in time, with all attempts and waits; the message may be published or not.

    The cause is what was answered last, if an attempt was answered.

    Attributes:
        topic: The topic's full name.
        seconds: How long an answer was waited for.
        attempts: How many times the message was sent.
    """

    def __init__(self, topic: str, *, seconds: float, attempts: int) -> None:
        plural = "s" * (attempts != 1)
        super().__init__(
            f"{topic}: not published within {seconds:g} s, {attempts} attempt{plural}; the message "
            "may be there or not"
        )
        self.topic = topic
        self.seconds = seconds
        self.attempts = attempts


class NoResponseFromTopicError(UnavailableError):
    """The last attempt to publish found the service unavailable; the cause is that failure.

    Attributes:
        topic: The topic's full name.
        attempts: How many times the message was sent.
    """

    def __init__(self, topic: str, message: str, *, attempts: int) -> None:
        plural = "s" * (attempts != 1)
        super().__init__(
            "UNAVAILABLE", f"no response from {topic}, {attempts} attempt{plural}: {message}"
        )
        self.topic = topic
        self.attempts = attempts


class QueueFullError(PubSubError):
    """As much waits to be published as may; this message was not taken.

    Attributes:
        field: The limit that was reached, of `QueueLimit`; or `events`, of which an async listener
            has not heard yet.
        limit: Its value.
    """

    def __init__(self, field: str, limit: int, remedy: str) -> None:
        super().__init__(f"queue: {field} {limit:,} is reached, nothing was taken: {remedy}")
        self.field = field
        self.limit = limit


class TakenBackError(PubSubError):
    """The message was not sent: whoever waited for it to leave was cancelled before it did."""

    def __init__(self) -> None:
        super().__init__("the message was taken back before it was sent")


class KeyPausedError(PubSubError):
    """A message of this ordering key failed before, so this one was not sent; see the cause.

    Publish again from the message that failed on, after `resume`.

    Attributes:
        topic: The topic's full name.
        ordering_key: The key.
    """

    def __init__(self, topic: str, ordering_key: str, *, like_all: bool = False) -> None:
        what = (
            "is paused like all others, so many of them failed: call resume_all()"
            if like_all
            else "is paused since a message of it failed: call resume(topic, key)"
        )
        super().__init__(
            f"{topic}: ordering key {ordering_key[:50]!r} {what}, then publish again, beginning "
            "with the message that failed"
        )
        self.topic = topic
        self.ordering_key = ordering_key


class PublisherStoppedError(ClosedError):
    """The publisher was stopped before the message was answered.

    Attributes:
        sent: Whether it was on its way: then it may be published or not, otherwise it is not.
    """

    def __init__(self, *, sent: bool) -> None:
        fate = "it may be published or not" if sent else "it was not sent"
        super().__init__(f"the publisher was stopped before the message was answered; {fate}")
        self.sent = sent


class DrainTimeoutError(PubSubError, TimeoutError):
    """A drain took too long. It goes on; `stop` ends it.

    Attributes:
        queued: Messages that are not sent yet.
        in_flight: Messages that are not answered yet.
        untold: What an async listener has not heard of yet, or not returned from.
    """

    def __init__(self, seconds: float, *, queued: int, in_flight: int, untold: int = 0) -> None:
        listener = f", a listener has not heard {untold} things" if untold else ""
        super().__init__(
            f"not drained within {seconds:g} s: {queued} messages are not sent yet, {in_flight} "
            f"not answered{listener}; wait on with drain(), or stop()"
        )
        self.queued = queued
        self.in_flight = in_flight
        self.untold = untold


# A message


class SettleError(PubSubError):
    """An ack or nack did not take effect; the message may come again.

    Attributes:
        ack_id: The delivery that it was about.
    """

    def __init__(self, ack_id: str, why: str) -> None:
        super().__init__(f"{why} (ack id {ack_id[:20]!r}...)")
        self.ack_id = ack_id


class LeaseExpiredError(SettleError):
    """The lease ended before the message was settled; the message will come again."""

    def __init__(self, ack_id: str) -> None:
        super().__init__(ack_id, "the lease ended before the message was settled")


class AlreadySettledError(SettleError):
    """The message was acked, nacked or dropped before; only the first call counts."""

    def __init__(self, ack_id: str) -> None:
        super().__init__(ack_id, "the message was settled before")


class InvalidAckIdError(SettleError):
    """The service does not accept the ack id any more; the message will come again."""

    def __init__(self, ack_id: str, reason: str) -> None:
        super().__init__(ack_id, f"the service refused it: {reason}")
        self.reason = reason


class UnconfirmedError(SettleError):
    """The service did not confirm in time; it may have taken effect or not. See the cause."""

    def __init__(self, ack_id: str) -> None:
        super().__init__(ack_id, "the service did not confirm it")

"""A received message, and what can be done with it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from threading import get_ident
from typing import Any, Protocol, Self

from pubsub_aio.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 50
_VALUE = 0x12  # the tag of a field of bytes with the number 2
_MOST_DIGITS = 14  # of a number in an attribute


class Confirmation(concurrent.futures.Future[None]):
    """Done when the server confirmed an ack, a nack or a deadline, or refused it.

    Await it in the subscription's loop; in another thread call `result(timeout)`. Either raises
    `SettleError` if it did not take effect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # who stops waiting does not take the ack back

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.wrap_future(self).__await__()


async def all_confirmed(confirmations: list[Confirmation]) -> None:
    """Return when all of these are confirmed.

    Raises:
        ExceptionGroup: Of `SettleError`, one for each that is not.
    """
    waiting = [asyncio.wrap_future(one) for one in confirmations]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    errors = [result for result in results if isinstance(result, Exception)]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(results)} messages were not settled", errors)


Told = Callable[[bool], None]
"""Is told what became of a message: whether it was acked, or is to come again."""


class Settler(Protocol):
    """Who carries out what is decided about a message. Its methods may be called in any thread."""

    @property
    def exactly_once(self) -> bool:
        """Whether the subscription has exactly-once delivery, as far as is known."""

    @property
    def subscription(self) -> str:
        """The full name of the subscription."""

    @property
    def ending(self) -> bool:
        """Whether the subscription is about to end.

        What has not begun by then is to be given back; what is cancelled is cancelled for that.
        """

    def ack(self, message: Message, confirmation: Confirmation | None = None) -> None:
        """Tell the server that the message is dealt with."""

    def nack(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        """Give it back, to come again after that many seconds."""

    def extend(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        """Move its deadline."""

    def drop(self, message: Message) -> None:
        """Let go of it without a word to the server."""

    def watch(self, message: Message, told: Told) -> None:
        """Have somebody told, once, what becomes of a message that is held; in the loop only.

        An ack is told of soon, or when it is confirmed if that was asked for.
        """

    def catch_up(self) -> None:
        """Tell now whatever is to be told; in the loop only."""


class Lease(Protocol):
    """What keeps a message alive, and may gather acks: a call for each would take longer."""

    gathers_in: int
    """The thread where a message is acked by adding it to those that were, without its lease.

    Zero, which is none, as long as a settler must hear of the next ack.
    """

    acked: list[Any]
    """Those messages."""


class _Timestamp(Protocol):
    seconds: int
    nanos: int


class _PubsubMessage(Protocol):
    """The fields of the API's PubsubMessage."""

    @property
    def data(self) -> bytes: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def message_id(self) -> str: ...
    @property
    def publish_time(self) -> _Timestamp: ...
    @property
    def ordering_key(self) -> str: ...
    def ByteSize(self) -> int: ...  # noqa: N802 - protobuf's name


class _ReceivedMessage(Protocol):
    """The fields of the API's ReceivedMessage."""

    @property
    def ack_id(self) -> str: ...
    @property
    def message(self) -> _PubsubMessage: ...
    @property
    def delivery_attempt(self) -> int: ...


class _Columns(Protocol):
    """The fields of many messages, a list each."""

    @property
    def ack_ids(self) -> list[str]: ...
    @property
    def delivery_attempts(self) -> list[int]: ...  # none if there are none
    @property
    def message_ids(self) -> list[str]: ...
    @property
    def sources(self) -> list[bytes]: ...
    @property
    def data(self) -> list[bytes]: ...
    def read(self, source: bytes, /) -> _PubsubMessage: ...


class Message:
    """A message, held by this subscriber until it is settled: acked, nacked or dropped.

    Only the first `ack`, `nack` or `drop` counts. All of them are plain calls that return at once,
    from any thread; `ack_with_response` and `nack_with_response` can be awaited until the server
    has answered.
    """

    __slots__ = (
        *("__weakref__", "_raw", "_read", "_settler", "_whole"),
        *("ack_id", "data", "delivery_attempt", "lease", "message_id"),
    )

    ack_id: str
    """The id of this delivery."""

    data: bytes
    """What was published."""

    message_id: str
    """The id that the server gave it, unique within its topic."""

    delivery_attempt: int | None
    """How often it was delivered, this time included; none without a dead-letter policy."""

    lease: object | None
    """Who keeps it alive; none once it is settled. The library's own."""

    _whole: _PubsubMessage  # not set until it was read: that would take time for every message
    _settler: Settler
    _raw: bytes
    _read: Callable[[bytes], _PubsubMessage]

    @classmethod
    def all_in(cls, columns: _Columns, settler: Settler, lease: object | None) -> list[Message]:
        """The messages of a response. The library's own.

        They have no constructor: a call for each would take longer than all that is done here.
        """
        messages = []
        read = columns.read
        for ack_id, message_id, data, raw in zip(
            columns.ack_ids, columns.message_ids, columns.data, columns.sources, strict=True
        ):
            message = cls()
            message._settler = settler
            message._raw = raw
            message._read = read
            message.ack_id = ack_id
            message.message_id = message_id
            message.data = data
            message.delivery_attempt = None
            message.lease = lease
            messages.append(message)
        if columns.delivery_attempts:
            for message, attempt in zip(messages, columns.delivery_attempts, strict=True):
                message.delivery_attempt = attempt or None
        return messages

    @property
    def _source(self) -> _PubsubMessage:
        """All of its fields; read when the first is asked for that is not among the columns."""
        whole: _PubsubMessage | None = getattr(self, "_whole", None)  # to catch takes longer
        if whole is None:
            whole = self._whole = self._read(self._raw)
        return whole

    # What it says

    @property
    def attributes(self) -> dict[str, str]:
        """What was published with it; a new dict each time."""
        return dict(self._source.attributes)

    def attribute(self, name: str) -> str:
        """One of these, empty if there is none. The library's own."""
        whole: _PubsubMessage | None = getattr(self, "_whole", None)
        if whole is None:
            whole = self._read(self._raw)  # to keep it takes longer than to read it again
        return whole.attributes.get(name, "")

    def glance(self, name: bytes) -> int | None:
        """The number in an attribute, in a third of the time that it takes to read the message.

        None if there is no such attribute, for certain. Zero if this cannot tell. Any other is what
        it says if it is there, and nothing if it is not: then its name is part of something else.
        The library's own.
        """
        parts = self._raw.split(name)
        if len(parts) == 1:
            return None
        after = parts[1]
        # A value follows its name, after its tag and its length, which is one byte if it is short.
        if len(parts) == 2 and len(after) > 1 and after[0] == _VALUE and after[1] <= _MOST_DIGITS:
            digits = after[2 : 2 + after[1]]
            return int(digits) if digits.isdigit() else 0
        return 0

    @property
    def publish_time(self) -> datetime:
        """When the server received it."""
        time = self._source.publish_time
        return _EPOCH + timedelta(seconds=time.seconds, microseconds=time.nanos // 1_000)

    @property
    def ordering_key(self) -> str:
        """Messages with the same key come in order, where the subscription has ordering on."""
        return self._source.ordering_key

    @property
    def place(self) -> tuple[int, int, int, str]:
        """Where it is among the messages of its ordering key. The library's own."""
        time, message_id = self._source.publish_time, self.message_id
        return (time.seconds, time.nanos, len(message_id), message_id)

    @property
    def exactly_once_enabled(self) -> bool:
        """Whether an ack of it can be relied on once it is confirmed."""
        return self._settler.exactly_once

    @property
    def size(self) -> int:
        """Its size in bytes, as it is sent."""
        return len(self._raw)

    def __repr__(self) -> str:
        data = self.data
        shown = data if len(data) <= _SHOWN else data[:_SHOWN] + b"..."
        attributes = dict(sorted(self.attributes.items()))  # which come in any order
        key = f", ordering_key={self.ordering_key!r}" if self.ordering_key else ""
        return f"Message(id={self.message_id}, data={shown!r}, attributes={attributes}{key})"

    @property
    def settler(self) -> Settler:
        """Who carries out what is done with it. The library's own."""
        return self._settler

    # What is done with it

    def ack(self) -> None:
        """It is dealt with, and is not to come again."""
        lease: Lease | None = self.lease  # type: ignore[assignment] # opaque but for this
        if lease is not None and lease.gathers_in == get_ident():  # as nearly every ack is
            self.lease = None
            lease.acked.append(self)
        else:
            self._settler.ack(self)

    def nack(self, *, delay: float = 0.0) -> None:
        """It is to come again.

        Args:
            delay: Seconds after which it may come, 0 to 600; at once unless told otherwise. The
                subscription's retry policy, if it has one, adds to a delay of zero only.
        """
        self._settler.nack(self, whole_seconds(delay, "delay"))

    def drop(self) -> None:
        """Stop to keep it alive; it comes again when its ack deadline has passed."""
        self._settler.drop(self)

    def modify_ack_deadline(self, seconds: float) -> None:
        """Move its ack deadline to that many seconds from now, 0 to 600. It stays held."""
        self._settler.extend(self, whole_seconds(seconds, "seconds"))

    def ack_with_response(self) -> Confirmation:
        """Ack it; the result can be awaited.

        With exactly-once delivery, once it is confirmed the message does not come again. Transient
        failures are retried.
        """
        confirmation = Confirmation()
        self._settler.ack(self, confirmation)
        return confirmation

    def nack_with_response(self, *, delay: float = 0.0) -> Confirmation:
        """Nack it; the result can be awaited."""
        seconds = whole_seconds(delay, "delay")
        confirmation = Confirmation()
        self._settler.nack(self, seconds, confirmation)
        return confirmation

    def modify_ack_deadline_with_response(self, seconds: float) -> Confirmation:
        """Move its ack deadline; the result can be awaited."""
        whole = whole_seconds(seconds, "seconds")
        confirmation = Confirmation()
        self._settler.extend(self, whole, confirmation)
        return confirmation

    def renew_with(self, copy: Self) -> None:
        """Go on with the ack id of another delivery, and leave it the own. The library's own."""
        self.delivery_attempt = copy.delivery_attempt
        self.ack_id, copy.ack_id = copy.ack_id, self.ack_id


class WholeMessage(Message):
    """A message whose fields were all read when it came, and are held once only."""

    __slots__ = ("_source",)

    _source: _PubsubMessage

    @classmethod
    def all_of(
        cls, received: Iterable[_ReceivedMessage], settler: Settler, lease: object | None
    ) -> list[Message]:
        """The messages of a response. The library's own."""
        messages: list[Message] = []
        for one in received:
            message = cls()
            message.delivery_attempt = one.delivery_attempt or None
            message._settler = settler
            message._source = source = one.message
            message.ack_id = one.ack_id
            message.message_id = source.message_id
            message.lease = lease
            messages.append(message)
        return messages

    @property
    def data(self) -> bytes:  # type: ignore[override] # a copy each time, as of all protobuf objects
        """What was published."""
        return self._source.data

    def attribute(self, name: str) -> str:
        """One of its attributes, empty if there is none. The library's own."""
        return self._source.attributes.get(name, "")

    def glance(self, name: bytes) -> int | None:
        """The number in an attribute: none if there is no such, zero if it is no number."""
        value = self._source.attributes.get(name.decode())
        if value is None:
            return None
        is_number = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else 0

    @property
    def size(self) -> int:
        """Its size in bytes, as it is sent."""
        return self._source.ByteSize()


def whole_seconds(value: float, name: str) -> int:
    """Seconds as the service takes them: rounded up, 0 to 600.

    Raises:
        ConfigError: It is not within these.
    """
    if not isinstance(value, int | float) or not 0 <= value <= 600:
        raise ConfigError(f"{name} must be 0 to 600 seconds, not {value!r}")
    return -int(-value // 1)

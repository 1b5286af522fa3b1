"""What happened to the latest messages: the memory behind the emulator's inspection API.

Recording costs a few references for each batch, not for each message; sorting events by message
is left to whoever asks. It is bounded, so a long run does not grow.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from pubsub_aio.emulator import ack_ids, records

HISTORY = 10_000
"""How many messages are remembered unless told otherwise, and a quarter of how many events."""

_HISTORY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message was sent to a subscriber."""

    subscription: str
    ack_id: str
    attempt: int
    time: datetime


@dataclass(frozen=True, slots=True)
class Ack:
    """A subscriber acknowledged a delivery.

    `effective` is false for an ack that came too late or was refused.
    """

    subscription: str
    ack_id: str
    effective: bool
    time: datetime


@dataclass(frozen=True, slots=True)
class Modack:
    """A subscriber asked for another ack deadline; zero seconds is a nack."""

    subscription: str
    ack_id: str
    seconds: float
    effective: bool
    time: datetime


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message and what became of it, over all subscriptions."""

    message_id: str
    topic: str
    data: bytes
    attributes: dict[str, str]
    ordering_key: str
    publish_time: datetime
    deliveries: list[Delivery] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    modacks: list[Modack] = field(default_factory=list)


class Source(NamedTuple):
    """Where deliveries come from: a subscription, and the serial number of its topic."""

    uid: int
    subscription: str
    topic: int


class _Published(NamedTuple):
    topic: int
    name: str
    first: int
    messages: Sequence[bytes]
    first_id: int
    time: float


class _Delivered(NamedTuple):
    source: Source
    offset: int
    size: int
    delivery: int
    attempt: int
    time: float


class _Withdrawn(NamedTuple):
    source: Source
    issued: array[int]
    offsets: array[int]


class _Settled(NamedTuple):
    source: Source
    issued: array[int]
    offsets: array[int]
    failed: Collection[int]
    seconds: float | None
    time: float


_Event = _Delivered | _Withdrawn | _Settled


class Journal:
    """The latest publishes, deliveries, acks and modacks."""

    def __init__(self, history: int = HISTORY) -> None:
        self._history = history
        self._published: deque[_Published] = deque()
        self._events: deque[tuple[int, _Event]] = deque()
        self._kept = 0
        self._kept_bytes = 0
        self._kept_events = 0

    def published(
        self,
        topic: int,
        name: str,
        first: int,
        messages: Sequence[bytes],
        first_id: int,
        time: float,
    ) -> None:
        """Note messages, as records, that took consecutive offsets and ids."""
        if not self._history:
            return
        self._published.append(_Published(topic, name, first, messages, first_id, time))
        self._kept += len(messages)
        self._kept_bytes += sum(map(len, messages))
        while len(self._published) > 1 and (
            self._kept > self._history or self._kept_bytes > _HISTORY_BYTES
        ):
            dropped = self._published.popleft()
            self._kept -= len(dropped.messages)
            self._kept_bytes -= sum(map(len, dropped.messages))

    def delivered(
        self, source: Source, offset: int, count: int, delivery: int, attempt: int, time: float
    ) -> None:
        """Note the delivery of messages side by side."""
        self._note(count, _Delivered(source, offset, count, delivery, attempt, time))

    def withdrawn(self, source: Source, issued: array[int], offsets: array[int]) -> None:
        """Note that deliveries did not take place after all."""
        self._note(len(offsets), _Withdrawn(source, issued, offsets))

    def acked(
        self,
        source: Source,
        issued: array[int],
        offsets: array[int],
        failed: Collection[int],
        time: float,
    ) -> None:
        """Note acks; `failed` are the positions of those without effect."""
        self._note(len(offsets), _Settled(source, issued, offsets, failed, None, time))

    def modified(
        self,
        source: Source,
        issued: array[int],
        offsets: array[int],
        seconds: float,
        failed: Collection[int],
        time: float,
    ) -> None:
        """Note modacks; `failed` are the positions of those without effect."""
        self._note(len(offsets), _Settled(source, issued, offsets, failed, seconds, time))

    def _note(self, count: int, event: _Event) -> None:
        """Remember something that happened to so many messages."""
        if not self._history:
            return
        self._events.append((count, event))
        self._kept_events += count
        while self._kept_events > 4 * self._history and len(self._events) > 1:
            self._kept_events -= self._events.popleft()[0]

    def messages(self, wanted: Callable[[str], bool]) -> list[PublishedMessage]:
        """The remembered messages of the topics whose names are wanted, oldest first."""
        found: dict[tuple[int, int], PublishedMessage] = {}
        for batch in self._published:
            if wanted(batch.name):
                for index, record in enumerate(batch.messages):
                    key = (batch.topic, batch.first + index)
                    found[key] = _describe(batch, batch.first_id + index, record)
        for _, event in self._events:
            topic = event.source.topic
            if isinstance(event, _Delivered):
                for offset, delivery in _deliveries(event):
                    if message := found.get((topic, offset)):
                        message.deliveries.append(delivery)
            elif isinstance(event, _Withdrawn):
                for offset, ack_id in _named(event):
                    if message := found.get((topic, offset)):
                        kept = [each for each in message.deliveries if each.ack_id != ack_id]
                        message.deliveries[:] = kept
            else:
                for offset, settled in _settlements(event):
                    message = found.get((topic, offset))
                    if message and isinstance(settled, Ack):
                        message.acks.append(settled)
                    elif message and isinstance(settled, Modack):
                        message.modacks.append(settled)
        return list(found.values())


def _describe(batch: _Published, number: int, record: bytes) -> PublishedMessage:
    message = records.message_of(record)
    return PublishedMessage(
        message_id=str(number),
        topic=batch.name,
        data=message.data,
        attributes=dict(message.attributes),
        ordering_key=message.ordering_key,
        publish_time=_instant(batch.time),
    )


def _deliveries(event: _Delivered) -> Iterator[tuple[int, Delivery]]:
    name = event.source.subscription
    ids = ack_ids.encode(event.source.uid, event.delivery, event.offset, event.offset + event.size)
    for offset, ack_id in enumerate(ids, event.offset):
        yield offset, Delivery(name, ack_id.decode(), event.attempt, _instant(event.time))


def _settlements(event: _Settled) -> Iterator[tuple[int, Ack | Modack]]:
    name = event.source.subscription
    for at, (offset, ack_id) in enumerate(_named(event)):
        effective = at not in event.failed
        if event.seconds is None:
            yield offset, Ack(name, ack_id, effective, _instant(event.time))
        else:
            yield offset, Modack(name, ack_id, event.seconds, effective, _instant(event.time))


def _named(event: _Settled | _Withdrawn) -> Iterator[tuple[int, str]]:
    """The offset and ack id of each delivery."""
    for delivery, offset in zip(event.issued, event.offsets, strict=True):
        yield offset, f"{event.source.uid:016x}{delivery:016x}{offset:016x}"


def _instant(time: float) -> datetime:
    return datetime.fromtimestamp(round(time, 6), tz=UTC)

"""A response in the making: what still fits into it, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pubsub_aio.emulator import records

MAX_BYTES = 3 * 1024 * 1024
"""Clients that set nothing accept 4 MiB; a message larger than this comes alone."""

MAX_MESSAGES = 1_000


class Consumer:
    """Somebody who takes messages: a stream, or one Pull call."""

    __slots__ = (
        "ack_deadline",
        "held_bytes",
        "held_messages",
        "max_bytes",
        "max_messages",
        "number",
    )

    def __init__(
        self, number: int, *, ack_deadline: float, max_messages: int = 0, max_bytes: int = 0
    ) -> None:
        self.number = number
        self.ack_deadline = ack_deadline
        self.max_messages = max_messages if max_messages > 0 else 1 << 62
        self.max_bytes = max_bytes if max_bytes > 0 else 1 << 62
        self.held_messages = 0
        self.held_bytes = 0


class Response:
    """The messages that go to one consumer at once; `beside` bytes of others are sent with them."""

    __slots__ = ("_alone", "_parts", "_retold", "_space", "consumer", "count", "now", "room")

    def __init__(
        self,
        consumer: Consumer,
        *,
        limit: int,
        now: float,
        space: int = MAX_BYTES,
        beside: int = 0,
        retold: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._retold = retold
        self.consumer = consumer
        self.now = now
        self.count = 0
        room = min(limit, MAX_MESSAGES, consumer.max_messages - consumer.held_messages)
        self.room = max(0, room)  # who took over from another may hold more than it may
        if consumer.held_bytes >= consumer.max_bytes:
            self.room = 0
        self._space = min(space, MAX_BYTES) - beside
        self._alone = not beside
        self._parts: list[bytes] = []

    @property
    def payload(self) -> bytes:
        """The `received_messages` field of a PullResponse or StreamingPullResponse."""
        return b"".join(self._parts)

    def fit(self, taken: Sequence[bytes]) -> int:
        """How many of these records, from the first on, still fit."""
        taken = taken[: self.room]
        size = sum(map(len, taken))
        held = self.consumer.held_bytes
        if size <= self._space and held + size < self.consumer.max_bytes:
            return len(taken)
        space = self._space
        for count, record in enumerate(taken):
            alone = self._alone and self.count + count == 0
            if held >= self.consumer.max_bytes or (len(record) > space and not alone):
                return count
            space -= len(record)
            held += len(record)
        return len(taken)

    def add(
        self, taken: Sequence[bytes], ids: Sequence[bytes], *, attempt: int, held: bool = True
    ) -> None:
        """Put records in; `attempt` is told to the subscriber unless it is zero."""
        told = [self._retold(record) for record in taken] if self._retold else taken
        if attempt:
            pairs = zip(told, ids, strict=True)
            self._parts += [records.deliver_attempt(r, ack_id, attempt) for r, ack_id in pairs]
        else:
            self._parts.append(records.deliver(told, ids))
        size = sum(map(len, taken))
        if held:
            self.consumer.held_messages += len(taken)
            self.consumer.held_bytes += size
        self.count += len(taken)
        self.room -= len(taken)
        self._space -= size
        if self.consumer.held_bytes >= self.consumer.max_bytes:
            self.room = 0

"""What was said and answered over many lives of a server, and what must hold of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Record:
    """Everything that one topic and its one subscription were told and have told.

    Messages are named by numbers, in the order of their publishing; those of a key are published
    one after another.
    """

    exactly_once: bool
    keys: dict[int, str] = field(default_factory=dict)
    """Every message that was sent to be published, and its ordering key."""
    answered: dict[int, str] = field(default_factory=dict)
    """The id that was told for it."""
    delivered: list[tuple[int, int, str]] = field(default_factory=list)
    """Which message, in which life, under which id."""
    asked: dict[int, int] = field(default_factory=dict)
    """Messages of which an ack was sent, and how many deliveries there were before that."""
    acked: dict[int, int] = field(default_factory=dict)
    """Those of which it was answered ok, and how many there were before the answer."""

    def violations(self) -> Iterator[str]:
        """What should not have been."""
        yield from self._lost()
        yield from self._wrong_ids()
        if self.exactly_once:
            yield from self._come_back()
        yield from self._out_of_order()

    def _lost(self) -> Iterator[str]:
        seen = {message for message, _, _ in self.delivered}
        for message in self.answered.keys() - seen:
            yield f"{message} was published and never delivered"
        for message in seen - self.keys.keys():
            yield f"{message} was delivered and never published"

    def _wrong_ids(self) -> Iterator[str]:
        by_id: dict[str, int] = {}
        for message, _, message_id in self.delivered:
            if self.answered.get(message, message_id) != message_id:
                yield f"{message} has another id, {message_id}, than its publisher was told"
            if by_id.setdefault(message_id, message) != message:
                yield f"{message} and {by_id[message_id]} have the same id, {message_id}"

    def _come_back(self) -> Iterator[str]:
        for at, (message, life, _) in enumerate(self.delivered):
            if at >= self.acked.get(message, at + 1):
                yield f"{message} was acked and came again in life {life}"

    def _out_of_order(self) -> Iterator[str]:
        """In each life a key goes forward, from its first message that is not settled."""
        by_life: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for at, (message, life, _) in enumerate(self.delivered):
            if key := self.keys.get(message, ""):
                by_life[key, life].append((at, message))
        for (key, life), delivered in by_life.items():
            numbers = [message for _, message in delivered]
            if numbers != sorted(set(numbers)):
                yield f"key {key} was not in order in life {life}: {numbers[:20]}"
            begun_at, first = delivered[0]
            for message, other in self.keys.items():
                due = other == key and message < first and message in self.answered
                if due and self.asked.get(message, begun_at + 1) > begun_at:
                    yield f"key {key} began with {first} in life {life}, before {message}"

"""Exactly-once: messages whose receipt the server has not confirmed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pubsub_aio._core.outbox import Outcome


class Keyed(Protocol):
    """What is known of a message."""

    @property
    def ordering_key(self) -> str:
        """Messages of one key are ready in the order they came."""


M = TypeVar("M", bound=Keyed)


@dataclass(slots=True)
class Answered(Generic[M]):
    """What became of receipts."""

    ready: list[M] = field(default_factory=list)
    refused: list[M] = field(default_factory=list)
    later: list[M] = field(default_factory=list)
    """What comes after a refused one of its key, and so is out of order."""


class Receipts(Generic[M]):
    """Messages that are not to be handed over before the server has confirmed their receipt.

    A message may stand for many deliveries; it is ready when all of them were answered, and so were
    those of every earlier message of its key.

    Args:
        leave_out: Called with a message and those of its ack ids that were refused; returns whether
            anything is left of it.
    """

    def __init__(self, leave_out: Callable[[M, set[str]], bool]) -> None:
        self._leave_out = leave_out
        self._by_id: dict[str, M] = {}
        self._left: dict[M, int] = {}  # answers that are to come, in the order the messages came
        self._refused: dict[M, set[str]] = {}

    def __len__(self) -> int:
        """How many messages wait here."""
        return len(self._left)

    def add(self, message: M, ack_ids: Iterable[str]) -> None:
        """Wait for the receipt of a message."""
        ids = list(ack_ids)
        self._by_id.update(dict.fromkeys(ids, message))
        self._left[message] = len(ids)

    def answered(self, outcome: Outcome) -> Answered[M]:
        """The server has answered."""
        result: Answered[M] = Answered()
        keys: set[str] = set()
        for ack_id in (*outcome.confirmed, *outcome.failed):
            message = self._by_id.pop(ack_id, None)
            if message is None:
                continue
            if ack_id in outcome.failed:
                self._refused.setdefault(message, set()).add(ack_id)
            self._left[message] -= 1
            if self._left[message]:
                continue
            refused = self._refused.pop(message, None)
            if refused is not None and not self._leave_out(message, refused):
                self._refuse(message, result)
            elif message.ordering_key:
                keys.add(message.ordering_key)
            else:
                del self._left[message]
                result.ready.append(message)
        if keys:
            self._in_order(keys, result)
        return result

    def _refuse(self, message: M, result: Answered[M]) -> None:
        """Forget a message, and what is later of its key."""
        result.refused.append(message)
        messages = list(self._left)
        after = messages[messages.index(message) + 1 :]
        key = message.ordering_key
        later = {one for one in after if key and one.ordering_key == key}
        del self._left[message]
        result.later += self.withdraw(lambda one: one in later)

    def _in_order(self, keys: set[str], result: Answered[M]) -> None:
        """Let go the first messages of these keys whose answers have come."""
        for message in list(self._left):
            if message.ordering_key in keys:
                if self._left[message]:
                    keys.discard(message.ordering_key)
                else:
                    del self._left[message]
                    result.ready.append(message)

    def withdraw(self, match: Callable[[M], bool]) -> list[M]:
        """Wait no longer for those that match, and return them."""
        withdrawn = [message for message in self._left if match(message)]
        for message in withdrawn:
            del self._left[message]
            self._refused.pop(message, None)
        gone = set(withdrawn)
        if gone:
            ids = self._by_id.items()
            self._by_id = {ack_id: message for ack_id, message in ids if message not in gone}
        return withdrawn

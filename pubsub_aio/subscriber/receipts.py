"""Exactly-once: messages whose receipt the server has not confirmed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pubsub_aio._core.outbox import Outcome

M = TypeVar("M")


@dataclass(slots=True)
class _Waiting:
    """What is known of a message that waits."""

    key: str
    left: int
    """Answers that are to come."""
    refused: set[str] = field(default_factory=set)


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
        self._waiting: dict[M, _Waiting] = {}  # in the order they came
        self._ready: list[M] = []
        self._keys: set[str] = set()  # of which some may be ready

    def __len__(self) -> int:
        """How many messages wait here."""
        return len(self._waiting)

    def add(self, message: M, ack_ids: Iterable[str], key: str) -> list[M]:
        """Wait for the receipt of a message.

        Returns earlier ones with an ack id of its, which are forgotten: it is for one delivery that
        the server will answer.
        """
        ids = dict.fromkeys(ack_ids, message)
        older: list[M] = []
        if not self._by_id.keys().isdisjoint(ids):
            replaced = {self._by_id[one] for one in ids if one in self._by_id}
            older = self.withdraw(lambda one: one in replaced)
        self._by_id.update(ids)
        self._waiting[message] = _Waiting(key, len(ids))
        return older

    def answered(self, outcome: Outcome) -> list[M]:
        """The server has answered; returns those of which nothing is left.

        What is later of their keys is to be withdrawn before it is asked what is ready.
        """
        gone: list[M] = []
        for ack_id in (*outcome.confirmed, *outcome.failed):
            message = self._by_id.pop(ack_id, None)
            if message is None:
                continue
            waiting = self._waiting[message]
            if ack_id in outcome.failed:
                waiting.refused.add(ack_id)
            waiting.left -= 1
            if waiting.left:
                continue
            self._keys.add(waiting.key)
            if waiting.refused and not self._leave_out(message, waiting.refused):
                del self._waiting[message]
                gone.append(message)
            elif not waiting.key:
                del self._waiting[message]
                self._ready.append(message)
        return gone

    def ready(self) -> list[M]:
        """Those that can be handed over now."""
        ready, self._ready = self._ready, []
        keys, self._keys = self._keys - {""}, set()
        for message, waiting in list(self._waiting.items()) if keys else ():
            if waiting.key in keys:
                if waiting.left:
                    keys.discard(waiting.key)
                else:
                    del self._waiting[message]
                    ready.append(message)
        return ready

    def withdraw(self, match: Callable[[M], bool]) -> list[M]:
        """Wait no longer for those that match, and return them."""
        withdrawn = [message for message in self._waiting if match(message)]
        for message in withdrawn:
            del self._waiting[message]
        gone = set(withdrawn)
        if gone:
            ids = self._by_id.items()
            self._by_id = {ack_id: message for ack_id, message in ids if message not in gone}
        return withdrawn

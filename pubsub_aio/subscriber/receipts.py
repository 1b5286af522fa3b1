"""Exactly-once: messages whose receipt the server has not confirmed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from pubsub_aio._core.outbox import Outcome


class Keyed(Protocol):
    """What is known of a message."""

    @property
    def ordering_key(self) -> str:
        """Messages of one key are ready in the order they came."""


M = TypeVar("M", bound=Keyed)


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
        self._ready: list[M] = []
        self._keys: set[str] = set()  # of which some may be ready

    def __len__(self) -> int:
        """How many messages wait here."""
        return len(self._left)

    def add(self, message: M, ack_ids: Iterable[str]) -> None:
        """Wait for the receipt of a message."""
        ids = list(ack_ids)
        self._by_id.update(dict.fromkeys(ids, message))
        self._left[message] = len(ids)

    def answered(self, outcome: Outcome) -> list[M]:
        """The server has answered; returns those of which nothing is left.

        What is later of their keys is to be withdrawn before it is asked what is ready.
        """
        gone: list[M] = []
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
            self._keys.add(message.ordering_key)
            if refused is not None and not self._leave_out(message, refused):
                del self._left[message]
                gone.append(message)
            elif not message.ordering_key:
                del self._left[message]
                self._ready.append(message)
        return gone

    def ready(self) -> list[M]:
        """Those that can be handed over now."""
        ready, self._ready = self._ready, []
        keys, self._keys = self._keys - {""}, set()
        for message in list(self._left) if keys else ():
            if message.ordering_key in keys:
                if self._left[message]:
                    keys.discard(message.ordering_key)
                else:
                    del self._left[message]
                    ready.append(message)
        return ready

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

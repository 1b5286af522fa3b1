"""Which messages are held, by their ids: so that copies of them are recognised.

Ids are merged and subtracted a response at a time. Only when one comes that is known already is it
looked at single messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, Self, TypeVar


class Named(Protocol):
    """What is known of a message."""

    lease: object | None

    @property
    def message_id(self) -> str: ...

    def renew_with(self, copy: Self) -> None:
        """Take over the ack id of another delivery of the same message, and leave it the own."""


M = TypeVar("M", bound=Named)

_SPARE = 1_000


class HeldIds(Generic[M]):
    """The ids of everything that is held.

    Args:
        held: Returns every message that is held.
    """

    def __init__(self, held: Callable[[], Iterable[M]]) -> None:
        self._held = held
        self._ids: set[str] = set()
        self._listed_again: Counter[str] = Counter()  # ids that were added more than once
        self._holders: dict[str, M] | None = None  # who has which id; made when it is needed

    def add(self, messages: list[M], *, held: int) -> tuple[list[M], set[str], list[M]]:
        """Messages come, while that many are held.

        Returns those that are new, with their ids, and the copies of held ones, whose ack ids the
        held ones have taken over.
        """
        copies: list[M] = []
        ids = {message.message_id for message in messages}
        if len(ids) != len(messages) or not self._ids.isdisjoint(ids):
            messages, copies = self._sort_out(messages, 2 * held + _SPARE)
            ids = {message.message_id for message in messages}
        elif self._holders is not None:
            self._holders.update((message.message_id, message) for message in messages)
            if len(self._holders) > 2 * held + _SPARE:  # most of them hold no more
                self._holders = None
        self._ids |= ids
        return messages, ids, copies

    def holder_of(self, copy: M) -> M:
        """The held message that a copy is of, which was among the last that were added."""
        assert self._holders is not None  # noqa: S101 - they were made to tell it from new ones
        return self._holders[copy.message_id]

    def remove(self, ids: set[str]) -> None:
        """Ids that were added together are no longer held."""
        if self._listed_again:
            ids = self._listed_once(ids)
        self._ids -= ids

    def _listed_once(self, ids: set[str]) -> set[str]:
        """Those of these ids that nobody else has; of the others this is one less."""
        shared = ids & self._listed_again.keys()
        for message_id in shared:
            self._listed_again[message_id] -= 1
            if not self._listed_again[message_id]:
                del self._listed_again[message_id]
        return ids - shared

    def _sort_out(self, messages: list[M], most: int) -> tuple[list[M], list[M]]:
        """Tell new messages from copies."""
        if self._holders is None or len(self._holders) > most:
            self._holders = {message.message_id: message for message in self._held()}
        fresh: list[M] = []
        copies: list[M] = []
        for message in messages:
            holder = self._holders.get(message.message_id) if message.message_id else None
            if holder is None or holder.lease is None:
                self._holders[message.message_id] = message
                if message.message_id in self._ids:
                    self._listed_again[message.message_id] += 1
                fresh.append(message)
            else:
                holder.renew_with(message)
                message.lease = None
                copies.append(message)
        return fresh, copies

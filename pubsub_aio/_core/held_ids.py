"""Which messages are held, by their ids: so that copies of them are recognised.

Ids are merged and subtracted a response at a time. Only when one comes that is known already is it
looked at single messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Generic, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from pubsub_aio._core.bag import Bag


class Named(Protocol):
    """What is known of a message."""

    lease: object | None

    @property
    def message_id(self) -> str: ...

    def renew_with(self, copy: Self) -> None:
        """Take over the ack id of another delivery of the same message, and leave it the own."""


M = TypeVar("M", bound=Named)

_SPARE = 1_000  # messages for which it is not worth to ask how many are held


class HeldIds(Generic[M]):
    """The ids of everything that is held.

    Args:
        held: Returns every message that is held.
    """

    def __init__(self, held: Callable[[], Iterable[M]]) -> None:
        self._held = held
        self._ids = Bag()
        # Who has which id; made when a copy comes, and kept while to make it anew would cost more.
        self._holders: WeakValueDictionary[str, M] | None = None
        self._since_a_copy = 0

    def add(
        self, messages: list[M], ids: Collection[str], *, held: int
    ) -> tuple[list[M], Collection[str], list[M]]:
        """Messages come, with these ids, while that many are held.

        Returns those that are new, with their ids, each once, and the copies of held ones, whose
        ack ids the held ones have taken over.
        """
        copies: list[M] = []
        if len(ids) != len(messages) or not self._ids.add_new(ids):
            messages, copies = self._sort_out(messages)
            ids = {message.message_id for message in messages}
            self._ids.add(ids)
            self._since_a_copy = 0
        elif self._holders is not None:
            self._holders.update((message.message_id, message) for message in messages)
            self._since_a_copy += len(messages)
            if self._since_a_copy > held + _SPARE:
                self._holders = None
        return messages, ids, copies

    def holder_of(self, copy: M) -> M:
        """The held message that a copy is of, which was among the last that were added."""
        assert self._holders is not None  # noqa: S101 - they were made to tell it from new ones
        return self._holders[copy.message_id]

    def remove(self, ids: Collection[str]) -> None:
        """Ids that were added together are no longer held."""
        self._ids.remove(ids)

    def _sort_out(self, messages: list[M]) -> tuple[list[M], list[M]]:
        """Tell new messages from copies."""
        if self._holders is None:
            self._holders = WeakValueDictionary({one.message_id: one for one in self._held()})
        fresh: list[M] = []
        copies: list[M] = []
        for message in messages:
            holder = self._holders.get(message.message_id) if message.message_id else None
            if holder is None or holder.lease is None:
                self._holders[message.message_id] = message
                fresh.append(message)
            else:
                holder.renew_with(message)
                message.lease = None
                copies.append(message)
        return fresh, copies

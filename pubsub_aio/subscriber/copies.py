"""Messages that came more than once while they were held: the ack ids of all their deliveries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from pubsub_aio.subscriber.held import Held

MOST = 10
"""Further ids of a message; those of older deliveries are of no use any more."""

M = TypeVar("M", bound=Held)


class Copies(Generic[M]):
    """The further ack ids of held messages.

    Which id of a message is the valid one cannot be told: deliveries come by several streams, in
    any order, and ids are opaque. So what is done to a message is done to all of its deliveries.
    """

    def __init__(self) -> None:
        self._ids: dict[str, deque[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def note(self, copies: Iterable[M]) -> None:
        """Held messages have taken over the ids of these, and have left them theirs."""
        for copy in copies:
            ids = self._ids.setdefault(copy.message_id, deque(maxlen=MOST))
            if copy.ack_id not in ids:
                ids.append(copy.ack_id)

    def of(self, messages: Iterable[M]) -> list[str]:
        """The further ids of these."""
        if not self._ids:
            return []
        return [
            one
            for message in messages
            for one in self._ids.get(message.message_id, ())
            if one != message.ack_id
        ]

    def take(self, messages: Iterable[M]) -> list[str]:
        """The further ids of these, which are settled now."""
        further = self.of(messages)
        if self._ids:
            for message in messages:
                self._ids.pop(message.message_id, None)
        return further

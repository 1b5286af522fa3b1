"""Acks that must reach the server in order: those of one ordering key, with exactly-once delivery.

There the server refuses an ack that overtakes an earlier one of its key, and calls overtake one
another. So the acks of a key go in one request at a time; what is acked meanwhile waits for its
answer. Different keys do not wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class AcksInOrder:
    """Acks that wait, or are on their way, by their ordering keys."""

    def __init__(self) -> None:
        self._ready: dict[str, list[str]] = {}
        self._blocked: dict[str, list[str]] = {}  # an earlier one of the key is on its way
        self._on_their_way: dict[str, str] = {}  # ids, and their keys
        self._count: Counter[str] = Counter()  # of these, by key

    @property
    def ready(self) -> bool:
        """Whether any can be sent."""
        return bool(self._ready)

    def add(self, key: str, ack_ids: list[str]) -> None:
        """Acks of one key are to be sent, after those that were added before."""
        waiting = self._blocked if key in self._count else self._ready
        waiting.setdefault(key, []).extend(ack_ids)

    def take(self, most: int) -> list[list[str]]:
        """What can be sent now, in requests of at most so many ids."""
        requests: list[list[str]] = [[]]
        ready, self._ready = self._ready, {}
        for key, waiting in ready.items():
            ids, rest = waiting[:most], waiting[most:]
            if rest:
                self._blocked[key] = rest
            self._count[key] = len(ids)
            self._on_their_way.update(dict.fromkeys(ids, key))
            if len(requests[-1]) + len(ids) > most:
                requests.append([])
            requests[-1] += ids
        return requests if requests[0] else []

    def settled(self, ack_ids: Iterable[str]) -> None:
        """These were answered and are not sent again; what waits for them can go."""
        for ack_id in ack_ids:
            key = self._on_their_way.pop(ack_id, None)
            if key is None:
                continue
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
                if waiting := self._blocked.pop(key, None):
                    self._ready[key] = waiting

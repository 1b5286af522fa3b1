"""Acks that must reach the server in order: those of one ordering key, with exactly-once delivery.

There the server refuses an ack that overtakes an earlier one of its key, and calls overtake one
another. So the acks of a key go in one request at a time; what is acked meanwhile waits for its
answer. What was refused waits with it, and goes again in its place: the earlier message may have
been acked since. Different keys do not wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pubsub_aio._core.lanes import Place


@dataclass(slots=True)
class _Ack:
    place: Place
    ack_id: str
    owed_until: float


@dataclass(slots=True)
class _Key:
    waiting: dict[str, _Ack] = field(default_factory=dict)
    on_their_way: dict[str, _Ack] = field(default_factory=dict)
    not_before: float = -math.inf
    refusals: int = 0  # in a row


class AcksInOrder:
    """Acks that wait, or are on their way, by their ordering keys."""

    def __init__(self) -> None:
        self.longest = 0
        """How long the longest id was so far."""
        self._keys: dict[str, _Key] = {}
        self._key_of: dict[str, str] = {}
        self._ready: dict[str, None] = {}  # keys of which something can be sent
        self._refused: dict[str, None] = {}  # keys of which something is to be sent again

    @property
    def ready(self) -> bool:
        """Whether any can be sent that was not sent before."""
        return bool(self._ready)

    @property
    def next_at(self) -> float:
        """When any is to be sent again; infinity if none is."""
        return min((self._keys[key].not_before for key in self._refused), default=math.inf)

    def add(self, key: str, place: Place, ack_ids: Iterable[str], *, owed_until: float) -> int:
        """Acks of one key are to be sent; returns how many of them are new.

        Args:
            key: The ordering key.
            place: Where the message is among those of its key: an earlier one has a smaller place.
            ack_ids: Of its deliveries.
            owed_until: When to give up.
        """
        acks = self._keys.setdefault(key, _Key())
        new = [one for one in ack_ids if one not in self._key_of]
        if acks.refusals and all(place < ack.place for ack in acks.waiting.values()):
            acks.refusals = 0  # it may be what those that were refused wait for
        for ack_id in new:
            self.longest = max(self.longest, len(ack_id))
            self._key_of[ack_id] = key
            acks.waiting[ack_id] = _Ack(place, ack_id, owed_until)
        self._sort_in(key, acks)
        return len(new)

    def _sort_in(self, key: str, acks: _Key) -> None:
        """Say whether something of a key can be sent, now or later."""
        free = bool(acks.waiting) and not acks.on_their_way
        self._ready.pop(key, None)
        self._refused.pop(key, None)
        if free and acks.refusals:
            self._refused[key] = None
        elif free:
            self._ready[key] = None
        if not acks.waiting and not acks.on_their_way:
            del self._keys[key]

    def take(self, most: int, *, now: float) -> list[list[str]]:
        """What can be sent now, in requests of at most so many ids."""
        due = [key for key in self._refused if self._keys[key].not_before <= now]
        requests: list[list[str]] = []
        for key in (*due, *self._ready):
            acks = self._keys[key]
            part = sorted(acks.waiting.values(), key=lambda ack: ack.place)[:most]
            for ack in part:
                acks.on_their_way[ack.ack_id] = acks.waiting.pop(ack.ack_id)
            if not requests or len(requests[-1]) + len(part) > most:
                requests.append([])
            requests[-1] += [ack.ack_id for ack in part]
        for key in due:
            del self._refused[key]
        self._ready.clear()
        return requests

    def settled(self, ack_ids: Iterable[str]) -> None:
        """These were answered and are not sent again; what waits for them can go."""
        for ack_id in ack_ids:
            if (key := self._key_of.pop(ack_id, None)) is not None:
                acks = self._keys[key]
                acks.on_their_way.pop(ack_id, None)
                acks.refusals = 0
                self._sort_in(key, acks)

    def refused(
        self, ack_ids: Iterable[str], *, now: float, wait: Callable[[int], float]
    ) -> list[str]:
        """These are to be sent again; returns those for which it is too late, which are not.

        Args:
            ack_ids: All of them.
            now: The time.
            wait: Returns the seconds to wait after so many refusals in a row.
        """
        late: list[str] = []
        by_key: dict[str, list[str]] = {}
        for ack_id in ack_ids:
            by_key.setdefault(self._key_of[ack_id], []).append(ack_id)
        for key, ids in by_key.items():
            acks = self._keys[key]
            acks.refusals += 1
            acks.not_before = now + wait(acks.refusals)
            for ack_id in ids:
                ack = acks.on_their_way.pop(ack_id)
                if acks.not_before > ack.owed_until:
                    del self._key_of[ack_id]
                    late.append(ack_id)
                else:
                    acks.waiting[ack_id] = ack
            self._sort_in(key, acks)
        return late

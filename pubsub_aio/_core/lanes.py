"""One message at a time for each ordering key, in the order they came.

When a message is given back, the server sends it again and then all later ones of its key. So the
later ones that are here are given back too, and so is what comes after it although it was sent
before: until the message itself or an earlier one comes, or it is certain that everything sent
before has been read, what comes for its key is stale.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

STALE_DELAY = 1.0
"""The least seconds after which a stale message may come again."""


Place = tuple[int | str, ...]


class Ordered(Protocol):
    """What a lane knows of a message."""

    lease: object | None

    @property
    def ordering_key(self) -> str: ...

    @property
    def place(self) -> Place:
        """Where it is among the messages of its key: an earlier one has a smaller place."""


M = TypeVar("M", bound=Ordered)


class _Lane(Generic[M]):
    __slots__ = (
        *("awaited", "current", "queue", "restart", "restart_at", "returned", "settled"),
        "stale",
    )

    def __init__(self) -> None:
        self.current: M | None = None
        self.settled = False
        self.returned = False
        self.queue: deque[M] = deque()
        self.awaited: Place | None = None
        """The place of the message that must come again before any later one."""
        self.restart = 0
        """Which restart that is."""
        self.restart_at = 0.0
        """When that message may come."""
        self.stale: Place | None = None
        """The first place of those that came too early and were sent back."""

    @property
    def empty(self) -> bool:
        return self.current is None and not self.queue and self.awaited is None


class Lanes(Generic[M]):
    """Holds messages until their turn comes. What to run and what to give back, it answers."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane[M]] = {}
        self._restarts = 0

    def __len__(self) -> int:
        """How many keys are known."""
        return len(self._lanes)

    # Messages come

    def admit(self, messages: Sequence[M], *, now: float) -> tuple[list[M], dict[float, list[M]]]:
        """Tell which of the messages that came are in order.

        Returns those, and the others: stale ones, by the seconds after which they may come again.
        """
        accepted: list[M] = []
        stale: dict[float, list[M]] = {}
        for message in messages:
            lane = self._lanes.get(message.ordering_key) if message.ordering_key else None
            if lane is not None and lane.awaited is not None:
                place, overdue = message.place, now >= lane.restart_at + STALE_DELAY
                instead = overdue and lane.stale is not None and place <= lane.stale
                if place > lane.awaited and not instead:
                    stale.setdefault(self._send_back(lane, place, now), []).append(message)
                    continue
                self._resume(message.ordering_key, lane)
            accepted.append(message)
        return accepted, stale

    def _send_back(self, lane: _Lane[M], place: Place, now: float) -> float:
        """A stale message came; returns the seconds after which it may come again.

        Not at once: whatever keeps the message that is waited for from coming, these must not come,
        go and come again as fast as the wire allows. And it is a restart of its own, lest the key
        is opened while they are gone; the first of them may open it, if that one never comes.
        """
        self._restarts += 1
        lane.restart = self._restarts
        lane.stale = place if lane.stale is None else min(place, lane.stale)
        return max(STALE_DELAY, lane.restart_at - now)

    def enter(self, messages: Iterable[M]) -> list[M]:
        """Messages are leased; returns those to run now."""
        run: list[M] = []
        for message in messages:
            key = message.ordering_key
            if not key:
                run.append(message)
                continue
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane()
            lane.queue.append(message)
            run += self._next(key, lane)
        return run

    def has(self, message: M) -> bool:
        """Whether a message has entered and is not settled."""
        lane = self._lanes.get(message.ordering_key)
        return lane is not None and (lane.current is message or message in lane.queue)

    def waits(self, message: M) -> bool:
        """Whether a message has entered and waits for its turn."""
        lane = self._lanes.get(message.ordering_key)
        return lane is not None and message in lane.queue

    # Messages go

    def acked(self, message: M) -> list[M]:
        """A message was acked; returns what to run now."""
        return self._settle(message)

    def returned(self, message: M) -> list[M]:
        """A message's callback has ended; returns what to run now."""
        lane = self._lanes.get(message.ordering_key)
        if lane is None or lane.current is not message:
            return []
        lane.returned = True
        return self._next(message.ordering_key, lane)

    def given_back(self, message: M, *, at: float) -> tuple[list[M], list[M]]:
        """A message was given back, or its lease has ended; it comes again, not before `at`.

        Returns what to run now, and the later ones of its key that have entered, which are to be
        given back as well. If it has not entered itself, whatever has is earlier.
        """
        key = message.ordering_key
        if not key:
            return [], []
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        later: list[M] = []
        if lane.current is message:
            later = [*lane.queue]
            lane.queue.clear()
        elif message in lane.queue:
            while lane.queue[-1] is not message:
                later.insert(0, lane.queue.pop())
            lane.queue.pop()
        self._wait_for(lane, message, at)
        run = self._settle(message)
        return run, [one for one in later if one.lease is not None]

    def overtaken(self, message: M, *, at: float) -> list[M]:
        """A message whose turn is over comes again after all, before everything that has entered.

        Returns what is to be given back. What runs of its key goes on.
        """
        lane = self._lanes.get(message.ordering_key)
        if lane is None:
            lane = self._lanes[message.ordering_key] = _Lane()
        later = [one for one in lane.queue if one.lease is not None]
        lane.queue.clear()
        self._wait_for(lane, message, at)
        return later

    def give_up(self) -> list[M]:
        """Order does not matter after all; returns everything that waits."""
        lanes, self._lanes = self._lanes, {}
        return [message for lane in lanes.values() for message in lane.queue]

    # Restarts

    def restart_of(self, key: str) -> int | None:
        """The number of a key's restart, if it waits for a message to come again."""
        lane = self._lanes.get(key)
        return None if lane is None or lane.awaited is None else lane.restart

    def put_off(self, key: str, *, until: float) -> None:
        """The message that a key waits for will not come before then."""
        lane = self._lanes.get(key)
        if lane is not None and lane.awaited is not None:
            lane.restart_at = max(lane.restart_at, until)

    def all_read(self, restarts: Iterable[tuple[str, int]]) -> None:
        """Everything sent before these keys' messages were given back has been read.

        Each restart is a key and its number; one that another has followed does not count.
        """
        for key, number in restarts:
            lane = self._lanes.get(key)
            if lane is not None and self.restart_of(key) == number:
                self._resume(key, lane)

    def _wait_for(self, lane: _Lane[M], message: M, at: float) -> None:
        """Let no later message in before this one, unless an earlier one is waited for."""
        if lane.awaited is None or message.place < lane.awaited:
            self._restarts += 1
            lane.restart, lane.restart_at = self._restarts, at
            lane.awaited, lane.stale = message.place, None

    def _resume(self, key: str, lane: _Lane[M]) -> None:
        lane.awaited = lane.stale = None
        if lane.empty:
            del self._lanes[key]

    def _settle(self, message: M) -> list[M]:
        lane = self._lanes.get(message.ordering_key)
        if lane is None:
            return []
        if lane.current is message:
            lane.settled = True
        return self._next(message.ordering_key, lane)

    def _next(self, key: str, lane: _Lane[M]) -> list[M]:
        """Begin the next message if it is its turn."""
        if lane.current is not None and lane.settled and lane.returned:
            lane.current, lane.settled, lane.returned = None, False, False
        if lane.current is None:
            while lane.queue:
                message = lane.queue.popleft()
                if message.lease is not None:
                    lane.current = message
                    return [message]
        if lane.empty:
            del self._lanes[key]
        return []

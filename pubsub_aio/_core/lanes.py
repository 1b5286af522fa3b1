"""One message at a time for each ordering key, in the order they came.

When a message is given back, the server sends it again and then all later ones of its key. So

- what is here and later goes back with it;
- what comes and is later was sent before, and goes back as well: each message that was given back
  keeps later ones out, until it comes again or until it is certain that everything sent before it
  was given back has been read;
- a message that comes although later ones are here tells that the server has begun its key again
  there, for whatever reason: the later ones go back, and come once more behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
        *("away", "away_until", "current", "first_away", "here", "last", "queue", "returned"),
        "settled",
    )

    def __init__(self) -> None:
        self.current: M | None = None
        self.settled = False
        self.returned = False
        self.queue: deque[M] = deque()
        self.here: dict[Place, list[M]] = {}
        """What was admitted and is not settled, whether it has entered or not; with its copies."""
        self.last: Place | None = None
        """The last place of these, or a later one."""
        self.away: dict[Place, int] = {}
        """Where messages are missing that were given back, and by which restart each."""
        self.first_away: Place | None = None
        self.away_until = 0.0
        """When the last of them may come."""

    @property
    def empty(self) -> bool:
        return self.current is None and not self.queue and not self.here and not self.away

    def is_here(self, place: Place, message: M) -> None:
        """A message was admitted."""
        self.here.setdefault(place, []).append(message)
        if self.last is None or place > self.last:
            self.last = place

    def is_gone(self, message: M) -> None:
        """A message is settled; what is left of its copies is waited for on its own."""
        here = self.here.pop(place := message.place, [])
        if left := [one for one in here if one is not message and one.lease is not None]:
            self.here[place] = left
        elif not self.here:
            self.last = None

    def is_away(self, place: Place, restart: int, at: float = 0.0) -> None:
        """A message was given back, and may come again at that time."""
        self.away[place] = restart
        self.away_until = max(self.away_until, at)
        if self.first_away is None or place < self.first_away:
            self.first_away = place

    def is_back(self, places: Iterable[Place]) -> None:
        """Wait for these no longer."""
        for place in places:
            del self.away[place]
        self.first_away = min(self.away, default=None)
        if not self.away:
            self.away_until = 0.0


@dataclass(slots=True)
class Admitted(Generic[M]):
    """Which messages are in order, and which are not."""

    accepted: list[M] = field(default_factory=list)
    stale: dict[float, list[M]] = field(default_factory=dict)
    """Those that are to be given back, by the seconds after which they may come again."""
    overtaken: list[M] = field(default_factory=list)
    """What is here and is to be given back, for it comes once more behind an accepted one."""

    def leave_out_overtaken(self) -> None:
        """Count what came together with the one that overtakes it as stale: it is not here yet."""
        overtaken = set(self.overtaken)
        if early := [message for message in self.accepted if message in overtaken]:
            self.stale.setdefault(STALE_DELAY, []).extend(early)
            self.accepted = [message for message in self.accepted if message not in overtaken]
            self.overtaken = [message for message in self.overtaken if message not in early]


class Lanes(Generic[M]):
    """Holds messages until their turn comes. What to run and what to give back, it answers."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane[M]] = {}
        self._restarts = 0

    def __len__(self) -> int:
        """How many keys are known."""
        return len(self._lanes)

    def _lane_of(self, message: M) -> _Lane[M] | None:
        """Where a message may be; it is not asked for its key where keys do not matter."""
        return self._lanes.get(message.ordering_key) if self._lanes else None

    def _lane(self, key: str) -> _Lane[M]:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        return lane

    # Messages come

    def admit(self, messages: Sequence[M], *, now: float) -> Admitted[M]:
        """Tell which of the messages that came are in order.

        Those that are stale may not come again at once: whatever keeps the one that is waited for
        from coming, they must not come, go and come again as fast as the wire allows.
        """
        result: Admitted[M] = Admitted()
        for message in messages:
            if key := message.ordering_key:
                lane, place = self._lane(key), message.place
                if lane.first_away is not None and place > lane.first_away:
                    delay = max(STALE_DELAY, lane.away_until - now)
                    result.stale.setdefault(delay, []).append(message)
                    lane.is_away(place, self._restart())
                    continue
                if place in lane.away:
                    lane.is_back([place])
                if place not in lane.here:  # otherwise it is a copy
                    result.overtaken += self._let_go_after(lane, place)
                lane.is_here(place, message)
            result.accepted.append(message)
        if result.overtaken:
            result.leave_out_overtaken()
        return result

    def enter(self, messages: Iterable[M]) -> tuple[list[M], list[M]]:
        """Messages are leased; returns those to run now, and those that are overtaken."""
        run: list[M] = []
        overtaken: list[M] = []
        for message in messages:
            key = message.ordering_key
            if not key:
                run.append(message)
            elif message.lease is not None:
                lane = self._lane(key)
                last = lane.queue[-1] if lane.queue else lane.current
                if last is not None and last.lease is not None and last.place > message.place:
                    overtaken += self._let_go_after(lane, message.place)  # it came as a copy
                lane.queue.append(message)
                run += self._next(key, lane)
        return run, overtaken

    def _let_go_after(
        self, lane: _Lane[M], place: Place, at: float = 0.0, *, but: M | None = None
    ) -> list[M]:
        """Let go of what is here and later, but for one; it comes again, not before `at`."""
        if lane.last is None or place >= lane.last:
            return []
        later: dict[M, Place] = {}
        for each in sorted(each for each in lane.here if each > place):
            here = lane.here.pop(each)
            later |= {one: each for one in here if one.lease is not None and one is not but}
            if but in here:
                lane.here[each] = [but]
        lane.last = max(lane.here, default=None)
        for each in later.values():
            lane.is_away(each, self._restart(), at)
        lane.queue = deque(one for one in lane.queue if one not in later)
        if lane.current in later:
            lane.settled = True
        return list(later)

    def has(self, message: M) -> bool:
        """Whether a message is the one of its key that runs."""
        lane = self._lane_of(message)
        return lane is not None and lane.current is message

    def waits(self, message: M) -> bool:
        """Whether a message has entered and waits for its turn."""
        lane = self._lane_of(message)
        return lane is not None and message in lane.queue

    # Messages go

    def acked(self, message: M) -> list[M]:
        """A message was acked; returns what to run now."""
        lane = self._lane_of(message)
        return [] if lane is None else self._settle(lane, message)

    def returned(self, message: M) -> list[M]:
        """A message's callback has ended; returns what to run now."""
        lane = self._lane_of(message)
        if lane is None or lane.current is not message:
            return []
        lane.returned = True
        return self._next(message.ordering_key, lane)

    def given_back(self, message: M, *, at: float) -> tuple[list[M], list[M]]:
        """A message was given back, or its lease has ended; it comes again, not before `at`.

        Returns what to run now, and the later ones of its key that are here, which are to be given
        back as well. If a later one runs, because the turn of the message is over, that goes on: it
        may be that its ack took effect and only its confirmation was lost.
        """
        if not message.ordering_key:
            return [], []
        lane, place = self._lane(message.ordering_key), message.place
        lane.is_away(place, self._restart(), at)
        later = self._let_go_after(lane, place, at, but=lane.current)
        if message in lane.queue:
            lane.queue.remove(message)
        return self._settle(lane, message), later

    def give_up(self) -> list[M]:
        """Order does not matter after all; returns everything that waits."""
        lanes, self._lanes = self._lanes, {}
        return [message for lane in lanes.values() for message in lane.queue]

    # Restarts

    def restart_of(self, message: M) -> int | None:
        """The number of the restart that waits for a message to come again, if one does."""
        lane = self._lane_of(message)
        return None if lane is None else lane.away.get(message.place)

    def put_off(self, key: str, *, until: float) -> None:
        """A message that a key waits for will not come before then."""
        lane = self._lanes.get(key)
        if lane is not None and lane.away:
            lane.away_until = max(lane.away_until, until)

    def all_read(self, restarts: Iterable[tuple[str, int]]) -> None:
        """Everything sent before these messages were given back has been read.

        Each restart is a key and its number; one that another of the same message has followed does
        not count.
        """
        numbers: dict[str, set[int]] = {}
        for key, number in restarts:
            numbers.setdefault(key, set()).add(number)
        for key, read in numbers.items():
            if (lane := self._lanes.get(key)) is not None:
                lane.is_back([place for place, number in lane.away.items() if number in read])
                self._forget_if_empty(key, lane)

    def trust(self, key: str) -> None:
        """Whatever comes of a key is in order from now on."""
        if (lane := self._lanes.get(key)) is not None:
            lane.is_back([*lane.away])
            self._forget_if_empty(key, lane)

    def is_restarting(self, key: str) -> bool:
        """Whether messages of a key were given back, and are waited for."""
        lane = self._lanes.get(key)
        return lane is not None and bool(lane.away)

    def _restart(self) -> int:
        self._restarts += 1
        return self._restarts

    def _forget_if_empty(self, key: str, lane: _Lane[M]) -> None:
        if lane.empty:
            del self._lanes[key]

    def _settle(self, lane: _Lane[M], message: M) -> list[M]:
        lane.is_gone(message)
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
        self._forget_if_empty(key, lane)
        return []

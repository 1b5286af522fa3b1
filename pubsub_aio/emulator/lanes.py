"""Ordered delivery: one lane for each ordering key of a subscription."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator


class _Lane:
    __slots__ = ("early", "held", "holder", "key", "not_before", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.held: list[int] = []  # delivered and not settled, in order
        self.early: set[int] = set()  # of those, acked before one that comes first
        self.waiting: deque[int] = deque()  # seen and not delivered, in order
        self.holder = 0  # the consumer that has what is held
        self.not_before = 0.0


class Lanes:
    """Which message of a key may go out, and which must come again when one did not get through.

    While messages of a key are held by one consumer, later ones go to that consumer or wait. An ack
    takes effect once everything before it in its lane is acked. When a message is given back, so is
    everything after it, acked or not, and it all goes out again in order.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._of: dict[int, _Lane] = {}  # every unsettled message that has a key
        self._waiting: dict[str, _Lane] = {}  # the lanes in which something waits

    def __contains__(self, offset: int) -> bool:
        return offset in self._of

    def admit(self, offset: int, key: str, *, consumer: int) -> bool:
        """Take in a new message; true if this consumer may have it at once."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        self._of[offset] = lane
        if not lane.waiting and (not lane.held or lane.holder == consumer):
            return True
        self._wait(lane, offset)
        return False

    def postpone(self, offset: int) -> None:
        """Keep a message that was admitted but does not fit any more."""
        self._wait(self._of[offset], offset)

    def hold(self, offset: int, *, consumer: int) -> None:
        """Note that the message was delivered to the consumer."""
        lane = self._of[offset]
        if lane.waiting and lane.waiting[0] == offset:
            lane.waiting.popleft()
            if not lane.waiting:
                del self._waiting[lane.key]
        lane.held.append(offset)
        lane.holder = consumer

    def ready(self, consumer: int, *, now: float) -> Iterator[int]:
        """Waiting messages that this consumer may have; hold each before asking for the next."""
        for lane in list(self._waiting.values()):
            if lane.not_before > now or (lane.held and lane.holder != consumer):
                continue
            while lane.waiting:
                yield lane.waiting[0]

    def may_have(self, key: str, *, consumer: int) -> bool:
        """Whether nobody else holds messages of a key."""
        lane = self._lanes.get(key)
        return lane is None or not lane.held or lane.holder == consumer

    def is_first(self, offset: int) -> bool:
        """Whether everything before this message in its lane is settled."""
        return self._of[offset].held[:1] == [offset]

    def ack(self, offset: int) -> list[int]:
        """The messages that are settled now that this one is acked."""
        lane = self._of[offset]
        lane.early.add(offset)
        settled: list[int] = []
        while lane.held and lane.held[0] in lane.early:
            first = lane.held.pop(0)
            lane.early.discard(first)
            settled.append(first)
            del self._of[first]
        self._close_if_empty(lane)
        return settled

    def give_back(self, offset: int, *, not_before: float | None = None) -> list[int]:
        """What must be delivered again when this message was not acked: it and all after it.

        Their key waits until `not_before`; if none is given, no longer than it does anyway.
        """
        lane = self._of[offset]
        at = lane.held.index(offset)
        back = lane.held[at:]
        del lane.held[at:]
        lane.early.difference_update(back)
        lane.waiting.extendleft(reversed(back))
        if not_before is not None:
            lane.not_before = not_before
        self._waiting[lane.key] = lane
        return back

    def remove(self, offset: int) -> list[int]:
        """Forget a message that is settled in another way; returns what is settled with it."""
        lane = self._of[offset]
        if offset in lane.held:
            return self.ack(offset) if lane.held[0] == offset else self._take_out(lane, offset)
        del self._of[offset]
        lane.waiting.remove(offset)
        if not lane.waiting:
            del self._waiting[lane.key]
        self._close_if_empty(lane)
        return [offset]

    def _take_out(self, lane: _Lane, offset: int) -> list[int]:
        """Remove a held message that is not the first."""
        del self._of[offset]
        lane.held.remove(offset)
        lane.early.discard(offset)
        return [offset]

    def hand_over(self, old: int, new: int) -> None:
        """Let one consumer take the place of another."""
        for lane in self._lanes.values():
            if lane.holder == old:
                lane.holder = new

    def _wait(self, lane: _Lane, offset: int) -> None:
        lane.waiting.append(offset)
        self._waiting[lane.key] = lane

    def _close_if_empty(self, lane: _Lane) -> None:
        if not lane.held and not lane.waiting:
            del self._lanes[lane.key]

"""Hold and refill, landing once, and running out of time."""

from __future__ import annotations

import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pubsub_aio._core.flights import FlightTable


def table(max_in_flight: int = 4, refill_allowed_at: int = 1) -> FlightTable[str]:
    return FlightTable(max_in_flight=max_in_flight, refill_allowed_at=refill_allowed_at)


def test_a_hold_is_put_on_when_the_limit_is_reached() -> None:
    """M3, M27: as many may depart as there is room for, and then none."""
    flights = table()
    flights.depart("a", 3, ends_at=math.inf)
    assert (flights.in_flight, flights.holding, flights.room) == (3, False, 1)

    flights.depart("b", 1, ends_at=math.inf)
    assert (flights.in_flight, flights.holding, flights.room) == (4, True, 0)


def test_a_hold_is_taken_off_at_the_refill_mark_or_below() -> None:
    """M4: no sooner, although there would be room."""
    flights = table()
    for name in "abcd":
        flights.depart(name, 1, ends_at=math.inf)
    for name, holding, room in (("a", True, 0), ("b", True, 0), ("c", False, 3)):
        assert flights.land(name)
        assert (flights.holding, flights.room) == (holding, room)


def test_without_a_hold_what_lands_makes_room_at_once() -> None:
    """M27: below the limit there is no hold to wait for."""
    flights = table()
    flights.depart("a", 3, ends_at=math.inf)
    flights.land("a")
    assert flights.room == 4


def test_what_has_landed_does_not_land_again() -> None:
    """M28: the second time there is nothing to tell."""
    flights = table()
    flights.depart("a", 2, ends_at=math.inf)
    assert [flights.land("a"), flights.land("a"), flights.land("b")] == [True, False, False]
    assert flights.in_flight == 0


def test_what_takes_too_long_is_named_once() -> None:
    """M8, M13: at the end of its time, unless it has landed."""
    flights = table(10)
    flights.depart("a", 1, ends_at=5.0)
    flights.depart("b", 1, ends_at=3.0)
    flights.depart("c", 1, ends_at=4.0)
    flights.depart("never", 1, ends_at=math.inf)
    flights.land("c")

    assert flights.overdue(now=2.9) == []
    assert flights.next_end == 3.0
    assert flights.overdue(now=4.5) == ["b"]
    assert flights.overdue(now=9.0) == ["a"]
    assert flights.overdue(now=9.0) == []
    assert flights.next_end == math.inf


def test_parts_of_a_batch_count_as_much_as_the_whole_and_keep_a_hold() -> None:
    flights = table(4, 1)
    flights.depart("a", 2, ends_at=5.0)
    flights.depart("b", 2, ends_at=5.0)
    flights.land("b")
    assert (flights.in_flight, flights.holding) == (2, True)

    flights.part("a", "a1", 1, ends_at=5.0)
    assert (flights.in_flight, flights.holding) == (2, True)
    assert flights.land("a1")
    assert (flights.in_flight, flights.holding) == (1, False)
    flights.part("b", "b1", 1, ends_at=5.0)  # it has landed: nothing is parted
    assert flights.in_flight == 1
    assert set(flights.overdue(now=5)) == {"a"}


@pytest.mark.parametrize(
    ("limits", "holding", "room"),
    [((2, 1), True, 0), ((3, 2), True, 0), ((10, 0), True, 0), ((10, 3), False, 7)],
)
def test_other_limits_hold_from_then_on(limits: tuple[int, int], holding: bool, room: int) -> None:
    """R4: a hold stays until the new mark is reached, and comes at the new limit."""
    flights = table(4, 0)
    for name in "abcd":
        flights.depart(name, 1, ends_at=math.inf)
    flights.land("a")
    flights.change(max_in_flight=limits[0], refill_allowed_at=limits[1])

    assert (flights.holding, flights.room) == (holding, room)


def test_what_has_landed_is_not_remembered() -> None:
    flights = table(10)
    for number in range(10_000):
        flights.depart(str(number), 1, ends_at=number + 1_000.0)
        flights.land(str(number))

    assert len(flights._ends) < 200
    assert (len(flights), len(flights._numbers)) == (0, 0)


class HoldAndRefill(RuleBasedStateMachine):
    """M3, M4, M25, M27: the seed's rule, word by word, beside the table.

    The model publishes message by message, puts a hold on after a publish and takes it off after a
    landing, as the seed's two loops do; a drain ends when nothing waits and nothing flies.
    """

    def __init__(self) -> None:
        super().__init__()
        self.max_in_flight, self.refill = 5, 2
        self.table: FlightTable[int] = FlightTable(max_in_flight=5, refill_allowed_at=2)
        self.queue = 0
        self.flying: dict[int, int] = {}
        self.hold = False
        self.draining = False
        self.number = 0

    @precondition(lambda self: not self.draining)
    @rule(count=st.integers(1, 8))
    def publish(self, count: int) -> None:
        self.queue += count

    @rule(most=st.integers(1, 6))
    def depart(self, most: int) -> None:
        """The publish runner: a batch as large as there is room, as messages one by one."""
        count = min(self.queue, most, self.table.room)
        departed = 0
        while departed < min(self.queue, most) and not self.hold:
            departed += 1
            if sum(self.flying.values()) + departed >= self.max_in_flight:
                self.hold = True
        assert count == departed
        if count:
            self.number += 1
            self.queue -= count
            self.flying[self.number] = count
            self.table.depart(self.number, count, ends_at=math.inf)

    @precondition(lambda self: self.flying)
    @rule(choice=st.randoms(use_true_random=False))
    def land(self, choice: object) -> None:
        """The flights runner."""
        batch = choice.choice(sorted(self.flying))  # type: ignore[attr-defined]
        del self.flying[batch]
        assert self.table.land(batch)
        if sum(self.flying.values()) <= self.refill:
            self.hold = False

    @rule()
    def drain(self) -> None:
        self.draining = True

    @invariant()
    def they_agree(self) -> None:
        assert self.table.in_flight == sum(self.flying.values()) <= self.max_in_flight
        assert self.table.holding == self.hold
        assert (self.table.room == 0) == self.hold

    @invariant()
    def a_drain_can_always_end(self) -> None:
        """With nothing in flight there is no hold, so that what waits can depart."""
        if not self.flying:
            assert self.table.room > 0


TestHoldAndRefill = HoldAndRefill.TestCase

"""Which ids are free, taken, dealt with or forgotten."""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pubsub_aio._core.repeats import Repeats

WINDOW = 100.0


def repeats(max_ids: int = 1_000, window: float = WINDOW) -> Repeats[str, object]:
    return Repeats(window=window, max_ids=max_ids)


def test_an_id_is_for_the_first_who_claims_it() -> None:
    ids = repeats()

    assert ids.claim("a", "one", now=0) == "first"
    assert ids.claim("a", "two", now=1) == "taken"
    assert ids.claim("b", "two", now=1) == "first"
    assert (ids.holder_of("a"), ids.holder_of("b"), ids.holder_of("c")) == ("one", "two", None)


def test_who_has_an_id_may_ask_again() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)

    assert ids.claim("a", "one", now=1) == "again"


def test_an_id_that_was_dealt_with_is_a_repeat_for_everyone() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.done("a", "one", now=5)

    assert ids.claim("a", "two", now=5) == "repeat"
    assert ids.claim("a", "one", now=6) == "repeat"
    assert ids.holder_of("a") is None


def test_an_id_that_is_released_is_free() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.release("a", "one")

    assert ids.claim("a", "two", now=1) == "first"
    assert ids.holder_of("a") == "two"


def test_nobody_releases_what_another_has() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.release("a", "two")
    ids.release("b", "two")

    assert ids.claim("a", "two", now=1) == "taken"


def test_the_window_begins_when_the_id_was_dealt_with_not_when_it_was_taken() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.done("a", "one", now=50)

    assert ids.claim("a", "two", now=50 + WINDOW - 1) == "repeat"
    assert ids.claim("a", "two", now=50 + WINDOW) == "first"
    assert ids.forgotten == 0


def test_a_repeat_does_not_prolong_the_window() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.done("a", "one", now=0)
    for now in range(0, int(WINDOW), 10):
        assert ids.claim("a", "two", now=now) == "repeat"

    assert ids.claim("a", "two", now=WINDOW) == "first"


def test_what_is_dealt_with_counts_even_if_the_id_was_lost_meanwhile() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.release("a", "one")
    ids.claim("a", "two", now=10)
    ids.done("a", "one", now=11)

    assert ids.claim("a", "three", now=12) == "repeat"
    ids.release("a", "two")
    assert ids.claim("a", "three", now=13) == "repeat"


def test_the_oldest_ids_are_forgotten_where_there_are_too_many() -> None:
    ids = repeats(max_ids=3)
    for number, one in enumerate("abcd"):
        ids.claim(one, "one", now=number)
        ids.done(one, "one", now=number)

    assert (len(ids), ids.forgotten) == (3, 1)
    assert [ids.claim(one, "two", now=10) for one in "bcd"] == ["repeat"] * 3
    assert ids.claim("a", "two", now=10) == "first"


def test_the_oldest_is_the_one_that_was_dealt_with_first_not_taken_first() -> None:
    ids = repeats(max_ids=2)
    ids.claim("a", "one", now=0)
    ids.claim("b", "two", now=1)
    ids.done("b", "two", now=2)
    ids.done("a", "one", now=3)
    ids.claim("c", "three", now=4)

    assert ids.claim("a", "four", now=5) == "repeat"
    assert ids.forgotten == 1


def test_what_is_taken_is_forgotten_last() -> None:
    ids = repeats(max_ids=2)
    ids.claim("a", "one", now=0)
    ids.claim("b", "two", now=1)
    ids.done("b", "two", now=2)
    ids.claim("c", "three", now=3)  # b goes
    assert ids.claim("a", "four", now=4) == "taken"
    ids.claim("d", "four", now=5)  # a goes

    assert (len(ids), ids.forgotten) == (2, 2)
    assert ids.holder_of("a") is None
    assert (ids.holder_of("c"), ids.holder_of("d")) == ("three", "four")


def test_what_is_out_of_the_window_is_not_counted_as_forgotten() -> None:
    ids = repeats(max_ids=3)
    for one in "abc":
        ids.claim(one, "one", now=0)
        ids.done(one, "one", now=0)
    for one in "def":
        assert ids.claim(one, "one", now=WINDOW) == "first"

    assert (len(ids), ids.forgotten) == (3, 0)


def test_what_is_out_of_the_window_goes_while_others_come() -> None:
    ids = repeats(max_ids=1_000)
    for number in range(500):
        ids.claim(f"old {number}", "one", now=0)
        ids.done(f"old {number}", "one", now=0)
    for number in range(500):
        ids.claim(f"new {number}", "one", now=WINDOW)
        ids.done(f"new {number}", "one", now=WINDOW)

    assert (len(ids), ids.forgotten) == (500, 0)


def test_a_window_may_never_end() -> None:
    ids = repeats(window=math.inf)
    ids.claim("a", "one", now=0)
    ids.done("a", "one", now=0)

    assert ids.claim("a", "two", now=1e12) == "repeat"


def test_what_was_dealt_with_can_be_forgotten_on_purpose() -> None:
    ids = repeats()
    ids.claim("a", "one", now=0)
    ids.done("a", "one", now=0)
    ids.claim("b", "two", now=0)
    ids.clear()

    assert ids.claim("a", "three", now=1) == "first"
    assert ids.claim("b", "three", now=1) == "taken"
    assert ids.forgotten == 0


class RepeatsAgainstModel(RuleBasedStateMachine):
    """Two lists, searched from end to end, and cleared of what is out of the window each time."""

    @initialize(max_ids=st.integers(1, 5), window=st.sampled_from([10.0, 50.0, math.inf]))
    def begin(self, max_ids: int, window: float) -> None:
        self.max_ids, self.window = max_ids, window
        self.repeats: Repeats[str, int] = Repeats(window=window, max_ids=max_ids)
        self.now = 0.0
        self.holders = 0
        self.at_work: list[tuple[str, int]] = []
        self.seen: list[tuple[str, float]] = []
        self.taken: list[tuple[str, int]] = []
        self.forgotten = 0

    def tidy(self) -> None:
        self.seen = [(one, at) for one, at in self.seen if self.now - at < self.window]
        while len(self.seen) + len(self.taken) > self.max_ids:
            (self.seen or self.taken).pop(0)
            self.forgotten += 1

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.0, 10.0, 49.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def claimed(self, one: str, holder: int) -> str:
        """What is to be answered."""
        self.tidy()
        if any(each == one for each, _ in self.seen):
            return "repeat"
        for each, by in self.taken:
            if each == one:
                return "again" if by == holder else "taken"
        self.taken.append((one, holder))
        self.tidy()
        return "first"

    @rule(one=st.sampled_from("abcdefg"))
    def claim(self, one: str) -> None:
        self.holders += 1
        answer = self.repeats.claim(one, self.holders, now=self.now)

        assert answer == self.claimed(one, self.holders)
        if answer == "first":
            self.at_work.append((one, self.holders))

    @precondition(lambda self: self.at_work)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        """Also for an id that was forgotten, and that another may have by now."""
        one, holder = data.draw(st.sampled_from(self.at_work))

        assert self.repeats.claim(one, holder, now=self.now) == self.claimed(one, holder)

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), done=st.booleans())
    def end(self, data: st.DataObject, done: bool) -> None:
        one, holder = data.draw(st.sampled_from(self.at_work))
        self.at_work.remove((one, holder))
        self.taken = [each for each in self.taken if each != (one, holder)]
        if done:
            self.repeats.done(one, holder, now=self.now)
            self.seen = [each for each in self.seen if each[0] != one]
            self.seen.append((one, self.now))
            self.tidy()
        else:
            self.repeats.release(one, holder)

    @rule()
    def clear(self) -> None:
        self.repeats.clear()
        self.seen = []

    @invariant()
    def holds_no_more_than_it_may(self) -> None:
        if hasattr(self, "repeats"):
            assert len(self.repeats) <= self.max_ids
            assert self.repeats.forgotten == self.forgotten


TestRepeatsAgainstModel = RepeatsAgainstModel.TestCase
TestRepeatsAgainstModel.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)

"""When a queue is out of use, by its labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.idleness import CLOSING, EXPIRES, USED, Idleness, another, judge, larger, mark

USED_AT = 1_000_000


def labels(*, expires: object = 300, used: object = USED_AT, **more: str) -> dict[str, str]:
    return {EXPIRES: str(expires), USED: str(used)} | more


def marked(at: float, *, used: object = USED_AT) -> str:
    return mark(str(used), now=at, word="a1b2")


def after(seconds: float, found: dict[str, str]) -> Idleness:
    """What is to be done so many seconds after the last use."""
    return judge(found, now=USED_AT + seconds)


def test_what_has_no_time_is_not_for_a_janitor() -> None:
    assert after(1e9, {}) is Idleness.NOT_OURS
    assert after(1e9, {USED: "0", CLOSING: marked(0, used=0)}) is Idleness.NOT_OURS


def test_a_queue_is_in_use_for_its_time_and_idle_after_it() -> None:
    assert after(-100, labels()) is Idleness.IN_USE
    assert after(0, labels()) is Idleness.IN_USE
    assert after(299, labels()) is Idleness.IN_USE
    assert after(300, labels()) is Idleness.IDLE


def test_a_marked_queue_is_over_when_no_user_can_have_been_overlooked() -> None:
    """The longest lease, 600 s, and three intervals of 200 s after the mark."""
    found = labels(expires=1_000, **{CLOSING: marked(USED_AT + 1_100)})

    assert after(1_100, found) is Idleness.CLOSING
    assert after(2_299, found) is Idleness.CLOSING
    assert after(2_300, found) is Idleness.OVER


def test_the_longest_lease_is_counted_from_the_mark() -> None:
    """By a clock that is slow a use seems to be long ago."""
    found = labels(**{CLOSING: marked(USED_AT + 10_000)})

    assert after(10_779, found) is Idleness.CLOSING
    assert after(10_780, found) is Idleness.OVER


def test_a_mark_is_void_once_the_queue_was_used_and_is_removed_later() -> None:
    void = labels(**{CLOSING: marked(USED_AT - 10, used=USED_AT - 400)})

    assert after(29, void) is Idleness.IN_USE
    assert after(30, void) is Idleness.RESUMED
    assert after(300, void) is Idleness.IDLE
    assert after(10_000, void) is Idleness.IDLE


def test_a_mark_is_void_also_where_the_clock_of_the_user_is_slow() -> None:
    """By his clock he has used it before it was marked."""
    void = labels(**{CLOSING: marked(USED_AT + 500, used=USED_AT - 60)})

    assert after(10_000, void) is Idleness.IDLE


@pytest.mark.parametrize(
    "found",
    [
        {EXPIRES: "300"},
        labels(expires=""),
        labels(expires="59"),
        labels(expires="5m"),
        labels(expires="-300"),
        labels(expires="٣٠٠"),
        labels(used="never"),
        labels(used="1" * 13),
        labels(**{CLOSING: ""}),
        labels(**{CLOSING: "1000000"}),
        labels(**{CLOSING: "soon-1000000-a1b2"}),
    ],
)
def test_labels_that_somebody_has_edited_cannot_be_read(found: dict[str, str]) -> None:
    assert after(1e9, found) is Idleness.UNREADABLE


def test_the_larger_of_two_labels_is_taken_if_both_can_be_read() -> None:
    assert larger("60", "300") == "300"
    assert larger("300", "60") == "300"
    assert larger("60", "") == "60"
    assert larger("60", "never") == "60"


def test_a_label_of_use_changes_each_time_whatever_the_clock_says() -> None:
    assert another("1000", "900") == "1000"
    assert another("900", "1000") == "900"
    assert another("1000", "1000") == "1001"
    assert another("1000", "") == "1000"


def test_a_mark_is_what_a_label_may_be() -> None:
    assert marked(1_000_300.2) == "1000301-1000000-a1b2"


times = st.integers(0, 5_000)
SEEN = 1_000
"""The last use that the mark knows of."""


@given(expires=st.integers(60, 2_000), mark_at=times, used=st.just(SEEN) | times, now=times)
def test_nothing_is_over_that_was_used_after_the_mark_or_too_late_before_it(
    expires: int, mark_at: int, used: int, now: int
) -> None:
    found = labels(expires=expires, used=used, **{CLOSING: marked(mark_at, used=SEEN)})
    if judge(found, now=now) is Idleness.OVER:
        assert used == SEEN
        assert now - used >= expires
        assert now - mark_at >= 600 + expires * 3 / 5

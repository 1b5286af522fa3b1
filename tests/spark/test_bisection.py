"""Which rows make a function fail."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio.spark.bisection import Bisection
from pubsub_aio.spark.suspects import Suspects


def search(
    rows: int, poisonous: set[int], *, most: int = 1_000, in_order: bool = False
) -> tuple[Bisection, list[range]]:
    """Let it find these rows; gives what it tried, too."""
    bisection = Bisection(rows, max_poisonous=most, in_order=in_order)
    tried = []
    while (trying := bisection.next) is not None:
        tried.append(trying)
        if poisonous.isdisjoint(trying):
            bisection.worked()
        else:
            bisection.failed()
    return bisection, tried


def test_the_only_poisonous_row_is_found_by_halves() -> None:
    bisection, tried = search(8, {5}, in_order=True)

    assert bisection.poisonous == bisection.left == [5]
    assert bisection.works
    assert tried == [range(4), range(4, 8), range(4, 6), range(4, 5), range(5, 6), range(6, 8)]


def test_rows_far_from_one_another_are_kept_for_the_end() -> None:
    """If one of them goes through, what failed before did so by its own fault."""
    _, tried = search(20, {18, 17})

    assert tried[-3:] == [range(10, 11), range(19, 20), range(1)]
    assert tried.index(range(18, 19)) < len(tried) - 3


def test_a_single_row_that_fails_does_not_tell_whether_others_would() -> None:
    bisection, tried = search(1, {0})

    assert (bisection.poisonous, bisection.left, bisection.works, tried) == ([0], [0], False, [])


def test_where_nothing_goes_through_that_is_said() -> None:
    bisection, _ = search(4, {0, 1, 2, 3})

    assert bisection.poisonous == bisection.left == [0, 1, 2, 3]
    assert not bisection.works


def test_the_search_is_given_up_after_so_many() -> None:
    """But for the rows that are tried last."""
    bisection, tried = search(100, set(range(10, 90)), most=3)

    assert bisection.poisonous == [10, 11, 12, 50]
    assert bisection.left == list(range(10, 99))
    assert tried[-3:] == [range(50, 51), range(99, 100), range(1)]


def test_in_order_all_before_the_first_goes_through_and_nothing_behind_it() -> None:
    bisection, _ = search(16, {6, 9}, most=1, in_order=True)

    assert bisection.poisonous == [6]
    assert bisection.left == list(range(6, 16))


@given(data=st.data(), rows=st.integers(2, 300))
def test_every_poisonous_row_is_found_and_every_other_goes_through_once(
    data: st.DataObject, rows: int
) -> None:
    poisonous = data.draw(st.sets(st.integers(0, rows - 1), max_size=8))
    bisection, tried = search(rows, poisonous)
    through = [row for trying in tried if poisonous.isdisjoint(trying) for row in trying]

    assert bisection.poisonous == bisection.left == sorted(poisonous)
    assert sorted(through) == [row for row in range(rows) if row not in poisonous]
    assert len(tried) <= 5 + 2 * len(poisonous) * math.ceil(math.log2(rows))


@given(data=st.data(), rows=st.integers(1, 100), most=st.integers(1, 5), in_order=st.booleans())
def test_none_is_lost_however_it_ends(
    data: st.DataObject, rows: int, most: int, *, in_order: bool
) -> None:
    poisonous = data.draw(st.sets(st.integers(0, rows - 1)))
    bisection, tried = search(rows, poisonous, most=most, in_order=in_order)
    through = [row for trying in tried if poisonous.isdisjoint(trying) for row in trying]

    assert sorted([*through, *bisection.left]) == list(range(rows))
    assert bisection.works == bool(through)
    if in_order and rows > 1:
        assert through == sorted(through)
        assert bisection.poisonous == sorted(poisonous)[:most]


def test_a_message_is_to_blame_when_something_went_through_since_it_failed() -> None:
    suspects = Suspects()
    suspects.something_worked()
    suspects.failed_alone("a")
    suspects.failed_alone("a")
    assert not suspects.are_to_blame("a")
    suspects.something_worked()
    suspects.failed_alone("a")

    assert suspects.are_to_blame("a")
    assert not suspects.are_to_blame("b")


def test_no_more_suspects_are_remembered_than_may_be() -> None:
    suspects = Suspects()
    for name in ("first", *(f"{number}" for number in range(10_000))):
        suspects.failed_alone(name)
    suspects.something_worked()

    assert not suspects.are_to_blame("first")
    assert suspects.are_to_blame("9999")

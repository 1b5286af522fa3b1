"""Which rows make a function fail."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio.spark.bisection import Bisection
from pubsub_aio.spark.suspects import Suspects


def search(
    rows: int,
    poisonous: set[int],
    *,
    most: int = 1_000,
    keys: Sequence[str] | None = None,
    blocking: bool = False,
) -> tuple[Bisection, list[list[int]]]:
    """Let it find these rows; gives what it tried, too."""
    bisection = Bisection(rows, max_poisonous=most, keys=keys, blocking=blocking)
    tried = []
    while (trying := bisection.next) is not None:
        tried.append([*trying])
        if poisonous.isdisjoint(trying):
            bisection.worked()
        else:
            bisection.failed()
    return bisection, tried


def test_the_only_poisonous_row_is_found_by_halves() -> None:
    bisection, tried = search(8, {5}, keys="a" * 8)

    assert bisection.poisonous == bisection.left == [5]
    assert bisection.works
    assert tried == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [6, 7]]


def test_rows_far_from_one_another_are_kept_for_the_end() -> None:
    """If one of them goes through, what failed before did so by its own fault."""
    _, tried = search(20, {18, 17})

    assert tried[-3:] == [[10], [19], [0]]
    assert tried.index([18]) < len(tried) - 3


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
    assert tried[-3:] == [[50], [99], [0]]


def test_what_blocks_its_key_lets_go_through_what_is_before_it_and_all_of_other_keys() -> None:
    bisection, tried = search(16, {6, 8, 9}, keys="ab" * 8, blocking=True)

    assert bisection.poisonous == [6, 9]  # 8 is behind 6
    assert bisection.left == [6, 8, 9, 10, 11, 12, 13, 14, 15]
    assert tried[0] == [0, 2, 4, 6, 8, 10, 12, 14]


def test_a_row_without_a_key_blocks_nothing() -> None:
    bisection, _ = search(6, {1, 3}, keys=["a", "", "a", "", "", "a"], blocking=True)

    assert bisection.poisonous == bisection.left == [1, 3]


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


@given(data=st.data(), rows=st.integers(1, 100), most=st.integers(1, 5))
def test_none_is_lost_however_it_ends(data: st.DataObject, rows: int, most: int) -> None:
    poisonous = data.draw(st.sets(st.integers(0, rows - 1)))
    bisection, tried = search(rows, poisonous, most=most)
    through = [row for trying in tried if poisonous.isdisjoint(trying) for row in trying]

    assert sorted([*through, *bisection.left]) == list(range(rows))
    assert bisection.works == bool(through)


@given(data=st.data(), keys=st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=2))
def test_where_order_matters_none_is_lost_and_none_overtakes_one_of_its_key(
    data: st.DataObject, keys: list[str]
) -> None:
    poisonous = data.draw(st.sets(st.integers(0, len(keys) - 1)))
    most, blocking = data.draw(st.integers(1, 5)), data.draw(st.booleans())
    bisection, tried = search(len(keys), poisonous, most=most, keys=keys, blocking=blocking)
    through = [row for trying in tried if poisonous.isdisjoint(trying) for row in trying]

    assert sorted([*through, *bisection.left]) == list(range(len(keys)))
    assert len(bisection.poisonous) <= most
    for key in {*keys} - {""}:
        went = [row for row in through if keys[row] == key]
        assert went == sorted(went)
        if blocking:
            left = [row for row in bisection.left if keys[row] == key]
            assert went + left == sorted(went + left)
    if bisection.is_complete:
        first = {keys[row] or row: row for row in sorted(poisonous, reverse=True)}
        assert bisection.poisonous == sorted(first.values() if blocking else poisonous)


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

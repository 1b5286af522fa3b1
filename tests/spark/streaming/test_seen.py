"""What is known already, against a plain set of keys."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_aio.spark.streaming.keys import Keys
from pubsub_aio.spark.streaming.seen import Run, Seen, merged, rows_repeated

Key = tuple[int, int]

HALVES = st.integers(0, 4) | st.sampled_from([1 << 63, (1 << 64) - 1])
"""So few that lower halves are often equal where the upper ones are not."""
KEYS = st.lists(st.tuples(HALVES, HALVES), max_size=25)


def keys(found: list[Key]) -> Keys:
    lows = np.array([low for low, _ in found], np.uint64)
    highs = np.array([high for _, high in found], np.uint64)
    return Keys.sorted(lows, highs)


def run(found: list[Key], at: float = 0.0) -> Run:
    return Run(*keys(found)[:2], at, at)


def content(found: Run) -> Counter[Key]:
    return Counter(zip(found.lows.tolist(), found.highs.tolist(), strict=True))


@given(st.lists(KEYS, max_size=6), KEYS)
@settings(deadline=None)
def test_a_row_is_known_if_its_whole_key_is(before: list[list[Key]], asked: list[Key]) -> None:
    seen = Seen(math.inf)
    for each in before:
        seen.add(run(each))
    known = {key for each in before for key in each}

    found = {*seen.rows_seen(keys(asked)).tolist()}

    assert found == {row for row, key in enumerate(asked) if key in known}
    assert len(seen) == sum(map(len, before))


@given(KEYS)
@settings(deadline=None)
def test_a_row_is_repeated_if_an_earlier_one_is_alike(asked: list[Key]) -> None:
    found = sorted(rows_repeated(keys(asked)).tolist())

    assert found == [row for row, key in enumerate(asked) if key in asked[:row]]


@given(st.lists(KEYS, min_size=1, max_size=6))
@settings(deadline=None)
def test_a_merged_run_has_all_keys_in_order(several: list[list[Key]]) -> None:
    one = merged([run(each, at) for at, each in enumerate(several)])

    assert content(one) == Counter(key for each in several for key in each)
    assert one.lows.tolist() == sorted(one.lows.tolist())
    assert (one.since, one.until) == (0, len(several) - 1)


GAPS = st.sampled_from([0.0, 1.0, 2.0, 7.0, 15.0]) | st.floats(0, 50)


@given(st.lists(st.tuples(GAPS, KEYS), max_size=15), st.sampled_from([8.0, 16.0, 100.0]))
@settings(deadline=None)
def test_nothing_is_forgotten_within_the_window(
    history: list[tuple[float, list[Key]]], window: float
) -> None:
    """A key may be known for longer, by an eighth of the window: runs are forgotten together."""
    seen, now = Seen(window), 0.0
    came: dict[Key, float] = {}
    for gap, some in history:
        now += gap
        seen.forget(now=now)
        seen.add(run(some, now))
        came |= dict.fromkeys(some, now)

        asked = [*came]
        known = {asked[row] for row in seen.rows_seen(keys(asked)).tolist()}
        assert {key for key, at in came.items() if at >= now - window} <= known
        assert known <= {key for key, at in came.items() if at >= now - window * 9 / 8 - 1e-6}


def test_what_was_merged_is_kept_as_long_as_its_latest() -> None:
    seen = Seen(16.0)
    for at in (0.0, 2.0):
        seen.add(run([(int(at), 0)], at))

    known = []
    for now in (18.0, 18.5):
        seen.forget(now=now)
        known.append(len(seen))

    assert known == [2, 0]


def test_small_runs_are_merged_so_that_few_are_looked_through() -> None:
    seen = Seen(math.inf)
    for number in range(1_000):
        seen.add(run([(number, 0)]))

    assert len(seen) == 1_000
    assert len(seen._runs) <= 11


def test_no_keys_are_no_run() -> None:
    seen = Seen(10.0)
    seen.add(run([]))

    assert (len(seen), seen._runs) == (0, [])
    assert seen.rows_seen(keys([(1, 1)])).tolist() == []
    assert seen.rows_seen(keys([])).tolist() == []


@pytest.mark.parametrize("many", [1, 2, 500])
def test_many_keys_with_one_lower_half(many: int) -> None:
    seen = Seen(math.inf)
    seen.add(run([(7, high) for high in range(many)]))

    found = seen.rows_seen(keys([(7, high) for high in range(many + 2)]))

    assert sorted(found.tolist()) == [*range(many)]

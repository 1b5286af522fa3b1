"""Responses wait for one another only where they come in quick succession."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.rush import ENOUGH_BYTES, MANY, PATIENCE, WITHIN, Rush

SMALL = b"x" * (ENOUGH_BYTES // 4)
QUICKLY = WITHIN / MANY / 2


def rushing() -> tuple[Rush, float]:
    """One that has seen just so many responses that the next one waits, and when that comes."""
    rush, now = Rush(), 100.0
    for _ in range(MANY):
        assert rush.add(b"before", now=now) == [b"before"]
        now += QUICKLY
    return rush, now


def test_nothing_waits_at_first() -> None:
    assert (Rush().due_at, Rush().take()) == (math.inf, [])


@pytest.mark.parametrize("every", [0.0006, 0.01, 1.0, 3_600.0])
def test_responses_that_do_not_come_in_quick_succession_never_wait(every: float) -> None:
    rush = Rush()
    for number in range(1_000):
        assert rush.add(SMALL, now=100.0 + number * every) == [SMALL]
        assert rush.due_at == math.inf


def test_in_a_rush_a_response_waits_but_not_for_long() -> None:
    rush, now = rushing()

    assert rush.add(b"a", now=now) == []
    assert rush.add(b"b", now=now + PATIENCE / 2) == []
    assert rush.due_at == now + PATIENCE
    assert rush.take() == [b"a", b"b"]
    assert rush.due_at == math.inf


def test_responses_that_are_enough_together_wait_no_more() -> None:
    rush, now = rushing()

    for _ in range(3):
        assert rush.add(SMALL, now=now) == []
    assert rush.add(SMALL, now=now) == [SMALL] * 4
    assert rush.due_at == math.inf


def test_a_large_response_does_not_wait_and_nothing_waits_behind_it() -> None:
    rush, now = rushing()
    large = b"x" * ENOUGH_BYTES

    assert rush.add(b"a", now=now) == []
    assert rush.add(large, now=now) == [b"a", large]


def test_after_a_rush_none_waits() -> None:
    rush, now = rushing()

    assert rush.add(b"a", now=now) == []
    assert rush.add(b"b", now=now + 1) == [b"a", b"b"]
    assert rush.add(b"c", now=now + 1) == [b"c"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, QUICKLY, PATIENCE, 1.0]),
            st.sampled_from([1, ENOUGH_BYTES // 2, ENOUGH_BYTES]),
        ),
        max_size=100,
    )
)
def test_all_responses_are_taken_in_once_and_in_order(came: list[tuple[float, int]]) -> None:
    rush, now = Rush(), 0.0
    sent: list[bytes] = []
    taken: list[bytes] = []
    for number, (after, size) in enumerate(came):
        now += after
        sent.append(b"%d:" % number + b"x" * size)
        taken += rush.add(sent[-1], now=now)
        waiting = sent[len(taken) :]
        assert sum(map(len, waiting)) < ENOUGH_BYTES
        assert bool(waiting) == (rush.due_at < math.inf)

    assert taken + rush.take() == sent

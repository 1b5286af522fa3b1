"""Delays between attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core import backoff


@pytest.mark.parametrize(
    ("attempt", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (6, 5.0), (10**6, 5)]
)
def test_delays_double_up_to_the_longest(attempt: int, longest: float) -> None:
    """R27: the upper half of it is where a delay falls."""
    delays = [backoff.delay(attempt, first=0.5, most=5.0, chance=c) for c in (0.0, 0.5, 1.0)]

    assert delays == [longest / 2, longest * 0.75, longest]


@given(
    attempt=st.integers(1, 10**9),
    first=st.floats(0.001, 100),
    more=st.floats(0, 1_000),
    chance=st.floats(0, 1),
)
def test_a_delay_is_never_too_long_nor_nothing(
    attempt: int, first: float, more: float, chance: float
) -> None:
    most = first + more
    delay = backoff.delay(attempt, first=first, most=most, chance=chance)

    assert first / 2 <= delay <= most
    assert delay <= backoff.delay(attempt + 1, first=first, most=most, chance=chance)

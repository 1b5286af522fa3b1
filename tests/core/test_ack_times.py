"""How long messages take, and so by how much a lease is extended."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.ack_times import AckTimes
from pubsub_aio.config import FlowControl


def times(*seconds: float) -> AckTimes:
    ack_times = AckTimes()
    for one in seconds:
        ack_times.add(one)
    return ack_times


def test_without_any_ack_it_is_the_least_deadline() -> None:
    """G23: 10 s."""
    assert times().percentile() == 10.0
    assert times().extension(FlowControl(), exactly_once=False) == 10.0


@pytest.mark.parametrize(
    ("seconds", "percentile"),
    [(0, 10), (-1, 10), (9.9, 10), (10, 10), (10.1, 11), (42, 42), (599.5, 600), (7_200, 600)],
)
def test_it_is_in_whole_seconds_from_10_to_600(seconds: float, percentile: float) -> None:
    """G23: as the service takes ack deadlines."""
    assert times(seconds).percentile() == percentile


def test_one_slow_message_in_a_hundred_does_not_count_and_two_do() -> None:
    ack_times = times(*[20.0] * 99, 300.0)
    assert ack_times.percentile() == 20.0
    ack_times = times(*[20.0] * 98, 300.0, 400.0)

    assert ack_times.percentile() == 300.0


def test_many_may_be_added_at_once() -> None:
    ack_times = AckTimes()
    ack_times.add(20.0, count=990)
    ack_times.add(300.0, count=10)
    assert ack_times.percentile() == 20.0
    ack_times.add(300.0)

    assert ack_times.percentile() == 300.0


@given(st.lists(st.floats(0, 1_000), min_size=1, max_size=400))
def test_99_of_100_messages_took_no_longer_and_no_less_will_do(seconds: list[float]) -> None:
    whole = [min(max(math.ceil(one), 10), 600) for one in seconds]
    within = {t: sum(one <= t for one in whole) for t in range(10, 601)}
    least = min(t for t, count in within.items() if count * 100 >= len(whole) * 99)

    assert times(*seconds).percentile() == least


def test_what_is_old_is_forgotten() -> None:
    ack_times = AckTimes()
    ack_times.add(300.0, count=100_000)
    added = 0
    while ack_times.percentile() > 20:
        ack_times.add(20.0, count=1_000)
        added += 1_000
        assert added < 1_000_000

    assert added > 100_000
    ack_times.add(300.0, count=10_000)
    assert ack_times.percentile() == 300.0


def test_what_is_remembered_is_bounded_and_keeps_its_shape() -> None:
    ack_times = AckTimes()
    chance = random.Random(1)  # noqa: S311 - any will do
    for _ in range(500_000):
        ack_times.add(chance.uniform(10, 110))

    assert 107 <= ack_times.percentile() <= 111
    assert ack_times._total <= 100_000


@pytest.mark.parametrize(
    ("ack_time", "exactly_once", "least", "most", "extension"),
    [
        (5, False, 10, 600, 10),
        (100, False, 10, 600, 100),
        (5_000, False, 10, 600, 600),
        (5, True, 10, 600, 60),
        (100, True, 10, 600, 100),
        (5, False, 120, 600, 120),
        (5, True, 120, 600, 120),
        (300, False, 10, 45, 45),
        (300, True, 10, 45, 45),
        (5, True, 10, 45, 45),
        (5, True, 20, 20, 20),
    ],
)
def test_the_extension_is_within_the_settings(
    ack_time: float, exactly_once: bool, least: float, most: float, extension: float
) -> None:
    """G23: 10 to 600 s; at least 60 with exactly-once; and the user's bounds above all."""
    flow = FlowControl(
        min_duration_per_lease_extension=least, max_duration_per_lease_extension=most
    )

    assert times(ack_time).extension(flow, exactly_once=exactly_once) == extension

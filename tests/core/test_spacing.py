"""Times that are evenly spaced."""

from __future__ import annotations

from pubsub_aio._core.spacing import Spacing


def test_times_are_evenly_spaced() -> None:
    spacing = Spacing(4)

    assert [spacing.take(now=10) for _ in range(3)] == [10, 10.25, 10.5]


def test_time_that_nobody_used_is_not_caught_up_with() -> None:
    spacing = Spacing(4)
    spacing.take(now=0)

    assert [spacing.take(now=100) for _ in range(2)] == [100, 100.25]


def test_without_a_rate_nobody_waits() -> None:
    spacing = Spacing(None)

    assert [spacing.take(now=1) for _ in range(3)] == [1, 1, 1]

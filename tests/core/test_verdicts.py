"""What becomes of a job that expired or failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.verdicts import (
    DeadLetter,
    GiveUp,
    Retry,
    after_failure,
    is_dropped,
    longest_wait,
)
from pubsub_aio.config import JobPolicy
from pubsub_aio.errors import ConfigError


def rounds_of(policy: JobPolicy) -> list[list[float]]:
    """When a job that always fails is tried, round by round: the waits before each attempt."""
    rounds: list[list[float]] = []
    for resurrections in range(100):
        waits = [0.0]
        while isinstance(
            verdict := after_failure(policy, attempt=len(waits), resurrections=resurrections), Retry
        ):
            waits.append(verdict.wait)
        rounds.append(waits)
        if verdict == GiveUp():
            return rounds
        assert verdict == DeadLetter()
    raise AssertionError("it never ends")


def test_the_numbers_are_those_of_the_seed() -> None:
    """B13, B14, B15, B18, B20, B22, B23: the defaults of a policy."""
    assert JobPolicy() == JobPolicy(
        max_attempts=3,
        initial_backoff=2,
        max_backoff=10,
        multiplier=2,
        dead_letter_ttl=3,
        max_resurrections=3,
        expires=300,
        dead_letter_expires=300,
    )


def test_a_job_has_three_attempts_and_waits_two_and_four_seconds_between_them() -> None:
    """B13-B16: the waits of a round."""
    assert rounds_of(JobPolicy())[0] == [0, 2, 4]


def test_a_job_is_tried_twelve_times_in_all() -> None:
    """B20, B21: three attempts in each of four rounds."""
    rounds = rounds_of(JobPolicy())

    assert (len(rounds), sum(map(len, rounds))) == (4, 12)


def test_waits_grow_up_to_the_longest() -> None:
    """B15: the cap."""
    policy = JobPolicy(max_attempts=7, initial_backoff=1, max_backoff=10, multiplier=3)

    assert rounds_of(policy)[0] == [0, 1, 3, 9, 10, 10, 10]


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (JobPolicy(initial_backoff=0), [0, 0, 0]),
        (JobPolicy(multiplier=1), [0, 2, 2]),
        (JobPolicy(max_attempts=1), [0]),
        (JobPolicy(multiplier=1e12, initial_backoff=1e-9), [0, 1e-9, 10]),
    ],
)
def test_extreme_policies(policy: JobPolicy, waits: list[float]) -> None:
    assert rounds_of(policy)[0] == waits


def test_without_resurrections_a_job_is_given_up_after_its_first_round() -> None:
    assert len(rounds_of(JobPolicy(max_resurrections=0))) == 1


@given(
    attempt=st.integers(1, 10**9),
    first=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    multiplier=st.floats(1, 1e12),
)
def test_a_wait_is_never_longer_than_allowed(
    attempt: int, first: float, more: float, multiplier: float
) -> None:
    policy = JobPolicy(
        max_attempts=attempt + 1,
        initial_backoff=first,
        max_backoff=first + more,
        multiplier=multiplier,
    )
    verdict = after_failure(policy, attempt=attempt, resurrections=0)

    assert isinstance(verdict, Retry)
    assert first <= verdict.wait <= first + more


@given(
    attempts=st.integers(1, 50),
    first=st.just(0.0) | st.floats(1e-3, 100),
    more=st.floats(0, 100),
    multiplier=st.just(1.0) | st.floats(1.01, 10),
)
def test_all_waits_of_a_round_are_known_beforehand(
    attempts: int, first: float, more: float, multiplier: float
) -> None:
    policy = JobPolicy(
        max_attempts=attempts,
        initial_backoff=first,
        max_backoff=first + more,
        multiplier=multiplier,
        max_resurrections=0,
    )
    assert longest_wait(policy) == pytest.approx(sum(rounds_of(policy)[0]), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("multiplier", [1.0, 1.0000001, 2.0, 1e12])
@pytest.mark.parametrize("first", [0.0, 5e-324, 1.0])
def test_that_takes_no_time_however_many_attempts_there_are(
    first: float, multiplier: float
) -> None:
    policy = JobPolicy(
        max_attempts=10**9, initial_backoff=first, max_backoff=10, multiplier=multiplier
    )

    assert 0 <= longest_wait(policy) <= 10 * 10**9


@pytest.mark.parametrize(
    ("persistent", "expires_at", "now", "dropped"),
    [
        (False, 10.0, 9.999, False),
        (False, 10.0, 10.0, False),
        (False, 10.0, 10.001, True),
        (False, None, 1e12, False),
        (True, 10.0, 1e12, False),
    ],
)
def test_only_what_is_not_persistent_is_dropped_and_only_past_its_time(
    *, persistent: bool, expires_at: float | None, now: float, dropped: bool
) -> None:
    """B12: strictly later than its expiry."""
    assert is_dropped(persistent=persistent, expires_at=expires_at, now=now) is dropped


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"max_attempts": 2.5}, "max_attempts must be a whole number"),
        ({"initial_backoff": -1}, "initial_backoff"),
        ({"initial_backoff": float("nan")}, "initial_backoff"),
        ({"initial_backoff": 20}, "max_backoff must be at least 20"),
        ({"multiplier": 0.5}, "multiplier must be at least 1"),
        ({"dead_letter_ttl": 8 * 86_400}, "dead_letter_ttl must be at least 0 and at most 518,400"),
        ({"max_resurrections": -1}, "max_resurrections"),
        ({"expires": 1}, "expires must be at least 60"),
        ({"dead_letter_expires": True}, "dead_letter_expires must be a number"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_name(settings: dict[str, float], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        JobPolicy(**settings)  # type: ignore[arg-type]

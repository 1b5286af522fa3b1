"""Whether a publish that failed is tried again, and when."""

from __future__ import annotations

import pytest

from pubsub_aio._core.attempts import Again, Attempts, GiveUp
from pubsub_aio.config import RetryPolicy

UNAVAILABLE, FLOW_CONTROL = "UNAVAILABLE", "RESOURCE_EXHAUSTED"


def fail(
    attempts: Attempts,
    code: str = UNAVAILABLE,
    delay: float | None = None,
    *,
    untried: bool = False,
    now: float = 0.0,
    chance: float = 1.0,
) -> Again | GiveUp:
    return attempts.failed(code, delay, untried=untried, now=now, chance=chance)


def test_without_a_policy_there_is_one_attempt() -> None:
    """M5."""
    assert fail(Attempts(None)) == GiveUp("refused")


def test_two_retries_a_quarter_of_a_second_apart() -> None:
    """P2, P3: and no more."""
    attempts = Attempts(RetryPolicy())

    assert [fail(attempts) for _ in range(3)] == [Again(0.25), Again(0.25), GiveUp("refused")]


def test_without_a_number_it_goes_on_until_the_deadline() -> None:
    """P6, P9, P12: a wait must end before it."""
    attempts = Attempts(RetryPolicy(retries=-1), ends_at=10.0)

    assert {fail(attempts, now=9.74) for _ in range(100)} == {Again(0.25)}
    assert fail(attempts, now=9.75) == GiveUp("no time")


@pytest.mark.parametrize("code", ["INTERNAL", "NOT_FOUND", "DEADLINE_EXCEEDED", FLOW_CONTROL])
def test_only_codes_that_are_named_are_worth_another(code: str) -> None:
    """P4, R14."""
    assert fail(Attempts(RetryPolicy()), code) == GiveUp("refused")
    assert fail(Attempts(RetryPolicy(codes=frozenset({code}))), code) == Again(0.25)


def test_the_service_may_ask_to_wait() -> None:
    """R20, R21: its delay counts, and is reason enough to try again at flow control."""
    attempts = Attempts(RetryPolicy(retries=5))

    assert fail(attempts, FLOW_CONTROL, 3.0) == Again(3.0)
    assert fail(attempts, FLOW_CONTROL, 3.0, untried=True) == Again(3.0)
    assert fail(attempts, UNAVAILABLE, 1.0) == Again(1.0)
    assert fail(attempts, UNAVAILABLE, 0.0) == Again(0.25)
    assert fail(attempts, "INTERNAL", 1.0) == GiveUp("refused")


def test_an_untried_endpoint_needs_no_wait() -> None:
    """R16, R20: but counts as a retry."""
    attempts = Attempts(RetryPolicy(wait=(1.0, 2.0)))

    assert fail(attempts, untried=True) == Again(0.0)
    assert fail(attempts) == Again(1.0)
    assert fail(attempts) == GiveUp("refused")


def test_waits_follow_the_list_and_then_grow() -> None:
    attempts = Attempts(RetryPolicy(retries=-1, wait=(1.0, 2.0), multiplier=2.0, max_wait=7.0))

    assert [fail(attempts) for _ in range(5)] == [
        *(Again(1.0), Again(2.0), Again(4.0), Again(7.0), Again(7.0))
    ]


def test_waits_may_be_spread() -> None:
    attempts = Attempts(RetryPolicy(retries=-1, wait=4.0, jitter=True))

    assert fail(attempts, chance=0.25) == Again(1.0)


def test_a_great_many_failures_do_not_overflow() -> None:
    attempts = Attempts(RetryPolicy(retries=-1, multiplier=1e10, max_wait=60.0))

    assert [fail(attempts) for _ in range(2_000)][-1] == Again(60.0)

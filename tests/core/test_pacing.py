"""When acks are sent: sparse ones at once, many together."""

from __future__ import annotations

import pytest

from pubsub_aio._core.pacing import FEW, PAUSE, PROMPT, Pacing

MANY = FEW + 1


def test_the_first_are_sent_at_once() -> None:
    assert Pacing().due_at(MANY, now=100.0) == 100.0


def test_many_wait_until_a_pause_has_passed_since_the_last_request() -> None:
    pacing = Pacing()
    pacing.sent(now=100.0)

    assert pacing.due_at(MANY, now=100.001) == 100.0 + PAUSE
    assert pacing.due_at(MANY, now=100.0 + PAUSE) == 100.0 + PAUSE
    assert pacing.due_at(MANY, now=200.0) == 200.0


def test_a_few_are_sent_at_once() -> None:
    pacing = Pacing()
    pacing.sent(now=100.0)

    assert pacing.due_at(FEW, now=100.001) == 100.001


@pytest.mark.parametrize("every", [0.0001, 0.0005, 0.001])
def test_under_load_few_requests_are_sent_however_few_acks_wait(every: float) -> None:
    """So that the CPU that they take is bounded: prompt ones, and one a pause."""
    pacing, now, requests, seconds = Pacing(), 0.0, 0, 10.0
    while now < seconds:
        now = max(now, pacing.due_at(1, now=now))
        pacing.sent(now=now)
        requests += 1
        now += every

    assert requests <= (PROMPT + 1 / PAUSE) * seconds + PROMPT + 1


def test_sparse_acks_never_wait() -> None:
    pacing = Pacing()
    for number in range(10 * PROMPT):
        now = number / PROMPT
        assert pacing.due_at(1, now=now) == now
        pacing.sent(now=now)


def test_after_a_burst_prompt_requests_come_back_with_time() -> None:
    pacing = Pacing()
    for _ in range(PROMPT + 1):
        pacing.sent(now=100.0)
        last = pacing.due_at(1, now=100.0)
    assert last == 100.0 + PAUSE

    pacing.sent(now=101.0)
    assert pacing.due_at(1, now=101.0) == 101.0

"""How many pushes may be under way, and when: told the time, without a loop."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio.emulator.pushing import MAX_WINDOW, Pushing, acks


def begin_all(pushing: Pushing, now: float, *, ends_at: float = math.inf) -> list[str]:
    """Begin as many pushes as may be."""
    begun: list[str] = []
    while pushing.may_begin(now):
        begun.append(f"{now}-{len(begun)}")
        pushing.begin(begun[-1], ends_at=ends_at)
    return begun


def fail_one(pushing: Pushing, now: float) -> float:
    """Let a push fail at once; returns how long all pushes pause."""
    pushing.begin(f"failing-{now}", ends_at=math.inf)
    assert pushing.finish(f"failing-{now}", acked=False, now=now)
    assert not pushing.may_begin(now)
    return pushing.next_at(now) - now


def test_only_five_codes_acknowledge() -> None:
    assert [status for status in range(600) if acks(status)] == [102, 200, 201, 202, 204]


def test_window_doubles_while_all_goes_well_up_to_a_limit() -> None:
    pushing = Pushing(pauses=True)
    sizes: list[int] = []
    for now in range(8):
        begun = begin_all(pushing, now)
        sizes.append(len(begun))
        for ack_id in begun:
            assert pushing.finish(ack_id, acked=True, now=now)

    assert sizes == [4, 8, 16, 32, 64, 100, 100, 100]


def test_failures_of_one_round_halve_the_window_once() -> None:
    pushing = Pushing(pauses=False)
    for ack_id in begin_all(pushing, 0):
        pushing.finish(ack_id, acked=True, now=0)
    assert pushing.window == 8
    for ack_id in begin_all(pushing, 1):
        pushing.finish(ack_id, acked=False, now=1)

    assert pushing.window == 4


def test_window_never_closes() -> None:
    pushing = Pushing(pauses=False)
    for now in range(20):
        for ack_id in begin_all(pushing, now):
            pushing.finish(ack_id, acked=False, now=now)

    assert pushing.window == 1


def test_pauses_double_from_100_ms_to_a_minute() -> None:
    pushing = Pushing(pauses=True)
    pauses: list[float] = []
    now = 1_000.0
    for _ in range(12):
        pauses.append(round(fail_one(pushing, now), 6))
        now = pushing.next_at(now)
        assert pushing.may_begin(now)

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60]


def test_a_success_after_failures_begins_the_pauses_anew() -> None:
    pushing = Pushing(pauses=True)
    pushing.begin("old", ends_at=math.inf)
    fail_one(pushing, 0)
    assert pushing.finish("old", acked=True, now=0.05)  # it began before the failure
    assert fail_one(pushing, 1) == pytest.approx(0.2)
    pushing.begin("new", ends_at=math.inf)
    assert pushing.finish("new", acked=True, now=2)

    assert fail_one(pushing, 3) == pytest.approx(0.1)


def test_without_pauses_the_next_may_go_at_once() -> None:
    pushing = Pushing(pauses=False)
    pushing.begin("a", ends_at=10)
    assert pushing.finish("a", acked=False, now=1)

    assert pushing.may_begin(1)
    assert pushing.next_at(1) == math.inf


def test_a_push_ends_at_its_deadline_and_its_response_does_not_count() -> None:
    pushing = Pushing(pauses=True)
    pushing.begin("a", ends_at=10)
    pushing.begin("b", ends_at=12)
    assert pushing.next_at(0) == 10
    pushing.poll(9.9)
    assert "a" in pushing
    pushing.poll(10)

    assert "a" not in pushing
    assert not pushing.finish("a", acked=True, now=10)
    assert (pushing.under_way, pushing.next_at(10)) == (1, 10.1)


def test_another_endpoint_is_not_held_responsible() -> None:
    pushing = Pushing(pauses=True)
    pushing.begin("old", ends_at=10)
    fail_one(pushing, 0)
    pushing.start_over()
    assert pushing.may_begin(0)
    assert pushing.finish("old", acked=False, now=0)

    assert (pushing.window, pushing.may_begin(0)) == (4, True)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 30)), max_size=60))
def test_never_more_under_way_than_the_window(steps: list[tuple[bool, float]]) -> None:
    pushing = Pushing(pauses=True)
    now = 0.0
    for acked, seconds in steps:
        begun = begin_all(pushing, now, ends_at=now + 10)
        assert pushing.under_way <= MAX_WINDOW
        for ack_id in begun[::2]:
            pushing.finish(ack_id, acked=acked, now=now)
        now += seconds
        pushing.poll(now)
        assert 1 <= pushing.window <= MAX_WINDOW
        assert pushing.next_at(now) > now

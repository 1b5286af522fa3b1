"""Acks of one ordering key: one request at a time, in order, whatever becomes of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_aio._core.outbox import (
    FIRST_DELAY,
    MAX_BYTES,
    MAX_CONFIRMED_IDS,
    OWED_FOR,
    Outbox,
    Outcome,
    Request,
)
from pubsub_aio.errors import InvalidAckIdError, ServiceError, UnconfirmedError

UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"


def ack(outbox: Outbox, *names: str, now: float = 0.0) -> None:
    """Ack messages: `a3` is the third of key `a`."""
    for name in names:
        outbox.ack_in_order(name[0], (int(name[1:]),), [name], now=now)


def sent(outbox: Outbox, *, now: float = 0.0) -> list[list[str]]:
    return [request.ids for request in outbox.take(now=now)]


def refuse(outbox: Outbox, request: Request, *, now: float = 0.0, **reasons: str) -> Outcome:
    error = ServiceError("FAILED_PRECONDITION", "why", ack_errors=reasons)
    return outbox.answered(request, error, now=now, chance=1)


def accept(outbox: Outbox, request: Request) -> None:
    assert outbox.answered(request, None, now=0, chance=1).confirmed == request.ids


def test_acks_of_a_key_wait_for_the_answer_to_earlier_ones() -> None:
    """H4: calls overtake one another, and an ack that comes too early is refused."""
    outbox = Outbox()
    ack(outbox, "a1", "a2", "b1")
    (first,) = outbox.take(now=0)
    assert first.ids == ["a1", "a2", "b1"]

    ack(outbox, "a3", "c1")
    assert sent(outbox) == [["c1"]]
    assert (outbox.waiting, outbox.next_at(), len(outbox)) == (False, math.inf, 5)

    accept(outbox, first)
    assert outbox.waiting
    assert sent(outbox) == [["a3"]]


def test_what_was_refused_goes_again_in_its_place() -> None:
    """H4: before what was acked since."""
    outbox = Outbox()
    ack(outbox, "a1", "a2", "a3")
    (first,) = outbox.take(now=0)
    ack(outbox, "a4")
    outcome = refuse(outbox, first, a1="TRANSIENT_FAILURE_X", a2=INVALID, a3=UNORDERED)

    assert isinstance(outcome.failed["a2"], InvalidAckIdError)
    assert sent(outbox) == []
    assert (outbox.next_at(), len(outbox)) == (FIRST_DELAY, 3)
    assert sent(outbox, now=FIRST_DELAY) == [["a1", "a3", "a4"]]


def test_an_ack_that_came_too_early_goes_with_the_one_it_waits_for() -> None:
    """H4: whoever acks in another order is not made to wait."""
    outbox = Outbox()
    ack(outbox, "a2")
    for now in (0, 1, 2, 3):
        (request,) = outbox.take(now=now)
        refuse(outbox, request, now=now, a2=UNORDERED)
    assert sent(outbox, now=3) == []
    ack(outbox, "a3", now=3)
    assert sent(outbox, now=3) == []
    ack(outbox, "a1", now=3)
    assert sent(outbox, now=3) == [["a1", "a2", "a3"]]


def test_a_request_that_fails_goes_again_with_what_was_acked_since() -> None:
    outbox = Outbox()
    ack(outbox, "a1", "b1")
    (request,) = outbox.take(now=0)
    ack(outbox, "a2")
    outbox.answered(request, ServiceError("UNAVAILABLE", "why"), now=0, chance=1)
    assert (len(outbox), outbox.waiting, outbox.next_at()) == (3, False, FIRST_DELAY)
    (request,) = outbox.take(now=FIRST_DELAY)
    assert request.ids == ["a1", "a2", "b1"]

    outcome = outbox.answered(request, ServiceError("NOT_FOUND", "why"), now=1, chance=1)
    assert [type(one) for one in outcome.failed.values()] == [UnconfirmedError] * 3
    assert (len(outbox), outbox.next_at()) == (0, math.inf)


def test_each_ack_is_given_up_after_its_own_time() -> None:
    outbox = Outbox()
    ack(outbox, "a1")
    ack(outbox, "a2", now=300)
    failed: dict[str, float] = {}
    now = 300.0
    while requests := outbox.take(now=now):
        for request in requests:
            error = ServiceError("UNAVAILABLE", "why")
            outcome = outbox.answered(request, error, now=now, chance=1)
            failed |= dict.fromkeys(outcome.failed, now)
        now = min(outbox.next_at(), 10_000)

    assert failed["a1"] == pytest.approx(OWED_FOR, abs=10)
    assert failed["a2"] == pytest.approx(OWED_FOR + 300, abs=10)
    assert len(outbox) == 0


def test_an_id_that_is_acked_twice_is_sent_once() -> None:
    """A server may call two deliveries the same."""
    outbox = Outbox()
    ack(outbox, "a1", "a1")
    (request,) = outbox.take(now=0)
    ack(outbox, "a1", "a2")
    assert (request.ids, len(outbox)) == (["a1"], 2)
    accept(outbox, request)
    assert sent(outbox) == [["a2"]]


def test_acks_of_a_key_are_not_spread_over_requests() -> None:
    outbox = Outbox()
    many = MAX_CONFIRMED_IDS * 2 // 3
    names = {key: [f"{key}{n}" for n in range(many)] for key in "abc"}
    for ids in names.values():
        ack(outbox, *ids)
    assert sent(outbox) == list(names.values())

    ack(outbox, *(f"d{n}" for n in range(MAX_CONFIRMED_IDS + 1)))
    (request,) = outbox.take(now=0)
    assert len(request.ids) == MAX_CONFIRMED_IDS
    accept(outbox, request)
    assert sent(outbox) == [[f"d{MAX_CONFIRMED_IDS}"]]


def test_long_ids_make_for_smaller_requests() -> None:
    outbox = Outbox()
    for number in range(10):
        outbox.ack_in_order("a", (number,), [f"{number}" * (MAX_BYTES // 5)], now=0)
    (request,) = outbox.take(now=0)
    assert len(request.ids) == 4


def test_a_bad_id_does_not_cost_the_others() -> None:
    """A server that does not say which it was."""
    outbox = Outbox()
    ack(outbox, "a1", "a2", "a3", "a4")
    confirmed: list[str] = []
    failed: list[str] = []
    while requests := outbox.take(now=0):
        for request in requests:
            error = ServiceError("INVALID_ARGUMENT", "why") if "a2" in request.ids else None
            outcome = outbox.answered(request, error, now=0, chance=1)
            confirmed += outcome.confirmed
            failed += outcome.failed
    assert (sorted(confirmed), failed, len(outbox)) == (["a1", "a3", "a4"], ["a2"], 0)


codes = st.sampled_from([None, None, None, "UNAVAILABLE", "lost", "refuse"])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), codes), max_size=60))
@settings(deadline=None)
def test_a_server_that_insists_on_the_order_has_everything_in_the_end(
    steps: list[tuple[int, int, str | None]],
) -> None:
    """H4: answers get lost, requests fail and overtake one another, and no ack is refused for it.

    Each step acks a message of some key, and answers some request that is on its way.
    """
    outbox = Outbox()
    now = 0.0
    acked = dict.fromkeys("abc", 0)
    settled = dict.fromkeys("abc", 0)
    calls: list[Request] = []

    def serve(request: Request, fault: str | None) -> None:
        reasons: dict[str, str] = {}
        for ack_id in request.ids if fault != "UNAVAILABLE" else ():
            key, number = ack_id[0], int(ack_id[1:])
            if fault == "refuse" and len(request.ids) > 1 and not reasons:
                reasons[ack_id] = "TRANSIENT_FAILURE_X"
            elif number > settled[key] + 1:
                assert fault == "refuse", f"{ack_id} came too early"
                reasons[ack_id] = UNORDERED
            else:
                settled[key] = max(settled[key], number)
        error = None
        if reasons:
            error = ServiceError("FAILED_PRECONDITION", "why", ack_errors=reasons)
        elif fault in ("lost", "UNAVAILABLE"):
            error = ServiceError("UNAVAILABLE", "why")
        outbox.answered(request, error, now=now, chance=0.5)

    for key_number, pick, fault in steps:
        key = "abc"[key_number]
        acked[key] += 1
        ack(outbox, f"{key}{acked[key]}", now=now)
        now += 0.03
        calls += outbox.take(now=now)
        if calls:
            serve(calls.pop(pick % len(calls)), fault)
    while calls or len(outbox):
        now = max(now, min(outbox.next_at(), now + 100))
        calls += outbox.take(now=now)
        serve(calls.pop(0), None)

    assert settled == acked
    assert outbox.next_at() == math.inf

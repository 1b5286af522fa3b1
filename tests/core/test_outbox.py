"""What is told to the server: in requests of legal size, until it is answered or too late."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pubsub_aio._core.outbox import (
    EXTENSION_OWED_FOR,
    FIRST_DELAY,
    MAX_BYTES,
    MAX_CONFIRMED_IDS,
    MAX_DELAY,
    MAX_IDS,
    OWED_FOR,
    TRANSIENT,
    Outbox,
    Outcome,
    Request,
)
from pubsub_aio._wire import schema
from pubsub_aio.errors import InvalidAckIdError, ServiceError, SettleError, UnconfirmedError

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []

MOST_BYTES = 512 * 1024  # of a request, by the service's documentation


def outbox_of(*acks: str) -> Outbox:
    outbox = Outbox()
    outbox.acks += acks
    return outbox


def answer(
    outbox: Outbox,
    request: Request,
    code: str | None = None,
    *,
    now: float = 0.0,
    chance: float = 1.0,
    retry_delay: float | None = None,
    ack_errors: dict[str, str] | None = None,
) -> tuple[list[str], dict[str, type[SettleError]]]:
    """Answer a request; which ids were confirmed, and how the others failed."""
    error = None
    if code is not None:
        error = ServiceError(code, "why", retry_delay=retry_delay, ack_errors=ack_errors)
    outcome = outbox.answered(request, error, now=now, chance=chance)
    assert all(failure.ack_id == ack_id for ack_id, failure in outcome.failed.items())
    return outcome.confirmed, {ack_id: type(one) for ack_id, one in outcome.failed.items()}


# Gathering


def test_an_empty_outbox_has_nothing_to_send() -> None:
    outbox = Outbox()

    assert outbox.take(now=0) == []
    assert (len(outbox), outbox.waiting, outbox.next_at()) == (0, False, math.inf)


def test_acks_and_deadlines_are_gathered_into_one_request_each() -> None:
    """G24, G25: an ack is an Acknowledge, a nack a deadline of zero."""
    outbox = outbox_of("a", "b")
    outbox.nack(["c"], 0)
    outbox.extend(["d"], 10)
    outbox.nack(["e", "f"], 0)
    outbox.nack(["g"], 10)
    assert (len(outbox), outbox.waiting) == (7, True)

    assert outbox.take(now=5) == [
        Request(["a", "b"], None, owed_until=5 + OWED_FOR),
        Request(["c", "e", "f"], 0, owed_until=5 + OWED_FOR),
        Request(["d"], 10, is_extension=True, owed_until=5 + 10 * EXTENSION_OWED_FOR),
        Request(["g"], 10, owed_until=5 + OWED_FOR),
    ]
    assert (len(outbox), outbox.waiting) == (7, False)
    assert outbox.take(now=5) == []


def test_what_the_server_accepts_is_confirmed_and_done_with() -> None:
    outbox = outbox_of("a", "b")
    (request,) = outbox.take(now=0)

    assert outbox.answered(request, None, now=1, chance=0) == Outcome(confirmed=["a", "b"])
    assert (len(outbox), outbox.next_at()) == (0, math.inf)


# Size


def test_a_request_carries_a_limited_number_of_ids() -> None:
    ids = [f"{n:0184}" for n in range(2 * MAX_IDS + 1)]
    outbox = outbox_of(*ids)
    outbox.extend(ids, 10)
    requests = outbox.take(now=0)

    assert [len(request.ids) for request in requests] == [MAX_IDS, MAX_IDS, 1] * 2
    assert [ack_id for request in requests for ack_id in request.ids] == ids * 2


@pytest.mark.parametrize("is_extension", [True, False])
def test_of_a_great_many_some_are_left_for_the_next_time(*, is_extension: bool) -> None:
    """Or whoever takes them would do nothing else for long."""
    outbox, ids = Outbox(), [f"{number}" for number in range(50_000)]
    (outbox.extend if is_extension else outbox.nack)(ids, 60)

    taken = []
    for more in (True, True, False):
        requests = outbox.take(now=0)
        taken += [one for request in requests for one in request.ids]
        assert outbox.cut_short is more
    assert taken == ids
    assert len(outbox) == 50_000  # unanswered
    assert outbox.take(now=0) == []


def test_with_exactly_once_a_request_carries_few_ids() -> None:
    outbox = outbox_of(*map(str, range(2 * MAX_CONFIRMED_IDS + 20)))
    outbox.one_by_one = True

    assert [len(request.ids) for request in outbox.take(now=0)] == [MAX_CONFIRMED_IDS] * 2 + [20]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_request_of_long_ids_carries_fewer(one_by_one: bool) -> None:
    outbox = outbox_of(*(f"{n:030000}" for n in range(40)))
    outbox.one_by_one = one_by_one

    assert [len(request.ids) for request in outbox.take(now=0)] == [15, 15, 10]


@given(
    lengths=st.lists(
        st.one_of(st.integers(1, 400), st.integers(1, 40_000)), min_size=1, max_size=200
    ),
    times=st.integers(1, 30),
    one_by_one=st.booleans(),
    seconds=st.sampled_from([None, 0, 10]),
)
@settings(max_examples=60, deadline=None)
def test_no_request_is_above_what_the_service_accepts(
    lengths: list[int], times: int, one_by_one: bool, seconds: int | None
) -> None:
    """Whatever the ids; as it is on the wire, with the longest name a subscription can have."""
    outbox = Outbox()
    outbox.one_by_one = one_by_one
    ids = [f"{n}".ljust(length, "x") for n, length in enumerate(lengths * times)]
    if seconds is None:
        outbox.acks += ids
    else:
        outbox.extend(ids, seconds)
    requests = outbox.take(now=0)

    assert [ack_id for request in requests for ack_id in request.ids] == ids
    for request in requests:
        assert 1 <= len(request.ids) <= (MAX_CONFIRMED_IDS if one_by_one else MAX_IDS)
        name = f"projects/{'p' * 30}/subscriptions/{'s' * 255}"
        wire = schema.AcknowledgeRequest(subscription=name, ack_ids=request.ids)
        assert wire.ByteSize() <= MOST_BYTES
        assert sum(map(len, request.ids)) <= MAX_BYTES


# Trying again


@pytest.mark.parametrize("code", sorted(TRANSIENT))
@pytest.mark.parametrize("seconds", [None, 0, 30])
def test_acks_and_nacks_are_sent_again_after_what_may_pass(code: str, seconds: int | None) -> None:
    outbox = Outbox()
    if seconds is None:
        outbox.acks.append("a")
    else:
        outbox.nack(["a"], seconds)
    (request,) = outbox.take(now=0)

    assert answer(outbox, request, code, now=1) == ([], {})
    assert (len(outbox), outbox.next_at()) == (1, 1 + FIRST_DELAY)
    assert outbox.take(now=1) == []
    (again,) = outbox.take(now=outbox.next_at())
    assert (again.ids, again.seconds, again.attempts) == (["a"], seconds, 1)
    assert answer(outbox, again) == (["a"], {})
    assert len(outbox) == 0


@pytest.mark.parametrize("code", ["NOT_FOUND", "PERMISSION_DENIED", "FAILED_PRECONDITION"])
def test_what_will_not_pass_fails_at_once(code: str) -> None:
    outbox = outbox_of("a", "b")
    (request,) = outbox.take(now=0)
    error = ServiceError(code, "why")

    outcome = outbox.answered(request, error, now=0, chance=0)

    assert {name: type(one) for name, one in outcome.failed.items()} == {
        "a": UnconfirmedError,
        "b": UnconfirmedError,
    }
    assert outcome.failed["a"].__cause__ is error
    assert (len(outbox), outbox.next_at()) == (0, math.inf)


def test_delays_grow_and_an_ack_is_given_up_after_its_time() -> None:
    outbox = outbox_of("a")
    now, delays = 0.0, []
    (request,) = outbox.take(now=0)
    while True:
        confirmed, failed = answer(outbox, request, "UNAVAILABLE", now=now)
        if failed:
            break
        assert len(outbox) == 1
        delays.append(outbox.next_at() - now)
        now = outbox.next_at()
        (request,) = outbox.take(now=now)

    assert delays[:8] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, MAX_DELAY])
    assert delays[8:] == pytest.approx([MAX_DELAY] * len(delays[8:]))
    assert (confirmed, failed) == ([], {"a": UnconfirmedError})
    assert OWED_FOR - MAX_DELAY <= now <= OWED_FOR
    assert (len(outbox), outbox.next_at()) == (0, math.inf)


@pytest.mark.parametrize("seconds", [10, 60, 600])
def test_an_extension_is_tried_for_as_long_as_its_lease_lasts(seconds: int) -> None:
    """H6: a lease is renewed when two fifths of it are left. Later the next one takes its place."""
    outbox = Outbox()
    outbox.extend(["a"], seconds)
    tried_at, now = [], 0.0
    while requests := outbox.take(now=now):
        tried_at.append(now)
        answer(outbox, requests[0], "UNAVAILABLE", now=now)
        now = min(outbox.next_at(), 10_000)

    ends_at = EXTENSION_OWED_FOR * seconds
    assert ends_at - MAX_DELAY < tried_at[-1] <= ends_at
    assert len(tried_at) >= 5
    assert now == 10_000
    assert len(outbox) == 0


def test_a_delayed_nack_strikes_extensions_that_are_to_be_sent() -> None:
    """G8: they would undo it."""
    outbox = Outbox()
    outbox.extend(["a", "b"], 60)
    assert outbox.nack(["a"], 10) == [("a", 60)]
    assert len(outbox) == 2
    assert sent(outbox.take(now=0)) == [(["b"], 60), (["a"], 10)]


def test_a_delayed_nack_strikes_extensions_that_are_to_be_sent_again() -> None:
    """G8: they would undo it."""
    outbox = Outbox()
    outbox.extend(["a", "b"], 60)
    (extension,) = outbox.take(now=0)
    answer(outbox, extension, "UNAVAILABLE", now=0)
    assert outbox.nack(["a"], 10) == [("a", 60)]
    assert sent(outbox.take(now=10)) == [(["b"], 60), (["a"], 10)]


def test_an_extension_that_fails_is_not_sent_again_after_a_delayed_nack() -> None:
    """G8: the nack has waited for its answer, and goes now."""
    outbox = Outbox()
    outbox.extend(["a", "b"], 60)
    (extension,) = outbox.take(now=0)
    assert outbox.nack(["a"], 10) == []
    refused = ServiceError("UNAVAILABLE", "why")
    outcome = outbox.answered(extension, refused, now=0, chance=1)
    assert outcome == Outcome(struck=[("a", 60)])
    assert sent(outbox.take(now=10)) == [(["b"], 60), (["a"], 10)]
    assert len(outbox) == 2


def test_a_delayed_nack_waits_for_every_extension_that_is_on_its_way() -> None:
    """G8: the last of them would undo it."""
    outbox = Outbox()
    outbox.extend(["a"], 10)
    outbox.extend(["a"], 600)
    receipt, users = outbox.take(now=0)
    assert outbox.nack(["a"], 5) == []
    answer(outbox, receipt, now=0)
    assert sent(outbox.take(now=1)) == []
    answer(outbox, users, now=1)
    assert sent(outbox.take(now=1)) == [(["a"], 5)]


def test_an_extension_is_struck_by_whichever_answer_releases_the_nack() -> None:
    """G8: and it is told under its own seconds, or who waits for it would wait for ever."""
    outbox = Outbox()
    outbox.extend(["a"], 60)
    outbox.extend(["a"], 30)
    long, short = outbox.take(now=0)
    assert outbox.nack(["a"], 5) == []
    answer(outbox, long, "UNAVAILABLE", now=0)
    outcome = outbox.answered(short, None, now=0, chance=1)
    assert outcome == Outcome(confirmed=["a"], struck=[("a", 60)])
    assert sent(outbox.take(now=100)) == [(["a"], 5)]


def sent(requests: list[Request]) -> list[tuple[list[str], int | None]]:
    return [(request.ids, request.seconds) for request in requests]


def test_the_server_may_ask_to_be_left_alone_for_longer() -> None:
    """R21: its own delay is honoured."""
    outbox = outbox_of("a", "b")
    (request,) = outbox.take(now=0)
    answer(outbox, request, "RESOURCE_EXHAUSTED", now=1, retry_delay=7.5)
    assert outbox.next_at() == 8.5
    (request,) = outbox.take(now=8.5)
    answer(outbox, request, "RESOURCE_EXHAUSTED", now=8.5, retry_delay=0.01)

    assert outbox.next_at() == 8.5 + 2 * FIRST_DELAY


def test_what_is_sent_again_goes_when_its_time_comes_with_what_is_new() -> None:
    outbox = outbox_of("a")
    (request,) = outbox.take(now=0)
    answer(outbox, request, "UNAVAILABLE", now=0)
    outbox.acks.append("b")

    assert [request.ids for request in outbox.take(now=0.05)] == [["b"]]
    outbox.acks.append("c")
    assert [request.ids for request in outbox.take(now=0.1)] == [["a"], ["c"]]
    assert len(outbox) == 3


# Ids that are refused


def test_one_bad_id_does_not_cost_the_others() -> None:
    """A malformed id makes the service refuse the whole request."""
    ids = [str(n) for n in range(1_000)]
    outbox = outbox_of(*ids)
    bad = {"0", "500", "501", "999"}
    confirmed: list[str] = []
    failed: dict[str, type[SettleError]] = {}
    calls = 0
    while requests := outbox.take(now=0):
        for request in requests:
            calls += 1
            refused = not bad.isdisjoint(request.ids)
            fine, wrong = answer(outbox, request, "INVALID_ARGUMENT" if refused else None)
            confirmed += fine
            failed |= wrong

    assert sorted(confirmed) == sorted({*ids} - bad)
    assert failed == dict.fromkeys(bad, InvalidAckIdError)
    assert calls <= 2 * len(bad) * 11
    assert len(outbox) == 0


def test_with_exactly_once_each_id_has_its_own_answer() -> None:
    outbox = outbox_of("a", "b", "c", "d")
    outbox.one_by_one = True
    (request,) = outbox.take(now=0)
    errors = {
        "b": "PERMANENT_FAILURE_INVALID_ACK_ID",
        "c": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE",
        "d": "TRANSIENT_FAILURE_UNORDERED_ACK_ID",
    }

    assert answer(outbox, request, "FAILED_PRECONDITION", ack_errors=errors) == (
        ["a"],
        {"b": InvalidAckIdError},
    )
    assert (len(outbox), outbox.next_at()) == (2, FIRST_DELAY)
    (again,) = outbox.take(now=FIRST_DELAY)
    assert again == Request(["c", "d"], None, attempts=1, owed_until=OWED_FOR)
    assert answer(outbox, again) == (["c", "d"], {})
    assert len(outbox) == 0


def test_a_refused_id_says_why() -> None:
    outbox = outbox_of("a")
    (request,) = outbox.take(now=0)
    error = ServiceError("FAILED_PRECONDITION", "no", ack_errors={"a": "PERMANENT_FAILURE_X"})

    failure = outbox.answered(request, error, now=0, chance=0).failed["a"]

    assert isinstance(failure, InvalidAckIdError)
    assert failure.reason == "PERMANENT_FAILURE_X"


def test_transient_failures_of_ids_are_given_up_after_their_time_too() -> None:
    outbox = outbox_of("a", "b")
    (request,) = outbox.take(now=0)
    errors = {"b": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"}

    result = answer(outbox, request, "UNAVAILABLE", now=OWED_FOR, ack_errors=errors)

    assert result == (["a"], {"b": UnconfirmedError})
    assert len(outbox) == 0


def test_a_transient_failure_of_an_id_does_not_make_it_invalid() -> None:
    """H4: whoever holds the message holds it still, however the request as a whole was refused."""
    outbox = outbox_of("a", "b")
    (request,) = outbox.take(now=0)
    errors = {"a": "PERMANENT_FAILURE_X", "b": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"}

    result = answer(outbox, request, "INVALID_ARGUMENT", now=OWED_FOR, ack_errors=errors)

    assert result == ([], {"a": InvalidAckIdError, "b": UnconfirmedError})


@pytest.mark.parametrize("code", [None, "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE"])
def test_an_id_that_was_added_twice_is_counted_twice_and_done_with(code: str | None) -> None:
    """A deadline may be moved by the user beside the library."""
    outbox = Outbox()
    outbox.extend(["a"], 10)
    outbox.extend(["a", "b"], 10)
    assert len(outbox) == 3
    now = 0.0
    while requests := outbox.take(now=now):
        for request in requests:
            answer(outbox, request, code, now=now)
        now = min(outbox.next_at(), 1_000)

    assert len(outbox) == 0


def test_it_is_known_whether_all_nacks_were_answered() -> None:
    outbox = outbox_of("a")
    outbox.extend(["b"], 10)
    seen = [outbox.nacking]
    outbox.nack(["c", "d"], 0)
    outbox.nack(["e"], 20)
    acks, extension, nacks, delayed = outbox.take(now=0)
    for request in (acks, extension, delayed):
        answer(outbox, request)
    answer(outbox, nacks, "FAILED_PRECONDITION", ack_errors={"c": "TRANSIENT_FAILURE_X"})
    seen.append(outbox.nacking)
    (again,) = outbox.take(now=FIRST_DELAY)
    answer(outbox, again, "NOT_FOUND")
    seen.append(outbox.nacking)

    assert seen == [False, True, False]


# Against a model

ids_of = st.integers(1, 12)
codes = st.sampled_from(
    [*(None, None, "UNAVAILABLE", "DEADLINE_EXCEEDED"), *("INVALID_ARGUMENT", "NOT_FOUND", "each")]
)
reasons = st.sampled_from([None, "PERMANENT_FAILURE_INVALID_ACK_ID", "TRANSIENT_FAILURE_X"])


class OutboxAgainstModel(RuleBasedStateMachine):
    """Every id is confirmed, failed, or known to be on its way; none is lost and none twice."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.now = 0.0
        self.count = 0
        self.state: dict[str, str] = {}
        self.seconds: dict[str, int | None] = {}
        self.taken_at: dict[str, float] = {}
        self.tries: dict[str, int] = {}
        self.not_before: dict[str, float] = {}
        self.calls: list[Request] = []
        self.extensions: set[str] = set()

    def _new(self, count: int, seconds: int | None) -> list[str]:
        ids = [f"id {self.count + n}" for n in range(count)]
        self.count += count
        self.state |= dict.fromkeys(ids, "waits")
        self.seconds |= dict.fromkeys(ids, seconds)
        return ids

    @rule(count=ids_of)
    def ack(self, count: int) -> None:
        self.outbox.acks += self._new(count, None)

    @rule(count=ids_of, seconds=st.sampled_from([0, 0, 10, 60]))
    def nack(self, count: int, seconds: int) -> None:
        self.outbox.nack(self._new(count, seconds), seconds)

    @rule(count=ids_of, seconds=st.sampled_from([10, 60]))
    def extend(self, count: int, seconds: int) -> None:
        ids = self._new(count, seconds)
        self.extensions |= {*ids}
        self.outbox.extend(ids, seconds)

    @rule(one_by_one=st.booleans())
    def change_delivery(self, one_by_one: bool) -> None:
        self.outbox.one_by_one = one_by_one

    @rule(seconds=st.sampled_from([0.0, 0.05, 1.0, 20.0, 300.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(owed=st.booleans(), extensions=st.booleans())
    def take(self, owed: bool, extensions: bool) -> None:
        due = {
            ack_id
            for ack_id, state in self.state.items()
            if (extensions if ack_id in self.extensions else owed)
            and (state == "waits" or (state == "again" and self.not_before[ack_id] <= self.now))
        }
        requests = self.outbox.take(now=self.now, owed=owed, extensions=extensions)
        ids = [ack_id for request in requests for ack_id in request.ids]
        assert len(ids) == len(set(ids))
        assert set(ids) == due
        for request in requests:
            assert request.ids
            for ack_id in request.ids:
                assert self.seconds[ack_id] == request.seconds
                self.state[ack_id] = "sent"
                self.taken_at.setdefault(ack_id, self.now)
        self.calls += requests
        assert not (owed and extensions and self.outbox.waiting)

    @rule(
        pick=st.integers(0, 20),
        code=codes,
        each=st.lists(reasons, min_size=12, max_size=12),
        chance=st.floats(0, 1),
    )
    @precondition(lambda self: self.calls)
    def answer(self, pick: int, code: str | None, each: list[str | None], chance: float) -> None:
        request = self.calls.pop(pick % len(self.calls))
        ids = list(request.ids)
        errors = {}
        if code == "each":
            errors = {name: why for name, why in zip(ids, each, strict=False) if why}
        error = None
        if code and (code != "each" or errors):
            error = ServiceError(
                "FAILED_PRECONDITION" if errors else code, "why", ack_errors=errors
            )
        before = len(self.outbox)
        outcome = self.outbox.answered(request, error, now=self.now, chance=chance)

        assert not {*outcome.confirmed} & outcome.failed.keys()
        assert len(self.outbox) == before - len(outcome.confirmed) - len(outcome.failed)
        for ack_id in ids:
            self.tries[ack_id] = self.tries.get(ack_id, 0) + 1
            if ack_id in outcome.confirmed:
                assert error is None or (errors and ack_id not in errors)
                self.state[ack_id] = "confirmed"
            elif ack_id in outcome.failed:
                self._may_fail(ack_id, outcome.failed[ack_id], error, len(ids))
                self.state[ack_id] = "failed"
            else:
                assert error is not None
                self._sent_again(ack_id, error)

    def _may_fail(
        self, ack_id: str, failure: SettleError, error: ServiceError | None, count: int
    ) -> None:
        """Only what is refused for good, alone, and what is too late or was tried enough."""
        assert error is not None
        assert failure.ack_id == ack_id
        reason = error.ack_errors.get(ack_id, "")
        alone = error.code == "INVALID_ARGUMENT" and count == 1 and not reason
        if reason.startswith("PERMANENT") or alone:
            assert isinstance(failure, InvalidAckIdError)
            return
        assert isinstance(failure, UnconfirmedError)
        if reason or error.code in TRANSIENT:
            owed_for = OWED_FOR
            if ack_id in self.extensions:
                owed_for = (self.seconds[ack_id] or 0) * EXTENSION_OWED_FOR
            assert self.now + MAX_DELAY > self.taken_at[ack_id] + owed_for
        else:
            assert error.code == "NOT_FOUND"

    def _sent_again(self, ack_id: str, error: ServiceError) -> None:
        self.state[ack_id] = "again"
        if error.code == "INVALID_ARGUMENT":
            self.not_before[ack_id] = self.now
            return
        later = [*self.outbox._again, *self.outbox._extensions_again]
        mine = [at for at, _, request in later if ack_id in request.ids]
        assert len(mine) == 1
        wait = mine[0] - self.now
        longest = min(MAX_DELAY, FIRST_DELAY * 2 ** (self.tries[ack_id] - 1))
        assert longest / 2 - 1e-6 <= wait <= longest + 1e-6
        self.not_before[ack_id] = mine[0]

    @invariant()
    def everything_is_counted(self) -> None:
        open_ids = [
            name for name, state in self.state.items() if state in ("waits", "sent", "again")
        ]
        assert len(self.outbox) == len(open_ids)
        again = [self.not_before[name] for name, state in self.state.items() if state == "again"]
        assert self.outbox.next_at() == min(again, default=math.inf)
        for owed in (True, False):
            of_kind = [
                self.not_before[name]
                for name, state in self.state.items()
                if state == "again" and (name in self.extensions) != owed
            ]
            next_at = self.outbox.next_at(owed=owed, extensions=not owed)
            assert next_at == min(of_kind, default=math.inf)

    def teardown(self) -> None:
        """A server that answers has everything in the end."""
        for request in self.calls:
            self.outbox.answered(request, None, now=self.now, chance=0)
        for request in self.outbox.take(now=self.now + 10_000):
            self.outbox.answered(request, None, now=self.now, chance=0)
        assert (len(self.outbox), self.outbox.next_at()) == (0, math.inf)


TestOutboxAgainstModel = OutboxAgainstModel.TestCase
TestOutboxAgainstModel.settings = settings(
    max_examples=int(EXAMPLES or 150),
    stateful_step_count=40,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

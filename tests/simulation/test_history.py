"""The checker finds what it is there to find: a history that is right, and ones that are not."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.history import (
    STATEMENTS,
    Backlog,
    Confirmed,
    DeadLettered,
    Ended,
    Event,
    Expired,
    Fault,
    Held,
    History,
    LeftOver,
    Limits,
    Published,
    Sent,
    ServerAck,
    ServerModack,
    Settled,
    Started,
    Stopped,
    Stopping,
    Violation,
    check,
)

LIMITS = Limits(0, "s", max_messages=10, max_bytes=1_000, threshold=0.8, batch=2, lease=60)


def life(
    message: str, at: float, *, delivery: int, key: str = "", session: str = "s"
) -> list[Event]:
    """A message is published, delivered and acked, all within a second."""
    ack_id = f"{message}/{delivery}"
    return [
        Published(at, message, key),
        Sent(at + 0.1, message, ack_id),
        ServerModack(at + 0.1, message, ack_id, 60),
        Started(at + 0.2, delivery, session, message, ack_id, key, size=100),
        Settled(at + 0.3, delivery, "ack"),
        Ended(at + 0.3, delivery),
        ServerAck(at + 0.4, message, ack_id),
    ]


def again(
    message: str, at: float, *, delivery: int, key: str = "", session: str = "s"
) -> list[Event]:
    """It is delivered and acked once more."""
    return life(message, at, delivery=delivery, key=key, session=session)[1:]


def given_back(message: str, at: float, *, delivery: int, key: str = "") -> list[Event]:
    """It is published, delivered and nacked."""
    ack_id = f"{message}/{delivery}"
    return [
        *life(message, at, delivery=delivery, key=key)[:4],
        Settled(at + 0.3, delivery, "nack"),
        Ended(at + 0.3, delivery),
        ServerModack(at + 0.4, message, ack_id, 0),
    ]


def found(history: History) -> list[tuple[str, str]]:
    return [(violation.statement, violation.kind) for violation in check(history)]


def of(*events: Event, ordered: bool = False, exactly_once: bool = False) -> History:
    return History(ordered=ordered, exactly_once=exactly_once, events=[LIMITS, *events])


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_history_in_which_all_is_well_has_no_violation(
    *, ordered: bool, exactly_once: bool
) -> None:
    history = of(
        *life("a", 0, delivery=1, key="k"),
        *given_back("b", 1, delivery=2, key="k"),
        *again("b", 2, delivery=3, key="k"),
        *life("c", 3, delivery=4, key="k"),
        *life("d", 4, delivery=5),
        Confirmed(5, 5),
        Held(5, "s", 10, 800),
        Stopping(6, "s", within=10),
        Stopped(16, "s"),
        Backlog(16, 0),
        ordered=ordered,
        exactly_once=exactly_once,
    )

    assert check(history) == []


def test_every_statement_has_a_name_and_a_docstring_that_says_it() -> None:
    for name, statement in STATEMENTS.items():
        assert (statement.__doc__ or "").startswith(f"{name}: ")


def test_a_violation_reads_as_a_sentence() -> None:
    assert str(Violation("H1", "lost", 1.5, "a")) == "H1 lost at 1.500: a"


def test_only_the_named_statements_are_tried() -> None:
    history = of(Started(0, 1, "s", "made up"), LeftOver(1, "a task"))

    assert {each.statement for each in check(history, ["H9"])} == {"H9"}
    assert {each.statement for each in check(history)} == {"H2", "H9"}


# H1


def test_a_message_that_is_neither_settled_nor_outstanding_is_lost() -> None:
    """H1: lost."""
    sent: list[Event] = [Published(0, "a"), Sent(0, "a", "a/1")]

    assert found(of(*sent, Backlog(9, 0))) == [("H1", "lost")]
    assert found(of(*sent, Backlog(9, 1))) == []


def test_a_publish_whose_outcome_is_not_known_may_be_missing() -> None:
    """H1: a publish that timed out is indeterminate."""
    assert found(of(Published(0, "a", known=False), Backlog(9, 0))) == []
    reached: list[Event] = [Published(0, "a", known=False), Sent(0, "a", "a/1")]
    assert found(of(*reached, Backlog(9, 0))) == [("H1", "lost")]


def test_a_dead_letter_is_not_lost() -> None:
    """H1: dead-lettered is accounted for."""
    history = of(*given_back("a", 0, delivery=1), DeadLettered(1, "a"), Backlog(9, 0))

    assert found(history) == []


@pytest.mark.parametrize("how", ["nack", "void"])
def test_an_ack_on_the_server_that_no_callback_made_loses_the_message(how: str) -> None:
    """H1: what a callback did not ack must not be acked."""
    settled = Settled(0.3, 1, "nack") if how == "nack" else Settled(0.3, 1, "ack", void=True)
    history = of(*life("a", 0, delivery=1)[:4], settled, ServerAck(1, "a", "a/1"), Backlog(9, 0))

    assert found(history) == [("H1", "lost")]


def test_an_ack_that_had_no_effect_leaves_the_message_outstanding() -> None:
    """H1: an ack that the server lost does not count."""
    history = of(
        *life("a", 0, delivery=1)[:-1], ServerAck(1, "a", "a/1", effective=False), Backlog(9, 0)
    )

    assert found(history) == [("H1", "lost")]


def test_without_the_servers_word_a_callbacks_ack_counts() -> None:
    """H1: on a server that tells nothing."""
    acked = History(server=False, events=[*life("a", 0, delivery=1)[:-1], Backlog(9, 0)])
    nacked = History(server=False, events=[*given_back("a", 0, delivery=1), Backlog(9, 0)])

    assert found(acked) == []
    assert found(nacked) == [("H1", "lost")]


# H2


@pytest.mark.parametrize(
    "published",
    [
        Published(0, "other"),
        Published(9, "a"),
        Published(0, "a", key="k"),
        Published(0, "a", body="else"),
    ],
)
def test_what_was_not_published_so_is_unexpected(published: Published) -> None:
    """H2: unexpected."""
    history = of(published, Started(1, 1, "s", "a"), Settled(2, 1, "ack"), Backlog(9, 1))

    assert found(history) == [("H2", "unexpected")]


# H3


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_copy_that_begins_while_the_message_is_held_is_a_duplicate(*, exactly_once: bool) -> None:
    """H3: duplicated."""
    history = of(
        Published(0, "a"),
        *life("a", 0, delivery=1)[1:4],
        Fault(0.25, 0.25, "duplicate"),
        *again("a", 0.3, delivery=2),
        Settled(1, 1, "ack"),
        Ended(1, 1),
        Backlog(9, 0),
        exactly_once=exactly_once,
    )

    assert found(history) == [("H3", "duplicated")]


@pytest.mark.parametrize(
    "let_go", [Settled(0.25, 1, "nack"), Expired(60.25, 1), Stopped(0.25, "s")]
)
def test_a_redelivery_may_begin_when_the_first_was_let_go(let_go: Event) -> None:
    """H3: it was nacked, expired, or its session has ended."""
    history = of(
        *life("a", 0, delivery=1)[:4],
        let_go,
        ServerModack(let_go.at, "a", "a/1", 0),
        *again("a", let_go.at + 1, delivery=2, session="t"),
        Ended(99, 1),
        Backlog(99, 0),
    )

    assert found(history) == []


def test_one_lease_is_not_for_two_sessions() -> None:
    """H3: no two valid leases overlap."""
    first, second = life("a", 0, delivery=1), life("a", 0, delivery=1, session="t")[3]
    assert isinstance(second, Started)
    twice = dataclasses.replace(second, delivery=2)
    history = of(*first[:4], twice, *first[4:], Settled(9, 2, "nack"), Backlog(9, 0))

    assert found(history) == [("H3", "duplicated")]


def test_with_exactly_once_nothing_begins_after_a_confirmed_ack() -> None:
    """H3: duplicated."""
    events = [
        *life("a", 0, delivery=1),
        Confirmed(0.5, 1),
        *again("a", 1, delivery=2),
        Backlog(9, 0),
    ]

    assert found(of(*events, exactly_once=True)) == [("H3", "duplicated")]
    assert found(of(*events)) == []


def test_with_exactly_once_nothing_begins_before_its_receipt_is_confirmed() -> None:
    """H3: handed over too soon."""
    events = [each for each in life("a", 0, delivery=1) if not isinstance(each, ServerModack)]

    assert found(of(*events, Backlog(9, 0), exactly_once=True)) == [("H3", "duplicated")]
    assert found(of(*events, Backlog(9, 0))) == []


# H4


def ordered(*events: Event) -> list[tuple[str, str]]:
    return found(of(*events, Backlog(99, 99), ordered=True))


def test_a_message_that_overtakes_another_is_out_of_order() -> None:
    """H4: publish order."""
    first, second = life("a", 0, delivery=1, key="k"), life("b", 0, delivery=2, key="k")
    events = [first[0], second[0], *second[1:], *first[1:]]

    assert ordered(*events) == [("H4", "out of order")]
    assert found(of(*events, Backlog(9, 0))) == []


def test_two_at_a_time_of_one_key_are_out_of_order() -> None:
    """H4: one at a time."""
    first, second = life("a", 0, delivery=1, key="k"), life("b", 1, delivery=2, key="k")
    unfinished = [each for each in first if not isinstance(each, Ended)]

    assert ordered(*unfinished, *second, Ended(9, 1)) == [("H4", "out of order")]


def test_keys_do_not_wait_for_each_other() -> None:
    """H4: order is within a key."""
    first, second = life("a", 0, delivery=1, key="k"), life("b", 0.1, delivery=2, key="l")

    assert ordered(*first[:4], *second, *first[4:]) == []


def test_a_key_goes_on_only_from_the_message_that_was_given_back() -> None:
    """H4: a redelivery restarts the key at that message."""
    nacked = given_back("a", 0, delivery=1, key="k")
    later = life("b", 1, delivery=2, key="k")

    assert ordered(*nacked, *later) == [("H4", "out of order")]
    assert ordered(*nacked, later[0], *again("a", 1, delivery=3, key="k"), *later[1:]) == []


def test_after_a_restart_the_later_ones_come_again_in_order() -> None:
    """H4: an ack that comes before that of an earlier message is undone by a restart."""
    a, b, c = (life(name, 0, delivery=at, key="k") for at, name in enumerate("abc", 1))
    unheard = [*a[:-1], *b[:-1]]  # their acks are lost
    restart = again("a", 2, delivery=4, key="k")[:-1]
    skipping = [*unheard, c[0], *restart, *again("c", 3, delivery=5, key="k")]
    in_turn = [
        *[*unheard, c[0], *restart, *again("b", 3, delivery=6, key="k")[:-1]],
        *again("c", 4, delivery=5, key="k"),
    ]

    assert ordered(*skipping) == [("H4", "out of order")]
    assert ordered(*in_turn) == []


def test_a_late_ack_does_not_open_the_key() -> None:
    """H4: an ack after the lease ended is void."""
    first, second = life("a", 0, delivery=1, key="k"), life("b", 70, delivery=2, key="k")
    late: list[Event] = [*first[:4], Expired(61, 1), Settled(62, 1, "ack", void=True), Ended(62, 1)]

    assert ordered(*late, *second) == [("H4", "out of order")]


def test_a_gap_that_a_fault_made_on_the_way_is_excused() -> None:
    """H4: what was sent and never arrived cannot be waited for."""
    events: list[Event] = [
        Published(0, "a", "k"),
        Sent(0, "a", "a/1"),
        *life("b", 1, delivery=2, key="k"),
    ]

    assert ordered(*events) == [("H4", "out of order")]
    assert ordered(*events, Fault(0, 0.5, "cut")) == []


def test_a_gap_is_judged_by_what_was_sent_before_and_by_what_has_arrived_since() -> None:
    """H4: who holds a message cannot know of an earlier one that lies unread in the stream."""
    lost: list[Event] = [Published(0, "a", "k"), Sent(0, "a", "a/1"), Fault(0, 0.5, "cut")]
    b = life("b", 1, delivery=2, key="k")
    waits = [*lost, *b[:3], Sent(10, "a", "a/2")]
    begins = [dataclasses.replace(event, at=event.at + 20) for event in b[3:]]

    assert ordered(*waits, *begins) == []
    read = [ServerModack(15, "a", "a/2", 60), *begins]
    assert ordered(*waits, *read) == [("H4", "out of order")]


def test_a_dead_letter_is_out_of_the_way_of_its_key() -> None:
    """H4: the key goes on."""
    events = given_back("a", 0, delivery=1, key="k")

    assert ordered(*events, *life("b", 2, delivery=2, key="k"), DeadLettered(1, "a")) == []


# H5


def many(count: int, *, size: int = 1) -> list[Event]:
    """So many messages are held at once."""
    return [
        event
        for number in range(count)
        for event in (
            Published(0, f"m{number}"),
            Sent(0, f"m{number}", f"m{number}/1"),
            Started(number, number, "s", f"m{number}", f"m{number}/1", size=size),
        )
    ]


def test_no_more_messages_are_held_than_the_limits_allow() -> None:
    """H5: 10 * 0.8 + 2."""
    assert found(of(*many(10), Backlog(99, 99))) == []
    assert found(of(*many(11), Backlog(99, 99))) == [("H5", "too much")]


def test_no_more_bytes_are_held_than_the_limits_allow() -> None:
    """H5: 1,000 * 0.8 + 2 * the largest."""
    assert found(of(*many(6, size=200), Backlog(99, 99))) == []
    assert found(of(*many(7, size=200), Backlog(99, 99))) == [("H5", "too much")]


def test_what_is_settled_or_expired_is_not_held() -> None:
    """H5: held is from the start to the end of a lease."""
    settled: list[Event] = [Settled(9.5, 0, "ack"), ServerAck(9.5, "m0", "m0/1")]

    assert found(of(*many(11), *settled, Backlog(99, 99))) == []
    assert found(of(*many(61)[-33:], Expired(99, 50), Backlog(99, 99))) == [("H5", "too much")]


def test_a_sessions_own_word_is_held_against_it() -> None:
    """H5: what it says that it holds."""
    assert found(of(Held(1, "s", 10, 0))) == []
    assert found(of(Held(1, "s", 11, 0))) == [("H5", "too much")]
    assert found(of(Held(1, "s", 1, 801))) == [("H5", "too much")]


def test_lower_limits_count_once_what_was_leased_before_is_over() -> None:
    """H5: limits that are changed."""
    lower = dataclasses.replace(LIMITS, at=100, max_messages=1)

    assert found(of(lower, Held(120, "s", 10, 0))) == []
    assert found(of(lower, Held(162, "s", 10, 0))) == [("H5", "too much")]


# H6


HELD: list[Event] = [
    *life("a", 0, delivery=1)[:4],
    Sent(60.5, "a", "a/2"),
    Settled(61, 1, "nack"),
    Ended(61, 1),
    Backlog(99, 1),
]


def test_a_held_lease_that_ends_on_the_server_is_a_violation() -> None:
    """H6: expired."""
    assert found(of(*HELD)) == [("H6", "expired")]


@pytest.mark.parametrize(
    "reason",
    [
        Fault(30, 31, "stall"),
        Fault(0.15, 0.15, "duplicate"),
        Expired(60.3, 1),
        Settled(0.25, 1, "drop"),
        ServerModack(60.4, "a", "a/1", 0),
        Stopped(1, "s"),
    ],
)
def test_a_lease_may_end_for_a_reason(reason: Event) -> None:
    """H6: a fault, `max_lease_duration`, or that nobody held it."""
    assert found(of(*HELD[:4], reason, *HELD[4:])) == []


def test_a_fault_before_the_last_extension_explains_nothing() -> None:
    """H6: it was extended after the fault."""
    extended = ServerModack(40, "a", "a/1", 20)

    assert found(of(*HELD, Fault(30, 31, "stall"), extended)) == [("H6", "expired")]


def test_what_lay_unread_until_its_lease_ended_was_held_by_nobody() -> None:
    """H6: a delivery that waits in a stream that is not read."""
    history = of(
        Published(0, "a"),
        Sent(0, "a", "a/1"),
        Started(20, 1, "s", "a", "a/1"),
        Sent(21, "a", "a/2"),
        Backlog(99, 1),
    )

    assert found(history) == []


def test_a_copy_that_was_taken_over_and_extended_is_held() -> None:
    """H6: the message goes on with the newer ack id."""
    taken_over: list[Event] = [
        *life("a", 0, delivery=1)[:4],
        Fault(0.2, 0.25, "duplicate"),
        Sent(0.3, "a", "a/2"),
        ServerModack(30, "a", "a/2", 60),
        Sent(90, "a", "a/3"),
        Settled(91, 1, "ack"),
        Backlog(99, 1),
    ]

    assert found(of(*taken_over)) == [("H6", "expired")]


def test_a_lease_of_an_ordered_message_ends_with_an_earlier_one_of_its_key() -> None:
    """H6: when a message is given back, so is everything after it."""
    first = given_back("a", 0, delivery=1, key="k")
    second: list[Event] = [
        Published(0.01, "b", "k"),
        Sent(0.1, "b", "b/2"),
        Started(0.5, 2, "t", "b", "b/2", "k"),
        Sent(1, "b", "b/3"),
        Settled(2, 2, "nack"),
    ]

    history = of(*first, *second, Backlog(99, 2), ordered=True)
    assert [each for each in check(history) if each.statement == "H6"] == []
    history.ordered = False
    assert found(history) == [("H6", "expired")]


def test_a_message_is_not_let_go_before_its_time() -> None:
    """H6: `max_lease_duration` has not passed."""
    events = life("a", 0, delivery=1)[:4]

    assert found(of(*events, Expired(59, 1), Backlog(99, 1))) == [("H6", "let go early")]
    assert found(of(*events, Expired(60.2, 1), Backlog(99, 1))) == []


def test_with_exactly_once_a_message_whose_lease_the_server_refuses_is_let_go() -> None:
    """H6: who is told that a lease is lost does not hold it any longer."""
    events = life("a", 0, delivery=1)[:4]
    refused = ServerModack(10, "a", "a/1", 60, effective=False)

    assert found(of(*events, refused, Expired(10, 1), Backlog(99, 1), exactly_once=True)) == []


# H9


def test_a_shutdown_that_takes_longer_than_its_timeout_is_told() -> None:
    """H9: slow to end."""
    assert found(of(Stopping(0, "s", within=5), Stopped(5, "s"))) == []
    assert found(of(Stopping(0, "s", within=5), Stopped(6, "s"))) == [("H9", "slow to end")]
    assert found(of(Stopping(0, "s", within=5))) == [("H9", "slow to end")]


def test_what_is_left_over_is_told() -> None:
    """H9: nothing is left."""
    assert found(of(LeftOver(9, "a task"))) == [("H9", "left over")]


def test_a_session_fails_only_by_a_fault() -> None:
    """H9: a failure needs a reason when it begins, not when the shutdown has ended."""
    failed = Stopped(60, "s", "ReconnectError", since=30)

    assert found(of(failed)) == [("H9", "failed")]
    assert found(of(failed, Fault(50, 60, "cut"))) == [("H9", "failed")]
    assert found(of(failed, Fault(10, 30, "cut"))) == []

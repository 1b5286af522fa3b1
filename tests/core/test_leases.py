"""What is held: told a time, the lease table says what to lease, renew and let go."""

from __future__ import annotations

import gc
import math
import os
import random
from collections import Counter
from typing import Any, ClassVar, Self

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pubsub_aio._core.leases import GATHER, RECEIPT_DELAY, RENEW_AT, Block, Due, LeaseTable
from pubsub_aio.config import FlowControl

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []


class Note:
    """A message, as far as the table knows one."""

    def __init__(self, message_id: str, size: int = 10, ack_id: str = "") -> None:
        self.message_id = message_id
        self.size = size
        self.ack_id = ack_id or f"ack {message_id}"
        self.lease: object | None = None

    def renew_with(self, copy: Self) -> None:
        self.ack_id = copy.ack_id

    def __repr__(self) -> str:
        return f"Note({self.message_id})"


Table = LeaseTable[Note]


def table_of(flow: FlowControl) -> Table:
    """A table whose allowance for received messages is as small as its limits."""
    return LeaseTable(flow, min_received=1)


def notes(*ids: object, size: int = 10) -> list[Note]:
    return [Note(str(message_id), size) for message_id in ids]


def receive(
    table: Table, messages: list[Note], *, now: float = 0.0, size: int | None = None
) -> list[Note]:
    """Have messages come together; a response is larger than what is in it."""
    if size is None:
        size = sum(message.size for message in messages) + 7 * len(messages)
    block: Block[Note] = Block(now, size)
    for message in messages:
        message.lease = block
    return table.receive(block, messages)


def take(table: Table, *, now: float = 0.0) -> list[str]:
    return [message.message_id for part in table.take(now=now) for message in part]


def leased(table: Table, messages: list[Note], *, now: float = 0.0) -> list[Note]:
    """Have messages come, and lease them."""
    receive(table, messages, now=now)
    assert take(table, now=now) == [message.message_id for message in messages]
    return messages


def ack(table: Table, *messages: Note, now: float) -> None:
    """Have messages of one block acked."""
    block = messages[0].lease
    assert isinstance(block, Block)
    for message in messages:
        message.lease = None
        block.acked.append(message)
    assert table.release_acked(block, now=now) == list(messages)


def nothing(next_at: float, extension: float = 10.0) -> Due[Note]:
    return Due(renew=[], extension=extension, expired=[], next_at=next_at)


def polled(table: Table, *, until: float) -> list[tuple[float, list[str], list[str]]]:
    """Poll whenever the table asks to; what was due, and when."""
    log = []
    while table.next_at <= until:
        now = table.next_at
        due = table.poll(now=now)
        if due.renew or due.expired:
            ids = [message.message_id for message in due.renew]
            log.append((round(now, 6), ids, [message.message_id for message in due.expired]))
    return log


# How much is leased


def test_what_came_is_received_and_then_leased() -> None:
    """R25: what came is kept until the end of its life."""
    table = table_of(FlowControl())
    receive(table, notes("a", "b", size=10), size=50)

    assert (table.received, table.received_bytes, table.leased) == (2, 50, 0)
    assert take(table) == ["a", "b"]
    assert (table.received, table.received_bytes, table.leased) == (0, 0, 2)
    assert table.leased_bytes == 20


@pytest.mark.parametrize(("held", "may"), [(0, True), (3, True), (4, False), (5, False)])
def test_more_is_leased_only_below_the_threshold_of_messages(held: int, may: bool) -> None:
    """G15: strictly fewer than `resume_threshold * max_messages`."""
    table = table_of(FlowControl(max_messages=5, max_request_batch_size=5))
    leased(table, notes(*range(held)))
    receive(table, notes("more"), now=1.0)

    assert table.has_room() is may
    assert take(table, now=1.0) == ["more"] * may


@pytest.mark.parametrize(("held", "may"), [(79, True), (80, False), (81, False)])
def test_more_is_leased_only_below_the_threshold_of_bytes(held: int, may: bool) -> None:
    """G15: strictly fewer than `resume_threshold * max_bytes`, by the sizes of the messages."""
    table = table_of(FlowControl(max_bytes=100))
    leased(table, notes("a", size=held))
    receive(table, notes("more"), now=1.0)

    assert table.has_room() is may
    assert take(table, now=1.0) == ["more"] * may


def test_what_a_response_takes_beyond_its_messages_does_not_count() -> None:
    """G15: what is held are messages."""
    table = table_of(FlowControl(max_bytes=100))
    receive(table, notes("a", size=79), size=5_000)
    take(table)

    assert table.has_room()
    assert table.leased_bytes == 79


def test_settling_makes_room_in_both_limits() -> None:
    """G15: what is settled counts no more."""
    table = table_of(FlowControl(max_messages=5, max_bytes=100))
    held = leased(table, notes(*range(4), size=30))
    assert not table.has_room()
    table.release(held[0])
    assert not table.has_room()
    table.release(held[1])

    assert table.has_room()
    assert (table.leased, table.leased_bytes) == (2, 60)


@pytest.mark.parametrize("threshold", [0.01, 0.1, 1 / 3, 0.5, 0.7, 0.8, 0.99, 1.0])
def test_the_peak_of_messages_is_that_of_the_seed(threshold: float) -> None:
    """G16: at most `max_messages * resume_threshold + max_request_batch_size`, exhaustively."""
    for max_messages in range(1, 60):
        for batch in range(1, 30):
            flow = FlowControl(
                max_messages=max_messages,
                resume_threshold=threshold,
                max_request_batch_size=batch,
            )
            table = table_of(flow)
            most_with_room = math.ceil(threshold * max_messages) - 1
            receive(table, notes(*range(most_with_room)))
            take(table)
            assert table.leased == most_with_room
            receive(table, notes(*range(100, 100 + 2 * batch)), now=1.0)
            take(table, now=1.0)  # the worst case: a full round begins with the last room

            assert table.leased == most_with_room + batch
            assert table.leased <= max_messages * threshold + batch
            assert table.leased <= flow.max_outstanding_messages


@given(
    flow=st.builds(
        FlowControl,
        max_messages=st.integers(1, 60),
        max_bytes=st.integers(1, 2_000),
        resume_threshold=st.floats(0.01, 1.0),
        max_request_batch_size=st.integers(1, 30),
        max_request_batch_latency=st.sampled_from([0.0, 0.01, 5.0]),
    ),
    arrivals=st.lists(
        st.tuples(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.floats(0, 2)),
        max_size=12,
    ),
    chance=st.randoms(use_true_random=False),
)
@settings(max_examples=200, deadline=None)
def test_the_peaks_hold_whatever_comes_and_is_settled(
    flow: FlowControl, arrivals: list[tuple[list[int], float]], chance: random.Random
) -> None:
    """G16, G17: count and bytes, with the largest message, at any time."""
    table = table_of(flow)
    largest = max((max(sizes) for sizes, _ in arrivals), default=0)
    batch, threshold = flow.max_request_batch_size, flow.resume_threshold
    held: list[Note] = []
    now = 0.0
    for number, (sizes, pause) in enumerate(arrivals):
        now += pause
        receive(table, [Note(f"{number}.{n}", size) for n, size in enumerate(sizes)], now=now)
        held += [message for part in table.take(now=now) for message in part]

        assert len(held) == table.leased
        assert len(held) <= flow.max_messages * threshold + batch
        total = sum(message.size for message in held)
        assert total <= flow.max_bytes * threshold + batch * largest
        for message in chance.sample(held, chance.randint(0, len(held))):
            held.remove(message)
            table.release(message)


def test_the_lesser_limit_rules() -> None:
    """G18: whichever of the two limits is reached first."""
    by_count = table_of(FlowControl(max_messages=10, max_bytes=10_000, max_request_batch_size=1))
    by_bytes = table_of(FlowControl(max_messages=1_000, max_bytes=50, max_request_batch_size=1))
    for table in (by_count, by_bytes):
        receive(table, notes(*range(100), size=10))
        take(table)

    assert (by_count.leased, by_count.leased_bytes) == (8, 80)
    assert (by_bytes.leased, by_bytes.leased_bytes) == (4, 40)


def test_a_message_above_the_limit_of_bytes_is_leased_alone() -> None:
    """G17: a round is of one message at least."""
    table = table_of(FlowControl(max_bytes=100, max_request_batch_size=1))
    receive(table, notes("large", "next", size=1_000))

    assert take(table) == ["large"]
    assert table.overflow() == []


# Rounds


def rounds_of(batch: int, latency: float) -> Table:
    """A table in which a round may begin while fewer than five are leased."""
    return table_of(
        FlowControl(
            max_messages=10,
            resume_threshold=0.5,
            max_request_batch_size=batch,
            max_request_batch_latency=latency,
        )
    )


def test_a_round_is_one_message_at_least_and_a_batch_at_most() -> None:
    """G19: the first is waited for, then up to a batch."""
    table = rounds_of(batch=3, latency=0.1)
    leased(table, notes(*range(4)), now=0.0)
    assert take(table, now=1.0) == []
    receive(table, notes("a", "b", "c", "d"), now=1.0)

    assert take(table, now=1.0) == ["a", "b", "c"]


def test_a_round_stays_open_within_the_latency() -> None:
    """G19: those that come within it are of the same round, although there is no more room."""
    table = rounds_of(batch=4, latency=0.1)
    leased(table, notes(*range(4)), now=0.0)
    leased(table, notes("a"), now=1.0)
    assert not table.has_room()
    receive(table, notes("b"), now=1.05)
    assert take(table, now=1.05) == ["b"]
    receive(table, notes("c", "d", "e"), now=1.1)

    assert take(table, now=1.1) == ["c", "d"]


def test_a_round_is_over_after_the_latency() -> None:
    """G19: then there must be room again."""
    table = rounds_of(batch=4, latency=0.1)
    leased(table, notes(*range(4)), now=0.0)
    held = leased(table, notes("a"), now=1.0)
    receive(table, notes("b"), now=1.11)
    assert take(table, now=1.11) == []
    table.release(held[0])

    assert take(table, now=1.11) == ["b"]


@given(
    count=st.integers(1, 300), batch=st.integers(1, 100), latency=st.sampled_from([0.0, 0.01, 60])
)
def test_no_message_waits_while_there_is_room(count: int, batch: int, latency: float) -> None:
    """G19: the latency bounds a round, never a message's wait."""
    flow = FlowControl(
        max_messages=500, max_request_batch_size=batch, max_request_batch_latency=latency
    )
    table = table_of(flow)
    messages = notes(*range(count))
    for start in range(0, count, 7):
        part = messages[start : start + 7]
        receive(table, part, now=start / 1_000)
        assert take(table, now=start / 1_000) == [message.message_id for message in part]


def test_messages_are_leased_in_the_order_they_came() -> None:
    table = table_of(FlowControl(max_messages=4, max_request_batch_size=2))
    receive(table, notes(*range(5)))
    receive(table, notes(*range(5, 10)))
    order: list[str] = []
    while taken := [message for part in table.take(now=0) for message in part]:
        order += [message.message_id for message in taken]
        for message in taken:
            table.release(message)

    assert order == [str(n) for n in range(10)]


def test_new_limits_count_at_once() -> None:
    """G8: a flow control can be changed while messages are held."""
    table = table_of(FlowControl(max_messages=10, max_request_batch_size=1))
    receive(table, notes(*range(40)))
    assert len(take(table)) == 8
    table.flow = FlowControl(max_messages=20, max_request_batch_size=1)
    assert len(take(table)) == 8
    table.flow = FlowControl(max_messages=5, max_request_batch_size=1)

    assert take(table) == []
    assert not table.has_room()


def test_an_open_round_ends_with_the_limits_that_it_began_under() -> None:
    table = rounds_of(batch=100, latency=60.0)
    leased(table, notes(*range(5)))
    table.flow = FlowControl(max_messages=1)
    receive(table, notes("more"))

    assert take(table) == []


def test_what_stands_for_many_counts_for_many() -> None:
    table = table_of(FlowControl(max_messages=100))
    batches = notes("a", "b")
    for batch in batches:
        block: Block[Note] = Block(0.0, 10, weight=60)
        batch.lease = block
        table.receive(block, [batch])
    assert table.received == 120

    assert take(table) == ["a", "b"]  # of one round
    assert (table.received, table.leased) == (0, 120)
    assert not table.has_room()
    table.release(batches[0])
    assert table.leased == 60


# Settling


def test_a_message_is_settled_once() -> None:
    """G24, G25: after the first time there is nothing to settle."""
    table = table_of(FlowControl())
    first, second = leased(table, notes("a", "b"))
    block = first.lease

    assert table.release(first) is block
    assert (first.lease, second.lease) == (None, block)
    assert table.release(first) is None
    assert (table.leased, table.leased_bytes) == (1, 10)


def test_every_unsettled_message_counts() -> None:
    """G22: whoever is neither acked nor nacked counts against the limits."""
    table = table_of(FlowControl(max_lease_duration=100))
    held = leased(table, notes(*range(20)))
    polled(table, until=99)
    for message in held[:5]:
        table.release(message)

    assert table.leased == 15
    assert table.held() == held[5:]
    assert table.leased_bytes == 150


def test_what_waits_is_given_back_and_what_is_leased_is_not() -> None:
    table = table_of(FlowControl(max_messages=1, max_request_batch_size=2))
    messages = notes(*range(5))
    receive(table, messages[:4])
    receive(table, messages[4:])
    assert take(table) == ["0", "1"]

    assert table.give_back() == messages[2:]
    assert [message.lease for message in messages[2:]] == [None] * 3
    assert (table.received, table.received_bytes, table.leased) == (0, 0, 2)
    assert table.held() == messages[:2]
    assert table.give_back() == []


def test_some_of_what_waits_can_be_withdrawn() -> None:
    """H4: later messages of a key whose message was given back."""
    table = table_of(FlowControl(max_messages=1, max_request_batch_size=2))
    messages = notes(*"ababab")
    for n, message in enumerate(messages):
        message.message_id += str(n)
    receive(table, messages[:5])
    receive(table, messages[5:])
    assert take(table) == ["a0", "b1"]

    assert table.withdraw(lambda one: one.message_id.startswith("b")) == [messages[3], messages[5]]
    assert [message.lease is None for message in messages] == [
        *(False, False, False, True, False),
        True,
    ]
    assert (table.received, table.received_bytes, table.leased) == (2, 20, 2)
    assert table.release(messages[3]) is None
    table.release(messages[0])
    table.release(messages[1])
    assert take(table) == ["a2", "a4"]
    assert table.withdraw(lambda _: True) == []
    assert receive(table, notes("b3")) == []


def test_held_messages_come_the_oldest_first() -> None:
    table = table_of(FlowControl(max_request_batch_size=3))
    messages = notes(*range(40))
    receive(table, messages[:30])
    receive(table, messages[30:], now=1.0)
    take(table, now=1.0)

    assert table.held() == messages
    polled(table, until=5.0)
    assert table.held() == messages


def test_messages_that_wait_are_not_held() -> None:
    table = table_of(FlowControl(max_messages=1, max_request_batch_size=1))
    messages = notes(*range(3))
    receive(table, messages)
    take(table)

    assert table.held() == messages[:1]


# The bound of what waits


def test_as_much_may_wait_as_may_be_leased() -> None:
    """R28: what waits to be leased is bounded."""
    flow = FlowControl(max_messages=10, max_request_batch_size=2)
    table = table_of(flow)
    receive(table, notes(*range(20)))
    take(table)
    assert (table.leased, table.received) == (8, 12)
    messages = notes("a", "b", "c")
    receive(table, messages)

    returned = table.overflow()

    assert table.received <= flow.max_outstanding_messages == 10
    assert returned[-3:] == messages
    assert [message.lease for message in returned] == [None] * len(returned)
    assert table.leased == 8
    assert table.overflow() == []


def test_a_server_that_keeps_to_its_limits_has_nothing_given_back() -> None:
    """R28: what it was told may wait."""
    flow = FlowControl(max_messages=10, max_request_batch_size=2)
    table = table_of(flow)
    receive(table, notes(*range(flow.max_outstanding_messages)))

    assert table.overflow() == []


def test_bytes_that_wait_are_bounded_too() -> None:
    table = table_of(FlowControl(max_messages=10, max_bytes=100, max_request_batch_size=1))
    leased(table, notes("large", size=500))
    messages = notes(*range(8), size=30)
    for message in messages:
        receive(table, [message], size=30)

    assert table.overflow() == messages[3:]
    assert (table.received, table.received_bytes) == (3, 90)


def test_one_message_may_always_wait() -> None:
    table = table_of(FlowControl(max_bytes=100))
    leased(table, notes("held", size=500))
    receive(table, notes("large", size=500))

    assert table.overflow() == []
    assert table.received == 1


@given(
    blocks=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=30), min_size=1, max_size=8),
    flow=st.builds(
        FlowControl,
        max_messages=st.integers(1, 30),
        max_bytes=st.integers(1, 500),
        max_request_batch_size=st.integers(1, 10),
    ),
)
@settings(max_examples=200, deadline=None)
def test_overflow_lets_go_of_the_last_and_of_no_more_than_it_must(
    blocks: list[list[int]], flow: FlowControl
) -> None:
    """R28: within the bounds afterwards, and what was given back came after what was kept."""
    table = table_of(flow)
    waiting: list[Note] = []
    for number, sizes in enumerate(blocks):
        messages = [Note(f"{number}.{n}", size) for n, size in enumerate(sizes)]
        receive(table, messages, size=sum(sizes))
        waiting += messages
    total, count = sum(message.size for message in waiting), len(waiting)
    fits = count <= flow.max_outstanding_messages and (total <= flow.max_bytes or count == 1)

    returned = table.overflow()

    kept = waiting[: count - len(returned)]
    assert kept + returned == waiting
    assert kept
    assert not (fits and returned)
    assert (table.received, table.received_bytes) == (len(kept), sum(m.size for m in kept))
    assert len(kept) <= flow.max_outstanding_messages
    assert table.received_bytes <= flow.max_bytes or len(kept) == 1
    assert all((message.lease is None) == (message in returned) for message in waiting)


# Time


def test_a_message_is_extended_soon_after_it_came_and_then_in_time() -> None:
    """G23: a held message is renewed before its ack deadline passes, again and again."""
    table = table_of(FlowControl(max_lease_duration=25))
    held = leased(table, notes("a"))

    assert table.next_at == RECEIPT_DELAY
    assert table.poll(now=0.05) == nothing(0.1)
    assert table.poll(now=0.1) == Due(renew=held, extension=10.0, expired=[], next_at=6.1)
    assert table.poll(now=5.0) == nothing(6.1)
    assert table.poll(now=6.1) == Due(renew=held, extension=10.0, expired=[], next_at=12.1)
    assert polled(table, until=24) == [(12.1, ["a"], []), (18.1, ["a"], [])]
    assert table.poll(now=24.1) == Due(renew=held, extension=10.0, expired=[], next_at=25.0)
    assert table.poll(now=25.0) == Due(renew=[], extension=10.0, expired=held, next_at=math.inf)
    assert (table.leased, table.leased_bytes, held[0].lease) == (0, 0, None)


def test_what_is_settled_at_once_is_never_extended() -> None:
    table = table_of(FlowControl())
    for message in leased(table, notes(*range(5))):
        table.release(message)

    assert polled(table, until=3_600) == []
    assert table.next_at == math.inf


def test_what_is_settled_is_not_renewed_any_more() -> None:
    """G24: ack removes at once."""
    table = table_of(FlowControl())
    held = leased(table, notes("a", "b", "c"))
    assert polled(table, until=1) == [(0.1, ["a", "b", "c"], [])]
    table.release(held[1])
    assert polled(table, until=7) == [(6.1, ["a", "c"], [])]
    table.release(held[0])
    table.release(held[2])

    assert polled(table, until=7_200) == []
    assert table.next_at == math.inf


def test_what_waits_to_be_leased_is_kept_alive_and_does_not_expire() -> None:
    """G26: the duration counts from when a message was leased."""
    flow = FlowControl(max_messages=1, max_request_batch_size=1, max_lease_duration=10)
    table = table_of(flow)
    first, second = notes("a", "b")
    receive(table, [first, second])
    take(table)

    assert polled(table, until=11) == [
        (0.1, ["b", "a"], []),
        (6.1, ["b", "a"], []),
        (10, [], ["a"]),
    ]
    assert take(table, now=11) == ["b"]
    assert polled(table, until=30) == [(12.1, ["b"], []), (18.1, ["b"], []), (21.0, [], ["b"])]


def test_what_waited_long_and_is_leased_in_parts_is_renewed_on() -> None:
    """G23: and how long it took is known when it is acked."""
    table = table_of(FlowControl(max_messages=1, max_request_batch_size=1))
    first, second, third, fourth = notes("a", "b", "c", "d")
    receive(table, [first, second, third, fourth])
    take(table)
    polled(table, until=3)
    table.release(first)
    assert take(table, now=3) == ["b"]

    assert [(at, sorted(ids)) for at, ids, _ in polled(table, until=15)] == [
        (6.1, ["b", "c", "d"]),
        (12.1, ["b", "c", "d"]),
    ]
    table.release(second)
    assert take(table, now=15) == ["c"]
    ack(table, third, now=15.0)
    assert table.ack_times.percentile() == 15.0


@pytest.mark.parametrize("duration", [0.001, 0.04, 0.05, 0.06, 0.1, 0.15, 1, 6.1, 9, 25, 3_600])
@pytest.mark.parametrize("wait", [0.0, 0.03, 0.07, 4.0, 6.05])
def test_a_lease_ends_exactly_when_its_duration_has_passed(duration: float, wait: float) -> None:
    """G26: `max_lease_duration` after it was leased, not sooner and not later."""
    table = table_of(FlowControl(max_lease_duration=duration))
    receive(table, notes("a"))
    polled(table, until=wait)
    assert take(table, now=wait) == ["a"]

    log = polled(table, until=10_000)

    assert [(at, expired) for at, _, expired in log if expired] == [
        (round(wait + duration, 6), ["a"])
    ]
    assert (table.leased, table.next_at) == (0, math.inf)


def test_expired_messages_count_no_more_and_cannot_be_settled() -> None:
    """G26: the slot is free, and a later ack is a no-op."""
    table = table_of(FlowControl(max_messages=1, max_request_batch_size=1, max_lease_duration=5))
    held = leased(table, notes("a"))
    receive(table, notes("b"))
    assert take(table) == []
    assert polled(table, until=5)[-1] == (5, [], ["a"])

    assert take(table, now=5) == ["b"]
    assert table.release(held[0]) is None
    assert table.leased == 1


def test_a_late_poll_lets_go_of_what_is_over_and_renews_the_rest() -> None:
    """G26: after the loop was blocked."""
    table = table_of(FlowControl(max_lease_duration=25))
    old = leased(table, notes("old"))
    young = leased(table, notes("young"), now=20.0)

    polled(table, until=21.0)

    assert table.poll(now=40.0) == Due(renew=young, extension=10.0, expired=old, next_at=45.0)


def test_renewals_that_fall_due_together_go_together() -> None:
    table = table_of(FlowControl())
    for n in range(5):
        polled(table, until=n * 0.04)
        leased(table, notes(n), now=n * 0.04)

    polled(table, until=3)
    again = polled(table, until=9)
    assert [(at, sorted(ids)) for at, ids, _ in again] == [(6.1, ["0", "1", "2", "3", "4"])]


def test_a_lease_does_not_end_early_to_go_with_others() -> None:
    table = table_of(FlowControl(max_lease_duration=6.2))
    leased(table, notes("a"))
    table.poll(now=0.05)
    table.poll(now=0.1)

    assert table.poll(now=6.1).expired == []
    assert [m.message_id for m in table.poll(now=6.2).expired] == ["a"]


def test_a_longer_lease_is_not_ended_by_a_shorter_setting() -> None:
    """G13: a lease keeps the duration that it began with."""
    table = table_of(FlowControl(max_lease_duration=100))
    leased(table, notes("a"))
    table.flow = FlowControl(max_lease_duration=50)
    leased(table, notes("b"))

    ends = [(at, expired) for at, _, expired in polled(table, until=1_000) if expired]
    assert ends == [(50.0, ["b"]), (100.0, ["a"])]


def test_the_extension_follows_the_ack_times() -> None:
    """G23: messages that take long are extended by more at a time."""
    table = table_of(FlowControl())
    (slow,) = leased(table, notes("slow"))
    polled(table, until=100)
    ack(table, slow, now=100.0)
    leased(table, notes("a"), now=100.0)

    assert table.poll(now=100.05).extension == 100.0
    assert polled(table, until=200) == [(100.1, ["a"], []), (100.1 + 100 * RENEW_AT, ["a"], [])]


def test_a_deadline_that_was_moved_closer_is_renewed_in_time() -> None:
    """H6: by the user, or by a copy that is held for less time than the first was."""
    table = table_of(FlowControl(min_duration_per_lease_extension=100))
    (a,) = leased(table, notes("a"))
    assert polled(table, until=1) == [(2 * RECEIPT_DELAY, ["a"], [])]

    table.renew_within(50, a, now=60)  # it is renewed sooner as it is
    assert table.next_at == pytest.approx(2 * RECEIPT_DELAY + 100 * RENEW_AT)
    table.renew_within(10, a, now=20)
    assert table.next_at == 20 + 10 * RENEW_AT
    table.flow = FlowControl(max_lease_duration=1_000)
    assert [at for at, _, _ in polled(table, until=40)] == [26, 32, 38]


def test_a_message_that_is_not_held_is_not_renewed() -> None:
    table = table_of(FlowControl())
    (a,) = leased(table, notes("a"))
    table.release(a)
    before = table.next_at
    table.renew_within(0.001, a, now=0)
    assert table.next_at == before


def test_with_exactly_once_a_lease_is_extended_by_a_minute_at_least() -> None:
    table = table_of(FlowControl())
    table.exactly_once = True
    leased(table, notes("a"))

    assert table.poll(now=0.05).extension == 60.0
    assert table.poll(now=0.1).next_at == pytest.approx(36.1)


def test_what_is_acked_and_not_counted_yet_is_held_still() -> None:
    """G15: counted later, it counts once; also if sizes were looked at meanwhile."""
    table = table_of(FlowControl(max_bytes=30))
    one, two, three = leased(table, notes("a", "b", "c", size=10))
    block = one.lease
    assert isinstance(block, Block)
    for message in (one, two):
        message.lease = None
        block.acked.append(message)
    assert (table.leased, table.leased_bytes) == (3, 30)
    assert not table.has_room()

    assert table.release_acked(block, now=1.0) == [one, two]
    assert (table.leased, table.leased_bytes) == (1, 10)
    assert table.has_room()

    table.release(three)
    assert (table.leased, table.leased_bytes) == (0, 0)


@pytest.mark.parametrize("together", [True, False])
def test_quick_acks_count_among_the_ack_times(together: bool) -> None:
    """One slow message among many quick ones does not lengthen the extension."""
    table = table_of(FlowControl())
    slow, *quick = messages = notes(*range(200))
    for part in [messages] if together else [[message] for message in messages]:
        leased(table, part)
    for message in quick:
        table.release(message)
    polled(table, until=300)
    ack(table, slow, now=300.0)

    assert table.ack_times.percentile() == 10.0


def test_what_is_given_back_unread_is_no_quick_ack() -> None:
    """The percentile is that of observed ack times, also under a server that sends too much."""
    table = table_of(FlowControl(max_messages=1, max_request_batch_size=1))
    table.ack_times.add(300.0, count=5)
    receive(table, notes(*range(2_000)))
    take(table)
    table.overflow()
    table.give_back()

    assert table.ack_times.percentile() == 300.0


# Copies


def test_a_copy_of_a_held_message_is_recognised() -> None:
    """G22: it is one message still, and is settled by the newer ack id."""
    table = table_of(FlowControl())
    (held,) = leased(table, notes("a"))
    copy, new = Note("a", ack_id="newer"), Note("b")

    assert receive(table, [copy, new], now=1.0) == [copy]
    assert (held.ack_id, copy.lease) == ("newer", None)
    assert take(table, now=1.0) == ["b"]
    assert (table.leased, table.leased_bytes) == (2, 20)


def test_a_copy_of_a_message_that_waits_is_recognised() -> None:
    table = table_of(FlowControl())
    receive(table, notes("a"))
    copy = Note("a", ack_id="newer")

    assert receive(table, [copy]) == [copy]
    assert take(table) == ["a"]
    assert table.held()[0].ack_id == "newer"


def test_copies_within_one_response_are_recognised() -> None:
    table = table_of(FlowControl())
    first, second, third = (Note("a", ack_id=ack_id) for ack_id in ("1", "2", "3"))

    assert receive(table, [first, second, third]) == [second, third]
    assert take(table) == ["a"]
    assert (first.ack_id, table.leased, table.leased_bytes) == ("3", 1, 10)


def test_a_message_that_was_settled_may_come_again() -> None:
    """G25: a nacked message is new when it comes again."""
    table = table_of(FlowControl())
    first, _ = leased(table, notes("a", "b"))
    table.release(first)

    assert receive(table, notes("a")) == []
    assert take(table) == ["a"]


def test_a_message_that_came_again_is_held_until_it_is_settled_itself() -> None:
    """G25: whatever becomes of the response that brought it first."""
    table = table_of(FlowControl())
    first, neighbour = leased(table, notes("a", "b"))
    table.release(first)
    (again,) = leased(table, notes("a"))
    table.release(neighbour)
    copy = Note("a", ack_id="newer")

    assert receive(table, [copy]) == [copy]
    assert again.ack_id == "newer"


def test_a_message_that_was_nacked_twice_is_known_by_its_copy() -> None:
    """G25: while a neighbour of its first delivery is held, and when that is settled."""
    table = table_of(FlowControl())
    first, neighbour = leased(table, notes("a", "b"))
    table.release(first)
    (second,) = leased(table, notes("a"))
    table.release(second)
    leased(table, notes("a"))
    table.release(neighbour)
    copy = Note("a")

    assert receive(table, [copy]) == [copy]


def test_an_expired_message_is_new_when_it_comes_again() -> None:
    """G26: it is handed over again, to a callback of its own."""
    table = table_of(FlowControl(max_lease_duration=5))
    leased(table, notes("a"))
    polled(table, until=5)

    assert receive(table, notes("a"), now=6.0) == []
    assert take(table, now=6.0) == ["a"]


class Name(str):  # noqa: SLOT000 - with slots the collector would not know it
    """An id that the garbage collector knows."""


def test_settled_messages_are_not_kept() -> None:
    """Every buffer has a bound, also after a copy came."""
    table = table_of(FlowControl())
    (held,) = leased(table, notes("held"))
    assert len(receive(table, notes("held"))) == 1
    for n in range(5_000):
        for message in leased(table, [Note(Name(n))]):
            table.release(message)
        table.poll(now=n * 0.01)
    del message

    gc.collect()
    alive = Counter(type(one) for one in gc.get_objects())
    assert alive[Note] < 2_500
    assert alive[Name] < 2_500
    assert held.lease is not None


def test_what_is_settled_at_once_leaves_nothing_behind() -> None:
    table = table_of(FlowControl())
    for n in range(10):
        for message in leased(table, notes(n), now=n * 0.001):
            table.release(message)
    del message

    gc.collect()
    assert not any(isinstance(one, Block) for one in gc.get_objects())
    assert table.held() == []


def test_settled_blocks_are_forgotten_when_their_time_comes() -> None:
    table = table_of(FlowControl())
    for n in range(500):
        (message,) = leased(table, notes(n), now=float(n))
        polled(table, until=n + 0.5)
        table.release(message)

    gc.collect()
    blocks = sum(isinstance(one, Block) for one in gc.get_objects())
    assert blocks < 20


# Many leases


class Watched(Note):
    """A message that counts how often it is looked at."""

    looks: ClassVar[Counter[str]] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in ("lease", "size", "message_id"):
            Watched.looks[name] += 1
        return super().__getattribute__(name)


def watched(count: int, *, blocks: int) -> tuple[Table, list[list[Watched]]]:
    """A table with leased messages, one block each second."""
    flow = FlowControl(max_messages=2 * count, max_request_batch_size=count)
    table = table_of(flow)
    size = count // blocks
    parts = [[Watched(f"{n}.{m}") for m in range(size)] for n in range(blocks)]
    for n, part in enumerate(parts):
        receive(table, [*part], now=n * 0.001, size=size * 20)
        table.take(now=n * 0.001)
    Watched.looks.clear()
    return table, parts


def test_a_poll_looks_only_at_what_is_due() -> None:
    """100,000 leases: before anything is due nothing is looked at, and then each message once."""
    table, _ = watched(100_000, blocks=1_000)
    assert table.leased == 100_000
    for n in range(49):
        assert table.poll(now=n * 0.001).renew == []
    assert not Watched.looks

    renewed = sum(len(ids) for _, ids, _ in polled(table, until=3.0))
    assert renewed == 100_000
    assert Watched.looks["lease"] == 100_000
    Watched.looks.clear()
    for n in range(300, 580):
        assert table.poll(now=n * 0.01).renew == []
    assert not Watched.looks


def test_settling_looks_only_at_the_message_itself() -> None:
    """100,000 leases settled in any order, with polls between: a few looks for each."""
    table, parts = watched(100_000, blocks=1_000)
    messages = [message for part in parts for message in part]
    random.Random(1).shuffle(messages)  # noqa: S311 - any order will do
    renewed = 0
    for n, message in enumerate(messages):
        table.release(message)
        if n % 1_000 == 0:
            renewed += len(table.poll(now=n * 0.0003).renew)

    assert table.leased == 0
    assert Watched.looks["lease"] <= 100_000 + 2 * renewed + 100_000
    assert Watched.looks["size"] <= 100_000
    assert Watched.looks["message_id"] == 0


def test_a_block_of_which_little_is_left_costs_little() -> None:
    """A renewal looks at what was settled since the last one, and never again."""
    table, parts = watched(100_000, blocks=1_000)
    polled(table, until=3.0)
    for part in parts:
        for message in part[1:]:
            table.release(message)
    polled(table, until=9.0)
    Watched.looks.clear()
    renewed = sum(len(ids) for _, ids, _ in polled(table, until=15.0))

    assert renewed == 1_000
    assert Watched.looks["lease"] == 1_000


def test_copies_do_not_make_everything_be_looked_at_again_and_again() -> None:
    table, parts = watched(20_000, blocks=200)
    for n, part in enumerate(parts):
        copies: list[Note] = [Watched(message.message_id) for message in part[:5]]
        Watched.looks["message_id"] -= 5
        assert receive(table, copies, now=1.0) == copies
        assert table.received == 0, n

    assert Watched.looks["message_id"] <= 20_000 + 5 * 200 * 5


def test_the_limit_of_bytes_does_not_make_everything_be_looked_at_again_and_again() -> None:
    flow = FlowControl(max_messages=100_000, max_bytes=100_000)
    table = table_of(flow)
    Watched.looks.clear()
    held: list[Note] = []
    for n in range(500):
        receive(table, [Watched(f"{n}.{m}") for m in range(20)], size=5_000)
        held += [message for part in table.take(now=n * 0.001) for message in part]
        while len(held) > 5_000:
            table.release(held.pop())
            table.has_room()

    assert Watched.looks["size"] <= 5 * 500 * 20


# Against a model


class Record:
    """What the model knows of a message."""

    def __init__(self, message: Note, now: float) -> None:
        self.message = message
        self.ack_id = message.ack_id
        self.expires_at = math.inf
        self.covered_until = now + 2 * RECEIPT_DELAY
        self.renew_from = now + RECEIPT_DELAY


sizes = st.integers(1, 50)
flows = st.builds(
    FlowControl,
    max_messages=st.sampled_from([1, 3, 10, 1_000]),
    max_bytes=st.sampled_from([50, 200, 10_000]),
    resume_threshold=st.sampled_from([0.1, 0.5, 0.8, 1.0]),
    max_request_batch_size=st.sampled_from([1, 2, 3, 10]),
    max_request_batch_latency=st.sampled_from([0.0, 0.01, 1.0]),
    max_lease_duration=st.sampled_from([0.02, 0.08, 0.3, 5.0, 20.0, 600.0]),
)


class LeasesAgainstModel(RuleBasedStateMachine):
    """Every message by itself, in lists: slow, and easy to believe."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.count = 0
        self.waiting: list[Record] = []
        self.leased: list[Record] = []
        self.settled: list[Note] = []

    @initialize(flow=flows)
    def begin(self, flow: FlowControl) -> None:
        self.table = table_of(flow)
        self.flow = flow
        self.round_left, self.round_ends_at = 0, -math.inf

    @property
    def known(self) -> list[Record]:
        return self.leased + self.waiting

    # What comes

    @rule(
        new=st.lists(sizes, max_size=6),
        again=st.lists(st.integers(0, 50), max_size=2),
        copies=st.lists(st.integers(0, 50), max_size=2),
        spare=st.integers(0, 30),
        order=st.randoms(use_true_random=False),
    )
    def receive(
        self,
        new: list[int],
        again: list[int],
        copies: list[int],
        spare: int,
        order: random.Random,
    ) -> None:
        came: list[Note] = []
        for size in new:
            self.count += 1
            came.append(Note(f"m{self.count}", size))
        for pick in again:
            if self.settled:
                old = self.settled[pick % len(self.settled)]
                came.append(Note(old.message_id, old.size, self._ack_id()))
        for pick in copies:
            if self.known:
                held = self.known[pick % len(self.known)].message
                came.append(Note(held.message_id, held.size, self._ack_id()))
        assume(came)
        order.shuffle(came)
        holders = {record.message.message_id: record for record in self.known}
        expected: list[Note] = []
        for message in came:
            if holder := holders.get(message.message_id):
                expected.append(message)
                holder.ack_id = message.ack_id
            else:
                holders[message.message_id] = record = Record(message, self.now)
                self.waiting.append(record)
        size = sum(message.size for message in came) + spare

        assert receive(self.table, came, now=self.now, size=size) == expected
        for copy in expected:
            assert copy.lease is None
        for record in self.known:
            assert record.message.ack_id == record.ack_id

    def _ack_id(self) -> str:
        self.count += 1
        return f"ack {self.count}"

    @rule()
    def take(self) -> None:
        expected: list[Note] = []
        while self.waiting:
            if self.now > self.round_ends_at or not self.round_left:
                if not self._room():
                    break
                self.round_left = self.flow.max_request_batch_size
                self.round_ends_at = self.now + self.flow.max_request_batch_latency
            self.round_left -= 1
            record = self.waiting.pop(0)
            record.expires_at = self.now + self.flow.max_lease_duration
            self.leased.append(record)
            expected.append(record.message)
        taken = [message for part in self.table.take(now=self.now) for message in part]

        assert taken == expected

    def _room(self) -> bool:
        held = sum(record.message.size for record in self.leased)
        part = self.flow.resume_threshold
        return (
            len(self.leased) < part * self.flow.max_messages and held < part * self.flow.max_bytes
        )

    @rule(flow=flows)
    def change_limits(self, flow: FlowControl) -> None:
        self.table.flow = self.flow = flow
        self.round_left, self.round_ends_at = 0, -math.inf

    @rule(exactly_once=st.booleans())
    def change_delivery(self, exactly_once: bool) -> None:
        self.table.exactly_once = exactly_once

    # What is let go

    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=5), acked=st.booleans())
    def settle(self, picks: list[int], acked: bool) -> None:
        for pick in picks:
            if self.leased:
                record = self.leased.pop(pick % len(self.leased))
                if acked:
                    ack(self.table, record.message, now=self.now)
                else:
                    assert self.table.release(record.message) is not None
                self.settled.append(record.message)

    @rule(pick=st.integers(0, 50))
    @precondition(lambda self: self.settled)
    def settle_again(self, pick: int) -> None:
        assert self.table.release(self.settled[pick % len(self.settled)]) is None

    @rule()
    def overflow(self) -> None:
        returned = self.table.overflow()
        waiting = [record.message for record in self.waiting]
        kept = len(waiting) - len(returned)
        assert waiting[kept:] == returned
        assert kept or not waiting
        self.waiting = self.waiting[:kept]
        self.settled += returned
        total = sum(record.message.size for record in self.waiting)
        assert kept <= self.flow.max_outstanding_messages
        assert kept <= 1 or total <= self.flow.max_bytes

    @rule(really=st.integers(0, 4))
    def give_back(self, really: int) -> None:
        if really == 4:
            assert self.table.give_back() == [record.message for record in self.waiting]
            self.settled += [record.message for record in self.waiting]
            self.waiting = []

    @rule(every=st.integers(2, 4), spare=st.integers(0, 3))
    def withdraw(self, every: int, spare: int) -> None:
        def match(message: Note) -> bool:
            return int(message.message_id[1:]) % every == spare

        gone = [record.message for record in self.waiting if match(record.message)]
        assert self.table.withdraw(match) == gone
        self.waiting = [record for record in self.waiting if not match(record.message)]
        self.settled += gone

    # Time

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.05, 0.1, 0.5, 3.0, 10.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(1_000):
            if self.table.next_at > until:
                break
            self.now = max(self.now, self.table.next_at)
            self._poll()
        else:
            pytest.fail("it never rests")
        self.now = until
        self._poll()

    def _poll(self) -> None:
        due = self.table.poll(now=self.now)
        over = [record for record in self.leased if record.expires_at <= self.now]
        self.leased = [record for record in self.leased if record.expires_at > self.now]
        self.settled += [record.message for record in over]
        assert Counter(due.expired) == Counter(record.message for record in over)
        assert all(record.expires_at == self.now for record in over)  # polled when it asked to be
        flow = self.flow
        least = max(flow.min_duration_per_lease_extension, 60.0 * self.table.exactly_once)
        assert least <= due.extension <= flow.max_duration_per_lease_extension
        records = {record.message: record for record in self.known}
        assert len(set(due.renew)) == len(due.renew)
        for message in due.renew:
            record = records[message]  # held, and not settled
            assert self.now >= record.renew_from - 1e-9
            record.covered_until = self.now + due.extension
            record.renew_from = self.now + due.extension * RENEW_AT - GATHER
        assert due.next_at == self.table.next_at > self.now
        if not self.known and not self.settled:
            assert due.next_at == math.inf

    @invariant()
    def nothing_held_ran_out(self) -> None:
        for record in self.known:
            assert record.covered_until >= self.now - 1e-9

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "table"):
            return
        assert self.table.leased == len(self.leased)
        assert self.table.received == len(self.waiting)
        assert self.table.received_bytes >= sum(r.message.size for r in self.waiting)
        assert all(record.message.lease is not None for record in self.known)
        assert all(message.lease is None for message in self.settled)

    @rule()
    def look_at_bytes(self) -> None:
        assert self.table.leased_bytes == sum(record.message.size for record in self.leased)

    @rule()
    def look_at_room(self) -> None:
        assert self.table.has_room() == self._room()

    @rule()
    def look_at_held(self) -> None:
        assert self.table.held() == [record.message for record in self.leased]

    def teardown(self) -> None:
        """Once all is settled the table rests, and nothing counts."""
        if not hasattr(self, "table"):
            return
        self.table.give_back()
        for record in self.leased:
            self.table.release(record.message)
        assert polled(self.table, until=self.now + 10_000) == []
        table = self.table
        assert (table.leased, table.received, table.leased_bytes, table.received_bytes) == (
            *(0, 0),
            *(0, 0),
        )
        assert (table.next_at, table.held()) == (math.inf, [])


TestLeasesAgainstModel = LeasesAgainstModel.TestCase
TestLeasesAgainstModel.settings = settings(
    max_examples=int(EXAMPLES or 300),
    stateful_step_count=50,
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_a_few_responses_may_wait_however_small_the_limits_are() -> None:
    """R28: some servers heed no limits; what they send at once need not go back at once."""
    table: Table = LeaseTable(FlowControl(max_messages=1, max_request_batch_size=1))

    assert table.most_received == 1_000
    table.flow = FlowControl(max_messages=10_000)
    assert table.most_received == 8_100

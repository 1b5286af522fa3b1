"""Ordering keys: what is run now, and what is given back."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pubsub_aio import FlowControl, Message, SubscriberClient
from pubsub_aio._core.lanes import STALE_DELAY, Admitted, Lanes
from pubsub_aio._wire import schema
from pubsub_aio.subscriber.messages import MessageCustody
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.sender import Sender
from pubsub_aio.testing import MemoryEmulator, run_scenario

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []


@dataclass(eq=False)
class Word:
    """A message, as far as a lane knows one."""

    message_id: str
    ordering_key: str = "k"
    lease: object | None = field(default=True, repr=False)

    @property
    def place(self) -> tuple[int, str]:
        return (len(self.message_id), self.message_id)


def words(*ids: str, key: str = "k") -> list[Word]:
    return [Word(message_id, key) for message_id in ids]


def come(lanes: Lanes[Word], *messages: Word, now: float = 0.0) -> tuple[list[Word], list[Word]]:
    """Messages come and are leased; which run, and which are stale. None is overtaken."""
    admitted = lanes.admit(messages, now=now)
    assert admitted.overtaken == []
    run, overtaken = lanes.enter(admitted.accepted)
    assert overtaken == []
    return run, [message for part in admitted.stale.values() for message in part]


def overtake(lanes: Lanes[Word], *messages: Word) -> list[Word]:
    """Messages come; what is to be given back therefore."""
    overtaken = lanes.admit(messages, now=0).overtaken
    for one in overtaken:
        one.lease = None
    return overtaken


def lanes_with(*messages: Word) -> Lanes[Word]:
    """Lanes in which the first of these runs, and the others wait."""
    lanes: Lanes[Word] = Lanes()
    assert come(lanes, *messages) == ([messages[0]], [])
    return lanes


def ack(lanes: Lanes[Word], message: Word) -> list[Word]:
    message.lease = None
    return lanes.acked(message)


def finish(lanes: Lanes[Word], message: Word) -> list[Word]:
    """Ack a message and end its callback; what runs then."""
    assert ack(lanes, message) == []
    return lanes.returned(message)


def give_back(
    lanes: Lanes[Word], message: Word, *, at: float = 0.0
) -> tuple[list[Word], list[Word]]:
    """Give a message back; what runs then, and what is given back with it."""
    message.lease = None
    run, later = lanes.given_back(message, at=at)
    for one in later:
        one.lease = None
    return run, later


def restart(lanes: Lanes[Word], message: Word) -> tuple[str, int]:
    """The restart that waits for a message."""
    number = lanes.restart_of(message)
    assert number is not None
    return message.ordering_key, number


# One at a time


def test_messages_without_a_key_run_at_once() -> None:
    lanes: Lanes[Word] = Lanes()
    messages = words("a", "b", "c", key="")

    assert come(lanes, *messages) == (messages, [])
    assert give_back(lanes, messages[0]) == ([], [])
    assert lanes.returned(messages[0]) == []
    assert finish(lanes, messages[1]) == []
    assert len(lanes) == 0


def test_messages_of_one_key_run_one_after_another_in_the_order_they_came() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b)
    assert come(lanes, c) == ([], [])

    assert finish(lanes, a) == [b]
    assert finish(lanes, b) == [c]
    assert finish(lanes, c) == []
    assert len(lanes) == 0


def test_keys_do_not_wait_for_one_another() -> None:
    a, b = words("a", "b", key="one")
    c, d = words("c", "d", key="two")
    e = Word("e", "")
    lanes: Lanes[Word] = Lanes()

    assert come(lanes, a, b, c, d, e) == ([a, c, e], [])
    assert finish(lanes, c) == [d]
    assert finish(lanes, a) == [b]


def test_the_next_waits_for_the_callback_of_an_acked_message_to_end() -> None:
    a, b = words("a", "b")
    lanes = lanes_with(a, b)

    assert ack(lanes, a) == []
    assert lanes.returned(a) == [b]


def test_the_next_waits_for_a_returned_message_to_be_settled() -> None:
    a, b = words("a", "b")
    lanes = lanes_with(a, b)

    assert lanes.returned(a) == []
    assert ack(lanes, a) == [b]


def test_a_key_is_known_only_while_it_is_needed() -> None:
    lanes: Lanes[Word] = Lanes()
    for n in range(100):
        (message,) = words("m", key=str(n))
        come(lanes, message)
        assert len(lanes) == 1
        finish(lanes, message)

    assert len(lanes) == 0


def test_who_waits_for_a_turn_is_known() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b)
    assert [lanes.waits(message) for message in (a, b, c)] == [False, True, False]
    give_back(lanes, a)

    assert [lanes.waits(message) for message in (a, b, c)] == [False] * 3
    assert not lanes.waits(Word("x", "another"))


# Given back


def test_a_nack_gives_back_the_later_messages_of_its_key_alone() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    other, later = words("x", "y", key="other")
    come(lanes, other, later)

    assert give_back(lanes, a) == ([], [b, c])
    assert finish(lanes, other) == [later]


def test_after_a_nack_only_the_message_itself_opens_its_key() -> None:
    """H4: what was on its way is stale, and comes again."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a)
    assert give_back(lanes, a) == ([], [])
    assert lanes.returned(a) == []
    assert come(lanes, b, c) == ([], [b, c])
    again, later = words("a", "b")

    assert come(lanes, again, later) == ([again], [])
    assert finish(lanes, again) == [later]


def test_what_is_stale_is_told_apart_from_the_rest_of_a_response() -> None:
    """H4: other keys, and what follows the message itself, are in order."""
    a, stale, other, plain = Word("a"), Word("b"), Word("x", "other"), Word("y", "")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)
    again, later = words("a", "b")

    assert lanes.admit([stale, other, plain, again, later], now=0) == Admitted(
        [other, plain, again, later], {STALE_DELAY: [stale]}
    )


def test_what_is_stale_may_come_again_when_its_predecessor_may() -> None:
    """G25: a nack with a delay holds the whole key back."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a)
    give_back(lanes, a, at=30.0)

    assert lanes.admit([b], now=10.0) == Admitted([], {20.0: [b]})
    # Not as fast as the wire allows.
    assert lanes.admit([c], now=31.0) == Admitted([], {STALE_DELAY: [c]})


def test_after_a_nack_the_key_opens_when_everything_was_read() -> None:
    """H4: the message may have gone to somebody else."""
    a, b = words("a", "b")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)
    lanes.all_read([restart(lanes, a), ("another", 1)])
    assert len(lanes) == 0

    assert come(lanes, b) == ([b], [])


def test_that_everything_was_read_changes_nothing_for_a_key_in_order() -> None:
    a, b = words("a", "b")
    lanes = lanes_with(a, b)
    assert lanes.restart_of(a) is None
    lanes.all_read([("k", 0), ("k", 1)])

    assert finish(lanes, a) == [b]


def test_an_older_restart_does_not_open_the_key_for_a_newer_one() -> None:
    """H4: the message came and was given back again before all was read the first time."""
    a, b = words("a", "b")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)
    first = restart(lanes, a)
    again = Word("a")
    assert come(lanes, again) == ([again], [])
    assert lanes.restart_of(a) is None
    give_back(lanes, again)
    lanes.returned(again)
    second = restart(lanes, a)

    lanes.all_read([first])
    assert restart(lanes, a) == second
    lanes.all_read([second])
    assert come(lanes, b) == ([b], [])


def test_what_is_sent_back_keeps_the_key_closed_until_it_may_have_come() -> None:
    """H4: opened before, the key would let in what follows those that were sent back."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)

    assert come(lanes, b) == ([], [b])
    lanes.all_read([restart(lanes, a)])
    assert come(lanes, c) == ([], [c])
    lanes.all_read([restart(lanes, b), restart(lanes, c)])
    assert come(lanes, Word("d"))[1] == []


def test_what_was_sent_back_opens_the_key_when_the_one_before_it_is_not_waited_for() -> None:
    """H4: the message went to somebody else, but the key has come back here."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)
    assert come(lanes, b, c) == ([], [b, c])
    lanes.all_read([restart(lanes, a)])

    assert come(lanes, c, now=STALE_DELAY) == ([], [c])
    assert come(lanes, b, c, now=STALE_DELAY) == ([b], [])


def test_however_late_it_comes_a_message_that_was_sent_back_opens_no_key() -> None:
    """H4: it may be another copy that was on its way for as long."""
    a, b = words("a", "b")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)

    for now in (0.0, STALE_DELAY, 100.0):
        assert come(lanes, b, now=now) == ([], [b])


def test_an_earlier_message_than_the_awaited_one_is_let_in() -> None:
    """H4: but what is later than the awaited one waits for it all the same."""
    b, a, c = words("b", "a", "c")
    lanes = lanes_with(b)
    give_back(lanes, b)
    lanes.returned(b)

    assert come(lanes, a) == ([a], [])
    assert come(lanes, c) == ([], [c])
    assert come(lanes, again := Word("b"), c) == ([], [])
    assert finish(lanes, a) == [again]


# Overtaken


def test_when_an_earlier_message_comes_later_ones_come_once_more_behind_it() -> None:
    """H4: an ack was lost, and the server has begun the key again."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    assert finish(lanes, a) == [b]
    again = words("a", "b", "c")

    assert overtake(lanes, *again) == [b, c]
    assert lanes.enter(again) == ([], [])
    assert lanes.returned(b) == [again[0]]
    assert finish(lanes, again[0]) == [again[1]]
    assert finish(lanes, again[1]) == [again[2]]


def test_what_was_overtaken_keeps_out_what_is_later() -> None:
    a, b, c, d = words("a", "b", "c", "d")
    lanes = lanes_with(a, b, c)
    assert finish(lanes, a) == [b]
    assert overtake(lanes, again := Word("a")) == [b, c]
    assert lanes.enter([again]) == ([], [])

    assert come(lanes, d) == ([], [d])
    assert come(lanes, *words("b", "c", "d")) == ([], [])


def test_what_has_not_entered_is_overtaken_too() -> None:
    """H4: it waits for its lease, or for its receipt to be confirmed."""
    lanes: Lanes[Word] = Lanes()
    b, c = words("b", "c")
    assert lanes.admit([b, c], now=0).accepted == [b, c]
    a = Word("a")

    assert overtake(lanes, a) == [b, c]
    assert lanes.enter([a]) == ([a], [])


def test_what_comes_together_with_an_earlier_one_behind_it_is_stale() -> None:
    """H4: copies of several deliveries in one response."""
    lanes: Lanes[Word] = Lanes()
    early, a, b = words("b", "a", "b")

    assert lanes.admit([early, a, b], now=0) == Admitted([a, b], {STALE_DELAY: [early]})


def test_what_runs_goes_on_when_the_ack_of_the_one_before_it_is_refused() -> None:
    """H3: it may have taken effect. What waits comes again all the same."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    assert finish(lanes, a) == [b]

    assert give_back(lanes, a) == ([], [c])
    assert b.lease is not None
    assert ack(lanes, b) == []
    assert lanes.returned(b) == []
    assert come(lanes, *words("a", "b", "c"))[1] == []


def test_copies_of_what_is_here_overtake_nothing() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)

    assert lanes.admit(words("a", "b", "c"), now=0).overtaken == []
    assert finish(lanes, a) == [b]


def test_a_copy_overtakes_if_what_it_is_a_copy_of_is_settled_when_it_enters() -> None:
    """H4: the receipt of the copy was confirmed meanwhile."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    copy = Word("a")
    assert lanes.admit([copy], now=0) == Admitted([copy])
    assert finish(lanes, a) == [b]

    assert lanes.enter([copy]) == ([], [b, c])
    b.lease = c.lease = None
    assert lanes.returned(b) == [copy]


def test_a_nacked_key_stays_blocked_until_its_callback_ends() -> None:
    """H4: the message may come again before that."""
    a, later = words("a", "b")
    lanes = lanes_with(a)
    give_back(lanes, a)
    again = Word("a")

    assert come(lanes, again, later) == ([], [])
    assert lanes.returned(a) == [again]
    assert finish(lanes, again) == [later]


def test_a_key_whose_callback_runs_on_stays_blocked_when_everything_was_read() -> None:
    a, b = words("a", "b")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.all_read([restart(lanes, a)])
    assert come(lanes, b) == ([], [])

    assert lanes.returned(a) == [b]


def test_a_message_may_be_nacked_again_and_again() -> None:
    lanes: Lanes[Word] = Lanes()
    for _ in range(3):
        a, b = words("a", "b")
        assert come(lanes, a, b) == ([a], [])
        assert give_back(lanes, a) == ([], [b])
        assert lanes.returned(a) == []
        assert len(lanes) == 1
    lanes.all_read([restart(lanes, a), restart(lanes, b)])

    assert len(lanes) == 0


# Leases that end


def test_a_lease_that_ends_before_its_turn_gives_back_what_is_later() -> None:
    """G26, H4: what is earlier runs on."""
    a, b, c, d, e = words("a", "b", "c", "d", "e")
    lanes = lanes_with(a, b, c, d, e)

    assert give_back(lanes, c) == ([], [d, e])
    assert finish(lanes, a) == [b]
    assert finish(lanes, b) == []
    assert come(lanes, stale := Word("d")) == ([], [stale])
    again, later = words("c", "d")
    assert come(lanes, again, later) == ([again], [])
    assert finish(lanes, again) == [later]


def test_what_comes_again_waits_for_what_is_earlier() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    assert give_back(lanes, c) == ([], [])
    again = Word("c")
    assert come(lanes, again) == ([], [])

    assert finish(lanes, a) == [b]
    assert finish(lanes, b) == [again]


def test_an_earlier_message_that_is_given_back_takes_the_restart_over() -> None:
    """H4: the key begins again at the earliest."""
    a, b, c, d = words("a", "b", "c", "d")
    lanes = lanes_with(a, b, c, d)
    assert give_back(lanes, c) == ([], [d])
    first = restart(lanes, c)
    assert give_back(lanes, a) == ([], [b])
    assert lanes.returned(a) == []
    assert come(lanes, stale := Word("c")) == ([], [stale])
    lanes.all_read([first])
    assert come(lanes, stale := Word("d")) == ([], [stale])
    again, later = words("a", "b")

    assert come(lanes, again, later) == ([again], [])
    assert finish(lanes, again) == [later]


@pytest.mark.parametrize("first_to_last", [True, False])
def test_messages_whose_leases_end_together_are_given_back_once_from_the_first_on(
    first_to_last: bool,
) -> None:
    """G26, H4: none is answered for twice, and the first of them opens the key."""
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    for message in (a, b, c):
        message.lease = None

    order = [a, b, c] if first_to_last else [c, b, a]
    assert [lanes.given_back(message, at=0) for message in order] == [([], [])] * 3
    assert lanes.returned(a) == []
    assert come(lanes, *(stale := words("b", "c"))) == ([], stale)
    again, later = words("a", "b")
    assert come(lanes, again, later) == ([again], [])


def test_a_later_message_whose_lease_has_ended_is_not_given_back_again() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    c.lease = None

    assert give_back(lanes, a) == ([], [b])


def test_what_was_settled_while_it_waited_does_not_run() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    b.lease = None

    assert finish(lanes, a) == [c]


# What has not entered


def test_a_message_that_never_entered_stops_its_key_when_it_is_given_back() -> None:
    """R28, H4: it was too much to keep, and what comes after it would overtake it."""
    lanes: Lanes[Word] = Lanes()
    a, b = words("a", "b")
    assert lanes.admit([a], now=0) == Admitted([a])
    assert give_back(lanes, a) == ([], [])
    assert come(lanes, b) == ([], [b])
    again = Word("a")

    assert come(lanes, again) == ([again], [])


def test_the_earliest_of_those_that_never_entered_opens_their_key() -> None:
    """R28, H4: they are given back the last first; what entered before them runs on."""
    a, b = words("a", "b")
    lanes = lanes_with(a, b)
    for message in reversed(words("c", "d", "e")):
        assert give_back(lanes, message) == ([], [])
    assert finish(lanes, a) == [b]
    assert come(lanes, stale := Word("f")) == ([], [stale])
    third, fourth = words("c", "d")

    assert come(lanes, third, fourth) == ([], [])
    assert finish(lanes, b) == [third]
    assert finish(lanes, third) == [fourth]


def test_a_message_that_never_entered_leaves_the_restart_of_one_that_had_as_it_is() -> None:
    """H4: what had entered is earlier."""
    a, b = words("a", "b")
    lanes = lanes_with(a)
    give_back(lanes, a)
    lanes.returned(a)
    number = restart(lanes, a)
    give_back(lanes, b)

    assert restart(lanes, a) == number
    assert come(lanes, again := Word("a")) == ([again], [])


def test_what_nobody_knows_changes_nothing() -> None:
    a, b, stranger = words("a", "b", "c")
    lanes = lanes_with(a, b)

    assert lanes.returned(stranger) == []
    assert lanes.returned(Word("d", "another")) == []
    assert lanes.acked(stranger) == []
    assert lanes.acked(Word("d", "another")) == []
    assert finish(lanes, a) == [b]


def test_when_order_does_not_matter_everything_that_waits_is_let_out() -> None:
    a, b, c = words("a", "b", "c")
    lanes = lanes_with(a, b, c)
    x, y = words("x", "y", key="other")
    come(lanes, x, y)

    assert lanes.give_up() == [b, c, y]
    assert len(lanes) == 0


# Against a server


@dataclass(eq=False)
class Sent(Word):
    """A delivery by the server, the `number`th message of its key."""

    number: int = 0


class Key:
    """A server's end of one key: it sends in order, and begins again at what is given back."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.next = 0
        self.valid: dict[int, Sent] = {}

    def send(self) -> Sent | None:
        if self.next == self.count:
            return None
        message = Sent(f"{self.name}{self.next}", self.name, number=self.next)
        self.valid[self.next] = message
        self.next += 1
        return message

    def nacked(self, message: Sent) -> None:
        """Send it and all that follow again, unless it was sent again already."""
        if self.valid.get(message.number) is message:
            self.next = message.number
            for number in [number for number in self.valid if number >= self.next]:
                del self.valid[number]


class Play:
    """Lanes between a server, whose messages take their time, and callbacks."""

    def __init__(self, chance: random.Random, keys: list[int]) -> None:
        self.chance = chance
        self.lanes: Lanes[Sent] = Lanes()
        self.keys = {f"k{n}": Key(f"k{n}", count) for n, count in enumerate(keys)}
        self.pipe: list[Sent | tuple[str, int]] = []  # what was sent and not read; signs of life
        self.nacks: list[Sent | tuple[str, int]] = []  # on their way to the server
        self.waiting: list[Sent] = []  # to be leased
        self.held: list[Sent] = []
        self.running: dict[str, Sent] = {}
        self.acked: dict[str, list[int]] = defaultdict(list)

    def step(self, *, calm: bool) -> None:
        steps = [self.send, self.read, self.read, self.hear, self.lease, self.ack, self.end]
        if not calm:
            steps += [self.nack, self.expire, self.overflow, self.nothing]
        self.chance.choice(steps)()

    def nothing(self) -> None:
        pass

    # The server

    def send(self) -> None:
        if message := self.chance.choice(list(self.keys.values())).send():
            self.pipe.append(message)

    def hear(self) -> None:
        """The server hears of a nack, or is asked for a sign of life."""
        if self.nacks:
            heard = self.nacks.pop(0)
            if isinstance(heard, Sent):
                self.keys[heard.ordering_key].nacked(heard)
            else:
                self.pipe.append(heard)

    # Messages come

    def read(self) -> None:
        if not self.pipe:
            return
        first = self.pipe.pop(0)
        if isinstance(first, Sent):
            admitted = self.lanes.admit([first], now=0.0)
            self.take_back(admitted.overtaken)
            self.waiting += admitted.accepted
            for part in admitted.stale.values():
                self.tell_nack(part)
                self._ask(part)
        else:  # another restart may have followed
            self.lanes.all_read([first])

    def lease(self) -> None:
        if self.waiting:
            count = self.chance.randint(1, len(self.waiting))
            taken, self.waiting = self.waiting[:count], self.waiting[count:]
            self.held += taken
            run, overtaken = self.lanes.enter(taken)
            assert not overtaken
            self.run(run)

    def run(self, messages: list[Sent]) -> None:
        for message in messages:
            key = message.ordering_key
            assert message in self.held
            assert key not in self.running, "two at once"
            assert self.acked[key] == list(range(message.number)), "out of order"
            self.running[key] = message

    # Messages go

    def take_back(self, messages: list[Sent]) -> None:
        """Give back what comes again behind an earlier one."""
        assert all(one in self.held or one in self.waiting for one in messages)
        self.waiting = [one for one in self.waiting if one not in messages]
        self.tell_nack(messages)
        self._ask(messages)

    def tell_nack(self, messages: list[Sent]) -> None:
        for message in messages:
            message.lease = None
            if message in self.held:
                self.held.remove(message)
        self.nacks += messages

    def ack(self) -> None:
        if message := self._unsettled():
            self._ack(message)

    def _ack(self, message: Sent) -> None:
        message.lease = None
        self.held.remove(message)
        self.acked[message.ordering_key].append(message.number)
        self.run(self.lanes.acked(message))

    def nack(self) -> None:
        if message := self._unsettled():
            self._give_back([message])

    def expire(self) -> None:
        """Leases end, several at once."""
        count = self.chance.randint(0, len(self.held))
        picked = self.chance.sample(self.held, count)
        together = [message for message in self.held if message in picked]
        self._give_back(together if self.chance.random() < 0.5 else together[::-1])

    def _give_back(self, messages: list[Sent]) -> None:
        self.tell_nack(messages)
        for message in messages:
            run, later = self.lanes.given_back(message, at=0.0)
            self._ask([message])
            self.take_back(later)
            self.run(run)

    def overflow(self) -> None:
        """What came last is too much to keep."""
        count = self.chance.randint(0, len(self.waiting))
        self.waiting, over = self.waiting[:count], self.waiting[count:]
        self.tell_nack(over)
        for message in reversed(over):
            assert self.lanes.given_back(message, at=0.0) == ([], [])
            self._ask([message])

    def _ask(self, messages: list[Sent]) -> None:
        """Ask for a sign of life, after the nacks."""
        for message in messages:
            if (number := self.lanes.restart_of(message)) is not None:
                self.nacks.append((message.ordering_key, number))

    def _unsettled(self) -> Sent | None:
        running = [message for message in self.running.values() if message.lease is not None]
        return self.chance.choice(running) if running else None

    def end(self) -> None:
        """A callback ends; if its message is unsettled, that is acked later."""
        if self.running:
            key = self.chance.choice(list(self.running))
            message = self.running.pop(key)
            self.run(self.lanes.returned(message))
            if message.lease is not None:
                self._ack(message)


@given(
    chance=st.randoms(use_true_random=False),
    keys=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    steps=st.integers(0, 150),
)
@settings(max_examples=int(EXAMPLES or 300), deadline=None, suppress_health_check=list(HealthCheck))
def test_each_key_is_run_in_order_and_to_its_end(
    chance: random.Random, keys: list[int], steps: int
) -> None:
    """H4: one at a time, in publish order, whatever is given back; and all of it in the end."""
    play = Play(chance, keys)
    for _ in range(steps):
        play.step(calm=False)
    play.chance = random.Random(1)  # noqa: S311 - any order will do
    for _ in range(5_000):
        if all(len(play.acked[name]) == key.count for name, key in play.keys.items()):
            break
        play.step(calm=True)
    while play.pipe or play.nacks or play.running:
        play.hear()
        play.read()
        play.end()

    assert play.acked == {f"k{n}": list(range(count)) for n, count in enumerate(keys)}
    assert len(play.lanes) == 0
    assert not play.held


# Joined to leases, in virtual time


async def starts(
    emulator: MemoryEmulator,
    publish: Callable[[], Awaitable[None]],
    *,
    slow: tuple[str, int],
    flow_control: FlowControl | None = None,
) -> list[str]:
    """What callbacks begin with: `1` is nacked the first time, the `slow` one takes 5 s."""
    begun: list[str] = []

    async def callback(message: Message) -> None:
        text = message.data.decode()
        begun.append(text)
        time = (text, begun.count(text))
        if time == slow:
            await asyncio.sleep(5)
        if time == ("1", 1):
            await asyncio.sleep(0.5)
            message.nack()
        else:
            message.ack()

    emulator.create_topic("topic")
    emulator.create_subscription("subscription", "topic", enable_message_ordering=True)
    async with SubscriberClient(project=emulator.project, transport=emulator.transport()) as client:
        await client.subscribe("subscription", callback, flow_control=flow_control).ready()
        await publish()
        await asyncio.sleep(60)
    return begun


def test_a_message_that_was_on_its_way_is_not_overtaken() -> None:
    """H4: it comes once more behind the nacked one, and what follows it waits for it."""

    async def scenario(emulator: MemoryEmulator) -> list[str]:
        async def publish() -> None:
            emulator.publish("topic", b"1", ordering_key="key")
            await asyncio.sleep(0.4)
            emulator.faults.delay("ModifyAckDeadline", 0.5, times=100)
            await asyncio.sleep(0.3)  # nacked, and the server does not know yet
            emulator.publish("topic", b"2", ordering_key="key")
            await asyncio.sleep(0.5)
            emulator.publish("topic", b"3", ordering_key="key")

        return await starts(emulator, publish, slow=("1", 2))

    assert run_scenario(scenario) == ["1", "1", "2", "3"]


def test_a_message_that_waits_to_be_leased_is_not_run_before_the_one_that_comes_again() -> None:
    """H4: it was read, and is stale all the same."""

    async def scenario(emulator: MemoryEmulator) -> list[str]:
        async def publish() -> None:
            emulator.publish("topic", b"x")
            emulator.publish("topic", b"1", ordering_key="key")
            await asyncio.sleep(0.3)
            emulator.publish("topic", b"2", ordering_key="key")  # for which there is no room

        flow = FlowControl(max_messages=2, resume_threshold=0.5, max_request_batch_size=3)
        return await starts(emulator, publish, slow=("x", 1), flow_control=flow)

    assert run_scenario(scenario) == ["x", "1", "1", "2"]


def test_messages_whose_leases_end_together_come_again_from_the_first_on() -> None:
    """G26, H4: in virtual time."""

    async def scenario(emulator: MemoryEmulator) -> list[str]:
        async def publish() -> None:
            for text in (b"x", b"2", b"3", b"4"):
                emulator.publish("topic", text, ordering_key="key")

        flow = FlowControl(max_lease_duration=2)
        return await starts(emulator, publish, slow=("x", 1), flow_control=flow)

    assert run_scenario(scenario) == ["x", "x", "2", "3", "4"]


def test_what_is_too_much_to_keep_does_not_take_along_what_is_earlier() -> None:
    """R28, H4: of a server that ignores the limits."""

    async def scenario(emulator: MemoryEmulator) -> tuple[int, bool]:
        sender = Sender(emulator.transport(), "projects/p/subscriptions/s", flush_at=100)
        flow = FlowControl(max_messages=4, resume_threshold=0.5, max_request_batch_size=2)
        options = Options(flow_control=flow)
        custody = MessageCustody(sender, options, lambda *_: None)
        custody.ordered = True
        for count in (600, 1_200):
            response = schema.StreamingPullResponse()
            response.subscription_properties.message_ordering_enabled = True
            for n in range(count - 600, count):
                one = response.received_messages.add(ack_id=f"ack {n}")
                one.message.message_id = str(n)
                one.message.ordering_key = "key"
            custody.receive([response.SerializeToString()])
        first = 1_200 - custody.counts["overflow"]
        return custody.leases.received, custody._lanes._lanes["key"].first_away == (
            0,
            0,
            len(str(first)),
            str(first),
        )

    assert run_scenario(scenario) == (1_000, True)

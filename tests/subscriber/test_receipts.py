"""Exactly-once: when a message whose receipt was asked for can be handed over."""

from __future__ import annotations

from dataclasses import dataclass

from pubsub_aio._core.outbox import Outcome
from pubsub_aio.errors import InvalidAckIdError
from pubsub_aio.subscriber.receipts import Receipts


@dataclass(eq=False)
class Word:
    """A message, as far as a receipt is concerned."""

    ack_id: str
    ordering_key: str = "k"


def receipts_of(*words: Word) -> Receipts[Word]:
    receipts: Receipts[Word] = Receipts(lambda *_: False)
    for word in words:
        assert receipts.add(word, [word.ack_id], word.ordering_key) == []
    return receipts


def confirmed(*words: Word) -> Outcome:
    return Outcome(confirmed=[word.ack_id for word in words])


def refused(word: Word) -> Outcome:
    return Outcome(failed={word.ack_id: InvalidAckIdError(word.ack_id, "no")})


def test_messages_of_a_key_are_ready_in_the_order_they_came() -> None:
    a, b, other, plain = Word("a"), Word("b"), Word("c", "other"), Word("d", "")
    receipts = receipts_of(a, b, other, plain)

    assert receipts.answered(confirmed(b, other, plain)) == []
    assert receipts.ready() == [plain, other]
    assert receipts.answered(confirmed(a)) == []
    assert receipts.ready() == [a, b]
    assert len(receipts) == 0


def test_what_is_later_than_a_refused_one_is_withdrawn_before_it_is_ready() -> None:
    a, b, c = Word("a"), Word("b"), Word("c")
    receipts = receipts_of(a, b, c)
    outcome = confirmed(a, c)
    outcome.failed |= refused(b).failed

    assert receipts.answered(outcome) == [b]
    assert receipts.withdraw(lambda one: one is c) == [c]
    assert receipts.ready() == [a]
    assert len(receipts) == 0


def test_a_refused_message_does_not_keep_its_own_copy_waiting() -> None:
    """H1: nobody would ever ask again."""
    old, new = Word("old"), Word("new")
    receipts = receipts_of(old, new)
    assert receipts.answered(confirmed(new)) == []
    assert receipts.ready() == []

    assert receipts.answered(refused(old)) == [old]
    assert receipts.ready() == [new]


def test_a_refused_message_without_a_key_holds_up_nothing() -> None:
    a, b = Word("a", ""), Word("b", "")
    receipts = receipts_of(a, b)

    assert receipts.answered(refused(a)) == [a]
    assert receipts.ready() == []
    assert receipts.answered(confirmed(b)) == []
    assert receipts.ready() == [b]


def test_of_two_messages_with_one_ack_id_the_later_is_kept() -> None:
    """A server that says so lies; there will be one answer."""
    older, later, other = Word("a"), Word("a"), Word("b")
    receipts = receipts_of(older)
    assert receipts.add(other, ["b"], "") == []
    assert receipts.add(later, ["a"], later.ordering_key) == [older]

    assert receipts.answered(confirmed(later, other)) == []
    assert receipts.ready() == [other, later]
    assert len(receipts) == 0


def test_a_message_with_the_same_ack_id_twice_waits_for_one_answer() -> None:
    receipts: Receipts[Word] = Receipts(lambda *_: False)
    rows = Word("a")
    receipts.add(rows, ["a", "b", "a"], "")

    assert receipts.answered(Outcome(confirmed=["a", "b", "a"])) == []
    assert receipts.ready() == [rows]

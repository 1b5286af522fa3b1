"""Which files of the log are worth clearing."""

from __future__ import annotations

from pubsub_aio.emulator.storage.saved import SavedMessages
from pubsub_aio.emulator.storage.segments import Segment, worth_clearing


def messages(topic: int, first: int, count: int, size: int = 100) -> SavedMessages:
    records = [b"x" * size] * count
    return SavedMessages(topic=topic, first=first, records=records, times=[0.0] * count)


def held(*saved: SavedMessages) -> Segment:
    segment = Segment(1)
    for one in saved:
        segment.note([one])
    return segment


def test_messages_side_by_side_are_held_as_one() -> None:
    segment = held(messages(1, 0, 10), messages(2, 5, 3), messages(1, 10, 10), messages(1, 40, 1))

    assert [(one.topic, one.start, one.stop) for one in segment.held] == [
        (1, 0, 20),
        (2, 5, 8),
        (1, 40, 41),
    ]


def test_only_what_its_topic_still_keeps_is_needed() -> None:
    segment = held(messages(1, 0, 10), messages(2, 0, 10))
    whole = segment.needed({1: 0, 2: 0}.get)

    assert segment.needed({1: 5, 2: 10}.get) == whole / 4
    assert segment.needed({1: 0}.get) == whole / 2
    assert segment.needed(lambda _: None) == 0


def test_a_file_of_which_less_than_half_is_needed_is_worth_clearing() -> None:
    full = held(messages(1, 0, 100)).needed({1: 0}.get)
    segment = held(messages(1, 0, 100))

    assert not list(worth_clearing([segment], {1: 0}.get, full=int(full)))
    assert not list(worth_clearing([segment], {1: 49}.get, full=int(full)))
    assert list(worth_clearing([segment], {1: 51}.get, full=int(full))) == [segment]


def test_a_file_that_is_small_is_worth_clearing_whatever_it_holds() -> None:
    full = held(messages(1, 0, 100)).needed({1: 0}.get)

    small = held(messages(1, 0, 10))

    assert list(worth_clearing([small], {1: 0}.get, full=int(full))) == [small]

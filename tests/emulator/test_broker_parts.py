"""The parts of the broker, one by one: told a time, they answer with a value."""

from __future__ import annotations

import math
from array import array

import pytest

from pubsub_aio._wire import schema
from pubsub_aio.emulator import ack_ids, records
from pubsub_aio.emulator.alarms import Alarms
from pubsub_aio.emulator.lanes import Lanes
from pubsub_aio.emulator.log import SPAN, TopicLog
from pubsub_aio.emulator.paging import page_of
from pubsub_aio.emulator.progress import Position, Progress
from pubsub_aio.emulator.status import StatusError

# Alarms


def test_an_earlier_alarm_replaces_a_later_one() -> None:
    alarms: Alarms[str] = Alarms()
    alarms.set("a", 20)
    alarms.set("a", 10)
    alarms.set("a", 30)

    assert alarms.next_at == 10
    assert alarms.pop_due(15) == ["a"]
    assert alarms.pop_due(40) == []


def test_alarms_come_in_the_order_of_their_times() -> None:
    alarms: Alarms[str] = Alarms()
    for owner, at in (("late", 3), ("early", 1), ("between", 2)):
        alarms.set(owner, at)

    assert alarms.pop_due(2) == ["early", "between"]
    assert alarms.next_at == 3


def test_a_forgotten_owner_is_not_called_and_not_kept() -> None:
    alarms: Alarms[int] = Alarms()
    for owner in range(1_000):
        alarms.set(owner, 7 * 86_400)
        alarms.forget(owner)

    assert alarms.pop_due(math.inf) == []
    assert len(alarms._heap) <= 64


# The log


def test_the_log_keeps_messages_by_offset_across_chunks() -> None:
    log = TopicLog()
    log.append([b"%d" % n for n in range(SPAN + 10)], time=1.0)

    assert log.next == SPAN + 10
    assert (log.record(0), log.record(SPAN), log.record(SPAN + 9)) == (
        b"0",
        b"%d" % SPAN,
        b"%d" % (SPAN + 9),
    )


def test_what_nobody_reads_is_numbered_and_not_kept() -> None:
    log = TopicLog()
    log.skip(SPAN + 3)
    log.append([b"a"], time=1.0)

    assert (log.next, log.record(SPAN + 3)) == (SPAN + 4, b"a")


def test_dropped_messages_are_freed_in_a_chunk_that_is_still_in_use() -> None:
    log = TopicLog()
    log.append([b"large" * 1_000, b"small"], time=1.0)
    log.drop_before(1)

    assert (log.record(0), log.record(1)) == (b"", b"small")


@pytest.mark.parametrize(("time", "offset"), [(0.0, 0), (1.0, 0), (1.5, 2), (2.0, 2), (2.5, 3)])
def test_the_first_message_since_a_time_is_found(time: float, offset: int) -> None:
    log = TopicLog()
    log.append([b"a", b"b"], time=1.0)
    log.append([b"c"], time=2.0)

    assert log.first_since(time) == offset


# Progress


def log_of(count: int) -> TopicLog:
    log = TopicLog()
    log.append([b"m"] * count, time=1.0)
    return log


def spans(progress: Progress) -> list[tuple[int, int]]:
    """All that lies ahead of the cursor, as offsets from and to."""
    found = []
    for run in progress.runs():
        found.append((run.offset, run.offset + run.end - run.begin))
        progress.advance(run.offset + run.end - run.begin)
    return found


def test_a_new_subscription_begins_where_its_topic_is() -> None:
    log = log_of(10)
    progress = Progress(log)
    log.append([b"n"] * 3, time=2.0)

    assert progress.backlog == 3
    assert spans(progress) == [(10, 13)]


def test_a_run_ends_with_its_block_and_at_what_is_settled() -> None:
    progress = Progress(TopicLog())
    log = log_of(SPAN + 5)
    progress.read_from(log)
    progress.stand_at(Position(SPAN, {0: bytes([0, 0, 1]) + bytes(SPAN - 3)}))

    assert spans(progress) == [(0, 2), (3, SPAN), (SPAN, SPAN + 5)]


def test_a_block_is_dropped_with_its_last_message() -> None:
    progress = Progress(TopicLog())
    progress.read_from(log_of(SPAN + 1))
    spans(progress)
    progress.freed = False
    for offset in reversed(range(SPAN)):
        assert not progress.freed
        progress.settle(offset)

    assert progress.freed
    assert (progress.low, progress.backlog) == (SPAN, 1)


@pytest.mark.parametrize("start", [0, 3, SPAN - 1, SPAN, SPAN + 2])
def test_rewinding_unsettles_everything_from_there_on(start: int) -> None:
    progress = Progress(TopicLog())
    progress.read_from(log_of(SPAN + 5))
    spans(progress)
    for offset in range(SPAN + 5):
        if offset != 1:
            progress.settle(offset)
    progress.stand_at(progress.rewound_to(start))

    ahead = {offset for begin, end in spans(progress) for offset in range(begin, end)}
    assert ahead == {1, *range(start, SPAN + 5)}
    assert progress.backlog == len(ahead)


def test_skipping_settles_what_was_never_seen() -> None:
    progress = Progress(TopicLog())
    progress.read_from(log_of(2 * SPAN))
    progress.skip_to(SPAN + 7)

    assert progress.backlog == SPAN - 7
    assert spans(progress) == [(SPAN + 7, 2 * SPAN)]


# Ordering keys


def test_a_key_that_is_held_waits_for_its_holder() -> None:
    lanes = Lanes()
    assert lanes.admit(1, "k", consumer=7)
    lanes.hold(1, consumer=7)

    assert not lanes.admit(2, "k", consumer=8)
    assert list(lanes.ready(8, now=0)) == []
    assert next(lanes.ready(7, now=0)) == 2


def test_an_ack_takes_effect_when_all_before_it_are_acked() -> None:
    lanes = Lanes()
    for offset in (1, 2, 3):
        lanes.admit(offset, "k", consumer=7)
        lanes.hold(offset, consumer=7)

    assert lanes.ack(2) == []
    assert lanes.ack(1) == [1, 2]
    assert lanes.ack(3) == [3]


def test_what_is_given_back_takes_all_after_it_along() -> None:
    lanes = Lanes()
    for offset in (1, 2, 3):
        lanes.admit(offset, "k", consumer=7)
        lanes.hold(offset, consumer=7)
    lanes.ack(3)

    assert lanes.give_back(2, not_before=10) == [2, 3]
    assert list(lanes.ready(7, now=9)) == []
    ready = lanes.ready(7, now=10)
    assert next(ready) == 2


# Bytes


@pytest.mark.parametrize("time", [0.0, 1.5, 1_794_812_965.0, 1_794_812_965.123456])
def test_a_record_holds_what_was_published_and_its_id_and_time(time: float) -> None:
    body = schema.PubsubMessage(data=b"100 %", attributes={"a": "b"}, message_id="mine")
    (record,) = records.frame([body.SerializeToString()], first_id=1_234, time=time)

    message = records.message_of(record)

    assert (message.data, dict(message.attributes)) == (b"100 %", {"a": "b"})
    assert message.message_id == "1234"
    assert message.publish_time.ToMicroseconds() == round(time * 1_000_000)


def test_every_time_of_a_day_can_be_framed() -> None:
    """A percent sign among the bytes of a timestamp is only a byte."""
    body = schema.PubsubMessage(data=b"x").SerializeToString()
    for second in range(86_400, 86_400 * 2, 37):
        (record,) = records.frame([body], first_id=1, time=float(second))
        assert records.message_of(record).publish_time.seconds == second


def test_a_publish_time_of_the_client_is_replaced_whole() -> None:
    body = schema.PubsubMessage(data=b"x")
    body.publish_time.seconds, body.publish_time.nanos = 5, 999
    (record,) = records.frame([body.SerializeToString()], first_id=1, time=7.0)

    published = records.message_of(record).publish_time
    assert (published.seconds, published.nanos) == (7, 0)


def test_ack_ids_name_subscription_delivery_and_offset() -> None:
    ids = [i.decode() for i in ack_ids.encode(0xABC, ack_ids.delivery(2, 3), 10, 12)]

    issued, offsets = ack_ids.decode(ids, 0xABC)

    assert (issued, offsets) == (array("Q", [ack_ids.delivery(2, 3)] * 2), array("Q", [10, 11]))
    assert ack_ids.attempt(issued[0]) == 3


@pytest.mark.parametrize(
    "ids",
    [
        ["garbage"],
        ["0" * 48],
        [" " * 48],
        ["é" * 48],
        ["0" * 47, "0" * 49],
        ["", "0" * 96],
    ],
)
def test_ids_that_nobody_issued_are_refused(ids: list[str]) -> None:
    with pytest.raises(StatusError, match="never issued"):
        ack_ids.decode(ids, 0xABC)


def test_the_pages_of_a_list_are_the_list() -> None:
    names = [f"projects/p/topics/t{n:03}" for n in range(25)]
    pages: list[list[str]] = []
    token = ""
    while not pages or token:
        page, token = page_of(reversed(names), size=10, token=token)
        pages.append(page)

    assert pages == [names[:10], names[10:20], names[20:]]

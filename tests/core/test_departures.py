"""What waits to be published: batches, lanes, order, and what may not go."""

from __future__ import annotations

import math

from pubsub_aio._core.departures import Departures
from pubsub_aio._core.outgoing import Batch, Lane

NOT_BATCHED, OTHER = object(), object()


class Passenger:
    """A message with a name and a size."""

    batch: Batch[Passenger]
    index: int

    def __init__(self, name: str, size: int = 1) -> None:
        self.name = name
        self.wire = b"x" * size

    def __repr__(self) -> str:
        return self.name


def queue(
    max_messages: int = 3, max_bytes: int = 100, max_latency: float = 0.0, max_paused: int = 10
) -> Departures[Passenger]:
    return Departures(
        max_messages=max_messages,
        max_bytes=max_bytes,
        max_latency=max_latency,
        max_paused=max_paused,
    )


def put(
    departures: Departures[Passenger],
    *names: str,
    topic: str = "t",
    key: str = "",
    size: int = 1,
    options: object = NOT_BATCHED,
) -> list[Passenger]:
    made = [Passenger(name, size) for name in names]
    for one in made:
        departures.add(departures.lane(topic, key, options), one, one.wire, options)
    return made


def take(departures: Departures[Passenger], room: int = 1_000, now: float = 0.0) -> list[str]:
    """The names of those who leave next, together."""
    departures.poll(now=now)
    batch = departures.take(room)
    return [] if batch is None else [one.name for one in batch.passengers]


def take_all(departures: Departures[Passenger], now: float = 0.0) -> list[str]:
    found = []
    while names := take(departures, now=now):
        found.append("".join(names))
    return found


def test_what_waits_goes_together() -> None:
    departures = queue()
    put(departures, *"abcde")
    assert (departures.count, departures.size) == (5, 5)

    assert take_all(departures) == ["abc", "de"]
    assert (departures.count, departures.size) == (0, 0)


def test_a_batch_is_full_by_bytes_too_and_what_is_larger_goes_alone() -> None:
    departures = queue(max_bytes=10)
    put(departures, "a", size=6)
    put(departures, "b", size=4)
    put(departures, "c", size=30)
    put(departures, "d", size=1)

    assert take_all(departures) == ["ab", "c", "d"]


def test_a_message_waits_for_others_only_as_long_as_told() -> None:
    departures = queue(max_latency=5.0)
    put(departures, "a")
    assert departures.poll(now=10.0) == 15.0
    put(departures, "b")
    assert take(departures, now=14.9) == []
    assert take(departures, now=15.0) == ["a", "b"]
    assert departures.poll(now=15.0) == math.inf


def test_a_full_batch_does_not_wait() -> None:
    departures = queue(max_latency=5.0)
    put(departures, *"abcd")

    assert take(departures) == ["a", "b", "c"]
    assert take(departures) == []
    assert take(departures, now=5.0) == ["d"]


def test_when_flushed_nothing_waits() -> None:
    """M25: a drain does not wait for more to come."""
    departures = queue(max_latency=5.0)
    put(departures, "a")
    departures.flush()
    assert take(departures) == ["a"]
    put(departures, "b")
    assert take(departures) == ["b"]


def test_no_more_leave_than_there_is_room_for() -> None:
    """M27: a batch is parted, and each knows its place afterwards."""
    departures = queue()
    passengers = put(departures, *"abc")

    assert take(departures, room=0) == []
    assert take(departures, room=2) == ["a", "b"]
    assert [(one.index, len(one.batch)) for one in passengers] == [(0, 2), (1, 2), (0, 1)]
    assert take(departures, room=2) == ["c"]


def test_topics_and_options_do_not_mix_and_have_their_turns() -> None:
    departures = queue()
    put(departures, *"abcd")
    put(departures, *"ef", topic="u")
    put(departures, *"g", options=OTHER)

    assert take_all(departures) == ["abc", "ef", "g", "d"]


def test_one_batch_of_a_key_is_away_at_a_time() -> None:
    """P13: the next leaves when that one was answered."""
    departures = queue()
    passengers = put(departures, *"abcd", key="k")
    put(departures, *"x", key="l")

    assert take_all(departures) == ["abc", "x"]
    departures.landed(passengers[0].batch.lane)
    assert take_all(departures) == ["d"]


def test_a_key_has_one_line_whatever_the_options() -> None:
    departures = queue()
    put(departures, "a", key="k")
    passengers = put(departures, "b", key="k", options=OTHER)
    put(departures, "c", key="k")

    found = []
    while names := take(departures):
        found.append(names)
        departures.landed(passengers[0].batch.lane)
    assert found == [["a"], ["b"], ["c"]]


def test_a_message_may_be_taken_back() -> None:
    departures = queue()
    a, b, c, d = put(departures, *"abcd")
    departures.withdraw(b)
    assert (departures.count, departures.size) == (3, 3)

    assert take(departures) == ["a", "c"]
    assert (a.index, c.index) == (0, 1)
    departures.withdraw(d)
    assert take(departures) == []
    assert (departures.count, departures.size) == (0, 0)


def test_a_key_of_which_all_was_taken_back_is_forgotten() -> None:
    departures = queue()
    (a,) = put(departures, "a", key="k")
    departures.withdraw(a)
    assert take(departures) == []
    assert len(departures) == 0


def test_what_was_taken_back_is_not_remembered_however_long_nothing_leaves() -> None:
    departures = queue(max_latency=3_600.0)
    (first,) = put(departures, "first")
    for number in range(1_000):
        passengers = put(departures, *(f"{number} {name}" for name in "abcd"))
        for one in passengers:
            departures.withdraw(one)

    lane = first.batch.lane
    assert len(lane.batches) < 100
    assert sum(len(batch.passengers) for batch in lane.batches) < 100
    assert (departures.count, take_all(departures, now=3_600.0)) == (1, ["first"])


def test_nothing_departs_to_a_topic_that_is_not_known_yet() -> None:
    """R9: what was blocked goes as soon as it is not."""
    departures = queue()
    departures.block("t")
    put(departures, *"abcd")
    put(departures, *"x", key="k")
    put(departures, *"y", topic="u")

    assert take_all(departures) == ["y"]
    departures.unblock("t")
    assert take_all(departures) == ["abc", "x", "d"]


def test_what_was_about_to_go_is_held_back_with_its_topic() -> None:
    """R9: a topic that was known and must be looked up again."""
    departures = queue()
    put(departures, *"abcd")
    put(departures, *"xy", key="k")
    put(departures, *"z", topic="u")
    departures.poll(now=0.0)
    departures.block("t")

    assert take_all(departures) == ["z"]
    departures.unblock("t")
    assert take_all(departures) == ["abc", "xy", "d"]


def test_a_topic_that_is_not_there_gives_back_what_waits_for_it() -> None:
    departures = queue()
    departures.block("t")
    put(departures, *"abcd")
    put(departures, *"y", topic="u")

    (refused,) = departures.refuse("t")
    assert [[one.name for one in batch.passengers] for batch in refused] == [
        *(["a", "b", "c"], ["d"])
    ]
    assert all(batch.gone for batch in refused)
    assert (departures.count, take_all(departures)) == (1, ["y"])


def test_a_paused_key_gives_back_what_waits_and_goes_on_when_resumed() -> None:
    departures = queue()
    passengers = put(departures, *"abcde", key="k")
    assert take(departures) == ["a", "b", "c"]
    lane: Lane[Passenger] = passengers[0].batch.lane
    error = ValueError()

    (behind,) = departures.pause(lane, error)
    departures.landed(lane)
    assert [one.name for one in behind.passengers] == ["d", "e"]
    assert (departures.paused(), lane.paused_by) == ([lane], error)
    assert departures.lane("t", "k", OTHER) is lane
    assert departures.resume("t", "k")
    assert not departures.resume("t", "k")
    assert (departures.paused(), len(departures)) == ([], 0)


def test_when_too_many_keys_are_paused_all_are() -> None:
    """What is remembered of failures is bounded."""
    departures = queue(max_paused=2)
    for key in "abc":
        (one,) = put(departures, key, key=key)
        assert take(departures) == [key]
        assert not departures.all_paused
        departures.pause(one.batch.lane, ValueError())
        departures.landed(one.batch.lane)
    paused = [departures.all_paused]
    departures.resume("t", "b")
    paused.append(departures.all_paused)
    assert paused == [True, False]

    departures.resume_all()
    assert (departures.all_paused, departures.paused(), len(departures)) == (False, [], 0)


def test_lanes_with_nothing_to_do_can_be_forgotten() -> None:
    departures = queue()
    put(departures, "a", topic="t")
    put(departures, "b", topic="u")
    assert take_all(departures) == ["a", "b"]
    put(departures, "c", topic="u")

    departures.forget_idle()
    assert len(departures) == 1
    assert take_all(departures) == ["c"]


def test_what_was_refused_is_not_remembered_behind_a_batch_that_waits() -> None:
    departures = queue(max_latency=3_600.0)
    put(departures, "quiet", topic="quiet")
    for _ in range(1_000):
        put(departures, "a")
        assert take(departures) == []
        assert len(departures.refuse("t")) == 1

    assert len(departures._aging) < 100
    assert take(departures, now=3_600.0) == ["quiet"]


def test_what_has_left_is_not_remembered_behind_a_batch_that_waits() -> None:
    departures = queue(max_messages=2, max_latency=3_600.0)
    put(departures, "quiet", topic="quiet")
    for number in range(1_000):
        put(departures, f"{number} a", f"{number} b")
        assert len(take_all(departures)) == 1

    assert len(departures._aging) < 100
    assert take(departures, now=3_600.0) == ["quiet"]

"""When a query has all that was published before: decided without a clock."""

from __future__ import annotations

from pubsub_aio.spark.streaming.silence import LEASES_END, Silence

BEFORE, AFTER = 99.0, 101.0


def silence() -> Silence:
    return Silence(5.0, until=100.0, now=0.0)


def test_it_is_over_when_nothing_of_before_has_come_for_long_enough() -> None:
    made = silence()
    made.begin(now=10.0)
    made.came(BEFORE, now=12.0)
    made.came(AFTER, now=16.0)

    assert [made.left(now=now) for now in (12.0, 16.5, 17.0)] == [5.0, 0.5, 0.0]


def test_it_does_not_count_while_there_is_no_connection_and_begins_anew_with_the_next() -> None:
    made = silence()
    made.connection(works=False, now=3.0)
    assert made.left(now=1_000.0) == 5.0

    made.connection(works=True, now=1_000.0)
    made.connection(works=True, now=1_002.0)

    assert made.left(now=1_004.0) == 1.0


def test_what_was_on_its_way_when_a_connection_broke_has_time_to_come_again() -> None:
    made = silence()
    made.is_final(held_by_others=False)
    assert made.left(now=0.0) == 5.0

    made.connection(works=False, now=1.0)
    made.connection(works=True, now=2.0)

    assert made.left(now=2.0) == LEASES_END > 600


def test_what_somebody_held_who_is_gone_has_time_to_come_again() -> None:
    made = silence()
    made.is_final(held_by_others=True)

    assert made.left(now=0.0) == LEASES_END


def test_a_longer_silence_that_is_asked_for_stays() -> None:
    made = Silence(10_000.0, until=100.0, now=0.0)
    made.is_final(held_by_others=True)

    assert made.left(now=0.0) == 10_000.0


def test_what_was_on_its_way_counts_also_if_the_connection_broke_at_the_beginning() -> None:
    made = silence()
    made.connection(works=False, now=0.0)
    made.is_final(held_by_others=False)
    made.connection(works=True, now=1.0)

    assert made.left(now=1.0) == LEASES_END


def test_only_what_somebody_listened_to_counts() -> None:
    made = silence()
    made.pause(now=3.0)
    made.pause(now=7.0)
    assert made.left(now=1_000.0) == 2.0

    made.resume(now=1_000.0)

    assert [made.left(now=now) for now in (1_000.0, 1_001.5)] == [2.0, 0.5]


def test_what_begins_while_nobody_listens_does_not_count_before_somebody_does() -> None:
    made = silence()
    made.pause(now=3.0)
    made.begin(now=10.0)
    assert made.left(now=50.0) == 5.0

    made.resume(now=100.0)

    assert made.left(now=104.0) == 1.0


def test_who_may_still_receive_has_time_to_end() -> None:
    made = silence()
    made.is_final(held_by_others=True, grace=60.0)

    assert made.left(now=0.0) == LEASES_END + 60.0

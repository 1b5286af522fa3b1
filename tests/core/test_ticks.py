"""Which tick of a timetable is next, and what was missed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_aio._core.ticks import (
    MAX_COUNTED,
    SHORTEST,
    CronTicks,
    EveryTicks,
    NextTick,
    check_cron,
)
from pubsub_aio.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


def cron(expression: str, now: float = NOON, tz: tzinfo = UTC) -> CronTicks:
    check_cron(expression)
    return CronTicks(expression, tz=tz, start_at=now)


def times(expression: str, tz: tzinfo, *since: int, count: int) -> list[str]:
    """The next so many times of an expression, for who takes each when it is due."""
    now = datetime(*since, tzinfo=tz).timestamp()  # type: ignore[misc, arg-type] # year to minute
    ticks, found = cron(expression, now, tz), []
    for _ in range(count):
        now = ticks.next(now=now).at
        found.append(f"{datetime.fromtimestamp(now, tz):%d %H:%M %z}")
    return found


# At equal distances


def test_the_first_is_at_the_start_and_the_others_at_equal_distances() -> None:
    ticks = EveryTicks(0.5, start_at=100.0)

    assert ticks.next(now=100.0) == NextTick(number=0, at=100.0, missed=0)
    assert ticks.next(now=100.1) == NextTick(number=1, at=100.5, missed=0)
    assert ticks.next(now=100.9) == NextTick(number=2, at=101.0, missed=0)


def test_what_falls_due_meanwhile_is_missed_and_what_is_due_just_now_is_taken() -> None:
    ticks = EveryTicks(1.0, start_at=0.0)
    ticks.next(now=0.0)

    assert ticks.next(now=2.5) == NextTick(number=3, at=3.0, missed=2)
    assert ticks.next(now=7.0) == NextTick(number=7, at=7.0, missed=3)
    assert ticks.next(now=7.0) == NextTick(number=8, at=8.0, missed=0)


def test_nothing_drifts_in_a_million_ticks() -> None:
    ticks, now = EveryTicks(0.1, start_at=12_345.6), 12_345.6
    for number in range(1_000_000):
        tick = ticks.next(now=now)
        now = tick.at
        if tick != (number, 12_345.6 + number * 0.1, 0):
            pytest.fail(f"{tick} is not number {number}")


@pytest.mark.parametrize("interval", [SHORTEST, 0.1, 1 / 3, 1.0])
def test_years_that_were_missed_are_counted_at_once(interval: float) -> None:
    ticks, years = EveryTicks(interval, start_at=0.0), 100 * 365 * DAY
    ticks.next(now=0.0)
    tick = ticks.next(now=years)

    assert tick.number == tick.missed + 1 == pytest.approx(years / interval)
    assert years <= tick.at < years + 1.001 * interval + math.ulp(years)


lateness = st.floats(0, 20) | st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.0])
"""Seconds that something takes, some of which end where a tick is due."""


@given(
    interval=st.floats(0.01, 10) | st.sampled_from([0.1, 0.3, 1.0]),
    start=st.floats(0, 1e7),
    took=st.lists(st.tuples(lateness, lateness), max_size=30),
)
def test_every_tick_is_taken_or_missed_once_and_in_order(
    interval: float, start: float, took: list[tuple[float, float]]
) -> None:
    ticks, now, taken, missed = EveryTicks(interval, start_at=start), start, 0, 0
    for late, work in took:
        tick = ticks.next(now=now)
        taken, missed = taken + 1, missed + tick.missed
        before = start + (tick.number - 1) * interval

        assert tick.at == start + tick.number * interval >= now
        assert before < now or tick.missed == 0, "one was missed that lay ahead"
        assert taken + missed == tick.number + 1, "each number once"
        now = max(now, tick.at) + late + work


@given(start=st.floats(1e6, 1e9), took=st.lists(st.floats(0, 1e-6), max_size=20))
def test_numbers_ascend_even_where_the_clock_cannot_tell_ticks_apart(
    start: float, took: list[float]
) -> None:
    ticks, now, last = EveryTicks(SHORTEST, start_at=start), start, -1
    for seconds in took:
        tick = ticks.next(now=now)

        assert tick.number == last + 1 + tick.missed
        assert tick.at >= now
        last, now = tick.number, tick.at + seconds


# By a cron expression


def test_the_first_is_the_next_time_of_the_expression() -> None:
    for since, at in [(0, 0), (0.1, 300), (1, 300), (300, 300), (-0.1, 0), (-300.5, -300)]:
        ticks = cron("*/5 * * * *", NOON + since)
        assert ticks.next(now=NOON + since) == NextTick(0, NOON + at, missed=0)


def test_with_six_fields_the_first_is_for_seconds() -> None:
    ticks = cron("*/20 * * * * *", NOON + 0.5)

    assert [ticks.next(now=NOON + 0.5).at - NOON for _ in range(4)] == [20, 40, 60, 80]


def test_times_that_pass_meanwhile_are_missed_and_one_that_is_just_now_is_taken() -> None:
    ticks = cron("* * * * *")
    ticks.next(now=NOON)

    assert ticks.next(now=NOON + 150) == NextTick(3, NOON + 180, missed=2)
    assert ticks.next(now=NOON + 420) == NextTick(7, NOON + 420, missed=3)


def test_a_clock_that_is_set_back_brings_no_time_twice() -> None:
    ticks = cron("0 * * * *")
    ticks.next(now=NOON)

    assert ticks.next(now=NOON - DAY) == NextTick(1, NOON + HOUR, missed=0)
    assert ticks.next(now=NOON - DAY) == NextTick(2, NOON + 2 * HOUR, missed=0)


def test_a_clock_that_jumps_far_ahead_costs_little_and_not_all_is_counted() -> None:
    ticks = cron("* * * * * *")
    ticks.next(now=NOON)
    later = NOON + 50 * 365 * DAY

    assert ticks.next(now=later) == NextTick(MAX_COUNTED + 1, later, missed=MAX_COUNTED)
    assert ticks.next(now=later) == NextTick(MAX_COUNTED + 2, later + 1, missed=0)


def test_as_many_as_are_counted_are_counted_to_the_last() -> None:
    ticks = cron("* * * * *")
    ticks.next(now=NOON)
    later = NOON + (MAX_COUNTED + 1) * MINUTE

    assert ticks.next(now=later) == NextTick(MAX_COUNTED + 1, later, missed=MAX_COUNTED)


def test_a_fixed_time_that_does_not_exist_is_made_up_for_when_it_would_be_over() -> None:
    assert times("30 2 * * *", BERLIN, 2026, 3, 28, 0, 0, count=3) == [
        "28 02:30 +0100",
        "29 03:00 +0200",
        "30 02:30 +0200",
    ]


def test_a_fixed_time_that_comes_twice_is_taken_once() -> None:
    assert times("30 2 * * *", BERLIN, 2026, 10, 24, 0, 0, count=3) == [
        "24 02:30 +0200",
        "25 02:30 +0200",
        "26 02:30 +0100",
    ]


def test_who_begins_in_an_hour_that_comes_again_does_not_get_times_that_are_over() -> None:
    again = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1).timestamp()
    tick = cron("30 2 * * *", again, BERLIN).next(now=again)

    assert tick == NextTick(0, datetime(2026, 10, 26, 2, 30, tzinfo=BERLIN).timestamp(), missed=0)


def test_what_comes_every_so_often_goes_on_through_the_change() -> None:
    assert times("*/30 * * * *", BERLIN, 2026, 3, 29, 1, 30, count=3) == [
        "29 01:30 +0100",
        "29 03:00 +0200",
        "29 03:30 +0200",
    ]
    assert times("*/30 * * * *", BERLIN, 2026, 10, 25, 2, 30, count=3) == [
        "25 02:30 +0200",
        "25 02:00 +0100",
        "25 02:30 +0100",
    ]


# Zones where the change is at midnight, of half an hour, of a whole day, and none.
zones = st.sampled_from(
    [
        *(UTC, timezone(timedelta(hours=5, minutes=45)), BERLIN, ZoneInfo("Africa/Cairo")),
        *(ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")),
    ]
)
expressions = st.sampled_from(
    [
        *("* * * * *", "*/7 0-3 * * *", "30 2 * * *", "0 */3 * * *", "0,30 0,1,2 * * *"),
        *("15 30 2 * * *", "0 0 29 2 *", "0 0 L * *", "5 4 * * SUN"),
    ]
)


@settings(deadline=None)  # zones are read when first used
@given(
    expression=expressions,
    tz=zones,
    start=st.floats(1.2e9, 2e9),
    steps=st.lists(st.floats(-2 * DAY, 2 * DAY) | st.sampled_from([0.0, MINUTE, DAY]), max_size=20),
)
def test_times_ascend_and_are_never_past_wherever_and_whatever_the_clock_does(
    expression: str, tz: tzinfo, start: float, steps: list[float]
) -> None:
    ticks, now, last, number, total = cron(expression, start, tz), start, -math.inf, -1, 0
    for step in steps:
        tick = ticks.next(now=now)
        total += 1 + tick.missed

        assert tick.at >= now
        assert tick.at > last
        assert tick.number == number + 1 + tick.missed == total - 1
        last, number, now = tick.at, tick.number, now + step


@settings(deadline=None)
@given(
    start=st.floats(NOON, NOON + DAY), took=st.lists(st.floats(0, HOUR), min_size=1, max_size=15)
)
def test_every_time_of_an_expression_is_taken_or_missed(start: float, took: list[float]) -> None:
    ticks, now, taken, missed = cron("*/5 * * * *", start), start, 0, 0
    first = math.ceil(start / 300) * 300
    for seconds in took:
        tick = ticks.next(now=now)
        taken, missed = taken + 1, missed + tick.missed

        assert tick.at - 300 < now or tick.missed == 0
        assert taken + missed == (tick.at - first) / 300 + 1
        now = max(now, tick.at) + seconds


# What is no expression


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        *(("* * * *", "number of fields"), ("", "number of fields"), ("@hourly", "number of")),
        *(("61 * * * *", "minute"), ("* 25 * * *", "hour"), ("* * 0 * *", "day-of-month")),
        *(("*/0 * * * *", "minute"), ("x * * * *", "minute"), ("* * * * MOO", "day-of-week")),
        *(("0 0 30 2 *", "day-of-month"), ("0 0 */31 2 MON#5", "never")),
        *((f"{'9' * 5_000} * * * *", "digits"), (None, "None"), (b"* * * * *", "b'")),
    ],
)
def test_what_is_no_expression_or_never_comes_is_refused(expression: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"^expression must be .*{why}"):
        check_cron(expression)


field = st.text("0123456789*/,-#LWMON", min_size=1, max_size=4) | st.sampled_from(["*", "0", "31"])


@settings(deadline=None)  # fifty years are looked through for what never comes
@given(st.lists(field, min_size=4, max_size=7).map(" ".join))
def test_whatever_is_written_is_an_expression_or_refused(expression: str) -> None:
    try:
        check_cron(expression)
    except ConfigError:
        return
    assert cron(expression).next(now=NOON).at >= NOON

"""A timetable's ticks come when they are due, one at a time, whatever is done with them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ParamSpec
from zoneinfo import ZoneInfo

import pytest

from pubsub_aio.emulator.clock import START
from pubsub_aio.errors import ConfigError, MissingExtraError
from pubsub_aio.jobs.timetable import Supplier, Tick, Timetable
from pubsub_aio.testing import MemoryEmulator, run
from tests.subscriber.conftest import DAY, HOUR, MINUTE, burn, leftovers, now, virtual

P = ParamSpec("P")

BEGIN = datetime.fromtimestamp(START, UTC)


def in_virtual_time(
    scenario: Callable[P, Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """A test like a `virtual` one that needs no emulator."""

    @functools.wraps(scenario)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def tidy() -> None:
            await scenario(*args, **kwargs)
            assert await leftovers() == []

        run(tidy())

    return test


class Supply:
    """A supplier that notes its ticks and when they came, and takes as long as told."""

    def __init__(self, *seconds: float) -> None:
        self.ticks: list[Tick] = []
        self.times: list[float] = []
        self.running = self.peak = self.ended = 0
        self._seconds = list(seconds)

    async def __call__(self, tick: Tick) -> None:
        self.ticks.append(tick)
        self.times.append(now())
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self._seconds.pop(0) if self._seconds else 0)
            self.ended += 1
        finally:
            self.running -= 1

    @property
    def missed(self) -> list[int]:
        return [tick.missed for tick in self.ticks]

    @property
    def numbers(self) -> list[int]:
        return [tick.number for tick in self.ticks]


class Clock:
    """The emulator's clock, which can be set."""

    def __init__(self, emulator: MemoryEmulator) -> None:
        self.ahead = 0.0
        self._clock = emulator.clock

    def __call__(self) -> float:
        return self._clock.now() + self.ahead


# At equal distances


@virtual
async def test_the_first_tick_is_at_once_and_the_others_at_equal_distances(
    emulator: MemoryEmulator,
) -> None:
    """B2."""
    supply = Supply()
    await asyncio.sleep(100)
    await Timetable.every(1.5, clock=emulator.clock.now).run(supply, count=3)

    assert supply.times == [100, 101.5, 103]
    assert supply.ticks == [
        Tick(number=0, due_time=BEGIN + timedelta(seconds=100), missed=0),
        Tick(number=1, due_time=BEGIN + timedelta(seconds=101.5), missed=0),
        Tick(number=2, due_time=BEGIN + timedelta(seconds=103), missed=0),
    ]


@in_virtual_time
async def test_ticks_do_not_drift_however_long_each_took() -> None:
    supply = Supply(*(0.03, 0.099, 0.0, 0.01, 0.07) * 2_000)
    await asyncio.sleep(0.7)
    begun_at = now()
    await Timetable.every(0.1).run(supply, count=10_000)

    assert supply.times == [begun_at + number * 0.1 for number in range(10_000)]
    assert not any(supply.missed)


@in_virtual_time
async def test_what_falls_due_while_a_supplier_runs_is_missed() -> None:
    supply, timetable = Supply(0.5, 3.2, 0, 2.0), Timetable.every(1.0)
    await timetable.run(supply, count=6)

    assert supply.times == [0, 1, 5, 6, 8, 9]
    assert supply.numbers == [0, 1, 5, 6, 8, 9]
    assert supply.missed == [0, 0, 3, 0, 1, 0]
    assert (supply.peak, timetable.missed) == (1, 4)


@in_virtual_time
async def test_a_tick_that_is_due_just_when_a_supplier_ends_is_taken() -> None:
    supply, timetable = Supply(1.0, 1.0, 1.0), Timetable.every(1.0)
    await timetable.run(supply, count=4)

    assert (supply.times, supply.peak, timetable.missed) == ([0, 1, 2, 3], 1, 0)


@virtual
async def test_a_tick_that_a_busy_loop_held_up_is_taken_late_and_says_so(
    emulator: MemoryEmulator,
) -> None:
    supply = Supply()
    asyncio.get_running_loop().call_at(0.5, burn, 2.8)
    await Timetable.every(1.0, clock=emulator.clock.now).run(supply, count=3)

    assert supply.times == pytest.approx([0, 3.3, 4])
    assert supply.missed == [0, 0, 2]
    late = BEGIN + timedelta(seconds=1) - supply.ticks[1].due_time
    assert abs(late) < timedelta(milliseconds=1)


async def test_the_first_tick_is_not_missed_by_a_clock_that_does_not_stand_still() -> None:
    ticks: list[Tick] = []
    async with asyncio.timeout(60):
        await Timetable.every(1e6).run(ticks.append, count=1)

    assert [(tick.number, tick.missed) for tick in ticks] == [(0, 0)]
    assert abs(ticks[0].due_time - datetime.now(UTC)) < timedelta(minutes=1)


@in_virtual_time
async def test_others_have_the_loop_even_if_a_supplier_never_lets_go_of_it() -> None:
    running = asyncio.create_task(Timetable.every(1.0).run(lambda: burn(1.0)))
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_others_have_the_loop_even_if_something_is_always_due() -> None:
    numbers: list[int] = []
    timetable = Timetable.every(1e-9)
    running = asyncio.create_task(timetable.run(lambda tick: numbers.append(tick.number)))
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert 10 < len(numbers) <= 101
    assert numbers == sorted(set(numbers))
    assert timetable.missed > 0


# By a cron expression


@virtual
async def test_ticks_come_at_the_times_of_an_expression(emulator: MemoryEmulator) -> None:
    supply = Supply()
    await asyncio.sleep(1)
    timetable = Timetable.cron("*/5 * * * *", clock=emulator.clock.now)
    await timetable.run(supply, count=3)

    assert supply.times == pytest.approx([5 * MINUTE, 10 * MINUTE, 15 * MINUTE], abs=1e-6)
    assert supply.ticks == [
        Tick(number=0, due_time=BEGIN + timedelta(minutes=5), missed=0),
        Tick(number=1, due_time=BEGIN + timedelta(minutes=10), missed=0),
        Tick(number=2, due_time=BEGIN + timedelta(minutes=15), missed=0),
    ]


@pytest.mark.parametrize(
    ("tz", "hours"),
    [
        *((None, 9), ("UTC", 9), ("Europe/Berlin", 8), (ZoneInfo("Asia/Tokyo"), 0)),
        (timezone(timedelta(hours=-2)), 11),
    ],
)
@virtual
async def test_an_expression_is_for_a_time_zone(
    emulator: MemoryEmulator, tz: str | ZoneInfo | None, hours: int
) -> None:
    supply = Supply()
    await Timetable.cron("0 9 * * *", tz=tz, clock=emulator.clock.now).run(supply, count=1)

    (tick,) = supply.ticks
    assert supply.times == pytest.approx([hours * HOUR], abs=1e-6)
    assert (tick.due_time, tick.due_time.hour) == (BEGIN + timedelta(hours=hours), 9)


@virtual
async def test_times_that_pass_while_a_supplier_runs_are_missed(emulator: MemoryEmulator) -> None:
    supply = Supply(3.5 * MINUTE, MINUTE)
    timetable = Timetable.cron("* * * * *", clock=emulator.clock.now)
    await timetable.run(supply, count=4)

    minutes = [time / MINUTE for time in supply.times]
    assert minutes == pytest.approx([0, 4, 5, 6], abs=1e-6)
    assert supply.missed == [0, 3, 0, 0]
    assert (supply.peak, timetable.missed) == (1, 3)


@virtual
async def test_a_clock_that_is_set_forward_is_noticed_within_a_minute(
    emulator: MemoryEmulator,
) -> None:
    clock, supply = Clock(emulator), Supply()
    timetable = Timetable.cron("0 * * * *", clock=clock)
    running = asyncio.create_task(timetable.run(supply, count=3))
    await asyncio.sleep(10 * MINUTE)
    clock.ahead = 5 * HOUR
    await running

    assert supply.numbers == [0, 1, 6]
    assert supply.missed == [0, 0, 4]
    assert 10 * MINUTE <= supply.times[1] <= 11 * MINUTE
    assert [tick.due_time - BEGIN for tick in supply.ticks[1:]] == [
        timedelta(hours=1),
        timedelta(hours=6),
    ]
    assert supply.times[2] == pytest.approx(HOUR, abs=1e-6)


@virtual
async def test_a_clock_that_is_set_back_brings_no_tick_twice_and_that_is_said(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    clock, supply = Clock(emulator), Supply()
    running = asyncio.create_task(Timetable.cron("0 * * * *", clock=clock).run(supply, count=4))
    await asyncio.sleep(1.5 * HOUR)
    clock.ahead = -DAY
    await running

    hours = [(tick.due_time - BEGIN) / timedelta(hours=1) for tick in supply.ticks]
    assert hours == [0, 1, 2, 3]
    assert [time / HOUR for time in supply.times] == pytest.approx([0, 1, 26, 27], abs=1e-6)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("pubsub_aio.jobs", "WARNING")
    assert "the clock was set back by 86" in record.getMessage()


# Suppliers


@in_virtual_time
async def test_a_supplier_is_given_the_tick_if_it_needs_an_argument(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[object] = []

    def optional(number: int = 0) -> None:
        called.append(number)

    async def nothing() -> None:
        called.append("nothing")

    async def later(tick: Tick) -> None:
        called.append(tick.number)

    def returns_awaitable() -> asyncio.Future[None]:
        awaited = asyncio.ensure_future(nothing())
        called.append("made here")
        return awaited

    suppliers: list[Supplier] = [
        *(optional, nothing, later, lambda tick: called.append(tick.number)),
        *(functools.partial(called.append, "partial"), returns_awaitable),
        dict[str, str]().update,  # which does not tell what it takes
    ]
    for supplier in suppliers:
        await Timetable.every(1.0).run(supplier, count=1)

    assert called == [0, "nothing", 0, 0, "partial", "made here", "nothing"]
    assert caplog.records == []


@in_virtual_time
async def test_a_function_that_blocks_can_be_run_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def blocks() -> None:
        threads.append(threading.current_thread())

    await Timetable.every(1.0).run(functools.partial(asyncio.to_thread, blocks), count=2)

    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def raises() -> None:
    await asyncio.sleep(0.5)
    raise ValueError("on purpose")


async def waits_for_what_is_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.5, future.cancel)
    await future


async def has_a_task_that_fails() -> None:
    """Until Python 3.13 its own task counts as cancelled then."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(raises())
        tasks.create_task(asyncio.sleep(10))


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0.5)


def raises_at_once() -> None:
    raise ValueError("on purpose")


def returns_what_raises() -> object:
    return raises()


@pytest.mark.parametrize(
    "fails",
    [
        raises,
        waits_for_what_is_cancelled,
        has_a_task_that_fails,
        cancels_itself,
        raises_at_once,
        returns_what_raises,
    ],
)
@in_virtual_time
async def test_a_supplier_that_fails_is_logged_and_the_timetable_goes_on(
    caplog: pytest.LogCaptureFixture, fails: Callable[[], object]
) -> None:
    times: list[float] = []

    def supply() -> object:
        times.append(now())
        return fails()

    await Timetable.every(1.0).run(supply, count=3)

    assert times == [0, 1, 2]
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("pubsub_aio.jobs", "ERROR")
    ] * 3
    assert "failed at tick 2, the timetable goes on" in caplog.messages[-1]
    assert all(record.exc_info for record in caplog.records)


@in_virtual_time
async def test_who_is_cancelled_ends_while_it_waits_and_while_a_supplier_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for seconds in (0.5, 1.5):
        supply = Supply(0, 10)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await Timetable.every(1.0).run(supply)
        assert (supply.running, supply.ended) == (0, 1)

    assert caplog.records == []


@in_virtual_time
async def test_who_is_cancelled_ends_even_if_the_supplier_takes_no_notice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times: list[float] = []

    async def goes_on() -> None:
        times.append(now())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(10)

    async def fails() -> None:
        await goes_on()
        raise ValueError("on purpose")

    for supplier in (goes_on, fails):
        running = asyncio.create_task(Timetable.every(1.0).run(supplier))
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    assert times == [0, 5]
    assert len(caplog.records) == 1  # the error is not lost


@in_virtual_time
async def test_who_was_cancelled_before_and_goes_on_can_still_run_one() -> None:
    supply = Supply()

    async def last_words() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await Timetable.every(1.0).run(supply, count=2)

    running = asyncio.create_task(last_words())
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.wait([running])

    assert (supply.times, supply.ended) == ([1, 2], 2)
    assert running.cancelled()


@in_virtual_time
async def test_no_more_ticks_are_taken_than_asked_for() -> None:
    for count in (0, 1, 5):
        supply, begun_at = Supply(), now()
        await Timetable.every(1.0).run(supply, count=count)

        assert len(supply.ticks) == count
        assert now() - begun_at == max(0, count - 1)


# Loops


@in_virtual_time
async def test_ticks_can_be_looped_over_and_each_loop_begins_anew() -> None:
    timetable, came = Timetable.every(1.0), []
    for _ in range(2):
        async for tick in timetable:
            came.append((now(), tick.number, tick.missed))
            if tick.number > 2:
                break
            await asyncio.sleep(1.25)

    assert came == [(0, 0, 0), (2, 2, 1), (4, 4, 1), (4, 0, 0), (6, 2, 1), (8, 4, 1)]
    assert timetable.missed == 4


@in_virtual_time
async def test_loops_at_the_same_time_have_their_own_ticks() -> None:
    timetable, fast, slow = Timetable.every(1.0), Supply(), Supply(5)
    async with asyncio.TaskGroup() as group:
        group.create_task(timetable.run(fast, count=3))
        await asyncio.sleep(0.5)
        group.create_task(timetable.run(slow, count=2))

    assert (fast.times, slow.times) == ([0, 1, 2], [0.5, 5.5])
    assert timetable.missed == 4


@pytest.mark.parametrize("by", ["every", "cron"])
@virtual
async def test_a_tick_is_not_lost_on_who_gives_up_waiting_and_asks_again(
    emulator: MemoryEmulator, by: str
) -> None:
    every = Timetable.every(MINUTE, clock=emulator.clock.now)
    cron = Timetable.cron("* * * * *", clock=emulator.clock.now)
    ticks, numbers = aiter(every if by == "every" else cron), list[int]()
    while len(numbers) < 3:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(7):
                numbers.append((await anext(ticks)).number)

    assert numbers == [0, 1, 2]
    assert now() == pytest.approx(2 * MINUTE)


# What cannot be


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), "1", None, True, 1e-300])
def test_an_interval_that_is_no_time_is_refused(interval: float) -> None:
    with pytest.raises(ConfigError, match=r"^interval must be"):
        Timetable.every(interval)


@pytest.mark.parametrize("expression", ["* * * *", "0 0 30 2 *", "0 0 */31 2 MON#5", None])
def test_an_expression_that_is_none_or_never_comes_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"^expression must be"):
        Timetable.cron(expression)


@pytest.mark.parametrize("tz", ["Europe/Nowhere", "Europe", "", "../etc/passwd", "\0", 1, b"UTC"])
def test_a_time_zone_that_is_not_known_is_refused(tz: str) -> None:
    with pytest.raises(ConfigError, match=r"^tz must be"):
        Timetable.cron("* * * * *", tz=tz)


def test_a_clock_that_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^clock must be"):
        Timetable.cron("* * * * *", clock=START)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^clock must be"):
        Timetable.every(1.0, clock=START)  # type: ignore[arg-type]


def two(first: object, second: object) -> None: ...


def yields() -> Iterator[None]:
    yield


@pytest.mark.parametrize("supplier", [None, "supply", two, yields])
@in_virtual_time
async def test_a_supplier_that_cannot_be_called_is_refused(supplier: Supplier) -> None:
    with pytest.raises(ConfigError, match=r"^supplier must"):
        await Timetable.every(1.0).run(supplier)


@pytest.mark.parametrize("count", [-1, 1.5, True, "1"])
@in_virtual_time
async def test_a_count_that_is_none_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=r"^count must be"):
        await Timetable.every(1.0).run(Supply(), count=count)


def test_without_the_extra_cron_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)

    Timetable.every(1.0)
    with pytest.raises(MissingExtraError, match=r"^Timetable.cron needs .*pubsub-aio\[jobs\]"):
        Timetable.cron("* * * * *")


def test_a_timetable_shows_how_it_was_made() -> None:
    assert repr(Timetable.every(0.5)) == "Timetable.every(0.5)"
    assert repr(Timetable.cron("5 4 * * *")) == "Timetable.cron('5 4 * * *', tz='UTC')"
    assert (
        repr(Timetable.cron("5 4 * * *", tz="Europe/Berlin"))
        == "Timetable.cron('5 4 * * *', tz='Europe/Berlin')"
    )

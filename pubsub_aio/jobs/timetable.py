"""Calls a function again and again, at equal distances or by a cron expression."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
import math
import time
import zoneinfo
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from pubsub_aio._core.ticks import (
    SHORTEST,
    CronTicks,
    EveryTicks,
    NextTick,
    Ticks,
    check_cron,
)
from pubsub_aio.config import MAX_SECONDS, check
from pubsub_aio.errors import ConfigError, MissingExtraError
from pubsub_aio.subscriber.schedulers import check_callback

log = logging.getLogger("pubsub_aio.jobs")

LONGEST_WAIT = 60.0
"""Seconds after which the wall clock is looked at again, which may have been set meanwhile."""

Supplier = Callable[[], object] | Callable[["Tick"], object]
"""What is called at each tick, with nothing, or with the tick if it needs an argument."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A time of a timetable that has come.

    Attributes:
        number: How many there were before it since the timetable began to run, taken or missed.
        due_time: When it was due. It may be taken later, if the event loop was busy or the machine
            slept.
        missed: How many fell due since the one before and were not taken, because that one took too
            long or was late.
    """

    number: int
    due_time: datetime
    missed: int


class Timetable:
    """Says when it is time, again and again. Made by `every` and `cron`.

        async def supply() -> None:
            await queue.put(b"...")

        await Timetable.every(1.0).run(supply)

    It does not drift: however long anything took, the next tick is due as if it had taken no time.
    Nothing piles up: there is one tick at a time, and what falls due meanwhile is missed. The next
    one is then the first that lies ahead; one that is due just now is taken.

    Each `run` and each `async for` begins anew, and has its own ticks.
    """

    def __init__(self, pace: Pace) -> None:
        self.missed = 0
        """Ticks that were not taken, because the one before took too long or was late."""
        self._pace = pace

    @classmethod
    def every(cls, interval: float, *, clock: Callable[[], float] = time.time) -> Timetable:
        """A timetable with ticks at equal distances, by the event loop's clock.

        The first tick is at once, and tick `n` is due `n * interval` seconds later.

        Args:
            interval: Seconds from one tick to the next, a billionth at least.
            clock: Tells the seconds since 1970, for a tick's `due_time` only.

        Raises:
            ConfigError: The interval is no such number.
        """
        check("interval", interval, SHORTEST, MAX_SECONDS)
        _check_clock(clock)
        return cls(_Every(interval, clock))

    @classmethod
    def cron(
        cls,
        expression: str,
        *,
        tz: str | tzinfo | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Timetable:
        """A timetable by a cron expression and the wall clock. It needs the extra `jobs`.

        The first tick is when it is time next. Where clocks go forward or back for summer, it does
        as Debian's cron: what is due at a fixed time happens once that night, also if that time
        does not exist or comes twice; what is due every so many minutes or hours goes on so.

        If the wall clock is set back, nothing that was due before is due again: the next tick is
        when the clock has passed the last one. If it is set forward, or the machine slept, the tick
        that was next is taken within a minute and all others on the way are missed, of which at
        most 1,000 are counted.

        Args:
            expression: Five fields, such as `"*/5 * * * *"`, or six with the seconds first.
            tz: The time zone, or its name; UTC unless told.
            clock: Tells the seconds since 1970.

        Raises:
            ConfigError: The expression is none or never comes, or the time zone is not known.
            MissingExtraError: The extra is not installed.
        """
        try:
            import cronsim  # noqa: F401 - whether it is there
        except ImportError as error:
            raise MissingExtraError("Timetable.cron", "jobs") from error
        check_cron(expression)
        _check_clock(clock)
        return cls(_Cron(expression, _zone(tz), clock))

    def __repr__(self) -> str:
        return f"Timetable.{self._pace}"

    async def run(self, supplier: Supplier, *, count: int | None = None) -> None:
        """Call a function at each tick, until this is cancelled.

        An error that it raises is logged, and the timetable goes on.

        Args:
            supplier: An async or a plain function. If it needs an argument it is given the `Tick`,
                otherwise nothing. A plain one is called in the event loop, so that it can publish,
                and must not block; one that does can be passed as
                `functools.partial(asyncio.to_thread, function)`. What it returns is awaited if it
                can be.
            count: Return after so many ticks.

        Raises:
            ConfigError: The supplier cannot be called like this, or the count is no such number.
        """
        call = _called_with_tick(supplier)
        if count is not None:
            check("count", count, 0, whole=True)
        ticks = aiter(self)
        for _ in itertools.count() if count is None else range(count):
            tick = await anext(ticks)
            cancels = _cancels()
            try:
                result = call(tick)
                if inspect.isawaitable(result):
                    # In a task of its own: whether that one is cancelled is its own affair, and
                    # until Python 3.13 a TaskGroup of which a task failed leaves its task so.
                    await asyncio.ensure_future(result)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _cancels() > cancels:
                    raise
                log.exception("%r failed at tick %d, the timetable goes on", supplier, tick.number)
            if _cancels() > cancels:
                raise asyncio.CancelledError  # the supplier took no notice of it

    def __aiter__(self) -> AsyncIterator[Tick]:
        """The ticks; what is done with one takes until the next is asked for."""
        return _Course(self, self._pace)


class Pace(Protocol):
    """By which clock a timetable goes, and what is due when."""

    def begin(self, *, now: float) -> Ticks:
        """The ticks from now on."""

    def now(self) -> float:
        """The time, by the clock that ticks are due by."""

    def look_at(self, at: float) -> float:
        """When to look whether it is that time, by the event loop's clock."""

    def due_time(self, at: float) -> datetime:
        """The same time by the wall clock."""


@dataclass(frozen=True, slots=True)
class _Every:
    """At equal distances, by the event loop's clock."""

    interval: float
    clock: Callable[[], float]

    def __str__(self) -> str:
        return f"every({self.interval!r})"

    def begin(self, *, now: float) -> Ticks:
        return EveryTicks(self.interval, start_at=now)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def look_at(self, at: float) -> float:
        return at

    def due_time(self, at: float) -> datetime:
        return datetime.fromtimestamp(self.clock() - (self.now() - at), UTC)


@dataclass(frozen=True, slots=True)
class _Cron:
    """By a cron expression and the wall clock."""

    expression: str
    tz: tzinfo
    clock: Callable[[], float]

    def __str__(self) -> str:
        return f"cron({self.expression!r}, tz={str(self.tz)!r})"

    def begin(self, *, now: float) -> Ticks:
        return CronTicks(self.expression, tz=self.tz, start_at=now)

    def now(self) -> float:
        return self.clock()

    def look_at(self, at: float) -> float:
        return asyncio.get_running_loop().time() + min(at - self.clock(), LONGEST_WAIT)

    def due_time(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, self.tz)


class _Course:
    """The ticks of a timetable, from when the first is asked for."""

    def __init__(self, timetable: Timetable, pace: Pace) -> None:
        self._timetable = timetable
        self._pace = pace
        self._ticks: Ticks | None = None
        self._next: NextTick | None = None
        self._seen_at = -math.inf

    def __aiter__(self) -> _Course:
        return self

    async def __anext__(self) -> Tick:
        # There is one already if who waited for it was cancelled.
        if self._next is None:
            now = self._now()
            if self._ticks is None:
                self._ticks = self._pace.begin(now=now)
            self._next = self._ticks.next(now=now)
            self._timetable.missed += self._next.missed
        tick = self._next
        await self._until(tick.at)
        self._next = None
        return Tick(tick.number, self._pace.due_time(tick.at), tick.missed)

    async def _until(self, at: float) -> None:
        """Wait until it is that time; others have the loop for a turn at least."""
        if self._now() >= at:
            await asyncio.sleep(0)
        while self._now() < at:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._pace.look_at(at)):
                    await asyncio.get_running_loop().create_future()

    def _now(self) -> float:
        """The time; that it was set back is said, as nothing may be due for long then."""
        now = self._pace.now()
        if (back := self._seen_at - now) > LONGEST_WAIT:
            log.warning(
                "the clock was set back by %.0f s: nothing is due until it has passed what was due "
                "before",
                back,
            )
        self._seen_at = now
        return now


def _called_with_tick(supplier: Supplier) -> Callable[[Tick], object]:
    """The supplier as a function of a tick, whether it needs one or not."""
    check_callback(supplier, "a tick, or nothing,", name="supplier", arguments=_needs(supplier))
    if _needs(supplier):
        return supplier  # type: ignore[return-value] # it was just looked at
    return lambda _: supplier()  # type: ignore[call-arg] # the same


def _needs(function: object) -> int:
    """How many arguments a function must have, which is 0 or 1 or cannot be done."""
    try:
        inspect.signature(function).bind()  # type: ignore[arg-type] # then it is a TypeError
    except TypeError:
        return 1
    except ValueError:  # some that are written in C do not tell
        return 0
    return 0


def _cancels() -> int:
    """How many times the task that runs was cancelled, and is still."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _zone(tz: str | tzinfo | None) -> tzinfo:
    if tz is None:
        return UTC
    if isinstance(tz, tzinfo):
        return tz
    try:
        return zoneinfo.ZoneInfo(tz)
    except (LookupError, OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"tz must be a time zone or the name of one, such as 'Europe/Berlin', not {tz!r}; if "
            "no name is known here, install the package tzdata"
        ) from error


def _check_clock(clock: object) -> None:
    if not callable(clock):
        raise ConfigError(
            f"clock must be a function that tells the seconds since 1970, not {clock!r}"
        )

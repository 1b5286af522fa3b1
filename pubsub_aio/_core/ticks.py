"""Which tick of a timetable is the next, and how many were missed before it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple, Protocol

from pubsub_aio.errors import ConfigError

SHORTEST = 1e-9
"""Seconds from one tick to the next, at least: no clock tells less."""

MAX_COUNTED = 1_000
"""Missed times of a cron expression that are counted at once; each of them takes microseconds."""

_ONCE = datetime(2000, 1, 1, tzinfo=UTC)  # some time from which to look for the first


class NextTick(NamedTuple):
    """The tick to take next."""

    number: int
    """How many there were before it, taken or missed."""
    at: float
    """When it is due."""
    missed: int
    """How many were due since the one before, and are not taken."""


class Ticks(Protocol):
    """Ticks in the order in which they are due."""

    def next(self, *, now: float) -> NextTick:
        """The first after the one before that is not due before now; it counts as taken."""


class EveryTicks:
    """Ticks that are due at equal distances, the first at the start.

    Args:
        interval: Seconds from one to the next, `SHORTEST` at least.
        start_at: When the first is due.
    """

    def __init__(self, interval: float, *, start_at: float) -> None:
        self._interval = interval
        self._start_at = start_at
        self._next = 0  # the number of the one after that which was taken last

    def next(self, *, now: float) -> NextTick:
        """The first after the one before that is not due before now; it counts as taken."""
        number = self._first(now)
        missed = number - self._next
        self._next = number + 1
        return NextTick(number, self._due_at(number), missed)

    def _due_at(self, number: int) -> float:
        # Not the sum of intervals, whose errors would add up.
        return self._start_at + number * self._interval

    def _first(self, now: float) -> int:
        """The first number that is not due before now.

        It is looked for by what is due when, not computed by a division: that would be off by one
        where its result is rounded.
        """
        past, step = self._next - 1, 1
        while self._due_at(past + step) < now:
            past += step
            step *= 2
        numbers = range(past + 1, past + step + 1)
        return numbers[bisect_left(numbers, now, hi=step - 1, key=self._due_at)]


class CronTicks:
    """Ticks at the times of a cron expression.

    No time is taken twice, even if `now` is earlier than before. Of those that were missed at most
    `MAX_COUNTED` are counted at once.

    Args:
        expression: One that `check_cron` accepts.
        tz: Where it is that time.
        start_at: Before this there are none, in seconds since 1970.
    """

    def __init__(self, expression: str, *, tz: tzinfo, start_at: float) -> None:
        self._expression = expression
        self._tz = tz
        self._times = self._times_from(start_at)
        self._next = 0

    def next(self, *, now: float) -> NextTick:
        """The first after the one before that is not due before now; it counts as taken."""
        missed = 0
        while (at := next(self._times, math.inf)) < now and missed < MAX_COUNTED:
            missed += 1
        if at < now:
            self._times = self._times_from(now)
            at = next(self._times, math.inf)
        number = self._next + missed
        self._next = number + 1
        return NextTick(number, at, missed)

    def _times_from(self, now: float) -> Iterator[float]:
        """When it is time, not before now, in seconds since 1970; ascending."""
        from cronsim import CronSim

        last: float = math.ceil(now) - 1  # what comes is later than this, by a second at least
        for time in CronSim(self._expression, datetime.fromtimestamp(last, self._tz)):
            at = time.timestamp()
            # In an hour that comes twice it begins with the first, which may be over.
            if at > last:
                last = at
                yield at


def check_cron(expression: str) -> None:
    """Refuse what is no cron expression, and one whose time never comes.

    Raises:
        ConfigError: It is one of these.
    """
    from cronsim import CronSim, CronSimError

    try:
        found = next(CronSim(expression, _ONCE), None)
    except (AttributeError, TypeError, ValueError, CronSimError) as error:  # if it is no text, too
        raise ConfigError(
            "expression must be five fields of cron, such as '*/5 * * * *', or six with the "
            f"seconds first, not {expression!r}: {error}"
        ) from error
    if found is None:
        raise ConfigError(f"expression must be for a time that comes, {expression!r} never does")

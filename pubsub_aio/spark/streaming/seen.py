"""Which messages are known already: their keys, in memory.

Keys are looked up by their lower halves, and what is found is compared in full: that two are alike
in 64 bits never makes a message a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pubsub_aio.spark.streaming.keys import Halves, Keys, Rows

_SPANS = 8
"""Into so many parts the window is divided; what is merged is forgotten together."""

_MOST_MERGED = 4_000_000
"""Keys of a run that is not merged with others any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Keys in the order of their lower halves.

    Attributes:
        lows: Their lower halves.
        highs: Their upper halves.
        since: When the first of them was sealed, by the clock of the log.
        until: When the last was.
    """

    lows: Halves
    highs: Halves
    since: float = 0.0
    until: float = 0.0

    def __len__(self) -> int:
        return len(self.lows)


class Seen:
    """Keys that are remembered for a window of time. It is told the time.

    Args:
        window: Seconds for which a key is kept at least.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, run: Run) -> None:
        """Remember keys that are later than all others; small runs are merged."""
        if len(run):
            self._runs.append(run)
        while len(self._runs) > 1 and self._may_merge(*self._runs[-2:]):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(merged([before, last]))

    def _may_merge(self, before: Run, last: Run) -> bool:
        is_small = len(before) <= min(2 * len(last), _MOST_MERGED)
        return is_small and last.until - before.since <= self._window / _SPANS

    def forget(self, *, now: float) -> None:
        """Forget what is older than the window."""
        self._runs = self._within(now)

    def count(self, *, now: float) -> int:
        """How many there would be if that were forgotten."""
        return sum(map(len, self._within(now)))

    def _within(self, now: float) -> list[Run]:
        return [run for run in self._runs if run.until >= now - self._window]

    def rows_seen(self, keys: Keys) -> Rows:
        """The rows whose keys are among those remembered, in no order."""
        found = [keys.rows[_in(run, keys)] for run in self._runs]
        return np.concatenate(found) if found else np.zeros(0, np.uint32)


def merged(runs: Iterable[Run]) -> Run:
    """One run of several, of which there is one at least."""
    several = sorted(runs, key=lambda run: int(run.lows[0]) if len(run) else 0)
    if len(several) == 1:
        return several[0]
    lows = np.concatenate([run.lows for run in several])
    highs = np.concatenate([run.highs for run in several])
    since, until = min(run.since for run in several), max(run.until for run in several)
    if (lows[:-1] <= lows[1:]).all():  # as mostly where ids grow with time
        return Run(lows, highs, since, until)
    order = np.argsort(lows, kind="stable")  # runs are merged, since each is in order
    return Run(lows[order], highs[order], since, until)


def rows_repeated(keys: Keys) -> Rows:
    """The rows whose keys an earlier row has."""
    same = keys.lows[1:] == keys.lows[:-1]
    if not same.any():
        return np.zeros(0, np.uint32)
    alike = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    first: set[tuple[int, int]] = set()
    repeated = []
    for place in alike.tolist():  # equal ones are in the order of rows
        key = (int(keys.lows[place]), int(keys.highs[place]))
        if key in first:
            repeated.append(keys.rows[place])
        first.add(key)
    return np.array(repeated, np.uint32)


def _in(run: Run, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each key, whether it is in a run."""
    lows, highs = run.lows, run.highs
    found = np.zeros(len(keys.lows), np.bool_)
    if not len(lows) or not len(keys.lows):
        return found
    # Ids that are numbers grow with time, so that most runs have nothing in common.
    begin = int(np.searchsorted(keys.lows, lows[0], side="left"))
    end = int(np.searchsorted(keys.lows, lows[-1], side="right"))
    some = keys.lows[begin:end]
    places = np.searchsorted(lows, some)  # none is past the end: the last is not less
    alike = np.flatnonzero(lows[places] == some)
    wanted = keys.highs[begin:end]
    sure = highs[places[alike]] == wanted[alike]
    found[begin + alike[sure]] = True
    for which in alike[~sure].tolist():  # behind it there may be others with the same lower half
        place = int(places[which]) + 1
        while place < len(lows) and lows[place] == some[which]:
            found[begin + which] |= highs[place] == wanted[which]
            place += 1
    return found

"""What is wrong in a seed file: gathered with its places, and told all at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Protocol

from pubsub_aio.errors import SeedError, SeedMistake

MOST_TOLD = 50
"""How many mistakes are told; of more it is only said how many."""

MOST_GATHERED = 10_000
"""After so many it is not looked any further."""


class Spot(Protocol):
    """Something that stands in the file."""

    @property
    def line(self) -> int:
        """Its line, from one."""

    @property
    def column(self) -> int:
        """Its column, from one."""


class Mistakes:
    """The mistakes of one file.

    Args:
        file: Its path, as it was given.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[tuple[int, int, str], SeedMistake] = {}  # one for each place

    def __len__(self) -> int:
        return len(self._found)

    def add(self, at: Spot | None, path: str, what: str) -> None:
        """Note a mistake; without a place it is about the file itself."""
        line, column = (at.line, at.column) if at else (0, 0)
        self._found.setdefault(
            (line, column, path), SeedMistake(self.file, line, column, path, what)
        )
        if len(self._found) >= MOST_GATHERED:
            self.tell()

    def tell(self) -> None:
        """Raise what was found, if there is anything."""
        if self._found:
            raise self._error()

    def stop(self, at: Spot | None, path: str, what: str) -> SeedError:
        """The error of a mistake after which nothing more can be looked at."""
        self.add(at, path, what)
        return self._error()

    def _error(self) -> SeedError:
        found = sorted(self._found.values(), key=lambda mistake: (mistake.line, mistake.column))
        return SeedError(self.file, found[:MOST_TOLD], untold=max(0, len(found) - MOST_TOLD))


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names what may be meant; empty if nothing is near."""
    close = difflib.get_close_matches(name, sorted(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def joined(path: str, key: str) -> str:
    """The path of what stands below `path`."""
    return f"{path}.{key}" if path else key

"""What a log says of itself: whose it is, and what has happened to it once."""

from __future__ import annotations

from typing import Any

from pubsub_aio.errors import WalError
from pubsub_aio.spark.streaming.layout import IDENTITY, MARKS, names_in
from pubsub_aio.spark.streaming.manifests import opened, sealed
from pubsub_aio.spark.streaming.stores import Store, reading, writing

BEGUN, SOUGHT = "begun", "sought"
"""Spark has noted the first batch; the subscription is where the query begins."""
_RECEIVES, _HELD = "receives", "held"


class Marks:
    """Notes that something has happened, each there or not.

    Args:
        store: Of the log.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, what: str, by: str) -> str:
        """Note it; returns who has caused it, who may have been another."""
        name = f"{MARKS}/{what}"
        with writing(self._store):
            self._store.put_if_absent(name, [sealed({"by": by})])
        return self._by(name)

    def who(self, what: str) -> str | None:
        """Who has caused it; None if it has not happened."""
        with reading(self._store, MARKS):
            is_there = what in names_in(self._store, MARKS)
        return self._by(f"{MARKS}/{what}") if is_there else None

    def remove(self, *what: str) -> None:
        """These are not so any more."""
        with writing(self._store):
            self._store.delete([f"{MARKS}/{each}" for each in what])

    def all(self, what: str) -> list[str]:
        """Which there are of a kind of which there may be several, `what-...`."""
        with reading(self._store, MARKS):
            return [name for name in names_in(self._store, MARKS) if name.startswith(f"{what}-")]

    def _by(self, name: str) -> str:
        try:
            with reading(self._store, name):
                return str(opened(self._store.get(name))["by"])
        except (KeyError, ValueError) as error:
            raise WalError(
                f"walLocation: {self._store.location}/{name} is damaged ({error}): bring it back"
            ) from error


class Runs:
    """Whether a run may hold messages of a subscription, and will never give them back.

    Each run has a mark while it receives. One that finds those of others, who were killed or go on
    still, cannot tell: it has one mark stand for all of them, until the subscription is deleted.

    Args:
        marks: Of the log.
        run: What this run is called, unlike any other.
    """

    def __init__(self, marks: Marks, run: str) -> None:
        self._marks = marks
        self._run = run

    def begin(self) -> bool:
        """This run is about to receive; returns whether others may hold messages."""
        if others := self._marks.all(_RECEIVES):
            self._marks.put(_HELD, self._run)
            self._marks.remove(*others)
        self._marks.put(f"{_RECEIVES}-{self._run}", self._run)
        return bool(others) or self._marks.who(_HELD) is not None

    def end(self) -> None:
        """It has given back all that it held."""
        self._marks.remove(f"{_RECEIVES}-{self._run}")

    def forget(self) -> None:
        """The subscription is deleted."""
        self._marks.remove(*self._marks.all(_RECEIVES), _HELD)


def identity_of(store: Store) -> dict[str, Any]:
    """Whose log there is.

    Raises:
        WalError: There is none, or it cannot be read.
    """
    try:
        with reading(store, IDENTITY):
            return opened(store.get(IDENTITY))
    except (ValueError, FileNotFoundError) as error:
        raise WalError(
            f"walLocation: {store.location}/{IDENTITY} cannot be read: {error}. Bring it back, or "
            "give another walLocation and checkpoint"
        ) from error

"""Whether a queue is out of use, by the labels that its users and janitors write on it.

Labels are read and then written whole, and the service does not tell whether somebody else wrote in
between. So a janitor may undo what a user has just written. The times here are such that the user
writes once more, and is seen, before anything is deleted.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from pubsub_aio.config import MAX_ACK_DEADLINE, MIN_EXPIRES

EXPIRES = "pubsub_aio_expires"
"""The label with the seconds after which what is not used may be deleted. What does not have it is
never deleted."""

USED = "pubsub_aio_used"
"""The label with the time of the last use, in seconds since 1970."""

CLOSING = "pubsub_aio_closing"
"""The label by which a janitor says that it is about to delete: `SECONDS-USED-WORD`, the time
since 1970, the last use that it knows of, and a random word by which it knows its own."""

TIMES = 5
"""How often who uses a queue says so within its time."""

SURE = 2
"""For how many of these intervals it is sure to be there after that was said."""

_WAITING = 3
"""Intervals between mark and deletion, beside the time that a lease may last: in these a user has
said it again. He may be late by one, and by the seconds that a call takes."""

_VOID_FOR = 30.0
"""Seconds after which a mark that is void is removed. It is longer than a deletion takes: whoever
uses the queue meanwhile is to see it."""

_MOST_DIGITS = 12


class Idleness(enum.Enum):
    """What there is to do about a subscription."""

    NOT_OURS = "it is not for a janitor"
    UNREADABLE = "its labels cannot be read"
    IN_USE = "it is in use"
    RESUMED = "it is in use again; the mark is to be removed"
    IDLE = "it is out of use, and is to be marked"
    CLOSING = "it is marked, and its users have still time to say something"
    OVER = "it is out of use, and nobody has said anything since it was marked"


class _Mark(NamedTuple):
    at: float
    used: float


def judge(labels: Mapping[str, str], *, now: float) -> Idleness:
    """What there is to do about a subscription with these labels.

    Nothing is over before the longest lease has ended that a user may have had who lived when it
    was marked: messages that are held by somebody who has crashed cannot be seen, and come again.
    That is counted from the mark, since to a clock that is slow a use seems older than it is.

    Args:
        labels: Of the subscription.
        now: The seconds since 1970.
    """
    if EXPIRES not in labels:
        return Idleness.NOT_OURS
    try:
        expires, used = _seconds(labels[EXPIRES]), _seconds(labels[USED])
        mark = _read(labels[CLOSING]) if CLOSING in labels else None
    except (KeyError, ValueError):
        return Idleness.UNREADABLE
    if expires < MIN_EXPIRES:
        return Idleness.UNREADABLE
    age, interval = now - used, expires / TIMES
    if age < expires:
        return Idleness.RESUMED if mark and age >= _VOID_FOR else Idleness.IN_USE
    if mark is None or mark.used != used:
        return Idleness.IDLE
    over_after = MAX_ACK_DEADLINE + _WAITING * interval
    return Idleness.CLOSING if now - mark.at < over_after else Idleness.OVER


def mark(used: str, *, now: float, word: str) -> str:
    """The label of what is about to be deleted.

    Args:
        used: The label of its last use.
        now: The seconds since 1970.
        word: Letters and digits that nobody else has.
    """
    return f"{math.ceil(now)}-{used}-{word}"


def another(own: str, found: str) -> str:
    """A label of the last use that is not the one which is there: that it changes counts as use.

    A clock that was set back, or stands, may tell the same seconds twice.
    """
    return str(int(own) + 1) if own == found else own


def larger(own: str, other: str) -> str:
    """The larger of two labels with seconds; our own if the other cannot be read."""
    try:
        return max(own, other, key=_seconds)
    except ValueError:
        return own


def _read(text: str) -> _Mark:
    at, used, _ = text.split("-")
    return _Mark(_seconds(at), _seconds(used))


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ValueError(f"must be seconds, not {text[:50]!r}")
    return float(text)

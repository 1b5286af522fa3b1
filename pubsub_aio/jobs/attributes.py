"""What travels with a job: how long it is worth something, who it is, and how often it returned.

The names are part of the contract with publishers in other languages, and with messages that are
under way while this library is upgraded.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from pubsub_aio.config import MAX_SECONDS, check
from pubsub_aio.errors import ConfigError
from pubsub_aio.subscriber.dead_letters import is_note

EXPIRES_AT = "expires_at"
"""Until when a job is worth something, in milliseconds since 1970."""

PERSISTENT = "persistent"
"""`false` for a job that is dropped when it has expired; any other is always done."""

JOB_ID = "pubsub_aio_job_id"
"""The id of a job. It stays the same when the job returns."""

RESURRECTIONS = "pubsub_aio_resurrections"
"""How often a job has returned from the dead letters."""

REDRIVEN = "pubsub_aio_redriven"
"""The id of the dead letter that somebody brought back by `redrive`."""

REDRIVEN_BY = "pubsub_aio_redriven_by"
"""Which run of `redrive` brought it back: it knows by that what it has moved itself. It does not
tell jobs apart: whoever brings a dead letter back once more, after a crash, is another run."""

SAME_JOB = (JOB_ID, RESURRECTIONS, REDRIVEN)
"""Messages that have these in common are the same round of the same job: all but one are
duplicates. `Deduplicator(SAME_JOB)` drops them."""

_MAX_ATTRIBUTES = 100
"""The most that the service takes."""

_ROOM = 11
"""Attributes that are left for what is added later: how often it returned, the two of a redrive,
the six notes of a dead letter, and the two of a publisher that sends flight ids."""

_RESERVED = (EXPIRES_AT, PERSISTENT, REDRIVEN_BY, *SAME_JOB)
_DROPPABLE = "false"
_MOST_DIGITS = 14  # until the year 5138


def job_attributes(
    attributes: Mapping[str, str] | None = None,
    *,
    persistent: bool = True,
    ttl: float | None = None,
    job_id: str | None = None,
    clock: Callable[[], float] = time.time,
) -> dict[str, str]:
    """The attributes of a new job.

    Args:
        attributes: What else goes with it; not so many that there is no room for what is added when
            the job becomes a dead letter.
        persistent: Whether it must be done, however late; otherwise it needs a `ttl`.
        ttl: Seconds for which it is worth something.
        job_id: Its id; a random one unless told.
        clock: Tells the seconds since 1970.

    Raises:
        ConfigError: One of these cannot be as it is.
    """
    if not isinstance(persistent, bool):
        raise ConfigError(f"persistent must be True or False, not {persistent!r}")
    check_clock(clock)
    if attributes is not None and not isinstance(attributes, Mapping):
        raise ConfigError(f"attributes must be a dict of strings, not {attributes!r}")
    if taken := [name for name in _RESERVED if name in (attributes or ())]:
        raise ConfigError(
            f"attributes: {taken[0]!r} is set by persistent, ttl and job_id: leave it"
        )
    if taken := [name for name in attributes or () if isinstance(name, str) and is_note(name)]:
        raise ConfigError(f"attributes: {taken[0]!r} is set on dead letters: leave it")
    made = {JOB_ID: secrets.token_hex(8) if job_id is None else job_id}
    if not isinstance(made[JOB_ID], str) or not made[JOB_ID]:
        raise ConfigError(f"job_id must be a string that is not empty, not {job_id!r}")
    if ttl is not None:
        check("ttl", ttl, 0, MAX_SECONDS)
        made[EXPIRES_AT] = str(round((clock() + ttl) * 1_000))
    elif not persistent:
        raise ConfigError("ttl: a job that is not persistent needs one, after which it is dropped")
    if not persistent:
        made[PERSISTENT] = _DROPPABLE
    _check_room(len(attributes or ()), own=len(made))
    return {**(attributes or {}), **made}


def _check_room(count: int, *, own: int) -> None:
    """Refuse attributes that leave no room for ours."""
    most = _MAX_ATTRIBUTES - _ROOM - own
    if count > most:
        raise ConfigError(
            f"attributes: must be {most} at most, not {count}: the service takes "
            f"{_MAX_ATTRIBUTES}, of which job_id, ttl and persistent take {own} here, and {_ROOM} "
            "are kept for when the job becomes a dead letter or returns"
        )


def check_clock(clock: object) -> None:
    """Refuse what does not tell the time."""
    if not callable(clock):
        raise ConfigError(
            f"clock must be a function that tells the seconds since 1970, not {clock!r}"
        )


def is_persistent(attributes: Mapping[str, str]) -> bool:
    """Whether a job must be done, however late."""
    return attributes.get(PERSISTENT, "").lower() != _DROPPABLE


def expiry_of(attributes: Mapping[str, str]) -> float | None:
    """Until when a job is worth something, in seconds since 1970; none if it does not say.

    Raises:
        ValueError: It says something that cannot be read.
    """
    text = attributes.get(EXPIRES_AT)
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ValueError(f"{EXPIRES_AT} must be milliseconds since 1970, not {text[:50]!r}")
    return int(text) / 1_000


def resurrections_of(attributes: Mapping[str, str]) -> int:
    """How often a job has returned."""
    text = attributes.get(RESURRECTIONS, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0

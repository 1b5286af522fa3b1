"""What becomes of a job: tried, dropped, tried again, dead-lettered or given up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pubsub_aio.config import JobPolicy


@dataclass(frozen=True, slots=True)
class Retry:
    """Try it again after so many seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """All attempts of this round failed; it returns for another."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """All attempts of all rounds failed."""


Verdict = Retry | DeadLetter | GiveUp


def is_dropped(*, persistent: bool, expires_at: float | None, now: float) -> bool:
    """Whether a job is not worth to be begun any more.

    Args:
        persistent: Whether it must be done, however late.
        expires_at: Until when it was worth something; none for ever.
        now: What time it is, by the same clock.
    """
    return not persistent and expires_at is not None and now > expires_at


def after_failure(policy: JobPolicy, *, attempt: int, resurrections: int) -> Verdict:
    """What to do about a job that failed.

    Args:
        policy: How often it is tried.
        attempt: How often it was tried in this round.
        resurrections: How often it returned before.
    """
    if attempt < policy.max_attempts:
        return Retry(_backoff(policy, attempt))
    return DeadLetter() if resurrections < policy.max_resurrections else GiveUp()


def _backoff(policy: JobPolicy, failures: int) -> float:
    """How long to wait after so many failures in a row."""
    try:
        wait = policy.initial_backoff * policy.multiplier ** (failures - 1)
    except OverflowError:
        wait = math.inf if policy.initial_backoff else 0.0
    return min(wait, policy.max_backoff)


def longest_wait(policy: JobPolicy) -> float:
    """Seconds that a job waits between the attempts of a round, all together."""
    waits, first, factor = policy.max_attempts - 1, policy.initial_backoff, policy.multiplier
    if first == 0.0 or factor == 1.0:
        return waits * first
    growth = math.log(policy.max_backoff) - math.log(first)
    growing = min(waits, math.ceil(growth / math.log(factor)))
    try:
        total = first * (factor**growing - 1) / (factor - 1)
    except OverflowError:
        total = growing * policy.max_backoff
    return total + (waits - growing) * policy.max_backoff

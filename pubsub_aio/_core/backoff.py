"""Delays between attempts."""

from __future__ import annotations


def delay(attempt: int, *, first: float, most: float, chance: float) -> float:
    """How long to wait after that many failed attempts.

    Args:
        attempt: Failed attempts so far, one at least.
        first: The delay after the first; it doubles with each further one.
        most: The longest delay.
        chance: A random number from 0 to 1. Delays are spread over the upper half, so that many
            clients that failed together do not come back together.
    """
    longest = min(most, first * 2.0 ** min(attempt - 1, 60))
    return longest * (0.5 + 0.5 * chance)

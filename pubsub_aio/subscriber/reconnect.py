"""Waiting before the next attempt to reach the server, or giving up."""

from __future__ import annotations

import asyncio
import random

from pubsub_aio._core import backoff
from pubsub_aio.config import StreamPolicy
from pubsub_aio.errors import ReconnectError, ServiceError
from pubsub_aio.subscriber.vitals import Vitals

FATAL = frozenset(
    {
        *("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"),
        *("UNAUTHENTICATED", "UNIMPLEMENTED"),
    }
)
"""Codes after which it is no use to try again."""


async def before_next_attempt(
    error: ServiceError, failures: int, *, policy: StreamPolicy, vitals: Vitals
) -> None:
    """Wait after a failure, longer with each one in a row.

    Raises:
        ReconnectError: It has been tried for too long.
    """
    if vitals.is_given_up:
        raise ReconnectError(
            vitals.subscription, attempts=failures, seconds=vitals.seconds_alone
        ) from error
    wait = spread_delay(failures, first=policy.first_delay, most=policy.max_delay)
    await asyncio.sleep(max(wait, error.retry_delay or 0.0))


def spread_delay(failures: int, *, first: float, most: float) -> float:
    """Seconds to wait after that many failures, different for each client."""
    chance = random.random()  # noqa: S311 - it spreads load, it guards nothing
    return backoff.delay(failures, first=first, most=most, chance=chance)

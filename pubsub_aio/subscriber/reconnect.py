"""Trying again to reach the server, and giving up."""

from __future__ import annotations

import asyncio
import random

from pubsub_aio._core import backoff
from pubsub_aio._core.outbox import TRANSIENT
from pubsub_aio._wire.transport import Transport
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

ANSWER_TIMEOUT = 10.0
"""Seconds in which a server that can be reached answers."""

_FIRST_DELAY = 0.1
_MAX_DELAY = 5.0


async def call_patiently(
    transport: Transport, rpc: str, request: bytes, *, timeout: float
) -> bytes:
    """Make a call; again and again while the server cannot be reached, for that many seconds.

    Raises:
        ServiceError: What the server said, or why it could not be reached in the end.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout
    attempts = 0
    while True:
        attempts += 1
        left = ends_at - loop.time()
        try:
            return await transport.call(rpc, request, timeout=max(0.1, min(ANSWER_TIMEOUT, left)))
        except ServiceError as error:
            wait = spread_delay(attempts, first=_FIRST_DELAY, most=_MAX_DELAY)
            wait = max(wait, error.retry_delay or 0.0)
            if error.code not in TRANSIENT or loop.time() + wait >= ends_at:
                raise
            await asyncio.sleep(wait)


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

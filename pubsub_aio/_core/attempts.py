"""Whether a publish that failed is tried again, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pubsub_aio.config import RetryPolicy

FLOW_CONTROL = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after so many seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not; `"refused"`: the failure is final, `"no time"`: there is not enough left to wait."""

    why: Literal["refused", "no time"]


class Attempts:
    """The attempts to publish one batch.

    Args:
        policy: When to try again; none for never.
        ends_at: When all must be over.
    """

    def __init__(self, policy: RetryPolicy | None, *, ends_at: float = math.inf) -> None:
        self._policy = policy
        self._ends_at = ends_at
        self._failures = 0
        self._waits = 0
        self._last_wait = 0.0

    def failed(
        self, code: str, retry_delay: float | None, *, untried: bool, now: float, chance: float
    ) -> Again | GiveUp:
        """What to do about a failure.

        Args:
            code: What was answered.
            retry_delay: Seconds that the service asks to wait for, if it does.
            untried: Whether there is an endpoint that was not tried yet.
            now: What time it is.
            chance: A random number from 0 to 1.
        """
        self._failures += 1
        policy = self._policy
        if policy is None or not _worth_another(policy, code, retry_delay):
            return GiveUp("refused")
        if 0 <= policy.retries < self._failures:
            return GiveUp("refused")
        if untried and code != FLOW_CONTROL:
            wait = 0.0
        else:
            wait = max(self._next_wait(policy, chance), retry_delay or 0.0)
        return Again(wait) if now + wait < self._ends_at else GiveUp("no time")

    def _next_wait(self, policy: RetryPolicy, chance: float) -> float:
        waits = policy.wait if isinstance(policy.wait, tuple) else (policy.wait,)
        if self._waits < len(waits):
            self._last_wait = min(waits[self._waits], policy.max_wait)
        else:
            self._last_wait = min(self._last_wait * policy.multiplier, policy.max_wait)
        self._waits += 1
        return self._last_wait * chance if policy.jitter else self._last_wait


def _worth_another(policy: RetryPolicy, code: str, retry_delay: float | None) -> bool:
    return code in policy.codes or (code == FLOW_CONTROL and retry_delay is not None)

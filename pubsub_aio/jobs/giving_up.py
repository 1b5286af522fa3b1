"""The end of a job that has failed for the last time."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pubsub_aio.config import MAX_ACK_DEADLINE
from pubsub_aio.jobs.hooks import called, failure_of
from pubsub_aio.jobs.job import Job

log = logging.getLogger("pubsub_aio.jobs")

_AT_LEAST = 1.0  # seconds

OnGiveUp = Callable[[Job, Exception], object]
"""Called, or awaited, with a job that is given up and what it failed with last."""


class GivingUp:
    """Tells of jobs that are given up.

    Args:
        told: Who is told, if anybody is.
        again_after: Seconds after which a job comes again of which could not be told.
    """

    def __init__(self, told: OnGiveUp | None, *, again_after: float) -> None:
        self._told = told
        self._again_after = max(_AT_LEAST, min(again_after, MAX_ACK_DEADLINE))

    async def __call__(self, job: Job, error: Exception) -> bool:
        """Tell of a job; returns whether it may be acked now. Otherwise it was given back."""
        if self._told is not None:
            try:
                await called(self._told, job, error)
            except BaseException as failed:
                failure_of(failed, job.message)  # unless whoever runs it is to end
                log.exception("on_give_up failed; %r stays, and comes again", job)
                self.give_back(job)
                return False
        log.error("%r is given up", job, exc_info=error)
        return True

    def give_back(self, job: Job) -> None:
        """Have a job come again that cannot be dealt with now."""
        job.message.nack(delay=self._again_after)

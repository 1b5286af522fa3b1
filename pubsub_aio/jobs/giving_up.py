"""The end of a job that has failed for the last time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable

from pubsub_aio.config import MAX_ACK_DEADLINE
from pubsub_aio.errors import PubSubError
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
                failure_of(failed)  # unless whoever runs it is to end
                log.exception("on_give_up failed; %r stays, and comes again", job)
                self.give_back(job)
                return False
        log.error("%r is given up", job, exc_info=error)
        return True

    def give_back(self, job: Job) -> None:
        """Have a job come again that cannot be dealt with now."""
        job.message.nack(delay=self._again_after)


class BrokenHandlerError(PubSubError):
    """A function of the user's ended with something that is no error; see the cause."""


def failure_of(error: BaseException, *, ending: bool = False) -> Exception:
    """What a function of the user's failed with.

    Args:
        error: What it raised.
        ending: Whether whoever runs it is about to end. Then what is cancelled was interrupted,
            whatever the function made of that. Otherwise that a task is cancelled does not say so:
            until Python 3.13 a TaskGroup of which a task failed leaves it like that.

    Raises:
        BaseException: It did not fail, but whoever runs it is to end.
    """
    task = asyncio.current_task()
    interrupted = ending or isinstance(error, asyncio.CancelledError)
    if interrupted and task is not None and task.cancelling():
        raise asyncio.CancelledError from error
    if isinstance(error, Exception):
        return error
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    failure = BrokenHandlerError(f"it ended with {said_by(error)}")
    failure.__cause__ = error
    return failure


def said_by(error: BaseException | None) -> str:
    """An error in a line."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error may fail to say what it is
        return type(error).__name__


async def called(function: Callable[..., object], *args: object) -> None:
    """Call a function, async or not."""
    result = function(*args)
    if inspect.isawaitable(result):
        await result

"""Functions of the user's: how they are called, and what they fail with."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable

from pubsub_aio.errors import PubSubError
from pubsub_aio.message import Message

log = logging.getLogger("pubsub_aio.jobs")

_NOT_AT_ONCE = 10.0
"""Seconds after which a message comes again whose handler was cancelled, if it is not known by
whom: a handler that cancels itself would have it again and again."""

_MAX_STUBBORN = 100


class BrokenHandlerError(PubSubError):
    """A function of the user's ended with something that is no error; see the cause."""


def failure_of(error: BaseException, message: Message) -> Exception:
    """What a function of the user's failed with.

    When its subscription ends, what is cancelled was interrupted, whatever the function made of
    that. At other times that a task is cancelled does not say so: until Python 3.13 a TaskGroup of
    which a task failed leaves it like that.

    Args:
        error: What it raised.
        message: What it was called for.

    Raises:
        BaseException: It did not fail, but whoever runs it is to end.
    """
    task, ending = asyncio.current_task(), message.settler.ending
    if task is not None and task.cancelling():
        if ending:
            raise asyncio.CancelledError from error
        if isinstance(error, asyncio.CancelledError):
            if message.lease is not None:
                message.nack(delay=_NOT_AT_ONCE)
            raise error
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


class TimeBox:
    """Gives functions so much time, and goes on without those that do not end then.

    They are cancelled; a few that take no notice of that are left alone.

    Args:
        seconds: How much.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stubborn: set[asyncio.Future[object]] = set()

    async def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function, async or not.

        Raises:
            TimeoutError: It has not ended in time.
            BaseException: What it raised.
        """
        result = function(*args)
        if not inspect.isawaitable(result):
            return
        task = asyncio.ensure_future(result)
        try:
            await asyncio.wait([task], timeout=self._seconds)
        finally:
            if not task.done():
                task.cancel()
                self._leave(task)
        if not task.done():
            await self._patience()
            raise TimeoutError(f"it has not ended within {self._seconds:g} s")
        await task

    def _leave(self, task: asyncio.Future[object]) -> None:
        self._stubborn.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[object]) -> None:
        self._stubborn.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("it failed when its time was over: %s", said_by(error))

    async def _patience(self) -> None:
        """Let those end that take notice; wait for them if they are too many."""
        await asyncio.sleep(0)
        while len(self._stubborn) > _MAX_STUBBORN:
            await asyncio.wait(self._stubborn, return_when=asyncio.FIRST_COMPLETED)

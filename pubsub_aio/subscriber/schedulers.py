"""Where callbacks run."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pubsub_aio.errors import ConfigError
from pubsub_aio.message import Message

T = TypeVar("T")
AnyCallback = Callable[[Message], object]


@dataclass(slots=True)
class Outcome:
    """What a function returned or raised in a thread."""

    returned: object = None
    raised: BaseException | None = None

    async def take(self) -> None:
        """Raise what the function raised; await what it returned, if that can be awaited."""
        raised, self.raised = self.raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            del raised  # its traceback knows this frame, and each would keep the other alive
        if inspect.isawaitable(self.returned):
            await self.returned


def outcome_of(function: Callable[[T], object], argument: T) -> Outcome:
    """Call a function; whatever it does, there is an outcome.

    As an exception it would not get out of every thread: no future takes a StopIteration, and
    whoever awaits one waits for ever. And what ends a program, such as `sys.exit()` in a parser of
    arguments, ends a thread at most.
    """
    try:
        return Outcome(returned=function(argument))
    except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        failure = RuntimeError(f"a function that ran in a thread raised {error!r}")
        failure.__cause__ = error
        return Outcome(raised=failure)
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
        return Outcome(raised=error)


class Scheduler(Protocol):
    """Decides where a callback runs."""

    async def run(self, callback: AnyCallback, message: Message) -> None:
        """Run the callback with the message, and return when it has ended.

        What the callback raises is raised here. As many of these run at once as messages may be
        leased; a scheduler that can run fewer lets the others wait.
        """

    def close(self) -> None:
        """No more callbacks come; let go of what was needed for them."""


class ThreadScheduler:
    """Runs plain functions in a pool of threads, so that they may block.

    A message can be settled in any thread. A callback that runs cannot be stopped: if it outlasts
    the shutdown's timeout its message is given back, and the thread goes on to its end.

    Args:
        max_workers: How many threads there are at most.
    """

    def __init__(self, *, max_workers: int = 10) -> None:
        if max_workers < 1:
            raise ConfigError(f"max_workers must be at least 1, not {max_workers}")
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max_workers, thread_name_prefix="pubsub-aio"
        )

    async def run(self, callback: AnyCallback, message: Message) -> None:
        """Run the callback in a thread, in a copy of the caller's context."""
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        outcome = await loop.run_in_executor(self._pool, context.run, outcome_of, callback, message)
        await outcome.take()

    def close(self) -> None:
        """Begin no callback any more. Those that run go on."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def check_callback(
    callback: object, what: str, *, name: str = "callback", arguments: int = 1
) -> None:
    """Refuse what cannot be called so: every message would come and go for it.

    Args:
        callback: The function.
        what: What it is called with, in words.
        name: What it is called here.
        arguments: How many arguments that are.
    """
    if not callable(callback):
        raise ConfigError(f"{name} must be a function that takes {what}, not {callback!r}")
    if _is_generator(callback):
        raise ConfigError(
            f"{name} must do its work and return, not yield: as a generator nothing of it would run"
        )
    try:
        signature = inspect.signature(callback)
    except ValueError:  # some that are written in C do not tell
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise ConfigError(
            f"{name} must take {what} and nothing else, not {signature}: {error}"
        ) from error


def is_async(callback: object) -> bool:
    """Whether it is an async function, or an object that is called like one."""
    return any(map(inspect.iscoroutinefunction, _called(callback)))


def _is_generator(callback: object) -> bool:
    return any(
        inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        for function in _called(callback)
    )


def _called(callback: object) -> tuple[object, object]:
    """What may be the function that runs: itself, or the method of an object."""
    return callback, getattr(callback, "__call__", None)  # noqa: B004 - it is looked at


def in_loop(
    callback: AnyCallback, scheduler: Scheduler | None
) -> tuple[Callable[[Message], Awaitable[object]], Scheduler | None]:
    """A callback as an async function, and the scheduler that was made for it, if one was."""
    check_callback(callback, "a message")
    if scheduler is None and is_async(callback):
        return callback, None  # type: ignore[return-value] # it was just looked at
    made = None
    if scheduler is None:
        scheduler = made = ThreadScheduler()
    run = scheduler.run

    async def scheduled(message: Message) -> None:
        await run(callback, message)

    return scheduled, made

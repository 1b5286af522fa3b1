"""Ctrl-C for commands that hold messages: what is held has to be given back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_HURRIED = 2  # interrupts that are heeded; one more ends it as it is


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something that may be interrupted.

    It is cancelled by the first interrupt, and once more by the second, to have it hurry. asyncio
    itself would end everything at the second, and nothing would be given back.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return asyncio.run(work)  # such as one that ignores them, in the background
    try:
        return asyncio.run(_interruptible(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    count = 0

    def interrupt() -> None:
        nonlocal count
        count += 1
        if count > _HURRIED or task is None:
            raise KeyboardInterrupt
        task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except NotImplementedError:  # on Windows, where asyncio sees to the first
        return await work
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if count:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left is to say what was done

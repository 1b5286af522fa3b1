"""The loop that a client serves: the caller's, or one that it brings itself."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from pubsub_aio._wire.forks import ForkGuard
from pubsub_aio.errors import ForkedError, WrongLoopError

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ClientLoop:
    """Finds the loop when it is first needed, and holds the client to it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own = False
        self._guard = ForkGuard("client")

    def get(self) -> asyncio.AbstractEventLoop:
        """The loop.

        Raises:
            ForkedError: The client was made before a fork.
            WrongLoopError: The client serves another than the one that runs here.
        """
        self._guard.check()
        running = _running()
        if self._loop is None:
            self._own = running is None
            self._loop = running or asyncio.new_event_loop()
        elif running is not None and running is not self._loop:
            raise WrongLoopError(
                "this client serves another event loop, the first that it was used in: "
                "make a client in each loop"
            )
        elif running is None and not self._own:
            raise WrongLoopError(
                "this client serves an event loop that does not run here: use it inside that loop"
            )
        return self._loop

    @property
    def running(self) -> bool:
        """Whether a loop runs here."""
        return _running() is not None

    def now_or_later(self, work: Coroutine[Any, Any, T]) -> T | asyncio.Task[T]:
        """Do something: to its end if no loop runs here, else in a task that is returned."""
        try:
            loop = self.get()
        except (ForkedError, WrongLoopError):
            work.close()
            raise
        if self.running:
            return loop.create_task(work)
        return loop.run_until_complete(work)

    def close(self) -> None:
        """Close the loop if it is the client's own."""
        if self._own and self._loop is not None and not self._loop.is_closed():
            loop = self._loop
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@contextlib.contextmanager
def on_signals(loop: asyncio.AbstractEventLoop, react: Callable[[], None]) -> Iterator[None]:
    """Call something in the loop on SIGINT and SIGTERM instead of being killed.

    Signals reach the main thread only; in another thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    for one in _SIGNALS:
        try:
            loop.add_signal_handler(one, react)
        except NotImplementedError:  # Windows
            signal.signal(one, lambda *_: loop.call_soon_threadsafe(react))
    try:
        yield
    finally:
        for one, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(one)
            signal.signal(one, handler)

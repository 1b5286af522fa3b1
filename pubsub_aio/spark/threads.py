"""Threads that a program does not wait for when it ends."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any


class DaemonThreads:
    """Runs functions in a few threads, each used again and again.

    Unlike those of an executor they do not keep a process from ending: what hangs in Spark for ever
    must not keep anybody from starting the process anew.

    Args:
        count: How many there are at most.
        name: What they are called.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, function: Callable[..., Any], *args: object) -> Future[Any]:
        """Run a function as soon as a thread is free, in a copy of the caller's context.

        Returns:
            Its future; a cancelled one if no more functions are taken.
        """
        future: Future[Any] = Future()
        if self._closed:
            future.cancel()
            return future
        if len(self._threads) < self._count:
            name = f"{self._name} {len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put((future, partial(contextvars.copy_context().run, function, *args)))
        return future

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, function = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - told by the future
                    future.set_exception(error)
            del work, future, function  # not to be kept alive by who waits

    def close(self) -> None:
        """Take no more functions; each thread ends when it is free."""
        self._closed = True
        for _ in self._threads:
            self._work.put(None)

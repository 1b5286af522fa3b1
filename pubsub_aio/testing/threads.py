"""What threads are doing, as far as an event loop can know: it must not jump over their work."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future

# There is no other way to tell the threads of pools, which may idle for ever.
from concurrent.futures.thread import _threads_queues
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadWatch:
    """The jobs that a loop gave to executors, and the threads begun since it was made."""

    def __init__(self) -> None:
        self._jobs: set[Future[Any]] = set()
        self._older = weakref.WeakSet(threading.enumerate())

    def note(self, job: Future[Any]) -> None:
        """Count a job until it is done, and those who waited for it have been told."""
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)  # callbacks are called in the order added

    def at_work(self) -> bool:
        """Whether a job runs, or a thread that is neither a daemon nor a pool's."""
        return bool(self._jobs) or any(
            not thread.daemon and thread not in _threads_queues for thread in self.begun()
        )

    def begun(self) -> list[threading.Thread]:
        """The threads that were begun since, and still run."""
        return [thread for thread in threading.enumerate() if thread not in self._older]


class NotingExecutor(Executor):
    """Another executor; the jobs given to it are kept here, too."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.jobs: list[Future[Any]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand the job on."""
        job = self._executor.submit(fn, *args, **kwargs)
        self.jobs.append(job)
        return job

"""Runs callbacks, many at once, at hardly more than the cost of calling them.

Callbacks run one after another in a task, a worker. As soon as one suspends, a second worker goes
on with the next message, and so on; workers that find nothing to do wait to be used again. So a
callback that never suspends costs no task, and every callback runs in a real one.
"""

from __future__ import annotations

import asyncio
import operator
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Generic, Protocol, TypeVar

SLICE = 0.02
"""Seconds after which callbacks that do not suspend let others have the loop."""

_MAX_PARKED = 100
_MAX_BURST = 64
_ENOUGH = 20  # workers where callbacks go on soon: with fewer, turns of the loop cost too much
_MESSAGES_EACH = 4  # that wait, or it is not worth to call a worker for them


class Held(Protocol):
    """What a callback is called with."""

    @property
    def lease(self) -> object | None:
        """None once it is settled."""


T = TypeVar("T", bound=Held)
T_contra = TypeVar("T_contra", contravariant=True)


class Watcher(Protocol[T_contra]):
    """Who is told how callbacks end."""

    @property
    def watch_all(self) -> bool:
        """Whether it must hear of every end, or only of those with an unsettled message."""

    def returned(self, message: T_contra, /) -> None:
        """A callback ended, and its message is not settled, or every end is of interest."""

    def raised(self, message: T_contra, error: BaseException, /) -> None:
        """A callback failed."""


class WorkerChain(Generic[T]):
    """Hands messages, or batches of them, to an async callback.

    Args:
        callback: What is called with each message.
        watcher: Who is told how it ended.
    """

    def __init__(self, callback: Callable[[T], Awaitable[object]], watcher: Watcher[T]) -> None:
        self._callback = callback
        self._watcher = watcher
        self._queue: deque[T] = deque()
        self._workers: dict[asyncio.Task[None], None] = {}  # in the order they were made
        self._parked: list[tuple[asyncio.Future[None], asyncio.Task[None]]] = []
        self._called: set[asyncio.Task[None]] = set()  # to work, and not begun yet
        self._coming = 0  # how many these are, and looks that are to be taken
        self._burst = 1  # how many workers to begin, should a callback suspend
        self._looks = 0
        self._resumed = False  # a callback that was suspended during the last look has ended
        self._slice_ends_at = 0.0
        self._resting = False  # the slice is over; others have the loop
        self._stopped = False
        self._quiet = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._values = list(self._context.values())

    def put(self, messages: list[T]) -> None:
        """Run the callback for these, in turn."""
        self._queue.extend(messages)
        if not self._coming:
            self._begin(1)

    @property
    def busy(self) -> int:
        """How many callbacks have begun and not ended."""
        return len(self._workers) - len(self._parked)

    def withdraw(self) -> list[T]:
        """Take back the messages that wait for a worker."""
        messages = list(self._queue)
        self._queue.clear()
        return messages

    async def finished(self) -> None:
        """Return when no callback runs and none waits."""
        while self.busy or self._queue:
            self._quiet.clear()
            await self._quiet.wait()

    async def stop(self, *, timeout: float) -> int:
        """Cancel the callbacks that run; returns how many did not end within the timeout."""
        self._stopped = True
        for worker in self._workers:
            worker.cancel()
        if not self._workers:
            return 0
        _, stubborn = await asyncio.wait(self._workers, timeout=timeout)
        return len(stubborn)

    def _look(self) -> None:
        """If a callback has suspended and left others waiting, let more workers begin.

        The more often that happens in a row, the more at once; but where callbacks go on soon a
        few workers will do.
        """
        self._coming -= 1
        self._looks += 1
        resumed, self._resumed = self._resumed, False
        busy = self.busy
        if not busy:  # none has: these came since
            count = self._burst = 1
        elif resumed:
            self._burst = max(1, self._burst // 2)
            count = max(self._burst, min(_ENOUGH, len(self._queue) // _MESSAGES_EACH) - busy)
        else:
            count = self._burst = min(2 * self._burst, _MAX_BURST)
        if self._queue and not self._stopped and not self._resting:
            self._begin(min(count, len(self._queue)))

    def _begin(self, count: int) -> None:
        """Let workers begin in the loop's next turn."""
        self._coming += count
        for _ in range(count):
            worker = self._parked_worker() or self._new_worker()
            self._called.add(worker)

    def _parked_worker(self) -> asyncio.Task[None] | None:
        """Call a worker that waits, unless somebody has cancelled it."""
        while self._parked:
            more, worker = self._parked.pop()
            if not more.done():
                more.set_result(None)
                return worker
        return None

    def _new_worker(self) -> asyncio.Task[None]:
        # A task factory of the loop's might begin it before it is known here.
        context = self._context.copy()
        worker = asyncio.Task(
            self._work(context), loop=self._loop, name="pubsub-aio callbacks", context=context
        )
        self._workers[worker] = None
        worker.add_done_callback(self._retire, context=self._context)
        return worker

    def _retire(self, worker: asyncio.Task[None]) -> None:
        """A worker has ended, as it should or because a callback of it was cancelled."""
        del self._workers[worker]
        if worker in self._called:
            self._called.discard(worker)
            self._coming -= 1
        if worker.cancelled():
            self._parked = [parked for parked in self._parked if parked[1] is not worker]
        else:
            self._complain_of(worker)
        self._quiet.set()
        if self._queue and not self._coming and not self._stopped:
            self._begin(1)

    def _complain_of(self, worker: asyncio.Task[None]) -> None:
        """Tell of a fault; what a callback raised was told to the watcher."""
        if isinstance(error := worker.exception(), Exception):
            told = {"message": "a callback's end could not be dealt with", "exception": error}
            self._loop.call_exception_handler({**told, "task": worker})

    async def _work(self, context: Context) -> None:
        """Run callbacks; return when there are workers enough, or this one cannot be used again.

        It is one function, without another between it and the callback: whatever suspends and
        goes on passes through each.
        """
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - tells the type checker
        queue, callback, watcher = self._queue, self._callback, self._watcher
        cancelling = me.cancelling  # looked up once: the interpreter has no short cut for it
        # The loop's own clock is the cheaper half of asking the loop.
        plain = type(self._loop).time is asyncio.BaseEventLoop.time
        clock = time.monotonic if plain else self._loop.time
        message: T | None
        while not self._stopped:
            if not self._resting and (now := clock()) > self._slice_ends_at:
                self._slice_ends_at = now + SLICE
            self._called.discard(me)
            self._coming -= 1
            looks = self._looks
            while queue and not self._resting:
                message = queue.popleft()
                if message.lease is None:  # it was given back while it waited
                    watcher.returned(message)
                    continue
                if not self._coming and queue:
                    self._coming = 1
                    self._loop.call_soon(self._look)
                try:
                    await callback(message)
                except BaseException as error:
                    watcher.raised(message, error)
                    if not self._outlives(error, me):
                        raise
                else:
                    if message.lease is not None or watcher.watch_all:
                        watcher.returned(message)
                if (context and self._changed(context)) or cancelling():
                    return  # what a callback left behind is not for the next one
                if looks != self._looks:
                    looks, self._resumed = self._looks, True
                if clock() > self._slice_ends_at and not self._resting:
                    await self._rest()
                    self._slice_ends_at = clock() + SLICE
                    looks = self._looks
            message = None  # not to be kept alive by who waits
            if len(self._parked) >= _MAX_PARKED:
                return
            more = self._loop.create_future()
            self._parked.append((more, me))
            self._quiet.set()
            await more

    @staticmethod
    def _outlives(error: BaseException, worker: asyncio.Task[None]) -> bool:
        """Whether a worker goes on after a callback that failed like this.

        That it was cancelled although nobody cancelled its task is its own affair.
        """
        if isinstance(error, asyncio.CancelledError):
            return not worker.cancelling()
        return isinstance(error, Exception)

    async def _rest(self) -> None:
        """Let others have the loop for a turn; no other worker goes on with the queue meanwhile."""
        self._resting = True
        self._coming += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._resting = False
            self._coming -= 1

    def _changed(self, context: Context) -> bool:
        """Whether a callback has set a context variable."""
        if len(context) != len(self._values):
            return True
        # By identity: values may be equal and not the same, or refuse to be compared.
        return any(map(operator.is_not, context.values(), self._values))

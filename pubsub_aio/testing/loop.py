"""An event loop whose time is virtual: it jumps to the next timer when there is nothing to do."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
import selectors
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from pubsub_aio.errors import PubSubError
from pubsub_aio.testing.stuck import whereabouts
from pubsub_aio.testing.threads import NotingExecutor, ThreadWatch

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_TIME = 30 * 86_400.0
"""Virtual seconds after which a program is taken for endless, unless told otherwise."""

GRACE = 1.0
"""Real seconds that work in a thread may take without any virtual time passing."""

_LOOK_AGAIN = 0.01  # real seconds after which to see whether a thread has ended, which tells nobody


class DeadlockError(PubSubError, RuntimeError):
    """Nothing is ready, no timer is set, no thread is at work: the program would wait for ever.

    The message lists each task and where it waits.
    """

    def __init__(self, at: float, waiting: Sequence[str]) -> None:
        tasks = "".join(f"\n  {line}" for line in waiting) or " no task"
        super().__init__(f"nothing can happen any more after {at:,.10g} virtual seconds;{tasks}")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits for time to pass.

    `time()` begins at zero, stands still while anything is ready to run, and jumps to the next
    timer when nothing is. So `asyncio.sleep`, `asyncio.timeout`, `wait_for`, `call_later` and the
    like take as long as they should by `time()`, and no time at all. A program that only uses
    these runs the same way each time: timers of one instant run in the order they were set, and
    sets of tasks have the same order in every run.

    What time it is elsewhere is not changed: `time.monotonic()` and `datetime.now()` go on as
    ever. What happens outside of the loop cannot be virtual:

    - Threads: time stands still while `asyncio.to_thread`, `run_in_executor` or a thread begun
      since the loop was made is at work. If that takes longer than a second, time passes as it
      really does until it is done. Daemon threads, and jobs given to a pool by its own `submit`,
      are not waited for.
    - Sockets, pipes and subprocesses: what has arrived is read before each jump, but time does not
      wait for more. Two ends in one process mostly work; a peer elsewhere is too slow for timeouts
      that take no time. With no timer set, the loop waits for them as any loop does.

    A task that waits for time to pass by `await asyncio.sleep(0)` alone is always ready, and waits
    for ever.

    Args:
        max_time: Virtual seconds after which TimeoutError is raised out of the loop, so that a
            program that does something every now and then does not do so for ever.

    Raises:
        DeadlockError: Out of the loop, when nothing can happen any more.
    """

    _clock_resolution: float
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, *, max_time: float = MAX_TIME) -> None:
        self._now = 0.0
        self._max_time = self._ends_at = max_time
        self._numbers = itertools.count(1)
        self._threads = ThreadWatch()
        self._pool: ThreadPoolExecutor | None = None
        super().__init__(_Selector(self._threads, next_at=self._next_at, jump=self._jump))
        self._show(0.0)
        self.set_task_factory(self._new_task)

    # Time

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def _show(self, now: float) -> None:
        self._now = now
        # Timers run that are due before now + resolution: those of now, and none that is later.
        self._clock_resolution = math.ulp(now)

    def _next_at(self) -> float:
        """When the next timer is due; infinity if none is set."""
        return self._scheduled[0].when() if self._scheduled else math.inf

    def _jump(self) -> None:
        """Move time to the next timer."""
        at = self._next_at()
        if at == math.inf:
            raise DeadlockError(self._now, whereabouts(self))
        if at > self._ends_at:
            self._ends_at += self._max_time  # for those who clean up after this
            raise TimeoutError(f"the program goes on for more than {self._max_time:,.10g} seconds")
        self._show(max(self._now, at))

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As any loop's, but what is due at the same time happens in the order of the calls."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        timer = _Timer(next(self._numbers), when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        return timer

    # Order

    def create_future(self) -> asyncio.Future[Any]:
        """As any loop's, but sets of them have the same order in every run."""
        return _Future(next(self._numbers), loop=self)

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **options: Any,
    ) -> asyncio.Task[T]:
        return _Task(next(self._numbers), coro, loop=loop, **options)

    # Threads

    def set_default_executor(  # type: ignore[override]
        self, executor: ThreadPoolExecutor
    ) -> None:
        """As any loop's."""
        super().set_default_executor(executor)
        self._pool = executor

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As any loop's; time does not jump while the function runs."""
        if executor is None:
            executor = self._pool
        if executor is None:
            executor = pool = ThreadPoolExecutor(thread_name_prefix="asyncio")
            self.set_default_executor(pool)
        noting = NotingExecutor(executor)
        future = super().run_in_executor(noting, func, *args)
        for job in noting.jobs:
            self._threads.note(job)
        return future


Events = list[tuple[selectors.SelectorKey, int]]


class _Selector(selectors.DefaultSelector):
    """Moves a loop's time instead of waiting, unless there is something real to wait for."""

    def __init__(
        self, threads: ThreadWatch, *, next_at: Callable[[], float], jump: Callable[[], None]
    ) -> None:
        super().__init__()
        self._threads = threads
        self._next_at = next_at
        self._jump = jump
        self._working_since: float | None = None

    def select(self, timeout: float | None = None) -> Events:
        """What has arrived; if nothing has, and nothing is ready, time moves on."""
        if timeout is not None and timeout <= 0:
            return super().select(0)
        at_work = self._threads.at_work()  # before we look: who ends has told us by then
        events = super().select(0)
        if not events and at_work:
            events = self._while_threads_work(math.inf if timeout is None else timeout)
        elif not events and self._next_at() == math.inf:
            events = self._for_others()
        if events or not at_work:
            self._working_since = None
        if not events:
            self._jump()
        return events

    def _while_threads_work(self, timeout: float) -> Events:
        """Wait while threads work: for a while no time passes, and then as much as really does."""
        began = time.monotonic()
        if self._working_since is None:
            self._working_since = began
        ends_at = max(began + timeout, self._working_since + GRACE)
        at_work = True
        while at_work and (left := ends_at - time.monotonic()) > 0:
            at_work = self._threads.at_work()
            if events := super().select(min(left, _LOOK_AGAIN) if at_work else 0):
                return events
        return [] if self._next_at() < math.inf else self._for_others()

    def _for_others(self) -> Events:
        """Wait for files and sockets, and a little for threads that may have something to say."""
        if len(self.get_map()) > 1:  # the first is the loop's own
            return super().select(None)
        return super().select(GRACE) if self._threads.begun() else []


class _Timer(asyncio.TimerHandle):
    """A timer that comes after those set earlier for the same time."""

    __slots__ = ("_number",)
    _scheduled: bool

    def __init__(
        self,
        number: int,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._number = number
        self._scheduled = True  # the loop counts those that are cancelled

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        return (self.when(), self._number) < (other.when(), other._number)


class _Future(asyncio.Future[T]):
    """A future whose hash is its number in its loop, not its address."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[T]):
    """A task whose hash and name are its number in its loop."""

    def __init__(
        self,
        number: int,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        self._number = number  # first: a task is hashed while it is made
        if options.get("name") is None:
            options["name"] = f"Task-{number}"
        super().__init__(coro, loop=loop, **options)

    def set_name(self, value: object, /) -> None:
        if value is not None:  # which is what some versions pass on when no name is given
            super().set_name(value)

    def __hash__(self) -> int:
        return self._number


def run(
    main: Coroutine[Any, Any, T], *, max_time: float = MAX_TIME, debug: bool | None = None
) -> T:
    """Run a coroutine in virtual time, as `asyncio.run` does in real time.

    What it leaves behind is ended: tasks are cancelled, async generators and threads closed.

    Args:
        main: The coroutine.
        max_time: Virtual seconds that it may take.
        debug: Whether asyncio's debug mode is on.

    Raises:
        DeadlockError: It waits for something that can never happen.
        TimeoutError: It takes longer than `max_time`.
    """
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises if not
        main.close()
        raise RuntimeError("run() cannot be called from a running event loop")
    factory = functools.partial(VirtualTimeLoop, max_time=max_time)
    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)

"""Plain functions in threads: a slot is had before one runs, and is free when it has ended.

Loop and threads are real here; whatever is waited for is a condition.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future

import pytest

from pubsub_aio import ClosedError, ConfigError
from pubsub_aio.jobs import Job
from pubsub_aio.jobs.threads import JobThreads, _make
from pubsub_aio.subscriber.schedulers import Outcome
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import virtual

PATIENCE = 10.0
"""Seconds after which something is taken to happen never."""

current = contextvars.ContextVar[str]("current", default="")


class Chore(Job):
    """A job without a message."""

    def __repr__(self) -> str:
        return "a chore"


class Blocking:
    """A function that ends when it is told to."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self._go_on = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.running = self.peak = self.calls = 0

    def __call__(self, _: Job) -> None:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.peak = max(self.peak, self.running)
        self.began.release()
        assert self._go_on.acquire(timeout=PATIENCE)
        with self._lock:
            self.running -= 1
        self.ended.release()

    def let_go(self, count: int = 1) -> None:
        self._go_on.release(count)


async def happened(semaphore: threading.Semaphore, count: int = 1) -> None:
    """Wait until something has happened in threads so many times."""
    for _ in range(count):
        assert await asyncio.to_thread(semaphore.acquire, timeout=PATIENCE)


async def in_slot(threads: JobThreads, function: Callable[[Job], object]) -> None:
    async with asyncio.timeout(PATIENCE), threads.slot() as run:
        await run(function, Chore())


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def turns() -> None:
    """Let everybody go on who can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    function = Blocking()
    yield function
    function.let_go(1_000)


@pytest.fixture
def one() -> Iterator[JobThreads]:
    """A single thread."""
    with contextlib.closing(JobThreads(max_workers=1)) as threads:
        yield threads


# What a function does


async def test_a_function_is_given_its_job_in_a_thread(one: JobThreads) -> None:
    seen: list[tuple[Job, str]] = []
    job = Chore()

    async with one.slot() as run:
        await run(lambda given: seen.append((given, threading.current_thread().name)), job)

    assert seen[0][0] is job
    assert seen[0][1].startswith("pubsub-aio-jobs")


async def test_a_function_sees_a_copy_of_the_context(one: JobThreads) -> None:
    seen: list[str] = []

    def function(_: Job) -> None:
        seen.append(current.get())
        current.set("spoilt")

    current.set("of the caller")
    await in_slot(one, function)
    await in_slot(one, function)

    assert seen == ["of the caller"] * 2
    assert current.get() == "of the caller"


async def test_what_can_be_awaited_is_awaited_in_the_loop(one: JobThreads) -> None:
    """And the slot is taken meanwhile."""
    go_on, waiting = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def rest() -> None:
        assert asyncio.get_running_loop() is loop
        waiting.set()
        await go_on.wait()

    first = asyncio.create_task(in_slot(one, lambda _: rest()))
    await asyncio.wait_for(waiting.wait(), PATIENCE)
    second = asyncio.create_task(in_slot(one, lambda _: None))
    await turns()
    assert not second.done()
    go_on.set()

    await asyncio.gather(first, second)


async def test_what_a_function_raises_is_raised(one: JobThreads) -> None:
    class Unusual(BaseException):
        pass

    for kind in (ValueError, Unusual, asyncio.CancelledError):
        error = kind("as it is")
        with pytest.raises(kind) as caught:
            await in_slot(one, raising(error))
        assert caught.value is error

    await in_slot(one, lambda _: None)


async def test_a_function_that_raises_stop_iteration_has_failed(one: JobThreads) -> None:
    """No future takes it: whoever awaited that would wait for ever."""
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"raised StopIteration\('no more'\)") as caught:
            await in_slot(one, raising(StopIteration("no more")))
        assert isinstance(caught.value.__cause__, StopIteration)


async def test_a_function_that_ends_the_program_ends_nothing(one: JobThreads) -> None:
    """As a parser of arguments does that is given wrong ones."""
    for error in (SystemExit(2), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(RuntimeError, match=f"raised {type(error).__name__}"):
            await in_slot(one, raising(error))


async def test_an_error_is_kept_alive_by_nobody(one: JobThreads) -> None:
    class BigError(Exception):
        pass

    alive: list[weakref.ref[BigError]] = []

    def function(_: Job) -> None:
        error = BigError()
        alive.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(BigError):
            await in_slot(one, function)
        await in_slot(one, lambda _: None)  # until then the thread may not have let go of it
        assert alive[0]() is None
    finally:
        gc.enable()


def raising(error: BaseException) -> Callable[[Job], None]:
    def function(_: Job) -> None:
        raise error

    return function


# Slots


@pytest.mark.parametrize("count", [1, 3])
async def test_as_many_run_at_once_as_told_and_no_more(blocking: Blocking, count: int) -> None:
    with contextlib.closing(JobThreads(max_workers=count)) as threads:
        tasks = [asyncio.create_task(in_slot(threads, blocking)) for _ in range(4 * count)]
        await happened(blocking.began, count)
        await turns()
        assert blocking.calls == blocking.running == count
        blocking.let_go(4 * count)
        await asyncio.gather(*tasks)

    assert (blocking.calls, blocking.peak) == (4 * count, count)


async def test_whoever_has_a_slot_waits_for_no_thread(one: JobThreads, blocking: Blocking) -> None:
    """So that what was looked at in the block is so when the function begins."""
    entered = 0

    async def look_and_run() -> None:
        nonlocal entered
        async with asyncio.timeout(PATIENCE), one.slot() as run:
            entered += 1
            await run(blocking, Chore())

    tasks = [asyncio.create_task(look_and_run()) for _ in range(3)]
    for number in range(1, 4):
        await happened(blocking.began)
        await turns()
        assert (entered, blocking.calls) == (number, number)
        blocking.let_go()
    await asyncio.gather(*tasks)


async def test_a_slot_that_is_not_used_is_free_again(one: JobThreads) -> None:
    for _ in range(3):
        async with asyncio.timeout(PATIENCE), one.slot():
            pass
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(PATIENCE), one.slot():
                raise ZeroDivisionError


async def test_a_slot_is_of_no_use_once_it_was_left(one: JobThreads) -> None:
    async with one.slot() as run:
        await run(lambda _: None, Chore())
        await run(lambda _: None, Chore())

    with pytest.raises(RuntimeError, match="none once it was left"):
        await run(lambda _: None, Chore())


async def test_a_slot_runs_one_function_at_a_time(one: JobThreads, blocking: Blocking) -> None:
    async with one.slot() as run:
        task = asyncio.create_task(run(blocking, Chore()))
        await happened(blocking.began)
        with pytest.raises(RuntimeError, match="one function at a time"):
            await run(blocking, Chore())
        blocking.let_go()
        await task

    assert blocking.calls == 1


# Cancellation


async def test_a_function_keeps_its_slot_until_it_ends_although_it_was_cancelled(
    one: JobThreads, blocking: Blocking
) -> None:
    first = asyncio.create_task(in_slot(one, blocking))
    await happened(blocking.began)
    await cancelled(first)  # that does not take as long as the function
    entered = asyncio.Event()
    second = asyncio.create_task(enter(one, entered.set))
    await turns()
    assert (blocking.running, entered.is_set()) == (1, False)

    blocking.let_go()
    await second
    assert blocking.running == 0


async def test_a_slot_is_taken_also_by_a_function_that_was_given_up_inside_of_the_block(
    one: JobThreads, blocking: Blocking
) -> None:
    async with one.slot() as run:
        task = asyncio.create_task(run(blocking, Chore()))
        await happened(blocking.began)
        await cancelled(task)
        with pytest.raises(RuntimeError, match="one function at a time"):
            await run(blocking, Chore())
    other = asyncio.create_task(enter(one))
    await turns()
    assert not other.done()

    blocking.let_go()
    await other


async def test_who_is_cancelled_while_waiting_for_a_slot_takes_none(
    one: JobThreads, blocking: Blocking
) -> None:
    first = asyncio.create_task(in_slot(one, blocking))
    await happened(blocking.began)
    second = asyncio.create_task(in_slot(one, blocking))
    await turns()
    await cancelled(second)
    blocking.let_go()
    await first

    await enter(one)
    assert blocking.calls == 1


async def test_a_function_that_has_not_begun_when_it_is_cancelled_never_does(
    one: JobThreads, blocking: Blocking
) -> None:
    """And its slot is free at once."""
    begin = threading.Event()
    one._pool.submit(begin.wait, PATIENCE)  # as a thread that takes its time to begin
    task = asyncio.create_task(in_slot(one, blocking))
    await turns()
    await cancelled(task)
    await enter(one)
    begin.set()

    await in_slot(one, lambda _: None)
    assert blocking.calls == 0


def test_a_call_that_is_cancelled_as_its_thread_begins_is_not_made() -> None:
    call = Future[Outcome]()
    call.cancel()

    _make(call, lambda: pytest.fail("it was made"))


async def test_a_failure_of_which_nobody_can_be_told_is_logged(
    one: JobThreads, blocking: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    def function(job: Job) -> None:
        blocking(job)
        raise ZeroDivisionError

    task = asyncio.create_task(in_slot(one, function))
    await happened(blocking.began)
    await cancelled(task)
    blocking.let_go()
    await enter(one)

    (record,) = caplog.records
    assert record.getMessage() == "a chore was cancelled, and failed in its thread later"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_coroutine_that_nobody_can_await_any_more_is_closed(
    one: JobThreads, blocking: Blocking
) -> None:
    """Otherwise there is a warning, and warnings are errors here."""

    async def rest() -> None: ...

    def function(job: Job) -> Awaitable[None]:
        blocking(job)
        return rest()

    task = asyncio.create_task(in_slot(one, function))
    await happened(blocking.began)
    await cancelled(task)
    blocking.let_go()
    await enter(one)
    gc.collect()


def test_a_function_may_outlast_its_loop(
    blocking: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    async def cut_off() -> JobThreads:
        threads = JobThreads(max_workers=1)
        asyncio.create_task(in_slot(threads, blocking))  # noqa: RUF006 - it is to be cancelled
        await happened(blocking.began)
        return threads

    before = set(threading.enumerate())
    threads = asyncio.run(cut_off())
    (thread,) = set(threading.enumerate()) - before
    threads.close()
    blocking.let_go()
    thread.join(PATIENCE)

    assert not thread.is_alive()
    assert caplog.records == []


async def enter(threads: JobThreads, entered: Callable[[], object] = lambda: None) -> None:
    """Have a slot for a moment."""
    async with asyncio.timeout(PATIENCE), threads.slot():
        entered()


# The end


async def test_no_function_begins_when_all_is_closed(one: JobThreads) -> None:
    one.close()
    one.close()

    with pytest.raises(ClosedError, match="make another worker"):
        await in_slot(one, lambda _: None)


async def test_those_that_run_go_on_and_those_that_wait_are_told_when_all_is_closed(
    one: JobThreads, blocking: Blocking
) -> None:
    first = asyncio.create_task(in_slot(one, blocking))
    await happened(blocking.began)
    others = [asyncio.create_task(in_slot(one, blocking)) for _ in range(3)]
    await turns()
    one.close()
    told = await asyncio.gather(*others, return_exceptions=True)

    assert [type(error) for error in told] == [ClosedError] * 3
    assert not first.done()
    blocking.let_go()
    await first
    assert blocking.calls == 1


@pytest.mark.parametrize("closed", [True, False])
async def test_threads_end_when_all_is_closed_or_forgotten(closed: bool) -> None:
    seen: list[threading.Thread] = []
    threads = JobThreads(max_workers=1)
    await in_slot(threads, lambda _: seen.append(threading.current_thread()))
    if closed:
        threads.close()
    else:
        del threads
    await asyncio.to_thread(seen[0].join, PATIENCE)

    assert not seen[0].is_alive()


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_a_number_of_threads_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=r"^max_workers must be"):
        JobThreads(max_workers=count)


@virtual
async def test_virtual_time_stands_still_while_a_function_runs(emulator: MemoryEmulator) -> None:
    del emulator
    loop = asyncio.get_running_loop()

    def function(_: Job) -> None:
        for answered in [threading.Event() for _ in range(5)]:
            loop.call_soon_threadsafe(answered.set)
            assert answered.wait(PATIENCE)

    with contextlib.closing(JobThreads(max_workers=1)) as threads:
        async with asyncio.timeout(0.001):
            await in_slot(threads, function)

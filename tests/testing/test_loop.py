"""The virtual-time loop: time passes at once, in order, and not past anything real."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pubsub_aio.testing import DeadlockError, VirtualTimeLoop, run
from pubsub_aio.testing import loop as loop_module

HOUR = 3_600.0
WORK = 0.05
"""Real seconds that work in a thread takes here: long enough to be jumped over by mistake."""


def now() -> float:
    return asyncio.get_running_loop().time()


def work() -> int:
    """Something that takes a moment of real time."""
    threading.Event().wait(WORK)
    return 7


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "GRACE", 2 * WORK)


# Time


def test_hours_of_sleep_pass_in_no_time() -> None:
    async def main() -> float:
        for _ in range(100):
            await asyncio.sleep(HOUR)
        return now()

    assert run(main()) == 100 * HOUR


def test_every_kind_of_timer_is_virtual() -> None:
    async def main() -> list[tuple[str, float]]:
        loop, seen = asyncio.get_running_loop(), []
        loop.call_later(3 * HOUR, lambda: seen.append(("call_later", now())))
        loop.call_at(2 * HOUR, lambda: seen.append(("call_at", now())))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), HOUR)
        seen.append(("wait_for", now()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * HOUR):
                await loop.create_future()
        seen.append(("timeout", now()))
        await asyncio.wait([loop.create_future()], timeout=HOUR)
        seen.append(("wait", now()))
        return seen

    assert run(main()) == [
        ("wait_for", HOUR),
        ("call_at", 2 * HOUR),
        ("call_later", 3 * HOUR),
        ("timeout", 4 * HOUR),
        ("wait", 5 * HOUR),
    ]


def test_time_stands_still_while_anything_is_ready() -> None:
    async def main() -> list[float]:
        timer = asyncio.create_task(asyncio.sleep(0.001))
        seen = []
        for _ in range(1_000):
            await asyncio.sleep(0)
            seen.append(now())
        await timer
        return [*set(seen), now()]

    assert run(main()) == [0.0, 0.001]


def test_a_timer_that_is_cancelled_does_not_hold_time() -> None:
    async def main() -> float:
        timers = [asyncio.get_running_loop().call_later(HOUR + n, print) for n in range(200)]
        for timer in timers:
            timer.cancel()
        await asyncio.sleep(2 * HOUR)
        return now()

    assert run(main()) == 2 * HOUR


def test_centuries_and_the_smallest_steps_are_exact() -> None:
    async def main() -> None:
        for at in (0.1, 1e7 + 1 / 3, 3e9 + 1e-6):
            await asyncio.sleep(at - now())
            await asyncio.sleep(at - now())  # what rounding left, if anything
            assert now() == at
            await asyncio.sleep(math.ulp(at))
            assert now() == math.nextafter(at, math.inf)

    run(main(), max_time=math.inf)


# Order


def test_what_is_due_at_one_time_happens_in_the_order_it_was_asked_for() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(100):
            asyncio.get_running_loop().call_at(HOUR, seen.append, number)
        await asyncio.sleep(HOUR)
        return seen

    assert run(main()) == list(range(100))


def test_the_same_program_runs_the_same_way_every_time() -> None:
    async def main() -> list[object]:
        seen: list[object] = []

        async def worker(number: int) -> None:
            try:
                await asyncio.sleep(number % 3)
                seen.append((number, now()))
                await asyncio.sleep(HOUR)
            finally:
                seen.append(("ended", number))

        async def fail() -> None:
            await asyncio.sleep(2)
            raise ValueError

        tasks = {asyncio.create_task(worker(number)) for number in range(20)}
        await asyncio.wait(tasks, timeout=1.5)
        seen.extend(task.get_name() for task in tasks)
        futures = {asyncio.get_running_loop().create_future() for _ in range(20)}
        seen.extend(map(hash, futures))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(worker(number))
                group.create_task(fail())
        except* ValueError:
            seen.append(now())
        return seen  # the rest is cancelled at the end

    runs = []
    clutter: list[object] = []
    for number in range(20):
        clutter += [bytearray(50 * number) for _ in range(number)]  # so that addresses differ
        runs.append(run(main()))

    assert all(each == runs[0] for each in runs)
    assert len(runs[0]) > 100


# Threads


def test_work_in_threads_is_waited_for_and_takes_no_time() -> None:
    async def main() -> list[object]:
        early = asyncio.create_task(asyncio.sleep(0.001))
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            answers = [await asyncio.to_thread(work), await loop.run_in_executor(pool, work)]
            async with asyncio.timeout(0.001):
                answers.append(await loop.run_in_executor(None, work))
        return [*answers, now(), early.done()]

    assert run(main()) == [7, 7, 7, 0.0, False]


def test_a_job_that_nobody_waits_for_any_more_still_holds_time() -> None:
    async def main() -> bool:
        begun, done = threading.Event(), threading.Event()

        def job() -> None:
            begun.set()
            work()
            done.set()

        future = asyncio.get_running_loop().run_in_executor(None, job)
        begun.wait()
        future.cancel()
        await asyncio.sleep(HOUR)
        return done.is_set()

    assert run(main())


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_of_the_programs_own_is_waited_for(daemon: bool) -> None:
    async def main() -> int:
        loop, answer = asyncio.get_running_loop(), asyncio.Event()

        def target() -> None:
            work()
            loop.call_soon_threadsafe(answer.set)

        threading.Thread(target=target, daemon=daemon).start()
        if daemon:  # it may go on for ever, so nothing is held up by it
            await answer.wait()
        else:
            await asyncio.wait_for(answer.wait(), 0.001)
        return int(now())

    assert run(main()) == 0


def test_a_thread_that_ends_without_a_word_does_not_hold_time_for_longer() -> None:
    async def main() -> float:
        threading.Thread(target=work).start()
        await asyncio.sleep(HOUR)
        return now()

    assert run(main()) == HOUR


@pytest.mark.usefixtures("short_grace")
def test_a_thread_that_waits_for_a_timer_gets_it() -> None:
    async def main() -> tuple[bool, bool]:
        go = threading.Event()
        asyncio.get_running_loop().call_later(0.01, go.set)
        return await asyncio.to_thread(go.wait, 30), now() >= 0.01

    assert run(main()) == (True, True)


def test_threads_that_were_there_before_are_none_of_its_business() -> None:
    go = threading.Event()
    older = threading.Thread(target=go.wait)
    older.start()
    try:
        run(asyncio.sleep(HOUR))
        with pytest.raises(DeadlockError):
            run(asyncio.Event().wait())
    finally:
        go.set()
        older.join()


# Sockets


def test_what_arrives_on_a_socket_is_read_before_time_moves() -> None:
    async def main() -> tuple[bytes, float]:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        _, other = await asyncio.open_connection(sock=theirs)
        asyncio.get_running_loop().call_later(HOUR, other.write, b"hello")
        async with asyncio.timeout(HOUR + 1):
            data = await reader.readexactly(5)
        for end in (writer, other):
            end.close()
            await end.wait_closed()
        return data, now()

    assert run(main()) == (b"hello", HOUR)


def test_without_a_timer_a_socket_is_waited_for() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)

        def target() -> None:
            work()
            theirs.send(b"hello")

        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        data = await asyncio.get_running_loop().sock_recv(ours, 5)
        thread.join()
        ours.close()
        theirs.close()
        return data

    assert run(main()) == b"hello"


# Ends


def test_a_program_that_can_never_go_on_is_told_where_it_waits() -> None:
    cleaned: list[str] = []

    async def wait_for_godot() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("godot")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_godot(), name="Vladimir")
            group.create_task(asyncio.sleep(HOUR))

    with pytest.raises(DeadlockError) as caught:
        run(main())

    text = str(caught.value)
    assert "after 3,600 virtual seconds" in text
    assert "Vladimir: test_a_program_that_can" in text
    assert "wait_for_godot (test_loop.py:" in text
    assert "main (test_loop.py:" in text
    assert cleaned == ["godot"]


def test_a_program_that_cannot_even_be_cancelled_is_given_up() -> None:
    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(main())
    gc.collect()


def test_a_timer_at_infinity_is_none() -> None:
    async def main() -> None:
        async with asyncio.timeout(math.inf):
            await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(main())


def test_an_endless_program_ends_at_max_time_and_may_clean_up() -> None:
    seen: list[float] = []

    async def main() -> None:
        try:
            for _ in itertools.count():
                await asyncio.sleep(HOUR)
        finally:
            seen.append(now())
            await asyncio.sleep(HOUR)
            seen.append(now())

    with pytest.raises(TimeoutError, match="more than 10,800 seconds"):
        run(main(), max_time=3 * HOUR)
    assert seen == [3 * HOUR, 4 * HOUR]


def test_an_endless_program_that_cannot_be_cancelled_ends_too() -> None:
    async def main() -> None:
        while True:
            try:
                await asyncio.sleep(HOUR)
            except asyncio.CancelledError:
                continue

    with pytest.raises(TimeoutError):
        run(main(), max_time=3 * HOUR)
    gc.collect()


def test_results_and_errors_come_out() -> None:
    async def fail() -> None:
        await asyncio.sleep(HOUR)
        raise KeyError("x")

    assert run(asyncio.sleep(HOUR, result="over")) == "over"
    with pytest.raises(KeyError):
        run(fail())


def test_nothing_is_left_behind() -> None:
    seen: list[str] = []
    kept: list[object] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(HOUR)
            seen.append("generator")

    async def linger() -> None:
        try:
            await asyncio.sleep(100 * HOUR)
        finally:
            seen.append("task")

    async def main() -> None:
        task = asyncio.create_task(linger())
        generator = generate()
        kept.append(await anext(generator))
        kept.append(generator)
        await asyncio.to_thread(work)
        seen.append(task.get_name())

    threads = threading.active_count()
    run(main())

    assert seen == ["Task-2", "task", "generator"]
    assert threading.active_count() == threads


@pytest.fixture
def sigint_is_not_ignored() -> Iterator[None]:
    """As it is in what a shell runs in the background."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("sigint_is_not_ignored")
def test_signals_are_heeded(number: signal.Signals) -> None:
    async def main() -> float:
        got = asyncio.Event()
        loop = asyncio.get_running_loop()
        if number != signal.SIGINT:
            loop.add_signal_handler(number, got.set)
        loop.call_later(HOUR, os.kill, os.getpid(), number)
        await got.wait()
        loop.remove_signal_handler(number)
        return now()

    if number == signal.SIGINT:
        with pytest.raises(KeyboardInterrupt):
            run(main())
    else:
        assert run(main()) == HOUR


def test_debug_mode_works() -> None:
    assert run(asyncio.sleep(HOUR, result=1), debug=True) == 1


def test_it_does_not_run_inside_of_another_loop() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="running event loop"):
            run(asyncio.sleep(0))

    asyncio.run(main())


def test_a_closed_loop_takes_no_timer() -> None:
    loop = VirtualTimeLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


def test_a_loop_can_be_run_more_than_once_and_time_goes_on() -> None:
    loop = VirtualTimeLoop()
    try:
        times = [loop.run_until_complete(_sleep_and_tell()) for _ in range(3)]
    finally:
        loop.close()

    assert times == [HOUR, 2 * HOUR, 3 * HOUR]


def _sleep_and_tell() -> Coroutine[object, object, float]:
    async def sleep() -> float:
        await asyncio.sleep(HOUR)
        return now()

    return sleep()

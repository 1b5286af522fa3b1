"""Jobs that are cut off because their worker ends, and those that only seem to be."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from pubsub_aio import PubSubError, ShutdownPolicy
from pubsub_aio.config import StreamPolicy
from pubsub_aio.jobs import Job, JobPolicy
from pubsub_aio.message import Message
from pubsub_aio.subscriber.options import SubscribeOptions
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import NOTHING_LEFT, QUEUE, Performer, after, fails, shop
from tests.subscriber.conftest import now, virtual

pytestmark = pytest.mark.usefixtures("quiet")

AT_ONCE: SubscribeOptions = {"shutdown": ShutdownPolicy(timeout=1)}
ONCE = JobPolicy(max_attempts=1, max_resurrections=0)


async def converts(_: Job) -> None:
    """What a job does that makes an error of its own of a cancellation."""
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        raise RuntimeError("it was disturbed") from None


@pytest.mark.parametrize("attempts", [1, 4])
def test_a_job_that_is_interrupted_has_not_failed(attempts: int) -> None:
    """Whatever its handler makes of the cancellation: it is not given up, nor begun again."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        policy = JobPolicy(max_attempts=attempts, max_resurrections=0)
        async with shop(emulator, policy=policy) as it:
            await it.queue.put(b"long")
            performer = Performer(converts)
            working = asyncio.ensure_future(
                it.queue.work(performer, on_give_up=performer.on_give_up, subscribe=AT_ONCE)
            )
            await asyncio.sleep(5)
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
            await asyncio.sleep(60)

            assert (len(performer.tries), performer.given_up) == (1, [])
            assert it.left() == {**NOTHING_LEFT, QUEUE: 1}

    scenario()


@virtual
async def test_a_job_whose_subscription_is_stopped_has_not_failed(
    emulator: MemoryEmulator,
) -> None:
    """Also where somebody subscribes himself: the worker is told by nobody."""
    async with shop(emulator, policy=ONCE) as it:
        await it.queue.put(b"long")
        performer = Performer(converts)
        worker = it.queue.worker(on_give_up=performer.on_give_up)
        live = it.subscriber.subscribe(QUEUE, worker(performer), **AT_ONCE)
        await asyncio.sleep(5)
        live.stop()
        await asyncio.wait([live])

        assert performer.given_up == []
        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_a_job_whose_subscription_fails_has_not_failed(emulator: MemoryEmulator) -> None:
    async with shop(emulator, policy=ONCE) as it:
        await it.queue.put(b"long")
        performer = Performer(converts)
        lost: SubscribeOptions = {**AT_ONCE, "streams": StreamPolicy(reconnect_budget=1)}
        working = asyncio.ensure_future(
            it.queue.work(performer, on_give_up=performer.on_give_up, subscribe=lost)
        )
        await asyncio.sleep(5)
        emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=1_000)
        emulator.faults.cut_streams(QUEUE)
        with pytest.raises(PubSubError):
            await working

        assert performer.given_up == []
        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_a_job_that_waits_for_its_turn_does_not_begin_in_the_end(
    emulator: MemoryEmulator,
) -> None:
    """Those that have begun may finish; it goes to somebody else."""
    async with shop(emulator) as it:
        await it.queue.put(b"first")
        await it.queue.put(b"second")
        async with it.working(performer := Performer(after(4)), concurrency=1):
            await asyncio.sleep(1)

        assert [data for _, data, *_ in performer.tries] == [b"first"]
        assert now() == pytest.approx(4, abs=0.5)
        assert it.left() == {**NOTHING_LEFT, QUEUE: 1}


# Handlers that are cancelled although nobody ends


async def cancels_itself(_: Job) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def falls_back(job: Job) -> None:
    """Until Python 3.13 its task counts as cancelled after this TaskGroup."""
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails(job))
            tasks.create_task(asyncio.sleep(1))
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


@pytest.mark.parametrize("does", [cancels_itself, falls_back])
def test_a_handler_that_cancels_itself_does_not_run_wild(
    does: Callable[[Job], Awaitable[None]],
) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator) as it:
            await it.queue.put(b"odd")
            async with it.working(performer := Performer(does)):
                await asyncio.sleep(60)

            assert 1 < len(performer.tries) <= 12
            assert sum(it.left().values()) <= 1

    scenario()


def test_a_job_that_failed_is_kept_alive_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Up to 10 MB each would wait for the garbage collector."""
    seen: list[weakref.ref[Message]] = []

    async def notes(job: Job) -> None:
        seen.append(weakref.ref(job.message))
        raise ValueError("it cannot be done")

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator, policy=ONCE) as it:
            for number in range(5):
                await it.queue.put(str(number).encode())
            async with it.working(Performer(notes)):
                await asyncio.sleep(5)
                alive = [each for each in seen if each() is not None]

            assert len(seen) == 5
            assert alive == []

    caplog.set_level("CRITICAL", logger="pubsub_aio.jobs")  # a record keeps what was raised
    gc.disable()
    try:
        scenario()
    finally:
        gc.enable()

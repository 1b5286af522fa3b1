"""Handlers and hooks that misbehave: nothing is lost or runs wild, and nobody else suffers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from pubsub_aio import ConfigError, FlowControl
from pubsub_aio.jobs import Job, JobPolicy, RejectJobError
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    DEAD_LETTERS,
    NOTHING_LEFT,
    QUEUE,
    Performer,
    after,
    fails,
    instant,
    shop,
)
from tests.subscriber.conftest import now, virtual

pytestmark = pytest.mark.usefixtures("quiet")


class UnspeakableError(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


class StrangeError(BaseException):
    """What is no error to Python."""


async def unspeakable(_: Job) -> None:
    raise UnspeakableError


async def strange(_: Job) -> None:
    raise StrangeError


async def gives_up_waiting(_: Job) -> None:
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


# Handlers


@pytest.mark.parametrize("does", [unspeakable, strange, gives_up_waiting])
def test_whatever_a_handler_raises_it_has_failed(
    does: Callable[[Job], Awaitable[None]],
) -> None:
    """By the policy, and not at once again and again."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator, policy=JobPolicy(max_resurrections=0)) as it:
            await it.queue.put(b"odd")
            performer = Performer(does)
            async with it.working(performer, on_give_up=lambda _, __: None):
                await asyncio.sleep(60)

            assert performer.times(b"odd") == [0, 2, 6]
            assert it.left() == NOTHING_LEFT

    scenario()


@virtual
async def test_one_task_of_a_handler_may_reject_a_job(emulator: MemoryEmulator) -> None:
    async def rejects() -> None:
        raise RejectJobError("there is no such customer")

    async def several(_: Job) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(1))
            tasks.create_task(rejects())

    async with shop(emulator) as it:
        await it.queue.put(b"wrong")
        async with it.working(performer := Performer(several)):
            await asyncio.sleep(60)

        assert (len(performer.tries), len(performer.given_up)) == (1, 1)


@virtual
async def test_a_publisher_that_was_stopped_does_not_make_jobs_run_wild(
    emulator: MemoryEmulator,
) -> None:
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        await it.queue.put(b"bad")
        it.subscriber.subscribe(QUEUE, it.queue.worker()(performer := Performer(fails)))
        await it.publisher.stop()
        await asyncio.sleep(35)

        assert performer.times(b"bad") == [0, 10, 20, 30]
        assert emulator.backlog(QUEUE) == 1


# Hooks


@virtual
async def test_an_on_drop_that_is_cancelled_by_itself_drops_the_job(
    emulator: MemoryEmulator,
) -> None:
    """B7: its errors are contained, of whatever kind."""
    async with shop(emulator) as it:
        await it.queue.put(b"old", persistent=False, ttl=0)
        await asyncio.sleep(1)
        async with it.working(Performer(), on_drop=gives_up_waiting):
            await asyncio.sleep(1)

        assert it.left() == NOTHING_LEFT


@virtual
async def test_an_on_drop_that_does_not_end_holds_up_no_other_job(
    emulator: MemoryEmulator,
) -> None:
    """B7: although it takes no notice that its time is over."""

    over = False

    async def stubborn(_: Job) -> None:
        while not over:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    async with shop(emulator) as it:
        for _ in range(5):
            await it.queue.put(b"old", persistent=False, ttl=0)
        await asyncio.sleep(1)
        await it.queue.put(b"good")
        async with it.working(performer := Performer(), concurrency=1, on_drop=stubborn):
            await asyncio.sleep(10)

            assert len(performer.times(b"good")) == 1
            assert it.left() == NOTHING_LEFT
            over = True
            await asyncio.sleep(1)


@virtual
async def test_an_on_give_up_that_always_fails_is_not_called_without_a_pause(
    emulator: MemoryEmulator,
) -> None:
    calls: list[float] = []

    async def on_give_up(job: Job, _: Exception) -> None:
        calls.append(instant())
        await gives_up_waiting(job)

    policy = JobPolicy(max_attempts=1, max_resurrections=0, initial_backoff=0, max_backoff=0)
    async with shop(emulator, policy=policy) as it:
        await it.queue.put(b"bad")
        async with it.working(Performer(fails), on_give_up=on_give_up):
            await asyncio.sleep(3.5)

            assert calls == [0, 1, 2, 3]
            assert emulator.backlog(QUEUE) == 1


# Order, leases and ends


@virtual
async def test_a_job_that_returns_does_not_run_beside_others_of_its_key(
    emulator: MemoryEmulator,
) -> None:
    """R30: one at a time, although it comes by another subscription."""
    running: set[bytes] = set()
    overlaps: list[bytes] = []

    async def takes_a_while(job: Job) -> None:
        overlaps.extend(running)
        running.add(job.data)
        await asyncio.sleep(2)
        running.discard(job.data)
        if job.data == b"0" and job.resurrections == 0:
            raise ValueError("not yet")

    async with shop(emulator, fifo=True, policy=JobPolicy(max_attempts=1)) as it:
        for n in range(6):
            await it.queue.put(b"%d" % n, ordering_key="a")
        async with it.working(performer := Performer(takes_a_while)):
            await asyncio.sleep(30)

        assert (overlaps, len(performer.tries)) == ([], 7)


@virtual
async def test_a_lease_is_long_enough_for_the_waits_of_the_policy(
    emulator: MemoryEmulator,
) -> None:
    policy = JobPolicy(initial_backoff=4_000, max_backoff=4_000, max_resurrections=0)
    async with shop(emulator, policy=policy) as it:
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(10_000)

        assert performer.times(b"bad") == [0, 4_000, 8_000]


@virtual
async def test_a_lease_that_is_too_short_for_the_policy_is_refused(
    emulator: MemoryEmulator,
) -> None:
    async with shop(emulator) as it:
        with pytest.raises(ConfigError, match="flow_control: max_lease_duration must be more than"):
            await it.queue.work(fails, flow_control=FlowControl(max_lease_duration=5))


@virtual
async def test_nobody_waits_for_dead_letters_in_the_end(emulator: MemoryEmulator) -> None:
    """H9: what is not due goes back, at once."""
    policy = JobPolicy(max_attempts=1, dead_letter_ttl=600)
    async with shop(emulator, policy=policy) as it:
        await it.queue.put(b"bad")
        async with it.working(Performer(fails)):
            await asyncio.sleep(5)

        assert now() < 6
        assert [message.data for message in await it.subscriber.pull(DEAD_LETTERS)] == [b"bad"]


@virtual
async def test_a_job_without_an_id_keeps_the_one_that_it_was_given(
    emulator: MemoryEmulator,
) -> None:
    ids: set[str] = set()

    async def note(job: Job) -> None:
        ids.add(job.id)
        await after(0)(job)
        raise ValueError("it cannot be done")

    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        emulator.publish(QUEUE, b"bad", attributes={"pubsub_aio_job_id": ""})
        async with it.working(performer := Performer(note)):
            await asyncio.sleep(60)

        assert (len(performer.tries), len(ids)) == (4, 1)

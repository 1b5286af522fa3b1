"""What a queue needs, and was deleted meanwhile, is created again."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import (
    NotFoundError,
    StartupError,
)
from pubsub_aio.jobs import JobPolicy, JobQueue
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    DEAD_LETTERS,
    NOTHING_LEFT,
    QUEUE,
    RETURNS,
    Performer,
    admin_of,
    fails,
    shop,
)
from tests.subscriber.conftest import HOUR, Tapped, virtual

pytestmark = pytest.mark.usefixtures("quiet")


@virtual
async def test_work_creates_again_what_was_deleted(emulator: MemoryEmulator) -> None:
    """C7: also if the same queue was there when it was looked at first."""
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await it.queue.put(b"first")
        for name in (QUEUE, RETURNS):
            await admin.delete_subscription(name)
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)
            await it.queue.put(b"second")
            await asyncio.sleep(1)

        assert performer.done == [b"second"]


@virtual
async def test_put_creates_again_what_work_has_missed(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await it.queue.put(b"first")
        working = asyncio.ensure_future(it.queue.work(Performer()))
        await asyncio.sleep(1)
        await admin.delete_subscription(QUEUE)
        with pytest.raises(NotFoundError):
            await working
        await it.queue.put(b"second")

        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_put_creates_again_what_was_gone_when_work_began(emulator: MemoryEmulator) -> None:
    """It was looked for, and then deleted before it was subscribed to."""
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await it.queue.put(b"first")
        emulator.faults.fail("GetSubscription", "PERMISSION_DENIED", times=1)
        await admin.delete_subscription(QUEUE)
        with pytest.raises(StartupError):
            await it.queue.work(Performer())
        await it.queue.put(b"second")

        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_put_creates_again_a_topic_that_it_misses(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await it.queue.put(b"first")
        await admin.delete_subscription(QUEUE)
        await admin.delete_topic(QUEUE)
        await it.queue.put(b"second")

        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_put_tells_of_a_topic_that_cannot_be_created_again(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it:
        await it.queue.create()
        emulator.faults.fail("Publish", "NOT_FOUND", times=2)
        with pytest.raises(NotFoundError):
            await it.queue.put(b"first")


@virtual
async def test_put_looks_once_only(emulator: MemoryEmulator) -> None:
    """Each look is a call that counts against a quota."""
    tapped = Tapped(emulator.transport())
    async with shop(emulator, transport=tapped) as it:
        await it.queue.put(b"first")
        before = len(tapped.calls)
        await asyncio.sleep(HOUR)
        await it.queue.put(b"second")

        assert len(tapped.calls) == before


@virtual
async def test_what_is_missed_during_a_look_is_looked_for_once_more(
    emulator: MemoryEmulator,
) -> None:
    """The look may have come by before it was deleted."""
    async with shop(emulator) as it, admin_of(emulator) as admin:
        premises = it.queue._premises
        emulator.faults.delay("GetSubscription", 5, times=3)
        looking = asyncio.ensure_future(it.queue.put(b"first"))
        await asyncio.sleep(12)  # the queue is the last
        await admin.delete_subscription(RETURNS)
        premises.doubt()
        await looking
        await it.queue.put(b"second")

        await admin.get_subscription(RETURNS)


@virtual
async def test_the_first_dead_letter_finds_somebody_who_keeps_it(emulator: MemoryEmulator) -> None:
    """A3: who subscribes himself has not looked; its topic is there, and nobody reads from it."""
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await it.queue.put(b"bad")
        await admin.delete_subscription(DEAD_LETTERS)
        queue = JobQueue(
            *(QUEUE, it.subscriber, it.publisher),
            policy=JobPolicy(max_attempts=1),
            clock=emulator.clock.now,
        )
        working = it.subscriber.subscribe(QUEUE, queue.worker()(fails))
        await asyncio.sleep(10)
        working.cancel()
        await asyncio.wait([working])

        assert it.left() == {**NOTHING_LEFT, DEAD_LETTERS: 1}


@virtual
async def test_the_first_that_returns_finds_somebody_who_keeps_it(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it, admin_of(emulator) as admin:
        emulator.publish(DEAD_LETTERS, b"bad")
        await admin.delete_subscription(RETURNS)
        queue = JobQueue(QUEUE, it.subscriber, it.publisher, clock=emulator.clock.now)
        returning = it.subscriber.subscribe(DEAD_LETTERS, queue.returns())
        await asyncio.sleep(HOUR)
        returning.cancel()
        await asyncio.wait([returning])

        assert it.left() == {**NOTHING_LEFT, RETURNS: 1}

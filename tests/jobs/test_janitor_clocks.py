"""Users whose clocks are wrong, or are set meanwhile, keep their queues."""

from __future__ import annotations

import asyncio

from pubsub_aio._core.idleness import CLOSING, USED
from tests.jobs.test_janitor import LEASES_END, QUEUE, World, working, world
from tests.subscriber.conftest import HOUR, MINUTE


class WallClock:
    """A clock that may be set."""

    def __init__(self, world: World) -> None:
        self._true = world.emulator.clock
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._true.now() + self.ahead


@world
async def test_who_works_keeps_his_queue_when_his_clock_is_set_back(world: World) -> None:
    """A1: how long ago he was seen is not for that clock to say."""
    clock = WallClock(world)
    async with world.user(clock=clock) as queue, working(queue):
        for _ in range(2):
            await asyncio.sleep(5)
            clock.ahead -= 15 * MINUTE
            assert await world.sweeps(20 * MINUTE) == []


@world
async def test_who_puts_keeps_his_queue_when_his_clock_is_set_back(world: World) -> None:
    clock = WallClock(world)
    async with world.user(clock=clock) as queue, asyncio.TaskGroup() as tasks:
        await queue.put(b"a job")
        clock.ahead = -15 * MINUTE
        sweeping = tasks.create_task(world.sweeps(20 * MINUTE))
        for _ in range(60):
            for message in await world.subscriber.pull(QUEUE):
                message.ack()  # what holds messages stays anyway
            await asyncio.sleep(20)
            await queue.put(b"a job")

    assert sweeping.result() == []


@world
async def test_put_sees_that_its_queue_was_deleted_since_its_clock_was_set_back(
    world: World,
) -> None:
    clock = WallClock(world)
    async with world.user(clock=clock) as queue:
        await queue.create()
        async with working(queue):
            await asyncio.sleep(1)
        clock.ahead = -2 * HOUR
        await world.sweeps(HOUR)
        assert await world.there() == []

        await queue.put(b"january")
    assert world.emulator.backlog(QUEUE) == 1


@world
async def test_a_job_that_took_long_is_put_again_whatever_the_clock_says(world: World) -> None:
    clock, done = WallClock(world), list[bytes]()
    async with world.user(clock=clock, wait_timeout=HOUR) as queue:
        world.emulator.faults.delay("Publish", 20 * MINUTE)
        putting = asyncio.ensure_future(queue.put(b"january"))
        await asyncio.sleep(1)
        clock.ahead = -HOUR
        assert len(await world.sweeps(20 * MINUTE - 2)) == 5
        await putting
        async with working(queue, done):
            await asyncio.sleep(MINUTE)

    assert done == [b"january"]


@world
async def test_a_user_whose_clock_tells_what_the_label_says_already_is_seen(world: World) -> None:
    """That the label changes counts as use, so it changes whatever the clock says."""
    await world.made()
    used = float((await world.labels(QUEUE))[USED])
    await world.sweeps(LEASES_END - 5)
    async with world.user(clock=lambda: used) as queue, asyncio.TaskGroup() as tasks:
        sweeping = tasks.create_task(world.janitor.sweep())
        await asyncio.sleep(3)  # it looks for the last time
        await queue.create()

    assert sweeping.result() == []
    assert "DeleteSubscription" not in world.asked


@world
async def test_a_label_that_goes_from_the_future_into_the_past_is_use(world: World) -> None:
    clock = WallClock(world)
    clock.ahead = HOUR
    async with world.user(clock=clock) as queue, working(queue):
        assert await world.sweeps(20 * MINUTE) == []
        before = (await world.labels(QUEUE))[USED]
        clock.ahead = -HOUR
        assert await world.sweeps(20 * MINUTE) == []
        assert int((await world.labels(QUEUE))[USED]) < int(before)


@world
async def test_a_user_whose_clock_was_ahead_keeps_his_queue_that_much_longer(world: World) -> None:
    clock = WallClock(world)
    clock.ahead = HOUR
    async with world.user(clock=clock) as queue:
        await queue.create()

    assert await world.sweeps(HOUR) == []
    assert CLOSING not in await world.labels(QUEUE)
    await world.sweeps(20 * MINUTE)
    assert await world.there() == []

"""Users and janitors whose clocks are wrong, or are set, or whose machines sleep."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import AdminClient, UnavailableError
from pubsub_aio._core.idleness import CLOSING, USED
from pubsub_aio.jobs import JobPolicy
from pubsub_aio.jobs.janitor import Janitor
from tests.jobs.janitor_world import (
    INTERVAL,
    QUEUE,
    WallClock,
    World,
    working,
    world,
)
from tests.subscriber.conftest import HOUR, MINUTE, Tapped


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
    await world.all_but_deleted()
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


@world
async def test_jobs_of_a_user_whose_clock_is_slow_and_who_crashed_are_not_lost(
    world: World,
) -> None:
    """To the janitor he seems to have gone before he came, and nobody sees what he holds."""
    async with world.user(slow=15 * MINUTE) as queue:
        await queue.put(b"january")
    (message,) = await world.subscriber.pull(QUEUE)
    await world.subscriber.modify_ack_deadline(QUEUE, [message.ack_id], 600)

    assert await world.sweeps(HOUR) == []
    assert world.emulator.backlog(QUEUE) == 1


# Machines that sleep: the time of the loop stands still meanwhile


class Drowsy(Tapped):
    """The transport of a machine that sleeps for an hour after a call."""

    def __init__(self, world: World, *, after: str) -> None:
        super().__init__(world.emulator.transport())
        self.clock = WallClock(world)
        self.after = after

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        response = await super().call(rpc, request, timeout=timeout)
        if rpc == self.after:
            self.clock.ahead += HOUR
            self.after = ""
        return response


PATIENT = JobPolicy(expires=HOUR, dead_letter_expires=HOUR)
"""So that the time of the loop alone does not say that it is over."""


async def deleted_while_others_sleep(world: World) -> None:
    """Janitors of other machines, for which hours go by, delete the queue."""
    for hours in range(2, 10, 2):
        await world.another_janitor(ahead=hours * HOUR).sweep()
    assert await world.there() == []


@world
async def test_put_sees_that_its_queue_was_deleted_while_its_machine_slept(world: World) -> None:
    clock = WallClock(world)
    async with world.user(clock=clock, policy=PATIENT) as queue:
        await queue.create()
        await deleted_while_others_sleep(world)
        clock.ahead = 10 * HOUR

        await queue.put(b"january")
    assert world.emulator.backlog(QUEUE) == 1


@world
async def test_a_job_that_was_on_its_way_while_its_machine_slept_is_put_again(world: World) -> None:
    clock = WallClock(world)
    async with world.user(clock=clock, policy=PATIENT, wait_timeout=HOUR) as queue:
        await queue.create()
        world.emulator.faults.delay("Publish", 5 * MINUTE)
        putting = asyncio.ensure_future(queue.put(b"january"))
        await deleted_while_others_sleep(world)
        clock.ahead = 10 * HOUR
        await putting

    assert world.emulator.backlog(QUEUE) == 1


@world
async def test_a_use_that_took_hours_to_say_does_not_count(world: World) -> None:
    """A janitor may have come by since the labels were read which are written here."""
    await world.made()
    drowsy = Drowsy(world, after="GetSubscription")
    async with world.user(clock=drowsy.clock, transport=drowsy) as queue:
        await queue.put(b"january")  # to create it is to look, and then to say
        drowsy.after = "GetSubscription"
        await asyncio.sleep(2 * INTERVAL)

        with pytest.raises(UnavailableError, match="it could not be said"):
            await queue.put(b"february")
        await queue.put(b"march")
    assert world.emulator.backlog(QUEUE) == 2


def janitor_of(drowsy: Drowsy, admin: AdminClient, world: World) -> Janitor:
    return Janitor(admin, world.subscriber, clock=drowsy.clock)


@world
async def test_a_janitor_that_slept_before_it_marked_gives_users_their_time(world: World) -> None:
    await world.made()
    await asyncio.sleep(HOUR)
    drowsy = Drowsy(world, after="")
    async with AdminClient(project=world.emulator.project, transport=drowsy) as admin:
        drowsy.after = "UpdateSubscription"
        await janitor_of(drowsy, admin, world).sweep()

    mark_at = float((await world.labels(QUEUE))[CLOSING].partition("-")[0])
    assert drowsy.clock() - mark_at > HOUR / 2
    assert drowsy.clock() - float((await world.labels(QUEUE))[USED]) < MINUTE


@world
async def test_a_janitor_that_slept_after_its_last_look_deletes_nothing(world: World) -> None:
    await world.made()
    await world.all_but_deleted()

    class Sleeper(Drowsy):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if len(self.times("GetSubscription")) == 3:  # to look, to mark, and what topic it has
                self.after = "GetSubscription"
            return await super().call(rpc, request, timeout=timeout)

    sleeper = Sleeper(world, after="")
    async with AdminClient(project=world.emulator.project, transport=sleeper) as admin:
        assert await janitor_of(sleeper, admin, world).sweep() == []

    assert sleeper.clock.ahead == HOUR
    assert QUEUE in await world.there()

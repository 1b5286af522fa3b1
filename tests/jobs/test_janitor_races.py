"""Users who come while a janitor is about to delete their queue are seen, or create it again."""

from __future__ import annotations

import asyncio
import math

import pytest

from pubsub_aio import (
    PermissionDeniedError,
)
from pubsub_aio._core.idleness import CLOSING, EXPIRES, USED
from pubsub_aio.jobs import JobPolicy
from pubsub_aio.jobs.usage import DELETION_TAKES
from tests.jobs.janitor_world import (
    QUEUE,
    World,
    working,
    world,
)
from tests.subscriber.conftest import HOUR, MINUTE, now


@world
async def test_a_user_who_comes_after_the_mark_is_seen(world: World) -> None:
    await world.made()
    await world.sweep_until(QUEUE, CLOSING)

    async with world.user() as queue:
        began = now()
        await queue.put(b"january")
        assert now() - began == pytest.approx(DELETION_TAKES, abs=1)
    async with world.user() as queue:
        await queue.put(b"february")
        assert now() - began == pytest.approx(DELETION_TAKES, abs=1)

    assert await world.sweeps(HOUR) == []
    assert world.emulator.backlog(QUEUE) == 2


@world
async def test_a_user_who_comes_during_the_last_look_is_seen(world: World) -> None:
    await world.made()
    await world.all_but_deleted()
    async with world.user() as queue, asyncio.TaskGroup() as tasks:
        sweeping = tasks.create_task(world.janitor.sweep())
        await asyncio.sleep(3)  # it pulls
        await queue.create()

    assert sweeping.result() == []
    assert "DeleteSubscription" not in world.asked


@world
async def test_a_mark_is_removed_when_its_queue_is_in_use_again(world: World) -> None:
    await world.made()
    await world.sweep_until(QUEUE, CLOSING)
    used = round(world.emulator.clock.now())
    await world.relabel(QUEUE, **{USED: str(used), EXPIRES: "600"})

    await world.sweeps(MINUTE)

    assert CLOSING not in await world.labels(QUEUE)
    assert (await world.labels(QUEUE))[USED] == str(used)


@world
async def test_a_user_who_comes_while_it_is_deleted_creates_it_again(world: World) -> None:
    """He has said that he is there after the janitor has looked for the last time."""
    await world.made()
    await world.all_but_deleted()
    world.emulator.faults.delay("DeleteSubscription", 3.5)
    async with world.user() as queue, asyncio.TaskGroup() as tasks:
        sweeping = tasks.create_task(world.janitor.sweep())
        await world.emulator.until(lambda: "DeleteSubscription" in world.asked)
        await queue.put(b"january")
    assert "projects/emulated-project/subscriptions/reports" in sweeping.result()

    done: list[bytes] = []
    async with world.user() as queue, working(queue, done):
        await asyncio.sleep(MINUTE)
    assert done == [b"january"]


@world
async def test_a_user_whose_label_a_janitor_has_overwritten_is_not_overlooked(world: World) -> None:
    """It read before, and wrote after him."""
    await world.made()
    stale = await world.labels(QUEUE)
    await asyncio.sleep(HOUR)
    async with world.user() as queue:
        await queue.put(b"a job")
        mark = f"{math.ceil(world.emulator.clock.now())}-{stale[USED]}-a1b2"
        await world.admin.update_subscription(QUEUE, labels=stale | {CLOSING: mark})
        sweeping = asyncio.ensure_future(world.sweeps(2 * MINUTE, every=1))
        async with working(queue):
            assert await sweeping == []


@world
async def test_a_clock_that_is_slow_does_not_make_a_user_overlooked(world: World) -> None:
    async with world.user(slow=HOUR) as queue, working(queue):
        assert await world.sweeps(HOUR) == []


@world
async def test_a_job_is_put_again_if_the_queue_may_be_gone_when_it_arrives(world: World) -> None:
    done: list[bytes] = []
    async with world.user(wait_timeout=30 * MINUTE) as queue:
        await queue.create()
        world.emulator.faults.delay("Publish", 20 * MINUTE)
        putting = asyncio.ensure_future(queue.put(b"january"))
        assert len(await world.sweeps(20 * MINUTE - 1)) == 5
        await putting
        async with working(queue, done):
            await asyncio.sleep(MINUTE)

    assert done == [b"january"]


@world
async def test_who_gives_a_queue_less_time_does_not_speak_for_others(world: World) -> None:
    async with world.user(policy=JobPolicy(expires=2 * HOUR)) as patient:
        await patient.create()
        await world.made()

        assert (await world.labels(QUEUE))[EXPIRES] == str(int(2 * HOUR))


@world
async def test_who_may_not_say_that_a_queue_is_in_use_may_not_put(world: World) -> None:
    await world.made()
    async with world.user() as queue:
        world.emulator.faults.fail("UpdateSubscription", "PERMISSION_DENIED")
        with pytest.raises(PermissionDeniedError) as caught:
            await queue.put(b"january")

    assert caught.value.__notes__ == [
        "with auto_delete one must be allowed to change subscriptions"
    ]

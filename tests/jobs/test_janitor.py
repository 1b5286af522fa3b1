"""A janitor deletes queues that are out of use, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math

import pytest

from pubsub_aio import (
    AdminClient,
    ConfigError,
)
from pubsub_aio._core.idleness import CLOSING, EXPIRES, USED
from pubsub_aio.jobs import JobPolicy
from pubsub_aio.jobs.janitor import Janitor
from pubsub_aio.jobs.names import ROLE
from tests.jobs.janitor_world import (
    DEAD,
    GOES_AFTER,
    INTERVAL,
    MARKED_FOR,
    QUEUE,
    RETURN,
    World,
    working,
    world,
)
from tests.subscriber.conftest import HOUR, MINUTE, Tapped, now

# What is never deleted


@world
async def test_nothing_without_the_labels_is_ever_touched(world: World) -> None:
    emulator, long_ago = world.emulator, {EXPIRES: "60", USED: "1", CLOSING: "1-1-a"}
    emulator.create_topic("orders")
    emulator.create_subscription("plain", "orders")
    emulator.create_subscription("no-role", "orders", labels=long_ago)
    emulator.create_subscription("other-role", "orders", labels={ROLE: "boss", **long_ago})
    emulator.create_subscription("no-time", "orders", labels={ROLE: "queue", USED: "1"})
    await world.made(auto_delete=False)
    before = [each async for each in world.admin.list_subscriptions()]

    assert await world.sweeps(HOUR) == []
    assert [each async for each in world.admin.list_subscriptions()] == before


@world
async def test_a_consumer_that_waits_for_an_hour_keeps_its_queue(world: World) -> None:
    async with world.user() as queue, working(queue):
        assert await world.sweeps(HOUR) == []
        assert CLOSING not in await world.labels(QUEUE)


@world
async def test_a_publisher_without_consumers_keeps_its_queue(world: World) -> None:
    async with world.user() as queue, asyncio.TaskGroup() as tasks:
        sweeping = tasks.create_task(world.sweeps(HOUR))
        for _ in range(60):
            await queue.put(b"a job")
            await asyncio.sleep(MINUTE)

    assert sweeping.result() == []
    assert world.emulator.backlog(QUEUE) == 60


@world
async def test_a_queue_with_messages_stays_with_them(world: World) -> None:
    async with world.user() as queue:
        await queue.put(b"january")

    assert await world.sweeps(HOUR) == []
    assert world.emulator.backlog(QUEUE) == 1
    assert world.emulator.outstanding(QUEUE) == 0


@world
async def test_what_the_janitor_pulls_is_given_back_at_once(world: World) -> None:
    async with world.user() as queue:
        await queue.put(b"january")
        await asyncio.sleep(MINUTE)
        before = now()
        await world.janitor.sweep()

        (message,) = await queue._subscriber.pull(QUEUE, timeout=1)
    assert message.data == b"january"
    assert now() - before < 1


@world
async def test_messages_that_somebody_held_who_crashed_are_not_lost(world: World) -> None:
    """They cannot be seen until his lease ends."""
    async with world.user() as queue:
        await queue.put(b"january")
        await asyncio.sleep(INTERVAL)
    (message,) = await world.subscriber.pull(QUEUE)
    await world.subscriber.modify_ack_deadline(QUEUE, [message.ack_id], 600)

    assert await world.sweeps(HOUR) == []
    assert world.emulator.backlog(QUEUE) == 1


@world
async def test_a_queue_is_looked_into_once_in_its_time_only(world: World) -> None:
    """Each look takes a message from those who might want it, and gives it back."""
    async with world.user(policy=JobPolicy(expires=600)) as queue:
        await queue.put(b"january")

    await world.sweeps(HOUR)

    (message,) = world.emulator.messages(QUEUE)
    assert 1 <= len(message.deliveries) <= 6


@world
async def test_what_counts_deliveries_is_not_looked_into(world: World) -> None:
    world.emulator.create_topic("elsewhere")
    world.emulator.create_topic(QUEUE)
    policy = {
        "dead_letter_topic": "projects/emulated-project/topics/elsewhere",
        "max_delivery_attempts": 5,
    }
    world.emulator.create_subscription(QUEUE, QUEUE, dead_letter_policy=policy)
    await world.made()

    assert await world.sweeps(HOUR) == []


# What is deleted


@world
async def test_a_queue_out_of_use_goes_after_its_time_and_not_before(world: World) -> None:
    """B22: no consumer and no publish for its time, the label, and an empty last pull."""
    await world.made()

    assert await world.sweeps(GOES_AFTER - 1) == []
    deleted = await world.sweeps(2 * MINUTE)
    assert deleted[0] == "subscriptions/reports"
    assert sorted(deleted[1:]) == [
        *("subscriptions/reports.dead-letter", "subscriptions/reports.return"),
        *("topics/reports.dead-letter", "topics/reports.return"),
    ]
    assert await world.there() == []
    topics = [topic.name async for topic in world.admin.list_topics()]
    assert topics == ["projects/emulated-project/topics/reports"]


@world
async def test_a_longer_time_is_kept_to(world: World) -> None:
    async with world.user(policy=JobPolicy(expires=HOUR)) as queue:
        await queue.create()

    assert await world.sweeps(HOUR + 10 * MINUTE + 0.6 * HOUR - 1) == []
    assert "subscriptions/reports" in await world.sweeps(MINUTE)


@world
async def test_nobody_is_deleted_who_was_not_marked_before(world: World) -> None:
    """A janitor that comes after a long time gives users the time that others would have given."""
    await world.made()
    await asyncio.sleep(HOUR)

    assert await world.janitor.sweep() == []
    assert await world.sweeps(MARKED_FOR - 20) == []
    assert "subscriptions/reports" in await world.sweeps(30)


@world
async def test_dead_letters_stay_and_return_when_the_queue_is_used_again(world: World) -> None:
    """B23: not while there are any."""
    world.emulator.create_topic(DEAD)
    await world.made()
    world.emulator.publish(DEAD, b"january")

    deleted = await world.sweeps(HOUR)
    assert deleted == [
        *("subscriptions/reports", "topics/reports.return", "subscriptions/reports.return"),
    ]
    assert await world.there() == [DEAD]

    done: list[bytes] = []
    async with world.user() as queue, working(queue, done):
        await asyncio.sleep(2 * MINUTE)
    assert done == [b"january"]


@world
async def test_dead_letters_are_not_deleted_before_their_queue(world: World) -> None:
    policy = JobPolicy(expires=2 * HOUR, dead_letter_expires=60)
    async with world.user(policy=policy) as queue:
        await queue.create()

    assert await world.sweeps(HOUR) == []
    assert await world.there() == [QUEUE, DEAD, RETURN]


@world
async def test_a_topic_of_dead_letters_that_others_use_stays(world: World) -> None:
    await world.made()
    world.emulator.create_subscription("audit", DEAD)
    await world.admin.update_topic(RETURN, labels={})

    deleted = await world.sweeps(HOUR)

    assert not [name for name in deleted if name.startswith("topics/")]
    assert await world.there() == ["audit"]


@world
async def test_a_queue_that_was_deleted_is_created_again_by_put_and_work(world: World) -> None:
    done: list[bytes] = []
    async with world.user() as old, world.user() as new:
        await old.put(b"january")
        async with working(new, done):
            await asyncio.sleep(1)
        await world.sweeps(HOUR)
        assert await world.there() == []

        await old.put(b"february")
        assert await world.there() == [QUEUE, DEAD, RETURN]
        async with working(new, done):
            await asyncio.sleep(MINUTE)

    assert done == [b"january", b"february"]


# What goes wrong


@world
async def test_two_janitors_at_once_do_no_harm(world: World) -> None:
    await world.made()
    other = world.another_janitor(ahead=3.0)
    deleted: list[str] = []
    while await world.there():
        for names in await asyncio.gather(world.janitor.sweep(), other.sweep()):
            deleted += names
        await asyncio.sleep(10)

    assert len(deleted) == len(set(deleted)) == 5


@pytest.mark.parametrize("rpc", ["DeleteTopic", "DeleteSubscription", "Pull", "UpdateSubscription"])
@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAVAILABLE", "NOT_FOUND"])
def test_what_fails_is_tried_again_by_later_sweeps(
    rpc: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="pubsub_aio.jobs")

    @world
    async def test(world: World) -> None:
        await world.made()
        await world.made("others")
        world.emulator.faults.fail(rpc, code, times=4)
        await world.sweeps(HOUR)

        assert await world.there() == []

    test()


@world
async def test_dead_letters_that_come_at_the_last_moment_stay(world: World) -> None:
    """Between the last pull and the deletion of their topic."""
    await world.made()
    await world.all_but_deleted()

    class Late(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "DeleteTopic" and b"dead-letter" in request:
                world.emulator.publish(DEAD, b"january")
            return await super().call(rpc, request, timeout=timeout)

    late = Late(world.emulator.transport())
    async with AdminClient(project=world.emulator.project, transport=late) as admin:
        clock = world.emulator.clock
        janitor = Janitor(admin, world.subscriber, clock=clock.now)
        deleted = await janitor.sweep()

    assert f"projects/emulated-project/topics/{DEAD}" in deleted
    assert await world.there() == [DEAD]
    assert world.emulator.backlog(DEAD) == 1


@world
async def test_a_subscription_that_has_lost_its_topic_goes_if_it_is_empty(world: World) -> None:
    """A janitor that has crashed in between has left it."""
    await world.made()
    await world.admin.delete_topic(DEAD)

    await world.sweeps(HOUR)

    assert await world.there() == []


@world
async def test_what_has_lost_its_topic_goes_so_that_its_queue_can_be_used(world: World) -> None:
    """The queue stays meanwhile, with what it holds."""
    async with world.user() as queue:
        await queue.put(b"january")
        await world.admin.delete_topic(DEAD)
        await asyncio.sleep(MINUTE)
        with pytest.raises(ConfigError, match="has lost its topic"):
            await queue.put(b"february")

        assert await world.sweeps(2 * MARKED_FOR) == [f"subscriptions/{DEAD}"]
        await queue.put(b"march")
    assert world.emulator.backlog(QUEUE) == 2


def test_labels_that_were_edited_are_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    @world
    async def test(world: World) -> None:
        await world.made()
        await world.relabel(QUEUE, **{USED: "yesterday"})
        await world.relabel(DEAD, **{ROLE: "return"})

        assert await world.sweeps(HOUR) == []
        assert await world.there() == [QUEUE, DEAD, RETURN]

    test()
    said = [record.getMessage() for record in caplog.records if "stays" in record.getMessage()]
    assert len(said) == 2


def test_a_sweep_that_fails_is_logged_and_the_janitor_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @world
    async def test(world: World) -> None:
        await world.made()
        world.emulator.faults.fail("ListSubscriptions", "PERMISSION_DENIED", times=3)
        running = asyncio.ensure_future(world.janitor.run(every=20))
        await asyncio.sleep(HOUR)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

        assert await world.there() == []

    test()
    assert sum("PERMISSION_DENIED" in (record.exc_text or "") for record in caplog.records) == 3


@world
async def test_mistakes_are_refused(world: World) -> None:
    for seconds in (0, 6, math.nan):
        with pytest.raises(ConfigError, match="pull_timeout"):
            Janitor(world.admin, world.subscriber, pull_timeout=seconds)
    with pytest.raises(ConfigError, match="interval"):
        await world.janitor.run(every=0)

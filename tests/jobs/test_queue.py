"""A queue of jobs: its topics and subscriptions, who puts jobs into it, and how work ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest

from pubsub_aio import (
    ConfigError,
    FlowControl,
    NotFoundError,
    PublisherClient,
    ServiceError,
    ShutdownPolicy,
    SubscriberClient,
)
from pubsub_aio.jobs import Job, JobPolicy, JobQueue
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
from tests.subscriber.conftest import now, virtual

pytestmark = pytest.mark.usefixtures("quiet")


# Topics and subscriptions


@virtual
async def test_a_queue_is_created_with_its_dead_letters_and_the_way_back(
    emulator: MemoryEmulator,
) -> None:
    """B3, B17, B19: topic and subscription of each, since a topic without one loses messages."""
    async with shop(emulator), admin_of(emulator) as admin:
        for name in (QUEUE, DEAD_LETTERS, RETURNS):
            found = await admin.get_subscription(name)
            assert found.topic == f"projects/{emulator.project}/topics/{name}"
            assert found.labels.keys() == {"pubsub_aio_role"}
        letters = await admin.get_subscription(DEAD_LETTERS)
        assert letters.message_retention_duration == timedelta(days=31)
        assert "ttl" not in letters.expiration_policy  # it never expires


@virtual
async def test_a_queue_may_share_its_topic(emulator: MemoryEmulator) -> None:
    """B3: the names are those of the subscription."""
    emulator.create_topic("orders")
    async with shop(emulator, topic="orders") as it:
        names = it.queue.names

        assert names.queue.topic == f"projects/{emulator.project}/topics/orders"
        assert names.dead_letters.topic == f"projects/{emulator.project}/topics/{DEAD_LETTERS}"
        assert names.returns.subscription == f"projects/{emulator.project}/subscriptions/{RETURNS}"


@virtual
async def test_what_exists_is_left_as_it_is(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(QUEUE, QUEUE, ack_deadline_seconds=77)
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await it.queue.create()

        assert (await admin.get_subscription(QUEUE)).ack_deadline_seconds == 77


@virtual
async def test_a_subscription_of_another_topic_is_refused(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(QUEUE, "orders")
    with pytest.raises(ConfigError, match=r"name: .*/jobs exists and is of .*/orders, not of"):
        async with shop(emulator):
            pass


@virtual
async def test_a_subscription_without_order_cannot_be_fifo(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(QUEUE, QUEUE)
    with pytest.raises(ConfigError, match=r"fifo: .*/jobs exists without ordering"):
        async with shop(emulator, fifo=True):
            pass


@virtual
async def test_a_subscription_that_lost_its_topic_is_refused(emulator: MemoryEmulator) -> None:
    """Were the topic created again, what is published there would be lost."""
    async with shop(emulator) as it, admin_of(emulator) as admin:
        await admin.delete_topic(DEAD_LETTERS)

        with pytest.raises(ConfigError, match="has lost its topic"):
            await it.queue.create()
        assert DEAD_LETTERS not in [
            topic.name.rpartition("/")[2] async for topic in admin.list_topics()
        ]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"subscriber": "me"}, "subscriber must be a SubscriberClient, not 'me'"),
        ({"publisher": None}, "publisher must be a PublisherClient, not None"),
        ({"policy": 5}, "policy must be a JobPolicy, not 5"),
        ({"policy": {}}, "policy must be a JobPolicy, not {}"),
        ({"fifo": "no"}, "fifo must be a bool, not 'no'"),
        ({"auto_delete": 1}, "auto_delete must be a bool, not 1"),
        ({"clock": 5}, "clock must be a function that tells the seconds since 1970, not 5"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_name(settings: dict[str, Any], names: str) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with clients_of(emulator) as (subscriber, publisher):
            options = {"subscriber": subscriber, "publisher": publisher} | settings
            with pytest.raises(ConfigError, match=names):
                JobQueue(QUEUE, **options)

    scenario()


# Putting


@virtual
async def test_the_first_job_creates_the_queue(emulator: MemoryEmulator) -> None:
    """Otherwise it would be lost: nobody has subscribed yet."""
    async with clients_of(emulator) as (subscriber, publisher):
        queue = JobQueue(QUEUE, subscriber, publisher, clock=emulator.clock.now)
        async with asyncio.TaskGroup() as tasks:
            for n in range(10):
                tasks.create_task(queue.put(b"%d" % n))

        assert emulator.backlog(QUEUE) == 10


@contextlib.asynccontextmanager
async def clients_of(emulator: MemoryEmulator):  # type: ignore[no-untyped-def]
    async with (
        SubscriberClient(emulator.project, transport=emulator.transport()) as subscriber,
        PublisherClient(emulator.project, transport=emulator.transport()) as publisher,
    ):
        yield subscriber, publisher


@virtual
async def test_who_may_not_create_may_put_and_work(emulator: MemoryEmulator) -> None:
    """R3: that it cannot be looked after is a warning."""
    async with shop(emulator) as it:
        for rpc in ("GetSubscription", "CreateTopic", "CreateSubscription"):
            emulator.faults.fail(rpc, "PERMISSION_DENIED", times=1_000)
        queue = JobQueue(QUEUE, it.subscriber, it.publisher, clock=emulator.clock.now)
        it.queue = queue
        await queue.put(b"report")
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        assert performer.done == [b"report"]


@virtual
async def test_a_job_that_could_not_be_put_says_so(emulator: MemoryEmulator) -> None:
    async with shop(emulator) as it:
        await it.queue.put(b"first")
        emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED", times=1)
        with pytest.raises(ServiceError, match="RESOURCE_EXHAUSTED"):
            await it.queue.put(b"second")


@virtual
async def test_a_job_that_could_not_be_put_does_not_keep_others_of_its_key_out(
    emulator: MemoryEmulator,
) -> None:
    async with shop(emulator, fifo=True) as it:
        emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED", times=1)
        with pytest.raises(ServiceError):
            await it.queue.put(b"first", ordering_key="a")
        await it.queue.put(b"second", ordering_key="a")

        assert emulator.backlog(QUEUE) == 1


# Working


@virtual
async def test_two_workers_share_a_queue(emulator: MemoryEmulator) -> None:
    async def takes_a_second(_: Job) -> None:
        await asyncio.sleep(1)

    one, other = Performer(takes_a_second), Performer(takes_a_second)
    async with shop(emulator) as it, shop(emulator) as beside:
        for n in range(20):
            await it.queue.put(b"%d" % n)
        async with it.working(one, concurrency=1), beside.working(other, concurrency=1):
            await asyncio.sleep(15)

        assert sorted(one.done + other.done, key=int) == [b"%d" % n for n in range(20)]
        assert min(len(one.done), len(other.done)) > 5


@virtual
async def test_who_is_cancelled_finishes_what_has_begun(emulator: MemoryEmulator) -> None:
    """H9: by the shutdown policy, and nothing is left behind."""

    async def takes_ten_seconds(_: Job) -> None:
        await asyncio.sleep(10)

    async with shop(emulator) as it:
        await it.queue.put(b"long")
        async with it.working(performer := Performer(takes_ten_seconds)):
            await asyncio.sleep(1)

        assert (performer.done, round(now())) == ([b"long"], 10)
        assert it.left() == NOTHING_LEFT


@virtual
async def test_cancelled_twice_it_ends_at_once(emulator: MemoryEmulator) -> None:
    async def takes_ten_seconds(_: Job) -> None:
        await asyncio.sleep(10)

    async with shop(emulator) as it:
        await it.queue.put(b"long")
        async with it.working(performer := Performer(takes_ten_seconds)) as working:
            await asyncio.sleep(1)
            working.cancel()
            await asyncio.sleep(1)

        assert (performer.done, round(now())) == ([], 2)
        assert it.left() == {**NOTHING_LEFT, QUEUE: 1}


@virtual
async def test_what_waits_for_its_next_attempt_goes_back_in_the_end(
    emulator: MemoryEmulator,
) -> None:
    policy = JobPolicy(initial_backoff=100, max_backoff=100)
    async with shop(emulator, policy=policy) as it:
        await it.queue.put(b"bad")
        working = asyncio.ensure_future(
            it.queue.work(fails, subscribe={"shutdown": ShutdownPolicy(timeout=3)})
        )
        await asyncio.sleep(1)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

        assert round(now()) == 4
        assert [message.data for message in await it.subscriber.pull(QUEUE)] == [b"bad"]


@virtual
async def test_threads_of_plain_handlers_end_with_it(emulator: MemoryEmulator) -> None:
    threads: list[threading.Thread] = []
    async with shop(emulator) as it:
        await it.queue.put(b"report")
        working = asyncio.ensure_future(
            it.queue.work(lambda _: threads.append(threading.current_thread()))
        )
        await asyncio.sleep(1)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

        (thread,) = threads
        thread.join(timeout=10)  # which it does at once
        assert not thread.is_alive()


@virtual
async def test_a_queue_that_cannot_be_worked_on_says_so(emulator: MemoryEmulator) -> None:
    """If one of the subscriptions ends, so do the others."""
    async with shop(emulator) as it, admin_of(emulator) as admin:
        working = asyncio.ensure_future(it.queue.work(fails))
        await asyncio.sleep(1)
        await admin.delete_subscription(RETURNS)
        with pytest.raises(NotFoundError, match=RETURNS):
            await working


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"wrap": 5}, "wrap must be a function that takes a handler, not 5"),
        ({"wrap": lambda: None}, "wrap must take a handler and nothing else"),
        ({"flow_control": 5}, "flow_control must be a FlowControl, not 5"),
        ({"subscribe": 5}, "subscribe must be a dict, not 5"),
        (
            {"subscribe": {"flow_control": FlowControl()}},
            r"subscribe: flow_control is given to work itself: work\(flow_control=\.\.\.\)",
        ),
    ],
)
def test_work_that_cannot_be_is_refused_by_name(options: dict[str, Any], names: str) -> None:
    """C11: and nothing is created."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with clients_of(emulator) as (subscriber, publisher), admin_of(emulator) as admin:
            queue = JobQueue(QUEUE, subscriber, publisher, clock=emulator.clock.now)
            with pytest.raises(ConfigError, match=names):
                await queue.work(fails, **options)

            assert [topic async for topic in admin.list_topics()] == []

    scenario()


@virtual
async def test_signals_end_it_gracefully(emulator: MemoryEmulator) -> None:
    async def takes_ten_seconds(_: Job) -> None:
        await asyncio.sleep(10)

    async with shop(emulator) as it:
        await it.queue.put(b"long")
        performer = Performer(takes_ten_seconds)
        working = asyncio.ensure_future(it.queue.work(performer, signals=True))
        await asyncio.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        await working

        assert performer.done == [b"long"]

"""What was moved and is a dead letter again: the run that moved it leaves it, others do not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pubsub_aio import Deduplicator, Message, SubscriberClient
from pubsub_aio.jobs import JobPolicy, JobWorker
from pubsub_aio.jobs.attributes import REDRIVEN, REDRIVEN_BY
from pubsub_aio.jobs.redrive import redrive
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import fails
from tests.jobs.dead_letters import (
    BURIED,
    LETTERS,
    ORDERS,
    WORKER,
    clients,
    left,
    moved,
    numbers,
    set_up,
)
from tests.subscriber.conftest import now, virtual


async def refuse(message: Message) -> None:
    message.nack()


@contextlib.asynccontextmanager
async def consumer(
    subscriber: SubscriberClient, callback: object, name: str = WORKER
) -> AsyncIterator[None]:
    """Somebody who works on what is moved."""
    live = subscriber.subscribe(name, callback)  # type: ignore[arg-type] # it is checked there
    try:
        yield
    finally:
        live.stop()
        await live


def with_policy(emulator: MemoryEmulator, count: int) -> None:
    """Dead letters, and a subscription whose dead letters are put there by the service."""
    emulator.create_subscription(LETTERS, BURIED)
    policy = {
        "dead_letter_topic": f"projects/{emulator.project}/topics/{BURIED}",
        "max_delivery_attempts": 5,
    }
    emulator.create_subscription(WORKER, ORDERS, dead_letter_policy=policy)
    for number in range(count):
        emulator.publish(BURIED, b"%d" % number, attributes={"odd": str(number % 2)})


@pytest.mark.usefixtures("quiet")
@virtual
async def test_while_a_worker_still_fails_each_is_moved_once(emulator: MemoryEmulator) -> None:
    set_up(emulator, 5)
    async with clients(emulator) as (subscriber, publisher):
        worker = JobWorker(publisher, BURIED, policy=JobPolicy(max_attempts=1))
        async with consumer(subscriber, worker(fails)):
            report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert report == Report(moved=5, came_back=5, ended_by="empty")
    assert report.looked_at == 10
    assert now() < 30
    assert await left(emulator) == numbers(*range(5))


@virtual
async def test_what_the_service_puts_aside_again_is_moved_once(emulator: MemoryEmulator) -> None:
    with_policy(emulator, 3)
    async with clients(emulator) as (subscriber, publisher), consumer(subscriber, refuse):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, where='NOT attributes.odd = "1"'
        )

    assert report == Report(moved=2, skipped=1, came_back=2, ended_by="empty")
    assert await left(emulator) == numbers(0, 1, 2)


@virtual
async def test_another_run_moves_what_came_back(emulator: MemoryEmulator) -> None:
    with_policy(emulator, 2)
    async with clients(emulator) as (subscriber, publisher):
        async with consumer(subscriber, refuse):
            first = await redrive(subscriber, publisher, LETTERS, to=ORDERS)
        second = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (first.moved, first.came_back) == (2, 2)
    assert second == Report(moved=2, ended_by="empty")
    ids = [one.attributes[REDRIVEN] for one in emulator.messages(ORDERS)]
    runs = [one.attributes[REDRIVEN_BY] for one in emulator.messages(ORDERS)]
    assert len({*ids}) == 4  # each of these is a round of its own
    assert [runs.count(one) for one in runs] == [2, 2, 2, 2]
    assert runs[0] != runs[2]


@virtual
async def test_two_runs_at_once_end_as_well(emulator: MemoryEmulator) -> None:
    with_policy(emulator, 20)
    async with (
        clients(emulator) as (subscriber, publisher),
        consumer(subscriber, refuse),
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        runs = [
            tasks.create_task(redrive(subscriber, publisher, LETTERS, to=ORDERS)) for _ in range(2)
        ]

    assert {run.result().complete for run in runs} == {True}
    assert len(await left(emulator)) == 20


@virtual
async def test_it_ends_when_too_many_came_back(emulator: MemoryEmulator) -> None:
    with_policy(emulator, 200)
    async with clients(emulator) as (subscriber, publisher), consumer(subscriber, refuse):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, max_held=10)

    assert (report.came_back, report.ended_by) == (10, "max_held")
    assert len(await left(emulator)) == 200


@virtual
async def test_what_came_back_holds_back_its_key_where_there_is_order(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, enable_message_ordering=True)
    emulator.publish(BURIED, b"first", ordering_key="k")

    async def bury(message: Message) -> None:
        for data in (message.data, b"later"):
            own = message.attributes if data == message.data else {}
            emulator.publish(BURIED, data, attributes=own, ordering_key="k")
        message.ack()

    async with clients(emulator) as (subscriber, publisher), consumer(subscriber, bury):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert report == Report(moved=1, came_back=1, held_back=1, ended_by="empty")
    assert await left(emulator) == [b"first", b"later"]


@virtual
async def test_a_message_that_is_no_job_is_known_by_the_dead_letter_that_it_was(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 1)
    emulator.faults.fail("Publish", "UNAVAILABLE", applied=True)  # so that it is there twice
    handled: list[bytes] = []

    async def handle(message: Message) -> None:
        handled.append(message.data)
        message.ack()

    async with clients(emulator) as (subscriber, publisher):
        await redrive(subscriber, publisher, LETTERS, to=ORDERS)
        async with consumer(subscriber, Deduplicator(REDRIVEN)(handle)):
            await asyncio.sleep(5)

    assert moved(emulator) == numbers(0, 0)
    assert handled == numbers(0)

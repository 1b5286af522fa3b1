"""What failed becomes a dead letter, and stays a job until it is one."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import AdminClient
from pubsub_aio.emulator.clock import START
from pubsub_aio.jobs import Job, JobPolicy
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    DEAD_LETTERS,
    NOTHING_LEFT,
    QUEUE,
    RETURNS,
    Performer,
    fails,
    shop,
)
from tests.subscriber.conftest import virtual

pytestmark = pytest.mark.usefixtures("quiet")


@virtual
async def test_a_dead_letter_says_where_it_comes_from_and_why(emulator: MemoryEmulator) -> None:
    """B17, B20: publish first, then ack; the count travels with it."""
    async with shop(emulator) as it:
        message_id = await it.queue.put(b"bad", attributes={"month": "may"}, job_id="r-7")
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
        await asyncio.sleep(10)

        (letter,) = emulator.messages(DEAD_LETTERS)
        published = letter.publish_time.timestamp() - START
        assert letter.data == b"bad"
        assert letter.attributes == {
            "month": "may",
            "pubsub_aio_job_id": "r-7",
            "pubsub_aio_resurrections": "0",
            "pubsub_aio_error": "ValueError: it cannot be done",
            "pubsub_aio_message_id": message_id,
            "CloudPubSubDeadLetterSourceSubscription": QUEUE,
            "CloudPubSubDeadLetterSourceSubscriptionProject": emulator.project,
            "CloudPubSubDeadLetterSourceTopicPublishTime": "2026-01-01T00:00:00.000Z",
            "CloudPubSubDeadLetterSourceDeliveryCount": "1",
        }
        (job,) = emulator.messages(QUEUE)
        assert 6 <= published <= job.acks[0].time.timestamp() - START


@virtual
async def test_a_message_of_somebody_else_is_a_job_too(emulator: MemoryEmulator) -> None:
    """Its id is that of the message, also when it returns."""
    ids: list[str] = []

    async def note(job: Job) -> None:
        ids.append(job.id)
        raise ValueError("it cannot be done")

    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        message_id = emulator.publish(QUEUE, b"foreign")
        async with it.working(Performer(note)):
            await asyncio.sleep(60)

        assert ids == [message_id] * 4


@virtual
async def test_a_job_stays_until_its_dead_letter_is_published(emulator: MemoryEmulator) -> None:
    """B17, R31: what cannot be forwarded is tried again after a second, and its lease is kept."""
    async with shop(emulator) as it:
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(5)
            emulator.faults.fail("Publish", "UNAVAILABLE", times=90)
            await asyncio.sleep(90)
            assert emulator.backlog(QUEUE) == 1
            emulator.faults.clear()
            await asyncio.sleep(5)

            assert len(performer.tries) >= 3
            assert len(emulator.messages(DEAD_LETTERS)) == 1
            assert emulator.backlog(QUEUE) == 0


@virtual
async def test_a_dead_letter_topic_that_is_gone_is_created_again(emulator: MemoryEmulator) -> None:
    """B17: topic and subscription, since a message to a topic without one is lost."""
    async with shop(emulator, policy=JobPolicy(max_resurrections=1)) as it:
        await it.queue.put(b"bad")
        perform = it.queue.worker(on_give_up=(performer := Performer(fails)).on_give_up)(performer)
        for name in (QUEUE, RETURNS):
            it.subscriber.subscribe(name, perform)
        await asyncio.sleep(3)
        await delete_both(emulator, DEAD_LETTERS)
        await asyncio.sleep(10)
        assert emulator.backlog(DEAD_LETTERS) == 1
        it.subscriber.subscribe(DEAD_LETTERS, it.queue.returns())
        await asyncio.sleep(20)

        assert len(performer.tries) == 6
        assert it.left() == NOTHING_LEFT


async def delete_both(emulator: MemoryEmulator, name: str) -> None:
    """Delete a topic and its subscription."""
    async with AdminClient(project=emulator.project, transport=emulator.transport()) as admin:
        await admin.delete_topic(name)
        await admin.delete_subscription(name)


@virtual
async def test_a_job_too_large_for_notes_is_a_dead_letter_without_them(
    emulator: MemoryEmulator,
) -> None:
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        many = {f"attribute-{n}": "x" for n in range(98)}
        emulator.publish(QUEUE, b"bad", attributes=many)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
        await asyncio.sleep(5)

        (letter,) = emulator.messages(DEAD_LETTERS)
        assert letter.attributes.keys() - many.keys() == {
            *("pubsub_aio_job_id", "pubsub_aio_resurrections")
        }


@virtual
async def test_a_job_that_cannot_be_a_dead_letter_stays(emulator: MemoryEmulator) -> None:
    """Nothing is lost: it comes again, and the log says why."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        many = {f"attribute-{n}": "x" for n in range(100)}
        emulator.publish(QUEUE, b"bad", attributes=many)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(performer := Performer(fails)))
        await asyncio.sleep(35)

        assert performer.times(b"bad") == [0, 10, 20, 30]
        assert emulator.backlog(QUEUE) == 1


@virtual
async def test_only_the_queue_that_failed_a_job_sees_it_again(emulator: MemoryEmulator) -> None:
    """B19: it returns by a topic of the queue's own."""
    async with shop(emulator) as it:
        emulator.create_subscription("audit", QUEUE)
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(60)

        assert len(performer.tries) == 12
        assert emulator.backlog("audit") == 1

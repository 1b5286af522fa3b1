"""What failed becomes a dead letter, and stays a job until it is one."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import Deduplicator, FlowControl, NotFoundError, PublisherClient
from pubsub_aio._wire.transport import service_error
from pubsub_aio.emulator.clock import START
from pubsub_aio.jobs import Job, JobPolicy, JobQueue, JobWorker
from pubsub_aio.jobs.assurance import Assurance
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    DEAD_LETTERS,
    NOTHING_LEFT,
    QUEUE,
    RETURNS,
    Performer,
    admin_of,
    fails,
    fails_after,
    shop,
)
from tests.subscriber.conftest import HOUR, Tapped, delete, virtual

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
async def test_who_cannot_publish_a_dead_letter_stops_when_its_lease_ends(
    emulator: MemoryEmulator,
) -> None:
    """The job has come again by then: otherwise there would be one dead letter of each time."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        await it.queue.put(b"bad")
        emulator.faults.fail("Publish", "UNAVAILABLE", times=10_000)
        flow = FlowControl(max_lease_duration=60)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails), flow_control=flow)
        await asyncio.sleep(170)
        emulator.faults.clear()
        await asyncio.sleep(5)

        assert len(emulator.messages(DEAD_LETTERS)) == 1


@virtual
async def test_dead_letters_wait_no_longer_where_clocks_differ(emulator: MemoryEmulator) -> None:
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        slow = JobQueue(
            QUEUE, it.subscriber, it.publisher, clock=lambda: emulator.clock.now() - HOUR
        )
        it.subscriber.subscribe(DEAD_LETTERS, slow.returns())
        emulator.publish(DEAD_LETTERS, b"bad")
        await asyncio.sleep(2.5)
        assert emulator.backlog(RETURNS) == 0
        await asyncio.sleep(1)

        assert emulator.backlog(RETURNS) == 1


@virtual
async def test_a_dead_letter_that_cannot_return_is_given_up(emulator: MemoryEmulator) -> None:
    """There is no room for what is known of it."""
    async with shop(emulator) as it:
        full = {f"own{number}": "x" for number in range(100)}
        emulator.publish(DEAD_LETTERS, b"full", attributes=full)
        performer = Performer()
        it.subscriber.subscribe(DEAD_LETTERS, it.queue.returns(on_give_up=performer.on_give_up))
        await asyncio.sleep(10)

        ((_, data, error),) = performer.given_up
        assert data == b"full"
        assert "attributes" in error
        assert it.left() == NOTHING_LEFT


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
    async with admin_of(emulator) as admin:
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


class NarrowTopic(Tapped):
    """A server whose messages have no room for notes."""

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        if rpc == "Publish" and b"pubsub_aio_error" in request:
            raise service_error("INVALID_ARGUMENT", "the message is too large")
        return await super().call(rpc, request, timeout=timeout)


@pytest.mark.parametrize("key", ["", "a"])
def test_a_job_as_large_as_can_be_is_a_dead_letter_without_notes(key: str) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        narrow = NarrowTopic(emulator.transport())
        policy = JobPolicy(max_attempts=1)
        async with shop(emulator, publishing=narrow, policy=policy, fifo=bool(key)) as it:
            await it.queue.put(b"bad", ordering_key=key)
            it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
            await asyncio.sleep(0.5)

            (letter,) = emulator.messages(DEAD_LETTERS)
            assert "pubsub_aio_error" not in letter.attributes
            assert emulator.backlog(QUEUE) == 0

    scenario()


@virtual
async def test_a_job_that_cannot_be_a_dead_letter_is_given_up(emulator: MemoryEmulator) -> None:
    """It would be tried for ever otherwise, and its key never go on; somebody is told."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        many = {f"attribute-{n}": "x" for n in range(100)}
        emulator.publish(QUEUE, b"bad", attributes=many)
        async with it.working(performer := Performer(fails)):
            await asyncio.sleep(60)

        assert performer.times(b"bad") == [0]
        ((_, data, error),) = performer.given_up
        assert data == b"bad"
        assert "102 are more than the service takes, 100" in error
        assert it.left() == NOTHING_LEFT


@virtual
async def test_notes_make_room_for_what_a_job_needs(emulator: MemoryEmulator) -> None:
    """Also those that the service itself has made."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1, dead_letter_ttl=0)) as it:
        own = {f"attribute-{n}": "x" for n in range(95)}
        notes = {f"CloudPubSubDeadLetterSource{n}": "x" for n in range(5)}
        emulator.publish(DEAD_LETTERS, b"old", attributes=own | notes)
        async with it.working(performer := Performer()):
            await asyncio.sleep(5)

        assert performer.tries == [(0, b"old", 1, 1)]


@virtual
async def test_what_tells_one_publish_from_another_does_not_go_with_a_job(
    emulator: MemoryEmulator,
) -> None:
    """A deduplicator of publishes would take the second return for the first."""
    transport = emulator.transport()
    async with (
        shop(emulator, policy=JobPolicy(max_attempts=1)) as it,
        PublisherClient(emulator.project, transport=transport, send_flight_id=True) as others,
    ):
        await others.publish(QUEUE, b"bad").ack
        performer = Performer(fails)
        working = asyncio.ensure_future(
            it.queue.work(performer, wrap=Deduplicator(), on_give_up=performer.on_give_up)
        )
        await asyncio.sleep(60)
        working.cancel()
        await asyncio.wait([working])

        assert (len(performer.tries), len(performer.given_up)) == (4, 1)


@virtual
async def test_a_worker_of_a_queue_sees_to_it_that_somebody_keeps_dead_letters(
    emulator: MemoryEmulator,
) -> None:
    """B17: a topic without a subscription loses what is published to it."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        await it.queue.put(b"bad")
        await delete(emulator, DEAD_LETTERS)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
        await asyncio.sleep(5)

        assert emulator.backlog(DEAD_LETTERS) == 1


@virtual
async def test_nothing_is_a_dead_letter_while_nobody_can_keep_it(emulator: MemoryEmulator) -> None:
    """B17: the topic takes it, and has no subscription."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        await delete(emulator, DEAD_LETTERS)
        emulator.faults.fail("CreateSubscription", "FAILED_PRECONDITION", times=30)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
        await it.publisher.publish(QUEUE, b"bad").ack
        await asyncio.sleep(20)
        assert (emulator.backlog(QUEUE), len(emulator.messages(DEAD_LETTERS))) == (1, 0)
        emulator.faults.clear()
        await asyncio.sleep(5)

        assert (emulator.backlog(QUEUE), emulator.backlog(DEAD_LETTERS)) == (0, 1)


@virtual
async def test_a_topic_that_somebody_creates_again_by_hand_is_not_trusted(
    emulator: MemoryEmulator,
) -> None:
    """The subscription of the old one is in the way, and gets nothing of the new one."""
    async with (
        shop(emulator, policy=JobPolicy(max_attempts=1)) as it,
        admin_of(emulator) as admin,
        it.working(Performer(fails)),
    ):
        await it.queue.put(b"first")
        await asyncio.sleep(1)
        await admin.delete_topic(DEAD_LETTERS)
        await it.queue.put(b"second")
        await asyncio.sleep(5)
        await admin.create_topic(DEAD_LETTERS)
        await asyncio.sleep(60)

        assert it.left() == {QUEUE: 1, DEAD_LETTERS: 1, RETURNS: 0}


@virtual
async def test_what_fails_while_work_ends_is_not_lost(emulator: MemoryEmulator) -> None:
    """It ends because somebody has deleted the subscription of its dead letters."""
    async with shop(emulator, policy=JobPolicy(max_attempts=1)) as it:
        performer = Performer(fails_after(5))
        await it.queue.put(b"bad")
        working = asyncio.ensure_future(it.queue.work(performer))
        await asyncio.sleep(2)
        await delete(emulator, DEAD_LETTERS)
        with pytest.raises(NotFoundError):
            await working

        assert len(performer.tries) == 1
        assert sum(it.left().values()) == 1


@virtual
async def test_what_returns_while_work_ends_is_not_lost(emulator: MemoryEmulator) -> None:
    """It ends because somebody has deleted the subscription by which they return."""
    async with shop(emulator) as it:
        emulator.publish(DEAD_LETTERS, b"bad")
        working = asyncio.ensure_future(it.queue.work(Performer()))
        emulator.faults.fail("Publish", "UNAVAILABLE", times=1_000)
        await asyncio.sleep(10)
        await delete(emulator, RETURNS)
        await asyncio.sleep(2)
        emulator.faults.clear()
        with pytest.raises(NotFoundError):
            await working

        assert sum(it.left().values()) == 1


@virtual
async def test_many_that_fail_at_once_need_one_look(emulator: MemoryEmulator) -> None:
    tapped = Tapped(emulator.transport())
    async with shop(emulator, policy=JobPolicy(max_attempts=1), transport=tapped) as it:
        before = len(tapped.times("GetSubscription"))
        emulator.faults.delay("GetSubscription", 0.1, times=1_000)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
        for _ in range(100):
            emulator.publish(QUEUE, b"bad")
        await asyncio.sleep(10)

        assert emulator.backlog(DEAD_LETTERS) == 100
        assert len(tapped.times("GetSubscription")) - before <= 4


@virtual
async def test_many_that_fail_while_nobody_can_look_make_one_look_at_a_time(
    emulator: MemoryEmulator,
) -> None:
    tapped = Tapped(emulator.transport())
    async with shop(emulator, policy=JobPolicy(max_attempts=1), transport=tapped) as it:
        it.subscriber.subscribe(QUEUE, it.queue.worker()(fails))
        await asyncio.sleep(1)
        before = len(tapped.times("GetSubscription"))
        emulator.faults.fail("GetSubscription", "FAILED_PRECONDITION", times=10_000)
        for _ in range(100):
            emulator.publish(QUEUE, b"bad")
        await asyncio.sleep(5)
        assert emulator.backlog(DEAD_LETTERS) == 0
        emulator.faults.clear()
        await asyncio.sleep(5)

        assert emulator.backlog(DEAD_LETTERS) == 100
        assert len(tapped.times("GetSubscription")) - before < 20


@virtual
async def test_what_is_doubted_during_a_look_is_looked_for_once_more(
    emulator: MemoryEmulator,
) -> None:
    """The look may have come by before it was deleted."""
    looks: list[int] = []

    async def ensure() -> None:
        looks.append(len(emulator.messages(DEAD_LETTERS)))
        if len(looks) == 1:
            kept.doubt()

    async with shop(emulator) as it:
        kept, policy = Assurance(ensure), JobPolicy(max_attempts=1)
        worker = JobWorker(it.publisher, DEAD_LETTERS, policy=policy, ensure=kept)
        it.subscriber.subscribe(QUEUE, worker(fails))
        await it.queue.put(b"bad")
        await asyncio.sleep(5)

        assert looks == [0, 0]
        assert emulator.backlog(DEAD_LETTERS) == 1


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

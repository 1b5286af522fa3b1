"""Whatever happens while dead letters are moved, nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import (
    ConfigError,
    InvalidRequestError,
    Message,
    PublisherClient,
    PublishTimeoutError,
    QueueLimit,
    SubscriberClient,
    UnavailableError,
)
from pubsub_aio.jobs.attributes import REDRIVEN
from pubsub_aio.jobs.redrive import redrive
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.dead_letters import (
    BURIED,
    IMPATIENT,
    LETTERS,
    ORDERS,
    clients,
    left,
    moved,
    numbers,
    set_up,
)
from tests.publisher.conftest import Refusing
from tests.subscriber.conftest import Tapped, at, now, virtual


@virtual
async def test_a_message_that_the_topic_refuses_stays_and_the_others_go_on(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator)
    for data in (b"1", b"bad", b"bad", b"bad", b"bad", b"2"):
        emulator.publish(BURIED, data)
    async with clients(emulator, publishing=Refusing(emulator)) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, report.failed, report.complete) == (2, 4, True)
    assert isinstance(report.first_error, InvalidRequestError)
    assert sorted(moved(emulator)) == numbers(1, 2)
    assert await left(emulator) == 4 * [b"bad"]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_refused_message_holds_back_its_key_only_where_there_is_order(ordered: bool) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, enable_message_ordering=ordered)
        for data in (b"1", b"bad", b"2", b"3"):
            emulator.publish(BURIED, data, ordering_key="k")
        async with clients(emulator, publishing=Refusing(emulator)) as (subscriber, publisher):
            report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

        assert (report.failed, report.held_back) == (1, 2 * ordered)
        assert moved(emulator) == (numbers(1) if ordered else numbers(1, 2, 3))

    scenario()


@virtual
async def test_a_message_whose_lease_has_ended_is_left_until_it_comes_again(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 1)
    looks: list[float] = []

    def where(message: Message) -> bool:
        looks.append(now())
        if len(looks) == 1:
            message.drop()
        return True

    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, where=where, idle=30)

    (published,) = emulator.messages(ORDERS)
    assert (report.moved, len(looks)) == (1, 2)
    assert at(published.publish_time) >= looks[1] > 5


@virtual
async def test_a_message_with_too_many_attributes_stays(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    for count in (98, 99):
        many = {f"a{n}": "" for n in range(count)}
        emulator.publish(BURIED, b"%d" % count, attributes=many)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, report.failed, await left(emulator)) == (1, 1, numbers(99))
    assert isinstance(report.first_error, ConfigError)


@virtual
async def test_a_message_that_the_predicate_fails_on_stays(emulator: MemoryEmulator) -> None:
    set_up(emulator, 2)
    emulator.publish(BURIED, b"none")
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, where=lambda one: int(one.data) >= 0
        )

    assert (report.moved, report.failed, await left(emulator)) == (2, 1, [b"none"])
    assert isinstance(report.first_error, ValueError)


@virtual
async def test_a_topic_that_is_away_for_a_while_is_tried_again(emulator: MemoryEmulator) -> None:
    set_up(emulator, 5)
    emulator.faults.fail("Publish", "UNAVAILABLE", times=4)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, report.failed, moved(emulator)) == (5, 0, numbers(*range(5)))


@pytest.mark.parametrize("fault", ["away", "silent"])
def test_a_topic_that_cannot_be_reached_is_tried_for_a_minute(fault: str) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, 50)
        if fault == "away":
            emulator.faults.fail("Publish", "UNAVAILABLE", times=100_000)
        else:
            emulator.faults.delay("Publish", 1_000, times=100_000)
        async with clients(emulator) as (subscriber, publisher):
            with pytest.raises(PublishTimeoutError):
                await redrive(subscriber, publisher, LETTERS, to=ORDERS)
            assert 54 < now() < 61
        assert len(await left(emulator)) == 50

    scenario()


@pytest.mark.parametrize(
    "queue",
    [
        QueueLimit(max_messages=100, when_full="error"),
        QueueLimit(max_messages=1),
        QueueLimit(max_bytes=100),
    ],
)
def test_a_publisher_that_is_full_is_waited_for(queue: QueueLimit) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, 300)
        emulator.faults.delay("Publish", 2, times=100_000)
        async with (
            SubscriberClient(emulator.project, transport=emulator.transport()) as subscriber,
            PublisherClient(
                emulator.project, transport=emulator.transport(), queue=queue
            ) as publisher,
        ):
            report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

        assert report == Report(moved=300, ended_by="empty")
        assert sorted(moved(emulator)) == sorted(numbers(*range(300)))

    scenario()


@virtual
async def test_large_messages_leave_room_in_the_publisher_for_others(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator)
    for _ in range(150):
        emulator.publish(BURIED, bytes(1_000_000))
    emulator.faults.delay("Publish", 2, times=100_000)
    async with (
        SubscriberClient(emulator.project, transport=emulator.transport()) as subscriber,
        PublisherClient(
            emulator.project, transport=emulator.transport(), max_in_flight=1
        ) as publisher,
        asyncio.TaskGroup() as tasks,
    ):
        going = tasks.create_task(redrive(subscriber, publisher, LETTERS, to=ORDERS))
        await asyncio.sleep(1)
        for _ in range(5):
            publisher.publish(ORDERS, bytes(9_000_000))

    assert going.result() == Report(moved=150, ended_by="empty")


@virtual
async def test_while_a_publisher_is_full_a_message_whose_lease_has_ended_is_left(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 1)
    seen: list[Message] = []

    def note(message: Message) -> bool:
        seen.append(message)
        return True

    emulator.faults.delay("Publish", 3, times=100)
    limit = QueueLimit(max_messages=50, when_full="error")
    async with (
        SubscriberClient(emulator.project, transport=emulator.transport()) as subscriber,
        PublisherClient(emulator.project, transport=emulator.transport(), queue=limit) as publisher,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(2):  # what may be on its way, and what may wait
            for _ in range(50):
                publisher.publish(ORDERS, b"other")
            await asyncio.sleep(0.1)
        going = tasks.create_task(
            redrive(subscriber, publisher, LETTERS, to=ORDERS, where=note, idle=30)
        )
        await asyncio.sleep(1)
        seen[0].drop()

    assert (going.result().moved, len(seen)) == (1, 2)
    assert moved(emulator) == [*100 * [b"other"], b"0"]


@virtual
async def test_it_stops_with_the_error_when_publishing_fails_for_good(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 20)
    emulator.faults.fail("Publish", "UNAVAILABLE", times=1_000)
    told: list[Report] = []
    async with clients(emulator) as (subscriber, publisher):
        with pytest.raises(UnavailableError):
            await redrive(
                *(subscriber, publisher, LETTERS),
                to=ORDERS,
                rate=1,
                retry=IMPATIENT,
                on_progress=told.append,
            )

    assert (told[-1].failed, told[-1].ended_by) == (3, "failures")
    assert (moved(emulator), await left(emulator)) == ([], sorted(numbers(*range(20))))


@virtual
async def test_a_failure_between_others_that_go_well_does_not_stop_it(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 20)

    class Failing(Tapped):
        count = 0

        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "Publish":
                self.count += 1
                if self.count % 3:
                    emulator.faults.fail("Publish", "PERMISSION_DENIED")
            return await super().call(rpc, request, timeout=timeout)

    async with clients(emulator, publishing=Failing(emulator.transport())) as pair:
        report = await redrive(*pair, LETTERS, to=ORDERS, rate=1)

    assert (report.moved, report.failed, len(await left(emulator))) == (6, 14, 14)


@virtual
async def test_a_stream_that_breaks_is_not_taken_for_an_empty_subscription(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator)
    async with clients(emulator) as (subscriber, publisher), asyncio.TaskGroup() as tasks:
        going = tasks.create_task(redrive(subscriber, publisher, LETTERS, to=ORDERS, idle=5))
        await asyncio.sleep(1)
        emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=8)
        emulator.faults.cut_streams(LETTERS)
        emulator.publish(BURIED, b"late")

    assert (going.result().moved, moved(emulator)) == (1, [b"late"])


@virtual
async def test_silence_counts_from_when_a_stream_is_back(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    async with clients(emulator) as (subscriber, publisher), asyncio.TaskGroup() as tasks:
        going = tasks.create_task(redrive(subscriber, publisher, LETTERS, to=ORDERS, idle=5))
        await asyncio.sleep(1)
        emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=6)
        emulator.faults.cut_streams(LETTERS)
        await asyncio.sleep(0.1)
        while not emulator.streams(LETTERS):  # noqa: ASYNC110 - of virtual time
            await asyncio.sleep(0.1)
        await asyncio.sleep(4.5)
        emulator.publish(BURIED, b"late")

    assert (going.result().moved, moved(emulator)) == (1, [b"late"])


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.1, 0.5, 1.0, 1.02, 1.5, 2.0, 2.7, 3.1, 4.0])
@pytest.mark.parametrize("again", [False, True])
def test_whenever_it_is_cancelled_nothing_is_lost_and_what_is_held_goes_back(
    moment: float, again: bool
) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, 20)
        emulator.faults.delay("Publish", 0.3, times=1_000)
        told = [Report()]
        async with clients(emulator) as (subscriber, publisher):
            going = asyncio.ensure_future(
                redrive(
                    *(subscriber, publisher, LETTERS),
                    to=ORDERS,
                    where=lambda message: int(message.data) % 4 > 0,
                    rate=5,
                    on_progress=told.append,
                )
            )
            await asyncio.sleep(moment)
            going.cancel()
            if again:
                await asyncio.sleep(0.01)
                going.cancel()
            with pytest.raises(asyncio.CancelledError):
                await going
            there, here = moved(emulator), await left(emulator)
            assert {*there, *here} == {*numbers(*range(20))}
            if not again:  # what was under way was finished, and is told of
                assert told[-1].moved == len(there)
                assert sorted(there + here) == sorted(numbers(*range(20)))
            emulator.faults.clear()
            await redrive(subscriber, publisher, LETTERS, to=ORDERS)
        assert {*moved(emulator)} == {*numbers(*range(20))}
        twice = {(one.data, one.attributes[REDRIVEN]) for one in emulator.messages(ORDERS)}
        assert len(twice) == 20

    scenario()


@virtual
async def test_what_on_progress_raises_ends_it(emulator: MemoryEmulator) -> None:
    set_up(emulator, 3)
    emulator.faults.delay("Publish", 0.5)
    told: list[Report] = []

    def fail(report: Report) -> None:
        told.append(report)
        if report.skipped:
            raise LookupError

    async with clients(emulator) as (subscriber, publisher):
        with pytest.raises(LookupError):
            await redrive(
                *(subscriber, publisher, LETTERS),
                to=ORDERS,
                where=lambda message: message.data == b"0",
                on_progress=fail,
            )

    assert told == [Report(), Report(skipped=2)]
    assert (moved(emulator), await left(emulator)) == (numbers(0), numbers(1, 2))

"""Dead letters are moved as the messages that they were: those that are asked for, once each."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from pubsub_aio import (
    Deduplicator,
    Message,
)
from pubsub_aio.jobs import SAME_JOB
from pubsub_aio.jobs.attributes import JOB_ID, REDRIVEN, REDRIVEN_BY, RESURRECTIONS
from pubsub_aio.jobs.redrive import redrive
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.subscriber.dead_letters import ERROR, MESSAGE_ID, SOURCE
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import DEAD_LETTERS, QUEUE, RETURNS, Performer, fails, shop
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
from tests.publisher.conftest import Refusing
from tests.subscriber.conftest import now, virtual

# What is moved


@virtual
async def test_dead_letters_are_moved_as_the_messages_that_they_were(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, enable_message_ordering=True)
    own = {"kind": "tea", JOB_ID: "j1"}
    notes = {ERROR: "ValueError: no", MESSAGE_ID: "7", f"{SOURCE}Subscription": "worker"}
    buried = emulator.publish(
        BURIED, b"one", attributes={**own, **notes, RESURRECTIONS: "3"}, ordering_key="k"
    )
    plain = emulator.publish(BURIED, b"two")
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert report == Report(moved=2, ended_by="empty")
    assert (report.complete, report.looked_at) == (True, 2)
    one, two = emulator.messages(ORDERS)
    assert (one.data, one.ordering_key) == (b"one", "k")
    run = one.attributes[REDRIVEN_BY]
    assert one.attributes == {**own, RESURRECTIONS: "0", REDRIVEN: buried, REDRIVEN_BY: run}
    assert (two.data, two.attributes) == (b"two", {REDRIVEN: plain, REDRIVEN_BY: run})
    assert emulator.backlog(LETTERS) == 0


@pytest.mark.usefixtures("quiet")
@virtual
async def test_dead_letters_of_a_queue_return_to_it_and_to_nobody_else(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription("other", QUEUE)
    async with shop(emulator) as place:
        performer = Performer(fails)
        handler = place.queue.worker()(performer)
        live = place.subscriber.subscribe(QUEUE, handler)
        await place.queue.put(b"tea", job_id="j1")
        await asyncio.sleep(60)
        live.stop()
        await live
        assert place.left() == {QUEUE: 0, DEAD_LETTERS: 1, RETURNS: 0}

        report = await redrive(place.subscriber, place.publisher, DEAD_LETTERS)

    assert (report.moved, report.fans_out) == (1, ())
    assert place.left() == {QUEUE: 0, DEAD_LETTERS: 0, RETURNS: 1}
    assert emulator.backlog("other") == 1
    (returned,) = emulator.messages(RETURNS)
    assert returned.attributes.keys() == {JOB_ID, RESURRECTIONS, REDRIVEN, REDRIVEN_BY}


@virtual
async def test_a_redriven_job_is_no_duplicate_of_itself_but_twice_redriven_is(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator)
    job = {JOB_ID: "j1", RESURRECTIONS: "0"}
    emulator.publish(ORDERS, b"job", attributes=job)
    emulator.publish(BURIED, b"job", attributes=job)
    # The ack is lost, and who redrives dies: the next one does it again.
    emulator.faults.lose_acks(LETTERS)
    seen: list[str] = []

    async def note(message: Message) -> None:
        seen.append(message.attribute(REDRIVEN))
        message.ack()

    async with clients(emulator) as (subscriber, publisher):
        for _ in range(2):
            await redrive(subscriber, publisher, LETTERS, to=ORDERS, idle=1)
            await asyncio.sleep(60)
        live = subscriber.subscribe(WORKER, Deduplicator(SAME_JOB)(note))
        await asyncio.sleep(10)
        live.stop()
        await live

    assert len(emulator.messages(ORDERS)) == 3
    assert [bool(one) for one in seen] == [False, True]


@virtual
async def test_an_ack_that_was_lost_is_sent_again_and_nothing_is_published_twice(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 1)
    emulator.faults.lose_acks(LETTERS)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, idle=90)

    assert (report.moved, moved(emulator), emulator.backlog(LETTERS)) == (1, numbers(0), 0)


@virtual
async def test_messages_of_a_key_stay_in_order(emulator: MemoryEmulator) -> None:
    set_up(emulator, enable_message_ordering=True)
    for number in range(20):
        for key in "ab":
            emulator.publish(BURIED, f"{key}{number:02}".encode(), ordering_key=key)
    emulator.faults.fail("Publish", "UNAVAILABLE", times=3)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    found = moved(emulator)
    assert (report.moved, report.complete) == (40, True)
    assert [one for one in found if one.startswith(b"a")] == [b"a%02d" % n for n in range(20)]
    assert [one for one in found if one.startswith(b"b")] == [b"b%02d" % n for n in range(20)]


@virtual
async def test_many_are_moved_once_each(emulator: MemoryEmulator) -> None:
    set_up(emulator, 3_000)
    emulator.faults.duplicate(LETTERS, times=100)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, emulator.backlog(LETTERS)) == (3_000, 0)
    assert sorted(moved(emulator)) == sorted(numbers(*range(3_000)))


@virtual
async def test_dead_letters_whose_topic_was_deleted_are_moved(emulator: MemoryEmulator) -> None:
    set_up(emulator, 2)
    emulator._broker.delete_topic(
        f"projects/{emulator.project}/topics/{BURIED}", now=emulator.clock.now()
    )
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, moved(emulator)) == (2, numbers(0, 1))


# Which


@pytest.mark.parametrize(
    "where", ['attributes.odd = "1"', lambda message: message.attributes["odd"] == "1"]
)
def test_only_those_are_moved_that_are_asked_for(where: Any) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, 5)
        async with clients(emulator) as (subscriber, publisher):
            report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, where=where)

        assert report == Report(moved=2, skipped=3, ended_by="empty")
        assert moved(emulator) == numbers(1, 3)
        assert await left(emulator) == numbers(0, 2, 4)  # at once, none waits for a deadline

    scenario()


@virtual
async def test_no_more_are_moved_than_the_limit_says(emulator: MemoryEmulator) -> None:
    set_up(emulator, 10)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            subscriber, publisher, LETTERS, to=ORDERS, limit=2, where='attributes.odd = "1"'
        )

    assert (report.moved, report.ended_by, report.complete) == (2, "limit", False)
    assert moved(emulator) == numbers(1, 3)
    assert await left(emulator) == numbers(0, 2, 4, 5, 6, 7, 8, 9)


@virtual
async def test_at_the_limit_nobody_waits_for_his_turn_any_more(emulator: MemoryEmulator) -> None:
    set_up(emulator, 10)
    async with clients(emulator) as (subscriber, publisher):
        await redrive(subscriber, publisher, LETTERS, to=ORDERS, limit=2)

        assert now() < 1


@virtual
async def test_a_failure_does_not_count_towards_the_limit(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    for data in (b"bad", b"1", b"2", b"3"):
        emulator.publish(BURIED, data)
    async with clients(emulator, publishing=Refusing(emulator)) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, limit=2)

    assert (report.moved, report.failed, moved(emulator)) == (2, 1, numbers(1, 2))


@virtual
async def test_the_rate_is_kept_to(emulator: MemoryEmulator) -> None:
    set_up(emulator, 20)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, rate=0.1, idle=1)

    times = [one.publish_time.timestamp() for one in emulator.messages(ORDERS)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert (report.moved, report.complete) == (20, True)
    assert all(gap == pytest.approx(10, abs=0.1) for gap in gaps)


@virtual
async def test_a_dry_run_tells_what_would_be_and_moves_nothing(emulator: MemoryEmulator) -> None:
    set_up(emulator, 5)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS),
            to=ORDERS,
            where='attributes.odd = "1"',
            dry_run=True,
        )

    assert report == Report(moved=2, skipped=3, ended_by="empty", dry_run=True)
    assert (moved(emulator), await left(emulator)) == ([], numbers(0, 1, 2, 3, 4))


@virtual
async def test_a_dry_run_needs_no_rate(emulator: MemoryEmulator) -> None:
    set_up(emulator, 50)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, rate=1, idle=5, dry_run=True
        )

    assert report.moved == 50
    assert now() < 6


@virtual
async def test_what_is_behind_one_that_waits_for_its_turn_is_not_looked_at_yet(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 50)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS),
            to=ORDERS,
            where=lambda message: int(message.data) in (0, 2, 4),
            rate=0.1,
            max_held=10,
        )

    assert report == Report(moved=3, skipped=10, ended_by="max_held")
    assert now() >= 20


@virtual
async def test_it_ends_when_too_many_have_to_be_held(emulator: MemoryEmulator) -> None:
    set_up(emulator, 50)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS),
            to=ORDERS,
            where=lambda message: int(message.data) >= 20,
            max_held=10,
        )

    assert (report.skipped, report.complete, report.ended_by) == (10, False, "max_held")
    assert (report.moved, moved(emulator), len(await left(emulator))) == (0, [], 50)


@virtual
async def test_it_ends_when_what_has_to_be_held_is_too_large(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    for _ in range(12):
        emulator.publish(BURIED, bytes(9_900_000))
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, where="attributes:missing"
        )

    assert (report.skipped, report.ended_by) == (11, "max_held")
    assert emulator.backlog(LETTERS) == 12


@virtual
async def test_what_is_held_is_kept_however_long_it_takes(emulator: MemoryEmulator) -> None:
    set_up(emulator, 40)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, where='attributes.odd = "1"', rate=0.001
        )

    assert now() > 19_000
    assert (report.moved, report.skipped) == (20, 20)
    assert {len(one.deliveries) for one in emulator.messages(BURIED)} == {1}


@virtual
async def test_what_stays_holds_back_the_later_ones_of_its_key_where_there_is_order(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, enable_message_ordering=True)
    for data in (b"1", b"skip", b"2"):
        emulator.publish(BURIED, data, ordering_key="k")
        emulator.publish(BURIED, data)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, where=lambda one: one.data != b"skip"
        )

    assert report == Report(moved=3, skipped=2, held_back=1, ended_by="empty")
    assert sorted(moved(emulator)) == [b"1", b"1", b"2"]
    assert await left(emulator) == [b"2", b"skip", b"skip"]


@virtual
async def test_without_order_a_key_goes_on_behind_one_that_stays(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    for data in (b"1", b"skip", b"2"):
        emulator.publish(BURIED, data, ordering_key="k")
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(
            *(subscriber, publisher, LETTERS), to=ORDERS, where=lambda one: one.data != b"skip"
        )

    assert (report.moved, report.skipped, report.held_back) == (2, 1, 0)


# Progress


@virtual
async def test_progress_is_told_as_it_goes_on(emulator: MemoryEmulator) -> None:
    set_up(emulator, 3)
    told: list[str] = []

    def note(report: Report) -> None:
        told.append(f"{now():.0f} s: {report.moved} {report.skipped} {report.ended_by}")

    async with clients(emulator) as (subscriber, publisher):
        await redrive(
            *(subscriber, publisher, LETTERS),
            to=ORDERS,
            where=lambda message: message.data != b"1",
            rate=0.1,
            on_progress=note,
        )

    assert told == [
        "0 s: 0 0 None",
        "0 s: 0 1 None",
        "0 s: 1 1 None",
        "10 s: 2 1 None",
        "15 s: 2 1 empty",
    ]

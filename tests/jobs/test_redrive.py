"""Dead letters are moved, looked at and deleted; nothing is lost, whatever happens on the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pubsub_aio import (
    ConfigError,
    Deduplicator,
    InvalidRequestError,
    Message,
    PublisherClient,
    RetryPolicy,
    ServiceError,
    SubscriberClient,
    UnavailableError,
)
from pubsub_aio._wire.transport import Transport
from pubsub_aio.jobs import SAME_JOB
from pubsub_aio.jobs.attributes import JOB_ID, REDRIVEN, RESURRECTIONS
from pubsub_aio.jobs.redrive import peek, purge, redrive
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.subscriber.dead_letters import ERROR, MESSAGE_ID, SOURCE
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import DEAD_LETTERS, QUEUE, RETURNS, Performer, fails, shop
from tests.publisher.conftest import Refusing
from tests.subscriber.conftest import Tapped, at, now, virtual

BURIED, LETTERS = "buried", "letters"
"""A topic of dead letters, and its subscription."""

ORDERS, WORKER = "orders", "worker"

IMPATIENT = RetryPolicy(retries=1, wait=0.1)


@contextlib.asynccontextmanager
async def clients(
    emulator: MemoryEmulator,
    *,
    receiving: Transport | None = None,
    publishing: Transport | None = None,
) -> AsyncIterator[tuple[SubscriberClient, PublisherClient]]:
    """A subscriber and a publisher of the emulator."""
    async with (
        SubscriberClient(emulator.project, transport=receiving or emulator.transport()) as one,
        PublisherClient(emulator.project, transport=publishing or emulator.transport()) as other,
    ):
        yield one, other


def set_up(emulator: MemoryEmulator, count: int = 0, **settings: object) -> list[str]:
    """Topics, subscriptions and dead letters `b"0"`, `b"1"` and so on; returns their ids."""
    emulator.create_subscription(LETTERS, BURIED, **settings)
    emulator.create_subscription(WORKER, ORDERS)
    return [
        emulator.publish(BURIED, b"%d" % number, attributes={"odd": str(number % 2)})
        for number in range(count)
    ]


def moved(emulator: MemoryEmulator, topic: str = ORDERS) -> list[bytes]:
    """The data of what was moved to a topic, in order."""
    return [message.data for message in emulator.messages(topic)]


def numbers(*wanted: int) -> list[bytes]:
    return [b"%d" % number for number in wanted]


async def left(emulator: MemoryEmulator, subscription: str = LETTERS) -> list[bytes]:
    """What can be pulled at once."""
    async with SubscriberClient(emulator.project, transport=emulator.transport()) as client:
        messages = await client.pull(subscription, max_messages=1_000, timeout=1)
        for message in messages:
            message.nack()
        return sorted(message.data for message in messages)


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
    assert one.attributes == {**own, RESURRECTIONS: "0", REDRIVEN: buried}
    assert (two.data, two.attributes) == (b"two", {REDRIVEN: plain})
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
    assert returned.attributes.keys() == {JOB_ID, RESURRECTIONS, REDRIVEN}


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


# What goes wrong


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
    set_up(emulator, 1)
    emulator.publish(BURIED, b"full", attributes={f"a{n}": "" for n in range(100)})
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, report.failed, await left(emulator)) == (1, 1, [b"full"])
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


# Where to


@virtual
async def test_a_topic_that_fans_out_is_said_before_anything_moves(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    set_up(emulator, 1)
    other = emulator.create_subscription("audit", ORDERS)
    caplog.set_level(logging.WARNING)
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS, dry_run=True)

    assert report.fans_out == (other, f"projects/{emulator.project}/subscriptions/{WORKER}")
    assert "fans out" in caplog.text
    assert "audit, worker" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"to": "missing"}, "to: there is no .*topics/missing; create it"),
        ({"to": "lonely"}, "to: .*topics/lonely has no subscription, everything would be lost"),
        ({"to": BURIED}, f"to: the dead letters come from .*topics/{BURIED}; choose another"),
        ({}, "to: must be given"),
        ({"to": ORDERS, "where": "attributes.a ="}, "where: invalid filter at character 15"),
        ({"to": ORDERS, "where": 7}, "where must be a function that takes a message"),
        ({"to": ORDERS, "where": asyncio.sleep}, "where must be a plain function"),
        ({"to": ORDERS, "limit": 0}, "limit must be at least 1"),
        ({"to": ORDERS, "rate": 0}, "rate must be more than 0"),
        ({"to": ORDERS, "idle": 0}, "idle must be more than 0"),
        ({"to": ORDERS, "max_held": 0}, "max_held must be at least 1"),
        ({"to": ORDERS, "on_progress": 7}, "on_progress must be a function"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_moves(
    arguments: dict[str, Any], named: str
) -> None:
    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        set_up(emulator, 1)
        emulator.create_topic("lonely")
        async with clients(emulator) as (subscriber, publisher):
            with pytest.raises(ConfigError, match=named):
                await redrive(subscriber, publisher, LETTERS, **arguments)

        assert emulator.backlog(LETTERS) == 1

    scenario()


@virtual
async def test_a_subscription_that_does_not_exist_is_named(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    async with clients(emulator) as (subscriber, publisher):
        for call in (
            redrive(subscriber, publisher, "missing", to=ORDERS),
            purge(subscriber, "missing"),
            peek(subscriber, "missing"),
        ):
            with pytest.raises(ConfigError, match=r"subscription: there is no .*/missing"):
                await call


@virtual
async def test_who_may_not_look_anything_up_is_not_stopped_by_that(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    set_up(emulator, 2)
    emulator.faults.fail("GetSubscription", "PERMISSION_DENIED", times=2)
    emulator.faults.fail("ListTopicSubscriptions", "PERMISSION_DENIED")
    async with clients(emulator) as (subscriber, publisher):
        report = await redrive(subscriber, publisher, LETTERS, to=ORDERS)

    assert (report.moved, report.fans_out) == (2, ())
    assert "cannot be looked up: PERMISSION_DENIED" in caplog.text
    assert "who gets what is moved there cannot be looked up" in caplog.text


@virtual
async def test_a_subscription_that_is_deleted_meanwhile_ends_it_with_the_error(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 2)
    async with clients(emulator) as (subscriber, publisher), asyncio.TaskGroup() as tasks:
        going = tasks.create_task(_outcome(redrive(subscriber, publisher, LETTERS, to=ORDERS)))
        await asyncio.sleep(2)
        emulator._broker.delete_subscription(
            f"projects/{emulator.project}/subscriptions/{LETTERS}", now=emulator.clock.now()
        )
        emulator._wake()

    assert isinstance(going.result(), ServiceError)


async def _outcome(work: Any) -> object:
    try:
        return await work
    except ServiceError as error:
        return error


@virtual
async def test_who_may_not_look_reckons_with_order(emulator: MemoryEmulator) -> None:
    set_up(emulator, enable_message_ordering=True)
    for data in (b"skip", b"1"):
        emulator.publish(BURIED, data, ordering_key="k")
    for purged in (True, False):
        emulator.faults.fail("GetSubscription", "PERMISSION_DENIED", times=2)
        async with clients(emulator) as (subscriber, publisher):
            if purged:
                report = await purge(subscriber, LETTERS, where=lambda one: one.data != b"skip")
            else:
                report = await redrive(
                    *(subscriber, publisher, LETTERS),
                    to=ORDERS,
                    where=lambda one: one.data != b"skip",
                )

        assert report == Report(skipped=1, held_back=1, ended_by="empty")


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


# Peek and purge


@virtual
async def test_peek_shows_dead_letters_and_gives_them_back(emulator: MemoryEmulator) -> None:
    set_up(emulator)
    attributes = {
        JOB_ID: "j1",
        RESURRECTIONS: "2",
        ERROR: "ValueError: no",
        f"{SOURCE}Subscription": "worker",
        f"{SOURCE}SubscriptionProject": "p",
        f"{SOURCE}DeliveryCount": "5",
    }
    buried = emulator.publish(BURIED, b"one", attributes=attributes)
    emulator.publish(BURIED, b"two")
    async with clients(emulator) as (subscriber, _):
        one, two = await peek(subscriber, LETTERS)

    assert (one.id, one.data, one.attributes) == (buried, b"one", attributes)
    assert (one.job_id, one.resurrections, one.error) == ("j1", 2, "ValueError: no")
    assert (one.source, one.deliveries) == ("projects/p/subscriptions/worker", 5)
    assert one.publish_time == emulator.message(buried).publish_time
    assert (two.job_id, two.resurrections, two.error, two.source) == (None, 0, None, None)
    assert await left(emulator) == [b"one", b"two"]


@virtual
async def test_peek_shows_as_many_as_are_asked_for_of_those_that_are(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, 10, enable_message_ordering=True)
    async with clients(emulator) as (subscriber, _):
        found = await peek(subscriber, LETTERS, limit=3, where='attributes.odd = "1"')

    assert [letter.data for letter in found] == numbers(1, 3, 5)
    assert now() < 5  # it does not wait for more
    assert len(await left(emulator)) == 10


@virtual
async def test_peek_sees_all_messages_of_an_ordering_key(emulator: MemoryEmulator) -> None:
    set_up(emulator, enable_message_ordering=True)
    for number in range(5):
        emulator.publish(BURIED, b"%d" % number, ordering_key="k")
    async with clients(emulator) as (subscriber, _):
        found = await peek(subscriber, LETTERS)

    assert [letter.data for letter in found] == numbers(*range(5))


@virtual
async def test_peek_sees_all_messages_of_a_key_where_nobody_tells_of_order(
    emulator: MemoryEmulator,
) -> None:
    set_up(emulator, enable_message_ordering=True)
    for number in range(5):
        emulator.publish(BURIED, b"%d" % number, ordering_key="k")
    emulator.faults.fail("GetSubscription", "PERMISSION_DENIED", times=2)
    pulling = Tapped(emulator.transport(), streaming=False)
    async with clients(emulator, receiving=pulling) as (subscriber, _):
        found = await peek(subscriber, LETTERS)

    assert [letter.data for letter in found] == numbers(*range(5))


@virtual
async def test_purge_deletes_what_is_asked_for(emulator: MemoryEmulator) -> None:
    set_up(emulator, 10)
    async with clients(emulator) as (subscriber, _):
        would = await purge(subscriber, LETTERS, where='attributes.odd = "1"', dry_run=True)
        assert (would.moved, emulator.backlog(LETTERS)) == (5, 10)
        some = await purge(subscriber, LETTERS, where='attributes.odd = "1"', limit=2)
        rest = await purge(subscriber, LETTERS, where='attributes.odd = "1"')

    assert (some.moved, some.ended_by) == (2, "limit")
    assert (rest.moved, rest.skipped, rest.complete) == (3, 5, True)
    assert await left(emulator) == numbers(0, 2, 4, 6, 8)

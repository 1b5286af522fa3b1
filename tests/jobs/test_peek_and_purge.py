"""Dead letters are looked at and deleted."""

from __future__ import annotations

from pubsub_aio.jobs.attributes import JOB_ID, RESURRECTIONS
from pubsub_aio.jobs.redrive import peek, purge
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.subscriber.dead_letters import ERROR, SOURCE
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.dead_letters import (
    BURIED,
    LETTERS,
    clients,
    left,
    numbers,
    set_up,
)
from tests.subscriber.conftest import Tapped, now, virtual


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
async def test_peek_tells_why_it_ended(emulator: MemoryEmulator) -> None:
    set_up(emulator, 10)
    told: list[Report] = []
    async with clients(emulator) as (subscriber, _):
        endings = []
        for limit, held in ((3, 100), (20, 5), (20, 100)):
            await peek(subscriber, LETTERS, limit=limit, max_held=held, on_progress=told.append)
            endings.append((told[-1].moved, told[-1].ended_by))

    assert endings == [(3, "limit"), (5, "max_held"), (10, "empty")]


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

"""Jobs that come many at a time, of which each costs as little as can be."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import Message
from pubsub_aio.jobs import Job
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import NOTHING_LEFT, QUEUE, Performer, shop
from tests.subscriber.conftest import virtual

pytestmark = pytest.mark.usefixtures("quiet")

COUNT = 100


@virtual
async def test_of_many_jobs_those_that_expired_are_dropped(emulator: MemoryEmulator) -> None:
    kinds: set[type[Message]] = set()

    async def note(job: Job) -> None:
        kinds.add(type(job.message))

    async with shop(emulator) as it:
        for n in range(COUNT):
            await it.queue.put(b"%d" % n, persistent=False, ttl=n % 2 * 60 + 1)
        await asyncio.sleep(2)
        async with it.working(performer := Performer(note)):
            await asyncio.sleep(1)

        assert sorted(map(int, performer.done)) == [*range(1, COUNT, 2)]
        assert sorted(int(data) for _, data in performer.dropped) == [*range(0, COUNT, 2)]
        assert (kinds, it.left()) == ({Message}, NOTHING_LEFT)


@virtual
async def test_of_many_jobs_none_is_dropped_for_what_a_value_quotes(
    emulator: MemoryEmulator,
) -> None:
    """Nor is one kept for it: `expires_at` counts, wherever else its name may stand."""
    past, future = "expires_at\x12\r1000000000000", "expires_at\x12\r9999999999999"
    async with shop(emulator) as it:
        for n in range(COUNT):
            marks = {"persistent": "false", "note": (past, future)[n % 2]}
            if n % 4 == 3:
                marks["expires_at"] = "1000"
            emulator.publish(QUEUE, b"%d" % n, attributes=marks)
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        assert sorted(int(data) for _, data in performer.dropped) == [*range(3, COUNT, 4)]
        assert len(performer.done) == COUNT * 3 // 4


@virtual
async def test_an_expiry_of_very_many_digits_drops_nothing_and_is_complained_of(
    emulator: MemoryEmulator, quiet: pytest.LogCaptureFixture
) -> None:
    async with shop(emulator) as it:
        for n in range(COUNT):
            marks = {"expires_at": "9" * (1 + n * 10), "persistent": "false"}
            emulator.publish(QUEUE, b"%d" % n, attributes=marks)
        async with it.working(performer := Performer()):
            await asyncio.sleep(1)

        # Of one digit and of eleven, these are long past.
        assert sorted(int(data) for _, data in performer.dropped) == [0, 1]
        assert len(performer.done) == quiet.text.count("however old it is") == COUNT - 2

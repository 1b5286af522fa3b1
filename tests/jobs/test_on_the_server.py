"""Jobs whose attempts the server counts: those that kill their worker, or where it was told to."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import AdminClient
from pubsub_aio.jobs import Job, JobPolicy, RejectJobError
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import NOTHING_LEFT, QUEUE, Performer, Shop, fails, shop
from tests.subscriber.conftest import virtual

pytestmark = pytest.mark.usefixtures("quiet")


async def count_on_server(it: Shop) -> None:
    emulator = it.emulator
    async with AdminClient(project=emulator.project, transport=emulator.transport()) as admin:
        await it.queue.retry_on_server(admin, project_number=123)


async def kills(job: Job) -> None:
    """As if the worker had died: what it held comes again, and it says nothing."""
    job.message.nack()
    await asyncio.sleep(0.1)


@virtual
async def test_a_job_that_kills_its_worker_ends_some_time(emulator: MemoryEmulator) -> None:
    """H8, B20: the server makes it a dead letter; when it returned often enough it is given up."""
    async with shop(emulator) as it:
        await count_on_server(it)
        await it.queue.put(b"deadly")
        async with it.working(performer := Performer(kills)):
            await asyncio.sleep(600)

        assert [data for _, data, _ in performer.given_up] == [b"deadly"]
        assert performer.given_up[0][2] == "no worker finished it"
        rounds = [resurrections for _, _, _, resurrections in performer.tries]
        assert rounds == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
        assert it.left() == NOTHING_LEFT


@virtual
async def test_without_that_it_never_ends(emulator: MemoryEmulator) -> None:
    """Nobody counts, so nothing is lost either."""
    async with shop(emulator) as it:
        await it.queue.put(b"deadly")
        async with it.working(performer := Performer(kills)):
            await asyncio.sleep(10)

        assert len(performer.tries) > 20
        assert it.left() == {**NOTHING_LEFT, QUEUE: 1}


@virtual
async def test_the_server_may_decide_when_a_job_is_tried_again(emulator: MemoryEmulator) -> None:
    """R29, B24: failure is a nack, and the retry policy of the server says what follows."""
    policy = JobPolicy(max_resurrections=0)
    async with shop(emulator, policy=policy) as it:
        await count_on_server(it)
        await it.queue.put(b"bad")
        async with it.working(performer := Performer(fails), retry="server"):
            await asyncio.sleep(600)

        waits = [
            after - before
            for before, after in zip(
                performer.times(b"bad"), performer.times(b"bad")[1:], strict=False
            )
        ]
        assert len(performer.tries) == 5
        assert all(2 <= wait <= 10.5 for wait in waits), waits
        assert [data for _, data, _ in performer.given_up] == [b"bad"]
        assert it.left() == NOTHING_LEFT


@virtual
async def test_what_is_rejected_is_given_up_here(emulator: MemoryEmulator) -> None:
    async def rejects(_: Job) -> None:
        raise RejectJobError("there is no such customer")

    async with shop(emulator) as it:
        await count_on_server(it)
        await it.queue.put(b"wrong")
        async with it.working(performer := Performer(rejects), retry="server"):
            await asyncio.sleep(60)

        assert (len(performer.tries), len(performer.given_up)) == (1, 1)


def test_a_server_that_does_not_count_is_warned_of(quiet: pytest.LogCaptureFixture) -> None:
    """R29: and the job comes again after the first wait of the policy, not at once."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async with shop(emulator) as it:
            await it.queue.put(b"bad")
            async with it.working(performer := Performer(fails), retry="server"):
                await asyncio.sleep(5)

            assert performer.times(b"bad") == [0, 2, 4]

    scenario()

    warnings = [one.message for one in quiet.records if "does not count" in one.message]
    assert len(warnings) == 1

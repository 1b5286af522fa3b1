"""Jobs at once, and jobs of one ordering key one after another; and what cannot be read."""

from __future__ import annotations

import asyncio
import json

import pytest

from pubsub_aio.jobs import Job, JobPolicy
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import (
    DEAD_LETTERS,
    NOTHING_LEFT,
    QUEUE,
    Performer,
    after,
    shop,
)
from tests.subscriber.conftest import virtual

pytestmark = pytest.mark.usefixtures("quiet")


@virtual
async def test_without_fifo_jobs_are_performed_at_once_whatever_their_keys(
    emulator: MemoryEmulator,
) -> None:
    """R29: concurrent; success is acked, failure is tried again."""
    async with shop(emulator) as it:
        for n in range(10):
            await it.queue.put(b"%d" % n, ordering_key="a")
        async with it.working(performer := Performer(after(1))):
            await asyncio.sleep(2)

        assert (performer.peak, len(performer.done)) == (10, 10)
        assert it.left() == NOTHING_LEFT


@virtual
async def test_with_fifo_a_key_waits_until_its_job_is_done_or_dead(
    emulator: MemoryEmulator,
) -> None:
    """R30: tried again here until the last attempt, then a dead letter, then the next one."""

    async def first_fails(job: Job) -> None:
        if job.data == b"a0":
            raise ValueError("it cannot be done")

    async with shop(emulator, fifo=True) as it:
        for data in (b"a0", b"a1", b"b0", b"a2", b"b1"):
            await it.queue.put(data, ordering_key=data[:1].decode())
        it.subscriber.subscribe(QUEUE, it.queue.worker()(performer := Performer(first_fails)))
        await asyncio.sleep(30)

        assert performer.times(b"a0") == [0, 2, 6]
        assert [data for _, data, _, _ in performer.tries if data != b"a0"] == [
            *(b"b0", b"b1", b"a1", b"a2")
        ]
        assert performer.times(b"a1") == [6]
        (letter,) = emulator.messages(DEAD_LETTERS)
        assert (letter.data, letter.ordering_key) == (b"a0", "a")


@virtual
async def test_with_fifo_a_key_waits_for_the_ack(emulator: MemoryEmulator) -> None:
    """R31: while the server takes no acks the next job of the key does not begin."""
    async with shop(emulator, fifo=True) as it:
        for data in (b"a0", b"a1"):
            await it.queue.put(data, ordering_key="a")
        emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=1_000)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(performer := Performer()))
        await asyncio.sleep(2)
        assert performer.done == [b"a0"]
        emulator.faults.clear()
        await asyncio.sleep(7)

        assert performer.done == [b"a0", b"a1"]


@virtual
async def test_with_fifo_a_key_waits_for_its_dead_letter(emulator: MemoryEmulator) -> None:
    """R31: while it cannot be published the next job of the key does not begin."""

    async def first_fails(job: Job) -> None:
        if job.data == b"a0":
            raise ValueError("it cannot be done")

    async with shop(emulator, fifo=True, policy=JobPolicy(max_attempts=1)) as it:
        for data in (b"a0", b"a1"):
            await it.queue.put(data, ordering_key="a")
        emulator.faults.fail("Publish", "UNAVAILABLE", times=10)
        it.subscriber.subscribe(QUEUE, it.queue.worker()(performer := Performer(first_fails)))
        await asyncio.sleep(60)

        assert performer.times(b"a0") == [0]
        assert performer.times(b"a1") == [10]
        assert len(emulator.messages(DEAD_LETTERS)) == 1


@pytest.mark.parametrize("undecodable", ["dead_letter", "discard"])
def test_a_corrupted_job_does_not_hold_up_its_key(undecodable: str) -> None:
    """R32: it is tried once, and the next one of the key continues."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        bodies: list[object] = []

        async def perform(job: Job) -> None:
            bodies.append(job.body)

        performer = Performer()
        async with shop(emulator, fifo=True) as it:
            for data in (b"{]", b'{"a": 1}'):
                await it.queue.put(data, ordering_key="a")
            worker = it.queue.worker(
                decode=json.loads,
                undecodable=undecodable,  # type: ignore[arg-type]
                on_give_up=performer.on_give_up,
            )
            it.subscriber.subscribe(QUEUE, worker(perform))
            await asyncio.sleep(1)

            assert bodies == [{"a": 1}]
            given_up = [data for _, data, _ in performer.given_up]
            letters = [letter.data for letter in emulator.messages(DEAD_LETTERS)]
            found = {"dead_letter": ([], [b"{]"]), "discard": ([b"{]"], [])}
            assert (given_up, letters) == found[undecodable]
            assert emulator.backlog(QUEUE) == 0

    scenario()


@virtual
async def test_a_corrupted_job_is_given_up_in_the_end(emulator: MemoryEmulator) -> None:
    """R32: it returns as often as any other, in case that the decoder was at fault."""
    async with shop(emulator) as it:
        await it.queue.put(b"{]")
        async with it.working(performer := Performer(), decode=json.loads):
            await asyncio.sleep(60)

        assert performer.tries == []
        assert [(time, data) for time, data, _ in performer.given_up] == [(9, b"{]")]

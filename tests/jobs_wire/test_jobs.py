"""Jobs over gRPC and REST, on the embedded emulator and Google's; and workers that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator

import pytest

from pubsub_aio import PublisherClient
from pubsub_aio.jobs import Job, JobPolicy, JobQueue
from tests.publisher_wire.conftest import publisher_of
from tests.subscriber_wire.conftest import Program, Site, nothing_left_behind, until

pytestmark = pytest.mark.timeout(60)

SOON = JobPolicy(
    max_attempts=2, initial_backoff=0.01, dead_letter_ttl=0.01, max_resurrections=2, max_backoff=0.1
)


@contextlib.asynccontextmanager
async def queue_on(
    site: Site, *, policy: JobPolicy = SOON, fifo: bool = False
) -> AsyncIterator[tuple[JobQueue, PublisherClient]]:
    async with (
        nothing_left_behind(),
        site.client() as subscriber,
        publisher_of(site) as publisher,
    ):
        yield JobQueue("jobs", subscriber, publisher, policy=policy, fifo=fifo), publisher


@contextlib.asynccontextmanager
async def at_work(queue: JobQueue, *args: object, **options: object) -> AsyncIterator[None]:
    working = asyncio.ensure_future(queue.work(*args, **options))  # type: ignore[arg-type]
    try:
        yield
        assert not working.done() or working.result() is None
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def test_jobs_are_performed_dropped_brought_back_and_given_up(site: Site) -> None:
    """B4-B21, over the wire."""
    tries: dict[bytes, list[tuple[int, int]]] = {}
    given_up: list[bytes] = []
    dropped: list[bytes] = []

    async def perform(job: Job) -> None:
        tries.setdefault(job.data, []).append((job.resurrections, job.attempt))
        if job.data == b"bad":
            raise ValueError("it cannot be done")

    async with queue_on(site) as (queue, _):
        await queue.put(b"good")
        await queue.put(b"bad", attributes={"größe": "groß"})
        await queue.put(b"old", persistent=False, ttl=0)
        async with at_work(
            queue,
            perform,
            on_drop=lambda job: dropped.append(job.data),
            on_give_up=lambda job, _: given_up.append(job.data),
        ):
            await until(lambda: given_up and dropped and b"good" in tries, timeout=30)
        left = [
            site.left(name.subscription)
            for name in (queue.names.queue, queue.names.dead_letters, queue.names.returns)
        ]

    assert tries == {b"good": [(0, 1)], b"bad": [(n, m) for n in range(3) for m in (1, 2)]}
    assert (given_up, dropped, left) == ([b"bad"], [b"old"], [[], [], []])


async def test_jobs_of_a_key_wait_for_one_another(site: Site) -> None:
    """R30, over the wire: the next one begins when the first is a dead letter."""
    order: list[bytes] = []

    async def perform(job: Job) -> None:
        order.append(job.data)
        if job.data == b"0":
            raise ValueError("it cannot be done")

    policy = JobPolicy(max_attempts=3, initial_backoff=0.02, max_resurrections=0)
    async with queue_on(site, policy=policy, fifo=True) as (queue, _):
        for n in range(3):
            await queue.put(b"%d" % n, ordering_key="a")
        async with at_work(queue, perform):
            await until(lambda: b"2" in order, timeout=30)

    assert order == [b"0", b"0", b"0", b"1", b"2"]


@pytest.mark.only("embedded-grpc")
async def test_a_plain_function_begins_no_job_that_expired_while_it_waited_for_a_thread(
    site: Site,
) -> None:
    """B6: it is looked at right before the callback. StopIteration is a failure like others."""
    free, began = threading.Event(), threading.Event()
    done: list[bytes] = []
    dropped: list[bytes] = []

    def perform(job: Job) -> None:
        if job.data == b"odd" and job.attempt == 1:
            next(iter(()))
        began.set()
        free.wait(10)
        done.append(job.data)

    async with queue_on(site) as (queue, _):
        await queue.put(b"odd")
        on_drop = {"on_drop": lambda job: dropped.append(job.data)}
        async with at_work(queue, perform, concurrency=1, **on_drop):
            await until(began.is_set)
            await queue.put(b"old", persistent=False, ttl=0)
            await queue.put(b"good")
            free.set()
            await until(lambda: len(done) == 2)

    assert (done, dropped) == ([b"odd", b"good"], [b"old"])


WORKER = """
import asyncio
import os
from pubsub_aio import PublisherClient, SubscriberClient
from pubsub_aio.jobs import JobPolicy, JobQueue

def say(*words):  # a whole line or nothing, whenever it is killed
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

async def perform(job):
    say(job.id, job.resurrections)
    await asyncio.sleep(0.002)
    if int(job.data) % 3 == 0:
        raise ValueError("it cannot be done")

async def main():
    policy = JobPolicy(
        max_attempts=2, initial_backoff=0.01, dead_letter_ttl=0.01, max_resurrections=1
    )
    async with SubscriberClient() as subscriber, PublisherClient() as publisher:
        queue = JobQueue("jobs", subscriber, publisher, policy=policy)
        await queue.work(
            perform, concurrency=20, on_give_up=lambda job, _: say("given-up", job.id)
        )

import logging
logging.disable()
asyncio.run(main())
"""


@pytest.mark.only("embedded-grpc")
async def test_a_worker_that_is_killed_loses_no_job(site: Site) -> None:
    """H1, H8: with SIGKILL, again and again, in the middle of it; then one that may live."""
    jobs = 400
    async with queue_on(site) as (queue, _):
        await queue.create()
        emulator = site.emulator
        assert emulator is not None
        async with asyncio.TaskGroup() as tasks:
            for n in range(jobs):
                tasks.create_task(queue.put(b"%d" % n, job_id=f"job-{n}"))
        lines: list[str] = []
        for tries in (30, 200):
            with Program(WORKER, address=site.address, project=site.project) as worker:
                await asyncio.to_thread(worker.says, tries)
                worker.send(signal.SIGKILL)
            lines += worker.lines
        with Program(WORKER, address=site.address, project=site.project) as worker:
            names = (queue.names.queue, queue.names.dead_letters, queue.names.returns)
            backlog = emulator.backlog
            await until(lambda: not any(backlog(name.subscription) for name in names), timeout=40)
        lines += worker.lines

    tried = {tuple(line.split()) for line in lines if line.startswith("job-")}
    given_up = {line.split()[1] for line in lines if line.startswith("given-up")}
    bad = {f"job-{n}" for n in range(0, jobs, 3)}
    assert tried == {(f"job-{n}", "0") for n in range(jobs)} | {(job, "1") for job in bad}
    assert given_up == bad

"""What the tests of jobs share: a queue in virtual time, and who performs its jobs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Unpack

import pytest

from pubsub_aio import AdminClient, PublisherClient, SubscriberClient
from pubsub_aio._wire.transport import Transport
from pubsub_aio.jobs import Job, JobPolicy, JobQueue, WorkOptions
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import now

QUEUE = "jobs"
DEAD_LETTERS = f"{QUEUE}.dead-letter"
RETURNS = f"{QUEUE}.return"

_QUARTER = 0.25
"""Seconds that a message takes on its way are less than that, so times are rounded down to it."""


class Performer:
    """Performs jobs as told, and notes when it was asked to."""

    def __init__(self, do: Callable[[Job], Awaitable[object]] | None = None) -> None:
        self.do = do
        self.tries: list[tuple[float, bytes, int, int]] = []
        """For each attempt the time, the job's data, and which attempt of which round it is."""
        self.done: list[bytes] = []
        self.dropped: list[tuple[float, bytes]] = []
        self.given_up: list[tuple[float, bytes, str]] = []
        self.running = self.peak = 0

    async def __call__(self, job: Job) -> None:
        self.tries.append((instant(), job.data, job.attempt, job.resurrections))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            if self.do is not None:
                await self.do(job)
        finally:
            self.running -= 1
        self.done.append(job.data)

    def on_drop(self, job: Job) -> None:
        self.dropped.append((instant(), job.data))

    def on_give_up(self, job: Job, error: Exception) -> None:
        self.given_up.append((instant(), job.data, str(error)))

    def times(self, data: bytes) -> list[float]:
        """When a job was tried."""
        return [time for time, of, _, _ in self.tries if of == data]


def instant() -> float:
    """Virtual seconds, without what a message takes on its way."""
    return math.floor((now() + 1e-3) / _QUARTER) * _QUARTER


def after(seconds: float) -> Callable[[Job], Awaitable[None]]:
    """What a job does that takes a while."""

    async def do(_: Job) -> None:
        await asyncio.sleep(seconds)

    return do


async def fails(_: Job) -> None:
    """What a job does that always fails."""
    raise ValueError("it cannot be done")


def fails_after(seconds: float) -> Callable[[Job], Awaitable[None]]:
    """What a job does that fails after a while."""

    async def do(job: Job) -> None:
        await asyncio.sleep(seconds)
        await fails(job)

    return do


def admin_of(emulator: MemoryEmulator) -> AdminClient:
    """Who creates and deletes by hand."""
    return AdminClient(project=emulator.project, transport=emulator.transport())


class Shop:
    """A queue with those who put jobs into it and those who perform them."""

    def __init__(
        self,
        emulator: MemoryEmulator,
        subscriber: SubscriberClient,
        publisher: PublisherClient,
        queue: JobQueue,
    ) -> None:
        self.emulator = emulator
        self.subscriber = subscriber
        self.publisher = publisher
        self.queue = queue

    @contextlib.asynccontextmanager
    async def working(
        self, performer: Performer, **options: Unpack[WorkOptions]
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Somebody works on the queue inside of this."""
        options.setdefault("on_drop", performer.on_drop)
        options.setdefault("on_give_up", performer.on_give_up)
        working = asyncio.ensure_future(self.queue.work(performer, **options))
        try:
            yield working
        finally:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working

    def left(self) -> dict[str, int]:
        """How many messages are to be acked in each subscription."""
        backlog = self.emulator.backlog
        return {name: backlog(name) for name in (QUEUE, DEAD_LETTERS, RETURNS)}


SELDOM = 60.0
"""Seconds after which a publisher looks whether it has overlooked something: in hours of virtual
time that takes longer than all else."""

NOTHING_LEFT = {QUEUE: 0, DEAD_LETTERS: 0, RETURNS: 0}


@contextlib.asynccontextmanager
async def shop(
    emulator: MemoryEmulator,
    *,
    transport: Transport | None = None,
    publishing: Transport | None = None,
    policy: JobPolicy | None = None,
    **options: Any,
) -> AsyncIterator[Shop]:
    """A queue of the emulator."""
    async with (
        SubscriberClient(
            emulator.project, transport=transport or emulator.transport()
        ) as subscriber,
        PublisherClient(
            emulator.project, transport=publishing or emulator.transport(), poll_time=SELDOM
        ) as publisher,
    ):
        queue = JobQueue(
            *(QUEUE, subscriber, publisher), policy=policy, clock=emulator.clock.now, **options
        )
        await queue.create()
        yield Shop(emulator, subscriber, publisher, queue)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged of jobs, kept and not shown."""
    caplog.set_level("DEBUG", logger="pubsub_aio.jobs")
    return caplog

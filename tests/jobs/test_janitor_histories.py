"""Users who come, go and crash at random while janitors sweep: no job is lost, and all goes.

A seed that fails fails again. PUBSUB_AIO_SIM_SEEDS says how many are tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

import pubsub_aio.admin.clients  # noqa: F401 - otherwise the first client imports it in a thread
from pubsub_aio import AdminClient, ConfigError, PublisherClient, PubSubError, SubscriberClient
from pubsub_aio.jobs import Job, JobPolicy, JobQueue
from pubsub_aio.jobs.janitor import Janitor
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.subscriber.conftest import HOUR, MINUTE

QUEUE = "reports"
POLICY = JobPolicy(expires=60, dead_letter_expires=60, max_attempts=2)
ROUNDS = 12
SLOW = ("UpdateSubscription", "DeleteSubscription", "DeleteTopic", "GetSubscription", "Publish")
SEEDS = range(int(os.environ.get("PUBSUB_AIO_SIM_SEEDS", "4").partition(":")[0]))


class Clients(NamedTuple):
    """What a program has."""

    subscriber: SubscriberClient
    publisher: PublisherClient
    admin: AdminClient


class History:
    """What happens in a project whose users and janitors do as a seed says."""

    def __init__(self, emulator: MemoryEmulator, seed: int) -> None:
        self.emulator = emulator
        self.chance = random.Random(seed)  # noqa: S311 - it guards nothing
        self.put: set[bytes] = set()
        self.done: set[bytes] = set()
        self.events: Counter[str] = Counter()
        self.left: list[str] = []

    async def run(self) -> None:
        async with self._clients() as old, asyncio.TaskGroup() as tasks:
            janitors = [tasks.create_task(self._janitors(ahead)) for ahead in (0.0, 2.0)]
            troubles = tasks.create_task(self._troubles())
            queue = self._queue(old)
            for _ in range(ROUNDS):
                async with self._clients() as new, asyncio.TaskGroup() as users:
                    users.create_task(self._program(queue, old.subscriber))
                    users.create_task(self._program(self._queue(new), new.subscriber))
                await asyncio.sleep(self._pause())
            troubles.cancel()
            self.emulator.faults.clear()
            await self._finish(queue)
            await asyncio.sleep(HOUR)
            self.left = [each.name async for each in old.admin.list_subscriptions()]
            for janitor in janitors:
                janitor.cancel()

    @contextlib.asynccontextmanager
    async def _clients(self) -> AsyncIterator[Clients]:
        project, transport = self.emulator.project, self.emulator.transport
        async with (
            SubscriberClient(project, transport=transport()) as subscriber,
            PublisherClient(project, transport=transport(), poll_time=MINUTE) as publisher,
            AdminClient(project=project, transport=transport()) as admin,
        ):
            yield Clients(subscriber, publisher, admin)

    def _queue(self, own: Clients) -> JobQueue:
        clock = self.emulator.clock.now
        return JobQueue(
            QUEUE, own.subscriber, own.publisher, policy=POLICY, auto_delete=True, clock=clock
        )

    # Those who use the queue

    async def _program(self, queue: JobQueue, subscriber: SubscriberClient) -> None:
        """Use the queue a few times, and mostly leave it empty."""
        await asyncio.sleep(self.chance.uniform(0, 20))
        for _ in range(self.chance.randint(0, 3)):
            with contextlib.suppress(PubSubError):
                await self._use(queue, subscriber)
            await asyncio.sleep(self.chance.uniform(0, 15))
        if self.chance.random() < 0.7:
            with contextlib.suppress(PubSubError):
                await self._work(queue, 60)

    def _pause(self) -> float:
        """Mostly until about the time that the queue is deleted."""
        return self.chance.uniform(*self.chance.choice([(0, 100), (650, 800), (650, 800)]))

    async def _use(self, queue: JobQueue, subscriber: SubscriberClient) -> None:
        action = self.chance.choice(["put", "put", "work", "crash"])
        self.events[action] += 1
        if action == "work":
            await self._work(queue, self.chance.uniform(1, 60))
            return
        job = str(len(self.put)).encode() + self.chance.randbytes(4).hex().encode()
        await queue.put(job)
        self.put.add(job)
        if action == "crash":  # with jobs in hand, which nobody sees until their leases end
            await asyncio.sleep(self.chance.uniform(0, 12))
            held = await subscriber.pull(QUEUE, timeout=1)
            if ids := [message.ack_id for message in held]:
                await subscriber.modify_ack_deadline(QUEUE, ids, 600)

    async def _work(self, queue: JobQueue, seconds: float) -> None:
        async def perform(job: Job) -> None:
            await asyncio.sleep(self.chance.choice([0, 0, 5]))
            if self.chance.random() < 0.3:
                raise ValueError("it did not go well")
            self.done.add(job.data)

        def given_up(job: Job, error: Exception) -> None:
            del error
            self.done.add(job.data)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await queue.work(perform, on_give_up=given_up)

    async def _finish(self, queue: JobQueue) -> None:
        """Do what is left, when janitors have finished as well."""
        while True:
            try:
                await self._work(queue, HOUR / 4)
            except ConfigError as error:  # a janitor that went has left something without a topic
                self.events[str(error).partition(",")[0].rpartition("/")[2]] += 1
                await asyncio.sleep(HOUR / 4)
            else:
                return

    # Others

    async def _janitors(self, ahead: float) -> None:
        """Janitors that come one after another, the clock of theirs ahead of that of others."""
        while True:
            async with self._clients() as own:
                janitor = Janitor(
                    own.admin, own.subscriber, clock=lambda: self.emulator.clock.now() + ahead
                )
                for _ in range(self.chance.randint(1, 20)):
                    await self._sweep(janitor)
                    await asyncio.sleep(self.chance.uniform(0, 30))

    async def _sweep(self, janitor: Janitor) -> None:
        """Sweep once; some are cut off."""
        ends_after = self.chance.choice([None, None, None, self.chance.uniform(0, 20)])
        with contextlib.suppress(PubSubError, TimeoutError):
            async with asyncio.timeout(ends_after):
                for name in await janitor.sweep():
                    self.events[f"{name.split('/')[2]} deleted"] += 1

    async def _troubles(self) -> None:
        """Calls that take long, and some that fail."""
        faults = self.emulator.faults
        while True:
            await asyncio.sleep(self.chance.uniform(0, MINUTE))
            rpc = self.chance.choice(SLOW)
            if self.chance.random() < 0.3:
                applied = self.chance.random() < 0.5
                faults.fail(rpc, "UNAVAILABLE", times=self.chance.randint(1, 3), applied=applied)
            else:
                faults.delay(rpc, self.chance.uniform(0, 4.5), times=self.chance.randint(1, 3))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="pubsub_aio")


def history_of(seed: int) -> History:
    random.seed(seed)  # for the backoff of clients, too

    async def scenario(emulator: MemoryEmulator) -> History:
        history = History(emulator, seed)
        await history.run()
        return history

    return run_scenario(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_job_that_was_put_is_lost(seed: int) -> None:
    history = history_of(seed)

    assert history.put - history.done == set()
    assert history.put
    assert history.left == []

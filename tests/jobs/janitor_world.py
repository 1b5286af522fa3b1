"""A project with a janitor, and those who use its queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from pubsub_aio import (
    AdminClient,
    PublisherClient,
    SubscriberClient,
)
from pubsub_aio._core.idleness import CLOSING
from pubsub_aio._wire.transport import Transport
from pubsub_aio.jobs import Job, JobPolicy, JobQueue
from pubsub_aio.jobs.janitor import Janitor
from pubsub_aio.testing import MemoryEmulator
from tests.jobs.conftest import SELDOM
from tests.subscriber.conftest import Tapped, now, virtual

QUEUE, DEAD, RETURN = "reports", "reports.dead-letter", "reports.return"
POLICY = JobPolicy(expires=60, dead_letter_expires=60)
INTERVAL = 12.0
MARKED_FOR = 600 + 3 * INTERVAL
"""Seconds from mark to deletion: the longest lease, and time for users to speak."""
GOES_AFTER = 60 + MARKED_FOR
"""Seconds from the last use to the deletion."""


class World:
    """A project with a janitor, and those who use its queues."""

    def __init__(
        self,
        emulator: MemoryEmulator,
        admin: AdminClient,
        subscriber: SubscriberClient,
        tapped: Tapped,
    ) -> None:
        self.emulator = emulator
        self.admin = admin
        self.subscriber = subscriber
        self._tapped = tapped
        self.janitor = self.another_janitor()

    def another_janitor(self, *, ahead: float = 0.0) -> Janitor:
        return Janitor(self.admin, self.subscriber, clock=WallClock(self, ahead=ahead))

    @contextlib.asynccontextmanager
    async def user(
        self,
        name: str = QUEUE,
        *,
        policy: JobPolicy = POLICY,
        slow: float = 0.0,
        clock: Callable[[], float] | None = None,
        auto_delete: bool = True,
        wait_timeout: float | None = 5.0,
        transport: Transport | None = None,
    ) -> AsyncIterator[JobQueue]:
        """A program that uses the queue."""
        emulator = self.emulator
        transport = transport or emulator.transport()
        async with (
            SubscriberClient(emulator.project, transport=transport) as subscriber,
            PublisherClient(
                emulator.project,
                transport=emulator.transport(),
                wait_timeout=wait_timeout,
                poll_time=SELDOM,
            ) as publisher,
        ):
            yield JobQueue(
                name,
                subscriber,
                publisher,
                policy=policy,
                clock=clock or (lambda: emulator.clock.now() - slow),
                auto_delete=auto_delete,
            )

    async def made(self, name: str = QUEUE, *, auto_delete: bool = True) -> None:
        """Somebody makes the queue and goes."""
        async with self.user(name, auto_delete=auto_delete) as queue:
            await queue.create()

    async def sweeps(self, seconds: float, *, every: float = 10.0) -> list[str]:
        """What the janitor deletes in so many seconds, by short names."""
        deleted = []
        ends_at = now() + seconds
        while now() < ends_at:
            deleted += await self.janitor.sweep()
            await asyncio.sleep(every)
        return [name.partition("emulated-project/")[2] for name in deleted]

    async def sweep_until(self, name: str, label: str) -> str:
        """Sweep until a subscription has a label."""
        while not (value := (await self.labels(name)).get(label)):
            await self.sweeps(1, every=5)
        return value

    async def all_but_deleted(self) -> None:
        """Sweep until the queue and what is beside it are marked, and wait until they may go."""
        mark = await self.sweep_until(RETURN, CLOSING)
        await asyncio.sleep(float(mark.partition("-")[0]) + MARKED_FOR - self.emulator.clock.now())

    @property
    def asked(self) -> list[str]:
        """What the admin client has asked the server to do."""
        return [rpc for _, rpc, _ in self._tapped.calls]

    async def labels(self, name: str) -> dict[str, str]:
        return dict((await self.admin.get_subscription(name)).labels)

    async def relabel(self, name: str, **labels: str) -> None:
        kept = await self.labels(name)
        await self.admin.update_subscription(name, labels=kept | labels)

    async def there(self) -> list[str]:
        """The subscriptions that there are, by short names."""
        return sorted(
            [each.name.rpartition("/")[2] async for each in self.admin.list_subscriptions()]
        )


def world(scenario: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """A test in virtual time that is given a world."""

    async def run(emulator: MemoryEmulator) -> None:
        tapped = Tapped(emulator.transport())
        async with (
            AdminClient(project=emulator.project, transport=tapped) as admin,
            SubscriberClient(emulator.project, transport=emulator.transport()) as subscriber,
        ):
            await scenario(World(emulator, admin, subscriber, tapped))

    test = virtual(run)
    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


async def nothing(_: Job) -> None:
    """A job that is done at once."""


@contextlib.asynccontextmanager
async def working(queue: JobQueue, done: list[bytes] | None = None) -> AsyncIterator[None]:
    """Somebody works on a queue inside of this."""

    async def perform(job: Job) -> None:
        if done is not None:
            done.append(job.data)

    task = asyncio.ensure_future(queue.work(perform))
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class WallClock:
    """A clock that may be set."""

    def __init__(self, world: World, *, ahead: float = 0.0) -> None:
        self._true = world.emulator.clock
        self.ahead = ahead

    def __call__(self) -> float:
        return self._true.now() + self.ahead

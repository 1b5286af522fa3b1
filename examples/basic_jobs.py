"""Jobs that come faster than they can be done, and are dropped when it is too late for them.

A job is put every second and is worth something for two. Each takes four, and they are performed
one at a time. The queue would grow for ever, were it not that what has expired is dropped.

    python examples/basic_jobs.py                  twelve seconds of it
    python examples/basic_jobs.py --virtual 3600   an hour, in virtual time
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from pubsub_aio import PublisherClient, SubscriberClient
from pubsub_aio.emulator import Emulator
from pubsub_aio.jobs import Job, JobQueue, Timetable
from pubsub_aio.testing import MemoryEmulator, run_scenario

QUEUE = "Blueprint.Scheduled.BasicJobs"


@dataclass
class BasicJobs:
    """Creates jobs, performs them, and keeps the books; `say` prints a line."""

    say: Callable[[str], None]
    put: int = 0
    performed: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    backlog: int = 0

    async def supply(self, queue: JobQueue) -> None:
        """Put a job that is worth something for two seconds."""
        number, self.put = self.put, self.put + 1
        await queue.put(str(number).encode(), persistent=False, ttl=2)
        self.backlog = max(self.backlog, self.put - len(self.performed) - len(self.dropped))

    async def perform(self, job: Job) -> None:
        """Perform a job, which takes four seconds."""
        await asyncio.sleep(4)
        self.performed.append(int(job.data))
        self.say(f"job {job.data.decode()} performed")

    def drop(self, job: Job) -> None:
        """It is too late for a job; whatever is done here must be fast."""
        self.dropped.append(int(job.data))
        self.say(f"job {job.data.decode()} dropped")


async def flow(
    jobs: BasicJobs,
    subscriber: SubscriberClient,
    publisher: PublisherClient,
    *,
    clock: Callable[[], float],
    seconds: int,
) -> None:
    """Let jobs be put for so many seconds, and work on them for a little longer."""
    queue = JobQueue(QUEUE, subscriber, publisher, clock=clock)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds + 8), asyncio.TaskGroup() as tasks:
            timetable = Timetable.every(1.0)
            tasks.create_task(timetable.run(lambda: jobs.supply(queue), count=seconds))
            tasks.create_task(queue.work(jobs.perform, concurrency=1, on_drop=jobs.drop))


async def in_memory(emulator: MemoryEmulator, jobs: BasicJobs, seconds: int) -> None:
    """The flow with an emulator in memory, in virtual time."""
    async with (
        SubscriberClient(transport=emulator.transport()) as subscriber,
        PublisherClient(transport=emulator.transport()) as publisher,
    ):
        await flow(jobs, subscriber, publisher, clock=emulator.clock.now, seconds=seconds)


async def over_the_wire(jobs: BasicJobs, seconds: int) -> None:
    """The flow with an emulator of its own, by gRPC and in real time."""
    async with Emulator() as emulator:
        at = f"http://{emulator.address}"
        async with (
            SubscriberClient(emulator.project, endpoint=at) as subscriber,
            PublisherClient(emulator.project, endpoint=at) as publisher,
        ):
            await flow(jobs, subscriber, publisher, clock=emulator.clock.now, seconds=seconds)


def main() -> None:
    """Run it as told."""
    parser = argparse.ArgumentParser(description="Jobs that are dropped when it is too late.")
    parser.add_argument("--virtual", type=int, metavar="SECONDS", help="in virtual time")
    seconds: int | None = parser.parse_args().virtual
    if seconds is None:
        jobs = BasicJobs(say=print)
        asyncio.run(over_the_wire(jobs, 12))
    else:
        jobs = BasicJobs(say=lambda _: None)
        run_scenario(lambda emulator: in_memory(emulator, jobs, seconds))
    print(f"put {jobs.put}, performed {len(jobs.performed)}, dropped {len(jobs.dropped)}")
    print(f"never more than {jobs.backlog} waiting")


if __name__ == "__main__":
    main()

"""Jobs that must be done: tried again, put aside, brought back, and at last given up.

A job is put every second, with a counter. Odd ones are persistent. Even ones may be dropped once
two seconds have passed, to catch up with a backlog: the worker begins five and a half seconds late.
Those whose last digit is 1 always fail: each is tried three times, with waits of two and four
seconds, then it is a dead letter for three seconds and returns; after three returns it is given up.

    python examples/persistent_jobs.py                  fifty seconds of it
    python examples/persistent_jobs.py --virtual 3600   an hour, in virtual time
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from pubsub_aio import PublisherClient, SubscriberClient
from pubsub_aio.emulator import Emulator
from pubsub_aio.jobs import Job, JobPolicy, JobQueue, Timetable
from pubsub_aio.testing import MemoryEmulator, run_scenario

QUEUE = "Blueprint.Scheduled.PersistentJobs"
LATE = 5.5
POLICY = JobPolicy(
    max_attempts=3,
    initial_backoff=2,
    max_backoff=10,
    dead_letter_ttl=3,
    max_resurrections=3,
)


@dataclass
class PersistentJobs:
    """Creates jobs, performs them, and keeps the books; `say` prints a line."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    counters: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    put: int = 0
    tries: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    performed: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    async def supply(self, queue: JobQueue) -> None:
        """Put a job with the next counter."""
        self.put = counter = next(self.counters)
        await queue.put(str(counter).encode(), persistent=counter % 2 == 1, ttl=2)

    async def perform(self, job: Job) -> None:
        """Perform a job, unless its last digit is 1."""
        counter = int(job.data)
        self.tries[counter].append(self.clock())
        if counter % 10 == 1:
            self.say(f"job {counter}: attempt {job.attempt} of round {job.resurrections + 1} fails")
            raise ValueError("its last digit is 1")
        self.performed.append(counter)

    def drop(self, job: Job) -> None:
        """It is too late for a job."""
        self.dropped.append(int(job.data))
        self.say(f"job {job.data.decode()}: dropped")

    def give_up(self, job: Job, error: Exception) -> None:
        """A job has failed for the last time."""
        self.given_up.append(int(job.data))
        self.say(f"job {job.data.decode()}: given up, {error}")


async def flow(
    jobs: PersistentJobs,
    subscriber: SubscriberClient,
    publisher: PublisherClient,
    *,
    seconds: int,
    longer: float,
) -> None:
    """Let jobs be put for so many seconds, and work on them for some longer."""
    queue = JobQueue(QUEUE, subscriber, publisher, policy=POLICY, clock=jobs.clock)

    async def work() -> None:
        await asyncio.sleep(LATE)
        await queue.work(jobs.perform, on_drop=jobs.drop, on_give_up=jobs.give_up)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds + longer), asyncio.TaskGroup() as tasks:
            timetable = Timetable.every(1.0)
            tasks.create_task(timetable.run(lambda: jobs.supply(queue), count=seconds))
            tasks.create_task(work())


async def in_memory(emulator: MemoryEmulator, jobs: PersistentJobs, seconds: int) -> None:
    """The flow with an emulator in memory, in virtual time."""
    jobs.clock = emulator.clock.now
    async with (
        SubscriberClient(transport=emulator.transport()) as subscriber,
        PublisherClient(transport=emulator.transport()) as publisher,
    ):
        await flow(jobs, subscriber, publisher, seconds=seconds, longer=60)


async def over_the_wire(jobs: PersistentJobs, seconds: int) -> None:
    """The flow with an emulator of its own, by gRPC and in real time."""
    async with Emulator() as emulator:
        at = f"http://{emulator.address}"
        async with (
            SubscriberClient(emulator.project, endpoint=at) as subscriber,
            PublisherClient(emulator.project, endpoint=at) as publisher,
        ):
            await flow(jobs, subscriber, publisher, seconds=seconds, longer=40)


def main() -> None:
    """Run it as told."""
    parser = argparse.ArgumentParser(description="Jobs that must be done.")
    parser.add_argument("--virtual", type=int, metavar="SECONDS", help="in virtual time")
    seconds: int | None = parser.parse_args().virtual
    logging.getLogger("pubsub_aio").setLevel(logging.CRITICAL)  # what fails here is said here
    if seconds is None:
        jobs = PersistentJobs(say=print)
        asyncio.run(over_the_wire(jobs, 10))
    else:
        jobs = PersistentJobs(say=lambda _: None)
        run_scenario(lambda emulator: in_memory(emulator, jobs, seconds))
    print(f"put {jobs.put}, performed {len(jobs.performed)}, dropped {len(jobs.dropped)}")
    tries = {len(jobs.tries[counter]) for counter in jobs.given_up}
    print(f"given up {len(jobs.given_up)}, after attempts: {', '.join(map(str, tries))}")


if __name__ == "__main__":
    main()

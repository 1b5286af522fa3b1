"""One trial of one client that is fed jobs, in a process of its own; see `subscriber_clients`.

python -m tests.bench.jobs_clients '{"client": "jobs", "kind": "cpu", ...}'
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.bench import subscriber_ours, subscriber_rivals
from tests.bench.subscriber_clients import Client, main
from tests.bench.subscriber_trial import PROJECT, Figures, Trial

if TYPE_CHECKING:
    from pubsub_aio.jobs import Job

GOOGLE = "google-cloud-pubsub"
ALONE = "subscriber alone"
JOBS = "jobs"
ALONE_SUSPENDS = "subscriber alone, callback suspends"
JOBS_SUSPENDS = "jobs, handler suspends"


async def jobs(trial: Trial) -> Figures:
    """A handler of jobs that never waits, default settings."""
    seen = trial.seen

    async def perform(job: Job) -> None:
        seen.append(len(job.data))

    return await _worked(trial, perform)


async def suspends(trial: Trial) -> Figures:
    """A handler of jobs that waits once."""
    seen = trial.seen

    async def perform(job: Job) -> None:
        seen.append(len(job.data))
        await asyncio.sleep(0)

    return await _worked(trial, perform)


async def _worked(trial: Trial, perform: Callable[[Job], Awaitable[None]]) -> Figures:
    from pubsub_aio import PublisherClient, SubscriberClient
    from pubsub_aio.jobs import JobWorker

    # Nothing is published: no job fails.
    worker = JobWorker(PublisherClient(project=PROJECT), "dead-letters")
    async with SubscriberClient(project=PROJECT) as client:
        keep_alive = client.subscribe(trial.subscription, worker(perform))
        figures = await trial.measure_beside(keep_alive)
    if not sum(worker.counts.values()) == worker.counts["performed"] == len(trial.seen):
        raise AssertionError(f"{len(trial.seen)} jobs were handled, and counted: {worker.counts}")
    return figures


CLIENTS: dict[str, Client] = {
    GOOGLE: subscriber_rivals.google,
    ALONE: subscriber_ours.callback,
    JOBS: jobs,
    ALONE_SUSPENDS: subscriber_ours.suspends,
    JOBS_SUSPENDS: suspends,
}


if __name__ == "__main__":
    asyncio.run(main(CLIENTS))

"""Jobs on Pub/Sub: they expire, are tried again, become dead letters, return, and are given up.

async with SubscriberClient() as subscriber, PublisherClient() as publisher:
    queue = JobQueue("reports", subscriber, publisher)
    await queue.put(b"january")
    await queue.work(perform)
"""

from pubsub_aio.config import JobPolicy
from pubsub_aio.jobs.attributes import SAME_JOB, job_attributes
from pubsub_aio.jobs.dead_letters import (
    DeadLetter,
    DeadLetterSubscription,
    dead_letter_subscriptions,
)
from pubsub_aio.jobs.janitor import Janitor
from pubsub_aio.jobs.job import Job
from pubsub_aio.jobs.names import Place, QueueNames
from pubsub_aio.jobs.options import WorkOptions
from pubsub_aio.jobs.queue import JobQueue
from pubsub_aio.jobs.redrive import Target, find_target, peek, purge, redrive
from pubsub_aio.jobs.returns import Returns
from pubsub_aio.jobs.server_policy import retry_on_server
from pubsub_aio.jobs.sifting import Report
from pubsub_aio.jobs.timetable import Tick, Timetable
from pubsub_aio.jobs.worker import JobWorker, RejectJobError

__all__ = [
    "SAME_JOB",
    "DeadLetter",
    "DeadLetterSubscription",
    "Janitor",
    "Job",
    "JobPolicy",
    "JobQueue",
    "JobWorker",
    "Place",
    "QueueNames",
    "RejectJobError",
    "Report",
    "Returns",
    "Target",
    "Tick",
    "Timetable",
    "WorkOptions",
    "dead_letter_subscriptions",
    "find_target",
    "job_attributes",
    "peek",
    "purge",
    "redrive",
    "retry_on_server",
]

"""Performs jobs: a function from handler to handler."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sys
import time
from collections.abc import Callable
from typing import Unpack
from weakref import WeakValueDictionary

from pubsub_aio._core.verdicts import (
    DeadLetter,
    GiveUp,
    Retry,
    Verdict,
    after_failure,
    is_dropped,
)
from pubsub_aio.config import MAX_ACK_DEADLINE, JobPolicy, check_kind
from pubsub_aio.errors import PubSubError
from pubsub_aio.jobs.assurance import Ensure
from pubsub_aio.jobs.attributes import EXPIRES_AT, check_clock, expiry_of, is_persistent
from pubsub_aio.jobs.forwarding import Forwarding, RefusedError, acked
from pubsub_aio.jobs.giving_up import GivingUp
from pubsub_aio.jobs.hooks import TimeBox, failure_of, said_by
from pubsub_aio.jobs.job import Job
from pubsub_aio.jobs.options import AsyncHandler, Handler, MessageHandler, WorkOptions, complete
from pubsub_aio.jobs.performing import THREADS, Performing, Workplace
from pubsub_aio.message import Message
from pubsub_aio.publisher.client import PublisherClient
from pubsub_aio.subscriber.schedulers import check_callback, is_async

log = logging.getLogger("pubsub_aio.jobs")

_EXPIRES_AT = EXPIRES_AT.encode()
_COUNTED = ("performed", "dropped", "failed", "dead_lettered", "given_up")


class RejectJobError(PubSubError):
    """Raised by a handler: this job will never succeed, and is given up at once."""


class UndecodableError(PubSubError):
    """The data of a job cannot be decoded; see the cause."""


class JobWorker:
    """Makes a handler of messages from a handler of jobs, by a policy.

        worker = JobWorker(publisher, "orders.dead-letter", policy=JobPolicy(max_attempts=5))
        keep_alive = subscriber.subscribe("orders", worker(perform))

    The handler is called with a `Job`. When it returns the job is done, and acked. When it raises,
    the job is tried again here, after a wait during which its lease is kept; after the last attempt
    it is published to the dead-letter topic, and only then acked. A job that has expired, and may
    be dropped, is not tried. What is made fits every source of messages that keeps them alive:
    `subscribe`, `messages()`, or another wrapper such as a `Deduplicator`.

    Where the server counts deliveries, those that were cut off by a crash count as attempts: a job
    that kills its worker does not do so for ever.

    A worker belongs to one event loop. `JobQueue` makes one with all that it needs around it.

    Args:
        publisher: Who publishes dead letters.
        dead_letter_topic: Where to. It should have a subscription, or what is published there is
            lost.
        policy: How often a job is tried.
        fifo: Whether an ack is waited for before the next job of an ordering key begins.
        clock: Tells the seconds since 1970, by which jobs expire.
        ensure: Called before the first dead letter, and when the topic is missing: creates it, and
            a subscription of it. Until that succeeds nothing is published there.
        **options: See `WorkOptions`.
    """

    def __init__(
        self,
        publisher: PublisherClient,
        dead_letter_topic: str,
        *,
        policy: JobPolicy | None = None,
        fifo: bool = False,
        clock: Callable[[], float] = time.time,
        ensure: Ensure | None = None,
        **options: Unpack[WorkOptions],
    ) -> None:
        check_kind("policy", policy, JobPolicy, optional=True)
        check_kind("fifo", fifo, bool)
        check_clock(clock)
        self.policy = policy or JobPolicy()
        self.counts: dict[str, int] = dict.fromkeys(_COUNTED, 0)  # faster than a Counter
        """How many jobs were `performed`, `dropped`, `dead_lettered` and `given_up`, and how many
        attempts `failed`."""
        self._options = complete(options)
        self._letters = Forwarding(
            publisher, dead_letter_topic, field="dead_letter_topic", ensure=ensure
        )
        self._give_up = GivingUp(self._options.on_give_up, again_after=self.policy.max_backoff)
        self._fifo = fifo
        self._clock = clock
        self._warned = False
        # How often a job is tried here, where the server counts with us.
        here = self._options.retry == "here"
        self._most_attempts = self.policy.max_attempts if here else sys.maxsize
        self._keys: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._workplace = Workplace(self._options.concurrency)
        self._drops = TimeBox(self._options.drop_timeout)

    def __call__(self, handler: Handler) -> MessageHandler:
        """A handler of messages that performs jobs with this handler of them.

        Args:
            handler: Called with each `Job`: an async function, or a plain one, which runs in a
                thread.
        """
        check_callback(handler, "a job", name="handler")
        performing, options = self._workplace.of(handler), self._options
        usual = not (options.concurrency or options.decode or self._fifo) and is_async(handler)
        run = self._usual(performing) if usual else functools.partial(self._begin, performing)
        return functools.update_wrapper(run, handler, updated=())

    def concurrency(self, handler: Handler) -> int | None:
        """How many jobs are tried at once with that handler; none for as many as come."""
        return self._options.concurrency or (None if is_async(handler) else THREADS)

    def close(self) -> None:
        """Begin no job in a thread any more; there are none with async handlers."""
        self._workplace.close()

    def _usual(self, performing: Performing) -> MessageHandler:
        """As `_begin`, for nearly all jobs: each line here is paid for by every job."""
        perform: AsyncHandler = performing.handler  # type: ignore[assignment] # it was looked at
        counts, most, clock = self.counts, self._most_attempts, self._clock

        async def run(message: Message) -> None:
            job = Job()
            job.message = message
            delivery = message.delivery_attempt
            job.attempt = 1 if delivery is None else min(delivery, most)
            until = message.glance(_EXPIRES_AT)
            if until is not None and clock() >= until / 1_000 and self._is_dropped(job):
                await self._drop(job)
                return
            try:
                await perform(job)
            except BaseException as error:  # noqa: BLE001 - that is what a job may do
                failure = failure_of(error, message)
            else:
                counts["performed"] += 1
                message.ack()
                return
            try:
                await self._go_on(performing, job, failure)
            finally:
                del failure  # its traceback knows this frame, and each would keep the other alive

        return run

    async def _begin(self, performing: Performing, message: Message) -> None:
        """Try a job for the first time; with `fifo`, when the one before it of its key is done."""
        job = Job.of(message, max_attempts=self._most_attempts)
        async with self._turn(message):
            error = await self._try(performing, job, first=True)
            if error is not None:
                await self._go_on(performing, job, error)

    def _turn(self, message: Message) -> contextlib.AbstractAsyncContextManager[object]:
        """Lets one job of an ordering key pass at a time.

        A subscription does so for its own messages, but those that return come by another.
        """
        key = message.ordering_key if self._fifo else ""
        return self._keys.setdefault(key, asyncio.Lock()) if key else contextlib.nullcontext()

    async def _go_on(self, performing: Performing, job: Job, error: Exception) -> None:
        """Deal with a job that has failed once; whatever happens, it is not lost."""
        try:
            await self._try_again(performing, job, error)
        except Exception:
            log.exception("%r could not be dealt with, and comes again", job)
            self._give_up.give_back(job)

    async def _try_again(self, performing: Performing, job: Job, error: Exception) -> None:
        """Try a job until it succeeds or has had all its attempts."""
        message, failure, resurrections = job.message, error, job.resurrections
        while True:
            self.counts["failed"] += 1
            if message.lease is None:
                log.warning("%r failed after it was settled, or let go", job, exc_info=failure)
                return
            verdict = self._verdict(job, failure, resurrections)
            if not isinstance(verdict, Retry):
                break
            log.warning("%r failed, tried again in %g s: %s", job, verdict.wait, said_by(failure))
            await asyncio.sleep(verdict.wait)
            job.attempt += 1
            again = await self._try(performing, job)
            if again is None:
                return
            failure = again
        if isinstance(verdict, DeadLetter):
            await self._bury(job, failure)
        elif isinstance(verdict, GiveUp):
            await self._end(job, failure)
        else:
            log.warning("%r failed, and is given back: %s", job, said_by(failure))
            self._give_back(job)

    def _verdict(self, job: Job, error: Exception, resurrections: int) -> Verdict | None:
        """What becomes of a job that failed; none if that is the server's to say."""
        attempt, undecodable = job.attempt, isinstance(error, UndecodableError)
        if _is_rejected(error):
            return GiveUp()
        if undecodable and self._options.undecodable == "discard":
            return GiveUp()
        if self._options.retry == "server":
            return None
        if undecodable:
            attempt = self.policy.max_attempts  # it is of no use to try it again
        return after_failure(self.policy, attempt=attempt, resurrections=resurrections)

    async def _try(
        self, performing: Performing, job: Job, *, first: bool = False
    ) -> Exception | None:
        """Try a job, and settle it if that goes well, or if it has expired; returns what failed."""
        async with performing.slot() as run:
            if job.message.lease is None:
                return None  # it was given back while it waited
            if first and job.message.settler.ending:
                job.message.nack()  # it has not begun
                return None
            if not (dropped := self._is_dropped(job)):
                try:
                    if self._options.decode is not None:
                        job.body = self._decoded(job)
                    await run(performing.handler, job)
                except BaseException as error:  # noqa: BLE001 - that is what a job may do
                    return failure_of(error, job.message)
        if dropped:
            await self._drop(job)
            return None
        self.counts["performed"] += 1
        await self._ack(job.message)
        return None

    def _decoded(self, job: Job) -> object:
        decode = self._options.decode
        assert decode is not None  # noqa: S101 - tells the type checker
        try:
            return decode(job.data)
        except Exception as error:
            raise UndecodableError(said_by(error)) from error

    # Ends

    def _give_back(self, job: Job) -> None:
        """Leave a job to the server, which has a policy of its own if it counts deliveries."""
        counts = job.message.delivery_attempt is not None
        if not counts and not self._warned:
            self._warned = True
            log.warning(
                'retry="server": %s does not count deliveries, jobs are tried for ever; see '
                "JobQueue.retry_on_server",
                job.message.settler.subscription,
            )
        wait = 0.0 if counts else min(self.policy.initial_backoff, MAX_ACK_DEADLINE)
        job.message.nack(delay=wait)

    async def _ack(self, message: Message) -> None:
        if self._fifo:
            await acked(message)
        else:
            message.ack()

    def _is_dropped(self, job: Job) -> bool:
        """Whether a job has expired, and may be dropped."""
        attributes = job.attributes
        if is_persistent(attributes):
            return False
        try:
            expires_at = expiry_of(attributes)
        except ValueError as error:
            log.warning("%r is performed, however old it is: %s", job, error)
            return False
        return is_dropped(persistent=False, expires_at=expires_at, now=self._clock())

    async def _drop(self, job: Job) -> None:
        """Let go of a job that has expired."""
        self.counts["dropped"] += 1
        if (on_drop := self._options.on_drop) is not None:
            try:
                await self._drops.call(on_drop, job)
            except BaseException as error:
                failure_of(error, job.message)  # unless whoever runs it is to end
                log.exception("on_drop failed; %r is dropped all the same", job)
        await self._ack(job.message)

    async def _bury(self, job: Job, error: Exception) -> None:
        """Make a job a dead letter, for another round later."""
        try:
            buried = await self._letters.bury(job.message, error)
        except RefusedError as refusal:  # it could be tried for ever, and nobody would know
            refusal.add_note(f"the job failed with {said_by(error)}")
            await self._end(job, refusal)
            return
        if buried:
            self.counts["dead_lettered"] += 1
            log.warning("%r failed, and is a dead letter now", job, exc_info=error)
            await self._ack(job.message)

    async def _end(self, job: Job, error: Exception) -> None:
        """Let go of a job that has failed for the last time."""
        if await self._give_up(job, error):
            self.counts["given_up"] += 1
            await self._ack(job.message)


def _is_rejected(error: Exception) -> bool:
    """Whether a handler says that a job will never succeed, if only one of its tasks does."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(RejectJobError) is not None
    return isinstance(error, RejectJobError)

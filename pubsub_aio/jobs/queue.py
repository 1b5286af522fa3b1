"""A queue of jobs: a subscription, its dead letters, and the way back from there."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Unpack

from pubsub_aio._core.verdicts import longest_wait
from pubsub_aio.config import FlowControl, JobPolicy, check_kind
from pubsub_aio.errors import ConfigError, NotFoundError, PubSubError, StartupError
from pubsub_aio.jobs.assurance import Assurance
from pubsub_aio.jobs.attributes import check_clock, job_attributes
from pubsub_aio.jobs.giving_up import OnGiveUp
from pubsub_aio.jobs.names import QueueNames
from pubsub_aio.jobs.options import Handler, WorkOptions, Wrapper
from pubsub_aio.jobs.premises import Premises
from pubsub_aio.jobs.returns import Returns
from pubsub_aio.jobs.running import run_together
from pubsub_aio.jobs.server_policy import MIN_DELIVERY_ATTEMPTS, retry_on_server
from pubsub_aio.jobs.usage import Usage
from pubsub_aio.jobs.worker import JobWorker
from pubsub_aio.publisher.client import PublisherClient
from pubsub_aio.subscriber.client import SubscriberClient
from pubsub_aio.subscriber.options import SubscribeOptions
from pubsub_aio.subscriber.schedulers import check_callback

if TYPE_CHECKING:
    from pubsub_aio.admin import AdminClient

log = logging.getLogger("pubsub_aio.jobs")


class JobQueue:
    """Jobs that are put by some and performed by others.

        async with SubscriberClient() as subscriber, PublisherClient() as publisher:
            queue = JobQueue("reports", subscriber, publisher)
            await queue.put(b"january", persistent=False, ttl=60)
            await queue.work(perform)  # until it is cancelled

    A queue is a subscription of its topic. Beside it there are two topics with a subscription each,
    which are its own: one for its dead letters, `NAME.dead-letter`, and one by which these return,
    `NAME.return`, so that other subscriptions of the topic do not see what failed here. All of them
    are created if they are missing, by `create`, by the first `put` and by each `work`, which go on
    where they may not create anything. If `work` ends because something is missing, the next `put`
    looks, too.

    Args:
        name: The name of the subscription, short or full.
        subscriber: Who receives the jobs.
        publisher: Who publishes them.
        topic: The name of the topic; that of the queue unless told.
        policy: How often a job is tried, and when.
        fifo: Whether jobs with the same ordering key are done one after another, in order. One that
            has become a dead letter does not keep the next from its turn.
        auto_delete: Whether a `Janitor` may delete the queue when it was not used for as long as
            the policy says.
        clock: Tells the seconds since 1970, by which jobs expire.

    Attributes:
        names: What its topics and subscriptions are called.
    """

    def __init__(
        self,
        name: str,
        subscriber: SubscriberClient,
        publisher: PublisherClient,
        *,
        topic: str | None = None,
        policy: JobPolicy | None = None,
        fifo: bool = False,
        auto_delete: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_kind("subscriber", subscriber, SubscriberClient)
        check_kind("publisher", publisher, PublisherClient)
        check_kind("policy", policy, JobPolicy, optional=True)
        check_kind("fifo", fifo, bool)
        check_kind("auto_delete", auto_delete, bool)
        check_clock(clock)
        self.policy = policy or JobPolicy()
        self.names = QueueNames.of(subscriber, name, topic)
        self._subscriber = subscriber
        self._publisher = publisher
        self._fifo = fifo
        self._clock = clock
        usage = Usage(subscriber, self.policy, clock) if auto_delete else None
        self._premises = Premises(subscriber, self.names, fifo=fifo, usage=usage)
        self._kept = Assurance(functools.partial(self._premises.look, anew=True))

    def __repr__(self) -> str:
        return f"JobQueue({self.names.queue.subscription!r}, topic={self.names.queue.topic!r})"

    # Topics and subscriptions

    async def create(self) -> None:
        """Create the queue, its dead letters and their way back, as far as they are missing.

        Raises:
            ConfigError: A subscription of one of the names is of another topic, or has no order
                although the queue is FIFO.
        """
        await self._premises.create()

    async def retry_on_server(
        self,
        admin: AdminClient,
        *,
        max_delivery_attempts: int = MIN_DELIVERY_ATTEMPTS,
        service_account: str | None = None,
        project_number: int | str | None = None,
    ) -> None:
        """Have the server count deliveries, and make a dead letter of what comes too often.

        It is what `retry="server"` needs. Otherwise it is for jobs that kill their worker: with it,
        deliveries that were cut off count as attempts.

        Args:
            admin: See `pubsub_aio.jobs.retry_on_server`, as for all of these.
            max_delivery_attempts: In the queue, and again each time that a job returns.
            service_account: The address of Pub/Sub's service account. Either this,
            project_number: or the number of the project.
        """
        await self.create()
        for place in (self.names.queue, self.names.returns):
            await retry_on_server(
                admin,
                place.subscription,
                dead_letter_topic=self.names.dead_letters.topic,
                policy=self.policy,
                max_delivery_attempts=max_delivery_attempts,
                service_account=service_account,
                project_number=project_number,
            )

    # Jobs

    async def put(
        self,
        data: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str = "",
        persistent: bool = True,
        ttl: float | None = None,
        job_id: str | None = None,
    ) -> str:
        """Put a job into the queue; returns the id of its message when the server has it.

        For many at once, publish with the attributes that `job_attributes` gives.

        Args:
            data: What is to be done.
            attributes: What goes with it.
            ordering_key: Jobs of one key are done in order, if the queue is FIFO.
            persistent: Whether it must be done, however late.
            ttl: Seconds after which it is dropped, unless it is persistent.
            job_id: Its id, by which duplicates are known; a random one unless told.

        Raises:
            ConfigError: One of these cannot be as it is.
            PubSubError: It may not have been published.
        """
        made = job_attributes(
            attributes, persistent=persistent, ttl=ttl, job_id=job_id, clock=self._clock
        )
        missed = False
        while True:
            stay = await self._premises.look()
            try:
                message_id = await self._publish(data, made, ordering_key)
            except NotFoundError:
                self._premises.doubt()
                if missed:
                    raise
                missed = True
                continue
            if self._premises.were_there(stay):
                return message_id
            log.warning("%r may have been deleted meanwhile: a job is put again", self)

    async def _publish(self, data: bytes, attributes: dict[str, str], ordering_key: str) -> str:
        topic = self.names.queue.topic
        try:
            return await self._publisher.publish(
                topic, data, attributes=attributes, ordering_key=ordering_key
            ).ack
        except PubSubError:
            if ordering_key:  # who put it is told; others of the key may be put again
                self._publisher.resume(topic, ordering_key)
            raise

    def worker(self, **options: Unpack[WorkOptions]) -> JobWorker:
        """A worker of this queue, a function from handler to handler.

        It is for who subscribes himself, to the queue and to its `names.returns`. Dead letters
        return while `work` runs somewhere, or while somebody handles them with `returns()`.
        """
        return JobWorker(
            self._publisher,
            self.names.dead_letters.topic,
            policy=self.policy,
            fifo=self._fifo,
            clock=self._clock,
            ensure=self._kept,
            **options,
        )

    def returns(self, *, on_give_up: OnGiveUp | None = None) -> Returns:
        """A handler of messages, for the subscription of the dead letters: it brings them back.

        Args:
            on_give_up: Called, or awaited, with a job that has returned as often as it may and that
                no worker has finished.
        """
        return Returns(
            self._publisher,
            self.names.returns.topic,
            policy=self.policy,
            on_give_up=on_give_up,
            clock=self._clock,
            ensure=self._kept,
        )

    async def work(
        self,
        handler: Handler,
        *,
        flow_control: FlowControl | None = None,
        wrap: Wrapper | None = None,
        signals: bool = False,
        subscribe: SubscribeOptions | None = None,
        **options: Unpack[WorkOptions],
    ) -> None:
        """Perform jobs, and bring dead letters back, until it is cancelled.

        When it is cancelled, jobs that have begun are finished first, as the `ShutdownPolicy` says;
        a second time ends it at once.

        Args:
            handler: Called with each `Job`: an async function, or a plain one, which runs in a
                thread.
            flow_control: How many jobs may be held at once; with `concurrency`, twice as many as
                are tried, unless told.
            wrap: What goes around the worker, such as a `Deduplicator(SAME_JOB)`.
            signals: Whether SIGINT and SIGTERM end it, too; then it returns.
            subscribe: How the subscriptions are to be.
            **options: See `WorkOptions`.

        Raises:
            PubSubError: The queue cannot be worked on any more.
        """
        check_kind("flow_control", flow_control, FlowControl, optional=True)
        _check_subscribe(subscribe)
        worker = self.worker(**options)
        perform = worker(handler)
        if wrap is not None:
            check_callback(wrap, "a handler", name="wrap")
            perform = wrap(perform)
        flow = flow_control or self._flow_control(worker.concurrency(handler))
        self._check_lease(flow)
        returns = self.returns(on_give_up=options.get("on_give_up"))
        await self._kept()
        begin, how = self._subscriber.subscribe, subscribe or {}

        def end() -> None:
            returns.close()
            self._kept.doubt()  # what ends it may be that dead letters have nobody any more

        try:
            await run_together(
                [
                    begin(self.names.queue.subscription, perform, flow_control=flow, **how),
                    begin(self.names.returns.subscription, perform, flow_control=flow, **how),
                    begin(
                        self.names.dead_letters.subscription,
                        returns,
                        flow_control=returns.flow_control,
                        **how,
                    ),
                ],
                self._premises.stay_in_use(),
                signals=signals,
                on_stop=end,
            )
        except (NotFoundError, StartupError):
            self._premises.doubt()
            raise
        finally:
            worker.close()

    def _flow_control(self, concurrency: int | None) -> FlowControl:
        """As many jobs as are tried at once, and about as many again that wait for their turn."""
        lease = FlowControl().max_lease_duration + longest_wait(self.policy)
        if concurrency is None:
            return FlowControl(max_lease_duration=lease)
        return FlowControl(
            max_messages=2 * concurrency,
            max_request_batch_size=concurrency,
            max_lease_duration=lease,
        )

    def _check_lease(self, flow: FlowControl) -> None:
        waits = longest_wait(self.policy)
        if flow.max_lease_duration <= waits:
            raise ConfigError(
                f"flow_control: max_lease_duration must be more than the waits of the policy, "
                f"{waits:g} s between {self.policy.max_attempts} attempts, not "
                f"{flow.max_lease_duration:g}: a job would be let go before its last attempt"
            )


def _check_subscribe(options: object) -> None:
    check_kind("subscribe", options, dict, optional=True)
    if isinstance(options, dict) and "flow_control" in options:
        raise ConfigError("subscribe: flow_control is given to work itself: work(flow_control=...)")

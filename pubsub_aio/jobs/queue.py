"""A queue of jobs: a subscription, its dead letters, and the way back from there."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from pubsub_aio._core.idleness import EXPIRES
from pubsub_aio.config import FlowControl, JobPolicy
from pubsub_aio.errors import (
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    PubSubError,
)
from pubsub_aio.jobs.attributes import job_attributes
from pubsub_aio.jobs.giving_up import OnGiveUp
from pubsub_aio.jobs.names import Place, QueueNames
from pubsub_aio.jobs.options import Handler, WorkOptions, Wrapper
from pubsub_aio.jobs.returns import Returns
from pubsub_aio.jobs.running import run_together
from pubsub_aio.jobs.server_policy import MIN_DELIVERY_ATTEMPTS, retry_on_server
from pubsub_aio.jobs.usage import Usage
from pubsub_aio.jobs.worker import JobWorker
from pubsub_aio.publisher.client import PublisherClient
from pubsub_aio.subscriber.client import SubscriberClient
from pubsub_aio.subscriber.options import SubscribeOptions

if TYPE_CHECKING:
    from pubsub_aio.admin import AdminClient

log = logging.getLogger("pubsub_aio.jobs")

_MONTH = timedelta(days=31)
"""The longest that the service holds a message for."""

_ATTEMPTS = 3
"""How often a queue is created that is deleted at the same time."""


class JobQueue:
    """Jobs that are put by some and performed by others.

        async with SubscriberClient() as subscriber, PublisherClient() as publisher:
            queue = JobQueue("reports", subscriber, publisher)
            await queue.put(b"january", persistent=False, ttl=60)
            await queue.work(perform)  # until it is cancelled

    A queue is a subscription of its topic. Beside it there are two topics with a subscription each,
    which are its own: one for its dead letters, `NAME.dead-letter`, and one by which these return,
    `NAME.return`, so that other subscriptions of the topic do not see what failed here. All of them
    are created if they are missing, by `create`, and by the first `put` and by `work`, which go on
    where they may not create anything.

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
        self.policy = policy or JobPolicy()
        self.names = QueueNames.of(subscriber, name, topic)
        self._subscriber = subscriber
        self._publisher = publisher
        self._fifo = fifo
        self._clock = clock
        self._usage = Usage(subscriber, self.policy, clock) if auto_delete else None
        self._looking = asyncio.Lock()
        self._look_again_at = -math.inf

    def __repr__(self) -> str:
        return f"JobQueue({self.names.queue.subscription!r}, topic={self.names.queue.topic!r})"

    # Topics and subscriptions

    async def create(self) -> None:
        """Create the queue, its dead letters and their way back, as far as they are missing.

        Raises:
            ConfigError: A subscription of one of the names is of another topic, or has no order
                although the queue is FIFO.
        """
        for attempt in range(_ATTEMPTS):
            for place in self.names.all:
                await self._create(place)
            if self._usage is None:
                return
            try:
                await self._usage.say(self.names.all)
            except NotFoundError as error:  # a janitor was faster
                if attempt == _ATTEMPTS - 1:
                    raise
                log.warning("%r is created once more: %s", self, error)
            else:
                return

    async def _create(self, place: Place) -> None:
        labels = place.labels | (self._usage.labels(place) if self._usage else {})
        find = functools.partial(self._subscriber.find_subscription, place.subscription)
        found = await (self._usage.patiently(find) if self._usage else find())
        if found is None:
            await self._subscriber.ensure_topic(place.topic, labels=place.labels)
            found = await self._subscribe(place, labels)
        elif EXPIRES in found.labels and not self._usage:
            log.warning(
                "%s may be deleted by a janitor that does not see its use from here: give "
                "auto_delete=True",
                place.subscription,
            )
        if found.topic != place.topic:
            raise ConfigError(
                f"name: {place.subscription} exists and is of {found.topic}, not of {place.topic}; "
                "choose another, or give that as topic"
            )
        if self._fifo and not found.enable_message_ordering:
            raise ConfigError(
                f"fifo: {place.subscription} exists without ordering, which cannot be changed: "
                "delete it, or choose another name"
            )

    async def _subscribe(self, place: Place, labels: dict[str, str]) -> Any:
        """Create one of the subscriptions; returns it as the server has it."""
        settings: dict[str, Any] = {"enable_message_ordering": self._fifo, "labels": labels}
        if place.role != "queue":
            settings["expiration_policy"] = {}  # never
        create = functools.partial(
            self._subscriber.create_subscription, place.subscription, place.topic
        )
        if place.role != "dead-letter":
            return await create(**settings)
        try:
            return await create(message_retention_duration=_MONTH, **settings)
        except InvalidRequestError:  # some servers hold messages for a week at most
            return await create(**settings)

    async def _look(self) -> None:
        """See to it that the queue is there, once; with `auto_delete`, say that it is in use."""
        if self._clock() < self._look_again_at:
            return
        async with self._looking:
            if self._clock() < self._look_again_at:
                return  # somebody else has looked meanwhile
            try:
                await self._look_after()
            except PermissionDeniedError as error:
                if self._usage:
                    error.add_note("with auto_delete one must be allowed to change subscriptions")
                    raise  # a janitor would not see that the queue is in use
                log.warning("%r cannot be looked after, and is taken to be there: %s", self, error)
            self._look_again_at = math.inf
            if self._usage:
                self._look_again_at = self._usage.said_at + self._usage.interval

    async def _look_after(self) -> None:
        if self._usage and self._look_again_at > -math.inf:
            try:
                await self._usage.say(self.names.all)
            except NotFoundError as error:
                log.warning("%r is created again: %s", self, error)
            else:
                return
        await self.create()

    async def _stay_in_use(self) -> None:
        """Say that the queue is in use, again and again."""
        while self._usage:
            await asyncio.sleep(self._usage.interval)
            try:
                await self._look()
            except PubSubError as error:
                log.warning("%r may seem to be out of use: %s", self, error)

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
        while True:
            await self._look()
            since = self._usage.since if self._usage else 0.0
            flight = self._publisher.publish(
                self.names.queue.topic, data, attributes=made, ordering_key=ordering_key
            )
            message_id = await flight.ack
            if self._usage is None or self._usage.is_sure_since(since):
                return message_id
            log.warning("%r may have been deleted meanwhile: a job is put again", self)

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
            restore=self.create,
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
            restore=self.create,
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
        perform = self.worker(**options)(handler)
        if wrap is not None:
            perform = wrap(perform)
        await self._look()
        flow = flow_control or _flow_control(options.get("concurrency"))
        begin, how = self._subscriber.subscribe, subscribe or {}
        returns = self.returns(on_give_up=options.get("on_give_up"))
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
            self._stay_in_use(),
            signals=signals,
        )


def _flow_control(concurrency: int | None) -> FlowControl:
    """As many jobs as are tried at once, and about as many again that wait for their turn."""
    if concurrency is None:
        return FlowControl()
    return FlowControl(max_messages=2 * concurrency, max_request_batch_size=concurrency)

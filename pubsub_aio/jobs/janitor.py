"""Deletes queues that nobody uses, if they were made to be deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_aio._core.idleness import CLOSING, USED, Idleness, judge, larger, mark
from pubsub_aio.admin import AdminClient
from pubsub_aio.config import check
from pubsub_aio.errors import NotFoundError, PubSubError
from pubsub_aio.jobs.names import ROLE
from pubsub_aio.jobs.timetable import Timetable
from pubsub_aio.jobs.usage import DELETION_TAKES
from pubsub_aio.jobs.watch import Moment, Watch
from pubsub_aio.subscriber.client import SubscriberClient

if TYPE_CHECKING:
    from google.pubsub_v1.types import Subscription

log = logging.getLogger("pubsub_aio.jobs")

_PROMPTLY = 4.0
"""Seconds for a call or a pull: what is changed is changed by what was read before, and that is old
soon. In `DELETION_TAKES` there is time for the last look, a pull, and two deletions."""

_AT_ONCE = 10
_PULLS = 2  # the service may answer one with nothing although there are messages
_DELETED_TOPIC = "_deleted-topic_"
_BESIDE = ("dead-letter", "return")
_TO_DO = (Idleness.RESUMED, Idleness.IDLE, Idleness.OVER)


class Janitor:
    """Deletes queues that were made with `auto_delete=True` and that nobody uses.

        async with AdminClient() as admin, SubscriberClient() as subscriber:
            await Janitor(admin, subscriber).run()

    What has not both labels of this library, that of its role and that of its time, is never
    touched. A queue is in use while somebody works on it or puts jobs into it with a `JobQueue`
    that has `auto_delete=True`. One that was not for as long as its policy says, and holds no
    message, is marked by a label; if nobody has used it for ten minutes and some time after that,
    and it holds no message, its subscription is deleted. Its topic is not: others may have to do
    with it. What holds messages stays, with them.

    Dead letters, and the way back from there, go after their queue, each in the same way, and their
    topics with them. Dead letters that there still are stay. When the queue is used again it is
    created again, and they return to it.

    Several may run at once; one is enough for a project.

    Args:
        admin: By whom topics and subscriptions are read, changed and deleted. Its project is swept.
        subscriber: Who looks for messages. They are given back at once.
        clock: Tells the seconds since 1970.
        pull_timeout: Seconds after which what brought no message is taken to be empty, 4 at most.
    """

    def __init__(
        self,
        admin: AdminClient,
        subscriber: SubscriberClient,
        *,
        clock: Callable[[], float] = time.time,
        pull_timeout: float = _PROMPTLY,
    ) -> None:
        check("pull_timeout", pull_timeout, 0, _PROMPTLY, above=True)
        self._admin = admin
        self._subscriber = subscriber
        self._clock = clock
        self._watch = Watch(clock)
        self._pull_timeout = pull_timeout
        self._said: dict[str, str] = {}

    async def run(self, *, every: float = 60.0) -> None:
        """Sweep again and again, until this is cancelled. Errors are logged.

        Args:
            every: Seconds from one sweep to the next.

        Raises:
            ConfigError: That is no such number.
        """
        await Timetable.every(every, clock=self._clock).run(self.sweep)

    async def sweep(self) -> list[str]:
        """Look at every queue of the project once; returns the full names of what was deleted.

        What fails with one queue is logged, and the next sweep tries again.

        Raises:
            PubSubError: The subscriptions cannot be listed.
        """
        deleted: list[str] = []
        everything = [each async for each in self._admin.list_subscriptions()]
        self._said = {each.name: self._said.get(each.name, "") for each in everything}
        found = {each.name: _role(each) for each in everything if self._is_due(each)}
        slots = asyncio.Semaphore(_AT_ONCE)
        for roles in (("queue",), _BESIDE):
            async with asyncio.TaskGroup() as tasks:
                for name, role in found.items():
                    if role in roles:
                        tasks.create_task(self._visit(name, role, deleted, slots))
        return deleted

    def _is_due(self, found: Subscription) -> bool:
        """Whether there is something to be done about a subscription."""
        role = _role(found)
        if role not in ("queue", *_BESIDE):
            return False
        idle = self._judge(found)
        if idle is Idleness.UNREADABLE or (role in _BESIDE and not _queue_of(found.name, role)):
            self._complain(found.name, f"stays: its labels were changed, {dict(found.labels)}")
            return False
        if idle in _TO_DO and found.dead_letter_policy.dead_letter_topic:
            self._complain(found.name, "stays: to look into it would count as an attempt")
            return False
        return idle in _TO_DO

    def _judge(self, found: Subscription) -> Idleness:
        return judge(dict(found.labels), now=self._clock())

    def _complain(self, name: str, what: str) -> None:
        """Say what is wrong, once for as long as it is the same."""
        if self._said.get(name) != what:
            self._said[name] = what
            log.warning("%s %s", name, what)

    # One subscription

    async def _visit(
        self, name: str, role: str, deleted: list[str], slots: asyncio.Semaphore
    ) -> None:
        """Do what is to be done about a subscription; what fails is left to the next sweep."""
        async with slots:
            try:
                await self._look_at(name, role, deleted)
            except NotFoundError as error:
                log.debug("%s was deleted by somebody else: %s", name, error)
            except PubSubError as error:
                self._complain(name, f"is left to the next sweep: {error}")

    async def _look_at(self, name: str, role: str, deleted: list[str]) -> None:
        found = await self._find(name)
        idle = self._judge(found)
        if idle is Idleness.RESUMED:
            await self._label(found, CLOSING, "")
        elif idle not in _TO_DO or await self._is_needed(found, role, idle):
            return
        elif idle is Idleness.OVER:
            await self._close(name, role, deleted)
        elif await self._is_empty(name):
            await self._mark(name, Idleness.IDLE)
        else:
            await self._keep(name)

    async def _mark(self, name: str, idle: Idleness) -> dict[str, str]:
        """Say of one that it is about to be deleted, if it is still idle like that.

        Returns:
            The labels that it has then, if nobody else has to do with it; none if it is not so.
        """
        read_at = self._watch.now()
        found = await self._find(name)
        if self._judge(found) is not idle:
            return {}
        ours = {USED: found.labels[USED], CLOSING: self._new_mark(found)}
        await self._label(found, CLOSING, ours[CLOSING])
        if self._watch.since(read_at) > 2 * _PROMPTLY:  # the machine has slept
            await self._keep(name)
            return {}
        return ours

    async def _close(self, name: str, role: str, deleted: list[str]) -> None:
        """Delete one whose users did not come back, if it is empty, and unless they do now."""
        ours = await self._mark(name, Idleness.OVER)
        if not ours:
            return
        # Of several janitors that do this at once, the last one goes on.
        if not await self._is_empty(name):
            await self._keep(name)
            return
        found = await self._find(name)
        topic = await self._own_topic(found, role)
        if await self._is_needed(found, role, Idleness.OVER):
            return
        read_at = self._watch.now()
        found = await self._find(name)
        if ours.items() <= dict(found.labels).items():
            await self._delete(name, topic, deleted, read_at)

    async def _delete(
        self, name: str, topic: str | None, deleted: list[str], read_at: Moment
    ) -> None:
        """Delete a subscription, and before it its topic if it is its own.

        Whoever came after it was read waits until this has ended, so it ends in time.
        """
        if topic and self._is_in_time(read_at):
            # First, so that whoever publishes to it now gets an error.
            with contextlib.suppress(NotFoundError):
                await self._admin.delete_topic(topic, timeout=_PROMPTLY)
                deleted.append(topic)
            if await self._holds_messages(name):
                await self._keep(name)
                return
        if self._is_in_time(read_at):
            await self._admin.delete_subscription(name, timeout=_PROMPTLY)
            deleted.append(name)
            log.info("%s was out of use and is deleted", name)

    def _is_in_time(self, read_at: Moment) -> bool:
        return self._watch.since(read_at) < DELETION_TAKES - _PROMPTLY

    async def _keep(self, name: str) -> None:
        """Leave one that holds messages alone until its time is over again."""
        found = await self._find(name)
        if found.topic == _DELETED_TOPIC:
            log.error(
                "%s holds messages and has lost its topic: move them with "
                "`pubsub-aio dlq redrive`, and delete it",
                name,
            )
        now = str(round(self._clock()))
        await self._label(found, USED, larger(now, found.labels.get(USED, "")))

    # Labels

    def _new_mark(self, found: Subscription) -> str:
        return mark(found.labels[USED], now=self._clock(), word=secrets.token_hex(4))

    async def _label(self, found: Subscription, name: str, value: str) -> None:
        """Set a label of a subscription that was read just now; without a value, remove it."""
        labels = dict(found.labels) | {name: value}
        if not value:
            del labels[name]
        await self._admin.update_subscription(found.name, labels=labels, timeout=_PROMPTLY)

    # What is there

    async def _find(self, name: str) -> Subscription:
        return await self._admin.get_subscription(name, timeout=_PROMPTLY)

    async def _is_needed(self, found: Subscription, role: str, idle: Idleness) -> bool:
        """Whether something that stands beside a queue is still needed by it.

        It is marked with its queue, and is deleted after it. What has lost its topic is not needed:
        by it nothing comes any more, and the queue cannot be used until it is gone.
        """
        if role not in _BESIDE or found.topic == _DELETED_TOPIC:
            return False
        try:
            queue = await self._find(_queue_of(found.name, role))
        except NotFoundError:
            return False
        return idle is Idleness.OVER or CLOSING not in queue.labels

    async def _own_topic(self, found: Subscription, role: str) -> str | None:
        """The topic of dead letters, or of their way back, if it is for nothing else."""
        if role not in _BESIDE or found.topic == _DELETED_TOPIC:
            return None
        topic = await self._admin.get_topic(found.topic)
        others = [name async for name in self._admin.list_topic_subscriptions(topic.name)]
        own = topic.labels.get(ROLE) == role and others == [found.name]
        return topic.name if own else None

    async def _is_empty(self, name: str) -> bool:
        for _ in range(_PULLS):
            if await self._holds_messages(name):
                return False
        return True

    async def _holds_messages(self, name: str) -> bool:
        """Look for messages, and give back what comes."""
        came = await self._subscriber.pull(name, max_messages=1, timeout=self._pull_timeout)
        for message in came:
            message.nack()
        return bool(came)


def _role(found: Subscription) -> str:
    role: str = found.labels.get(ROLE, "")
    return role


def _queue_of(name: str, role: str) -> str:
    """The name of the queue that something stands beside; none if it is not called like that."""
    queue, dot, suffix = name.rpartition(".")
    return queue if dot and suffix == role else ""

"""Dead letters in the hands of people: look at them, move them to where they are worked on, delete.

async with SubscriberClient() as subscriber, PublisherClient() as publisher:
    for letter in await peek(subscriber, "orders.dead-letter"):
        print(letter.error)
    report = await redrive(subscriber, publisher, "orders.dead-letter")
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pubsub_aio.config import RetryPolicy, check_kind
from pubsub_aio.errors import (
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
)
from pubsub_aio.jobs.dead_letters import DeadLetter, queue_of
from pubsub_aio.jobs.moving import Mover
from pubsub_aio.jobs.names import QueueNames
from pubsub_aio.jobs.sifter import Sifter, has_order, missing
from pubsub_aio.jobs.sifting import IDLE, MAX_HELD, Report, Sifting, Where, matcher
from pubsub_aio.message import Message
from pubsub_aio.publisher.client import PublisherClient
from pubsub_aio.subscriber.client import SubscriberClient

log = logging.getLogger("pubsub_aio.jobs")


async def redrive(
    subscriber: SubscriberClient,
    publisher: PublisherClient,
    subscription: str,
    *,
    to: str | None = None,
    where: Where | None = None,
    limit: int | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    idle: float = IDLE,
    max_held: int = MAX_HELD,
    retry: RetryPolicy | None = None,
    on_progress: Callable[[Report], object] | None = None,
) -> Report:
    """Move dead letters to a topic, where they are worked on once more.

    Each is published first, and acked when the topic has it: whatever happens on the way, none is
    lost. One that is there twice, after a crash say, has both times the same attribute
    `pubsub_aio_redriven`, the id of the dead letter. Data, ordering key and attributes stay as they
    are, without what was added when it became a dead letter; the count of returns begins anew.

    What is not moved stays. It is held until the end, and given back then. So is a dead letter that
    was moved here and has become one again: each is moved once, and this ends although whoever
    works on them fails still. `pubsub_aio_redriven_by` tells whose it is.

    Args:
        subscriber: Who receives the dead letters.
        publisher: Who publishes them. If too much waits there already, so does this.
        subscription: Where they are: the subscription of a dead-letter topic.
        to: The topic. It may be left out for a `JobQueue`: the dead letters then return to it, and
            to it alone.
        where: Which of them: a filter in Pub/Sub's language, or a function of a `Message`.
        limit: How many are moved at most.
        rate: How many a second at most, evenly spaced.
        dry_run: Whether to only tell what would be moved, as fast as it can be told.
        idle: Seconds without a message after which there are no more.
        max_held: How many that stay are held; with that many it ends.
        retry: When a message that could not be published is sent again; for a minute unless told.
        on_progress: Called with a `Report` as it goes on.

    Raises:
        ConfigError: An argument cannot be as it is; there is no such topic, or nobody subscribes to
            it, so that everything would be lost.
        PubSubError: Publishing failed, or receiving did; `on_progress` told how far it came.
    """
    sifting = Sifting(
        where=where, limit=limit, rate=rate, idle=idle, max_held=max_held, on_progress=on_progress
    )
    _check(subscriber, dry_run=dry_run)
    check_kind("publisher", publisher, PublisherClient)
    check_kind("retry", retry, RetryPolicy, optional=True)
    name = subscriber.subscription_name(subscription)
    target = await find_target(subscriber, name, to=to)
    if target.subscriptions is None:
        log.warning("%s: who gets what is moved there cannot be looked up", target.topic)
    if target.fans_out:
        receivers = ", ".join(map(_short, target.fans_out))
        log.warning("%s fans out: what is moved there goes to %s", target.topic, receivers)
    mover = Mover(publisher, target.topic, retry=retry)
    sifter = Sifter(
        subscriber,
        name,
        sifting,
        act=None if dry_run else mover.move,
        ordered=target.ordered,
        came_back=mover.has_moved,
        fans_out=target.fans_out,
    )
    return await sifter.run()


async def purge(
    subscriber: SubscriberClient,
    subscription: str,
    *,
    where: Where | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    idle: float = IDLE,
    max_held: int = MAX_HELD,
    on_progress: Callable[[Report], object] | None = None,
) -> Report:
    """Delete messages of a subscription, for good: they are acked. The arguments are `redrive`'s.

    Raises:
        ConfigError: An argument cannot be as it is.
        PubSubError: It cannot go on.
    """
    sifting = Sifting(
        where=where, limit=limit, idle=idle, max_held=max_held, on_progress=on_progress
    )
    _check(subscriber, dry_run=dry_run)
    name = subscriber.subscription_name(subscription)
    ordered = await has_order(subscriber, name)

    async def delete(message: Message) -> bool:
        await message.ack_with_response()
        return True

    act = None if dry_run else delete
    return await Sifter(subscriber, name, sifting, act=act, ordered=ordered).run()


async def peek(
    subscriber: SubscriberClient,
    subscription: str,
    *,
    limit: int = 10,
    where: Where | None = None,
    idle: float = IDLE,
    max_held: int = MAX_HELD,
    on_progress: Callable[[Report], object] | None = None,
) -> list[DeadLetter]:
    """Look at messages of a subscription; they are given back. The arguments are `redrive`'s.

    There may be more than are returned, as `ended_by` of the last `Report` tells.

    Raises:
        ConfigError: An argument cannot be as it is.
        PubSubError: It cannot go on.
    """
    found: dict[str, DeadLetter] = {}
    matches = matcher(where)

    def see(message: Message) -> bool:
        if not matches(message):
            return False
        found[message.message_id] = DeadLetter.of(message)
        return True

    sifting = Sifting(where=see, limit=limit, idle=idle, max_held=max_held, on_progress=on_progress)
    _check(subscriber)
    name = subscriber.subscription_name(subscription)
    await has_order(subscriber, name)  # which refuses one that there is not
    await Sifter(subscriber, name, sifting, act=None, ordered=False).run()
    return list(found.values())[:limit]


def _check(subscriber: SubscriberClient, *, dry_run: bool = False) -> None:
    check_kind("subscriber", subscriber, SubscriberClient)
    if not isinstance(dry_run, bool):
        raise ConfigError(f"dry_run must be True or False, not {dry_run!r}")


# Where to


@dataclass(frozen=True, slots=True)
class Target:
    """Where dead letters are moved to.

    Attributes:
        topic: The full name of the topic.
        subscriptions: Its subscriptions; none if they may not be looked up.
        ordered: Whether the subscription that they are moved from has order.
    """

    topic: str
    subscriptions: tuple[str, ...] | None
    ordered: bool

    @property
    def fans_out(self) -> tuple[str, ...]:
        """The subscriptions, if they are several."""
        found = self.subscriptions or ()
        return found if len(found) > 1 else ()


async def find_target(
    subscriber: SubscriberClient, subscription: str, *, to: str | None = None
) -> Target:
    """Where `redrive` would move the dead letters of a subscription to, and who would get them.

    Raises:
        ConfigError: It would move nothing.
    """
    name = subscriber.subscription_name(subscription)
    topic = None if to is None else _named(subscriber, to)
    ordered = True  # who may not look has to reckon with it
    try:
        found = await subscriber.find_subscription(name)
    except PermissionDeniedError as error:
        if topic is None:
            raise ConfigError(
                f"to: must be given, {name} may not be looked up: {error.message}"
            ) from error
        log.warning("%s cannot be looked up: %s", name, error)
    else:
        if found is None:
            raise missing(name)
        ordered = found.enable_message_ordering
        if topic is None:
            topic = _return_topic(subscriber, name, found.labels)
        elif topic == found.topic:
            raise ConfigError(f"to: the dead letters come from {topic}; choose another")
    return Target(topic, await _receivers(subscriber, topic), ordered)


def _named(subscriber: SubscriberClient, to: str) -> str:
    """The full name of a topic that somebody named."""
    try:
        return subscriber.topic_name(to)
    except ConfigError as error:
        raise ConfigError(f"to: {str(error).removeprefix('topic: ')}") from error


def _return_topic(subscriber: SubscriberClient, name: str, labels: Mapping[str, str]) -> str:
    """The topic by which the dead letters of a queue return to it."""
    queue = queue_of(name, labels)
    if queue is None:
        raise ConfigError(
            f"to: must be given, the dead letters of {name} are not those of a JobQueue"
        )
    return QueueNames.of(subscriber, queue).returns.topic


async def _receivers(subscriber: SubscriberClient, topic: str) -> tuple[str, ...] | None:
    """The subscriptions of a topic; none if they may not be looked up."""
    try:
        found = await subscriber.subscriptions_of(topic)
    except NotFoundError as error:
        raise ConfigError(f"to: there is no {topic}; create it first") from error
    except InvalidRequestError as error:
        raise ConfigError(f"to: {error.message}") from error
    except PermissionDeniedError:
        return None
    if not found:
        raise ConfigError(
            f"to: {topic} has no subscription, everything would be lost; create one first"
        )
    return tuple(sorted(found))


def _short(name: str) -> str:
    return name.rpartition("/")[2]

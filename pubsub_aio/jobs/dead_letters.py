"""Dead letters, and the subscriptions where they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from pubsub_aio.admin import AdminClient
from pubsub_aio.jobs.attributes import JOB_ID, resurrections_of
from pubsub_aio.jobs.names import ROLE
from pubsub_aio.message import Message
from pubsub_aio.subscriber.dead_letters import ERROR, SOURCE

_SUFFIX = ".dead-letter"


def queue_of(subscription: str, labels: Mapping[str, str]) -> str | None:
    """The full name of the `JobQueue` that a subscription has the dead letters of, if it does."""
    if labels.get(ROLE) != "dead-letter" or not subscription.endswith(_SUFFIX):
        return None
    return subscription.removesuffix(_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that nobody could handle.

    Attributes:
        id: The id that it has as a dead letter.
        data: What was published.
        attributes: What was published with it, and what was added since.
        ordering_key: The key, if it has one.
        publish_time: Since when it is a dead letter.
        job_id: The id of the job that it is, if it is one of this library's.
        resurrections: How often it has returned.
        error: Why it is here, where that is known.
        source: The full name of the subscription that failed it, where that is known.
        deliveries: How often it was delivered there, where that is known.
    """

    id: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    publish_time: datetime
    job_id: str | None = None
    resurrections: int = 0
    error: str | None = None
    source: str | None = None
    deliveries: int | None = None

    @classmethod
    def of(cls, message: Message) -> Self:
        """A message as a dead letter."""
        attributes = message.attributes
        count = attributes.get(f"{SOURCE}DeliveryCount", "")
        return cls(
            id=message.message_id,
            data=message.data,
            attributes=attributes,
            ordering_key=message.ordering_key,
            publish_time=message.publish_time,
            job_id=attributes.get(JOB_ID),
            resurrections=resurrections_of(attributes),
            error=attributes.get(ERROR),
            source=_source(attributes),
            deliveries=int(count) if count.isascii() and count.isdigit() else None,
        )


def _source(attributes: Mapping[str, str]) -> str | None:
    project = attributes.get(f"{SOURCE}SubscriptionProject")
    name = attributes.get(f"{SOURCE}Subscription")
    return f"projects/{project}/subscriptions/{name}" if project and name else None


@dataclass(frozen=True, slots=True)
class DeadLetterSubscription:
    """A subscription that receives dead letters.

    Attributes:
        name: Its full name.
        topic: The full name of its topic.
        sources: The subscriptions that they are the dead letters of.
        queue: Whether they are those of a `JobQueue`.
    """

    name: str
    topic: str
    sources: tuple[str, ...]
    queue: bool


async def dead_letter_subscriptions(admin: AdminClient) -> list[DeadLetterSubscription]:
    """Every subscription of the project that receives dead letters.

    These are the ones of job queues, and those of a topic that is the dead-letter topic of another
    subscription in the project.

    Raises:
        ServiceError: The subscriptions cannot be listed.
    """
    found = [each async for each in admin.list_subscriptions()]
    senders: defaultdict[str, list[str]] = defaultdict(list)
    for each in found:
        if topic := each.dead_letter_policy.dead_letter_topic:
            senders[topic].append(each.name)
    result = []
    for each in found:
        queue = queue_of(each.name, each.labels)
        sources = {*senders.get(each.topic, ()), *([queue] if queue else ())}
        if sources:
            row = (each.name, each.topic, tuple(sorted(sources)), queue is not None)
            result.append(DeadLetterSubscription(*row))
    return sorted(result, key=lambda one: one.name)

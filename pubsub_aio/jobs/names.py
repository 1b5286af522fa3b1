"""Names and labels of what a queue is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pubsub_aio.errors import ConfigError
from pubsub_aio.subscriber.client import SubscriberClient

Role = Literal["queue", "dead-letter", "return"]

ROLE = "pubsub_aio_role"
"""The label that says what a topic or a subscription is to a queue of this library."""

_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Place:
    """A topic with a subscription, by their full names."""

    role: Role
    topic: str
    subscription: str

    @property
    def labels(self) -> dict[str, str]:
        """By which it is known to belong to this library."""
        return {ROLE: self.role}


@dataclass(frozen=True, slots=True)
class QueueNames:
    """The topics and subscriptions of a queue: `NAME`, `NAME.dead-letter` and `NAME.return`."""

    queue: Place
    dead_letters: Place
    returns: Place

    @property
    def all(self) -> tuple[Place, ...]:
        """All of them, the queue last: nothing fails in it before there is a place for that."""
        return self.dead_letters, self.returns, self.queue

    @classmethod
    def of(cls, subscriber: SubscriberClient, name: str, topic: str | None = None) -> Self:
        """The names for a queue of that name.

        Args:
            subscriber: Whose project it is in, if the name is short.
            name: Of its subscription, short or full.
            topic: Of its topic; the same unless told.

        Raises:
            ConfigError: It cannot be a name.
        """
        full = subscriber.subscription_name(name)
        short = full.rpartition("/")[2]
        longest = _MAX_NAME - len(_suffixed("", "dead-letter"))
        if len(short) > longest:
            raise ConfigError(f"name: must have at most {longest} characters, not {len(short)}")
        own = full.replace("/subscriptions/", "/topics/")
        return cls(
            queue=Place("queue", subscriber.topic_name(topic) if topic else own, full),
            dead_letters=_beside(own, full, "dead-letter"),
            returns=_beside(own, full, "return"),
        )


def _beside(topic: str, subscription: str, role: Role) -> Place:
    return Place(role, _suffixed(topic, role), _suffixed(subscription, role))


def _suffixed(name: str, role: Role) -> str:
    return f"{name}.{role}"

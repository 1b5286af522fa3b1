"""Names and labels of what a queue is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self

from pubsub_aio.errors import ConfigError
from pubsub_aio.subscriber.client import SubscriberClient

Role = Literal["queue", "dead-letter", "return"]

ROLE = "pubsub_aio_role"
"""The label that says what a topic or a subscription is to a queue of this library."""

_MIN_NAME = 3
_MAX_NAME = 255
_NAME = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]*")


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

        They are checked here, all of them. A server that refuses one would do so after others have
        been created.

        Args:
            subscriber: Whose project it is in, if the name is short.
            name: Of its subscription, short or full.
            topic: Of its topic; the same unless told.

        Raises:
            ConfigError: It cannot be a name, or is that of something else.
        """
        if not isinstance(name, str):
            raise ConfigError(f"name: must be that of a subscription, not {name!r}")
        full = subscriber.subscription_name(name)
        check_name("name", full, most=_MAX_NAME - len(_suffixed("", "dead-letter")))
        _check_is_a_queue(full)
        own = full.replace("/subscriptions/", "/topics/")
        dead_letters, returns = _beside(own, full, "dead-letter"), _beside(own, full, "return")
        if topic is not None:
            own = subscriber.topic_name(topic)
            check_name("topic", own)
        for place in (dead_letters, returns):
            if own == place.topic:
                raise ConfigError(
                    f"topic: {own} is the {place.role} topic of this queue, what failed would be "
                    "put into it again and again; choose another"
                )
        return cls(Place("queue", own, full), dead_letters, returns)


def check_name(field: str, name: str, *, most: int = _MAX_NAME) -> None:
    """Refuse a full name that the service would refuse."""
    short = name.rpartition("/")[2]
    for wrong, bound in (
        (len(short) < _MIN_NAME, f"at least {_MIN_NAME}"),
        (len(short) > most, f"at most {most}"),
    ):
        if wrong:
            raise ConfigError(f"{field}: must have {bound} characters, not {len(short)}")
    if not _NAME.fullmatch(short):
        raise ConfigError(
            f"{field}: must begin with a letter, have letters, digits and -_.~+% only, and not "
            f'begin with "goog", not {short!r}'
        )


def _check_is_a_queue(name: str) -> None:
    """Refuse the name of what stands beside a queue."""
    roles: tuple[Role, ...] = ("dead-letter", "return")
    for role in roles:
        suffix = _suffixed("", role)
        if name.endswith(suffix):
            queue = name.removesuffix(suffix).rpartition("/")[2]
            raise ConfigError(
                f"name: a queue cannot end with {suffix!r}, which belongs to the queue {queue!r}: "
                "name that, or choose another"
            )


def _beside(topic: str, subscription: str, role: Role) -> Place:
    return Place(role, _suffixed(topic, role), _suffixed(subscription, role))


def _suffixed(name: str, role: Role) -> str:
    return f"{name}.{role}"

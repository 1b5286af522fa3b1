"""Says on a queue itself that it is in use, for a janitor to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pubsub_aio.config import JobPolicy
from pubsub_aio.errors import NotFoundError
from pubsub_aio.jobs.names import Place
from pubsub_aio.subscriber.client import SubscriberClient

EXPIRES = "pubsub_aio_expires"
"""The label with the seconds after which what is not used may be deleted. What does not have it is
never deleted."""

USED = "pubsub_aio_used"
"""The label with the time of the last use, in seconds since 1970."""

_TIMES = 5  # that it is said within the time


class Usage:
    """Labels of a queue that a janitor goes by.

    Args:
        subscriber: By whom the labels are changed.
        policy: After what time it may be deleted.
        clock: Tells the seconds since 1970.
    """

    def __init__(
        self, subscriber: SubscriberClient, policy: JobPolicy, clock: Callable[[], float]
    ) -> None:
        self.interval = min(policy.expires, policy.dead_letter_expires) / _TIMES
        """Seconds after which it is to be said again."""
        self._subscriber = subscriber
        self._policy = policy
        self._clock = clock

    def labels(self, place: Place) -> dict[str, str]:
        """What to say now."""
        dead = place.role == "dead-letter"
        expires = self._policy.dead_letter_expires if dead else self._policy.expires
        return {EXPIRES: str(round(expires)), USED: str(round(self._clock()))}

    async def say(self, places: Iterable[Place]) -> None:
        """Say of these that they are in use.

        Raises:
            NotFoundError: One of them was deleted.
        """
        for place in places:
            found = await self._subscriber.find_subscription(place.subscription)
            if found is None:
                raise NotFoundError("NOT_FOUND", f"{place.subscription} was deleted")
            await self._subscriber.add_labels(found, self.labels(place))

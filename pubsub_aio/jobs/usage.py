"""Says on a queue itself that it is in use, for a janitor to see."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from pubsub_aio._core.idleness import CLOSING, EXPIRES, SURE, TIMES, USED, another, larger
from pubsub_aio.config import JobPolicy
from pubsub_aio.errors import ConfigError, InvalidRequestError, NotFoundError, UnavailableError
from pubsub_aio.jobs.names import Place
from pubsub_aio.jobs.watch import Moment, Watch
from pubsub_aio.subscriber.client import SubscriberClient

T = TypeVar("T")

log = logging.getLogger("pubsub_aio.jobs")

DELETION_TAKES = 20.0
"""Seconds in which a janitor that has begun to delete has ended."""

_PROMPTLY = 20.0
"""Seconds in which labels that were read have to be written. Later than that they might take away
the mark of a janitor that came meanwhile."""


class Usage:
    """Labels of a queue that a janitor goes by.

    Args:
        subscriber: By whom the labels are changed.
        policy: After what time it may be deleted.
        clock: Tells the seconds since 1970, for the labels. It may be set.
    """

    def __init__(
        self, subscriber: SubscriberClient, policy: JobPolicy, clock: Callable[[], float]
    ) -> None:
        self.interval = min(policy.expires, policy.dead_letter_expires) / TIMES
        """Seconds after which it is to be said again."""
        self.stay = 0
        """Changes when it is not sure that the queue was there all the time."""
        self._said_at: Moment | None = None
        self._complained = False
        self._subscriber = subscriber
        self._policy = policy
        self._clock = clock
        self._watch = Watch(clock)

    def labels(self, place: Place) -> dict[str, str]:
        """What to say now."""
        dead = place.role == "dead-letter"
        expires = self._policy.dead_letter_expires if dead else self._policy.expires
        return {EXPIRES: str(math.ceil(expires)), USED: str(round(self._clock()))}

    # Whether it is there

    @property
    def is_due(self) -> bool:
        """Whether it is to be said now."""
        return self._silent_for >= self.interval

    @property
    def is_sure(self) -> bool:
        """Whether it is sure to be there."""
        return self._silent_for <= SURE * self.interval

    @property
    def _silent_for(self) -> float:
        """Seconds since it was said."""
        return math.inf if self._said_at is None else self._watch.since(self._said_at)

    # What is said

    async def patiently(self, look: Callable[[], Awaitable[T]]) -> T:
        """Look at a subscription; once more if a janitor may have been about to delete it.

        Raises:
            ConfigError: It has lost its topic, and stays.
        """
        try:
            return await look()
        except ConfigError:
            await asyncio.sleep(DELETION_TAKES)
            return await look()

    async def say(self, places: Sequence[Place]) -> None:
        """Say of these that they are in use.

        If a janitor was about to delete one of them it may do so before it sees that. So this
        returns later then, when the janitor has either deleted or seen it.

        Raises:
            NotFoundError: One of them was deleted.
            UnavailableError: It could not be said promptly.
        """
        void: dict[str, str] = {}
        while True:
            said_at, was_sure = self._watch.now(), self.is_sure
            marks = await self._renew_all(places, void)
            if marks.items() <= void.items():
                break
            log.info("a janitor was about to delete %s, and is waited for", ", ".join(marks))
            void = marks
            await asyncio.sleep(DELETION_TAKES)
        if not was_sure:
            self.stay += 1
        self._said_at = said_at

    def _complain(self, error: InvalidRequestError) -> None:
        """Say once that labels cannot be changed; then a janitor cannot mark anything either."""
        if not self._complained:
            log.warning(
                "auto_delete: the server does not change labels of subscriptions: %s", error
            )
        self._complained = True

    async def _renew_all(self, places: Sequence[Place], void: Mapping[str, str]) -> dict[str, str]:
        """Write the labels; returns the marks of janitors that were found."""
        marks = {}
        for place in reversed(places):  # the queue is in use also if the others cannot be found
            known = void.get(place.subscription, "")
            renew = functools.partial(self._renew, place, known)
            if mark := await self.patiently(renew):
                marks[place.subscription] = mark
        return marks

    async def _renew(self, place: Place, void: str) -> str:
        """Write the labels of one; returns the mark of a janitor, if there was one.

        A mark that is void, and was so for long enough, is removed.
        """
        name, read_at = place.subscription, self._watch.now()
        try:
            async with asyncio.timeout(_PROMPTLY):
                found = await self._subscriber.find_live_subscription(name)
                if found is None:
                    self._said_at = None
                    raise NotFoundError("NOT_FOUND", f"{name} was deleted")
                labels = place.labels | self.labels(place)
                labels[USED] = another(labels[USED], found.labels.get(USED, ""))
                # Who gives it less time than others does not speak for them.
                labels[EXPIRES] = larger(labels[EXPIRES], found.labels.get(EXPIRES, ""))
                mark = found.labels.get(CLOSING, "")
                if mark and mark == void:
                    del found.labels[CLOSING]
                try:
                    await self._subscriber.add_labels(found, labels)
                except InvalidRequestError as error:
                    self._complain(error)
            if self._watch.since(read_at) > _PROMPTLY:
                raise TimeoutError  # the machine has slept
        except TimeoutError as error:
            raise UnavailableError(
                "DEADLINE_EXCEEDED", f"it could not be said of {name} that it is in use"
            ) from error
        return mark

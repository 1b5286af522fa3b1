"""The topics and subscriptions of a queue: there when they are needed, and seen to be in use."""

from __future__ import annotations

import asyncio
import functools
import logging
from datetime import timedelta
from typing import Any

from pubsub_aio._core.idleness import EXPIRES
from pubsub_aio.errors import (
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    PubSubError,
)
from pubsub_aio.jobs.names import Place, QueueNames
from pubsub_aio.jobs.usage import Usage
from pubsub_aio.subscriber.client import SubscriberClient

log = logging.getLogger("pubsub_aio.jobs")

_MONTH = timedelta(days=31)
"""The longest that the service holds a message for."""

_ATTEMPTS = 3
"""How often a queue is created that is deleted at the same time."""


class Premises:
    """Creates what a queue needs, and says that it is in use if it may be deleted otherwise.

    Args:
        subscriber: By whom it is created.
        names: What it is called.
        fifo: Whether its messages come in order.
        usage: Says that it is in use; none if it is never to be deleted.
    """

    def __init__(
        self,
        subscriber: SubscriberClient,
        names: QueueNames,
        *,
        fifo: bool,
        usage: Usage | None,
    ) -> None:
        self._subscriber = subscriber
        self._names = names
        self._name = names.queue.subscription
        self._fifo = fifo
        self._usage = usage
        self._looking = asyncio.Lock()
        self._known = False
        self._doubts = 0

    async def create(self) -> None:
        """Create the queue, its dead letters and their way back, as far as they are missing.

        Raises:
            ConfigError: A subscription of one of the names is of another topic, or has no order
                although the queue is FIFO.
        """
        for attempt in range(_ATTEMPTS):
            for place in self._names.all:
                await self._create(place)
            if self._usage is None:
                return
            try:
                await self._usage.say(self._names.all)
            except NotFoundError as error:  # a janitor was faster
                if attempt == _ATTEMPTS - 1:
                    raise
                log.warning("%s is created once more: %s", self._name, error)
            else:
                return

    async def _create(self, place: Place) -> None:
        labels = place.labels | (self._usage.labels(place) if self._usage else {})
        find = functools.partial(self._subscriber.find_live_subscription, place.subscription)
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

    async def look(self, *, anew: bool = False) -> int:
        """See to it that all is there, the first time; later say that it is in use, if need be.

        Args:
            anew: Whether to look as if for the first time.

        Returns:
            What `were_there` asks for.
        """
        if anew or self._is_due():
            async with self._looking:
                if anew or self._is_due():  # nobody else has looked meanwhile
                    await self._look_now(anew=anew)
        return self._usage.stay if self._usage else 0

    def doubt(self) -> None:
        """Have the next look be as the first one: something is missing."""
        self._known = False
        self._doubts += 1

    def _is_due(self) -> bool:
        return not self._known or (self._usage is not None and self._usage.is_due)

    async def _look_now(self, *, anew: bool) -> None:
        doubts = self._doubts
        try:
            await self._look_after(anew=anew)
        except PermissionDeniedError as error:
            if self._usage:
                error.add_note("with auto_delete one must be allowed to change subscriptions")
                raise  # a janitor would not see that the queue is in use
            log.warning("%s is taken to be there, it may not be looked at: %s", self._name, error)
        # What was missed meanwhile may have been looked at before.
        self._known = self._doubts == doubts

    async def _look_after(self, *, anew: bool) -> None:
        if self._usage and self._known and not anew:
            try:
                await self._usage.say(self._names.all)
            except NotFoundError as error:
                log.warning("%s is created again: %s", self._name, error)
            else:
                return
        await self.create()

    async def stay_in_use(self) -> None:
        """Say that the queue is in use, again and again."""
        while self._usage:
            await asyncio.sleep(self._usage.interval)
            try:
                await self.look()
            except PubSubError as error:
                log.warning("%s may seem to be out of use: %s", self._name, error)

    def were_there(self, stay: int) -> bool:
        """Whether all was there from a look on, until now."""
        return self._usage is None or (self._usage.stay == stay and self._usage.is_sure)

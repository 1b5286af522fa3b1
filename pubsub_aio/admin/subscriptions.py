"""Subscriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING

from pubsub_aio.admin.calls import Calls
from pubsub_aio.config import CALL_TIMEOUT
from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from google.pubsub_v1.types import Subscription


class Subscriptions(Calls):
    """What can be done to subscriptions."""

    async def create_subscription(
        self, subscription: str, topic: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Subscription:
        """Create a subscription to a topic.

        Args:
            subscription: Its name.
            topic: The topic's name.
            timeout: Seconds for the call with all its attempts.
            **settings: Fields of `Subscription`. A dead letter topic may be given by its short
                name.
        """
        google = self._google
        made = self._subscription(subscription, settings, topic=self._name(topic, "topics"))
        return await google.call(google.subscriber.create_subscription, made, timeout=timeout)

    async def get_subscription(
        self, subscription: str, *, timeout: float = CALL_TIMEOUT
    ) -> Subscription:
        """The settings of a subscription."""
        google = self._google
        request = {"subscription": self._name(subscription, "subscriptions")}
        return await google.call(google.subscriber.get_subscription, request, timeout=timeout)

    def list_subscriptions(
        self, *, project: str | None = None, page_size: int = 0, timeout: float = CALL_TIMEOUT
    ) -> AsyncIterator[Subscription]:
        """All subscriptions of a project, for `async for`.

        Args:
            project: Another than the client's.
            page_size: How many to ask for at a time; zero leaves it to the service.
            timeout: Seconds for each page.
        """
        google = self._google
        request = google.make(
            google.types.ListSubscriptionsRequest,
            {"page_size": page_size},
            project=self._parent(project),
        )
        method = google.subscriber.list_subscriptions
        return self._list(method, request, "subscriptions", timeout=timeout)

    async def update_subscription(
        self, subscription: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Subscription:
        """Change the settings that are given, and leave the others.

        Args:
            subscription: Its name.
            timeout: Seconds for the call with all its attempts.
            **settings: Fields of `Subscription`; None returns one to its default.
        """
        google = self._google
        request = {
            "subscription": self._subscription(subscription, settings),
            "update_mask": {"paths": self._changed(settings)},
        }
        return await google.call(google.subscriber.update_subscription, request, timeout=timeout)

    async def detach_subscription(
        self, subscription: str, *, timeout: float = CALL_TIMEOUT
    ) -> None:
        """Part a subscription from its topic, for good; the messages that it holds are dropped."""
        google = self._google
        request = {"subscription": self._name(subscription, "subscriptions")}
        await google.call(google.publisher.detach_subscription, request, timeout=timeout)

    async def delete_subscription(
        self, subscription: str, *, timeout: float = CALL_TIMEOUT
    ) -> None:
        """Delete a subscription, with the messages that it holds."""
        google = self._google
        request = {"subscription": self._name(subscription, "subscriptions")}
        await google.call(google.subscriber.delete_subscription, request, timeout=timeout)

    async def seek(
        self,
        subscription: str,
        *,
        time: datetime | None = None,
        snapshot: str | None = None,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Set a subscription back, or forward, to a time or to a snapshot.

        Messages published before the time count as acked, those after it as not. They come again
        only where they are retained (`retain_acked_messages`, or the topic's retention).

        Args:
            subscription: Its name.
            time: An aware `datetime`. Either this,
            snapshot: or the name of a snapshot.
            timeout: Seconds for the call with all its attempts.
        """
        google = self._google
        request: dict[str, object] = {"subscription": self._name(subscription, "subscriptions")}
        if (time is None) == (snapshot is None):
            raise ConfigError("time, snapshot: give one of them, and only one")
        if snapshot is not None:
            request["snapshot"] = self._name(snapshot, "snapshots")
        elif not isinstance(time, datetime) or time.tzinfo is None:
            raise ConfigError(f"time: must be a datetime with a time zone, not {time!r}")
        else:
            request["time"] = time
        await google.call(google.subscriber.seek, request, timeout=timeout)

    def _subscription(
        self, subscription: str, settings: dict[str, object], **fixed: object
    ) -> Subscription:
        google = self._google
        name = self._name(subscription, "subscriptions")
        made: Subscription = google.make(google.types.Subscription, settings, name=name, **fixed)
        if made.dead_letter_policy.dead_letter_topic:
            made.dead_letter_policy.dead_letter_topic = self._name(
                made.dead_letter_policy.dead_letter_topic, "topics"
            )
        return made

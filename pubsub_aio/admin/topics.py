"""Topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pubsub_aio.admin.calls import Calls
from pubsub_aio.config import CALL_TIMEOUT

if TYPE_CHECKING:
    from google.pubsub_v1.types import Topic


class Topics(Calls):
    """What can be done to topics."""

    async def create_topic(
        self, topic: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Topic:
        """Create a topic.

        Args:
            topic: Its name.
            timeout: Seconds for the call with all its attempts.
            **settings: Fields of `Topic`. A schema may be given by its short name.
        """
        google = self._google
        made = self._topic(topic, settings)
        return await google.call(google.publisher.create_topic, made, timeout=timeout)

    async def get_topic(self, topic: str, *, timeout: float = CALL_TIMEOUT) -> Topic:
        """The settings of a topic."""
        google = self._google
        request = {"topic": self._name(topic, "topics")}
        return await google.call(google.publisher.get_topic, request, timeout=timeout)

    def list_topics(
        self, *, project: str | None = None, page_size: int = 0, timeout: float = CALL_TIMEOUT
    ) -> AsyncIterator[Topic]:
        """All topics of a project, for `async for`.

        Args:
            project: Another than the client's.
            page_size: How many to ask for at a time; zero leaves it to the service.
            timeout: Seconds for each page.
        """
        google = self._google
        request = google.make(
            google.types.ListTopicsRequest,
            {"page_size": page_size},
            project=self._parent(project),
        )
        return self._list(google.publisher.list_topics, request, "topics", timeout=timeout)

    def list_topic_subscriptions(
        self, topic: str, *, page_size: int = 0, timeout: float = CALL_TIMEOUT
    ) -> AsyncIterator[str]:
        """The names of a topic's subscriptions, for `async for`."""
        google = self._google
        request = google.make(
            google.types.ListTopicSubscriptionsRequest,
            {"page_size": page_size},
            topic=self._name(topic, "topics"),
        )
        method = google.publisher.list_topic_subscriptions
        return self._list(method, request, "subscriptions", timeout=timeout)

    def list_topic_snapshots(
        self, topic: str, *, page_size: int = 0, timeout: float = CALL_TIMEOUT
    ) -> AsyncIterator[str]:
        """The names of a topic's snapshots, for `async for`."""
        google = self._google
        request = google.make(
            google.types.ListTopicSnapshotsRequest,
            {"page_size": page_size},
            topic=self._name(topic, "topics"),
        )
        method = google.publisher.list_topic_snapshots
        return self._list(method, request, "snapshots", timeout=timeout)

    async def update_topic(
        self, topic: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Topic:
        """Change the settings that are given, and leave the others.

        Args:
            topic: Its name.
            timeout: Seconds for the call with all its attempts.
            **settings: Fields of `Topic`; None returns one to its default.
        """
        google = self._google
        request = {
            "topic": self._topic(topic, settings),
            "update_mask": {"paths": self._changed(settings)},
        }
        return await google.call(google.publisher.update_topic, request, timeout=timeout)

    async def delete_topic(self, topic: str, *, timeout: float = CALL_TIMEOUT) -> None:
        """Delete a topic. Its subscriptions stay, with what they hold, and get nothing new."""
        google = self._google
        request = {"topic": self._name(topic, "topics")}
        await google.call(google.publisher.delete_topic, request, timeout=timeout)

    def _topic(self, topic: str, settings: dict[str, object]) -> Topic:
        google = self._google
        made: Topic = google.make(google.types.Topic, settings, name=self._name(topic, "topics"))
        if made.schema_settings.schema:
            made.schema_settings.schema = self._name(made.schema_settings.schema, "schemas")
        return made

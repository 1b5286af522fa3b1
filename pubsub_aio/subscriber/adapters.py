"""What parts of this library that build on a client ask of it; not for its users."""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Mapping

from pubsub_aio._wire import names, schema
from pubsub_aio.config import CALL_TIMEOUT
from pubsub_aio.errors import (
    AlreadyExistsError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    ServiceError,
)

log = logging.getLogger("pubsub_aio.subscriber")


class ForAdapters(abc.ABC):
    """Calls of a `SubscriberClient` that its users do not need."""

    @abc.abstractmethod
    async def _ask(self, rpc: str, request: bytes, *, timeout: float = CALL_TIMEOUT) -> bytes:
        """Make a call, and try it again if that may help."""

    @abc.abstractmethod
    def topic_name(self, topic: str) -> str:
        """The full name of a topic."""

    @abc.abstractmethod
    def subscription_name(self, subscription: str) -> str:
        """The full name of a subscription."""

    # What is received goes elsewhere

    async def forward(
        self,
        topic: str,
        *,
        data: bytes,
        attributes: Mapping[str, str],
        ordering_key: str,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Publish what was received to another topic."""
        message = schema.PubsubMessage(data=data, attributes=attributes, ordering_key=ordering_key)
        request = schema.PublishRequest(topic=self.topic_name(topic), messages=[message])
        await self._ask("Publish", request.SerializeToString(), timeout=timeout)

    async def check_forwarding(self, subscription: str, topic: str, *, name: str) -> None:
        """Make sure that there is a topic for what is received.

        Whoever may not look, or cannot now, is not stopped by that.

        Raises:
            ConfigError: There is none, or what is published to it comes back.
        """
        with contextlib.suppress(ServiceError):
            look = schema.GetSubscriptionRequest(subscription=subscription)
            data = await self._ask("GetSubscription", look.SerializeToString())
            if schema.Subscription.FromString(data).topic == topic:
                raise ConfigError(f"{name}: the messages come from {topic}; choose another")
        try:
            await self._ask("GetTopic", schema.GetTopicRequest(topic=topic).SerializeToString())
        except NotFoundError as error:
            raise ConfigError(f"{name}: there is no {topic}; create it first") from error
        except InvalidRequestError as error:
            raise ConfigError(f"{name}: {error.message}") from error
        except ServiceError as error:
            log.debug("%s: %s cannot be looked up: %s", name, topic, error)

    # Topics and subscriptions

    async def ensure_topic(self, topic: str, *, labels: Mapping[str, str]) -> None:
        """Create a topic unless it exists."""
        request = schema.Topic(name=self.topic_name(topic), labels=labels)
        with contextlib.suppress(AlreadyExistsError):
            await self._ask("CreateTopic", request.SerializeToString())

    async def find_subscription(self, subscription: str) -> schema.Subscription | None:
        """A subscription as the server has it; none if there is none.

        Raises:
            ConfigError: It cannot be one.
        """
        request = schema.GetSubscriptionRequest(subscription=self.subscription_name(subscription))
        try:
            data = await self._ask("GetSubscription", request.SerializeToString())
        except NotFoundError:
            return None
        except InvalidRequestError as error:
            raise ConfigError(f"subscription: {error.message}") from error
        return schema.Subscription.FromString(data)

    async def find_live_subscription(self, subscription: str) -> schema.Subscription | None:
        """The same.

        Raises:
            ConfigError: Its topic was deleted, so that nothing can reach it any more.
        """
        found = await self.find_subscription(subscription)
        if found is not None and found.topic == names.DELETED_TOPIC:
            raise ConfigError(
                f"{found.name} has lost its topic, which was deleted: move what it holds, "
                "with pubsub-aio dlq redrive, and delete it"
            )
        return found

    async def subscriptions_of(self, topic: str) -> list[str]:
        """The full names of the subscriptions of a topic.

        Raises:
            NotFoundError: There is no such topic.
        """
        found: list[str] = []
        request = schema.ListTopicSubscriptionsRequest(topic=self.topic_name(topic))
        while True:
            data = await self._ask("ListTopicSubscriptions", request.SerializeToString())
            page = schema.ListTopicSubscriptionsResponse.FromString(data)
            found += page.subscriptions
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def add_labels(self, found: schema.Subscription, labels: Mapping[str, str]) -> None:
        """Give a subscription labels, beside those that it has."""
        request = schema.UpdateSubscriptionRequest(
            subscription=schema.Subscription(name=found.name, labels={**found.labels, **labels})
        )
        request.update_mask.paths.append("labels")
        await self._ask("UpdateSubscription", request.SerializeToString())

"""What is in an emulator, as a program in the same process makes it and looks at it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pubsub_aio._wire import schema
from pubsub_aio.emulator import records
from pubsub_aio.emulator.intake import taken_in_transformed
from pubsub_aio.emulator.journal import PublishedMessage
from pubsub_aio.emulator.status import StatusError

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.clock import Clock
    from pubsub_aio.emulator.seeds import Seeded
    from pubsub_aio.emulator.service import Service
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.transforming import Transforms

Config = TypeVar("Config", schema.Topic, schema.Subscription)

PROJECT = "emulated-project"
"""The project of resources that are named without one, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A StreamingPull that is open now."""

    subscription: str
    client_id: str
    opened: datetime
    outstanding_messages: int
    outstanding_bytes: int


class Contents:
    """Topics, subscriptions and messages, without a client. Nobody is asked for permission.

    Args:
        broker: Where they are.
        service: Who is told when something has changed.
        transforms: What becomes of messages that are published.
        clock: The time.
        project: The project of resources that are named without one.
    """

    def __init__(
        self,
        broker: Broker,
        service: Service,
        transforms: Transforms,
        *,
        clock: Clock,
        project: str,
    ) -> None:
        self.project = project
        self.clock = clock
        self._broker = broker
        self._service = service
        self._transforms = transforms

    def _wake(self) -> None:
        self._service.wake()

    # Resources

    def create_topic(self, topic: str, **settings: object) -> str:
        """Create a topic; returns its full name.

        Args:
            topic: Its name.
            **settings: Fields of the API's Topic, such as `labels`.
        """
        name = self._name(topic, "topics")
        config = _with_settings(schema.Topic(name=name), settings)
        with self._refusals_as_value_errors():
            self._transforms.check_now(config)
            self._broker.create_topic(config, now=self.clock.now())
        self._wake()
        return name

    def create_subscription(self, subscription: str, topic: str, **settings: object) -> str:
        """Create a subscription, and its topic unless that exists; returns its full name.

        Args:
            subscription: Its name.
            topic: Its topic's name.
            **settings: Fields of the API's Subscription, such as `enable_message_ordering`.
        """
        name = self._name(subscription, "subscriptions")
        topic = self._name(topic, "topics")
        config = _with_settings(schema.Subscription(name=name, topic=topic), settings)
        new_topic = topic not in self._broker.topics
        if new_topic:
            self.create_topic(topic)
        try:
            with self._refusals_as_value_errors():
                self._transforms.check_now(config)
                self._broker.create_subscription(config, now=self.clock.now())
        except ValueError:
            if new_topic:
                self._broker.delete_topic(topic, now=self.clock.now())
            raise
        self._wake()
        return name

    def publish(
        self,
        topic: str,
        data: bytes = b"",
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str = "",
    ) -> str:
        """Publish a message; returns its id."""
        message = schema.PubsubMessage(data=data, attributes=attributes, ordering_key=ordering_key)
        name = self._name(topic, "topics")
        bodies = [message.SerializeToString()]
        with self._refusals_as_value_errors():
            records.check_messages(schema.PublishRequest(messages=[message]), [0])
            found = self._broker.topic(name)
            made = self._transforms.published_now(found.config, bodies)
            kept = taken_in_transformed(found, made)
            message_id = self._broker.publish_some(name, kept, now=self.clock.now())
        self._wake()
        return str(message_id)

    def load_seed(self, path: str | os.PathLike[str], *, project: str | None = None) -> Seeded:
        """Have everything here that a seed file wants; messages are kept.

        Args:
            path: The file.
            project: The project of the short names in it, whatever the file says. If none is given,
                it is the file's, or else the emulator's.

        Raises:
            SeedError: There are mistakes in the file; nothing was done.
        """
        from pubsub_aio.emulator.seeds.reading import read_seed
        from pubsub_aio.emulator.seeds.sowing import sow

        seed = read_seed(Path(path), project=project, default_project=self.project)
        try:
            check = self._transforms.check_now
            return sow(seed, self._broker, now=self.clock.now(), check=check)
        finally:
            self._wake()

    def delete_project(self) -> None:
        """Delete every topic, subscription, snapshot and schema of the project, and its policy."""
        now, broker, mine = self.clock.now(), self._broker, f"projects/{self.project}/"
        for name in [name for name in broker.subscriptions if name.startswith(mine)]:
            broker.delete_subscription(name, now=now)
        for name in [name for name in broker.snapshots if name.startswith(mine)]:
            broker.delete_snapshot(name, now=now)
        for name in [name for name in broker.topics if name.startswith(mine)]:
            broker.delete_topic(name, now=now)
        for name in [name for name in broker.schemas.named if name.startswith(mine)]:
            broker.delete_schema(name)
        broker.policies.forget_project(mine.rstrip("/"))
        self._wake()

    # What goes on

    def messages(self, topic: str | None = None) -> list[PublishedMessage]:
        """The latest messages, each with its deliveries, acks and modacks, oldest first.

        Those of one topic, or of all topics of the project.
        """
        wanted = f"projects/{self.project}/" if topic is None else self._name(topic, "topics")
        return self._broker.journal.messages(
            lambda name: name.startswith(wanted) if topic is None else name == wanted
        )

    def message(self, message_id: str) -> PublishedMessage:
        """One message, by its id. KeyError if it is not among the latest."""
        for message in self._broker.journal.messages(lambda _: True):
            if message.message_id == message_id:
                return message
        raise KeyError(message_id)

    def backlog(self, subscription: str) -> int:
        """How many messages the subscription has yet to see acked, delivered or not."""
        return self._subscription(subscription).deliveries.backlog

    def outstanding(self, subscription: str) -> int:
        """How many of the subscription's messages are leased to a subscriber."""
        return self._subscription(subscription).deliveries.outstanding

    def streams(self, subscription: str | None = None) -> list[OpenStream]:
        """The open streams, of one subscription or of all of the project."""
        if subscription is not None:
            targets = [self._subscription(subscription)]
        else:
            mine = f"projects/{self.project}/"
            every = self._broker.subscriptions.items()
            targets = [target for name, target in every if name.startswith(mine)]
        return [
            OpenStream(
                subscription=target.config.name,
                client_id=stream.client_id,
                opened=datetime.fromtimestamp(stream.opened_at, tz=UTC),
                outstanding_messages=stream.held_messages,
                outstanding_bytes=stream.held_bytes,
            )
            for target in targets
            for stream in target.streams.values()
        ]

    def _subscription(self, name: str) -> Subscription:
        with self._refusals_as_value_errors():
            return self._broker.subscription(self._name(name, "subscriptions"))

    def _name(self, name: str, kind: str) -> str:
        return name if "/" in name else f"projects/{self.project}/{kind}/{name}"

    @staticmethod
    @contextlib.contextmanager
    def _refusals_as_value_errors() -> Iterator[None]:
        try:
            yield
        except StatusError as error:
            raise ValueError(str(error)) from error


def _with_settings(config: Config, settings: Mapping[str, object]) -> Config:
    """Set fields, each with an error that names it."""
    made = schema.message_class(config.DESCRIPTOR.full_name)
    for field, value in settings.items():
        try:
            config.MergeFrom(made(**{field: value}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{field}={value!r}: {error}") from error
    return config

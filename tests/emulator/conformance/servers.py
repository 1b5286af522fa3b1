"""One handle for both servers under test, speaking through Google's own client."""

import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Literal, TypeVar

import grpc
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.pubsub_v1 import (
    AcknowledgeRequest,
    GetSubscriptionRequest,
    GetTopicRequest,
    ModifyAckDeadlineRequest,
    PublisherClient,
    PublishRequest,
    PubsubMessage,
    PullRequest,
    PullResponse,
    ReceivedMessage,
    SchemaServiceClient,
    SeekRequest,
    SubscriberClient,
    Subscription,
    Topic,
)
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.emulator.conformance.streams import WITHIN, Stream

Answer = TypeVar("Answer")

# Neither side may stop at gRPC's 4 MB: Pub/Sub messages are larger.
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Server:
    """A running server, a project of its own on it, and short ways to talk to it."""

    def __init__(
        self,
        kind: Literal["embedded", "google"],
        address: str,
        *,
        let_time_pass: Callable[[float], None],
    ) -> None:
        self.kind = kind
        self.address = address
        self.let_time_pass = let_time_pass
        self.project = f"project-{uuid.uuid4().hex[:12]}"
        self.channel = grpc.insecure_channel(address, options=_UNLIMITED)
        self.publisher = PublisherClient(transport=PublisherGrpcTransport(channel=self.channel))
        self.subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=self.channel))
        self.schemas = SchemaServiceClient(
            transport=SchemaServiceGrpcTransport(channel=self.channel)
        )
        self._pull = self.channel.unary_unary(
            "/google.pubsub.v1.Subscriber/Pull",
            request_serializer=PullRequest.serialize,
            response_deserializer=PullResponse.deserialize,
        )
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.channel.close()

    def topic_name(self, topic_id: str | None = None) -> str:
        return self._name("topics", topic_id)

    def subscription_name(self, subscription_id: str | None = None) -> str:
        return self._name("subscriptions", subscription_id)

    def snapshot_name(self, snapshot_id: str | None = None) -> str:
        return self._name("snapshots", snapshot_id)

    def schema_name(self, schema_id: str | None = None) -> str:
        return self._name("schemas", schema_id)

    def _name(self, kind: str, given: str | None) -> str:
        made = f"{kind[:-1]}-{next(self._numbers)}" if given is None else given
        return f"projects/{self.project}/{kind}/{made}"

    def call(self, rpc: Callable[..., Answer], request: object) -> Answer:
        """Make one call, once: a retry would hide the answer that is tested."""
        return rpc(request=request, retry=None, timeout=WITHIN)

    @contextlib.contextmanager
    def refuses(self, error: type[GoogleAPICallError], *, naming: str = "") -> Iterator[None]:
        """Expect `error`, and of our own server that its message names what was wrong.

        Google documents its codes but not its wording, so the wording is asked of ours alone.
        """
        with pytest.raises(error) as caught:
            yield
        if self.kind == "embedded":
            assert naming.lower() in str(caught.value.message).lower()

    def create_topic(self, **settings: object) -> str:
        made = Topic({"name": self.topic_name(), **settings})
        return self.call(self.publisher.create_topic, made).name

    def get_topic(self, topic: str) -> Topic:
        return self.call(self.publisher.get_topic, GetTopicRequest(topic=topic))

    def create_subscription(self, topic: str, **settings: object) -> str:
        made = Subscription({"name": self.subscription_name(), "topic": topic, **settings})
        return self.call(self.subscriber.create_subscription, made).name

    def get_subscription(self, subscription: str) -> Subscription:
        request = GetSubscriptionRequest(subscription=subscription)
        return self.call(self.subscriber.get_subscription, request)

    def create_pair(self, **settings: object) -> tuple[str, str]:
        """Make a topic, and a subscription to it with these settings."""
        topic = self.create_topic()
        return topic, self.create_subscription(topic, **settings)

    def publish(self, topic: str, *messages: str | PubsubMessage) -> list[str]:
        """Publish in one request; a string is a message with only that data."""
        made = [PubsubMessage(data=m.encode()) if isinstance(m, str) else m for m in messages]
        request = PublishRequest(topic=topic, messages=made)
        return list(self.call(self.publisher.publish, request).message_ids)

    def pull(self, subscription: str, max_messages: int = 1_000) -> list[ReceivedMessage]:
        """Make one Pull, which may wait for a message."""
        request = PullRequest(subscription=subscription, max_messages=max_messages)
        return list(self.call(self.subscriber.pull, request).received_messages)

    def pull_now(self, subscription: str, max_messages: int = 1_000) -> list[ReceivedMessage]:
        """Make one Pull that does not wait: what could be delivered at this moment."""
        request = PullRequest(
            subscription=subscription, max_messages=max_messages, return_immediately=True
        )
        response: PullResponse = self._pull(request, timeout=WITHIN)
        return list(response.received_messages)

    def start_pull(
        self, subscription: str, max_messages: int = 1_000
    ) -> "grpc.Future[PullResponse]":
        """Begin a Pull and come back at once, while it waits."""
        request = PullRequest(subscription=subscription, max_messages=max_messages)
        return self._pull.future(request, timeout=WITHIN)

    def receive(self, subscription: str, count: int) -> list[ReceivedMessage]:
        """Pull until `count` deliveries are here: one Pull may answer with fewer than there are."""
        received: list[ReceivedMessage] = []
        ends_at = time.monotonic() + WITHIN
        while len(received) < count:
            assert time.monotonic() < ends_at, f"{len(received)} of {count} deliveries came"
            received += self.pull(subscription)
        return received

    def acknowledge(self, subscription: str, *received: ReceivedMessage) -> None:
        request = AcknowledgeRequest(
            subscription=subscription, ack_ids=[m.ack_id for m in received]
        )
        self.call(self.subscriber.acknowledge, request)

    def modify_ack_deadline(
        self, subscription: str, *received: ReceivedMessage, seconds: int
    ) -> None:
        request = ModifyAckDeadlineRequest(
            subscription=subscription,
            ack_ids=[m.ack_id for m in received],
            ack_deadline_seconds=seconds,
        )
        self.call(self.subscriber.modify_ack_deadline, request)

    def nack(self, subscription: str, *received: ReceivedMessage) -> None:
        self.modify_ack_deadline(subscription, *received, seconds=0)

    def seek(self, subscription: str, **target: object) -> None:
        self.call(self.subscriber.seek, SeekRequest({"subscription": subscription, **target}))

    def stream(self, subscription: str, **first: object) -> Stream:
        """Open a StreamingPull; `first` adds to, or replaces, what its first request says."""
        opening = {
            "subscription": subscription,
            "stream_ack_deadline_seconds": 10,
            "protocol_version": 1,
            **first,
        }
        return Stream(self.channel, opening, heartbeats=self.kind == "embedded")


def texts(received: list[ReceivedMessage]) -> list[str]:
    """The data of these deliveries, in their order."""
    return [delivery.message.data.decode() for delivery in received]


def moment(timestamp: object) -> datetime:
    """A time in a message as what it is: its annotation says otherwise."""
    assert isinstance(timestamp, datetime)
    return timestamp

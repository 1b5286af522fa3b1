"""A client that costs as little as possible: raw gRPC, bytes in and out."""

from __future__ import annotations

import contextlib
import itertools
import queue
import time
from collections.abc import Iterator
from typing import Self

import grpc

from pubsub_aio._wire import schema

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_names = itertools.count(1)


class Load:
    """Topics, subscriptions and traffic on one server."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def _call(self, rpc: str, request: schema.Message) -> bytes:
        return self._unary(rpc)(request.SerializeToString(), timeout=60)

    def _unary(self, rpc: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        return self._channel.unary_unary(f"/google.pubsub.v1.{rpc}")

    def create(self) -> tuple[str, str]:
        """A new topic and a subscription to it."""
        number = next(_names)
        topic = f"projects/bench/topics/topic-{number}"
        subscription = f"projects/bench/subscriptions/subscription-{number}"
        self._call("Publisher/CreateTopic", schema.Topic(name=topic))
        made = schema.Subscription(name=subscription, topic=topic, ack_deadline_seconds=600)
        self._call("Subscriber/CreateSubscription", made)
        return topic, subscription

    def delete(self, topic: str, subscription: str) -> None:
        """Delete both."""
        gone = schema.DeleteSubscriptionRequest(subscription=subscription)
        self._call("Subscriber/DeleteSubscription", gone)
        self._call("Publisher/DeleteTopic", schema.DeleteTopicRequest(topic=topic))

    def publish(self, topic: str, count: int, *, batch: int = 1_000, in_flight: int = 4) -> float:
        """Publish messages of 100 bytes with an attribute; returns the seconds it took."""
        message = schema.PubsubMessage(data=b"x" * 100, attributes={"key": "value"})
        full = schema.PublishRequest(topic=topic, messages=[message] * batch).SerializeToString()
        call = self._unary("Publisher/Publish")
        waiting: list[grpc.Future[bytes]] = []
        began = time.perf_counter()
        for _ in range(count // batch):
            waiting.append(call.future(full, timeout=60))
            if len(waiting) == in_flight:
                waiting.pop(0).result()
        for future in waiting:
            future.result()
        return time.perf_counter() - began

    def drain(self, subscription: str, count: int) -> float:
        """Receive on one stream and acknowledge; returns seconds from the first to the last."""
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        opening = schema.StreamingPullRequest(
            subscription=subscription, stream_ack_deadline_seconds=600
        )
        requests.put(opening.SerializeToString())
        open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull"
        )
        stream = open_stream(_until_none(requests), timeout=600)
        received, began = 0, 0.0
        for data in stream:
            if not began:
                began = time.perf_counter()
            response = schema.StreamingPullResponse.FromString(data)
            ids = [message.ack_id for message in response.received_messages]
            if ids:
                requests.put(schema.StreamingPullRequest(ack_ids=ids).SerializeToString())
            received += len(ids)
            if received >= count:
                break
        # The stream answers an end of requests once it has heeded all of them.
        requests.put(None)
        for _ in stream:
            pass
        return time.perf_counter() - began

    def pull_all(self, subscription: str, count: int, *, batch: int) -> None:
        """Receive by Pull and acknowledge by Acknowledge."""
        received = 0
        while received < count:
            asked = schema.PullRequest(subscription=subscription, max_messages=batch)
            reply = schema.PullResponse.FromString(self._call("Subscriber/Pull", asked))
            ids = [message.ack_id for message in reply.received_messages]
            acked = schema.AcknowledgeRequest(subscription=subscription, ack_ids=ids)
            self._call("Subscriber/Acknowledge", acked)
            received += len(ids)


@contextlib.contextmanager
def traffic(load: Load) -> Iterator[tuple[str, str]]:
    """A topic and a subscription for a while."""
    topic, subscription = load.create()
    try:
        yield topic, subscription
    finally:
        load.delete(topic, subscription)


def _until_none(requests: queue.SimpleQueue[bytes | None]) -> Iterator[bytes]:
    while (request := requests.get()) is not None:
        yield request

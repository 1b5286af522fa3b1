"""Retry policies: how long a nacked or expired message stays away."""

from datetime import timedelta

import pytest
from google.api_core.exceptions import InvalidArgument
from google.pubsub_v1 import (
    PubsubMessage,
    RetryPolicy,
    Subscription,
    UpdateSubscriptionRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts


def backoff(minimum: float, maximum: float) -> dict[str, timedelta]:
    return {
        "minimum_backoff": timedelta(seconds=minimum),
        "maximum_backoff": timedelta(seconds=maximum),
    }


@google_falls_short("redelivers at once")
def test_retry_policy_delays_redelivery(server: Server) -> None:
    topic, subscription = server.create_pair(retry_policy=backoff(15, 15))
    server.publish(topic, "a")
    server.nack(subscription, *server.pull(subscription))
    assert server.pull_now(subscription) == []
    server.let_time_pass(14)
    assert server.pull_now(subscription) == []
    server.let_time_pass(2)

    assert texts(server.pull_now(subscription)) == ["a"]


@google_falls_short("redelivers at once")
def test_retry_policy_delays_redelivery_after_an_expired_deadline(server: Server) -> None:
    topic, subscription = server.create_pair(retry_policy=backoff(15, 15))
    server.publish(topic, "a")
    server.modify_ack_deadline(subscription, *server.pull(subscription), seconds=1)
    server.let_time_pass(2)
    assert server.pull_now(subscription) == []
    server.let_time_pass(15)

    assert texts(server.pull_now(subscription)) == ["a"]


@google_falls_short("redelivers at once")
def test_retry_policy_delays_redelivery_on_a_stream(server: Server) -> None:
    topic, subscription = server.create_pair(retry_policy=backoff(15, 15))
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        stream.nack(*stream.messages(1))
        assert stream.settle() == []
        server.let_time_pass(14)
        assert stream.settle() == []
        server.let_time_pass(2)

        assert texts(stream.messages(1)) == ["a"]


@google_falls_short("redelivers at once")
def test_retry_policy_delays_only_the_message_that_failed(server: Server) -> None:
    topic, subscription = server.create_pair(retry_policy=backoff(15, 15))
    server.publish(topic, "failed")
    server.nack(subscription, *server.pull(subscription))
    server.publish(topic, "fresh")

    assert texts(server.pull_now(subscription)) == ["fresh"]


@google_falls_short("redelivers at once")
def test_retry_policy_delays_the_whole_ordering_key(server: Server) -> None:
    topic, subscription = server.create_pair(
        retry_policy=backoff(15, 15), enable_message_ordering=True
    )
    server.publish(
        topic, *(PubsubMessage(data=text.encode(), ordering_key="k") for text in ("0", "1"))
    )
    server.nack(subscription, *server.pull(subscription, max_messages=1))
    assert server.pull_now(subscription) == []
    server.let_time_pass(14)
    assert server.pull_now(subscription) == []
    server.let_time_pass(2)

    assert texts(server.receive(subscription, 2)) == ["0", "1"]


def test_retry_policy_without_backoff_redelivers_at_once(server: Server) -> None:
    topic, subscription = server.create_pair(retry_policy=backoff(0, 0))
    server.publish(topic, "a")
    server.nack(subscription, *server.pull(subscription))

    assert texts(server.pull_now(subscription)) == ["a"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param({}, backoff(10, 600), id="nothing"),
        pytest.param({"minimum_backoff": timedelta(seconds=5)}, backoff(5, 600), id="a minimum"),
        pytest.param({"maximum_backoff": timedelta(seconds=50)}, backoff(10, 50), id="a maximum"),
        pytest.param(backoff(0, 0), backoff(0, 0), id="the lower bound"),
        pytest.param(backoff(600, 600), backoff(600, 600), id="the upper bound"),
        pytest.param(backoff(0.5, 1.5), backoff(0.5, 1.5), id="parts of seconds"),
    ],
)
def test_retry_policy_defaults_and_bounds(
    server: Server, given: dict[str, timedelta], kept: dict[str, timedelta]
) -> None:
    _, subscription = server.create_pair(retry_policy=given)

    assert server.get_subscription(subscription).retry_policy == RetryPolicy(kept)


@pytest.mark.parametrize(
    ("policy", "naming"),
    [
        (backoff(-1, 600), "minimum_backoff"),
        (backoff(601, 601), "minimum_backoff"),
        (backoff(10, 601), "maximum_backoff"),
        (backoff(20, 10), "maximum_backoff"),
    ],
)
def test_retry_policy_out_of_bounds_is_invalid_argument(
    server: Server, policy: dict[str, timedelta], naming: str
) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming=naming):
        server.create_subscription(topic, retry_policy=policy)
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, retry_policy=policy),
        update_mask={"paths": ["retry_policy"]},
    )
    with server.refuses(InvalidArgument, naming=naming):
        server.call(server.subscriber.update_subscription, request)
    assert "retry_policy" not in server.get_subscription(subscription)

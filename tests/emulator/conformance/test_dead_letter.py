"""Dead letters: counted deliveries, and where messages go when they were too many."""

from datetime import datetime, timedelta

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1 import (
    PubsubMessage,
    ReceivedMessage,
    Subscription,
    UpdateSubscriptionRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, moment, texts

SOURCE = "CloudPubSubDeadLetterSource"


def create(server: Server, **settings: object) -> tuple[str, str, str]:
    """Make a topic, a subscription that gives up after 5 deliveries, and one to dead letters."""
    dead_letters, heap = server.create_pair()
    topic, subscription = server.create_pair(
        dead_letter_policy={"dead_letter_topic": dead_letters, "max_delivery_attempts": 5},
        **settings,
    )
    return topic, subscription, heap


def nack_five_times(server: Server, subscription: str) -> ReceivedMessage:
    attempts: list[ReceivedMessage] = []
    for _ in range(5):
        attempts += server.pull(subscription)
        server.nack(subscription, attempts[-1])
    assert [delivery.delivery_attempt for delivery in attempts] == [1, 2, 3, 4, 5]
    return attempts[-1]


def test_dead_letter_after_max_attempts_with_source_attributes(server: Server) -> None:
    topic, subscription, heap = create(server)
    server.publish(topic, PubsubMessage(data=b"a", attributes={"k": "v"}))
    source = nack_five_times(server, subscription).message
    assert server.pull_now(subscription) == []
    (delivery,) = server.pull(heap)
    dead = delivery.message
    published = dead.attributes.pop(f"{SOURCE}TopicPublishTime")

    assert dead.data == b"a"
    assert dict(dead.attributes) == {
        "k": "v",
        f"{SOURCE}DeliveryCount": "5",
        f"{SOURCE}Subscription": subscription.rpartition("/")[2],
        f"{SOURCE}SubscriptionProject": server.project,
    }
    difference = datetime.fromisoformat(published) - moment(source.publish_time)
    assert abs(difference) < timedelta(milliseconds=1)
    assert dead.message_id != source.message_id


def test_dead_letter_leaves_its_subscription(server: Server) -> None:
    topic, subscription, heap = create(server)
    server.publish(topic, "a")
    nack_five_times(server, subscription)

    assert server.pull_now(subscription) == []
    assert texts(server.pull(heap)) == ["a"]
    assert server.pull_now(heap) == []


def test_dead_letter_counts_expired_deadlines(server: Server) -> None:
    topic, subscription, heap = create(server)
    server.publish(topic, "a")
    for attempt in range(1, 6):
        (delivery,) = server.pull(subscription)
        assert delivery.delivery_attempt == attempt
        server.modify_ack_deadline(subscription, delivery, seconds=1)
        server.let_time_pass(1.5)

    assert server.pull_now(subscription) == []
    assert texts(server.pull(heap)) == ["a"]


def test_acked_message_is_no_dead_letter(server: Server) -> None:
    topic, subscription, heap = create(server)
    server.publish(topic, "a")
    for _ in range(4):
        server.nack(subscription, *server.pull(subscription))
    server.acknowledge(subscription, *server.pull(subscription))

    assert server.pull_now(subscription) == []
    assert server.pull_now(heap) == []


@google_falls_short("goes on to the next message of a key before the nacked one is done")
def test_dead_letter_makes_way_for_the_next_of_its_ordering_key(server: Server) -> None:
    topic, subscription, heap = create(server, enable_message_ordering=True)
    server.publish(
        topic, *(PubsubMessage(data=text.encode(), ordering_key="k") for text in ("0", "1"))
    )
    for attempt in range(1, 6):
        (delivery,) = server.pull(subscription, max_messages=1)
        assert (delivery.message.data, delivery.delivery_attempt) == (b"0", attempt)
        server.nack(subscription, delivery)
    (following,) = server.pull(subscription)

    assert (following.message.data, following.delivery_attempt) == (b"1", 1)
    assert texts(server.pull(heap)) == ["0"]


def test_delivery_attempt_counts_only_with_policy(server: Server) -> None:
    topic, without = server.create_pair()
    with_policy = server.create_subscription(topic, dead_letter_policy={"dead_letter_topic": topic})
    server.publish(topic, "a")
    counted: dict[str, list[int]] = {without: [], with_policy: []}
    for _ in range(3):
        for subscription, attempts in counted.items():
            (delivery,) = server.pull(subscription)
            attempts.append(delivery.delivery_attempt)
            server.nack(subscription, delivery)

    assert counted == {without: [0, 0, 0], with_policy: [1, 2, 3]}


@google_falls_short("counts with a retry policy as well")
def test_delivery_attempt_does_not_count_with_a_retry_policy_alone(server: Server) -> None:
    topic, subscription = server.create_pair(
        retry_policy={"minimum_backoff": timedelta(0), "maximum_backoff": timedelta(0)}
    )
    server.publish(topic, "a")
    server.nack(subscription, *server.pull(subscription))

    assert server.pull(subscription)[0].delivery_attempt == 0


def test_delivery_attempt_is_told_on_streams(server: Server) -> None:
    topic, subscription, heap = create(server)
    server.publish(topic, "a")
    attempts: list[int] = []
    with server.stream(subscription) as stream:
        for _ in range(5):
            (delivery,) = stream.messages(1)
            attempts.append(delivery.delivery_attempt)
            stream.nack(delivery)
        stream.settle()

    assert attempts == [1, 2, 3, 4, 5]
    assert texts(server.pull(heap)) == ["a"]


def test_dead_letter_default_is_5_attempts(server: Server) -> None:
    topic = server.create_topic()
    subscription = server.create_subscription(
        topic, dead_letter_policy={"dead_letter_topic": topic}
    )
    policy = server.get_subscription(subscription).dead_letter_policy

    assert policy.dead_letter_topic == topic
    assert policy.max_delivery_attempts == 5


@pytest.mark.parametrize("attempts", [5, 100])
def test_dead_letter_attempts_in_bounds_are_kept(server: Server, attempts: int) -> None:
    topic = server.create_topic()
    policy = {"dead_letter_topic": topic, "max_delivery_attempts": attempts}
    subscription = server.create_subscription(topic, dead_letter_policy=policy)
    kept = server.get_subscription(subscription).dead_letter_policy

    assert kept.max_delivery_attempts == attempts


@google_falls_short("answers OUT_OF_RANGE, which Pub/Sub does not document")
@pytest.mark.parametrize("attempts", [-1, 1, 4, 101])
def test_dead_letter_bounds_and_default(server: Server, attempts: int) -> None:
    topic, subscription = server.create_pair()
    policy = {"dead_letter_topic": topic, "max_delivery_attempts": attempts}

    with server.refuses(InvalidArgument, naming="max_delivery_attempts"):
        server.create_subscription(topic, dead_letter_policy=policy)
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, dead_letter_policy=policy),
        update_mask={"paths": ["dead_letter_policy"]},
    )
    with server.refuses(InvalidArgument, naming="max_delivery_attempts"):
        server.call(server.subscriber.update_subscription, request)
    assert "dead_letter_policy" not in server.get_subscription(subscription)


def test_dead_letter_topic_must_exist(server: Server) -> None:
    topic = server.create_topic()

    with server.refuses(NotFound):
        server.create_subscription(
            topic, dead_letter_policy={"dead_letter_topic": server.topic_name()}
        )


def test_dead_letter_policy_can_be_added_later(server: Server) -> None:
    dead_letters, heap = server.create_pair()
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    request = UpdateSubscriptionRequest(
        subscription=Subscription(
            name=subscription, dead_letter_policy={"dead_letter_topic": dead_letters}
        ),
        update_mask={"paths": ["dead_letter_policy"]},
    )
    server.call(server.subscriber.update_subscription, request)
    nack_five_times(server, subscription)

    assert server.pull_now(subscription) == []
    assert texts(server.pull(heap)) == ["a"]

"""Single message transforms of subscriptions: what is delivered, filtered out, or fails."""

import pytest
from google.pubsub_v1 import PubsubMessage, Subscription, UpdateSubscriptionRequest

from tests.emulator.conformance.marks import embedded_only, google_falls_short
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.test_transforms import (
    EXCLAIM,
    FAIL,
    NO_DROPS,
    SHOUT,
    runs_no_transforms,
    udf,
)

FAIL_LOUD = udf("if (message.data == 'bad!') throw 'not this'; return message;", name="failLoud")


def keyed(*data: str) -> list[PubsubMessage]:
    """Messages of one ordering key."""
    return [PubsubMessage(data=text.encode(), ordering_key="k") for text in data]


@runs_no_transforms
def test_smt_on_subscription_can_filter(server: Server) -> None:
    topic, subscription = server.create_pair(message_transforms=[NO_DROPS])
    server.publish(topic, "drop 1", "a", "drop 2", "b")
    received = server.receive(subscription, 2)
    assert texts(received) == ["a", "b"]

    server.acknowledge(subscription, *received)
    server.let_time_pass(11)
    assert server.pull_now(subscription) == []


@runs_no_transforms
def test_smt_on_subscription_changes_only_what_it_delivers(server: Server) -> None:
    topic, subscription = server.create_pair(message_transforms=[SHOUT, EXCLAIM])
    other = server.create_subscription(topic)
    (message_id,) = server.publish(topic, "a")
    (delivery,) = server.receive(subscription, 1)

    assert (delivery.message.data, delivery.message.message_id) == (b"A!", message_id)
    assert texts(server.receive(other, 1)) == ["a"]


@runs_no_transforms
def test_smt_on_subscription_is_applied_after_the_filter(server: Server) -> None:
    relabel = udf("message.attributes.kind = 'b'; return message;")
    topic, subscription = server.create_pair(
        filter='attributes.kind = "a"', message_transforms=[relabel]
    )
    server.publish(topic, PubsubMessage(data=b"1", attributes={"kind": "a"}))
    server.publish(topic, PubsubMessage(data=b"2", attributes={"kind": "b"}))
    (delivery,) = server.receive(subscription, 1)

    assert (delivery.message.data, delivery.message.attributes["kind"]) == (b"1", "b")
    assert server.pull_now(subscription) == []


@runs_no_transforms
def test_smt_on_subscription_is_applied_on_a_stream(server: Server) -> None:
    topic, subscription = server.create_pair(message_transforms=[NO_DROPS, SHOUT])
    with server.stream(subscription) as stream:
        server.publish(topic, "a", "drop", "b")
        received = stream.messages(2)
        stream.acknowledge(*received)
        assert stream.settle() == []

    assert texts(received) == ["A", "B"]
    assert server.pull_now(subscription) == []


@runs_no_transforms
def test_smt_on_subscription_is_applied_again_to_a_redelivery(server: Server) -> None:
    topic, subscription = server.create_pair(message_transforms=[SHOUT])
    server.publish(topic, "a")
    (first,) = server.receive(subscription, 1)
    server.nack(subscription, first)
    (second,) = server.receive(subscription, 1)
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, message_transforms=[EXCLAIM]),
        update_mask={"paths": ["message_transforms"]},
    )
    server.call(server.subscriber.update_subscription, request)
    server.nack(subscription, second)

    assert texts([first, second, *server.receive(subscription, 1)]) == ["A", "A", "a!"]


@runs_no_transforms
def test_smt_on_subscription_that_fails_is_a_nack(server: Server) -> None:
    dead_letters, heap = server.create_pair()
    topic, subscription = server.create_pair(
        message_transforms=[EXCLAIM, FAIL_LOUD],
        dead_letter_policy={"dead_letter_topic": dead_letters, "max_delivery_attempts": 5},
    )
    server.publish(topic, "bad", "good")
    received = server.receive(subscription, 1)
    server.acknowledge(subscription, *received)
    for _ in range(5):
        server.let_time_pass(1)
        received += server.pull_now(subscription)

    assert texts(received) == ["good!"]
    (dead,) = server.receive(heap, 1)
    assert dead.message.data == b"bad"
    assert dead.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"


@embedded_only("waits in virtual time")
def test_smt_on_subscription_that_fails_waits_as_the_retry_policy_says(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_transforms=[FAIL],
        retry_policy={"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 1}},
    )
    server.publish(topic, "bad")
    for _ in range(5):
        assert server.pull_now(subscription) == []
        server.let_time_pass(1)
    assert server.pull_now(subscription) == []
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription), update_mask={"paths": ["message_transforms"]}
    )
    server.call(server.subscriber.update_subscription, request)

    server.let_time_pass(0.9)
    assert server.pull_now(subscription) == []
    server.let_time_pass(0.1)
    assert texts(server.pull_now(subscription)) == ["bad"]


@embedded_only("waits in virtual time")
def test_smt_on_subscription_that_fails_comes_again_ever_later(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_transforms=[FAIL], enable_exactly_once_delivery=True
    )
    server.publish(topic, "bad", "good")
    (good,) = server.receive(subscription, 1)
    server.acknowledge(subscription, good)
    for pause in (0.1, 0.2, 0.4, 0.8):
        server.let_time_pass(pause)
        assert server.pull_now(subscription) == []
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription), update_mask={"paths": ["message_transforms"]}
    )
    server.call(server.subscriber.update_subscription, request)

    server.let_time_pass(1.59)
    assert server.pull_now(subscription) == []
    server.let_time_pass(0.01)
    assert texts(server.pull_now(subscription)) == ["bad"]


@google_falls_short("stores transforms and does not run them", hangs=True)
def test_smt_on_ordered_subscription_keeps_order_around_what_it_filters(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_transforms=[NO_DROPS],
        enable_message_ordering=True,
        enable_exactly_once_delivery=True,
    )
    server.publish(topic, *keyed("drop 1", "a", "drop 2", "b", "drop 3"))
    received = server.receive(subscription, 2)
    server.acknowledge(subscription, received[0])
    server.nack(subscription, received[1])
    again = server.receive(subscription, 1)
    server.acknowledge(subscription, *again)
    server.let_time_pass(11)

    assert texts(received + again) == ["a", "b", "b"]
    assert server.pull_now(subscription) == []


@embedded_only("waits in virtual time")
def test_smt_that_fails_holds_up_the_rest_of_its_ordering_key(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_transforms=[FAIL], enable_message_ordering=True
    )
    server.publish(topic, *keyed("a", "bad", "b"), "other")
    first, other = server.receive(subscription, 2)
    assert texts([first, other]) == ["a", "other"]
    server.acknowledge(subscription, other)

    server.let_time_pass(0.1)
    assert server.pull_now(subscription) == []
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription), update_mask={"paths": ["message_transforms"]}
    )
    server.call(server.subscriber.update_subscription, request)
    server.let_time_pass(10)
    assert texts(server.receive(subscription, 3)) == ["a", "bad", "b"]


@runs_no_transforms
@pytest.mark.parametrize("size", [2_000_000, 9_000_000])
def test_smt_of_large_messages_makes_responses_that_clients_take(server: Server, size: int) -> None:
    grow = udf(f"message.data += 'x'.repeat({size} - message.data.length); return message;")
    topic, subscription = server.create_pair(message_transforms=[grow])
    server.publish(topic, "a", "b", "c")
    sizes: list[int] = []
    while sum(sizes) < 3:
        received = server.pull(subscription)
        assert {len(delivery.message.data) for delivery in received} == {size}
        server.acknowledge(subscription, *received)
        sizes.append(len(received))

    assert sizes == [1, 1, 1]


@embedded_only("keeps no limit of a response's size")
def test_smt_what_does_not_fit_into_a_response_was_not_delivered(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_transforms=[EXCLAIM],
        dead_letter_policy={"dead_letter_topic": server.create_topic()},
    )
    for text in "abc":
        server.publish(topic, text * 2_000_000)
    received = server.receive(subscription, 3)

    assert [delivery.delivery_attempt for delivery in received] == [1, 1, 1]


@google_falls_short("stores transforms and does not run them", hangs=True)
def test_smt_filtered_messages_take_no_room_of_flow_control(server: Server) -> None:
    topic, subscription = server.create_pair(message_transforms=[NO_DROPS])
    server.publish(topic, *(f"drop {number}" for number in range(5)), "a", "b", "c")
    with server.stream(subscription, max_outstanding_messages=2) as stream:
        received = stream.messages(2)
        assert stream.settle() == []
        stream.acknowledge(*received)
        received += stream.messages(1)

    assert texts(received) == ["a", "b", "c"]

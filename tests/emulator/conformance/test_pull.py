"""Unary Pull, Acknowledge and ModifyAckDeadline."""

import concurrent.futures

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1 import PullResponse, ReceivedMessage

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts


def deliver_one(server: Server, **settings: object) -> tuple[str, ReceivedMessage]:
    """Make a subscription whose one message is outstanding."""
    topic, subscription = server.create_pair(**settings)
    server.publish(topic, "a")
    (delivery,) = server.pull(subscription)
    return subscription, delivery


def test_pull_waits_for_a_message(server: Server) -> None:
    topic, subscription = server.create_pair()
    waiting = server.start_pull(subscription)
    assert not waiting.done()
    server.publish(topic, "a")
    response: PullResponse = waiting.result()

    assert texts(list(response.received_messages)) == ["a"]


def test_pull_gives_a_message_to_one_of_two_that_wait(server: Server) -> None:
    topic, subscription = server.create_pair()
    waiting = [server.start_pull(subscription, max_messages=1) for _ in range(2)]
    server.publish(topic, "a")
    server.publish(topic, "b")
    responses: list[PullResponse] = [pull.result() for pull in waiting]

    assert sorted(text for r in responses for text in texts(list(r.received_messages))) == [
        "a",
        "b",
    ]


def test_pull_returning_immediately_does_not_wait(server: Server) -> None:
    topic, subscription = server.create_pair()

    assert server.pull_now(subscription) == []
    server.publish(topic, "a")
    assert texts(server.pull_now(subscription)) == ["a"]


def test_pull_gives_at_most_max_messages(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *"abcde")
    first = server.pull(subscription, max_messages=2)
    rest = server.receive(subscription, 5 - len(first))

    assert 1 <= len(first) <= 2
    assert sorted(texts(first + rest)) == ["a", "b", "c", "d", "e"]


def test_pull_max_messages_zero_is_invalid_argument(server: Server) -> None:
    _, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="max_messages"):
        server.pull(subscription, max_messages=0)


@google_falls_short("waits for messages", hangs=True)
def test_pull_max_messages_below_zero_is_invalid_argument(server: Server) -> None:
    _, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="max_messages"):
        server.pull(subscription, max_messages=-1)


def test_unknown_subscription_is_not_found(server: Server) -> None:
    _, delivery = deliver_one(server)
    unknown = server.subscription_name()

    with server.refuses(NotFound):
        server.pull(unknown)
    with server.refuses(NotFound):
        server.acknowledge(unknown, delivery)
    with server.refuses(NotFound):
        server.modify_ack_deadline(unknown, delivery, seconds=10)


def test_malformed_subscription_is_invalid_argument(server: Server) -> None:
    _, delivery = deliver_one(server)

    with server.refuses(InvalidArgument, naming="subscription"):
        server.pull("orders")
    with server.refuses(InvalidArgument, naming="subscription"):
        server.acknowledge("orders", delivery)
    with server.refuses(InvalidArgument, naming="subscription"):
        server.modify_ack_deadline("orders", delivery, seconds=10)


def test_outstanding_message_is_not_delivered_again(server: Server) -> None:
    subscription, _ = deliver_one(server)

    assert server.pull_now(subscription) == []


def test_acked_message_is_gone_and_double_ack_is_ok(server: Server) -> None:
    subscription, delivery = deliver_one(server)
    server.modify_ack_deadline(subscription, delivery, seconds=1)
    server.acknowledge(subscription, delivery)
    server.acknowledge(subscription, delivery)
    server.let_time_pass(2)

    assert server.pull_now(subscription) == []


def test_one_request_may_ack_a_message_twice(server: Server) -> None:
    subscription, delivery = deliver_one(server)
    server.acknowledge(subscription, delivery, delivery)
    server.nack(subscription, delivery)

    assert server.pull_now(subscription) == []


def test_nack_redelivers_with_new_ack_id(server: Server) -> None:
    subscription, first = deliver_one(server)
    server.nack(subscription, first)
    (second,) = server.pull(subscription)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_nack_redelivers_only_what_was_nacked(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *"abc")
    received = server.receive(subscription, 3)
    server.nack(subscription, *(d for d in received if d.message.data == b"b"))

    assert texts(server.pull_now(subscription)) == ["b"]
    assert server.pull_now(subscription) == []


def test_ack_deadline_expiry_redelivers(server: Server) -> None:
    subscription, first = deliver_one(server)
    server.let_time_pass(8)
    assert server.pull_now(subscription) == []
    server.let_time_pass(3)
    (second,) = server.pull(subscription)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_ack_deadline_is_the_subscriptions_own(server: Server) -> None:
    subscription, _ = deliver_one(server, ack_deadline_seconds=12)
    server.let_time_pass(11)
    assert server.pull_now(subscription) == []
    server.let_time_pass(2)

    assert texts(server.pull_now(subscription)) == ["a"]


def test_pulls_at_once_share_messages_once_each(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *[str(number) for number in range(200)])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pulls = [pool.submit(server.pull, subscription, 10) for _ in range(8)]
        received = [delivery for pull in pulls for delivery in pull.result()]
    received += server.receive(subscription, 200 - len(received))

    assert sorted(texts(received), key=int) == [str(number) for number in range(200)]


def test_modack_extends_lease(server: Server) -> None:
    subscription, delivery = deliver_one(server)
    server.modify_ack_deadline(subscription, delivery, seconds=12)
    server.let_time_pass(11)
    assert server.pull_now(subscription) == []
    server.let_time_pass(2)

    assert texts(server.pull_now(subscription)) == ["a"]


def test_modack_counts_from_when_it_comes(server: Server) -> None:
    subscription, delivery = deliver_one(server)
    server.let_time_pass(2)
    server.modify_ack_deadline(subscription, delivery, seconds=3)
    server.let_time_pass(2)
    assert server.pull_now(subscription) == []
    server.let_time_pass(2)

    assert texts(server.pull_now(subscription)) == ["a"]


def test_modack_shortens_lease(server: Server) -> None:
    subscription, delivery = deliver_one(server, ack_deadline_seconds=600)
    server.modify_ack_deadline(subscription, delivery, seconds=1)
    server.let_time_pass(2)

    assert texts(server.pull_now(subscription)) == ["a"]


@pytest.mark.parametrize(
    "seconds", [-1, pytest.param(601, marks=google_falls_short("takes any number of seconds"))]
)
def test_modack_out_of_range_is_invalid_argument(server: Server, seconds: int) -> None:
    subscription, delivery = deliver_one(server)

    with server.refuses(InvalidArgument, naming="ack_deadline_seconds"):
        server.modify_ack_deadline(subscription, delivery, seconds=seconds)


@pytest.mark.parametrize("seconds", [1, 600])
def test_modack_in_range_is_taken(server: Server, seconds: int) -> None:
    subscription, delivery = deliver_one(server)
    server.modify_ack_deadline(subscription, delivery, seconds=seconds)

    assert server.pull_now(subscription) == []


def test_old_ack_id_is_accepted_and_ignored(server: Server) -> None:
    subscription, old = deliver_one(server)
    server.nack(subscription, old)
    (new,) = server.pull(subscription)
    server.acknowledge(subscription, old)
    server.nack(subscription, old)
    assert server.pull_now(subscription) == []
    server.nack(subscription, new)

    assert texts(server.pull_now(subscription)) == ["a"]


def test_modack_of_an_acked_message_is_ok_and_ignored(server: Server) -> None:
    subscription, delivery = deliver_one(server)
    server.acknowledge(subscription, delivery)
    server.nack(subscription, delivery)

    assert server.pull_now(subscription) == []


@pytest.mark.parametrize("garbage", ["", "garbage", "projects/p/subscriptions/s:x"])
def test_garbage_ack_id_is_invalid_argument(server: Server, garbage: str) -> None:
    subscription, _ = deliver_one(server)
    never_issued = ReceivedMessage(ack_id=garbage)

    with server.refuses(InvalidArgument, naming="ack"):
        server.acknowledge(subscription, never_issued)
    with server.refuses(InvalidArgument, naming="ack"):
        server.modify_ack_deadline(subscription, never_issued, seconds=10)


def test_ack_id_that_was_changed_is_invalid_argument(server: Server) -> None:
    subscription, delivery = deliver_one(server)

    with server.refuses(InvalidArgument, naming="ack"):
        server.acknowledge(subscription, ReceivedMessage(ack_id=delivery.ack_id + "x"))


def test_ack_id_of_another_subscription_is_invalid_argument(server: Server) -> None:
    subscription, delivery = deliver_one(server)
    _, other = server.create_pair()

    with server.refuses(InvalidArgument, naming="ack"):
        server.acknowledge(other, delivery)
    server.nack(subscription, delivery)
    assert texts(server.pull_now(subscription)) == ["a"]


def test_empty_ack_ids_is_invalid_argument(server: Server) -> None:
    subscription, _ = deliver_one(server)

    with server.refuses(InvalidArgument, naming="ack_ids"):
        server.acknowledge(subscription)
    with server.refuses(InvalidArgument, naming="ack_ids"):
        server.modify_ack_deadline(subscription, seconds=10)


def test_ack_ids_are_new_for_every_delivery(server: Server) -> None:
    topic, one = server.create_pair()
    two = server.create_subscription(topic)
    server.publish(topic, *"abc")
    seen: list[str] = []
    for _ in range(3):
        for subscription in (one, two):
            received = server.receive(subscription, 3)
            seen += [delivery.ack_id for delivery in received]
            server.nack(subscription, *received)

    assert len(set(seen)) == 18


def test_one_request_acks_many(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *["a"] * 1_000)
    received = server.receive(subscription, 1_000)
    server.modify_ack_deadline(subscription, *received, seconds=1)
    server.acknowledge(subscription, *received)
    server.let_time_pass(2)

    assert server.pull_now(subscription) == []

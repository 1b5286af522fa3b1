"""StreamingPull: deliveries, leases, flow control, and how streams begin and end."""

import pytest
from google.pubsub_v1 import (
    DeleteSubscriptionRequest,
    DeleteTopicRequest,
    PubsubMessage,
    StreamingPullResponse,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts

SILENT = google_falls_short("says nothing before there is a message", hangs=True)
NO_HEARTBEATS = google_falls_short("does not answer heartbeats", hangs=True)


def test_stream_delivers_and_acks(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        (message_id,) = server.publish(topic, PubsubMessage(data=b"a", attributes={"k": "v"}))
        (delivery,) = stream.messages(1)
        stream.modify_ack_deadline(delivery, seconds=2)
        stream.acknowledge(delivery)
        assert stream.settle() == []
        server.let_time_pass(3)

        assert delivery.message.message_id == message_id
        assert delivery.message.data == b"a"
        assert dict(delivery.message.attributes) == {"k": "v"}
        assert stream.settle() == []


def test_stream_delivers_the_backlog(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *[str(number) for number in range(1_000)])
    with server.stream(subscription) as stream:
        received = stream.messages(1_000)

    assert sorted(texts(received), key=int) == [str(number) for number in range(1_000)]


def test_stream_first_response_carries_subscription_properties(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        first = stream.response()

    assert "subscription_properties" in first
    assert not first.subscription_properties.exactly_once_delivery_enabled
    assert not first.subscription_properties.message_ordering_enabled


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("enable_exactly_once_delivery", "exactly_once_delivery_enabled"),
        ("enable_message_ordering", "message_ordering_enabled"),
    ],
)
def test_stream_properties_are_those_of_the_subscription(
    server: Server, setting: str, told: str
) -> None:
    topic, subscription = server.create_pair(**{setting: True})
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        properties = stream.response().subscription_properties

    assert properties == StreamingPullResponse.SubscriptionProperties({told: True})


@SILENT
def test_stream_first_response_is_immediate_on_an_empty_subscription(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        first = stream.response()

    assert "subscription_properties" in first
    assert list(first.received_messages) == []


@google_falls_short("sets empty confirmations in every response")
def test_stream_confirms_nothing_without_exactly_once(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a", "b")
    with server.stream(subscription) as stream:
        response = stream.response()
        while not response.received_messages:
            response = stream.response()
        assert "acknowledge_confirmation" not in response
        assert "modify_ack_deadline_confirmation" not in response
        acked, extended = response.received_messages
        stream.acknowledge(acked)
        stream.modify_ack_deadline(extended, seconds=20)
        stream.send()
        answer = stream.response()

        assert "acknowledge_confirmation" not in answer
        assert "modify_ack_deadline_confirmation" not in answer


@NO_HEARTBEATS
def test_stream_heartbeats_are_each_answered_with_an_empty_response(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription, protocol_version=1) as stream:
        stream.response()
        for _ in range(3):
            stream.send()
        answers = [stream.response() for _ in range(3)]

    assert all(not answer.received_messages for answer in answers)
    assert all("acknowledge_confirmation" not in answer for answer in answers)
    assert all("modify_ack_deadline_confirmation" not in answer for answer in answers)


@SILENT
def test_stream_heartbeats_without_a_protocol_version_are_not_answered(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription, protocol_version=0) as stream:
        stream.response()
        stream.send()
        stream.send()
        server.publish(topic, "a")

        assert texts(list(stream.response().received_messages)) == ["a"]


def test_stream_unknown_subscription_is_not_found(server: Server) -> None:
    with server.stream(server.subscription_name()) as stream:
        assert stream.ending() == "NOT_FOUND"


@pytest.mark.parametrize("subscription", ["", "orders"])
def test_stream_malformed_subscription_is_invalid_argument(
    server: Server, subscription: str
) -> None:
    with server.stream(subscription) as stream:
        assert stream.ending() == "INVALID_ARGUMENT"
        if server.kind == "embedded":
            assert "subscription" in stream.details()


@pytest.mark.parametrize("seconds", [-1, 0, 9, 601])
def test_stream_requires_ack_deadline_between_10_and_600(server: Server, seconds: int) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription, stream_ack_deadline_seconds=seconds) as stream:
        assert stream.ending() == "INVALID_ARGUMENT"
        if server.kind == "embedded":
            assert "stream_ack_deadline_seconds" in stream.details()


@pytest.mark.parametrize("seconds", [10, 600])
def test_stream_ack_deadline_in_range_is_taken(server: Server, seconds: int) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription, stream_ack_deadline_seconds=seconds) as stream:
        assert texts(stream.messages(1)) == ["a"]


def test_stream_ack_deadline_replaces_the_subscriptions_own(server: Server) -> None:
    topic, subscription = server.create_pair(ack_deadline_seconds=600)
    server.publish(topic, "a")
    with server.stream(subscription, stream_ack_deadline_seconds=10) as stream:
        (first,) = stream.messages(1)
        server.let_time_pass(8)
        assert stream.settle() == []
        server.let_time_pass(3)
        (second,) = stream.messages(1)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_stream_ack_deadline_can_be_changed_on_the_way(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription, stream_ack_deadline_seconds=10) as stream:
        stream.send(stream_ack_deadline_seconds=12)
        stream.settle()
        server.publish(topic, "a")
        stream.messages(1)
        server.let_time_pass(11)
        assert stream.settle() == []
        server.let_time_pass(2)

        assert texts(stream.messages(1)) == ["a"]


@pytest.mark.parametrize("seconds", [9, 601])
def test_stream_ack_deadline_changed_out_of_range_is_invalid_argument(
    server: Server, seconds: int
) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.send(stream_ack_deadline_seconds=seconds)

        assert stream.ending() == "INVALID_ARGUMENT"


@google_falls_short("does not limit outstanding messages")
def test_stream_honours_max_outstanding_messages(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *"abcdef")
    with server.stream(subscription, max_outstanding_messages=2) as stream:
        held = stream.messages(2)
        assert len(held) == 2
        assert stream.settle() == []

        stream.modify_ack_deadline(held[0], seconds=60)
        assert stream.settle() == []

        stream.acknowledge(held[0])
        third = stream.messages(1)
        assert len(third) == 1
        assert stream.settle() == []

        stream.nack(held[1])
        fourth = stream.messages(1)
        assert len(fourth) == 1
        assert stream.settle() == []

        stream.acknowledge(*third, *fourth)
        rest = stream.messages(2)
        assert len(rest) == 2


@google_falls_short("does not limit outstanding messages")
def test_stream_makes_room_when_a_message_is_acked_by_a_unary_call(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *"abc")
    with server.stream(subscription, max_outstanding_messages=1) as stream:
        (first,) = stream.messages(1)
        server.acknowledge(subscription, first)
        (second,) = stream.messages(1)

        assert first.message.data != second.message.data
        assert stream.settle() == []


@google_falls_short("does not limit outstanding bytes")
def test_stream_honours_max_outstanding_bytes(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *[PubsubMessage(data=bytes(1_000)) for _ in range(6)])
    with server.stream(subscription, max_outstanding_bytes=2_500) as stream:
        # Sending stops once the limit is reached, so the message that crosses it still comes.
        held = stream.messages(3)
        assert len(held) == 3
        assert stream.settle() == []

        stream.acknowledge(*held)
        assert len(stream.messages(3)) == 3


@pytest.mark.parametrize("limit", [0, -1])
def test_stream_limits_of_0_or_less_are_none(server: Server, limit: int) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *"abcdef")
    with server.stream(
        subscription, max_outstanding_messages=limit, max_outstanding_bytes=limit
    ) as stream:
        assert sorted(texts(stream.messages(6))) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    "field",
    [
        "subscription",
        pytest.param("protocol_version", marks=google_falls_short("takes it", hangs=True)),
        pytest.param("max_outstanding_messages", marks=google_falls_short("takes it", hangs=True)),
        pytest.param("max_outstanding_bytes", marks=google_falls_short("takes it", hangs=True)),
        pytest.param("client_id", marks=google_falls_short("takes it", hangs=True)),
    ],
)
def test_stream_field_of_the_first_request_on_a_later_one_is_invalid_argument(
    server: Server, field: str
) -> None:
    _, subscription = server.create_pair()
    values: dict[str, object] = {
        "subscription": subscription,
        "protocol_version": 1,
        "max_outstanding_messages": 5,
        "max_outstanding_bytes": 5,
        "client_id": "me",
    }
    with server.stream(subscription) as stream:
        stream.send(**{field: values[field]})

        assert stream.ending() == "INVALID_ARGUMENT"
        if server.kind == "embedded":
            assert field in stream.details()


def test_stream_nack_redelivers(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (first,) = stream.messages(1)
        stream.nack(first)
        (second,) = stream.messages(1)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"ack_ids": ["garbage"]}, id="garbage ack id"),
        pytest.param(
            {"modify_deadline_ack_ids": ["garbage"], "modify_deadline_seconds": [10]},
            id="garbage ack id to modify",
        ),
        pytest.param({"modify_deadline_seconds": [10]}, id="more deadlines than ack ids"),
    ],
)
def test_stream_bad_request_is_invalid_argument(server: Server, bad: dict[str, object]) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.send(**bad)

        assert stream.ending() == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "seconds", [-1, pytest.param(601, marks=google_falls_short("takes it", hangs=True))]
)
def test_stream_modack_out_of_range_is_invalid_argument(server: Server, seconds: int) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (delivery,) = stream.messages(1)
        stream.modify_ack_deadline(delivery, seconds=seconds)

        assert stream.ending() == "INVALID_ARGUMENT"


def test_stream_fewer_deadlines_than_ack_ids_is_invalid_argument(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (delivery,) = stream.messages(1)
        stream.send(modify_deadline_ack_ids=[delivery.ack_id])

        assert stream.ending() == "INVALID_ARGUMENT"


def test_stream_first_request_may_ack_what_another_delivered(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    (delivery,) = server.pull(subscription)
    server.modify_ack_deadline(subscription, delivery, seconds=2)
    with server.stream(subscription, ack_ids=[delivery.ack_id]) as stream:
        assert stream.settle() == []
        server.let_time_pass(3)

        assert stream.settle() == []


def test_deleting_subscription_ends_stream_not_found(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.settle()
        request = DeleteSubscriptionRequest(subscription=subscription)
        server.call(server.subscriber.delete_subscription, request)

        assert stream.ending() == "NOT_FOUND"


def test_deleting_topic_leaves_its_streams(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        server.publish(topic, "a")
        (delivery,) = stream.messages(1)
        server.call(server.publisher.delete_topic, DeleteTopicRequest(topic=topic))
        stream.nack(delivery)

        assert texts(stream.messages(1)) == ["a"]


def test_two_streams_share_messages_once_each(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription) as one, server.stream(subscription) as two:
        received = one.settle() + two.settle()
        for number in range(20):
            server.publish(topic, str(number))
        while len(received) < 20:
            received += one.settle() + two.settle()

    assert sorted(texts(received), key=int) == [str(number) for number in range(20)]


def test_half_closed_stream_ends_ok_or_unavailable(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.settle()
        stream.half_close()

        assert stream.ending() in {"OK", "UNAVAILABLE"}


def test_messages_of_a_cancelled_stream_come_back_after_their_deadline(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (first,) = stream.messages(1)
    server.let_time_pass(11)
    (second,) = server.pull(subscription)

    assert second.message == first.message
    assert second.ack_id != first.ack_id

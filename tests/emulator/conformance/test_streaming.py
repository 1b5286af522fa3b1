"""StreamingPull: deliveries, leases, flow control, and how streams begin and end."""

from datetime import timedelta

import pytest
from google.pubsub_v1 import (
    DeleteSubscriptionRequest,
    DeleteTopicRequest,
    PubsubMessage,
    StreamingPullResponse,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, moment, texts
from tests.emulator.conformance.streams import gather

SILENT = google_falls_short("says nothing before there is a message", hangs=True)


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


@google_falls_short("does not limit outstanding bytes")
def test_stream_is_sent_a_message_larger_than_max_outstanding_bytes(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *[PubsubMessage(data=bytes(1_000)) for _ in range(3)])
    with server.stream(subscription, max_outstanding_bytes=10) as stream:
        for _ in range(3):
            (delivery,) = stream.messages(1)
            assert stream.settle() == []
            stream.acknowledge(delivery)


def test_stream_makes_room_when_a_deadline_expires(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription, max_outstanding_messages=1) as stream:
        (first,) = stream.messages(1)
        stream.modify_ack_deadline(first, seconds=2)
        assert stream.settle() == []
        server.let_time_pass(3)

        assert texts(stream.messages(1)) == ["a"]


def test_stream_makes_room_when_a_message_is_sought_away(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription, max_outstanding_messages=1) as stream:
        (first,) = stream.messages(1)
        server.seek(
            subscription, time=moment(first.message.publish_time) + timedelta(milliseconds=10)
        )
        server.let_time_pass(0.1)
        server.publish(topic, "b")

        assert texts(stream.messages(1)) == ["b"]


@pytest.mark.parametrize("limit", [0, -1])
def test_stream_limits_of_0_or_less_are_none(server: Server, limit: int) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *"abcdef")
    with server.stream(
        subscription, max_outstanding_messages=limit, max_outstanding_bytes=limit
    ) as stream:
        assert sorted(texts(stream.messages(6))) == ["a", "b", "c", "d", "e", "f"]


def test_stream_nack_redelivers(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (first,) = stream.messages(1)
        stream.nack(first)
        (second,) = stream.messages(1)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


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
        assert one.settle() + two.settle() == []
        for number in range(20):
            server.publish(topic, str(number))
        received = gather(20, one, two)

    assert sorted(texts(received), key=int) == [str(number) for number in range(20)]


def test_half_closed_stream_ends_ok_or_unavailable(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.settle()
        stream.half_close()

        assert stream.ending() in {"OK", "UNAVAILABLE"}


def test_messages_of_a_half_closed_stream_come_back_after_their_deadline(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (first,) = stream.messages(1)
        stream.modify_ack_deadline(first, seconds=3)
        stream.half_close()
        stream.ending()
    server.let_time_pass(4)
    (second,) = server.pull(subscription)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


@google_falls_short("hands messages to a cancelled stream", hangs=True)
def test_messages_of_a_cancelled_stream_come_back_after_their_deadline(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (first,) = stream.messages(1)
    server.let_time_pass(11)
    again = server.pull(subscription)
    if not again:  # a server that has not heard of the cancellation yet sends it there once more
        server.let_time_pass(11)
        again = server.pull(subscription)
    (second,) = again

    assert second.message == first.message
    assert second.ack_id != first.ack_id

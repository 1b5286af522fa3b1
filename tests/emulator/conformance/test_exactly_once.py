"""Exactly-once delivery: confirmed acks, and old ack ids refused."""

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument
from google.pubsub_v1 import (
    AcknowledgeRequest,
    ModifyAckDeadlineRequest,
    PubsubMessage,
    ReceivedMessage,
    StreamingPullResponse,
    SubscriberClient,
    Subscription,
    UpdateSubscriptionRequest,
)
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.emulator.conformance.marks import embedded_only, google_falls_short
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.streams import Stream

UNCONFIRMED = google_falls_short("leaves every confirmation empty", hangs=True)
PERMANENT = "PERMANENT_FAILURE_INVALID_ACK_ID"


def deliver(server: Server, *data: str) -> tuple[str, list[ReceivedMessage]]:
    """Make an exactly-once subscription whose messages are all outstanding."""
    topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
    server.publish(topic, *data)
    return subscription, server.receive(subscription, len(data))


def acks(stream: Stream) -> StreamingPullResponse.AcknowledgeConfirmation:
    """Read on to the next confirmation of acks."""
    while "acknowledge_confirmation" not in (response := stream.response()):
        pass
    return response.acknowledge_confirmation


def modacks(stream: Stream) -> StreamingPullResponse.ModifyAckDeadlineConfirmation:
    """Read on to the next confirmation of modified deadlines."""
    while "modify_ack_deadline_confirmation" not in (response := stream.response()):
        pass
    return response.modify_ack_deadline_confirmation


@UNCONFIRMED
def test_eod_stream_properties_and_ack_confirmation(server: Server) -> None:
    topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
    with server.stream(subscription) as stream:
        assert stream.response().subscription_properties.exactly_once_delivery_enabled
        server.publish(topic, "a")
        (delivery,) = stream.messages(1)
        stream.acknowledge(delivery)

        assert acks(stream) == StreamingPullResponse.AcknowledgeConfirmation(
            ack_ids=[delivery.ack_id]
        )


@UNCONFIRMED
def test_eod_stream_modack_confirmation(server: Server) -> None:
    topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
    server.publish(topic, "a", "b")
    with server.stream(subscription) as stream:
        extended, nacked = stream.messages(2)
        stream.modify_ack_deadline(extended, seconds=20)
        assert modacks(stream) == StreamingPullResponse.ModifyAckDeadlineConfirmation(
            ack_ids=[extended.ack_id]
        )
        stream.nack(nacked)

        assert list(modacks(stream).ack_ids) == [nacked.ack_id]


@UNCONFIRMED
def test_eod_stale_ack_id_reported_invalid_on_stream(server: Server) -> None:
    topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        (stale,) = stream.messages(1)
        stream.nack(stale)
        (fresh,) = stream.messages(1)
        stream.acknowledge(stale, fresh)
        confirmed, refused = set[str](), set[str]()
        while len(confirmed | refused) < 2:
            confirmation = acks(stream)
            confirmed |= set(confirmation.ack_ids)
            refused |= set(confirmation.invalid_ack_ids)

    assert confirmed == {fresh.ack_id}
    assert refused == {stale.ack_id}


@UNCONFIRMED
def test_eod_expired_ack_id_reported_invalid_on_stream(server: Server) -> None:
    subscription, (stale,) = deliver(server, "a")
    server.let_time_pass(11)
    with server.stream(subscription) as stream:
        stream.messages(1)
        stream.acknowledge(stale)
        assert list(acks(stream).invalid_ack_ids) == [stale.ack_id]
        stream.modify_ack_deadline(stale, seconds=20)

        assert list(modacks(stream).invalid_ack_ids) == [stale.ack_id]


@UNCONFIRMED
def test_eod_ordered_ack_before_its_turn_is_reported_unordered_on_stream(server: Server) -> None:
    topic, subscription = server.create_pair(
        enable_exactly_once_delivery=True, enable_message_ordering=True
    )
    server.publish(
        topic, *(PubsubMessage(data=text.encode(), ordering_key="k") for text in ("0", "1"))
    )
    with server.stream(subscription) as stream:
        first, second = stream.messages(2)
        stream.acknowledge(second)
        assert list(acks(stream).unordered_ack_ids) == [second.ack_id]
        stream.acknowledge(first)
        assert list(acks(stream).ack_ids) == [first.ack_id]
        stream.acknowledge(second)

        assert list(acks(stream).ack_ids) == [second.ack_id]


def test_eod_unary_stale_ack_is_refused_with_error_info(server: Server) -> None:
    subscription, (stale,) = deliver(server, "a")
    server.nack(subscription, stale)
    (fresh,) = server.pull(subscription)
    request = AcknowledgeRequest(subscription=subscription, ack_ids=[stale.ack_id])
    with pytest.raises(InvalidArgument) as caught:
        server.call(server.subscriber.acknowledge, request)

    assert caught.value.reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert caught.value.domain == "pubsub.googleapis.com"
    assert caught.value.metadata == {stale.ack_id: PERMANENT}
    server.acknowledge(subscription, fresh)


@embedded_only("how many ids it names is not documented")
@pytest.mark.parametrize("rpc", ["acknowledge", "modify_ack_deadline"])
def test_eod_many_stale_ids_are_refused_whatever_trailers_a_client_takes(
    server: Server, rpc: str
) -> None:
    subscription, stale = deliver(server, *map(str, range(300)))
    server.nack(subscription, *stale[:200])
    ids = [delivery.ack_id for delivery in stale]
    address = server.address
    with grpc.insecure_channel(address) as channel:  # as Google's client has it by default
        plain = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        request = {"subscription": subscription, "ack_ids": ids}
        more = {} if rpc == "acknowledge" else {"ack_deadline_seconds": 600}
        with pytest.raises(InvalidArgument, match="send fewer"):
            getattr(plain, rpc)({**request, **more}, retry=None)
        with pytest.raises(InvalidArgument) as caught:
            getattr(plain, rpc)({**request, **more, "ack_ids": ids[120:]}, retry=None)

    assert caught.value.metadata == dict.fromkeys(ids[120:200], PERMANENT)
    if rpc == "acknowledge":  # the hundred that were good, and not before
        server.let_time_pass(11)
        assert len(server.receive(subscription, 200)) == 200


def test_eod_unary_stale_modack_is_refused_with_error_info(server: Server) -> None:
    subscription, (stale,) = deliver(server, "a")
    server.nack(subscription, stale)
    server.pull(subscription)
    request = ModifyAckDeadlineRequest(
        subscription=subscription, ack_ids=[stale.ack_id], ack_deadline_seconds=20
    )
    with pytest.raises(InvalidArgument) as caught:
        server.call(server.subscriber.modify_ack_deadline, request)

    assert caught.value.reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert caught.value.metadata == {stale.ack_id: PERMANENT}


@google_falls_short("takes the ack of an expired lease until the message is delivered again")
def test_eod_unary_ack_after_the_deadline_is_refused(server: Server) -> None:
    subscription, (delivery,) = deliver(server, "a")
    server.modify_ack_deadline(subscription, delivery, seconds=2)
    server.let_time_pass(3)
    request = AcknowledgeRequest(subscription=subscription, ack_ids=[delivery.ack_id])
    with pytest.raises(InvalidArgument) as caught:
        server.call(server.subscriber.acknowledge, request)

    assert caught.value.metadata == {delivery.ack_id: PERMANENT}
    assert texts(server.pull(subscription)) == ["a"]


def test_eod_unary_ack_does_the_good_ids_of_a_refused_request(server: Server) -> None:
    subscription, (stale, good) = deliver(server, "a", "b")
    server.nack(subscription, stale)
    server.pull(subscription)
    server.modify_ack_deadline(subscription, good, seconds=2)
    request = AcknowledgeRequest(subscription=subscription, ack_ids=[stale.ack_id, good.ack_id])
    with pytest.raises(InvalidArgument) as caught:
        server.call(server.subscriber.acknowledge, request)
    server.let_time_pass(3)

    assert caught.value.metadata == {stale.ack_id: PERMANENT}
    assert server.pull_now(subscription) == []


def test_eod_garbage_ack_id_is_invalid_argument(server: Server) -> None:
    subscription, _ = deliver(server, "a")

    with server.refuses(InvalidArgument):
        server.acknowledge(subscription, ReceivedMessage(ack_id="garbage"))


def test_eod_message_is_redelivered_only_after_its_deadline(server: Server) -> None:
    subscription, (first,) = deliver(server, "a")
    server.modify_ack_deadline(subscription, first, seconds=3)
    server.let_time_pass(1)
    assert server.pull_now(subscription) == []
    server.let_time_pass(3)
    (second,) = server.pull(subscription)

    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_eod_acked_message_is_gone(server: Server) -> None:
    subscription, (delivery,) = deliver(server, "a")
    server.modify_ack_deadline(subscription, delivery, seconds=2)
    server.acknowledge(subscription, delivery)
    server.let_time_pass(3)

    assert server.pull_now(subscription) == []


def test_eod_can_be_switched_on_and_off(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    for on in (True, False):
        request = UpdateSubscriptionRequest(
            subscription=Subscription(name=subscription, enable_exactly_once_delivery=on),
            update_mask={"paths": ["enable_exactly_once_delivery"]},
        )
        server.call(server.subscriber.update_subscription, request)
        assert server.get_subscription(subscription).enable_exactly_once_delivery == on
    (stale,) = server.pull(subscription)
    server.nack(subscription, stale)
    server.pull(subscription)

    server.acknowledge(subscription, stale)

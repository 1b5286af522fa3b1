"""What the requests of a StreamingPull may say, first and later."""

import pytest
from google.pubsub_v1 import StreamingPullResponse

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts

SILENT = google_falls_short("says nothing before there is a message", hangs=True)
NO_HEARTBEATS = google_falls_short("does not answer heartbeats", hangs=True)


@NO_HEARTBEATS
def test_stream_heartbeats_are_each_answered_with_an_empty_response(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription, protocol_version=1) as stream:
        stream.response()
        for _ in range(3):
            stream.send()

        assert [stream.response() for _ in range(3)] == [StreamingPullResponse()] * 3


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


@pytest.mark.parametrize("seconds", [9, 601])
def test_stream_ack_deadline_changed_out_of_range_is_invalid_argument(
    server: Server, seconds: int
) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.send(stream_ack_deadline_seconds=seconds)

        assert stream.ending() == "INVALID_ARGUMENT"


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

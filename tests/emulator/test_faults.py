"""Faults on demand, as the clients they happen to see them."""

import http.client
import math
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Literal, NamedTuple

import grpc
import pytest
from google.api_core.exceptions import GoogleAPICallError, InvalidArgument, ServiceUnavailable
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1 import PublishRequest, PublishResponse, PubsubMessage, StreamingPullResponse
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

from pubsub_aio.emulator import EmulatorThread, Faults, VirtualClock
from tests.emulator.conformance.rest import Rest
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.streams import WITHIN

Direction = Literal["both", "requests", "responses"]

BOTH_WAYS = pytest.mark.parametrize("permanent", [False, True], ids=["transient", "permanent"])
DIRECTIONS = pytest.mark.parametrize("direction", ["both", "requests", "responses"])
SOON = 0.5
"""Seconds after which a client gives up on a server that does not answer."""


class Rig(NamedTuple):
    """An emulator, clients of it, and a topic with two subscriptions, the second exactly-once."""

    emulator: EmulatorThread
    clock: VirtualClock
    client: Server
    rest: Rest
    topic: str
    plain: str
    exact: str

    @property
    def faults(self) -> Faults:
        return self.emulator.faults

    def start_publish(self, *, timeout: float = WITHIN) -> "grpc.Future[PublishResponse]":
        """Begin a Publish and come back at once."""
        publish = self.client.channel.unary_unary(
            "/google.pubsub.v1.Publisher/Publish",
            request_serializer=PublishRequest.serialize,
            response_deserializer=PublishResponse.deserialize,
        )
        request = PublishRequest(topic=self.topic, messages=[PubsubMessage(data=b"a")])
        return publish.future(request, timeout=timeout)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    clock = VirtualClock()
    with EmulatorThread(clock=clock) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.address)
        client = Server("embedded", emulator.address, let_time_pass=emulator.advance)
        yield Rig(
            emulator,
            clock,
            client,
            Rest(emulator.address, timeout=WITHIN),
            emulator.create_topic("orders"),
            emulator.create_subscription("plain", "orders"),
            emulator.create_subscription("exact", "orders", enable_exactly_once_delivery=True),
        )
        client.close()


# Calls


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name != "OK"])
def test_failed_call_has_the_code_and_the_message(rig: Rig, code: grpc.StatusCode) -> None:
    rig.faults.fail("GetTopic", code.name, message="out of order")
    with pytest.raises(GoogleAPICallError) as caught:
        rig.client.get_topic(rig.topic)

    assert (caught.value.grpc_status_code, caught.value.message) == (code, "out of order")


def test_failures_happen_as_often_and_in_the_order_they_were_asked_for(rig: Rig) -> None:
    rig.faults.fail("GetTopic", "ABORTED", times=2)
    rig.faults.fail("GetTopic", "INTERNAL")
    answers = [rig.rest.get(rig.topic).status for _ in range(4)]

    assert answers == [409, 409, 500, 200]


def test_failure_of_one_rpc_leaves_the_others_alone(rig: Rig) -> None:
    rig.faults.fail("DeleteTopic", "INTERNAL")

    assert rig.client.get_topic(rig.topic).name == rig.topic


@pytest.mark.parametrize("applied", [False, True])
def test_failed_call_takes_effect_only_if_asked_to(rig: Rig, applied: bool) -> None:
    rig.faults.fail("Publish", "UNAVAILABLE", applied=applied)
    with pytest.raises(ServiceUnavailable):
        rig.client.publish(rig.topic, "a")

    assert len(rig.emulator.messages()) == applied


def test_google_publisher_publishes_twice_after_a_lost_answer(rig: Rig) -> None:
    rig.faults.fail("Publish", "UNAVAILABLE", applied=True)
    publisher = pubsub_v1.PublisherClient()
    message_id = publisher.publish(rig.topic, b"a").result(timeout=WITHIN)
    publisher.stop()

    assert [message.data for message in rig.emulator.messages()] == [b"a", b"a"]
    assert rig.emulator.messages()[-1].message_id == message_id


def test_retry_delay_is_sent_as_retry_info(rig: Rig) -> None:
    rig.faults.fail("GetTopic", "RESOURCE_EXHAUSTED", retry_delay=1.5)
    with pytest.raises(GoogleAPICallError) as caught:
        rig.client.get_topic(rig.topic)

    (detail,) = caught.value.details
    assert isinstance(detail, RetryInfo)
    assert detail.retry_delay.ToMilliseconds() == 1_500


def test_failure_over_rest_has_the_http_status_and_json(rig: Rig) -> None:
    rig.faults.fail("GetTopic", "UNAVAILABLE", message="out of order", retry_delay=1.5)
    answer = rig.rest.get(rig.topic)

    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.500s"}
    error = {"code": 503, "message": "out of order", "status": "UNAVAILABLE", "details": [retry]}
    assert (answer.status, answer.body) == (503, {"error": error})


def test_failed_streaming_pull_ends_as_it_is_opened(rig: Rig) -> None:
    rig.faults.fail("StreamingPull", "PERMISSION_DENIED", message="not today")
    with rig.client.stream(rig.plain) as stream:
        assert (stream.ending(), stream.details()) == ("PERMISSION_DENIED", "not today")
    with rig.client.stream(rig.plain) as stream:
        assert stream.settle() == []


def test_delayed_call_does_nothing_until_the_emulators_clock_has_moved(rig: Rig) -> None:
    rig.faults.delay("Publish", 30)
    call = rig.start_publish()
    rig.emulator.until(lambda: rig.clock.next_at < math.inf)
    rig.emulator.advance(29)
    assert rig.emulator.messages() == []
    rig.emulator.advance(1)
    (message_id,) = call.result().message_ids

    assert [message.message_id for message in rig.emulator.messages()] == [message_id]


def test_delay_holds_for_as_many_calls_as_asked(rig: Rig) -> None:
    rig.faults.delay("GetTopic", 30, times=2)
    impatient = Rest(rig.emulator.address, timeout=SOON)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            impatient.get(rig.topic)

    assert rig.rest.get(rig.topic).status == 200


# Streams


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL"])
def test_cut_stream_ends_with_the_code_and_can_be_opened_again(rig: Rig, code: str) -> None:
    with rig.client.stream(rig.plain) as stream:
        stream.settle()
        assert rig.faults.cut_streams(rig.plain, code=code) == 1
        assert stream.ending() == code
    with rig.client.stream(rig.plain) as stream:
        assert stream.settle() == []


def test_streams_are_cut_of_one_subscription_or_of_all(rig: Rig) -> None:
    with rig.client.stream(rig.plain) as one, rig.client.stream(rig.exact) as other:
        one.settle()
        other.settle()
        assert rig.faults.cut_streams(rig.plain) == 1
        assert one.ending() == "UNAVAILABLE"
        assert other.settle() == []
        rig.emulator.until(lambda: len(rig.emulator.streams()) == 1)
        assert rig.faults.cut_streams() == 1
        assert other.ending() == "UNAVAILABLE"


def test_google_subscriber_comes_back_after_a_cut(rig: Rig) -> None:
    with pubsub_v1.SubscriberClient() as subscriber:
        pulling = subscriber.subscribe(rig.plain, callback=Message.ack)
        for data in (b"before", b"after"):
            rig.emulator.publish(rig.topic, data)
            rig.emulator.until(lambda: rig.emulator.backlog(rig.plain) == 0)
            rig.faults.cut_streams(rig.plain)
        pulling.cancel()
        pulling.result(timeout=WITHIN)


def test_stalled_responses_do_not_arrive_but_acks_count(rig: Rig) -> None:
    rig.emulator.publish(rig.topic, b"a")
    with rig.client.stream(rig.plain) as stream, rig.client.stream(rig.exact) as other:
        (first,) = stream.messages(1)
        stall = rig.faults.stall_streams(rig.plain, direction="responses")
        stream.acknowledge(first)
        rig.emulator.until(lambda: rig.emulator.backlog(rig.plain) == 0)
        message_id = rig.emulator.publish(rig.topic, b"b")
        assert texts(other.messages(2)) == ["a", "b"]
        assert {d.subscription for d in rig.emulator.message(message_id).deliveries} == {rig.exact}
        stall.resume()
        assert texts(stream.messages(1)) == ["b"]


def test_stalled_requests_are_not_heeded_but_deliveries_go_on(rig: Rig) -> None:
    message_id = rig.emulator.publish(rig.topic, b"a")
    with rig.client.stream(rig.plain) as stream:
        (first,) = stream.messages(1)
        with rig.faults.stall_streams(rig.plain, direction="requests"):
            stream.acknowledge(first)
            rig.emulator.advance(11)
            (again,) = stream.messages(1)
            assert rig.emulator.message(message_id).acks == []
        rig.emulator.until(lambda: len(rig.emulator.message(message_id).acks) == 1)
        assert not rig.emulator.message(message_id).acks[0].effective
        stream.acknowledge(again)
        assert stream.settle() == []

    assert rig.emulator.backlog(rig.plain) == 0


def test_new_streams_stall_too_until_every_stall_is_over(rig: Rig) -> None:
    message_id = rig.emulator.publish(rig.topic, b"a")
    one, another = rig.faults.stall_streams(), rig.faults.stall_streams(rig.plain)
    with rig.client.stream(rig.plain) as stream:
        rig.emulator.until(lambda: len(rig.emulator.streams()) == 1)
        one.resume()
        one.resume()
        rig.emulator.advance(5)
        assert rig.emulator.message(message_id).deliveries == []
        another.resume()
        assert texts(stream.messages(1)) == ["a"]


# Messages


def test_duplicated_messages_come_twice_each_with_an_ack_id_of_its_own(rig: Rig) -> None:
    rig.faults.duplicate(rig.plain, times=2)
    rig.client.publish(rig.topic, "a", "b", "c")
    with rig.client.stream(rig.plain) as stream:
        received = stream.messages(5) + stream.settle()

    assert sorted(texts(received)) == ["a", "a", "b", "b", "c"]
    assert len({delivery.ack_id for delivery in received}) == 5


def test_duplicate_comes_even_if_the_original_was_acked(rig: Rig) -> None:
    rig.faults.duplicate(rig.plain)
    rig.emulator.publish(rig.topic, b"a")
    rig.client.acknowledge(rig.plain, *rig.client.pull(rig.plain))

    assert texts(rig.client.pull_now(rig.plain)) == ["a"]


def test_lost_acks_are_answered_but_the_messages_come_again(rig: Rig) -> None:
    rig.faults.lose_acks(rig.plain, times=2)
    rig.client.publish(rig.topic, "a", "b", "c")
    rig.client.acknowledge(rig.plain, *rig.client.receive(rig.plain, 3))
    assert rig.emulator.backlog(rig.plain) == 2
    rig.emulator.advance(11)

    rig.client.acknowledge(rig.plain, *rig.client.receive(rig.plain, 2))
    assert rig.emulator.backlog(rig.plain) == 0


def test_acks_are_lost_on_streams_too_and_are_not_effective(rig: Rig) -> None:
    rig.faults.lose_acks(rig.plain)
    message_id = rig.emulator.publish(rig.topic, b"a")
    with rig.client.stream(rig.plain) as stream:
        stream.acknowledge(*stream.messages(1))
        assert stream.settle() == []
        assert [ack.effective for ack in rig.emulator.message(message_id).acks] == [False]
        rig.emulator.advance(11)
        assert texts(stream.messages(1)) == ["a"]


# Confirmations


@BOTH_WAYS
@pytest.mark.parametrize("settle", [Server.acknowledge, Server.nack])
def test_refused_confirmation_of_a_call_says_why_for_each_id(
    rig: Rig, settle: Callable[..., None], permanent: bool
) -> None:
    rig.client.publish(rig.topic, "a", "b")
    received = rig.client.receive(rig.exact, 2)
    rig.faults.fail_confirmations(rig.exact, times=2, permanent=permanent)
    with pytest.raises(InvalidArgument) as caught:
        settle(rig.client, rig.exact, *received)

    (detail,) = caught.value.details
    assert isinstance(detail, ErrorInfo)
    assert set(detail.metadata) == {delivery.ack_id for delivery in received}
    begins = "PERMANENT_FAILURE_INVALID_ACK_ID" if permanent else "TRANSIENT_FAILURE_"
    assert all(reason.startswith(begins) for reason in detail.metadata.values())
    assert rig.emulator.outstanding(rig.exact) == (0 if permanent else 2)


def test_refused_ack_is_on_record_and_a_retry_succeeds(rig: Rig) -> None:
    rig.faults.fail_confirmations(rig.exact)
    message_id = rig.emulator.publish(rig.topic, b"a")
    (delivery,) = rig.client.pull(rig.exact)
    with pytest.raises(InvalidArgument):
        rig.client.acknowledge(rig.exact, delivery)
    rig.client.acknowledge(rig.exact, delivery)

    assert rig.emulator.backlog(rig.exact) == 0
    assert [ack.effective for ack in rig.emulator.message(message_id).acks] == [False, True]


def test_permanently_refused_id_stays_refused(rig: Rig) -> None:
    rig.faults.fail_confirmations(rig.exact, permanent=True)
    rig.emulator.publish(rig.topic, b"a")
    (delivery,) = rig.client.pull(rig.exact)
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            rig.client.acknowledge(rig.exact, delivery)

    rig.emulator.advance(11)
    assert texts(rig.client.pull(rig.exact)) == ["a"]


@BOTH_WAYS
def test_refused_confirmation_on_a_stream_is_in_its_confirmations(
    rig: Rig, permanent: bool
) -> None:
    rig.client.publish(rig.topic, "a", "b")
    with rig.client.stream(rig.exact) as stream:
        received = stream.messages(2)
        rig.faults.fail_confirmations(rig.exact, permanent=permanent)
        stream.acknowledge(*received)
        while "acknowledge_confirmation" not in (response := stream.response()):
            pass

    refused, good = (delivery.ack_id for delivery in received)
    field = "invalid_ack_ids" if permanent else "temporary_failed_ack_ids"
    wanted = {"ack_ids": [good], field: [refused]}
    confirmation = StreamingPullResponse.AcknowledgeConfirmation(wanted)
    assert response.acknowledge_confirmation == confirmation


@BOTH_WAYS
def test_google_subscriber_retries_what_failed_for_now_and_gives_up_the_rest(
    rig: Rig, permanent: bool
) -> None:
    seen: list[str] = []
    outcomes: list[object] = []

    def settle(message: Message) -> None:
        seen.append(message.ack_id)
        if len(seen) > 1:
            return  # what was refused for good comes again, maybe before the end
        rig.faults.fail_confirmations(rig.exact, permanent=permanent)
        try:
            outcomes.append(message.ack_with_response().result(timeout=WITHIN))
        except AcknowledgeError as error:
            outcomes.append(error.error_code)
        pulling.cancel()

    rig.emulator.publish(rig.topic, b"a")
    with pubsub_v1.SubscriberClient() as subscriber:
        pulling = subscriber.subscribe(rig.exact, callback=settle)
        pulling.result(timeout=WITHIN)

    success, invalid = AcknowledgeStatus.SUCCESS, AcknowledgeStatus.INVALID_ACK_ID
    assert outcomes == [invalid if permanent else success]
    assert rig.emulator.backlog(rig.exact) == permanent


# Connections


def test_cut_connections_end_open_streams_and_clients_come_back(rig: Rig) -> None:
    with rig.client.stream(rig.plain) as stream:
        stream.settle()
        assert rig.faults.cut_connections() == 1
        assert stream.ending() == "UNAVAILABLE"

    # By the client's own retries: it may find out about the reset only now.
    assert rig.client.publisher.get_topic(topic=rig.topic).name == rig.topic


def test_cut_connections_are_only_those_that_are_open(rig: Rig) -> None:
    assert rig.rest.get(rig.topic).status == 200
    with closing(http.client.HTTPConnection(rig.emulator.address, timeout=WITHIN)) as kept_alive:
        kept_alive.request("GET", "/")
        kept_alive.getresponse().read()
        assert rig.faults.cut_connections() == 1
        with suppress(ConnectionResetError):
            assert kept_alive.sock.recv(1) == b""


def test_refused_connections_are_unavailable_while_open_ones_stay(rig: Rig) -> None:
    assert rig.client.get_topic(rig.topic).name == rig.topic
    with rig.faults.refuse_connections():
        with pytest.raises(ConnectionError):
            rig.rest.get(rig.topic)
        with rig.client.stream(rig.plain) as stream:
            assert stream.settle() == []
            rig.faults.cut_connections()
            assert stream.ending() == "UNAVAILABLE"
        with pytest.raises(ServiceUnavailable):
            rig.client.get_topic(rig.topic)

    assert rig.rest.get(rig.topic).status == 200
    grpc.channel_ready_future(rig.client.channel).result(timeout=WITHIN)
    assert rig.client.get_topic(rig.topic).name == rig.topic


@DIRECTIONS
def test_stalled_connections_do_not_answer_until_they_resume(
    rig: Rig, direction: Direction
) -> None:
    rig.client.get_topic(rig.topic)
    with rig.faults.stall_connections(direction=direction):
        with pytest.raises(grpc.RpcError) as caught:
            rig.start_publish(timeout=SOON).result()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(rig.emulator.messages()) == (direction == "responses")

    assert rig.client.get_topic(rig.topic).name == rig.topic


@DIRECTIONS
def test_stalled_rest_connections_do_not_answer_until_they_resume(
    rig: Rig, direction: Direction
) -> None:
    impatient = Rest(rig.emulator.address, timeout=SOON)
    with rig.faults.stall_connections(direction=direction), pytest.raises(TimeoutError):
        impatient.get(rig.topic)

    assert rig.rest.get(rig.topic).status == 200


# All of them


def test_clear_forgets_what_has_not_happened_and_resumes_what_stalls(rig: Rig) -> None:
    rig.faults.fail("GetTopic", "INTERNAL", times=3)
    rig.faults.delay("Publish", 1_000)
    rig.faults.duplicate(rig.plain)
    rig.faults.lose_acks(rig.plain)
    rig.faults.fail_confirmations(rig.exact)
    with (
        rig.faults.stall_streams(),
        rig.faults.stall_connections(),
        rig.faults.refuse_connections(),
    ):
        rig.faults.clear()

    assert rig.client.get_topic(rig.topic).name == rig.topic
    rig.client.publish(rig.topic, "a")
    rig.client.acknowledge(rig.exact, *rig.client.pull(rig.exact))
    with rig.client.stream(rig.plain) as stream:
        stream.acknowledge(*stream.messages(1))
        assert stream.settle() == []
    assert rig.emulator.backlog(rig.plain) == rig.emulator.backlog(rig.exact) == 0


def test_what_stalled_can_be_resumed_after_the_stop() -> None:
    with EmulatorThread() as emulator:
        faults = emulator.faults
        stalls = [faults.stall_streams(), faults.stall_connections(), faults.refuse_connections()]

    for stall in stalls:
        stall.resume()


@pytest.mark.parametrize(
    ("method", "arguments", "settings", "naming"),
    [
        ("fail", ["Publsh", "INTERNAL"], {}, "rpc 'Publsh'.* Publish,"),
        ("fail", ["Publish", "BROKEN"], {}, "code 'BROKEN'.* INTERNAL,"),
        ("fail", ["Publish", "OK"], {}, "code 'OK'.* INTERNAL,"),
        ("fail", ["Publish", "INTERNAL"], {"times": 0}, "times.* 0"),
        ("fail", ["Publish", "INTERNAL"], {"retry_delay": -1.0}, "retry_delay"),
        ("delay", ["Publsh", 1], {}, "rpc 'Publsh'.* Publish,"),
        ("delay", ["Publish", -1], {}, "seconds"),
        ("cut_streams", [], {"code": "BROKEN"}, "code 'BROKEN'.* INTERNAL,"),
        ("cut_streams", ["projects/p/subscriptions/none"], {}, "none"),
        ("stall_streams", [], {"direction": "up"}, "direction 'up'.* requests"),
        ("stall_connections", [], {"direction": "up"}, "direction 'up'.* requests"),
        ("duplicate", ["projects/p/subscriptions/none"], {}, "none"),
        ("lose_acks", ["projects/p/subscriptions/none"], {}, "none"),
        ("fail_confirmations", ["projects/p/subscriptions/none"], {}, "none"),
        ("fail_confirmations", ["projects/emulated-project/subscriptions/plain"], {}, "exactly"),
    ],
)
def test_mistake_is_a_value_error_that_names_it(
    rig: Rig, method: str, arguments: list[object], settings: dict[str, object], naming: str
) -> None:
    with pytest.raises(ValueError, match=naming):
        getattr(rig.faults, method)(*arguments, **settings)

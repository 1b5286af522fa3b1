"""Publishing: message ids, limits and what is refused."""

import concurrent.futures
import itertools

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1 import PublishRequest, PublishResponse, PubsubMessage

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, moment, texts
from tests.emulator.conformance.streams import WITHIN

MEBIBYTE = 1_048_576


def test_publish_ids_unique_and_in_order(server: Server) -> None:
    topic, subscription = server.create_pair()
    ids = server.publish(topic, *"abc") + server.publish(topic, *"def")
    received = server.receive(subscription, 6)

    assert len(set(ids)) == 6
    assert all(ids)
    # The n-th id of the answer is that of the n-th message of the request.
    data = {delivery.message.message_id: delivery.message.data for delivery in received}
    assert [data[message_id] for message_id in ids] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_published_message_round_trips(server: Server) -> None:
    topic, subscription = server.create_pair()
    sent = PubsubMessage(
        data=bytes(range(256)), attributes={"a": "1", "b": "", "ç": "ü"}, ordering_key="k"
    )
    (message_id,) = server.publish(topic, sent)
    message = server.pull(subscription)[0].message

    assert message.data == sent.data
    assert dict(message.attributes) == dict(sent.attributes)
    assert message.ordering_key == "k"
    assert message.message_id == message_id
    assert "publish_time" in message


def test_publish_gives_its_own_id_and_time(server: Server) -> None:
    topic, subscription = server.create_pair()
    mine = PubsubMessage(data=b"a", message_id="mine", publish_time={"seconds": 5})
    (message_id,) = server.publish(topic, mine)
    message = server.pull(subscription)[0].message

    assert message.message_id == message_id != "mine"
    assert moment(message.publish_time).timestamp() != 5


def test_publish_times_follow_the_clock(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    server.let_time_pass(1.5)
    server.publish(topic, "b")
    first, second = (delivery.message for delivery in server.receive(subscription, 2))

    # Google's emulator counts in milliseconds.
    assert (moment(second.publish_time) - moment(first.publish_time)).total_seconds() >= 1.499


def test_every_subscription_gets_its_own_copy(server: Server) -> None:
    topic, one = server.create_pair()
    two = server.create_subscription(topic)
    (message_id,) = server.publish(topic, "a")

    for subscription in (one, two):
        received = server.pull(subscription)
        assert [delivery.message.message_id for delivery in received] == [message_id]
        server.acknowledge(subscription, *received)


def test_messages_from_before_a_subscription_are_not_delivered(server: Server) -> None:
    topic = server.create_topic()
    server.publish(topic, "before")
    subscription = server.create_subscription(topic)
    server.publish(topic, "after")

    assert texts(server.pull(subscription)) == ["after"]
    assert server.pull_now(subscription) == []


def test_publish_unknown_topic_is_not_found(server: Server) -> None:
    with server.refuses(NotFound):
        server.publish(server.topic_name(), "a")


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param(PubsubMessage(), id="nothing"),
        pytest.param(PubsubMessage(ordering_key="k"), id="only an ordering key"),
    ],
)
def test_publish_empty_message_is_invalid_argument(server: Server, empty: PubsubMessage) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="data"):
        server.publish(topic, empty)


def test_publish_attributes_without_data(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, PubsubMessage(attributes={"a": ""}))
    message = server.pull(subscription)[0].message

    assert message.data == b""
    assert dict(message.attributes) == {"a": ""}


def test_publish_no_messages_is_invalid_argument(server: Server) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="messages"):
        server.publish(topic)


def test_publish_more_than_1000_is_invalid_argument(server: Server) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="messages"):
        server.publish(topic, *["a"] * 1_001)
    assert server.pull_now(subscription) == []
    assert len(set(server.publish(topic, *["a"] * 1_000))) == 1_000


def test_publish_one_bad_message_publishes_none(server: Server) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument):
        server.publish(topic, "good", PubsubMessage())
    assert server.pull_now(subscription) == []


def test_publish_9_mb_message_round_trips(server: Server) -> None:
    topic, subscription = server.create_pair()
    data = b"0123456789" * 900_000
    server.publish(topic, PubsubMessage(data=data))

    assert server.pull(subscription)[0].message.data == data


def test_publish_10_mb_message_is_taken(server: Server) -> None:
    topic = server.create_topic()

    assert server.publish(topic, PubsubMessage(data=bytes(10_000_000)))


@google_falls_short("never answers a request this large", hangs=True)
@pytest.mark.parametrize("sizes", [[10 * MEBIBYTE + 1], [6 * MEBIBYTE, 6 * MEBIBYTE]])
def test_publish_more_than_10_mb_is_invalid_argument(server: Server, sizes: list[int]) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument):
        server.publish(topic, *[PubsubMessage(data=bytes(size)) for size in sizes])
    assert server.pull_now(subscription) == []


def test_publish_gzip_compressed_request(server: Server) -> None:
    topic, subscription = server.create_pair()
    data = b"compressible " * 10_000
    publish = server.channel.unary_unary(
        "/google.pubsub.v1.Publisher/Publish",
        request_serializer=PublishRequest.serialize,
        response_deserializer=PublishResponse.deserialize,
    )
    request = PublishRequest(topic=topic, messages=[PubsubMessage(data=data)])
    answer: PublishResponse = publish(request, compression=grpc.Compression.Gzip, timeout=WITHIN)
    message = server.pull(subscription)[0].message

    assert [message.message_id] == list(answer.message_ids)
    assert message.data == data


@google_falls_short("does not check attributes")
@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({f"key{n}": "a" for n in range(101)}, id="101 attributes"),
        pytest.param({"": "a"}, id="empty key"),
        pytest.param({"k" * 257: "a"}, id="key of 257 bytes"),
        pytest.param({"é" * 129: "a"}, id="key of 129 characters in 258 bytes"),
        pytest.param({"a": "v" * 1_025}, id="value of 1025 bytes"),
        pytest.param({"a": "é" * 513}, id="value of 513 characters in 1026 bytes"),
    ],
)
def test_publish_attribute_limits_are_invalid_argument(
    server: Server, attributes: dict[str, str]
) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="attribute"):
        server.publish(topic, PubsubMessage(data=b"a", attributes=attributes))
    assert server.pull_now(subscription) == []


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({f"key{n}": "a" for n in range(100)}, id="100 attributes"),
        pytest.param({"k" * 256: "a"}, id="key of 256 bytes"),
        pytest.param({"é" * 128: "a"}, id="key of 128 characters in 256 bytes"),
        pytest.param({"a": "v" * 1_024}, id="value of 1024 bytes"),
        pytest.param({"a": "é" * 512}, id="value of 512 characters in 1024 bytes"),
    ],
)
def test_publish_attributes_up_to_their_limits_are_taken(
    server: Server, attributes: dict[str, str]
) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, PubsubMessage(attributes=attributes))

    assert dict(server.pull(subscription)[0].message.attributes) == attributes


@google_falls_short("does not check attributes")
@pytest.mark.parametrize("key", ["goog", "goog_trace", "google", "googclient"])
def test_publish_goog_attribute_prefix_is_invalid_argument(server: Server, key: str) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="attribute"):
        server.publish(topic, PubsubMessage(data=b"a", attributes={key: "a"}))


@pytest.mark.parametrize("key", ["googclient_traceparent", "Goog", "my-goog"])
def test_publish_goog_like_attributes_of_clients_are_taken(server: Server, key: str) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, PubsubMessage(data=b"a", attributes={key: "a"}))

    assert dict(server.pull(subscription)[0].message.attributes) == {key: "a"}


@google_falls_short("does not check ordering keys")
@pytest.mark.parametrize("key", ["k" * 1_025, "é" * 513])
def test_publish_ordering_key_of_more_than_1024_bytes_is_invalid_argument(
    server: Server, key: str
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="ordering_key"):
        server.publish(topic, PubsubMessage(data=b"a", ordering_key=key))


def test_publish_ordering_key_of_1024_bytes_is_taken(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, PubsubMessage(data=b"a", ordering_key="k" * 1_024))

    assert server.pull(subscription)[0].message.ordering_key == "k" * 1_024


def test_publish_ids_stay_unique_across_topics(server: Server) -> None:
    topics = [server.create_topic() for _ in range(3)]
    ids = itertools.chain.from_iterable(server.publish(topic, "a", "b") for topic in topics)

    assert len(set(ids)) == 6


def test_publishing_at_once_keeps_ids_unique_and_loses_nothing(server: Server) -> None:
    topic, subscription = server.create_pair()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        batches = [pool.submit(server.publish, topic, *"abcde") for _ in range(40)]
        ids = [message_id for batch in batches for message_id in batch.result()]
    received = server.receive(subscription, 200)

    assert len(set(ids)) == 200
    assert {delivery.message.message_id for delivery in received} == set(ids)
    assert len(received) == 200

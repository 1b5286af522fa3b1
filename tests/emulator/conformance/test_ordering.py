"""Ordered delivery, and what one message of a key means for the others."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from google.pubsub_v1 import PubsubMessage, ReceivedMessage

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, moment, texts

NACKED_LAST = google_falls_short(
    "holds the key back until the other leases end, then sends the nacked message last", hangs=True
)


def keyed(key: str, *data: str) -> list[PubsubMessage]:
    return [PubsubMessage(data=text.encode(), ordering_key=key) for text in data]


def by_key(received: Iterable[ReceivedMessage]) -> dict[str, list[str]]:
    """The data of these deliveries for each key, in their order."""
    found: dict[str, list[str]] = defaultdict(list)
    for delivery in received:
        found[delivery.message.ordering_key].append(delivery.message.data.decode())
    return dict(found)


def test_ordered_keys_arrive_in_order(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    for number in range(0, 30, 3):
        for key in ("x", "y"):
            server.publish(topic, *keyed(key, *(str(number + step) for step in range(3))))
    received: list[ReceivedMessage] = []
    while len(received) < 60:
        batch = server.pull(subscription, max_messages=7)
        server.acknowledge(subscription, *batch)
        received += batch

    expected = [str(number) for number in range(30)]
    assert by_key(received) == {"x": expected, "y": expected}


def test_ordered_keys_arrive_in_order_on_a_stream(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    received: list[ReceivedMessage] = []
    with server.stream(subscription) as stream:
        for number in range(10):
            for key in ("x", "y"):
                server.publish(topic, *keyed(key, f"{number}a", f"{number}b"))
        while len(received) < 40:
            batch = stream.messages(1)
            stream.acknowledge(*batch)
            received += batch

    expected = [f"{number}{step}" for number in range(10) for step in "ab"]
    assert by_key(received) == {"x": expected, "y": expected}


@NACKED_LAST
def test_nack_of_ordered_message_redelivers_it_and_all_after_it(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1", "2", "3"), *keyed("y", "other"))
    received = server.receive(subscription, 5)
    first, second = (d for d in received if d.message.data in {b"0", b"1"})
    server.acknowledge(subscription, first)
    server.nack(subscription, second)

    assert texts(server.receive(subscription, 3)) == ["1", "2", "3"]
    assert server.pull_now(subscription) == []


def test_nack_of_all_ordered_messages_redelivers_them_in_order(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1", "2", "3"))
    first, *rest = server.receive(subscription, 4)
    server.acknowledge(subscription, first)
    server.nack(subscription, *rest)
    again = server.receive(subscription, 3)

    assert texts(again) == ["1", "2", "3"]
    assert not {d.ack_id for d in again} & {d.ack_id for d in rest}


@NACKED_LAST
def test_nack_of_ordered_message_redelivers_acked_ones_after_it(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1", "2"))
    first, second, _ = server.receive(subscription, 3)
    server.acknowledge(subscription, second)
    server.nack(subscription, first)

    assert texts(server.receive(subscription, 3)) == ["0", "1", "2"]


@NACKED_LAST
def test_nack_of_ordered_message_ends_the_leases_after_it(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1"))
    first, second = server.receive(subscription, 2)
    server.nack(subscription, first)
    again = server.receive(subscription, 2)
    # The id of the delivery from before the nack is an old one: accepted and ignored.
    server.acknowledge(subscription, second)
    server.nack(subscription, *again)

    assert texts(server.receive(subscription, 2)) == ["0", "1"]


@NACKED_LAST
def test_nack_of_ordered_message_on_a_stream_redelivers_it_and_all_after_it(
    server: Server,
) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1", "2"))
    with server.stream(subscription) as stream:
        received = stream.messages(3)
        assert texts(received) == ["0", "1", "2"]
        stream.nack(received[0])

        assert texts(stream.messages(3)) == ["0", "1", "2"]


def test_expired_ordered_message_redelivers_it_and_all_after_it(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1", "2"))
    first, second, third = server.receive(subscription, 3)
    server.acknowledge(subscription, first)
    server.modify_ack_deadline(subscription, second, seconds=2)
    server.modify_ack_deadline(subscription, third, seconds=60)
    server.let_time_pass(3)

    assert texts(server.receive(subscription, 2)) == ["1", "2"]


def test_outstanding_ordered_message_blocks_later_ones_on_another_pull(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1"))
    (first,) = server.pull(subscription, max_messages=1)
    assert first.message.data == b"0"
    assert server.pull_now(subscription) == []
    server.publish(topic, *keyed("x", "2"))
    assert server.pull_now(subscription) == []
    server.acknowledge(subscription, first)

    assert texts(server.receive(subscription, 2)) == ["1", "2"]


@google_falls_short("does not block a stream with what a Pull was given")
def test_outstanding_ordered_message_blocks_later_ones_on_a_stream(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0", "1"))
    (first,) = server.pull(subscription, max_messages=1)
    with server.stream(subscription) as stream:
        server.publish(topic, "keyless")
        assert texts(stream.messages(1)) == ["keyless"]
        assert stream.settle() == []
        server.acknowledge(subscription, first)

        assert texts(stream.messages(1)) == ["1"]


def test_outstanding_ordered_message_does_not_block_other_keys(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, *keyed("x", "0"))
    server.pull(subscription)
    server.publish(topic, *keyed("x", "1"), *keyed("y", "other"), "keyless")

    assert sorted(texts(server.receive(subscription, 2))) == ["keyless", "other"]
    assert server.pull_now(subscription) == []


@google_falls_short("cannot seek where messages are ordered")
def test_seek_back_replays_ordered_keys_in_order(server: Server) -> None:
    topic, subscription = server.create_pair(
        enable_message_ordering=True, retain_acked_messages=True
    )
    server.publish(topic, *keyed("x", "0", "1", "2"), *keyed("y", "3", "4"))
    received = server.receive(subscription, 5)
    server.acknowledge(subscription, *received)
    first = min(moment(delivery.message.publish_time) for delivery in received)
    server.seek(subscription, time=first - timedelta(minutes=1))

    assert by_key(server.receive(subscription, 5)) == {"x": ["0", "1", "2"], "y": ["3", "4"]}


def test_messages_without_a_key_do_not_wait_for_each_other(server: Server) -> None:
    topic, subscription = server.create_pair(enable_message_ordering=True)
    server.publish(topic, "0", "1", "2")
    received = server.pull(subscription, max_messages=1)
    server.nack(subscription, *received)

    assert sorted(texts(server.receive(subscription, 3))) == ["0", "1", "2"]


def test_keys_do_not_block_without_message_ordering(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, *keyed("x", "0", "1", "2"))
    first = server.pull(subscription, max_messages=1)
    rest = server.receive(subscription, 2)
    server.nack(subscription, *first)

    assert sorted(texts(first + rest)) == ["0", "1", "2"]
    assert texts(server.pull_now(subscription)) == texts(first)

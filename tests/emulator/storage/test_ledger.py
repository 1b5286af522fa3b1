"""What is written of a broker, and what is not lost of it though it was not."""

from __future__ import annotations

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.storage import capturing
from tests.emulator.storage.disk import Disk

TOPIC, WORKER = "projects/p/topics/orders", "projects/p/subscriptions/worker"
FULL = 100_000


def begin() -> tuple[Broker, Disk]:
    broker, disk = Broker(), Disk()
    disk.read(broker, now=0.0, full=FULL)
    broker.create_topic(schema.Topic(name=TOPIC), now=0.0)
    broker.create_subscription(schema.Subscription(name=WORKER, topic=TOPIC), now=0.0)
    return broker, disk


def publish(broker: Broker, *data: bytes) -> None:
    bodies = [schema.PubsubMessage(data=each).SerializeToString() for each in data]
    broker.publish(TOPIC, bodies, now=0.0)


def pulled(broker: Broker) -> list[schema.ReceivedMessage]:
    payload, _ = broker.pull(broker.subscription(WORKER), limit=1_000, now=0.0)
    return list(schema.PullResponse.FromString(payload).received_messages)


def test_an_ack_id_is_given_once_though_a_seek_was_not_saved() -> None:
    broker, disk = begin()
    publish(broker, b"tea")
    disk.save(disk.ledger)
    ids = set()
    for _ in range(3):
        broker.seek_to_time(WORKER, 0.0, now=0.0)  # and that is not saved
        ids.add(pulled(broker)[0].ack_id)
    for _ in range(3):
        broker = Broker()
        disk.read(broker, now=0.0, full=FULL)
        ids.add(pulled(broker)[0].ack_id)

    assert len(ids) == 6


def test_messages_are_written_in_portions_however_large_they_are() -> None:
    broker, disk = begin()
    disk.save(disk.ledger)
    large = bytes(capturing.PORTION // 3)
    publish(broker, *[large] * 7, b"small", bytes(2 * capturing.PORTION), b"last")
    batch = disk.ledger.next_batch()

    assert batch is not None
    sizes = [part.ByteSize() for part in batch.messages]
    assert len(sizes) > 3
    assert sorted(sizes)[-2] < 1.5 * capturing.PORTION  # but for the one that is larger itself
    disk.write(batch)
    again = Broker()
    disk.read(again, now=0.0, full=FULL)
    assert again.subscription(WORKER).deliveries.backlog == 10


def test_what_is_acked_before_it_was_written_is_never_written() -> None:
    broker, disk = begin()
    publish(broker, *[b"tea" * 100] * 1_024)  # two blocks
    ids = [received.ack_id for received in (*pulled(broker), *pulled(broker))]
    broker.acknowledge(broker.subscription(WORKER), ids, now=0.0)
    batch = disk.ledger.next_batch()

    assert batch is not None
    assert batch.messages == []
    assert sum(map(len, batch.parts)) < 3_000

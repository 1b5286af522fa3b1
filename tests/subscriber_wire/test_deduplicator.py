"""Repeats over the wire: by gRPC and by REST."""

from __future__ import annotations

from collections import Counter

import pytest
from google.pubsub_v1 import PubsubMessage

from pubsub_aio import Deduplicator, Message, SubscriberClient, ThreadScheduler
from pubsub_aio.config import FLIGHT_ID
from tests.subscriber_wire.conftest import Received, Site, until


def messages(*ids: str) -> list[PubsubMessage]:
    return [PubsubMessage(data=one.encode(), attributes={FLIGHT_ID: one}) for one in ids]


async def test_of_messages_with_one_id_one_is_handled_and_all_are_acked(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    received, dedupe = Received(), Deduplicator()
    handed_over = Received()
    handle = dedupe(received)

    async def note(message: Message) -> None:
        handed_over.note(message)
        await handle(message)

    live = client.subscribe(name, note)
    site.publish(topic, *messages("a", "b", "a"))
    await until(lambda: dedupe.handled + dedupe.dropped == 3)
    site.publish(topic, *messages("b", "c"))
    await until(lambda: dedupe.handled + dedupe.dropped == 5)
    live.stop()
    await live

    assert sorted(received.data) == [b"a", b"b", b"c"]
    assert (dedupe.handled, dedupe.dropped) == (3, 2)
    assert site.left(name, handed_over.ack_ids) == []


async def test_a_plain_function_that_fails_leaves_the_id_to_the_other(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    called: list[bytes] = []

    def work(message: Message) -> None:
        called.append(message.data)
        if called.count(b"a") == 1 and message.data == b"a":
            raise ValueError("on purpose")
        message.ack()

    dedupe, threads = Deduplicator(), ThreadScheduler(max_workers=2)
    live = client.subscribe(name, work, scheduler=dedupe.around(threads))
    site.publish(topic, *messages("a", "a", "b"))
    await until(lambda: dedupe.handled + dedupe.dropped == 3)
    live.stop()
    await live
    threads.close()

    assert Counter(called) == {b"a": 2, b"b": 1}
    assert (dedupe.handled, dedupe.dropped) == (2, 1)


@pytest.mark.only("embedded")  # faults can be asked for
async def test_a_message_that_comes_again_because_its_ack_was_lost_is_acked_again(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    received, dedupe = Received(), Deduplicator()
    assert site.emulator is not None
    site.emulator.faults.lose_acks(name)
    site.publish(topic, *messages("a"))

    handle = dedupe(received)

    async def quickly(message: Message) -> None:
        await handle(message)
        if dedupe.dropped == 0:  # that it comes again need not take long
            await client.modify_ack_deadline(name, [message.ack_id], 0)

    client.subscribe(name, quickly)
    await until(lambda: dedupe.dropped == 1)

    assert received.data == [b"a"]
    assert dedupe.handled == 1

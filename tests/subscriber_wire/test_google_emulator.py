"""What only Google's emulator does: it heeds no limits, answers no pings, and keeps abandoned
messages to itself."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import Batch, FlowControl, Message, StreamPolicy, SubscriberClient
from tests.subscriber_wire.conftest import MOST_RECEIVED, Events, Received, Site, until

pytestmark = pytest.mark.only("google")


async def test_many_messages_are_each_acked(site: Site, client: SubscriberClient) -> None:
    """G24: none is lost."""
    topic, name = site.create_pair()
    texts = [f"message-{number}" for number in range(1_500)]
    callback = Received()
    live = client.subscribe(name, callback)
    for first in range(0, 1_500, 500):
        site.publish(topic, *texts[first : first + 500])
    await until(lambda: live.health().counts.get("acked") == 1_500, timeout=30)
    live.stop()
    await live

    assert sorted(callback.data) == sorted(text.encode() for text in texts)
    assert site.left(name, callback.ack_ids) == []


async def test_many_messages_in_batches_are_each_acked(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    seen: set[str] = set()

    async def callback(batch: Batch) -> None:
        seen.update(message.message_id for message in batch)
        await batch.ack_with_response()

    live = client.subscribe_batches(name, callback, max_messages=200)
    ids = site.publish(topic, *(f"{number}" for number in range(1_000)))
    await until(lambda: live.health().counts.get("acked") == 1_000, timeout=30)

    assert seen == {*ids}


async def test_what_is_held_is_bounded_although_the_server_heeds_no_limit(
    site: Site, client: SubscriberClient
) -> None:
    """R25: what cannot be leased waits, and what is too much for that comes again."""
    topic, name = site.create_pair()
    flow = FlowControl(max_messages=20, max_request_batch_size=5)
    received = Received()
    gate = asyncio.Event()
    most = 0

    async def callback(message: Message) -> None:
        nonlocal most
        health = live.health()
        most = max(most, health.leased)
        assert health.received <= MOST_RECEIVED
        await gate.wait()
        await received(message)

    live = client.subscribe(name, callback, flow_control=flow)
    texts = [f"{number}" for number in range(120)]
    site.publish(topic, *texts)
    await until(lambda: live.health().running >= 16)
    gate.set()
    await until(lambda: len({*received.data}) == 120, timeout=30)
    live.stop()
    await live

    assert most <= 20 * 0.8 + 5
    assert site.left(name, received.ack_ids) == []


@pytest.mark.only("google-grpc")  # there are no streams over REST
async def test_a_server_that_answers_no_pings_is_not_taken_for_dead(
    site: Site, client: SubscriberClient
) -> None:
    """R7: silence is judged only on servers that have answered one before."""
    topic, name = site.create_pair()
    callback, events = Received(), Events()
    policy = StreamPolicy(ping_interval=0.01, ping_timeout=1.0)  # a busy machine takes its time
    live = client.subscribe(name, callback, streams=policy, on_event=events)
    await live.ready()
    site.publish(topic, "a")
    await until(lambda: callback.data == [b"a"])
    quiet = asyncio.get_running_loop().time() + 2.5
    await until(lambda: asyncio.get_running_loop().time() > quiet)
    site.publish(topic, "b")
    await until(lambda: callback.data == [b"a", b"b"])

    assert events.states() == ["running"]
    assert live.health().ok


async def test_what_was_not_settled_is_given_back_at_the_end(
    site: Site, client: SubscriberClient
) -> None:
    """G25: the server would keep it to the end of its deadline."""
    topic, name = site.create_pair()
    held: list[Message] = []

    async def callback(message: Message) -> None:
        held.append(message)

    live = client.subscribe(name, callback)
    site.publish(topic, *"abc")
    await until(lambda: len(held) == 3)
    live.stop()
    await live

    again = site.receive(name, 3)
    assert sorted(one.message.data for one in again) == [b"a", b"b", b"c"]


async def test_two_subscribers_share_the_messages(site: Site) -> None:
    """R23: the server assigns them, and each message goes to one."""
    topic, name = site.create_pair()
    first, second = Received(), Received()
    async with site.client() as one, site.client() as other:
        lives = [one.subscribe(name, first), other.subscribe(name, second)]
        for number in range(200):
            site.publish(topic, f"{number}")
        await until(
            lambda: sum(live.health().counts.get("acked", 0) for live in lives) == 200, timeout=30
        )

    assert sorted(first.data + second.data) == sorted(b"%d" % number for number in range(200))

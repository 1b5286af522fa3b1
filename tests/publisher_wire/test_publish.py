"""The publisher over gRPC and REST, on the embedded emulator and on Google's."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import (
    Batching,
    InvalidRequestError,
    NotFoundError,
    PublisherClient,
    ServiceError,
    StartupError,
)
from tests.publisher_wire.conftest import publisher_of
from tests.subscriber_wire.conftest import WITHIN, Site, nothing_left_behind
from tests.wire.tcp import counting, serving

pytestmark = pytest.mark.timeout(60)


async def test_what_is_published_arrives_as_it_was(site: Site) -> None:
    topic = site.create_topic_named("orders")
    subscription = site.create_subscription_named("worker", topic)
    async with nothing_left_behind(), publisher_of(site) as publisher:
        first = publisher.publish(
            "orders", bytes(range(256)), attributes={"größe": "groß", "e": ""}
        )
        second = publisher.publish(topic, b"", attributes={"only": "attributes"})
        third = publisher.publish("orders", b"3", ordering_key="schlüssel")
        ids = [await flight.ack for flight in (first, second, third)]

    found = {each.message.message_id: each.message for each in site.pull_now(subscription)}
    assert found[ids[0]].data == bytes(range(256))
    assert dict(found[ids[0]].attributes) == {"größe": "groß", "e": ""}
    assert dict(found[ids[1]].attributes) == {"only": "attributes"}
    assert (found[ids[2]].data, found[ids[2]].ordering_key) == (b"3", "schlüssel")


async def test_many_messages_arrive_once_each(site: Site) -> None:
    topic = site.create_topic_named("orders")
    subscription = site.create_subscription_named("worker", topic)
    async with (
        nothing_left_behind(),
        PublisherClient.throughput(
            site.project, transport=site.transport, endpoint=f"http://{site.address}"
        ) as publisher,
    ):
        one_by_one = [publisher.publish("orders", b"%d" % number) for number in range(1_500)]
        together = await publisher.publish_many(
            "orders", [(b"%d" % number, {"n": str(number)}) for number in range(1_500, 3_000)]
        )
        ids = [await flight.ack for flight in (*one_by_one, *together)]

    assert len(set(ids)) == 3_000
    found: dict[str, bytes] = {}
    while len(found) < 3_000:
        pulled = site.pull_now(subscription)
        assert pulled
        found |= {each.message.message_id: each.message.data for each in pulled}
    assert [int(found[message_id]) for message_id in ids] == list(range(3_000))


async def test_the_order_of_a_key_is_the_order_of_the_calls(site: Site) -> None:
    site.create_topic_named("orders")
    async with nothing_left_behind(), publisher_of(site, batching=Batching(max_messages=7)) as some:
        flights = [
            some.publish("orders", b"%d" % number, ordering_key=f"key-{number % 3}")
            for number in range(100)
        ]
        ids = [int(await flight.ack) for flight in flights]

    for key in range(3):
        assert ids[key::3] == sorted(ids[key::3])


async def test_a_message_of_ten_megabytes_is_published(site: Site) -> None:
    topic = site.create_topic_named("orders")
    subscription = site.create_subscription_named("worker", topic)
    data = bytes(9_990_000)
    async with nothing_left_behind(), publisher_of(site, wait_timeout=30) as publisher:
        await publisher.publish("orders", data).ack

    (found,) = site.pull_now(subscription)
    assert found.message.data == data


async def test_a_missing_topic_is_told(site: Site) -> None:
    async with nothing_left_behind(), publisher_of(site) as publisher:
        with pytest.raises(NotFoundError):
            await publisher.publish("missing", b"x")
    with pytest.raises(StartupError, match="create_topic"):
        await publisher_of(site, topics=["missing"]).start()


@pytest.mark.only("embedded")  # Google's does not say which message it is
async def test_a_message_that_is_refused_does_not_take_others_with_it(site: Site) -> None:
    """R11: over each transport the refusal is known for what it is."""
    site.create_topic_named("orders")
    assert site.emulator is not None
    async with nothing_left_behind(), publisher_of(site) as publisher:
        await publisher.publish("orders", b"first").ack
        site.emulator.faults.fail("Publish", "INVALID_ARGUMENT", times=2)
        flights = [publisher.publish("orders", b"%d" % number) for number in range(4)]
        outcomes = await asyncio.gather(*(one.ack for one in flights), return_exceptions=True)

    # The batch and its first half were refused, and then nothing more.
    assert not any(isinstance(outcome, ServiceError) for outcome in outcomes[2:])
    assert not any(isinstance(outcome, InvalidRequestError) for outcome in outcomes)


async def test_what_is_large_and_compresses_well_is_compressed(site: Site) -> None:
    """gzip, where it pays: fewer bytes are sent, and the same messages arrive."""
    topic = site.create_topic_named("orders")
    subscription = site.create_subscription_named("worker", topic)
    text = b'{"order": 17, "item": "tea"}' * 1_000
    sent: dict[int | None, int] = {}
    for compress_above in (None, 10_000):
        async with counting(site.address) as (address, counts):
            publisher = PublisherClient(
                site.project,
                transport=site.transport,
                endpoint=f"http://{address}",
                compress_above=compress_above,
            )
            async with publisher:
                await publisher.publish("orders", text).ack
                await publisher.publish("orders", b"short").ack
            sent[compress_above] = counts["to server"]
    found = sorted(each.message.data for each in site.pull_now(subscription))

    assert found == sorted([text, b"short"] * 2)
    assert sent[None] > len(text)
    assert sent[10_000] < len(text) / 4


async def test_a_silent_server_ends_a_flight_in_its_time() -> None:
    """M13: nothing is answered, and nothing hangs."""
    async with nothing_left_behind(), serving(_say_nothing) as address, asyncio.timeout(WITHIN):
        for transport in ("grpc", "rest"):
            publisher = PublisherClient(
                "p",
                transport=transport,
                endpoint=f"http://{address}",
                check_topics=False,
                wait_timeout=0.2,
            )
            async with publisher:
                flight = await publisher.publish("orders", b"x")
                with pytest.raises(TimeoutError):
                    await flight.ack


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del writer
    while await reader.read(65_536):
        pass

"""Which messages go together, and the preset for many of them."""

from __future__ import annotations

import asyncio
import re
from array import array
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pubsub_aio import Batching, ConfigError, PublisherClient, RetryPolicy, Setting
from pubsub_aio._wire import schema
from pubsub_aio._wire.publishing import encode
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.publisher.conftest import TOPIC, publisher_of, stored
from tests.subscriber.conftest import Tapped, now, virtual
from tests.wire.test_publishing import attributes


def sizes(tap: Tapped) -> list[int]:
    """How many messages each request had."""
    return [
        len(schema.PublishRequest.FromString(request).messages)
        for _, rpc, request in tap.calls
        if rpc == "Publish"
    ]


@virtual
async def test_what_is_published_at_once_goes_together(emulator: MemoryEmulator) -> None:
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, max_in_flight=1_000) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % number) for number in range(250)]
        ids = [await flight.ack for flight in flights]

        assert [emulator.message(message_id).data for message_id in ids] == [
            b"%d" % number for number in range(250)
        ]
    assert sizes(tap) == [100, 100, 50]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.none() | attributes).filter(any), max_size=5))
@example([(b"", {"a": ""}), (b"x", {"a": "v" * 255}), (b"x", {"a": "ü" * 128})])
@example([(bytes(size), {"a": "b"}) for size in (127, 128, 16_370, 16_383, 16_384)])
@example([(b"x", {"a": "b"}), (b"x", {"a": "b", "c": "d"}), (b"x", {}), (b"x", None)])
def test_a_message_that_joins_others_is_the_same(
    sent: list[tuple[bytes, dict[str, str] | None]],
) -> None:
    """Then it is not encoded where all others are."""

    async def scenario(emulator: MemoryEmulator) -> None:
        async with publisher_of(emulator, max_in_flight=1_000) as publisher:
            for data, pairs in [(b"first", None), *sent, *sent]:  # names are known then
                flight = publisher.publish(TOPIC, data, attributes=pairs)
                assert flight.batch.wires[flight.index] == encode(data, pairs, "")
                assert (flight.data, flight.attributes) == (data, pairs or {})
        found = [(message.data, message.attributes) for message in emulator.messages(TOPIC)]
        assert found[1:] == [(data, pairs or {}) for data, pairs in [*sent, *sent]]

    run_scenario(scenario)


@virtual
async def test_other_kinds_of_bytes_that_join_others_are_bytes(emulator: MemoryEmulator) -> None:
    numbers = array("I", [1, 2])
    kinds = [bytearray(b"tea"), memoryview(b"tea"), memoryview(numbers)]
    async with publisher_of(emulator, max_in_flight=1_000) as publisher:
        for data in (b"first", *kinds):
            publisher.publish(TOPIC, data, attributes={"a": "b"})  # type: ignore[arg-type]

    assert stored(emulator) == [b"first", b"tea", b"tea", numbers.tobytes()]


@virtual
async def test_a_mapping_is_read_the_same_way_each_time(emulator: MemoryEmulator) -> None:
    class Loud(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            return super().__getitem__(name).upper()

    async with publisher_of(emulator, max_in_flight=1_000) as publisher:
        kinds = [Loud(a="v"), Loud(a="v"), MappingProxyType({"a": "v"}), Loud(a="v")]
        for attributes in kinds:
            publisher.publish(TOPIC, b"x", attributes=attributes)
        await publisher.publish_many(TOPIC, [(b"x", attributes) for attributes in kinds])

    assert [each.attributes for each in emulator.messages(TOPIC)] == [{"a": "v"}] * 8


@virtual
async def test_who_awaits_one_after_another_does_not_wait_for_others(
    emulator: MemoryEmulator,
) -> None:
    async with publisher_of(emulator) as publisher:
        for number in range(100):
            await (await publisher.publish(TOPIC, b"%d" % number)).ack
        assert now() == 0


@virtual
async def test_a_batch_departs_when_it_is_full_or_old_enough(emulator: MemoryEmulator) -> None:
    tap = Tapped(emulator.transport())
    batching = Batching(max_messages=10, max_latency=2)
    async with publisher_of(emulator, tap, batching=batching) as publisher:
        for number in range(13):
            publisher.publish(TOPIC, b"%d" % number)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)

    # The first was published at 0, the tenth at 0.9 seconds, the eleventh at 1.
    assert [round(time, 3) for time in tap.times("Publish")] == [0.9, 3]
    assert sizes(tap) == [10, 3]


@virtual
async def test_a_batch_is_full_by_bytes(emulator: MemoryEmulator) -> None:
    tap = Tapped(emulator.transport())
    async with publisher_of(emulator, tap, batching=Batching(max_bytes=1_000)) as publisher:
        for size in (400, 400, 400, 5_000, 10):
            publisher.publish(TOPIC, bytes(size))

    assert sizes(tap) == [2, 1, 1, 1]


@virtual
async def test_a_request_is_never_larger_than_the_service_takes(emulator: MemoryEmulator) -> None:
    tap = Tapped(emulator.transport())
    batching = Batching(max_messages=1_000, max_bytes=10_000_000)
    async with publisher_of(emulator, tap, batching=batching, max_in_flight=2_000) as publisher:
        for _ in range(30):
            publisher.publish(TOPIC, bytes(999_000))
        for _ in range(1_500):
            publisher.publish(TOPIC, b"x")

    assert sizes(tap) == [10, 10, 1_000, 510]
    assert max(len(request) for _, _, request in tap.calls) < 10_000_200


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_messages": 1_001}, "max_messages must be at least 1 and at most 1,000"),
        ({"max_bytes": 10_000_001}, "max_bytes must be at least 1 and at most 10,000,000"),
        ({"max_latency": -1}, "max_latency must be at least 0"),
    ],
)
def test_a_batching_that_cannot_be_is_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        Batching(**settings)  # type: ignore[arg-type]


@virtual
async def test_the_preset_for_throughput_fills_large_requests(emulator: MemoryEmulator) -> None:
    emulator.create_topic(TOPIC)
    tap = Tapped(emulator.transport())
    emulator.faults.fail("Publish", "INTERNAL")
    async with PublisherClient.throughput(emulator.project, transport=tap) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % number) for number in range(2_500)]
        for flight in flights:
            await flight.ack

        assert publisher.settings["max_in_flight"].value == 50_000
        assert flights[0].options.retry == replace(RetryPolicy.google(), deadline=None)
        assert flights[0].options.timeout == 600
    assert sorted(sizes(tap)) == [500, 1_000, 1_000, 1_000]  # one of them twice
    assert sorted(stored(emulator)) == sorted(b"%d" % number for number in range(2_500))


@virtual
async def test_a_preset_may_be_told_otherwise(emulator: MemoryEmulator) -> None:
    publisher = PublisherClient.throughput(
        emulator.project, transport=emulator.transport(), max_in_flight=41_000, retry=None
    )
    quick = PublisherClient.throughput(
        emulator.project, transport=emulator.transport(), wait_timeout=5
    )

    assert publisher.settings["max_in_flight"] == Setting(41_000, "argument")
    assert publisher.settings["retry"] == Setting(None, "argument")
    assert publisher.settings["refill_allowed_at"] == Setting(40_000, "throughput")
    assert publisher.settings["wait_timeout"] == Setting(600.0, "throughput")
    publisher = PublisherClient.throughput(
        emulator.project, transport=emulator.transport(), retry=RetryPolicy(deadline=1_200)
    )
    assert publisher.settings["wait_timeout"] == Setting(1_200, "retry")
    assert publisher.settings["drain_timeout"] == Setting(60.0, "default")
    assert quick.settings["retry"].source == "throughput"
    flight = quick.publish(TOPIC, b"x")
    assert flight.options.timeout == 5
    flight.ack.add_done_callback(lambda ack: ack.exception())
    await publisher.stop()
    await quick.stop()


@virtual
async def test_topics_take_turns(emulator: MemoryEmulator) -> None:
    """One topic with much to publish does not hold up another."""
    emulator.create_topic("other")
    emulator.faults.delay("Publish", 1, times=100)
    async with publisher_of(emulator, max_in_flight=100) as publisher:
        await publisher.publish(TOPIC, b"first").ack
        await publisher.publish("other", b"first").ack
        began = now()
        for number in range(1_000):
            publisher.publish(TOPIC, b"%d" % number)
        other = publisher.publish("other", b"x")
        await other.ack
        assert now() - began <= 2

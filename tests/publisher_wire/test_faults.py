"""What goes wrong on the way: nothing that answered ok is lost, and order holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from pubsub_aio import Batching, Flight, PublisherClient, RetryPolicy, ServiceError
from pubsub_aio.config import FLIGHT_ID
from pubsub_aio.emulator import Emulator, Faults, PublishedMessage
from tests.subscriber_wire.conftest import WITHIN, nothing_left_behind, until

COUNT = 400
KEYS = ["", "a", "b"]
PATIENT = RetryPolicy(
    retries=-1, wait=0.05, codes=frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"})
)

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("transport", ["grpc", "rest"]),
]


def publisher_to(*addresses: str, transport: str, retry: RetryPolicy | None) -> PublisherClient:
    return PublisherClient(
        "p",
        transport=transport,
        endpoint=[f"http://{address}" for address in addresses],
        retry=retry,
        wait_timeout=WITHIN,
        batching=Batching(max_messages=10),
        send_flight_id=True,
        probe_interval=0.2,
    )


async def publish_all(publisher: PublisherClient, disturb: Callable[[int], None]) -> list[Flight]:
    """Publish messages of several keys, one a moment, while something is done to the server."""
    flights = []
    for number in range(COUNT):
        disturb(number)
        key = KEYS[number % len(KEYS)]
        flights.append(await publisher.publish("orders", b"%d" % number, ordering_key=key))
    await asyncio.wait([flight.ack for flight in flights], timeout=2 * WITHIN)
    return flights


def check(flights: Sequence[Flight], *servers: Sequence[PublishedMessage]) -> None:
    """What answered ok is there, what is there twice has one id, and keys are in order."""
    there = [message for server in servers for message in server]
    copies = Counter(message.attributes[FLIGHT_ID] for message in there)
    data = {message.attributes[FLIGHT_ID]: message.data for message in there}
    for flight in flights:
        assert flight.ack.done()
        if flight.message_id is not None:
            assert data[flight.id] == flight.data
            assert copies[flight.id] <= flight.attempts
    assert len({message.message_id for server in servers[:1] for message in server}) == len(
        servers[0]
    )
    for server in servers:
        for key in KEYS[1:]:
            first_copies = dict.fromkeys(
                int(message.data) for message in server if message.ordering_key == key
            )
            assert list(first_copies) == sorted(first_copies)


def failed(flights: Sequence[Flight]) -> list[Flight]:
    return [flight for flight in flights if flight.error is not None]


async def test_a_service_that_is_unavailable_for_a_second(transport: str) -> None:
    async with nothing_left_behind(), Emulator(project="p") as emulator:
        emulator.create_topic("orders")
        faults: Faults = emulator.faults
        publisher = publisher_to(emulator.address, transport=transport, retry=PATIENT)
        async with publisher:

            def disturb(number: int) -> None:
                if number == 50:
                    faults.fail("Publish", "UNAVAILABLE", times=1_000_000)
                    asyncio.get_running_loop().call_later(1, faults.clear)

            flights = await publish_all(publisher, disturb)
        assert not failed(flights)
        assert max(flight.attempts for flight in flights) > 3
        check(flights, emulator.messages("orders"))
        assert len(emulator.messages("orders")) == COUNT


async def test_answers_that_are_lost(transport: str) -> None:
    async with nothing_left_behind(), Emulator(project="p") as emulator:
        emulator.create_topic("orders")
        publisher = publisher_to(emulator.address, transport=transport, retry=PATIENT)
        async with publisher:

            def disturb(number: int) -> None:
                if number % 20 == 10:
                    emulator.faults.fail("Publish", "UNAVAILABLE", applied=True)

            flights = await publish_all(publisher, disturb)
        assert not failed(flights)
        check(flights, emulator.messages("orders"))
        twice = len(emulator.messages("orders")) - COUNT
        assert twice >= 10  # each carries the id of a flight that was sent again, as checked


async def test_connections_that_are_cut(transport: str) -> None:
    async with nothing_left_behind(), Emulator(project="p") as emulator:
        emulator.create_topic("orders")
        publisher = publisher_to(emulator.address, transport=transport, retry=PATIENT)
        async with publisher:

            def disturb(number: int) -> None:
                if number % 40 == 20:
                    emulator.faults.cut_connections()

            flights = await publish_all(publisher, disturb)
        assert not failed(flights)
        check(flights, emulator.messages("orders"))


async def test_a_slow_server(transport: str) -> None:
    async with nothing_left_behind(), Emulator(project="p") as emulator:
        emulator.create_topic("orders")
        publisher = publisher_to(emulator.address, transport=transport, retry=None)
        async with publisher:

            def disturb(number: int) -> None:
                if number % 50 == 10:
                    emulator.faults.delay("Publish", 0.2, times=3)

            flights = await publish_all(publisher, disturb)
            assert publisher.in_flight == 0
        assert not failed(flights)
        check(flights, emulator.messages("orders"))
        assert len(emulator.messages("orders")) == COUNT


async def test_without_retries_what_failed_is_known_and_the_rest_is_there(transport: str) -> None:
    async with nothing_left_behind(), Emulator(project="p") as emulator:
        emulator.create_topic("orders")
        publisher = publisher_to(emulator.address, transport=transport, retry=None)
        async with publisher:
            flights: list[Flight] = []
            for number in range(COUNT):
                if number % 50 == 20:
                    emulator.faults.fail("Publish", "UNAVAILABLE")
                publisher.resume_all()
                key = KEYS[number % len(KEYS)]
                flights.append(publisher.publish("orders", b"%d" % number, ordering_key=key))
                await asyncio.wait([flights[-1].ack])
        lost = failed(flights)
        assert len(lost) == 8
        assert all(isinstance(flight.error, ServiceError) for flight in lost)
        check(flights, emulator.messages("orders"))
        assert len(emulator.messages("orders")) == COUNT - len(lost)


async def test_an_endpoint_that_goes_down_and_comes_back(transport: str) -> None:
    """R15, R16, R17, R19: others take over, keys wait for their own, and it is used again."""
    async with (
        nothing_left_behind(),
        Emulator(project="p") as first,
        Emulator(project="p") as second,
    ):
        for emulator in (first, second):
            emulator.create_topic("orders")
        publisher = publisher_to(first.address, second.address, transport=transport, retry=PATIENT)
        async with publisher:

            def disturb(number: int) -> None:
                if number == 50:
                    down = first.faults.refuse_connections()
                    first.faults.cut_connections()
                    asyncio.get_running_loop().call_later(1, down.resume)

            flights = await publish_all(publisher, disturb)
            sites = publisher._runners.sites
            await until(lambda: not sites.endpoints.isolated)
            last = publisher.publish("orders", b"%d" % COUNT)
            await last.ack
        assert not failed(flights)
        check([*flights, last], first.messages("orders"), second.messages("orders"))
        unordered = [message for message in second.messages("orders") if not message.ordering_key]
        assert unordered  # while the first was down
        assert first.messages("orders")[-1].data == last.data
        for key in KEYS[1:]:
            homes = [
                any(message.ordering_key == key for message in emulator.messages("orders"))
                for emulator in (first, second)
            ]
            assert sum(homes) == 1

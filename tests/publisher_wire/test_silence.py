"""A connection to the service that is lost without a word."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import PublisherClient, RetryPolicy
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.keepalive import Keepalive
from pubsub_aio._wire.rest import RestTransport
from pubsub_aio._wire.transport import Transport
from pubsub_aio.emulator import Emulator
from tests.subscriber_wire.conftest import WITHIN, nothing_left_behind
from tests.wire.tcp import silencing

PATIENT = RetryPolicy(
    retries=-1,
    wait=0.05,
    attempt_timeout=0.5,
    codes=frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"}),
)


def transport_of(kind: str, address: str) -> Transport:
    connection = Connection(target=address, tls=False, source="test")
    if kind == "rest":
        return RestTransport(connection)
    return GrpcTransport(connection, keepalive=Keepalive(answers=0.1, waits=0.1, timeout=1.0))


@pytest.mark.parametrize("kind", ["grpc", "rest"])
async def test_a_publisher_leaves_a_connection_that_has_fallen_silent(kind: str) -> None:
    """Its attempts take less time than the connection has to answer."""
    async with (
        nothing_left_behind(),
        Emulator(project="p") as emulator,
        silencing(emulator.address) as way,
    ):
        emulator.create_topic("orders")
        async with PublisherClient(
            "p", transport=transport_of(kind, way.address), retry=PATIENT, wait_timeout=WITHIN
        ) as publisher:
            for data in (b"before", b"after"):
                async with asyncio.timeout(2 * WITHIN):
                    flight = await publisher.publish("orders", data, ordering_key="key")
                    await flight.ack
                way.go_silent()

        assert [message.data for message in emulator.messages("orders")] == [b"before", b"after"]
        assert flight.attempts > 1
        assert way.opened > 1

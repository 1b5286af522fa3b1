"""A connection to the service that is lost without a word."""

from __future__ import annotations

from pubsub_aio import SubscriberClient
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.keepalive import Keepalive
from pubsub_aio.emulator import Emulator
from tests.subscriber_wire.conftest import WITHIN, Received, nothing_left_behind, until
from tests.wire.tcp import silencing


async def test_a_subscriber_leaves_a_connection_that_has_fallen_silent() -> None:
    callback = Received()
    async with (
        nothing_left_behind(),
        Emulator(project="p") as emulator,
        silencing(emulator.address) as way,
    ):
        emulator.create_subscription("worker", "topic")
        transport = GrpcTransport(
            Connection(target=way.address, tls=False, source="test"),
            keepalive=Keepalive(answers=0.1, waits=0.2, timeout=1.0),
        )
        async with SubscriberClient("p", transport=transport) as client:
            client.subscribe("worker", callback)
            for data in (b"before", b"after"):
                emulator.publish("topic", data)
                await until(lambda: emulator.backlog("worker") == 0, timeout=2 * WITHIN)
                way.go_silent()

        assert set(callback.data) == {b"before", b"after"}
        assert way.opened > 2  # one for the stream and one for acks, at first

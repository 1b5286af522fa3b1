"""What the tests of a publisher share: a publisher in virtual time, and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from pubsub_aio import Flight, PublisherClient, PublisherOptions
from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Transport, service_error
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import Tapped, now

TOPIC = "orders"


@contextlib.asynccontextmanager
async def publisher_of(
    emulator: MemoryEmulator,
    transport: Transport | Sequence[Transport] | None = None,
    **options: Unpack[PublisherOptions],
) -> AsyncIterator[PublisherClient]:
    """A publisher of the emulator, which has a topic."""
    with contextlib.suppress(ValueError):
        emulator.create_topic(TOPIC)
    way = transport or emulator.transport()
    async with PublisherClient(emulator.project, transport=way, **options) as publisher:
        yield publisher


def stored(emulator: MemoryEmulator, topic: str = TOPIC) -> list[bytes]:
    """The data that a topic was given, in order."""
    return [message.data for message in emulator.messages(topic)]


class Listener:
    """Notes what it is told, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[float, str, bytes]] = []
        self.flights: list[Flight] = []

    def _note(self, event: str, flight: Flight) -> None:
        self.told.append((round(now(), 3), event, flight.data))
        self.flights.append(flight)

    def published(self, flight: Flight) -> None:
        self._note("published", flight)

    def acked(self, flight: Flight) -> None:
        self._note("acked", flight)

    def completed_exceptionally(self, flight: Flight) -> None:
        self._note("completed_exceptionally", flight)

    def timed_out(self, flight: Flight) -> None:
        self._note("timed_out", flight)

    def events(self, data: bytes | None = None) -> list[str]:
        """What it was told, of one message or of all."""
        return [event for _, event, of in self.told if data in (None, of)]

    def times(self, event: str) -> list[float]:
        """When it was told of an event."""
        return [time for time, told, _ in self.told if told == event]


class Refusing(Tapped):
    """A server that refuses requests with a message it does not like, all of them."""

    def __init__(self, emulator: MemoryEmulator) -> None:
        super().__init__(emulator.transport())
        self.requests = 0

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        if rpc == "Publish":
            self.requests += 1
            messages = schema.PublishRequest.FromString(request).messages
            if any(b"bad" in message.data for message in messages):
                await asyncio.sleep(0)
                raise service_error("INVALID_ARGUMENT", "a message does not fit the schema")
        return await super().call(rpc, request, timeout=timeout)


class Answering(Tapped):
    """A server that is told what its answers to publishes are; then it answers as it should.

    Args:
        transport: To the server.
        answers: For each the seconds that it takes, and the code that it fails with, if it does.
    """

    def __init__(self, transport: Transport, *answers: tuple[float, str | None]) -> None:
        super().__init__(transport)
        self._answers = list(answers)

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        if rpc == "Publish" and self._answers:
            self.calls.append((now(), rpc, request))
            seconds, code = self._answers.pop(0)
            try:
                async with asyncio.timeout(timeout):
                    await asyncio.sleep(seconds)
            except TimeoutError:
                code = "DEADLINE_EXCEEDED"
            if code is not None:
                raise service_error(code, "as it was told")
            return await self._transport.call(rpc, request, timeout=timeout)
        return await super().call(rpc, request, timeout=timeout)

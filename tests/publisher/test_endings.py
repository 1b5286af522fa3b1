"""How a publisher ends at awkward moments: before its start, in the middle of it, by a listener."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from pubsub_aio import (
    ClosedError,
    ConfigError,
    DrainTimeoutError,
    Flight,
    PublisherClient,
    PublisherStoppedError,
    QueueFullError,
    StartupError,
)
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, publisher_of, stored
from tests.subscriber.conftest import Tapped, now, virtual


class Closing(Tapped):
    """A transport that notes that it was closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True
        await super().close()


# While it starts


@virtual
async def test_it_stops_at_once_while_its_runners_check_the_topics(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    with emulator.faults.stall_connections():
        transport = Closing(emulator.transport())
        publisher = PublisherClient(emulator.project, transport=transport, topics=[TOPIC])
        runners = [
            asyncio.create_task(publisher.run_publisher()),
            asyncio.create_task(publisher.run_flights()),
        ]
        flight = publisher.publish(TOPIC, b"x")
        await asyncio.sleep(1)
        await publisher.stop()

        assert (now(), transport.closed) == (1, True)
        assert await asyncio.gather(*runners) == [None, None]
        with pytest.raises(PublisherStoppedError, match="it was not sent"):
            await flight
    assert not [record for record in caplog.records if "does not answer" in record.getMessage()]


@virtual
async def test_a_start_that_is_stopped_says_so(emulator: MemoryEmulator) -> None:
    with emulator.faults.stall_connections():
        publisher = PublisherClient(
            emulator.project, transport=emulator.transport(), topics=[TOPIC]
        )
        starting = asyncio.create_task(publisher.start())
        await asyncio.sleep(1)
        await publisher.stop()

        with pytest.raises(ClosedError, match="stopped while it started"):
            await starting
    assert now() == 1


@virtual
async def test_a_drain_ends_when_the_start_fails_meanwhile(emulator: MemoryEmulator) -> None:
    emulator.faults.delay("GetTopic", 1)
    publisher = PublisherClient(
        emulator.project, transport=emulator.transport(), topics=["missing"]
    )
    flight = publisher.publish("missing", b"x")
    starting = asyncio.create_task(publisher.start())
    await asyncio.sleep(0)
    draining = asyncio.create_task(publisher.drain())

    with pytest.raises(StartupError):
        await starting
    await draining
    with pytest.raises(PublisherStoppedError):
        await flight.ack


@virtual
async def test_a_drain_before_the_start_spoils_nothing(emulator: MemoryEmulator) -> None:
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    with pytest.raises(ConfigError, match="drain: nobody runs the publisher, start"):
        await publisher.drain()

    async with publisher:
        await publisher.publish(TOPIC, b"x").ack
    assert stored(emulator) == [b"x"]


@virtual
async def test_what_is_drained_is_drained(emulator: MemoryEmulator) -> None:
    """Whoever asks again, though the loops have ended, which ran in tasks of one's own."""
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(publisher.run_publisher())
        tasks.create_task(publisher.run_flights())
        publisher.publish(TOPIC, b"x")
        await publisher.drain()
    await publisher.drain()
    await publisher.stop()
    assert stored(emulator) == [b"x"]


@virtual
@pytest.mark.parametrize("running", ["run_publisher", "run_flights", None])
async def test_it_is_said_once_that_nobody_runs_it(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture, running: str | None
) -> None:
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=emulator.transport())
    runner = asyncio.create_task(getattr(publisher, running)()) if running else None
    for _ in range(3):
        publisher.publish(TOPIC, b"x")
        await asyncio.sleep(10)

    (line,) = [record.getMessage() for record in caplog.records if "nobody runs" in record.msg]
    others = {"run_publisher", "run_flights"} - {running}
    assert all(f"{name}()" in line for name in others)
    assert f"{running}()" not in line
    await publisher.stop()
    if runner is not None:
        await runner


# By a listener


@virtual
async def test_an_async_listener_may_stop_it(emulator: MemoryEmulator) -> None:
    class Stopping:
        async def acked(self, flight: Flight) -> None:
            await publisher.stop()
            heard.append(flight.data)

    heard: list[bytes] = []
    transport = Closing(emulator.transport())
    emulator.create_topic(TOPIC)
    publisher = PublisherClient(emulator.project, transport=transport, listener=Stopping())
    await publisher.start()
    await publisher.publish(TOPIC, b"x").ack
    await asyncio.sleep(10)

    assert (heard, transport.closed) == ([b"x"], True)


@virtual
async def test_an_async_listener_that_catches_its_cancellation_is_the_last_that_hears(
    emulator: MemoryEmulator,
) -> None:
    class Catching:
        async def acked(self, flight: Flight) -> None:
            heard.append(flight.data)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    heard: list[bytes] = []
    async with publisher_of(emulator, listener=Catching()) as publisher:
        for data in (b"1", b"2"):
            await publisher.publish(TOPIC, data).ack
        await publisher.stop()

    assert heard == [b"1"]


@virtual
async def test_an_async_listener_that_drains_it_is_told_that_it_cannot(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    class Draining:
        async def acked(self, flight: Flight) -> None:
            del flight
            await publisher.drain()

    async with publisher_of(emulator, listener=Draining()) as publisher:
        await publisher.publish(TOPIC, b"x").ack

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "a listener would wait for itself" in str(record.exc_info)


@virtual
async def test_an_async_listener_that_hangs_is_named(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging:
        async def acked(self, flight: Flight) -> None:
            del flight
            await asyncio.Event().wait()

    async with publisher_of(emulator, listener=Hanging()) as publisher:
        for _ in range(3):
            await publisher.publish(TOPIC, b"x").ack
        with pytest.raises(DrainTimeoutError, match="a listener has not heard 3 things") as late:
            await publisher.drain(60)

        assert late.value.untold == 3
        (line,) = [record.getMessage() for record in caplog.records]
        assert "listener.acked has not returned for 10 s, 2 more" in line
        await publisher.stop()


@virtual
async def test_what_an_async_listener_has_not_heard_has_a_bound(emulator: MemoryEmulator) -> None:
    """Though all that comes about is that messages are taken back."""

    class Hanging:
        async def published(self, flight: Flight) -> None:
            del flight
            await asyncio.Event().wait()

        async def completed_exceptionally(self, flight: Flight) -> None:
            del flight

    emulator.faults.delay("Publish", 10_000)
    async with publisher_of(emulator, listener=Hanging(), max_in_flight=1) as publisher:
        await publisher.publish(TOPIC, b"first", timeout=100_000)
        for _ in range(10_000):
            waiting = asyncio.ensure_future(_departed(publisher.publish(TOPIC, b"x")))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])

        assert publisher.queued == 0
        with pytest.raises(QueueFullError, match="events 10,000 is reached") as full:
            publisher.publish(TOPIC, b"x")
        assert full.value.field == "events"
        many = asyncio.create_task(publisher.publish_many(TOPIC, [b"x"]))
        await asyncio.sleep(100)
        assert not many.done()
        await publisher.stop()
        with pytest.raises(ClosedError):
            await many


async def _departed(flight: Flight) -> Flight:
    return await flight

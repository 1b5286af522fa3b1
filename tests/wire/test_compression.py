"""Requests that are sent compressed, and who has to wait while they are."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.rest import RestTransport
from pubsub_aio._wire.transport import CompressingTransport
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import UnavailableError
from tests.wire.tcp import counting

WITHIN = 30.0
TOPIC = "projects/p/topics/orders"
ORDER = b'{"order": 17, "item": "tea"}'
SMALL, MEDIUM, LARGE = ORDER * 1_000, ORDER * 20_000, ORDER * 50_000
KINDS: dict[str, type[GrpcTransport | RestTransport]] = {
    "grpc": GrpcTransport,
    "rest": RestTransport,
}


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(project="p") as emulator:
        emulator.create_topic("orders")
        yield emulator


@contextlib.asynccontextmanager
async def opened(
    kind: str, emulator: Emulator
) -> AsyncIterator[tuple[CompressingTransport, Counter[str]]]:
    """A transport, and how many bytes go over it."""
    async with counting(emulator.address) as (address, counts):
        transport = KINDS[kind](Connection(target=address, tls=False, source="test"))
        await transport.open()
        try:
            yield transport, counts
        finally:
            await transport.close()


async def publish(transport: CompressingTransport, data: bytes, *, timeout: float = WITHIN) -> None:
    message = schema.PubsubMessage(data=data)
    request = schema.PublishRequest(topic=TOPIC, messages=[message]).SerializeToString()
    await transport.call("Publish", request, timeout=timeout, compress=True)


@pytest.mark.parametrize(
    ("kind", "data", "compressed"),
    [
        pytest.param("grpc", SMALL, True),
        pytest.param("grpc", MEDIUM, True),
        pytest.param("grpc", LARGE, False, id="the loop would have to wait"),
        pytest.param("rest", SMALL, True),
        pytest.param("rest", MEDIUM, True),
        pytest.param("rest", LARGE, True),
    ],
)
async def test_what_is_compressed_arrives_whole(
    emulator: Emulator, kind: str, data: bytes, *, compressed: bool
) -> None:
    async with opened(kind, emulator) as (transport, counts):
        await publish(transport, data)

    assert [message.data for message in emulator.messages("orders")] == [data]
    assert (counts["to server"] < len(data) / 4) is compressed


class Compressing:
    """Sees who compresses over REST, and can let it take its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[threading.Thread] = []
        self.begun = asyncio.Event()
        self.may_end = threading.Event()
        self.may_end.set()
        self._loop = asyncio.get_running_loop()
        self._really = gzip.compress
        monkeypatch.setattr(gzip, "compress", self._compress)

    def _compress(self, data: bytes, *args: Any, **options: Any) -> bytes:
        self.threads.append(threading.current_thread())
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.may_end.wait(WITHIN)
        return self._really(data, *args, **options)


async def test_the_loop_compresses_what_is_small_and_a_thread_what_is_large(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressing = Compressing(monkeypatch)
    async with opened("rest", emulator) as (transport, _):
        for data in (SMALL, LARGE):
            await publish(transport, data)

    here = threading.current_thread()
    assert [thread is here for thread in compressing.threads] == [True, False]


@contextlib.asynccontextmanager
async def while_compressing(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Compressing, CompressingTransport, asyncio.Task[None]]]:
    """While a publish over REST compresses, which ends when it may."""
    compressing = Compressing(monkeypatch)
    compressing.may_end.clear()
    async with opened("rest", emulator) as (transport, _), asyncio.timeout(WITHIN):
        publishing = asyncio.create_task(publish(transport, LARGE))
        await compressing.begun.wait()
        yield compressing, transport, publishing


async def test_other_calls_are_made_while_one_is_compressed(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with while_compressing(emulator, monkeypatch) as (compressing, transport, publishing):
        get = schema.GetTopicRequest(topic=TOPIC).SerializeToString()
        await transport.call("GetTopic", get, timeout=WITHIN)
        assert not publishing.done()
        compressing.may_end.set()
        await publishing

    assert [message.data for message in emulator.messages("orders")] == [LARGE]


async def test_who_is_cancelled_or_out_of_time_does_not_wait_and_nothing_is_sent(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with while_compressing(emulator, monkeypatch) as (compressing, transport, publishing):
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        with pytest.raises(UnavailableError) as caught:
            await publish(transport, LARGE, timeout=0.05)
        compressing.may_end.set()
        await publish(transport, SMALL)

    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert [message.data for message in emulator.messages("orders")] == [SMALL]

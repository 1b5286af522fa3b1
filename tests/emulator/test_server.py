"""The server itself: start and stop, its address, and what it bears."""

import asyncio
import gc
import http.client
import logging
import math
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.pubsub_v1 import (
    GetTopicRequest,
    PublishRequest,
    PublishResponse,
    PubsubMessage,
    PullRequest,
    PullResponse,
    StreamingPullRequest,
    StreamingPullResponse,
    Topic,
)

from pubsub_aio import ConfigError
from pubsub_aio.emulator import Emulator, EmulatorThread, VirtualClock
from tests.emulator.conformance.rest import Rest

WITHIN = 10.0
"""Seconds of real time in which the server must have done what a test waits for."""

Stream = grpc.aio.StreamStreamCall[StreamingPullRequest, StreamingPullResponse]


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(port=0) as emulator:
        yield emulator


async def publish(channel: grpc.aio.Channel, topic: str, *data: bytes) -> PublishResponse:
    call = channel.unary_unary(
        "/google.pubsub.v1.Publisher/Publish",
        request_serializer=PublishRequest.serialize,
        response_deserializer=PublishResponse.deserialize,
    )
    messages = [PubsubMessage(data=each) for each in data]
    response: PublishResponse = await call(PublishRequest(topic=topic, messages=messages))
    return response


async def get_topic(channel: grpc.aio.Channel, topic: str) -> Topic:
    call = channel.unary_unary(
        "/google.pubsub.v1.Publisher/GetTopic",
        request_serializer=GetTopicRequest.serialize,
        response_deserializer=Topic.deserialize,
    )
    answer: Topic = await call(GetTopicRequest(topic=topic), timeout=WITHIN)
    return answer


async def open_stream(channel: grpc.aio.Channel, subscription: str) -> Stream:
    """Open a stream, and read its first response."""
    call = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=StreamingPullRequest.serialize,
        response_deserializer=StreamingPullResponse.deserialize,
    )()
    await call.write(
        StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=60)
    )
    await call.read()
    return call


# Start and stop


def open_sockets() -> set[str]:
    """This process's open sockets."""
    links = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            links.add(os.readlink(descriptor))
        except FileNotFoundError:  # the one that lists them
            continue
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
async def test_stop_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with Emulator():
        pass  # what gRPC keeps for the whole process is there from now on
    tasks, threads, sockets = asyncio.all_tasks(), set(threading.enumerate()), open_sockets()
    for _ in range(3):
        async with (
            Emulator(clock=VirtualClock()) as emulator,
            grpc.aio.insecure_channel(emulator.address) as channel,
        ):
            await open_stream(channel, emulator.create_subscription("worker", "orders"))
            rest = Rest(emulator.address, timeout=WITHIN)
            answer = await asyncio.to_thread(rest.get, f"projects/{emulator.project}/topics")
            assert answer.status == 200
    gc.collect()

    assert asyncio.all_tasks() == tasks
    assert {t for t in threading.enumerate() if not t.name.startswith("asyncio_")} <= threads
    assert open_sockets() <= sockets
    assert os.listdir(tmp_path) == []


def test_emulator_in_a_thread_ends_its_thread() -> None:
    before = set(threading.enumerate())
    with EmulatorThread() as emulator:
        emulator.create_topic("orders")
        assert set(threading.enumerate()) > before

    assert not {t for t in set(threading.enumerate()) - before if "emulator" in t.name}


def test_emulator_in_a_thread_that_is_never_started_leaves_nothing_behind() -> None:
    EmulatorThread()
    gc.collect()


async def test_stop_ends_streams_and_waiting_calls_as_unavailable() -> None:
    async with asyncio.timeout(WITHIN), Emulator() as emulator:
        channel = grpc.aio.insecure_channel(emulator.address)
        worker = emulator.create_subscription("worker", "orders")
        streams = [await open_stream(channel, worker) for _ in range(3)]
        pull = channel.unary_unary(
            "/google.pubsub.v1.Subscriber/Pull",
            request_serializer=PullRequest.serialize,
            response_deserializer=PullResponse.deserialize,
        )
        seen = emulator.activity()
        waiting = pull(PullRequest(subscription=worker, max_messages=1), timeout=60)
        await emulator.activity_after(seen)

    for call in (waiting, *streams):
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    await channel.close()


async def test_stop_does_not_wait_for_a_delayed_call() -> None:
    clock = VirtualClock()
    async with asyncio.timeout(WITHIN), Emulator(clock=clock) as emulator:
        emulator.faults.delay("GetTopic", 3_600)
        channel = grpc.aio.insecure_channel(emulator.address)
        call = asyncio.ensure_future(get_topic(channel, emulator.create_topic("orders")))
        await emulator.until(lambda: clock.next_at < math.inf)

    with pytest.raises(grpc.RpcError):
        await call
    await channel.close()


async def test_exception_in_the_block_stops_the_server_and_passes_on() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with Emulator() as emulator:
            raise LookupError("mine")
    host, _, port = emulator.address.rpartition(":")

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


# Where it listens


async def test_port_that_is_in_use_is_an_os_error(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(emulator.address.rpartition(":")[2])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match=f"{port}.*in use"):
        async with Emulator(port=port):
            pass

    assert os.listdir(tmp_path) == []


async def test_port_zero_takes_a_free_one_and_a_freed_one_can_be_taken_again() -> None:
    async with Emulator(port=0) as one, Emulator(port=0) as another:
        assert one.address != another.address
        assert one.address.startswith("127.0.0.1:")
    port = int(one.address.rpartition(":")[2])
    async with Emulator(port=port) as again:
        assert again.address == one.address


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "begins", "warns"),
    [
        ("127.0.0.1", "127.0.0.1:", False),
        ("localhost", "localhost:", False),
        pytest.param("::1", "[::1]:", False, marks=pytest.mark.skipif(not has_ipv6(), reason="-")),
        ("0.0.0.0", "0.0.0.0:", True),  # noqa: S104 - that it warns is what is tested
    ],
)
async def test_address_can_be_dialled_and_wider_than_loopback_is_warned_of(
    host: str, begins: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Emulator(host=host) as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        topic = emulator.create_topic("orders")
        assert (await get_topic(channel, topic)).name == topic
        assert emulator.address.startswith(begins)

    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == warns
    assert all(emulator.address in warning for warning in warnings)


async def test_long_name_of_the_temporary_directory_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    async with (
        Emulator() as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        topic = emulator.create_topic("orders")
        assert (await get_topic(channel, topic)).name == topic


# What it bears


async def test_grpc_and_rest_see_the_same_state_on_one_port(emulator: Emulator) -> None:
    rest = Rest(emulator.address, timeout=WITHIN)
    topic = f"projects/{emulator.project}/topics/orders"
    made = await asyncio.to_thread(rest.put, topic, {"labels": {"made": "by-rest"}})
    assert made.status == 200
    async with grpc.aio.insecure_channel(emulator.address) as channel:
        assert (await get_topic(channel, topic)).labels == {"made": "by-rest"}
        worker = emulator.create_subscription("worker", "orders")
        await publish(channel, topic, b"by grpc")
    pulled = await asyncio.to_thread(rest.post, f"{worker}:pull", {"maxMessages": 1})

    assert "YnkgZ3JwYw==" in str(pulled.body)


def test_root_answers_ok() -> None:
    with EmulatorThread() as emulator:
        connection = http.client.HTTPConnection(emulator.address, timeout=WITHIN)
        connection.request("GET", "/")
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
        connection.close()

    assert (status, body.strip()) == (200, b"Ok")


async def test_two_thousand_calls_at_once_are_all_answered(emulator: Emulator) -> None:
    topic = emulator.create_topic("orders")
    async with grpc.aio.insecure_channel(emulator.address) as channel:
        calls = (publish(channel, topic, b"%d" % number) for number in range(2_000))
        responses = await asyncio.gather(*calls)

    ids = {message_id for response in responses for message_id in response.message_ids}
    assert len(ids) == len(emulator.messages()) == 2_000


async def test_client_that_does_not_read_holds_nobody_up(emulator: Emulator) -> None:
    slow, quick = (emulator.create_subscription(name, "orders") for name in ("slow", "quick"))
    topic = f"projects/{emulator.project}/topics/orders"
    local = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    async with (
        grpc.aio.insecure_channel(emulator.address, options=local) as lazy,
        grpc.aio.insecure_channel(emulator.address, options=local) as channel,
    ):
        await open_stream(lazy, slow)
        stream = await open_stream(channel, quick)
        for _ in range(20):
            await publish(channel, topic, bytes(2**20), bytes(2**20))
        received = 0
        while received < 40:
            response = await asyncio.wait_for(stream.read(), timeout=WITHIN)
            assert isinstance(response, StreamingPullResponse)
            received += len(response.received_messages)
        assert (await get_topic(channel, topic)).name == topic


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00" * 4_096,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4_096,
        b"PRI * HTTP/2.0",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/projects/p/topics/t:publish HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_garbage_does_not_disturb_the_server(emulator: Emulator, garbage: bytes) -> None:
    host, _, port = emulator.address.rpartition(":")
    for _ in range(3):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(garbage)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    async with grpc.aio.insecure_channel(emulator.address) as channel:
        topic = emulator.create_topic("orders")
        assert (await get_topic(channel, topic)).name == topic


@pytest.mark.parametrize("happens", [False, True])
async def test_exception_in_a_condition_of_until_passes_on(
    emulator: Emulator, happens: bool
) -> None:
    def condition() -> bool:
        if emulator.activity() >= wanted:
            raise ZeroDivisionError
        return False

    wanted = emulator.activity() + happens
    waiting = asyncio.ensure_future(emulator.until(condition))
    await asyncio.sleep(0)
    emulator.create_topic("orders")

    with pytest.raises(ZeroDivisionError):
        await waiting


def test_exception_in_a_condition_of_until_passes_on_from_a_thread() -> None:
    def condition() -> bool:
        raise ZeroDivisionError

    with EmulatorThread() as emulator, pytest.raises(ZeroDivisionError):
        emulator.until(condition)


async def test_a_server_that_is_started_again_gives_no_id_twice() -> None:
    """Whoever remembers ids, to recognise repeats, would drop what is new."""
    ids: list[int] = []
    for _ in range(3):
        async with Emulator() as emulator:
            for topic in ("orders", "others"):
                emulator.create_topic(topic)
                ids += [int(emulator.publish(topic, b"x")) for _ in range(10)]

    assert len({*ids}) == len(ids)
    assert max(ids) < 2**63


async def test_calls_while_it_stops_are_answered_or_unavailable() -> None:
    answers: set[grpc.StatusCode] = set()
    emulator = Emulator()
    await emulator.__aenter__()
    emulator.create_topic("orders")
    topic = f"projects/{emulator.project}/topics/orders"

    async def publish_on() -> None:
        async with grpc.aio.insecure_channel(emulator.address) as channel:
            while grpc.StatusCode.UNAVAILABLE not in answers:
                try:
                    await publish(channel, topic, b"tea")
                    answers.add(grpc.StatusCode.OK)
                except grpc.aio.AioRpcError as error:
                    answers.add(error.code())

    async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(publish_on())
        await emulator.until(lambda: grpc.StatusCode.OK in answers)
        await emulator.__aexit__(None, None, None)

    assert answers == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


@pytest.mark.parametrize(
    ("arguments", "naming"),
    [
        ({"stream_life": 0}, "stream_life"),
        ({"stream_life": "x"}, "stream_life"),
        ({"transform_timeout": -1}, "transform_timeout"),
        ({"quotas": {"open_streams": 5}}, "quotas"),
        ({"port": "x"}, "port"),
        ({"port": 99_999}, "port"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], naming: str) -> None:
    with pytest.raises(ConfigError, match=naming):
        Emulator(**arguments)

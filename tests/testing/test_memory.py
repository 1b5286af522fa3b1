"""The emulator in memory, in virtual time: what the service does in days happens at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TypeVar

import pytest

from pubsub_aio._wire import schema
from pubsub_aio.emulator.clock import START
from pubsub_aio.errors import ServiceError, UnavailableError
from pubsub_aio.testing import MemoryEmulator, MemoryTransport, run, run_scenario
from pubsub_aio.testing.transport import MemoryStream

T = TypeVar("T")

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
LAG = 0.02


def now() -> float:
    return asyncio.get_running_loop().time()


async def opened(emulator: MemoryEmulator) -> MemoryTransport:
    transport = emulator.transport()
    await transport.open()
    return transport


async def open_stream(
    transport: MemoryTransport, subscription: str, *, max_messages: int = 0, client_id: str = ""
) -> MemoryStream:
    """A stream that has begun to answer."""
    stream = transport.streaming_pull()
    first = schema.StreamingPullRequest(
        subscription=subscription,
        stream_ack_deadline_seconds=10,
        protocol_version=1,
        max_outstanding_messages=max_messages,
        client_id=client_id,
    )
    await stream.write(first.SerializeToString())
    await stream.read()
    return stream


async def received(stream: MemoryStream) -> list[schema.ReceivedMessage]:
    response = schema.StreamingPullResponse.FromString(await stream.read())
    return list(response.received_messages)


async def ending(stream: MemoryStream) -> ServiceError:
    """How the stream ends; what comes before is read away."""
    try:
        while True:
            await stream.read()
    except ServiceError as error:
        return error


async def publish(transport: MemoryTransport, topic: str, *bodies: bytes) -> None:
    messages = [schema.PubsubMessage(data=body) for body in bodies]
    request = schema.PublishRequest(topic=topic, messages=messages)
    await transport.call("Publish", request.SerializeToString(), timeout=10)


async def pull(transport: MemoryTransport, subscription: str, *, timeout: float) -> bytes:
    request = schema.PullRequest(subscription=subscription, max_messages=10)
    return await transport.call("Pull", request.SerializeToString(), timeout=timeout)


async def with_emulator(
    emulator: MemoryEmulator, scenario: Callable[[MemoryEmulator], Coroutine[object, object, T]]
) -> T:
    async with emulator:
        return await scenario(emulator)


# Time


def test_a_message_comes_again_when_its_deadline_has_passed() -> None:
    async def scenario(emulator: MemoryEmulator) -> list[float]:
        worker = emulator.create_subscription("worker", "orders")
        stream = await open_stream(await opened(emulator), worker)
        emulator.publish("orders", b"a")
        seen = []
        for _ in range(4):
            assert len(await received(stream)) == 1
            seen.append(now())
        return seen

    assert run_scenario(scenario) == pytest.approx([0, 10, 20, 30], abs=1e-5)


def test_what_is_published_is_delivered_after_the_lag() -> None:
    async def scenario(emulator: MemoryEmulator) -> float:
        worker = emulator.create_subscription("worker", "orders")
        transport = await opened(emulator)
        stream = await open_stream(transport, worker)
        await publish(transport, f"projects/{emulator.project}/topics/orders", b"a")
        await received(stream)
        return now()

    assert run_scenario(scenario) == pytest.approx(LAG)


def test_backoff_retention_expiry_and_a_streams_life_pass_in_no_time() -> None:
    async def scenario(emulator: MemoryEmulator) -> None:
        backoff = {"minimum_backoff": timedelta(seconds=100)}
        worker = emulator.create_subscription("worker", "orders", retry_policy=backoff)
        emulator.create_subscription("idle", "orders")
        transport = await opened(emulator)
        stream = await open_stream(transport, worker)
        emulator.publish("orders", b"a")
        await received(stream)
        await received(stream)
        assert now() == pytest.approx(110, abs=1e-5)
        assert (await ending(stream)).message == "the stream's life is over"
        assert now() == pytest.approx(30 * MINUTE, abs=1e-5)
        await asyncio.sleep(7 * DAY - now() - 1)
        assert emulator.backlog("idle") == 1
        await asyncio.sleep(2)
        assert emulator.backlog("idle") == 0
        await asyncio.sleep(31 * DAY)
        with pytest.raises(ValueError, match="NOT_FOUND"):
            emulator.backlog("idle")

    run_scenario(scenario, max_time=60 * DAY)


def test_delays_deadlines_and_patience_are_virtual() -> None:
    async def scenario(emulator: MemoryEmulator) -> list[float]:
        worker = emulator.create_subscription("worker", "orders")
        transport = await opened(emulator)
        seen = []
        assert await pull(transport, worker, timeout=40) == b""
        seen.append(now())
        emulator.faults.delay("Pull", HOUR)
        assert await pull(transport, worker, timeout=2 * HOUR) == b""
        seen.append(now())
        emulator.faults.delay("Pull", HOUR)
        with pytest.raises(ServiceError) as caught:
            await pull(transport, worker, timeout=MINUTE)
        assert caught.value.code == "DEADLINE_EXCEEDED"
        seen.append(now())
        with pytest.raises(ServiceError):
            await pull(transport, worker, timeout=0)
        return seen

    assert run_scenario(scenario) == [39, 39 + HOUR + 60, 39 + HOUR + 60 + MINUTE]


def test_a_stalled_stream_hangs_for_hours() -> None:
    async def scenario(emulator: MemoryEmulator) -> float:
        worker = emulator.create_subscription("worker", "orders")
        stream = await open_stream(await opened(emulator), worker)
        stall = emulator.faults.stall_streams("worker")
        asyncio.get_running_loop().call_later(5 * HOUR, stall.resume)
        emulator.publish("orders", b"a")
        await received(stream)
        return now()

    with_life = run(with_emulator(MemoryEmulator(stream_life=DAY), scenario))
    assert with_life == 5 * HOUR


def test_a_stalled_connection_hides_even_the_end_of_a_stream() -> None:
    async def scenario(emulator: MemoryEmulator) -> tuple[str, float]:
        worker = emulator.create_subscription("worker", "orders")
        stream = await open_stream(await opened(emulator), worker)
        stall = emulator.faults.stall_connections(direction="responses")
        asyncio.get_running_loop().call_later(HOUR, stall.resume)
        emulator.faults.cut_streams(code="ABORTED")
        with pytest.raises(ServiceError) as caught:
            await stream.read()
        return caught.value.code, now()

    assert run_scenario(scenario) == ("ABORTED", HOUR)


def test_what_is_sent_on_a_stalled_connection_arrives_when_it_is_over() -> None:
    async def scenario(emulator: MemoryEmulator) -> list[int]:
        worker = emulator.create_subscription("worker", "orders")
        stream = await open_stream(await opened(emulator), worker)
        emulator.publish("orders", b"a")
        (message,) = await received(stream)
        seen = []
        with emulator.faults.stall_connections(direction="requests"):
            ack = schema.StreamingPullRequest(ack_ids=[message.ack_id])
            await stream.write(ack.SerializeToString())
            await asyncio.sleep(5)
            seen.append(emulator.backlog(worker))
        await asyncio.sleep(1)
        return [*seen, emulator.backlog(worker)]

    assert run_scenario(scenario) == [1, 0]


@pytest.mark.parametrize("way", ["cancel", "cut", "close"])
def test_a_stream_that_ends_while_stalled_ends_on_both_sides(way: str) -> None:
    async def scenario(emulator: MemoryEmulator) -> tuple[int, str, int]:
        worker = emulator.create_subscription("worker", "orders")
        transport = await opened(emulator)
        stream = await open_stream(transport, worker)
        emulator.faults.stall_connections()
        emulator.publish("orders", b"a")
        await asyncio.sleep(1)
        before = len(emulator.streams(worker))
        if way == "cancel":
            stream.cancel()
        elif way == "cut":
            emulator.faults.cut_connections()
        else:
            await transport.close()
        code = (await ending(stream)).code
        await asyncio.sleep(1)
        return before, code, len(emulator.streams(worker))

    assert run_scenario(scenario) == (1, "UNAVAILABLE" if way == "cut" else "CANCELLED", 0)


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_a_pull_that_was_given_up_takes_no_message(way: str) -> None:
    async def scenario(emulator: MemoryEmulator) -> int:
        worker = emulator.create_subscription("worker", "orders")
        stall = emulator.faults.stall_connections(direction="responses")
        transport = await opened(emulator)
        pulling = asyncio.create_task(pull(transport, worker, timeout=2 * MINUTE))
        await asyncio.sleep(1 if way == "cancel" else 3 * MINUTE)
        pulling.cancel()
        await asyncio.wait([pulling])
        stall.resume()
        emulator.publish("orders", b"a")
        await asyncio.sleep(1)
        return emulator.outstanding(worker)

    assert run_scenario(scenario) == 0


def test_its_clock_goes_by_the_loop() -> None:
    async def scenario(emulator: MemoryEmulator) -> None:
        emulator.create_topic("orders")
        await emulator.advance(HOUR)
        emulator.publish("orders", b"a")
        (message,) = emulator.messages()
        assert message.publish_time.isoformat() == "2026-01-01T01:00:00+00:00"
        assert emulator.clock.now() == START + HOUR
        with pytest.raises(ValueError, match="negative"):
            await emulator.advance(-1)

    run_scenario(scenario)
    assert MemoryEmulator(start=5.0).clock.now() == 5.0


def test_until_waits_by_the_loops_time() -> None:
    async def scenario(emulator: MemoryEmulator) -> None:
        await emulator.until(lambda: now() > MINUTE, timeout=2 * MINUTE)
        with pytest.raises(TimeoutError):
            await emulator.until(lambda: False, timeout=MINUTE)
        assert 2 * MINUTE <= now() < 3 * MINUTE

    run_scenario(scenario)


async def test_in_any_other_loop_time_passes_as_usual() -> None:
    async with MemoryEmulator(delivery_lag=0.001) as emulator:
        worker = emulator.create_subscription("worker", "orders")
        transport = await opened(emulator)
        stream = await open_stream(transport, worker)
        began = time.monotonic()
        emulator.faults.delay("Publish", 0.05)
        await publish(transport, f"projects/{emulator.project}/topics/orders", b"a")
        messages = await received(stream)
        await transport.close()

    assert [message.message.data for message in messages] == [b"a"]
    assert time.monotonic() - began > 0.04
    assert emulator.clock.now() == pytest.approx(START, abs=30)


# Bounds


def test_a_client_that_does_not_read_is_not_written_to() -> None:
    async def scenario(emulator: MemoryEmulator) -> tuple[int, int]:
        worker = emulator.create_subscription("worker", "orders", ack_deadline_seconds=600)
        stream = await open_stream(await opened(emulator), worker)
        for _ in range(100):
            emulator.publish("orders", bytes(1_000_000))
            await asyncio.sleep(0.05)
        held = emulator.outstanding(worker)
        count = 0
        while count < 100:
            count += len(await received(stream))
        return held, count

    held, count = run_scenario(scenario)

    assert 1 <= held <= 3
    assert count == 100


def test_a_server_that_does_not_read_is_not_written_to_without_bound() -> None:
    async def write_often(stream: MemoryStream, request: bytes) -> None:
        for _ in range(100):
            await stream.write(request)

    async def scenario(emulator: MemoryEmulator) -> tuple[bool, float]:
        worker = emulator.create_subscription("worker", "orders")
        stream = await open_stream(await opened(emulator), worker)
        ids = schema.StreamingPullRequest(ack_ids=["x" * 48] * 200).SerializeToString()
        stall = emulator.faults.stall_streams(worker, direction="requests")
        writing = asyncio.create_task(write_often(stream, ids))
        await asyncio.wait([writing], timeout=MINUTE)
        blocked = not writing.done()
        stream.cancel()
        with pytest.raises(ServiceError, match="CANCELLED"):
            await writing
        stall.resume()
        return blocked, now()

    assert run_scenario(scenario) == (True, MINUTE)


def test_a_write_that_is_given_up_ends_the_stream() -> None:
    async def scenario(emulator: MemoryEmulator) -> tuple[str, int]:
        worker = emulator.create_subscription("worker", "orders")
        stream = await open_stream(await opened(emulator), worker)
        emulator.faults.stall_connections()
        large = schema.StreamingPullRequest(ack_ids=["x" * 48] * 2_000).SerializeToString()
        await stream.write(large)  # is taken out, and held back
        await stream.write(large)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(MINUTE):
                await stream.write(large)
        error = await ending(stream)
        await emulator.until(lambda: not emulator.streams(worker))
        return error.code, len(emulator.streams(worker))

    assert run_scenario(scenario) == ("CANCELLED", 0)


def test_an_emulator_that_is_left_waits_for_nobody_and_leaves_nothing() -> None:
    async def main() -> tuple[float, set[str]]:
        async with MemoryEmulator() as emulator:
            worker = emulator.create_subscription("worker", "orders", ack_deadline_seconds=600)
            transport = await opened(emulator)
            unread = await open_stream(transport, worker)
            idle = emulator.create_subscription("idle", "nothing")
            pulling = asyncio.create_task(pull(transport, idle, timeout=HOUR))
            for _ in range(10):
                emulator.publish("orders", bytes(1_000_000))
            await asyncio.sleep(1)
            await publish(transport, f"projects/{emulator.project}/topics/orders", b"a")
            before = now()
        assert emulator._service._published_timer is None
        with pytest.raises(UnavailableError):
            await pulling
        assert (await ending(unread)).message == "the emulator is stopping"
        await transport.close()
        return now() - before, {task.get_name() for task in asyncio.all_tasks()}

    assert run(main()) == (0.0, {"Task-1"})


def test_it_can_be_reached_only_while_it_runs() -> None:
    async def main() -> list[str]:
        emulator = MemoryEmulator()
        worker = emulator.create_subscription("worker", "orders")
        transport = await opened(emulator)
        seen = []
        for _ in range(2):
            try:
                await pull(transport, worker, timeout=1)
            except UnavailableError as error:
                seen.append(error.message)
            async with emulator:
                await pull(transport, worker, timeout=1)
        stream = transport.streaming_pull()
        with pytest.raises(UnavailableError):
            await stream.write(b"")
        await transport.close()
        return seen

    assert run(main()) == ["the emulator does not run"] * 2


def test_it_has_no_address() -> None:
    with pytest.raises(RuntimeError, match=r"transport\(\)"):
        str(MemoryEmulator().address)


# Order

PROGRAM = """
import asyncio
from tests.testing.test_memory import busy
from pubsub_aio.testing import run_scenario

print(run_scenario(busy))
"""


async def busy(emulator: MemoryEmulator) -> list[object]:
    """Several streams of several subscriptions, with faults: who gets what, and when."""
    seen: list[object] = []
    transports = [await opened(emulator) for _ in range(3)]
    names = [f"projects/{emulator.project}/subscriptions/sub-{number}" for number in range(4)]
    for name in names:
        emulator.create_subscription(name, "orders")

    async def consume(stream: MemoryStream, who: str) -> None:
        while True:
            for message in await received(stream):
                seen.append((round(now(), 3), who, message.ack_id))
                if message.message.data[0] % 3:
                    ack = schema.StreamingPullRequest(ack_ids=[message.ack_id])
                    await stream.write(ack.SerializeToString())

    async with asyncio.TaskGroup() as tasks:
        consumers = []
        for number in range(24):
            name, transport = names[number % 4], transports[number % 3]
            stream = await open_stream(transport, name, max_messages=2, client_id=f"c{number}")
            consumers.append(tasks.create_task(consume(stream, f"c{number}")))
        emulator.faults.duplicate(names[0], times=3)
        for number in range(30):
            emulator.publish("orders", bytes([number]))
            await asyncio.sleep(0.5)
        await asyncio.sleep(MINUTE)
        for consumer in consumers:
            consumer.cancel()
    for transport in transports:
        await transport.close()
    return seen


def test_the_same_program_runs_the_same_way_every_time() -> None:
    clutter: list[object] = []
    runs = []
    for number in range(20):
        clutter += [bytearray(100 * number) for _ in range(number)]  # so that addresses differ
        runs.append(run_scenario(busy))

    assert all(each == runs[0] for each in runs)
    assert len(runs[0]) > 100


def test_nor_does_it_depend_on_the_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }

    assert outputs == {f"{run_scenario(busy)}\n"}


def test_ack_ids_of_two_emulators_differ_if_asked_to() -> None:
    async def ids(emulator: MemoryEmulator) -> str:
        worker = emulator.create_subscription("worker", "orders")
        emulator.publish("orders", b"a")
        reply = await pull(await opened(emulator), worker, timeout=1)
        return schema.PullResponse.FromString(reply).received_messages[0].ack_id

    first, same = run_scenario(ids), run_scenario(ids)
    other = run(with_emulator(MemoryEmulator(instance=2), ids))

    assert first == same != other

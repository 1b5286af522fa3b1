"""Push subscriptions over time: failures, deadlines, order, and how they end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web

from pubsub_aio.emulator import Emulator, VirtualClock
from tests.emulator.push_endpoint import Endpoint, Pushed

DAY = 86_400.0


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def other() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


def subscribe(
    emulator: Emulator, endpoint: Endpoint, name: str = "worker", **settings: object
) -> str:
    push_config = {"push_endpoint": endpoint.url}
    return emulator.create_subscription(name, "orders", push_config=push_config, **settings)


def change(emulator: Emulator, subscription: str, endpoint: str = "") -> None:
    """Switch to another endpoint, or to pull."""
    from pubsub_aio._wire import schema

    config = schema.PushConfig(push_endpoint=endpoint)
    emulator._broker.modify_push_config(subscription, config, now=emulator.clock.now())
    emulator._wake()


async def came(emulator: Emulator, endpoint: Endpoint, count: int) -> list[Pushed]:
    """Wait for the endpoint to have been asked that often."""
    await emulator.until(lambda: len(endpoint.requests) >= count)
    assert len(endpoint.requests) == count
    return endpoint.requests


async def settled(emulator: Emulator, *, backlog: int, subscription: str = "worker") -> None:
    """Wait until nothing is under way, and that much is left."""
    await emulator.until(
        lambda: not emulator.outstanding(subscription) and emulator.backlog(subscription) == backlog
    )


def texts(requests: list[Pushed]) -> list[str]:
    from base64 import b64decode

    return [b64decode(json.loads(pushed.body)["message"]["data"]).decode() for pushed in requests]


def delivery_times(emulator: Emulator, message_id: str) -> list[float]:
    message = emulator.message(message_id)
    return [round((d.time - message.publish_time).total_seconds(), 6) for d in message.deliveries]


async def test_push_is_a_delivery_and_an_ack(emulator: Emulator, endpoint: Endpoint) -> None:
    subscribe(emulator, endpoint)
    message_id = emulator.publish("orders", b"a")
    await settled(emulator, backlog=0)
    message = emulator.message(message_id)

    assert [ack.effective for ack in message.acks] == [True]
    assert [ack.ack_id for ack in message.acks] == [d.ack_id for d in message.deliveries]


async def test_push_begins_with_the_emulator(endpoint: Endpoint) -> None:
    emulator = Emulator(clock=VirtualClock())
    subscribe(emulator, endpoint)
    emulator.publish("orders", b"a")
    async with emulator:
        await came(emulator, endpoint, 1)


async def test_push_reaches_a_server_in_the_same_loop(emulator: Emulator) -> None:
    bodies: list[bytes] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        bodies.append(await request.read())
        return web.Response(text="thanks")

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    emulator.create_subscription("worker", "orders", push_config={"push_endpoint": url})
    for _ in range(50):
        emulator.publish("orders", b"a")
    await settled(emulator, backlog=0)
    await runner.cleanup()

    assert len(bodies) == 50


# Failures


async def test_push_pauses_longer_with_each_failure(emulator: Emulator, endpoint: Endpoint) -> None:
    endpoint.always = 500
    subscribe(emulator, endpoint)
    message_id = emulator.publish("orders", b"a")
    for count in range(1, 7):
        await came(emulator, endpoint, count)
        await settled(emulator, backlog=1)
        await emulator.advance(0.1 * 2 ** (count - 1))

    assert delivery_times(emulator, message_id)[:6] == [0, 0.1, 0.3, 0.7, 1.5, 3.1]


async def test_push_pause_holds_every_message_of_its_subscription_only(
    emulator: Emulator, endpoint: Endpoint, other: Endpoint
) -> None:
    endpoint.always = 500
    subscribe(emulator, endpoint)
    subscribe(emulator, other, "fine")
    emulator.publish("orders", b"a")
    await came(emulator, endpoint, 1)
    await settled(emulator, backlog=1)
    emulator.publish("orders", b"b")
    await came(emulator, other, 2)
    await emulator.advance(0.09)
    assert len(endpoint.requests) == 1
    endpoint.always = 204
    await emulator.advance(0.01)

    await settled(emulator, backlog=0)


async def test_push_retry_policy_delays_only_what_failed(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    policy = {"minimum_backoff": "15s", "maximum_backoff": "20s"}
    subscribe(emulator, endpoint, retry_policy=_durations(policy))
    endpoint.statuses.extend([500])
    first = emulator.publish("orders", b"a")
    await came(emulator, endpoint, 1)
    await settled(emulator, backlog=1)
    emulator.publish("orders", b"b")
    await came(emulator, endpoint, 2)
    await settled(emulator, backlog=1)
    endpoint.statuses.append(500)
    await emulator.advance(15)
    await came(emulator, endpoint, 3)
    await settled(emulator, backlog=1)
    await emulator.advance(20)
    await settled(emulator, backlog=0)

    assert delivery_times(emulator, first) == [0, 15, 35]


def _durations(policy: dict[str, str]) -> dict[str, object]:
    return {key: {"seconds": int(value.removesuffix("s"))} for key, value in policy.items()}


async def test_push_deadline_ends_the_request_and_its_response_does_not_count(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    subscribe(emulator, endpoint, ack_deadline_seconds=30)
    endpoint.hold()
    message_id = emulator.publish("orders", b"a")
    await came(emulator, endpoint, 1)
    await emulator.advance(29.9)
    assert (emulator.outstanding("worker"), len(endpoint.requests)) == (1, 1)
    await emulator.advance(0.1)
    assert emulator.outstanding("worker") == 0
    endpoint.release()
    await emulator.advance(0.1)
    await settled(emulator, backlog=0)
    message = emulator.message(message_id)

    assert delivery_times(emulator, message_id) == [0, 30.1]
    assert [ack.ack_id for ack in message.acks] == [message.deliveries[1].ack_id]


async def test_push_to_an_endpoint_that_is_down_and_comes_up(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    subscribe(emulator, endpoint)
    endpoint.stop()
    message_id = emulator.publish("orders", b"a")
    for pause in (0.1, 0.2, 0.4, 0.8, 1.6):
        await emulator.until(lambda: not emulator.outstanding("worker"))
        await emulator.advance(pause)
    await emulator.until(lambda: not emulator.outstanding("worker"))
    endpoint.start()
    await emulator.advance(3.2)
    await settled(emulator, backlog=0)

    assert texts(endpoint.requests) == ["a"]
    assert len(delivery_times(emulator, message_id)) == 7


async def test_push_of_what_fails_too_often_is_forwarded(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    emulator.create_subscription("heap", "dead")
    policy = {
        "dead_letter_topic": f"projects/{emulator.project}/topics/dead",
        "max_delivery_attempts": 5,
    }
    subscribe(emulator, endpoint, dead_letter_policy=policy)
    endpoint.always = 500
    emulator.publish("orders", b"a")
    for count in range(1, 6):
        await came(emulator, endpoint, count)
        await emulator.until(lambda: not emulator.outstanding("worker"))
        await emulator.advance(0.1 * 2 ** (count - 1))

    assert (emulator.backlog("worker"), emulator.backlog("heap")) == (0, 1)
    attempts = [json.loads(pushed.body)["deliveryAttempt"] for pushed in endpoint.requests]
    assert attempts == [1, 2, 3, 4, 5]


async def test_push_of_one_that_hangs_does_not_hold_another(
    emulator: Emulator, endpoint: Endpoint, other: Endpoint
) -> None:
    endpoint.hold()
    subscribe(emulator, endpoint)
    subscribe(emulator, other, "fine")
    for _ in range(200):
        emulator.publish("orders", b"a")
    await settled(emulator, backlog=0, subscription="fine")

    assert emulator.backlog("worker") == 200
    assert len(endpoint.requests) <= 4


# Many, and in order


async def test_push_of_a_thousand_keeps_few_under_way(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    endpoint.takes = 0.1
    subscribe(emulator, endpoint)
    for number in range(1_000):
        emulator.publish("orders", str(number).encode())
    await emulator.until(lambda: emulator.backlog("worker") == 0, timeout=60)

    assert sorted(map(int, texts(endpoint.requests))) == list(range(1_000))
    assert 20 < endpoint.most_at_once <= 100


async def test_push_in_order_one_of_a_key_at_a_time(emulator: Emulator, endpoint: Endpoint) -> None:
    subscribe(emulator, endpoint, enable_message_ordering=True)
    endpoint.hold()
    for number in range(3):
        for key in ("k", "l"):
            emulator.publish("orders", f"{key}{number}".encode(), ordering_key=key)
    emulator.publish("orders", b"no key")
    await came(emulator, endpoint, 3)
    assert sorted(texts(endpoint.requests)) == ["k0", "l0", "no key"]
    endpoint.release()
    await settled(emulator, backlog=0)

    for key in ("k", "l"):
        pushed = [text for text in texts(endpoint.requests) if text[0] == key]
        assert pushed == [f"{key}0", f"{key}1", f"{key}2"]


async def test_push_in_order_under_failures(emulator: Emulator, endpoint: Endpoint) -> None:
    subscribe(emulator, endpoint, enable_message_ordering=True)
    endpoint.statuses.extend([500, 204, 404, 204, 204, 500, 500] * 3)
    for number in range(20):
        emulator.publish("orders", f"{number:02}".encode(), ordering_key="k")
    while emulator.backlog("worker"):
        await emulator.until(lambda: not emulator.outstanding("worker"))
        await emulator.advance(0.1)
    pushed = texts(endpoint.requests)

    assert pushed == sorted(pushed)
    assert list(dict.fromkeys(pushed)) == [f"{number:02}" for number in range(20)]
    assert endpoint.most_at_once == 1


# Changes


async def test_push_after_seek_brings_messages_again(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    name = subscribe(emulator, endpoint, retain_acked_messages=True)
    start = emulator.clock.now()
    emulator.publish("orders", b"a")
    await settled(emulator, backlog=0)
    emulator._broker.seek_to_time(name, start, now=start)
    emulator._wake()
    await settled(emulator, backlog=0)

    assert texts(endpoint.requests) == ["a", "a"]


async def test_push_that_hangs_since_before_a_seek_ends_at_its_deadline(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    name = subscribe(emulator, endpoint)
    endpoint.hold()
    for text in (b"a", b"b", b"c", b"d", b"e"):
        emulator.publish("orders", text)
    await came(emulator, endpoint, 4)
    now = emulator.clock.now()
    emulator._broker.seek_to_time(name, now + 1, now=now)
    emulator._wake()
    emulator.publish("orders", b"f")
    await emulator.advance(9.9)
    assert len(endpoint.requests) == 4
    await emulator.advance(0.2)
    endpoint.release()
    await settled(emulator, backlog=0)

    assert texts(endpoint.requests)[4:] == ["f"]


@pytest.mark.parametrize("how", ["delete", "detach"])
async def test_push_stops_with_its_subscription(
    emulator: Emulator, endpoint: Endpoint, how: str
) -> None:
    name = subscribe(emulator, endpoint)
    endpoint.hold()
    emulator.publish("orders", b"a")
    await came(emulator, endpoint, 1)
    before = asyncio.all_tasks()
    getattr(emulator._broker, f"{how}_subscription")(name, now=emulator.clock.now())
    emulator._wake()
    await emulator.until(lambda: len(asyncio.all_tasks()) == len(before) - 2)
    emulator.publish("orders", b"b")
    await emulator.advance(60)

    assert len(endpoint.requests) == 1


async def test_push_switched_back_and_forth_while_requests_are_under_way(
    emulator: Emulator, endpoint: Endpoint, other: Endpoint
) -> None:
    name = subscribe(emulator, endpoint)
    endpoint.hold()
    emulator.publish("orders", b"a")
    await came(emulator, endpoint, 1)
    for _ in range(3):
        change(emulator, name)
        await emulator.advance(0)
        change(emulator, name, other.url)
    emulator.publish("orders", b"b")
    await came(emulator, other, 1)
    endpoint.release()
    await settled(emulator, backlog=0)
    await emulator.advance(60)

    assert (texts(endpoint.requests), texts(other.requests)) == (["a"], ["b"])


async def test_push_that_fails_is_no_activity(emulator: Emulator, endpoint: Endpoint) -> None:
    endpoint.hold()
    expires = {"ttl": {"seconds": int(DAY)}}
    subscribe(emulator, endpoint, expiration_policy=expires, ack_deadline_seconds=600)
    message_id = emulator.publish("orders", b"a")
    await emulator.advance(DAY - 1)
    assert len(delivery_times(emulator, message_id)) > 100
    assert emulator.backlog("worker") == 1
    await emulator.advance(1)

    with pytest.raises(ValueError, match="not found"):
        emulator.backlog("worker")


async def test_push_that_succeeds_is_activity(emulator: Emulator, endpoint: Endpoint) -> None:
    subscribe(emulator, endpoint, expiration_policy={"ttl": {"seconds": int(DAY)}})
    await emulator.advance(DAY - 1)
    emulator.publish("orders", b"a")
    await settled(emulator, backlog=0)
    await emulator.advance(DAY - 1)

    assert emulator.backlog("worker") == 0


async def test_push_lets_messages_age_out(emulator: Emulator, endpoint: Endpoint) -> None:
    endpoint.stop()
    subscribe(emulator, endpoint, message_retention_duration={"seconds": 600})
    emulator.publish("orders", b"a")
    await emulator.advance(601)

    assert emulator.backlog("worker") == 0
    endpoint.start()


# Time, and the end


async def test_push_under_way_does_not_hold_the_clock(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    subscribe(emulator, endpoint)
    endpoint.hold()
    emulator.publish("orders", b"a")
    await came(emulator, endpoint, 1)
    began = time.monotonic()
    for _ in range(10):
        await emulator.advance(0.5)

    assert time.monotonic() - began < 1
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("clock", [VirtualClock, None])
async def test_push_under_way_does_not_hold_the_end(
    endpoint: Endpoint, clock: type[VirtualClock] | None
) -> None:
    endpoint.hold()
    tasks = asyncio.all_tasks()
    async with Emulator(clock=clock() if clock else None) as emulator:
        subscribe(emulator, endpoint)
        for _ in range(10):
            emulator.publish("orders", b"a")
        await came(emulator, endpoint, 4)
        began = time.monotonic()

    assert time.monotonic() - began < 2
    assert emulator.backlog("worker") == 10
    assert asyncio.all_tasks() == tasks


async def test_push_by_the_machines_clock(endpoint: Endpoint) -> None:
    async with Emulator() as emulator:
        subscribe(emulator, endpoint)
        endpoint.statuses.extend([500, 500])
        message_id = emulator.publish("orders", b"a")
        await settled(emulator, backlog=0)
        first, second, third = delivery_times(emulator, message_id)

    assert 0.1 <= second - first < 1
    assert 0.2 <= third - second < 1.5


@pytest.fixture
async def raw_server() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers whatever was put into the list, and nothing once it is empty."""
    answers: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        if answers:
            writer.write(answers.pop(0))
            await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", answers
    server.close()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "acked", id="whole"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 100_000,
            "acked",
            id="very long",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "late", id="broken off"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", "late", id="begun"),
        pytest.param(b"what?\r\n\r\n", "failed", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 " + b"x" * 100_000, "failed", id="an endless line"),
        pytest.param(b"", "late", id="silence"),
    ],
)
async def test_push_answered_strangely(
    emulator: Emulator, raw_server: tuple[str, list[bytes]], answer: bytes, outcome: str
) -> None:
    url, answers = raw_server
    answers.append(answer)
    emulator.create_subscription("worker", "orders", push_config={"push_endpoint": url})
    message_id = emulator.publish("orders", b"a")
    await emulator.until(lambda: not answers)
    if outcome == "late":
        assert emulator.outstanding("worker") == 1
        await emulator.advance(10)
    await settled(emulator, backlog=0 if outcome == "acked" else 1)

    assert delivery_times(emulator, message_id) == [0]

"""Every transport has one shape: the same calls, streams and faults look the same on each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal

import pytest

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.rest import RestTransport
from pubsub_aio._wire.transport import PullStream, Transport
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import (
    AlreadyExistsError,
    ClosedError,
    InvalidRequestError,
    NotFoundError,
    ServiceError,
    UnavailableError,
)
from pubsub_aio.testing import MemoryEmulator

WITHIN = 10.0
"""Seconds in which a server must have done what a test waits for."""

SOON = 0.3
"""Seconds after which a client gives up on a server that does not answer."""

TOPIC = "projects/p/topics/orders"
PLAIN = "projects/p/subscriptions/plain"
EXACT = "projects/p/subscriptions/exact"

Direction = Literal["both", "requests", "responses"]


# A row for each transport: its emulator, and how it reaches it


def grpc_to(emulator: Emulator) -> Transport:
    return GrpcTransport(Connection(target=emulator.address, tls=False, source="test"))


def memory_to(emulator: Emulator) -> Transport:
    assert isinstance(emulator, MemoryEmulator)
    return emulator.transport()


def rest_to(emulator: Emulator) -> Transport:
    return RestTransport(Connection(target=emulator.address, tls=False, source="test"))


ROWS: dict[str, tuple[Callable[[], Emulator], Callable[[Emulator], Transport]]] = {
    "grpc": (Emulator, grpc_to),
    "memory": (MemoryEmulator, memory_to),
    "rest": (Emulator, rest_to),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test runs on every transport that can do what it is about."""
    if "kind" in metafunc.fixturenames:
        with_streams = ["grpc", "memory"]
        metafunc.parametrize("kind", with_streams if "streaming" in metafunc.fixturenames else ROWS)


@pytest.fixture
async def emulator(kind: str) -> AsyncIterator[Emulator]:
    async with ROWS[kind][0]() as emulator:
        emulator.project = "p"
        emulator.create_subscription(PLAIN, TOPIC)
        emulator.create_subscription(EXACT, TOPIC, enable_exactly_once_delivery=True)
        yield emulator


@pytest.fixture
async def transport(kind: str, emulator: Emulator) -> AsyncIterator[Transport]:
    transport = ROWS[kind][1](emulator)
    await transport.open()
    yield transport
    await transport.close()


@pytest.fixture
def streaming(transport: Transport) -> Transport:
    assert transport.can.streaming
    return transport


# What a client sends


async def create_topic(transport: Transport, name: str) -> schema.Topic:
    request = schema.Topic(name=name).SerializeToString()
    return schema.Topic.FromString(await transport.call("CreateTopic", request, timeout=WITHIN))


async def publish(
    transport: Transport, *bodies: bytes, topic: str = TOPIC, timeout: float = WITHIN
) -> list[str]:
    messages = [schema.PubsubMessage(data=body) for body in bodies]
    request = schema.PublishRequest(topic=topic, messages=messages).SerializeToString()
    reply = await transport.call("Publish", request, timeout=timeout)
    return list(schema.PublishResponse.FromString(reply).message_ids)


async def pull(
    transport: Transport, subscription: str = PLAIN, *, timeout: float = WITHIN
) -> list[schema.ReceivedMessage]:
    request = schema.PullRequest(subscription=subscription, max_messages=10).SerializeToString()
    reply = await transport.call("Pull", request, timeout=timeout)
    return list(schema.PullResponse.FromString(reply).received_messages)


async def acknowledge(transport: Transport, subscription: str, *ids: str) -> bytes:
    request = schema.AcknowledgeRequest(subscription=subscription, ack_ids=ids)
    return await transport.call("Acknowledge", request.SerializeToString(), timeout=WITHIN)


async def modify(transport: Transport, subscription: str, seconds: int, *ids: str) -> bytes:
    request = schema.ModifyAckDeadlineRequest(
        subscription=subscription, ack_ids=ids, ack_deadline_seconds=seconds
    )
    return await transport.call("ModifyAckDeadline", request.SerializeToString(), timeout=WITHIN)


async def get_topic(transport: Transport, *, timeout: float = WITHIN) -> str:
    request = schema.GetTopicRequest(topic=TOPIC).SerializeToString()
    reply = await transport.call("GetTopic", request, timeout=timeout)
    return schema.Topic.FromString(reply).name


async def open_stream(transport: Transport, subscription: str = PLAIN) -> PullStream:
    stream = transport.streaming_pull()
    first = schema.StreamingPullRequest(
        subscription=subscription,
        stream_ack_deadline_seconds=10,
        protocol_version=1,
        client_id="test",
    )
    await stream.write(first.SerializeToString())
    return stream


async def respond(stream: PullStream) -> schema.StreamingPullResponse:
    async with asyncio.timeout(WITHIN):
        return schema.StreamingPullResponse.FromString(await stream.read())


async def greeted(transport: Transport, subscription: str = PLAIN) -> PullStream:
    """A stream that has begun to answer."""
    stream = await open_stream(transport, subscription)
    assert (await respond(stream)).HasField("subscription_properties")
    return stream


async def received(stream: PullStream, count: int) -> list[schema.ReceivedMessage]:
    messages: list[schema.ReceivedMessage] = []
    while len(messages) < count:
        messages += (await respond(stream)).received_messages
    return messages


async def acknowledge_on(stream: PullStream, *ids: str) -> None:
    await stream.write(schema.StreamingPullRequest(ack_ids=ids).SerializeToString())


async def ending(stream: PullStream) -> ServiceError:
    """How the stream ends; what comes before is read away."""
    async with asyncio.timeout(WITHIN):
        try:
            while True:
                await stream.read()
        except ServiceError as error:
            return error


# Calls


async def test_topics_and_subscriptions_are_created(transport: Transport) -> None:
    other = "projects/p/topics/other"
    config = schema.Subscription(name="projects/p/subscriptions/new", topic=other)

    assert (await create_topic(transport, other)).name == other
    reply = await transport.call("CreateSubscription", config.SerializeToString(), timeout=WITHIN)
    assert schema.Subscription.FromString(reply).topic == other


async def test_published_messages_are_pulled_and_acked(
    emulator: Emulator, transport: Transport
) -> None:
    ids = await publish(transport, b"a", b"b")
    messages = await pull(transport)
    reply = await acknowledge(transport, PLAIN, *(message.ack_id for message in messages))

    assert [message.message.message_id for message in messages] == ids
    assert [message.message.data for message in messages] == [b"a", b"b"]
    assert reply == b""
    assert emulator.backlog(PLAIN) == 0


async def test_a_nacked_message_comes_again(transport: Transport) -> None:
    await publish(transport, b"a")
    (first,) = await pull(transport)
    await modify(transport, PLAIN, 0, first.ack_id)
    (again,) = await pull(transport)

    assert again.message.message_id == first.message.message_id
    assert again.ack_id != first.ack_id


async def test_an_extended_lease_is_extended(emulator: Emulator, transport: Transport) -> None:
    message_id = emulator.publish(TOPIC, b"a")
    (message,) = await pull(transport)
    await modify(transport, PLAIN, 60, message.ack_id)

    assert [modack.seconds for modack in emulator.message(message_id).modacks] == [60]


async def test_a_pull_of_nothing_is_answered_before_its_deadline(transport: Transport) -> None:
    assert await pull(transport, timeout=1.0) == []


@pytest.mark.parametrize(
    ("rpc", "request_", "error", "code"),
    [
        (
            "GetSubscription",
            schema.GetSubscriptionRequest(subscription="projects/p/subscriptions/none"),
            NotFoundError,
            "NOT_FOUND",
        ),
        ("CreateTopic", schema.Topic(name=TOPIC), AlreadyExistsError, "ALREADY_EXISTS"),
        (
            "Pull",
            schema.PullRequest(subscription=PLAIN, max_messages=0),
            InvalidRequestError,
            "INVALID_ARGUMENT",
        ),
    ],
)
async def test_a_refusal_is_the_error_of_its_code(
    transport: Transport,
    rpc: str,
    request_: schema.Message,
    error: type[ServiceError],
    code: str,
) -> None:
    with pytest.raises(error) as caught:
        await transport.call(rpc, request_.SerializeToString(), timeout=WITHIN)

    assert caught.value.code == code
    assert caught.value.message


async def test_exactly_once_refusals_name_the_ack_ids(
    emulator: Emulator, transport: Transport
) -> None:
    assert transport.can.confirmations
    emulator.publish(TOPIC, b"a")
    (message,) = await pull(transport, EXACT)
    await acknowledge(transport, EXACT, message.ack_id)
    with pytest.raises(InvalidRequestError) as caught:
        await modify(transport, EXACT, 60, message.ack_id)

    assert caught.value.ack_errors == {message.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}


async def test_a_call_that_is_given_up_is_not_answered_to_the_next(
    emulator: Emulator, transport: Transport
) -> None:
    waiting = asyncio.create_task(pull(transport))
    await emulator.until(lambda: emulator._broker.subscription(PLAIN).pulls == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await emulator.until(lambda: emulator._broker.subscription(PLAIN).pulls == 0)
    emulator.publish(TOPIC, b"a")

    assert len(await pull(transport)) == 1


async def test_a_transport_that_is_not_open_makes_no_calls(
    kind: str, emulator: Emulator, streaming: Transport
) -> None:
    unopened = ROWS[kind][1](emulator)
    await streaming.close()
    await streaming.close()

    for transport in (unopened, streaming):
        with pytest.raises(ClosedError):
            await get_topic(transport)
        with pytest.raises(ClosedError):
            transport.streaming_pull()


async def test_a_closed_transport_can_be_opened_again(transport: Transport) -> None:
    await transport.close()
    await transport.open()

    assert await get_topic(transport) == TOPIC


async def test_closing_ends_a_call_that_waits(emulator: Emulator, transport: Transport) -> None:
    waiting = asyncio.create_task(pull(transport))
    await emulator.until(lambda: emulator._broker.subscription(PLAIN).pulls == 1)
    await transport.close()
    with pytest.raises(ServiceError) as caught:
        await waiting

    assert caught.value.code == "CANCELLED"


# Streams


async def test_a_stream_delivers_and_is_acked_on(emulator: Emulator, streaming: Transport) -> None:
    stream = await greeted(streaming)
    await publish(streaming, b"a", b"b")
    messages = await received(stream, 2)
    await acknowledge_on(stream, *(message.ack_id for message in messages))
    await emulator.until(lambda: emulator.backlog(PLAIN) == 0)
    stream.cancel()

    assert sorted(message.message.data for message in messages) == [b"a", b"b"]


async def test_a_stream_says_what_the_subscription_is_like(streaming: Transport) -> None:
    stream = await open_stream(streaming, EXACT)

    properties = (await respond(stream)).subscription_properties
    stream.cancel()

    assert properties.exactly_once_delivery_enabled
    assert not properties.message_ordering_enabled


async def test_an_empty_request_is_answered_by_an_empty_response(streaming: Transport) -> None:
    assert streaming.can.pings
    stream = await greeted(streaming)
    await stream.write(b"")
    await stream.write(b"")

    async with asyncio.timeout(WITHIN):
        assert [await stream.read(), await stream.read()] == [b"", b""]
    stream.cancel()


async def test_a_stream_confirms_acks_of_exactly_once(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming, EXACT)
    emulator.publish(TOPIC, b"a")
    (message,) = await received(stream, 1)
    await acknowledge_on(stream, message.ack_id)
    confirmed = (await respond(stream)).acknowledge_confirmation
    extension = schema.StreamingPullRequest(
        modify_deadline_ack_ids=[message.ack_id], modify_deadline_seconds=[60]
    )
    await stream.write(extension.SerializeToString())
    refused = (await respond(stream)).modify_ack_deadline_confirmation
    stream.cancel()

    assert list(confirmed.ack_ids) == [message.ack_id]
    assert list(refused.invalid_ack_ids) == [message.ack_id]


async def test_a_stream_on_a_missing_subscription_ends_with_not_found(streaming: Transport) -> None:
    stream = await open_stream(streaming, "projects/p/subscriptions/none")

    assert isinstance(await ending(stream), NotFoundError)


async def test_an_ended_stream_says_so_to_every_call(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming)
    emulator.faults.cut_streams(PLAIN, code="ABORTED")
    codes = [(await ending(stream)).code for _ in range(2)]
    with pytest.raises(ServiceError) as caught:
        await stream.write(b"")

    assert [*codes, caught.value.code] == ["ABORTED"] * 3


async def test_a_wrong_request_ends_the_stream(streaming: Transport) -> None:
    stream = await greeted(streaming)
    await stream.write(schema.StreamingPullRequest(client_id="other").SerializeToString())

    assert isinstance(await ending(stream), InvalidRequestError)


async def test_cancel_ends_a_pending_read_and_the_servers_side(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming)
    reading = asyncio.create_task(stream.read())
    await emulator.until(lambda: len(emulator.streams(PLAIN)) == 1)
    stream.cancel()
    with pytest.raises(ServiceError) as caught:
        await reading
    await emulator.until(lambda: not emulator.streams(PLAIN))
    with pytest.raises(ServiceError) as written:
        await stream.write(b"")

    assert caught.value.code == written.value.code == "CANCELLED"
    assert (await ending(stream)).code == "CANCELLED"


async def test_a_read_that_is_given_up_ends_the_stream(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stream.read()
    await emulator.until(lambda: not emulator.streams(PLAIN))

    assert (await ending(stream)).code == "CANCELLED"


async def test_a_stream_on_which_no_more_is_written_can_be_read_to_its_end(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming)
    emulator.publish(TOPIC, b"1")
    await emulator.until(lambda: emulator.outstanding(PLAIN) == 1)
    await stream.done_writing()
    await emulator.until(lambda: not emulator.streams(PLAIN))

    assert [one.message.data for one in await received(stream, 1)] == [b"1"]
    assert (await ending(stream)).code == "UNAVAILABLE"
    stream.cancel()
    with pytest.raises(ServiceError):
        await stream.done_writing()


async def test_a_stream_that_was_never_opened_is_not_read(streaming: Transport) -> None:
    stream = streaming.streaming_pull()
    with pytest.raises(ServiceError) as caught:
        await stream.read()
    stream.cancel()
    with pytest.raises(ServiceError) as written:
        await stream.write(b"")

    assert caught.value.code == written.value.code == "CANCELLED"


async def test_closing_ends_a_stream_that_is_read(emulator: Emulator, streaming: Transport) -> None:
    stream = await greeted(streaming)
    reading = asyncio.create_task(stream.read())
    await emulator.until(lambda: len(emulator.streams(PLAIN)) == 1)
    await streaming.close()
    with pytest.raises(ServiceError) as caught:
        await reading
    await emulator.until(lambda: not emulator.streams(PLAIN))

    assert caught.value.code == "CANCELLED"


async def test_a_stream_of_a_closed_transport_is_not_opened(streaming: Transport) -> None:
    stream = streaming.streaming_pull()
    await streaming.close()
    with pytest.raises((ServiceError, ClosedError)):
        await stream.write(b"")


async def test_an_emulator_that_stops_ends_streams_and_refuses_calls(kind: str) -> None:
    async with ROWS[kind][0]() as emulator:
        emulator.create_subscription(PLAIN, TOPIC)
        transport = ROWS[kind][1](emulator)
        await transport.open()
        stream = await greeted(transport) if transport.can.streaming else None
    if stream:
        assert isinstance(await ending(stream), UnavailableError)
    with pytest.raises(UnavailableError):
        await get_topic(transport, timeout=SOON)
    await transport.close()


# Faults


async def test_a_failed_call_carries_code_message_and_retry_delay(
    emulator: Emulator, transport: Transport
) -> None:
    emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED", message="too much", retry_delay=1.5)
    with pytest.raises(ServiceError) as caught:
        await publish(transport, b"a")

    error = caught.value
    assert (error.code, error.message, error.retry_delay) == ("RESOURCE_EXHAUSTED", "too much", 1.5)
    assert emulator.messages() == []
    assert len(await publish(transport, b"a")) == 1


async def test_a_lost_answer_took_effect(emulator: Emulator, transport: Transport) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", applied=True)
    with pytest.raises(UnavailableError):
        await publish(transport, b"a")

    assert len(emulator.messages()) == 1


async def test_a_call_that_takes_too_long_is_given_up(
    emulator: Emulator, transport: Transport
) -> None:
    emulator.faults.delay("Publish", 60)
    with pytest.raises(UnavailableError) as caught:
        await publish(transport, b"a", timeout=SOON)

    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert emulator.messages() == []


async def test_a_stream_that_fails_to_open_says_why(
    emulator: Emulator, streaming: Transport
) -> None:
    emulator.faults.fail("StreamingPull", "PERMISSION_DENIED", retry_delay=2.0)
    error = await ending(await open_stream(streaming))

    assert (error.code, error.retry_delay) == ("PERMISSION_DENIED", 2.0)


@pytest.mark.parametrize("direction", ["both", "requests", "responses"])
async def test_stalled_streams_hang_and_go_on(
    emulator: Emulator, streaming: Transport, direction: Direction
) -> None:
    stream = await greeted(streaming)
    emulator.publish(TOPIC, b"a")
    (message,) = await received(stream, 1)
    reading = asyncio.create_task(stream.read())
    with emulator.faults.stall_streams(PLAIN, direction=direction):
        await acknowledge_on(stream, message.ack_id)
        if direction == "responses":
            await emulator.until(lambda: emulator.backlog(PLAIN) == 0)
        await publish(streaming, b"b")
        if direction == "requests":
            await emulator.until(reading.done)
        held = emulator.backlog(PLAIN), reading.done()
    await emulator.until(lambda: emulator.backlog(PLAIN) == 1 and reading.done())
    stream.cancel()

    assert held == {"both": (2, False), "requests": (2, True), "responses": (1, False)}[direction]
    await reading


async def test_a_duplicated_message_comes_twice(emulator: Emulator, transport: Transport) -> None:
    emulator.faults.duplicate(PLAIN)
    await publish(transport, b"a")
    messages: list[schema.ReceivedMessage] = []
    while len(messages) < 2:
        messages += await pull(transport)

    assert len({message.message.message_id for message in messages}) == 1
    assert len({message.ack_id for message in messages}) == 2


async def test_a_lost_ack_has_no_effect(emulator: Emulator, transport: Transport) -> None:
    await publish(transport, b"a")
    (message,) = await pull(transport)
    emulator.faults.lose_acks(PLAIN)

    assert await acknowledge(transport, PLAIN, message.ack_id) == b""
    assert emulator.backlog(PLAIN) == 1


async def test_a_failed_confirmation_can_be_tried_again(
    emulator: Emulator, transport: Transport
) -> None:
    await publish(transport, b"a")
    (message,) = await pull(transport, EXACT)
    emulator.faults.fail_confirmations(EXACT)
    with pytest.raises(ServiceError) as caught:
        await acknowledge(transport, EXACT, message.ack_id)
    await acknowledge(transport, EXACT, message.ack_id)

    assert caught.value.ack_errors == {message.ack_id: "TRANSIENT_FAILURE_INJECTED"}
    assert emulator.backlog(EXACT) == 0


async def test_a_cut_connection_ends_calls_and_streams_but_not_the_transport(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming)
    waiting = asyncio.create_task(pull(streaming, EXACT))
    await emulator.until(lambda: emulator._broker.subscription(EXACT).pulls == 1)
    count = emulator.faults.cut_connections()
    with pytest.raises(UnavailableError):
        await waiting
    error = await ending(stream)
    await emulator.until(lambda: not emulator.streams(PLAIN))

    assert (count, error.code) == (1, "UNAVAILABLE")
    async with asyncio.timeout(WITHIN):
        while True:  # gRPC takes a moment to connect again
            try:
                assert await get_topic(streaming) == TOPIC
                break
            except UnavailableError:
                await asyncio.sleep(0)


async def test_refused_connections_are_unavailable_and_open_ones_stay(
    emulator: Emulator, streaming: Transport
) -> None:
    await get_topic(streaming)
    with emulator.faults.refuse_connections():
        assert await get_topic(streaming) == TOPIC
        emulator.faults.cut_connections()
        with pytest.raises(UnavailableError):
            await get_topic(streaming)
        with pytest.raises(UnavailableError):
            await (await open_stream(streaming)).read()


@pytest.mark.parametrize("direction", ["both", "requests", "responses"])
async def test_a_call_on_a_stalled_connection_is_given_up(
    emulator: Emulator, transport: Transport, direction: Direction
) -> None:
    await get_topic(transport)
    with emulator.faults.stall_connections(direction=direction):
        with pytest.raises(UnavailableError) as caught:
            await publish(transport, b"a", timeout=SOON)
        arrived = len(emulator.messages())

    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert arrived == (direction == "responses")
    assert await get_topic(transport) == TOPIC


async def test_a_stream_on_a_stalled_connection_hangs_and_goes_on(
    emulator: Emulator, streaming: Transport
) -> None:
    stream = await greeted(streaming)
    reading = asyncio.create_task(stream.read())
    with emulator.faults.stall_connections():
        emulator.publish(TOPIC, b"a")
        await emulator.until(lambda: emulator.outstanding(PLAIN) == 1)
        assert not reading.done()
    async with asyncio.timeout(WITHIN):
        assert await reading
    stream.cancel()

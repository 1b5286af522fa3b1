"""The gRPC transport: calls, streams, TLS and credentials, over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import resolve
from pubsub_aio._wire.grpc import GrpcStream, GrpcTransport
from pubsub_aio._wire.rpcs import BY_NAME
from pubsub_aio.emulator import Emulator, VirtualClock
from pubsub_aio.errors import (
    AlreadyExistsError,
    ClosedError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    ServiceError,
    UnavailableError,
)
from tests.wire import certificates
from tests.wire.certificates import Certificate

WITHIN = 30.0
SUBSCRIPTION = "projects/p/subscriptions/worker"
ACK = schema.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=["a"]).SerializeToString()
OPENING = schema.StreamingPullRequest(
    subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10
).SerializeToString()
LARGE = schema.StreamingPullRequest(ack_ids=["x" * 500_000] * 20).SerializeToString()


Unary = Callable[[bytes, Any], Awaitable[bytes]]


@contextlib.asynccontextmanager
async def opened(address: str) -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport(resolve(environment={"PUBSUB_EMULATOR_HOST": address}))
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(clock=VirtualClock(), project="p") as emulator:
        yield emulator


@pytest.fixture
async def transport(emulator: Emulator) -> AsyncIterator[GrpcTransport]:
    emulator.create_subscription("worker", "topic")
    async with opened(emulator.address) as transport:
        yield transport


@pytest.fixture
async def stream(emulator: Emulator, transport: GrpcTransport) -> AsyncIterator[GrpcStream]:
    """An open stream."""
    stream = transport.streaming_pull()
    async with asyncio.timeout(WITHIN):
        await stream.write(OPENING)
        await emulator.until(lambda: len(emulator.streams()) == 1)
        await stream.read()  # what the subscription is like
    yield stream
    stream.cancel()


# Calls


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", NotFoundError),
        ("ALREADY_EXISTS", AlreadyExistsError),
        ("PERMISSION_DENIED", PermissionDeniedError),
        ("UNAUTHENTICATED", PermissionDeniedError),
        ("INVALID_ARGUMENT", InvalidRequestError),
        ("UNAVAILABLE", UnavailableError),
        ("DEADLINE_EXCEEDED", UnavailableError),
        ("INTERNAL", ServiceError),
        ("RESOURCE_EXHAUSTED", ServiceError),
        ("CANCELLED", ServiceError),
    ],
)
async def test_a_refusal_becomes_the_error_of_its_code(
    code: str, kind: type[ServiceError], emulator: Emulator, transport: GrpcTransport
) -> None:
    emulator.faults.fail("Acknowledge", code, message="no", retry_delay=1.5)
    with pytest.raises(ServiceError) as caught:
        await transport.call("Acknowledge", ACK, timeout=WITHIN)

    error = caught.value
    assert type(error) is kind
    assert (error.code, error.message, error.retry_delay) == (code, "no", 1.5)
    assert error.ack_errors == {}


async def test_a_refused_ack_tells_which_ids(emulator: Emulator, transport: GrpcTransport) -> None:
    emulator.create_subscription("once", "topic", enable_exactly_once_delivery=True)
    emulator.publish("topic", b"a")
    name = "projects/p/subscriptions/once"
    pull = schema.PullRequest(subscription=name, max_messages=1).SerializeToString()
    reply = schema.PullResponse.FromString(await transport.call("Pull", pull, timeout=WITHIN))
    ids = [received.ack_id for received in reply.received_messages]
    emulator.faults.fail_confirmations("once")
    ack = schema.AcknowledgeRequest(subscription=name, ack_ids=ids).SerializeToString()
    with pytest.raises(ServiceError) as caught:
        await transport.call("Acknowledge", ack, timeout=WITHIN)

    assert caught.value.ack_errors == dict.fromkeys(ids, "TRANSIENT_FAILURE_INJECTED")


def refusing(details: bytes) -> Unary:
    """A server that refuses every call, with these details in the trailers."""

    async def refuse(_request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", details),))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")
        return b""

    return refuse


def told(**metadata: str) -> bytes:
    """A status that tells this."""
    info = schema.ErrorInfo(metadata=metadata).SerializeToString()
    status = schema.Status(code=9)
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info)
    return status.SerializeToString()


REFUSED = {f"{n:0180}": "PERMANENT_FAILURE_INVALID_ACK_ID" for n in range(2_500)}


@pytest.mark.parametrize(
    ("details", "ack_errors"),
    [
        pytest.param(told(**REFUSED), REFUSED, id="as many as a request may name"),
        pytest.param(told(permission="p"), {}, id="something else"),
        pytest.param(b"\xff", {}, id="garbage"),
        pytest.param(told() + b"\x1a\x01", {}, id="cut short"),
    ],
)
async def test_the_details_of_a_refusal_are_read(
    details: bytes, ack_errors: dict[str, str]
) -> None:
    async with serving(refusing(details)) as address, opened(address) as transport:
        with pytest.raises(ServiceError) as caught:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)

    assert (caught.value.code, caught.value.message) == ("FAILED_PRECONDITION", "no")
    assert caught.value.ack_errors == ack_errors


async def test_a_response_of_more_than_four_megabytes_arrives(
    emulator: Emulator, transport: GrpcTransport
) -> None:
    sent = {os.urandom(9_000_000), os.urandom(9_000_000)}
    for data in sent:
        emulator.publish("topic", data)
    received: set[bytes] = set()
    pull = schema.PullRequest(subscription=SUBSCRIPTION, max_messages=10).SerializeToString()
    async with asyncio.timeout(WITHIN):
        while len(received) < 2:
            reply = await transport.call("Pull", pull, timeout=WITHIN)
            found = schema.PullResponse.FromString(reply).received_messages
            received |= {each.message.data for each in found}

    assert received == sent


async def test_a_server_that_cannot_be_reached_is_unavailable() -> None:
    async with opened("127.0.0.1:1") as transport:
        with pytest.raises(UnavailableError) as caught:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)
        with pytest.raises(UnavailableError):
            await transport.streaming_pull().write(OPENING)

    assert caught.value.code == "UNAVAILABLE"


async def test_a_call_without_an_answer_in_time_is_an_error(
    emulator: Emulator, transport: GrpcTransport
) -> None:
    emulator.faults.delay("Acknowledge", 60)
    with pytest.raises(UnavailableError) as caught:
        await transport.call("Acknowledge", ACK, timeout=0.05)

    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_a_cancelled_call_is_cancelled(emulator: Emulator, transport: GrpcTransport) -> None:
    emulator.faults.delay("Acknowledge", 60)
    seen = emulator.activity()
    calling = asyncio.create_task(transport.call("Acknowledge", ACK, timeout=WITHIN))
    await emulator.until(lambda: emulator.activity() > seen)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


# Life


async def test_calls_and_streams_end_when_the_transport_is_closed(
    emulator: Emulator, transport: GrpcTransport, stream: GrpcStream
) -> None:
    emulator.faults.delay("Acknowledge", 60)
    seen = emulator.activity()
    calling = asyncio.create_task(transport.call("Acknowledge", ACK, timeout=WITHIN))
    reading = asyncio.create_task(stream.read())
    await emulator.until(lambda: emulator.activity() > seen)
    await transport.close()
    ended = await asyncio.gather(calling, reading, return_exceptions=True)
    with pytest.raises(ServiceError):
        await stream.write(OPENING)
    with pytest.raises(ServiceError):
        await stream.read()

    assert [getattr(error, "code", error) for error in ended] == ["CANCELLED", "CANCELLED"]


async def test_a_stream_that_was_never_opened_cannot_be_once_the_transport_is_closed(
    transport: GrpcTransport,
) -> None:
    stream = transport.streaming_pull()
    await transport.close()
    with pytest.raises(ServiceError) as caught:
        await stream.write(OPENING)

    assert caught.value.code == "CANCELLED"


async def test_it_can_be_closed_twice_and_opened_again(transport: GrpcTransport) -> None:
    await transport.close()
    await transport.close()
    with pytest.raises(ClosedError):
        await transport.call("Acknowledge", ACK, timeout=WITHIN)
    with pytest.raises(ClosedError):
        transport.streaming_pull()
    await asyncio.gather(transport.open(), transport.open())
    with pytest.raises(InvalidRequestError):
        await transport.call("Acknowledge", b"\x12\x00", timeout=WITHIN)


async def test_a_channel_that_was_given_is_left_open(emulator: Emulator) -> None:
    async with grpc.aio.insecure_channel(emulator.address) as channel:
        transport = GrpcTransport(resolve(environment={}), channel=channel)
        await transport.open()
        await transport.close()
        method: Any = channel.unary_unary(BY_NAME["ListTopics"].path)
        request = schema.ListTopicsRequest(project="projects/p")

        assert await method(request.SerializeToString()) == b""


# Streams


async def test_what_is_written_arrives_and_messages_come_back(
    emulator: Emulator, stream: GrpcStream
) -> None:
    emulator.publish("topic", b"a")
    response = schema.StreamingPullResponse.FromString(await stream.read())
    (received,) = response.received_messages
    await stream.write(schema.StreamingPullRequest(ack_ids=[received.ack_id]).SerializeToString())
    await emulator.until(lambda: emulator.backlog("worker") == 0)

    assert received.message.data == b"a"


async def test_a_stream_that_cannot_be_opened_says_why(
    emulator: Emulator, transport: GrpcTransport
) -> None:
    emulator.faults.fail("StreamingPull", "PERMISSION_DENIED", message="no", retry_delay=2)
    stream = transport.streaming_pull()
    await stream.write(OPENING)
    for _ in range(2):  # a stream that has ended stays so
        with pytest.raises(PermissionDeniedError) as caught:
            await stream.read()
        assert (caught.value.message, caught.value.retry_delay) == ("no", 2)
    with pytest.raises(PermissionDeniedError):
        await stream.write(OPENING)


async def writing_on(stream: GrpcStream, request: bytes = OPENING) -> None:
    while True:
        await stream.write(request)


async def test_a_write_that_meets_the_end_of_the_stream_says_what_the_server_said(
    emulator: Emulator, stream: GrpcStream
) -> None:
    """Not that a write failed, which is what gRPC makes of it."""
    with emulator.faults.stall_streams(direction="requests"):
        await stream.write(LARGE)
        writing = asyncio.create_task(writing_on(stream, LARGE))
        await asyncio.sleep(0)
        emulator.faults.cut_streams(code="PERMISSION_DENIED")
        with pytest.raises(PermissionDeniedError):
            await asyncio.wait_for(writing, WITHIN)


async def test_a_stream_before_its_first_write_is_not_open(transport: GrpcTransport) -> None:
    with pytest.raises(ServiceError) as caught:
        await transport.streaming_pull().read()

    assert caught.value.code == "CANCELLED"


async def test_a_stream_that_the_server_ends_tells_how_to_reader_and_writer(
    emulator: Emulator, stream: GrpcStream
) -> None:
    reading = asyncio.create_task(stream.read())
    emulator.faults.cut_streams(code="UNAVAILABLE")
    with pytest.raises(UnavailableError) as caught:
        await reading
    with pytest.raises(UnavailableError) as refused:
        await stream.write(OPENING)

    assert caught.value.code == refused.value.code == "UNAVAILABLE"
    assert caught.value.message == refused.value.message == "cut by a test"


async def test_a_server_that_stops_ends_the_stream() -> None:
    async with contextlib.AsyncExitStack() as stack:
        emulator = Emulator(project="p")
        async with emulator:
            emulator.create_subscription("worker", "topic")
            transport = await stack.enter_async_context(opened(emulator.address))
            stream = transport.streaming_pull()
            await stream.write(OPENING)
            await stream.read()
        with pytest.raises(UnavailableError):
            await stream.read()


async def test_a_connection_that_is_cut_ends_the_stream(
    emulator: Emulator, stream: GrpcStream
) -> None:
    reading = asyncio.create_task(stream.read())
    emulator.faults.cut_connections()
    with pytest.raises(UnavailableError):
        await reading


async def test_a_stream_that_ends_well_is_unavailable_too() -> None:
    async def bow_out(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        yield await anext(requests)

    async with serving(stream=bow_out) as address, opened(address) as transport:
        stream = transport.streaming_pull()
        await stream.write(OPENING)
        assert await stream.read() == OPENING
        with pytest.raises(UnavailableError, match="the server ended the stream"):
            await stream.read()
        with pytest.raises(UnavailableError):
            await stream.write(OPENING)


async def test_cancelling_a_stream_ends_its_pending_read_for_the_reader_alone(
    emulator: Emulator, stream: GrpcStream
) -> None:
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)  # it begins
    stream.cancel()
    with pytest.raises(ServiceError) as caught:
        await reading
    for operation in (stream.read(), stream.write(OPENING)):
        with pytest.raises(ServiceError) as refused:
            await operation
        assert refused.value.code == "CANCELLED"
    stream.cancel()
    await emulator.until(lambda: emulator.streams() == [])

    assert caught.value.code == "CANCELLED"
    assert not reading.cancelled()


async def test_cancelling_the_reading_task_is_not_swallowed(
    emulator: Emulator, stream: GrpcStream
) -> None:
    reading = asyncio.create_task(stream.read())
    await asyncio.sleep(0)  # it begins
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    # gRPC ends the call with its read; nothing hangs after that.
    with pytest.raises(ServiceError) as caught:
        await stream.read()
    await emulator.until(lambda: emulator.streams() == [])

    assert caught.value.code == "CANCELLED"


async def test_a_timeout_around_a_read_is_a_timeout(stream: GrpcStream) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stream.read()


async def test_a_stream_cancelled_before_its_first_write_never_opens(
    emulator: Emulator, transport: GrpcTransport
) -> None:
    stream = transport.streaming_pull()
    stream.cancel()
    with pytest.raises(ServiceError) as caught:
        await stream.write(OPENING)

    assert caught.value.code == "CANCELLED"
    assert emulator.streams() == []


async def test_a_write_that_meets_a_refusal_is_not_an_internal_error() -> None:
    async def refuse(_requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        yield b""

    codes: set[str] = set()
    async with serving(stream=refuse) as address, opened(address) as transport:
        for _ in range(300):
            stream = transport.streaming_pull()
            with pytest.raises(ServiceError) as caught:
                await writing_on(stream)
            codes.add(caught.value.code)

    assert codes == {"UNAUTHENTICATED"}


@contextlib.asynccontextmanager
async def stuck(emulator: Emulator, stream: GrpcStream) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """A read and a write that wait, on a connection that takes and brings nothing."""
    with emulator.faults.stall_connections():
        waiting = [asyncio.create_task(stream.write(LARGE)), asyncio.create_task(stream.read())]
        done, _ = await asyncio.wait(waiting, timeout=0.1)
        assert not done
        yield waiting


async def test_what_waits_on_a_dead_connection_ends_with_the_stream(
    emulator: Emulator, stream: GrpcStream
) -> None:
    async with stuck(emulator, stream) as waiting:
        stream.cancel()
        async with asyncio.timeout(WITHIN):
            ended = await asyncio.gather(*waiting, return_exceptions=True)

    assert [getattr(error, "code", error) for error in ended] == ["CANCELLED", "CANCELLED"]
    assert [task.cancelling() for task in waiting] == [0, 0]


async def test_what_waits_on_a_dead_connection_ends_with_the_transport(
    emulator: Emulator, transport: GrpcTransport, stream: GrpcStream
) -> None:
    async with stuck(emulator, stream) as waiting:
        async with asyncio.timeout(WITHIN):
            await transport.close()
            ended = await asyncio.gather(*waiting, return_exceptions=True)

    assert [getattr(error, "code", error) for error in ended] == ["CANCELLED", "CANCELLED"]


async def test_a_task_that_is_cancelled_with_its_stream_stays_cancelled(
    emulator: Emulator, stream: GrpcStream
) -> None:
    async with stuck(emulator, stream) as waiting:
        stream.cancel()
        for task in waiting:
            task.cancel()
        async with asyncio.timeout(WITHIN):
            await asyncio.wait(waiting)

    assert [task.cancelled() for task in waiting] == [True, True]


# TLS and credentials


@contextlib.asynccontextmanager
async def serving(
    answer: Unary | None = None,
    *,
    stream: Callable[[Any, Any], AsyncIterator[bytes]] | None = None,
    certificate: Certificate | None = None,
) -> AsyncIterator[str]:
    """A gRPC server that answers every call alike."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            if details.method.endswith("/StreamingPull"):
                return grpc.stream_stream_rpc_method_handler(stream)  # type: ignore[arg-type]
            return grpc.unary_unary_rpc_method_handler(answer)  # type: ignore[arg-type]

    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Handler()])
    if certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (certificate.key.read_bytes(), certificate.chain.read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(None)


CLIENT = """
import asyncio, json, sys
from google.oauth2.credentials import Credentials
from pubsub_aio._wire.connection import resolve
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio.errors import ServiceError

async def main(endpoint):
    credentials = Credentials(token="secret", quota_project_id="payer")
    transport = GrpcTransport(resolve(endpoint=endpoint, credentials=credentials))
    await transport.open()
    try:
        return (await transport.call("Acknowledge", b"", timeout=20)).decode()
    except ServiceError as error:
        return error.code
    finally:
        await transport.close()

print(json.dumps(asyncio.run(main(sys.argv[1]))))
"""


async def client(endpoint: str, *, trusting: Certificate | None = None) -> object:
    """What a client in a process of its own is told; gRPC reads what it trusts only once."""
    environment = dict(os.environ)
    environment.pop("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", None)
    if trusting:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(trusting.chain)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, endpoint),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    told: object = json.loads(out)
    return told


class Asked:
    """Answers every call, and keeps the metadata."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []

    async def answer(self, _request: bytes, context: Any) -> bytes:
        self.metadata.append(dict(context.invocation_metadata()))
        return b"heard"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("tls"))


async def test_the_callers_token_and_quota_project_arrive_over_tls(
    certificate: Certificate,
) -> None:
    asked = Asked()
    async with serving(asked.answer, certificate=certificate) as endpoint:
        assert await client(endpoint, trusting=certificate) == "heard"

    (metadata,) = asked.metadata
    assert metadata["authorization"] == "Bearer secret"
    assert metadata["x-goog-user-project"] == "payer"
    assert metadata["user-agent"].startswith("pubsub-aio ")


async def test_an_unknown_certificate_is_refused(certificate: Certificate) -> None:
    asked = Asked()
    async with serving(asked.answer, certificate=certificate) as endpoint:
        assert await client(endpoint) == "UNAVAILABLE"

    assert asked.metadata == []


async def test_a_server_without_tls_is_refused(certificate: Certificate) -> None:
    asked = Asked()
    async with serving(asked.answer) as endpoint:
        assert await client(endpoint, trusting=certificate) == "UNAVAILABLE"

    assert asked.metadata == []


async def test_an_emulator_gets_no_credentials_and_none_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/does/not/exist.json")
    asked = Asked()
    async with serving(asked.answer) as address, opened(address) as transport:
        assert await transport.call("Acknowledge", ACK, timeout=WITHIN) == b"heard"

    assert "authorization" not in asked.metadata[0]

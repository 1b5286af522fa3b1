"""Servers to subscribe to over the wire: ours, Google's where it is found, and one that lies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import grpc
import grpc.aio
import pytest
from google.pubsub_v1 import Subscription, Topic

from pubsub_aio import Event, Message, SubscriberClient
from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import BY_NAME
from tests.emulator.conformance import google_emulator
from tests.emulator.conformance.servers import Server

if TYPE_CHECKING:
    from pubsub_aio.emulator import EmulatorThread

WITHIN = 10.0
"""Seconds in which something must have happened that a test waits for."""

MOST_RECEIVED = 1_000
"""Messages that may wait to be leased where the server does not keep to small limits."""

_LOOK_AGAIN = 0.005


async def until(condition: Callable[[], object], *, timeout: float = WITHIN) -> None:
    """Return as soon as the condition holds; it is tried over and over."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - it may be about another thread
            await asyncio.sleep(_LOOK_AGAIN)


# The servers and the ways to them


class Site(Server):
    """A server with a project of the test's own, and the transport that the test takes to it."""

    def __init__(
        self,
        kind: Literal["embedded", "google"],
        address: str,
        transport: str,
        emulator: EmulatorThread | None,
    ) -> None:
        super().__init__(kind, address, let_time_pass=time.sleep)
        self.transport = transport
        self.emulator = emulator

    def client(self) -> SubscriberClient:
        return SubscriberClient(
            self.project, transport=self.transport, endpoint=f"http://{self.address}"
        )

    def create_topic_named(self, name: str) -> str:
        return self.call(self.publisher.create_topic, Topic(name=self.topic_name(name))).name

    def create_subscription_named(self, name: str, topic: str) -> str:
        made = Subscription(name=self.subscription_name(name), topic=topic)
        return self.call(self.subscriber.create_subscription, made).name

    def left(self, subscription: str, ack_ids: Iterable[str] = ()) -> list[bytes]:
        """What is still to be acked, of messages that were delivered with these ids.

        Giving back what was acked changes nothing; the rest can be pulled then.
        """
        if ids := list(ack_ids):
            request = schema.ModifyAckDeadlineRequest(
                subscription=subscription, ack_ids=ids
            ).SerializeToString()
            call: Any = self.channel.unary_unary(BY_NAME["ModifyAckDeadline"].path)
            call(request, timeout=WITHIN)
        return [one.message.data for one in self.pull_now(subscription)]


SITES = [(kind, transport) for kind in ("embedded", "google") for transport in ("grpc", "rest")]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(*sites): where a test can run, and why not elsewhere")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "site" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("only")
    wanted = set(mark.args) if mark else set()
    rows = [
        (kind, transport)
        for kind, transport in SITES
        if not wanted or kind in wanted or transport in wanted or f"{kind}-{transport}" in wanted
    ]
    if google_emulator.command() is None:
        rows = [row for row in rows if row[0] != "google"]
    metafunc.parametrize("site", rows, indirect=True, ids=["-".join(row) for row in rows])


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A row of the table of servers and transports."""
    kind, transport = request.param
    emulator: EmulatorThread | None = None
    if kind == "embedded":
        emulator = request.getfixturevalue("pubsub_emulator_server")
        address = emulator.address
    else:
        address = request.getfixturevalue("google_address")
    site = Site(kind, address, transport, emulator)
    yield site
    site.close()
    if emulator is not None:
        emulator.faults.clear()
        emulator.project, before = site.project, emulator.project
        emulator.delete_project()
        emulator.project = before


@pytest.fixture
async def client(site: Site) -> AsyncIterator[SubscriberClient]:
    async with nothing_left_behind(), site.client() as client:
        yield client


@contextlib.asynccontextmanager
async def nothing_left_behind() -> AsyncIterator[None]:
    """Every task that is begun inside has ended soon after."""
    before = asyncio.all_tasks()
    yield
    try:
        await until(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()}, timeout=3)
    except TimeoutError:
        pytest.fail(f"left behind: {asyncio.all_tasks() - before}")


# What a subscription brought


class Received:
    """A callback that remembers what it was called with, and acks it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ack_ids: list[str] = []

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def __call__(self, message: Message) -> None:
        self.note(message)
        message.ack()

    def note(self, message: Message) -> None:
        self.messages.append(message)
        self.ack_ids.append(message.ack_id)


class Events(list[Event]):
    """What was told of a subscription, in order; it is an `on_event`."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self]

    def states(self) -> list[str]:
        return [event.state for event in self if event.kind == "state"]


# A server that does as a test says, true or not


Unary = Callable[[bytes, Any], Awaitable[bytes]]
Stream = Callable[["Lying", Any], Awaitable[None]]

SUBSCRIPTION = "projects/p/subscriptions/worker"


class Lying:
    """A small gRPC server: each call is answered by a function of the test's.

    Without one, GetSubscription finds the subscription, acks and deadlines are noted and answered
    with OK, and streams stay open and say nothing.
    """

    def __init__(self) -> None:
        self.address = ""
        self.calls: dict[str, Unary] = {
            "GetSubscription": self._get,
            "Acknowledge": self._acknowledge,
            "ModifyAckDeadline": self._modify,
        }
        self.stream: Stream = silent
        self.opened: list[schema.StreamingPullRequest] = []
        self.acked: list[str] = []
        self.nacked: list[str] = []
        """Given back, at once or after a short while: no extension is less than ten seconds."""
        self.extended: list[str] = []

    def response(self, *messages: schema.ReceivedMessage) -> bytes:
        return schema.StreamingPullResponse(
            received_messages=messages, subscription_properties={}
        ).SerializeToString()

    async def _get(self, request: bytes, context: Any) -> bytes:
        del request, context
        topic = "projects/p/topics/orders"
        return schema.Subscription(name=SUBSCRIPTION, topic=topic).SerializeToString()

    async def _acknowledge(self, request: bytes, context: Any) -> bytes:
        del context
        self.acked += schema.AcknowledgeRequest.FromString(request).ack_ids
        return b""

    async def _modify(self, request: bytes, context: Any) -> bytes:
        del context
        said = schema.ModifyAckDeadlineRequest.FromString(request)
        (self.nacked if said.ack_deadline_seconds < 10 else self.extended).extend(said.ack_ids)
        return b""

    async def _stream(self, requests: Any, context: Any) -> None:
        async for request in requests:
            self.opened.append(schema.StreamingPullRequest.FromString(request))
            break
        await self.stream(self, context)

    @contextlib.asynccontextmanager
    async def serving(self, *, port: int = 0) -> AsyncIterator[Lying]:
        options = [("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=options)
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(self._call(name)) for name in self.calls
        }
        handlers["StreamingPull"] = grpc.stream_stream_rpc_method_handler(self._stream)
        service = grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", handlers)
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{port}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)

    def _call(self, name: str) -> Unary:
        async def call(request: bytes, context: Any) -> bytes:
            return await self.calls[name](request, context)

        return call

    def client(self) -> SubscriberClient:
        return SubscriberClient("p", endpoint=f"http://{self.address}")


async def silent(server: Lying, context: Any) -> None:
    """A stream that stays open and says nothing."""
    del server, context
    await asyncio.Event().wait()


def refusing(code: grpc.StatusCode, message: str = "not today") -> Unary:
    """A call that is refused."""

    async def call(request: bytes, context: Any) -> bytes:
        del request
        await context.abort(code, message)
        raise AssertionError

    return call


_numbers = itertools.count(1)


def received(
    data: bytes = b"x", *, ack_id: str | None = None, message_id: str | None = None
) -> schema.ReceivedMessage:
    """A message as a server sends it, with ids of its own unless told otherwise."""
    number = next(_numbers)
    message = schema.PubsubMessage(
        data=data, message_id=f"m{number}" if message_id is None else message_id
    )
    return schema.ReceivedMessage(
        ack_id=f"a{number}" if ack_id is None else ack_id, message=message
    )


@pytest.fixture
async def lying() -> AsyncIterator[Lying]:
    async with nothing_left_behind(), Lying().serving() as server:
        yield server


# A program of its own


class Program:
    """A Python program in a process of its own, which talks to a server and prints lines."""

    def __init__(self, source: str, *, address: str, project: str, warnings: str = "error") -> None:
        environment = os.environ | {
            "PUBSUB_EMULATOR_HOST": address,
            "GOOGLE_CLOUD_PROJECT": project,
            "PYTHONUNBUFFERED": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", warnings, "-c", source],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        with self._process:
            self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._said:
                self.lines.append(line.strip())
                self._said.notify_all()
        with self._said:
            self._said.notify_all()

    def says(self, count: int) -> list[str]:
        """Wait until it has printed so many lines; gives all of them."""
        with self._said:
            came = self._said.wait_for(lambda: len(self.lines) >= count, timeout=2 * WITHIN)
        assert came, f"it printed {self.lines} only"
        return self.lines

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ending(self, *, timeout: float = WITHIN) -> tuple[int, str]:
        """Wait for its end: its exit code, and what it complained about."""
        code = self._process.wait(timeout)
        assert self._process.stderr is not None
        return code, self._process.stderr.read()

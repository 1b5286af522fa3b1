"""What the tests of a subscriber share: scenarios in virtual time that leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Concatenate, ParamSpec

from pubsub_aio import Event, Message, SubscriberClient
from pubsub_aio._wire import codec, schema
from pubsub_aio._wire.transport import Capabilities, PullStream, Transport, service_error
from pubsub_aio.emulator.clock import START
from pubsub_aio.testing import MemoryEmulator, VirtualTimeLoop, run_scenario

P = ParamSpec("P")

TOPIC, WORKER = "orders", "worker"
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


def virtual(
    scenario: Callable[Concatenate[MemoryEmulator, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """A test that runs in virtual time, is given an emulator, and must leave nothing behind."""

    @functools.wraps(scenario)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def tidy(emulator: MemoryEmulator) -> None:
            complaints: list[dict[str, Any]] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            await scenario(emulator, *args, **kwargs)
            left = await leftovers()
            gc.collect()
            assert (left, complaints) == ([], [])

        run_scenario(tidy)

    parameters = list(inspect.signature(scenario).parameters.values())[1:]
    test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    del test.__wrapped__  # pytest would look at it
    return test


async def leftovers() -> list[str]:
    """Tasks and timers of a client that are there although it is closed."""
    await asyncio.sleep(0.001)  # for what was ended just now
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    tasks = [repr(task) for task in asyncio.all_tasks() - {asyncio.current_task()}]
    timers = [repr(timer) for timer in loop._scheduled if not timer.cancelled()]
    ours = ("pubsub_aio/subscriber", "pubsub_aio/publisher")
    return tasks + [timer for timer in timers if any(part in timer for part in ours)]


def now() -> float:
    """Virtual seconds since the scenario began."""
    return asyncio.get_running_loop().time()


def burn(seconds: float) -> None:
    """Keep the loop busy for that long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop._show(loop.time() + seconds)


def at(time: datetime) -> float:
    """The same, for a time of the emulator's journal."""
    return time.timestamp() - START


@contextlib.asynccontextmanager
async def client_of(
    emulator: MemoryEmulator, transport: Transport | None = None
) -> AsyncIterator[SubscriberClient]:
    """A client of the emulator."""
    way = transport or emulator.transport()
    async with SubscriberClient(project=emulator.project, transport=way) as client:
        yield client


def publish(emulator: MemoryEmulator, count: int, *, key: str = "", size: int = 0) -> list[str]:
    """Publish messages `b"0"`, `b"1"` and so on; returns their ids."""
    return [
        emulator.publish(TOPIC, f"{key}{n}".encode().ljust(size, b"."), ordering_key=key)
        for n in range(count)
    ]


class Calls:
    """A callback that notes when it was called with what, and then does as told."""

    def __init__(self, do: Callable[[Message], Awaitable[object]] | None = None) -> None:
        self.do = do
        self.began: list[tuple[float, bytes]] = []
        self.messages: list[Message] = []
        self.ended: list[bytes] = []
        self.running = 0
        self.peak = 0

    async def __call__(self, message: Message) -> None:
        self.began.append((round(now(), 2), message.data))
        self.messages.append(message)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            if self.do is None:
                message.ack()
            else:
                await self.do(message)
            self.ended.append(message.data)
        finally:
            self.running -= 1

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.began]

    @property
    def data(self) -> list[bytes]:
        return [data for _, data in self.began]


class Events:
    """An `on_event` that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.times: list[float] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.times.append(now())

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.of("state")]


async def update(emulator: MemoryEmulator, subscription: str, **fields: object) -> None:
    """Change a subscription's settings on the server."""
    transport = emulator.transport()
    await transport.open()
    name = f"projects/{emulator.project}/subscriptions/{subscription}"
    request = schema.UpdateSubscriptionRequest(
        subscription=codec.with_settings(schema.Subscription(name=name), fields),
        update_mask={"paths": list(fields)},
    )
    await transport.call("UpdateSubscription", request.SerializeToString(), timeout=10)
    await transport.close()


async def delete(emulator: MemoryEmulator, subscription: str) -> None:
    """Delete a subscription."""
    transport = emulator.transport()
    await transport.open()
    name = f"projects/{emulator.project}/subscriptions/{subscription}"
    request = schema.DeleteSubscriptionRequest(subscription=name)
    await transport.call("DeleteSubscription", request.SerializeToString(), timeout=10)
    await transport.close()


class Tapped:
    """A transport that notes what goes through another, and may change it.

    Args:
        transport: The other.
        limits: Whether the server is told the limits of a stream.
        streaming: Whether it admits that there are streams.
        pongs: Whether the server's answers to pings get through.
        half_close: Whether the server hears that nothing more is written to a stream.
        lag: Seconds that a response of a stream is on its way.
        write_lag: Seconds that a stream takes to take a request.
        pings: Whether it admits that a stream can be pinged.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        limits: bool = True,
        streaming: bool = True,
        pongs: bool = True,
        half_close: bool = True,
        lag: float = 0.0,
        write_lag: float = 0.0,
        pings: bool = True,
    ) -> None:
        self.name = "tapped"
        can = transport.can
        self.can = Capabilities(
            streaming=streaming,
            server_flow_control=can.server_flow_control,
            confirmations=can.confirmations,
            pings=can.pings and pings,
        )
        self.calls: list[tuple[float, str, bytes]] = []
        self.opened: list[tuple[float, schema.StreamingPullRequest]] = []
        self.limits = limits
        self.pongs = pongs
        self.half_close = half_close
        self.lag = lag
        self.write_lag = write_lag
        self._transport = transport

    async def open(self) -> None:
        await self._transport.open()

    async def close(self) -> None:
        await self._transport.close()

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        self.calls.append((now(), rpc, request))
        return await self._transport.call(rpc, request, timeout=timeout)

    def streaming_pull(self) -> PullStream:
        return _TappedStream(self, self._transport.streaming_pull())

    def times(self, rpc: str) -> list[float]:
        """When an RPC was called."""
        return [time for time, name, _ in self.calls if name == rpc]


class _TappedStream:
    def __init__(self, tap: Tapped, stream: PullStream) -> None:
        self._tap = tap
        self._stream = stream
        self._first = True
        self._writing = asyncio.Lock()
        self._cancelled = asyncio.Event()

    async def _write(self) -> None:
        """Wait as long as a write takes; whoever uses a transport makes one at a time."""
        assert not self._writing.locked()
        async with self._writing:
            await self._take(self._tap.write_lag)

    async def _take(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._cancelled.wait()
        if self._cancelled.is_set():
            raise service_error("CANCELLED", "the stream was ended here")

    async def write(self, request: bytes) -> None:
        await self._write()
        if self._first:
            self._first = False
            first = schema.StreamingPullRequest.FromString(request)
            self._tap.opened.append((now(), first))
            if not self._tap.limits:
                unlimited = schema.StreamingPullRequest.FromString(request)
                unlimited.max_outstanding_messages = unlimited.max_outstanding_bytes = 0
                request = unlimited.SerializeToString()
        await self._stream.write(request)

    async def done_writing(self) -> None:
        await self._write()
        if self._tap.half_close:
            await self._stream.done_writing()

    async def read(self) -> bytes:
        while not (data := await self._stream.read()) and not self._tap.pongs:
            pass
        await self._take(self._tap.lag)
        return data

    def cancel(self) -> None:
        self._cancelled.set()
        self._stream.cancel()

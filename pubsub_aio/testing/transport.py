"""The in-memory transport: calls and streams to a `MemoryEmulator`, with no socket in between."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Protocol

from pubsub_aio._wire.rpcs import BY_NAME, Rpc
from pubsub_aio._wire.transport import Capabilities, service_error
from pubsub_aio.emulator.front import Front
from pubsub_aio.emulator.service import PULL_PATIENCE, fault_in_emulator
from pubsub_aio.emulator.status import StatusError
from pubsub_aio.emulator.streaming import StreamSession
from pubsub_aio.errors import ClosedError, ServiceError

if TYPE_CHECKING:
    from pubsub_aio.emulator.faults import Faults
    from pubsub_aio.emulator.service import Service
    from pubsub_aio.testing.memory import MemoryEmulator

log = logging.getLogger("pubsub_aio.testing")

_WINDOW = 65_535  # bytes under way before the sender must wait: HTTP/2's, unless agreed otherwise
_FRAME = 5  # bytes that gRPC puts before each message
_MAX_PATIENCE = 60.0


class MemoryTransport:
    """Calls and streams to an emulator in this loop; made by its `transport()`.

    It stands for one connection: the emulator's faults that cut, refuse or stall connections
    happen to it as they do over gRPC. A stream whose client does not read fills up, and the
    emulator then stops writing to it.
    """

    name = "memory"
    can = Capabilities(streaming=True, server_flow_control=True, confirmations=True, pings=True)

    def __init__(self, emulator: MemoryEmulator) -> None:
        self.project = emulator.project
        """The project of resources that a client names without one."""
        self._front = emulator.front
        self._connection: _Connection | None = None
        self._is_open = False

    async def open(self) -> None:
        """Make it ready; the connection itself is made by the first call."""
        self._is_open = True

    async def close(self) -> None:
        """End every call."""
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end(service_error("CANCELLED", "the transport was closed"), drop=True)
            await connection.ended()

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        """Make a unary call."""
        self._check_open()
        await asyncio.sleep(0)  # a call takes a turn of the loop at least, as on any wire
        if timeout <= 0:
            raise _too_late()
        call = _Call(BY_NAME[rpc], request, timeout)
        cancel = self._connect().begin(call)
        try:
            async with asyncio.timeout(timeout):
                return await call.reply
        except TimeoutError:
            raise _too_late() from None
        finally:
            cancel()

    def streaming_pull(self) -> MemoryStream:
        """A new stream."""
        self._check_open()
        return MemoryStream(self._connect)

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the transport is not open: use the client in `async with`")

    def _connect(self) -> _Connection:
        """The connection, which is made again if it was cut."""
        self._check_open()
        if self._connection is None or self._connection.is_cut:
            self._connection = self._front.connect()
        return self._connection


class MemoryStream:
    """A StreamingPull in memory. As over gRPC, a read or write that is cancelled ends it."""

    def __init__(self, connect: Callable[[], _Connection]) -> None:
        self._connect = connect
        self._stream: _Stream | None = None
        self._stop: Callable[[], object] | None = None
        self._cancelled = False

    async def write(self, request: bytes) -> None:
        """Send a request; the first opens the stream."""
        await asyncio.sleep(0)
        if self._cancelled:
            raise _ended_here()
        if self._stream is None:
            stream = _Stream()
            self._stop = self._connect().begin(stream)
            self._stream = stream
        try:
            await self._stream.requests.put(request)
        except ConnectionError:
            self._stream.raise_error()
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def done_writing(self) -> None:
        """Send no more; the emulator ends the stream."""
        if self._cancelled or self._stream is None:
            raise service_error("CANCELLED", "the stream is not open")
        self._stream.requests.close(drop=False)

    async def read(self) -> bytes:
        """The next response."""
        await asyncio.sleep(0)
        if self._cancelled or self._stream is None:
            raise service_error("CANCELLED", "the stream is not open")
        try:
            response = await self._stream.responses.get()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if response is None:
            self._stream.raise_error()
        return response

    def cancel(self) -> None:
        """End the stream."""
        self._cancelled = True
        if self._stream is not None and self._stop is not None:
            self._stream.end(_ended_here(), drop=True)
            self._stop()


class MemoryFront(Front):
    """Where an emulator without a port is reached: a connection for each transport."""

    def __init__(self, service: Service, faults: Faults) -> None:
        super().__init__(grpc=_no_socket, http=_no_socket)
        self.service = service
        self.faults = faults
        self._is_open = False
        self._links: dict[_Connection, None] = {}
        self._stalls_changed = asyncio.Event()

    def open(self) -> None:
        """Let clients in."""
        self._is_open = True

    async def close(self) -> None:
        """End every connection."""
        self._is_open = False
        links = list(self._links)
        for link in links:
            link.end(service_error("UNAVAILABLE", "the emulator is stopping"))
        for link in links:
            await link.ended()

    def connect(self) -> _Connection:
        """A new connection."""
        if not self._is_open:
            raise service_error("UNAVAILABLE", "the emulator does not run")
        if self.refusing:
            raise service_error("UNAVAILABLE", "the connection was refused, as a test asked for")
        link = _Connection(self)
        self._links[link] = None
        return link

    def forget(self, link: _Connection) -> None:
        """A connection is no more."""
        self._links.pop(link, None)

    def cut(self) -> int:
        """End every connection as a reset does: what was under way is lost."""
        links = list(self._links)
        for link in links:
            link.end(service_error("UNAVAILABLE", "the connection was cut by a test"), drop=True)
        return len(links)

    async def while_stalled(self, direction: str) -> None:
        """Return once nothing holds back what goes in that direction."""
        while self.stalled(direction):
            await self._stalls_changed.wait()

    def _apply(self) -> None:
        self._stalls_changed.set()
        self._stalls_changed = asyncio.Event()


class _Exchange(Protocol):
    """A call or a stream: what is under way on a connection."""

    async def serve(self, front: MemoryFront) -> None: ...

    def end(self, error: ServiceError, *, drop: bool = False) -> None: ...


class _Connection:
    """What a transport has under way; each exchange is served by a task of its own."""

    def __init__(self, front: MemoryFront) -> None:
        self._front = front
        self._exchanges: dict[_Exchange, asyncio.Task[None]] = {}
        self.is_cut = False

    def begin(self, exchange: _Exchange) -> Callable[[], object]:
        """Serve an exchange; returns what stops that."""
        task = asyncio.get_running_loop().create_task(self._serve(exchange))
        self._exchanges[exchange] = task
        task.add_done_callback(lambda _: self._exchanges.pop(exchange, None))
        return task.cancel

    async def _serve(self, exchange: _Exchange) -> None:
        error = service_error("UNAVAILABLE", "the server ended the stream")
        try:
            await exchange.serve(self._front)
        except StatusError as refusal:
            error = _our_error(refusal)
        except Exception as bug:
            log.exception("a call failed")
            error = _our_error(fault_in_emulator(bug))
        await self._front.while_stalled("responses")
        exchange.end(error)

    def end(self, error: ServiceError, *, drop: bool = False) -> None:
        """End every exchange, for both sides; with `drop`, what was not read yet is lost."""
        self.is_cut = True
        self._front.forget(self)
        for exchange, task in list(self._exchanges.items()):
            exchange.end(error, drop=drop)
            task.cancel()

    async def ended(self) -> None:
        """Return once nothing is served any more."""
        await asyncio.gather(*self._exchanges.values(), return_exceptions=True)


class _Call:
    """One unary call."""

    def __init__(self, rpc: Rpc, request: bytes, timeout: float) -> None:
        self._rpc = rpc
        self._request = request
        self._timeout = timeout
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(self, front: MemoryFront) -> None:
        await front.while_stalled("requests")
        patience = PULL_PATIENCE
        if self._rpc.name == "Pull":  # answered shortly before the client would give up
            patience = min(max(self._timeout - 1, self._timeout / 2), _MAX_PATIENCE)
        reply = await front.service.call(self._rpc, self._request, patience=patience)
        await front.while_stalled("responses")
        if not self.reply.done():
            self.reply.set_result(reply)

    def end(self, error: ServiceError, *, drop: bool = False) -> None:
        del drop
        if not self.reply.done():
            self.reply.set_exception(error)


class _Stream:
    """One StreamingPull: a pipe in each direction, and how it ended."""

    def __init__(self) -> None:
        self.requests = _Pipe()
        self.responses = _Pipe()
        self._error: ServiceError | None = None

    async def serve(self, front: MemoryFront) -> None:
        async def read() -> bytes | None:
            request = await self.requests.get()
            await front.while_stalled("requests")
            return request

        async def write(response: bytes) -> None:
            await front.while_stalled("responses")
            await self.responses.put(response)

        await StreamSession(front.service, front.faults, read=read, write=write).run()

    def end(self, error: ServiceError, *, drop: bool = False) -> None:
        self._error = self._error or error
        self.requests.close(drop=True)
        self.responses.close(drop=drop)

    def raise_error(self) -> NoReturn:
        """Say how it ended."""
        raise (self._error or _ended_here()).with_traceback(None)


class _Pipe:
    """Messages in one direction, one sender and one receiver; it holds so many bytes."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        # One is enough: only an empty pipe lets the receiver wait, only a full one the sender.
        self._moved = asyncio.Event()

    async def put(self, message: bytes) -> None:
        """Send a message as soon as there is room; ConnectionError if the pipe is closed."""
        while self._bytes >= _WINDOW and not self._closed:
            await self._wait()
        if self._closed:
            raise ConnectionError("the stream has ended")
        self._messages.append(message)
        self._bytes += len(message) + _FRAME
        self._moved.set()

    async def get(self) -> bytes | None:
        """The next message; none once the pipe is closed and all were received."""
        while not self._messages and not self._closed:
            await self._wait()
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._bytes -= len(message) + _FRAME
        self._moved.set()
        return message

    async def _wait(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def close(self, *, drop: bool) -> None:
        """Take no more; with `drop`, forget what was not received yet."""
        self._closed = True
        if drop:
            self._messages.clear()
        self._moved.set()


async def _no_socket(protocol: Callable[[], asyncio.Protocol]) -> NoReturn:
    raise ConnectionError(f"{protocol} cannot be served: this emulator is in memory")


def _our_error(refusal: StatusError) -> ServiceError:
    return service_error(
        refusal.code.name,
        refusal.message,
        retry_delay=refusal.retry_delay,
        ack_errors=refusal.ack_errors,
    )


def _ended_here() -> ServiceError:
    return service_error("CANCELLED", "the stream was ended here")


def _too_late() -> ServiceError:
    return service_error("DEADLINE_EXCEEDED", "there was no answer in time")

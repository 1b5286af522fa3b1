"""One port for gRPC and HTTP: the first bytes of a connection say which it is.

Each connection is piped to the server that speaks its language. Both listen on sockets of their
own, inside: grpcio cannot be handed a connection, and with a pipe either can be cut or stalled.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

log = logging.getLogger("pubsub_aio.emulator")

PREFACE = b"PRI * HTTP/2.0"
"""How an HTTP/2 connection begins."""

_LAST_ANSWERS = 0.02  # seconds in which answers that are on their way may still go out

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]


class Front:
    """Accepts connections and pipes each to where it belongs.

    Args:
        grpc: Connects a protocol to the gRPC server.
        http: Connects a protocol to the HTTP/1.1 server.
    """

    def __init__(self, *, grpc: Connect, http: Connect) -> None:
        self.grpc = grpc
        self.http = http
        self.connections: set[Connection] = set()
        # Not a TaskGroup: the emulator may be entered and left by different tasks.
        self.tasks: set[asyncio.Task[None]] = set()
        self._refusals: list[object] = []
        self._stalls: list[tuple[str, object]] = []
        self._servers: list[asyncio.Server] = []
        self._closing = False

    async def listen(self, host: str, port: int) -> int:
        """Begin to accept on every address of the host; returns the port, the same for all."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for address in dict.fromkeys(str(info[4][0]) for info in found):
            try:
                # Without SO_REUSEPORT: a second server on the port must be told that it is taken.
                server = await loop.create_server(
                    lambda: Connection(self), address, port, reuse_port=False, backlog=1_024
                )
            except OSError as error:
                if self._servers and error.errno == errno.EADDRNOTAVAIL:
                    continue  # such as the IPv6 side of localhost on a machine without IPv6
                raise
            self._servers.append(server)
            port = int(server.sockets[0].getsockname()[1])
        return port

    async def close(self) -> None:
        """Stop accepting and end every connection, after what is being answered."""
        self._closing = True
        for server in self._servers:
            server.close()
        self.stall("requests")
        await asyncio.sleep(_LAST_ANSWERS)
        for connection in list(self.connections):
            connection.close()
        for _ in range(50):  # a client that does not read must not hold us up
            if self.connections:
                await asyncio.sleep(0.01)
        self.cut()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    @property
    def closing(self) -> bool:
        """Whether it is being closed, so that connections fail."""
        return self._closing

    # Faults

    @property
    def refusing(self) -> bool:
        """Whether new connections are reset."""
        return bool(self._refusals)

    def refuse(self) -> Callable[[], None]:
        """Reset new connections; the returned function lets them in again."""
        refusal = object()
        self._refusals.append(refusal)
        return lambda: self._refusals.remove(refusal) if refusal in self._refusals else None

    def cut(self) -> int:
        """Reset every open connection; returns how many there were."""
        connections = list(self.connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def stalled(self, direction: str) -> bool:
        """Whether bytes in that direction are held back."""
        return any(stalled in ("both", direction) for stalled, _ in self._stalls)

    def stall(self, direction: str) -> Callable[[], None]:
        """Hold bytes back; the returned function lets them pass again."""
        stall = (direction, object())
        self._stalls.append(stall)
        self._apply()

        def over() -> None:
            if stall in self._stalls:
                self._stalls.remove(stall)
                self._apply()

        return over

    def calm(self) -> None:
        """End every disturbance."""
        self._refusals.clear()
        self._stalls.clear()
        self._apply()

    def _apply(self) -> None:
        for connection in self.connections:
            connection.flow()


class _End:
    """One end of a pipe: a transport, and whether it may be read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._paused_for: set[str] = set()

    def pause(self, reason: str, *, paused: bool) -> None:
        was_paused = bool(self._paused_for)
        (self._paused_for.add if paused else self._paused_for.discard)(reason)
        if self.transport is None or self.transport.is_closing():
            return
        if self._paused_for and not was_paused:
            self.transport.pause_reading()
        elif was_paused and not self._paused_for:
            self.transport.resume_reading()

    def attach(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        if self._paused_for:
            transport.pause_reading()


class Connection(asyncio.Protocol):
    """A client's end of a pipe."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._client = _End()
        self._server = _End()
        self._begun = b""
        self._piped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        client = cast("asyncio.Transport", transport)
        if self._front.refusing:
            client.abort()
            return
        self._client.attach(client)
        self._front.connections.add(self)
        self.flow()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._front.connections.discard(self)
        if self._server.transport:
            self._server.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._server.transport:
            self._server.transport.write(data)
            return
        self._begun += data
        if not self._piped and not PREFACE.startswith(self._begun):
            self._piped = True
            is_grpc = self._begun.startswith(PREFACE)
            connect = self._front.grpc if is_grpc else self._front.http
            task = asyncio.get_running_loop().create_task(self._open(connect))
            self._front.tasks.add(task)
            task.add_done_callback(self._front.tasks.discard)

    def eof_received(self) -> bool:
        if self._server.transport and self._server.transport.can_write_eof():
            self._server.transport.write_eof()
            return True
        return False

    def pause_writing(self) -> None:
        self._server.pause("the client reads slowly", paused=True)

    def resume_writing(self) -> None:
        self._server.pause("the client reads slowly", paused=False)

    async def _open(self, connect: Connect) -> None:
        # Nothing more is read until there is somewhere to put it.
        self._client.pause("the pipe is being laid", paused=True)
        try:
            await connect(lambda: _Pipe(self))
        except Exception:  # whatever it is, the client must not be left waiting
            if not self._front.closing:
                log.exception("a connection could not be served")
            self.abort()
        self._client.pause("the pipe is being laid", paused=False)

    def close(self) -> None:
        """End the connection, after what was sent."""
        for end in (self._client, self._server):
            if end.transport:
                end.transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        if self._client.transport and not self._client.transport.is_closing():
            # Closing without lingering is what sends a reset.
            inner = self._client.transport.get_extra_info("socket")
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for end in (self._client, self._server):
            if end.transport:
                end.transport.abort()

    def flow(self) -> None:
        """Heed the stalls that are on."""
        self._client.pause("stalled", paused=self._front.stalled("requests"))
        self._server.pause("stalled", paused=self._front.stalled("responses"))

    # Called by the other end

    def server_ready(self, transport: asyncio.Transport) -> None:
        """The pipe to the server stands."""
        if self._client.transport is None or self._client.transport.is_closing():
            transport.abort()
            return
        self._server.attach(transport)
        transport.write(self._begun)
        self._begun = b""

    def server_sent(self, data: bytes) -> None:
        """Pass on what the server sends."""
        if self._client.transport:
            self._client.transport.write(data)

    def server_lost(self) -> None:
        """The server ended the connection."""
        if self._client.transport:
            self._client.transport.close()

    def server_full(self, *, full: bool) -> None:
        """The server reads slowly, or again."""
        self._client.pause("the server reads slowly", paused=full)


class _Pipe(asyncio.Protocol):
    """The server's end of a pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.server_ready(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._connection.server_sent(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connection.server_lost()

    def pause_writing(self) -> None:
        self._connection.server_full(full=True)

    def resume_writing(self) -> None:
        self._connection.server_full(full=False)

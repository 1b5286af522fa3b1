"""One port for gRPC and HTTP: the first bytes of a connection say which it is.

HTTP/2 goes through a pipe to the gRPC server, which listens on a socket of its own because grpcio
cannot be handed a connection; anything else is handed to the HTTP/1.1 server in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

PREFACE = b"PRI * HTTP/2.0"

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[asyncio.Transport, object]]]


class Front:
    """Accepts connections and hands each to the server that speaks its language.

    Args:
        connect: Opens a connection to the gRPC server for a protocol.
        http: Makes a protocol that speaks HTTP/1.1; called when the first such connection comes.
    """

    def __init__(self, *, connect: Connect, http: Callable[[], asyncio.Protocol]) -> None:
        self.connect = connect
        self.http = http
        self.refusing = 0
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._stalls: list[str] = []
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Begin to accept; returns the port."""
        loop = asyncio.get_running_loop()
        # Without SO_REUSEPORT, so that a second emulator on the port is told that it is taken.
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, reuse_port=False, backlog=1_024
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop accepting and end every connection."""
        if self._server:
            self._server.close()
        self.cut()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._server:
            await self._server.wait_closed()

    # Faults

    def cut(self) -> int:
        """Reset every open connection; returns how many there were."""
        connections = list(self.connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def stalled(self, direction: str) -> bool:
        """Whether bytes in that direction are held back."""
        return "both" in self._stalls or direction in self._stalls

    def stall(self, direction: str) -> Callable[[], None]:
        """Hold bytes back; the returned function lets them pass again."""
        loop = asyncio.get_running_loop()
        self._stalls.append(direction)
        self._apply()

        def over() -> None:
            if direction in self._stalls:
                self._stalls.remove(direction)
            loop.call_soon_threadsafe(self._apply)

        return over

    def calm(self) -> None:
        """End every disturbance."""
        self.refusing = 0
        self._stalls.clear()
        self._apply()

    def _apply(self) -> None:
        for connection in self.connections:
            connection.flow()


class _Flow:
    """Whether a transport may be read, given who wants it paused and why."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._reasons: set[str] = set()

    def pause(self, reason: str, *, paused: bool) -> None:
        was_paused = bool(self._reasons)
        (self._reasons.add if paused else self._reasons.discard)(reason)
        if self.transport is None or self.transport.is_closing():
            return
        if self._reasons and not was_paused:
            self.transport.pause_reading()
        elif was_paused and not self._reasons:
            self.transport.resume_reading()


class Connection(asyncio.Protocol):
    """A client's connection until it is known what it speaks, and, for gRPC, to its end."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._client = _Flow()
        self._backend = _Flow()
        self._begun = b""
        self._piped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        client = cast("asyncio.Transport", transport)
        if self._front.refusing:
            client.abort()
            return
        self._client.transport = client
        self._front.connections.add(self)
        self.flow()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._front.connections.discard(self)
        if self._backend.transport:
            self._backend.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._backend.transport:
            self._backend.transport.write(data)
            return
        self._begun += data
        if self._piped or PREFACE.startswith(self._begun):
            return
        if self._begun.startswith(PREFACE):
            self._piped = True
            task = asyncio.get_running_loop().create_task(self._open_pipe())
            self._front.tasks.add(task)
            task.add_done_callback(self._front.tasks.discard)
        else:
            self._hand_to_http()

    def eof_received(self) -> bool:
        if self._backend.transport and self._backend.transport.can_write_eof():
            self._backend.transport.write_eof()
            return True
        return False

    def pause_writing(self) -> None:
        self._backend.pause("the client reads slowly", paused=True)

    def resume_writing(self) -> None:
        self._backend.pause("the client reads slowly", paused=False)

    async def _open_pipe(self) -> None:
        try:
            await self._front.connect(lambda: _Backend(self))
        except OSError:
            self.abort()

    def _hand_to_http(self) -> None:
        client = self._client.transport
        if client is None:
            return
        handler = self._front.http()
        client.set_protocol(handler)
        handler.connection_made(client)
        handler.data_received(self._begun)
        self._begun = b""

    def abort(self) -> None:
        """Reset the connection."""
        for end in (self._client.transport, self._backend.transport):
            if end:
                end.abort()

    def flow(self) -> None:
        """Heed the stalls that are on."""
        self._client.pause("stalled", paused=self._front.stalled("requests"))
        self._backend.pause("stalled", paused=self._front.stalled("responses"))

    # Called by the other end

    def backend_ready(self, transport: asyncio.Transport) -> None:
        """The pipe to the gRPC server stands."""
        if self._client.transport is None or self._client.transport.is_closing():
            transport.abort()
            return
        self._backend.transport = transport
        transport.write(self._begun)
        self._begun = b""
        self.flow()

    def backend_sent(self, data: bytes) -> None:
        """Pass on what the gRPC server sends."""
        if self._client.transport:
            self._client.transport.write(data)

    def backend_lost(self) -> None:
        """The gRPC server ended the connection."""
        if self._client.transport:
            self._client.transport.close()

    def backend_full(self, *, full: bool) -> None:
        """The gRPC server reads slowly, or again."""
        self._client.pause("the server reads slowly", paused=full)


class _Backend(asyncio.Protocol):
    """The gRPC server's end of a pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.backend_ready(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._connection.backend_sent(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connection.backend_lost()

    def pause_writing(self) -> None:
        self._connection.backend_full(full=True)

    def resume_writing(self) -> None:
        self._connection.backend_full(full=False)

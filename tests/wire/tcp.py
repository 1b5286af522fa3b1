"""TCP servers that answer what a test wants, true or not."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

PING = bytes((0, 0, 8, 6, 0, 0, 0, 0, 0))  # how a frame begins that asks for a sign of life
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, *, host: str = "127.0.0.1", **options: Any
) -> AsyncIterator[str]:
    """A TCP server on a free port; at the end its connections are closed."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await writer.wait_closed()

    server = await asyncio.start_server(handle, host, 0, **options)
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def answering(answer: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return handle


def http(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers]
    if not any(header.startswith(("Content-Length", "Transfer")) for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Way:
    """A way to a server that can swallow what goes over the connections that exist."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.opened = 0
        self._swallowed = 0
        self._pings = 0
        self._pinged = asyncio.Condition()

    def go_silent(self) -> None:
        """Pass nothing on, and close nothing; connections that are made later work."""
        self._swallowed = self.opened

    async def pinged(self, times: int) -> None:
        """Return when a client has asked so many times, by HTTP/2, for a sign of life."""
        async with self._pinged:
            await self._pinged.wait_for(lambda: self._pings >= times)

    async def passes(self, connection: int, way: str, data: bytes) -> bool:
        if way == "to server" and PING in data:
            async with self._pinged:
                self._pings += 1
                self._pinged.notify_all()
        return connection > self._swallowed


@contextlib.asynccontextmanager
async def silencing(server: str) -> AsyncIterator[Way]:
    """A way to a server that can go silent."""
    way = Way("")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way.opened += 1
        number = way.opened
        await _pass_on(server, reader, writer, functools.partial(way.passes, number))

    async with serving(handle) as way.address:
        yield way


@contextlib.asynccontextmanager
async def counting(server: str) -> AsyncIterator[tuple[str, Counter[str]]]:
    """A way to a server that counts the bytes in each direction."""
    counts: Counter[str] = Counter()

    async def count(way: str, data: bytes) -> bool:
        counts[way] += len(data)
        return True

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pass_on(server, reader, writer, count)

    async with serving(handle) as address:
        yield address, counts


async def _pass_on(
    server: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    passes: Callable[[str, bytes], Awaitable[bool]],
) -> None:
    """Pass to a server, and back, what passes."""
    host, port = server.split(":")

    async def pump(way: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            if await passes(way, data):
                sink.write(data)
                await sink.drain()

    server_reader, server_writer = await asyncio.open_connection(host, int(port))
    async with asyncio.TaskGroup() as tasks:
        back = tasks.create_task(pump("to client", server_reader, writer))
        try:
            await pump("to server", reader, server_writer)
        finally:
            back.cancel()
            server_writer.close()
            with contextlib.suppress(OSError):
                await server_writer.wait_closed()

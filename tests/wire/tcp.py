"""TCP servers that answer what a test wants, true or not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

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


@contextlib.asynccontextmanager
async def counting(server: str) -> AsyncIterator[tuple[str, Counter[str]]]:
    """A way to a server that counts the bytes in each direction."""
    host, port = server.split(":")
    counts: Counter[str] = Counter()

    async def pump(name: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            counts[name] += len(data)
            sink.write(data)
            await sink.drain()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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

    async with serving(handle) as address:
        yield address, counts

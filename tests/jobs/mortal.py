"""A process that dies: from one moment on nothing of it reaches the server, and nothing comes."""

from __future__ import annotations

import asyncio

from pubsub_aio._wire.transport import PullStream, Transport


class Life:
    """Counts what passes between a process and the server, and ends at a given number.

    A call counts twice: when it leaves, and when its answer comes. So for each there is a life that
    ends before the server has heard of it, and one that ends after that.

    Args:
        lasts: How many such moments.
    """

    def __init__(self, lasts: int) -> None:
        self.left = lasts
        self.over = asyncio.Event()
        self.passed: list[str] = []

    def passes(self, what: str) -> None:
        """Something is about to pass."""
        if not self.over.is_set():
            self.passed.append(what)
            self.left -= 1
            if self.left < 0:
                self.over.set()

    async def check(self) -> None:
        """Wait for ever if it is over."""
        if self.over.is_set():
            await asyncio.Event().wait()


class MortalTransport:
    """A transport of a process that dies.

    Args:
        transport: To the server.
        life: Of the process.
    """

    name = "mortal"

    def __init__(self, transport: Transport, life: Life) -> None:
        self.can = transport.can
        self._transport = transport
        self._life = life

    async def open(self) -> None:
        await self._transport.open()

    async def close(self) -> None:
        await self._transport.close()

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        self._life.passes(f"{rpc} is called")
        await self._life.check()
        reply = await self._transport.call(rpc, request, timeout=timeout)
        self._life.passes(f"{rpc} is answered")
        await self._life.check()
        return reply

    def streaming_pull(self) -> PullStream:
        return _MortalStream(self._transport.streaming_pull(), self._life)


class _MortalStream:
    """A stream that the server sees end with the process."""

    def __init__(self, stream: PullStream, life: Life) -> None:
        self._stream = stream
        self._life = life
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        await self._life.over.wait()
        self._stream.cancel()

    async def write(self, request: bytes) -> None:
        self._life.passes("a stream is written to")
        await self._life.check()
        await self._stream.write(request)

    async def done_writing(self) -> None:
        await self._life.check()
        await self._stream.done_writing()

    async def read(self) -> bytes:
        reply = await self._stream.read()
        if reply:
            self._life.passes("messages come")
        await self._life.check()
        return reply

    def cancel(self) -> None:
        self._watching.cancel()
        self._stream.cancel()

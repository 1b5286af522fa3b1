"""The emulator's port: gRPC and HTTP servers behind one front."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_aio.emulator.front import Front
from pubsub_aio.emulator.grpc_api import grpc_server

if TYPE_CHECKING:
    from pubsub_aio.emulator.faults import Faults
    from pubsub_aio.emulator.http import HttpServer
    from pubsub_aio.emulator.service import Service
    from pubsub_aio.emulator.tokens import Tokens


class Listener:
    """Serves a service on one port.

    The inner servers listen on Linux's abstract sockets, which leave no file behind; elsewhere on
    loopback ports.
    """

    def __init__(self, service: Service, faults: Faults, tokens: Tokens) -> None:
        self.front = Front(grpc=self._to_grpc, http=self._to_http)
        self._service = service
        self._tokens = tokens
        self._grpc = grpc_server(service, faults)
        self._grpc_socket = f"pubsub-aio-{secrets.token_hex(16)}"
        self._grpc_port = 0
        self._http: HttpServer | None = None
        self._http_starts = asyncio.Lock()

    async def start(self, host: str, port: int) -> int:
        """Begin to serve; returns the port, which was chosen if zero was given."""
        if sys.platform == "linux":
            self._grpc.add_insecure_port(f"unix-abstract:{self._grpc_socket}")
        else:
            self._grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()
        return await self.front.listen(host, port)

    async def stop(self) -> None:
        """End every connection; calls and streams are expected to have ended.

        Connections go first: a gRPC server that stops would answer CANCELLED to what comes last,
        and clients take that for their own doing.
        """
        async with contextlib.AsyncExitStack() as closing:  # all of it, whatever happens
            if self._http:
                closing.push_async_callback(self._http.close)
            closing.push_async_callback(self._grpc.stop, 0.1)
            await self.front.close()

    async def _to_grpc(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        if self._grpc_port:
            await loop.create_connection(protocol, "127.0.0.1", self._grpc_port)
        else:
            await loop.create_unix_connection(protocol, f"\0{self._grpc_socket}")

    async def _to_http(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        async with self._http_starts:
            if self._http is None:
                # Only now: aiohttp takes its time to import.
                from pubsub_aio.emulator.http import HttpServer

                http = HttpServer(self._service, self._tokens)
                await http.start()
                self._http = http
        await asyncio.get_running_loop().create_connection(protocol, "127.0.0.1", self._http.port)

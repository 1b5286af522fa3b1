"""The emulator's port: gRPC and HTTP servers behind one front."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_aio.emulator.front import Front
from pubsub_aio.emulator.grpc_api import grpc_server

if TYPE_CHECKING:
    from pubsub_aio.emulator.faults import Faults
    from pubsub_aio.emulator.http import HttpServer
    from pubsub_aio.emulator.service import Service


class Listener:
    """Serves a service on one port."""

    def __init__(self, service: Service, faults: Faults) -> None:
        self.front = Front(connect=self._connect, http=self._http_protocol)
        self._service = service
        self._grpc = grpc_server(service, faults)
        self._http: HttpServer | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._inner_path = ""
        self._inner_port = 0

    async def start(self, host: str, port: int) -> int:
        """Begin to serve; returns the port, which was chosen if zero was given."""
        if hasattr(socket, "AF_UNIX"):
            self._directory = tempfile.TemporaryDirectory(prefix="pubsub-aio-")
            self._inner_path = f"{self._directory.name}/grpc"
            self._grpc.add_insecure_port(f"unix:{self._inner_path}")
        else:
            self._inner_port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()
        return await self.front.listen(host, port)

    async def stop(self) -> None:
        """End every call and connection; streams are expected to have ended."""
        await self._grpc.stop(grace=0.1)
        await self.front.close()
        if self._http:
            await self._http.close()
        if self._directory:
            self._directory.cleanup()

    async def _connect(
        self, protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        loop = asyncio.get_running_loop()
        if self._inner_path:
            return await loop.create_unix_connection(protocol, self._inner_path)
        return await loop.create_connection(protocol, "127.0.0.1", self._inner_port)

    def _http_protocol(self) -> asyncio.Protocol:
        if self._http is None:
            from pubsub_aio.emulator.http import HttpServer

            self._http = HttpServer(self._service)
        return self._http.protocol()

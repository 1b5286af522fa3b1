"""The HTTP/1.1 server of the REST side, inside: the emulator's front connects to it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

try:
    from aiohttp import web
except ImportError as error:
    raise ImportError(
        'the emulator needs aiohttp for REST: pip install "pubsub-aio[emulator]"'
    ) from error

from pubsub_aio.emulator.principals import HEADER
from pubsub_aio.emulator.rest_api import RestApi
from pubsub_aio.emulator.status import invalid
from pubsub_aio.emulator.tokens import CERTS_PATH, discovery

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage

    from pubsub_aio.emulator.service import Service
    from pubsub_aio.emulator.tokens import Tokens

# aiohttp reports every peer that does not speak HTTP as an error, with a traceback; what goes wrong
# in answering a request is reported by the RestApi.
_aiohttp_log = logging.getLogger("pubsub_aio.emulator.http")
_aiohttp_log.setLevel(logging.CRITICAL)

# JSON carries data as base64, so a legal request may be a third larger than the service's limit.
_MAX_BODY = 20 * 1024 * 1024


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """What aiohttp makes itself, but for the size of body that it accepts."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY
    )


class HttpServer:
    """Answers HTTP requests on a port of its own."""

    def __init__(self, service: Service, tokens: Tokens) -> None:
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._api = RestApi(service)
        self._tokens = tokens
        self._server = web.Server(
            self._handle,
            request_factory=_request,
            handler_cancellation=True,  # or a Pull whose client left would still take messages
            access_log=None,
            logger=_aiohttp_log,
        )

    async def start(self) -> None:
        """Begin to listen on a loopback port."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, "127.0.0.1", 0)
        self.port = int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End every connection."""
        if self._listener:
            self._listener.close()
        await self._server.shutdown(timeout=0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/":
            return web.Response(text="Ok\n")
        if request.method == "GET" and request.path == CERTS_PATH:
            return web.json_response(await self._tokens.key_set())
        if request.method == "GET" and request.path == "/.well-known/openid-configuration":
            return web.json_response(discovery(request.host))
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            sent = await request.read()
        except web.HTTPRequestEntityTooLarge:
            error = invalid("body", f"more than {_MAX_BODY} bytes")
            status, body = self._api.refuse(error)
        else:
            said = request.headers.getall(HEADER, [])
            status, body = await self._api.answer(
                request.method,
                request.path,
                request.query,
                sent,
                principal=", ".join(said) if said else None,
            )
        return web.Response(
            status=status, body=body, content_type="application/json", charset="utf-8"
        )

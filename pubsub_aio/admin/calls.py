"""The life of an admin client: what it opens, who may use it, and how its calls are made."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import grpc.aio

from pubsub_aio._wire.call_channel import CallChannel
from pubsub_aio._wire.connection import project_of
from pubsub_aio._wire.forks import ForkGuard
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.names import Kind, full_name, project_name
from pubsub_aio._wire.transport import Transport
from pubsub_aio._wire.transports import make_transport
from pubsub_aio.errors import ClosedError, ConfigError, WrongLoopError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

    from pubsub_aio.admin.clients import GoogleClients, ListRequest

Item = TypeVar("Item")


class Calls:
    """Opens and closes a transport and makes calls over it; `AdminClient` says what it takes."""

    def __init__(
        self,
        *,
        project: str | None = None,
        transport: Literal["grpc", "rest"] | Transport = "grpc",
        endpoint: str | None = None,
        region: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        if project is not None:
            project_name(project)  # refuses what cannot be one
        self._project = project_of() if project is None else project
        self._transport, _ = make_transport(
            transport, endpoint=endpoint, region=region, credentials=credentials
        )
        # Google's clients add interceptors to a channel; that of a given transport is spared them.
        self._uses_channel = transport == "grpc"
        self._guard = ForkGuard("client")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: GoogleClients | None = None

    @property
    def project(self) -> str | None:
        """The project of short names, if it is known."""
        return self._project

    async def __aenter__(self) -> Self:
        self._guard.check()
        if self._loop is not None:
            raise ConfigError("the client is open already: open another, or share this one")
        self._loop = asyncio.get_running_loop()
        try:
            await self._transport.open()
            self._opened = await _google_clients(self._channel())
        except BaseException:
            self._loop = None
            await self._transport.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        opened, self._opened, self._loop = self._opened, None, None
        if opened is not None:
            opened.closed = True  # before the calls end, so that they can tell why
        await self._transport.close()

    def _channel(self) -> grpc.aio.Channel:
        if self._uses_channel and isinstance(self._transport, GrpcTransport):
            return self._transport.channel
        return CallChannel(self._transport)

    @property
    def _google(self) -> GoogleClients:
        """Google's clients, for who may use them here and now."""
        self._guard.check()
        if self._opened is None:
            raise ClosedError("the client is not open: use it in `async with`")
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoopError("the client was opened in another event loop: open one in this")
        return self._opened

    def _name(self, name: str, kind: Kind) -> str:
        return full_name(name, kind, self._project)

    def _parent(self, project: str | None) -> str:
        return project_name(self._project if project is None else project)

    def _changed(self, settings: Mapping[str, object]) -> list[str]:
        """The update mask: what is given is changed."""
        if not settings:
            raise ConfigError("an update needs a setting to change, as a keyword")
        return list(settings)

    async def _list(
        self,
        method: Callable[..., Awaitable[object]],
        request: ListRequest,
        items: str,
        *,
        timeout: float,
    ) -> AsyncIterator[Item]:
        """The items of all pages; a page is asked for when the one before it has been read."""
        while True:
            page = await self._google.call(method, request, timeout=timeout)
            for item in getattr(page, items):
                yield item
            request.page_token = getattr(page, "next_page_token", "")
            if not request.page_token:
                return


async def _google_clients(channel: grpc.aio.Channel) -> GoogleClients:
    """Google's clients on a channel. Their import takes long, so the loop does not wait for it."""
    module = "pubsub_aio.admin.clients"
    if module not in sys.modules:
        await asyncio.to_thread(importlib.import_module, module)
    from pubsub_aio.admin.clients import GoogleClients

    return GoogleClients(channel)

"""Google's generated clients over any transport: a gRPC channel that makes its calls through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import grpc
import grpc.aio

from pubsub_aio._wire.transport import Transport
from pubsub_aio.errors import ServiceError, UnsupportedError

_TIMEOUT = 60.0  # seconds for a call that was given no limit: a transport needs one


class CallChannel(grpc.aio.Channel):
    """A channel with what generated clients need, which is unary calls.

    Metadata goes nowhere: a transport adds the headers that it needs. Closing the channel does
    not close the transport.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # The generated clients add one that logs; their messages are not worth a call object.
        self._unary_unary_interceptors: list[object] = []

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # noqa: FBT001, FBT002 - gRPC's own signature
    ) -> Any:
        """A function that makes the call; what it answers can be awaited, and no more."""
        rpc = method.rpartition("/")[2]
        encode = request_serializer or bytes
        decode = response_deserializer or bytes

        async def call(request: Any, *, timeout: float | None = None, **_: object) -> Any:
            try:
                reply = await self._transport.call(
                    rpc, encode(request), timeout=_TIMEOUT if timeout is None else timeout
                )
            except ServiceError as error:
                raise _as_grpc(error) from error
            return decode(reply)

        return call

    def unary_stream(self, method: str, *_: object, **__: object) -> Any:
        """Not carried."""
        return _refuser(method)

    def stream_unary(self, method: str, *_: object, **__: object) -> Any:
        """Not carried."""
        return _refuser(method)

    def stream_stream(self, method: str, *_: object, **__: object) -> Any:
        """Not carried; the generated clients ask for it when they are made, though."""
        return _refuser(method)

    async def channel_ready(self) -> None:
        """Return at once: whether the service can be reached is for a call to find out."""

    def get_state(
        self,
        try_to_connect: bool = False,  # noqa: ARG002, FBT001, FBT002 - gRPC's own signature
    ) -> grpc.ChannelConnectivity:
        """Ready, always."""
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Not possible.

        Raises:
            UnsupportedError: The state does not change, so the wait would have no end.
        """
        raise UnsupportedError(f"this channel stays {last_observed_state.name}")

    async def close(self, grace: float | None = None) -> None:
        """Do nothing: the transport has an owner."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _refuser(method: str) -> Callable[..., Awaitable[Any]]:
    async def refuse(*_: object, **__: object) -> Any:
        raise UnsupportedError(f"{method} is a stream: use the transport for it")

    return refuse


def _as_grpc(error: ServiceError) -> grpc.aio.AioRpcError:
    """An error as the generated clients know it, so that they retry what they would retry."""
    code = grpc.StatusCode.__members__.get(error.code, grpc.StatusCode.UNKNOWN)
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details=error.message)

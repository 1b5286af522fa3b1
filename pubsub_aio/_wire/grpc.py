"""The transport over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection, find_credentials
from pubsub_aio._wire.forks import ForkGuard, using_grpc
from pubsub_aio._wire.keepalive import EMULATOR, SERVICE, Keepalive, Options
from pubsub_aio._wire.rpcs import BY_NAME
from pubsub_aio._wire.transport import Capabilities, service_error
from pubsub_aio.errors import ClosedError, ServiceError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

    Call = grpc.aio.StreamStreamCall[bytes, bytes]

T = TypeVar("T")

_OPTIONS = (
    # A response is as large as its messages; the default of 4 MB refuses what the service sends.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Trailers name the ack ids that were refused; 8 KiB are soon full of them.
    ("grpc.max_metadata_size", 4 * 1024 * 1024),
    ("grpc.primary_user_agent", "pubsub-aio"),
    # Who tries again, and how soon, is decided here; gRPC must not wait for minutes on top of it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

_COMPRESSED = 1 << 20
"""The most bytes that are compressed: gRPC does it in the loop's thread, 30 ms for so many."""

_WRITE_FAILED = "Internal error from Core"
"""What gRPC says, instead of what the server said, of a write that met the end of its stream."""

_LOOKS, _LOOK_PAUSE = 50, 0.01  # for what the server said

_ACK_FAILURES = ("PERMANENT_FAILURE_", "TRANSIENT_FAILURE_")

_ERRORS = (grpc.aio.AioRpcError, grpc.aio.BaseError)  # the one is not the other's


class _Channels(NamedTuple):
    """Two channels, and so two connections once both are used: they differ in when they ping."""

    calls: grpc.aio.Channel
    """For what is answered at once."""

    waits: grpc.aio.Channel
    """For what waits for messages."""


class GrpcTransport:
    """Calls and streams over gRPC.

    Args:
        connection: Where to, and with which credentials.
        channel: An open channel to use instead; it is not closed with the transport.
        keepalive: When a connection is given up; by default what its server can bear.
    """

    name = "grpc"
    can = Capabilities(
        streaming=True, server_flow_control=True, confirmations=True, pings=True, compression=True
    )

    def __init__(
        self,
        connection: Connection,
        *,
        channel: grpc.aio.Channel | None = None,
        keepalive: Keepalive | None = None,
    ) -> None:
        self._connection = connection
        self.keepalive = keepalive or (SERVICE if connection.tls else EMULATOR)
        self._given = channel
        self._channels = None if channel is None else _Channels(channel, channel)
        self._guard = ForkGuard("client")
        self._methods: dict[str, Any] = {}
        self._streams: weakref.WeakSet[GrpcStream] = weakref.WeakSet()
        self._opening: asyncio.Lock = asyncio.Lock()

    async def open(self) -> None:
        """Open the channels; the connections themselves are made by the first calls."""
        self._guard.check()
        async with self._opening:
            if self._channels is not None:
                return
            using_grpc()
            credentials: grpc.ChannelCredentials | None = None
            if self._connection.needs_credentials:
                found, _ = await asyncio.to_thread(find_credentials, self._connection)
                credentials = _channel_credentials(found)
            self._channels = _Channels(
                calls=self._connect(credentials, self.keepalive.where_answered()),
                waits=self._connect(credentials, self.keepalive.where_waiting()),
            )

    def _connect(
        self, credentials: grpc.ChannelCredentials | None, options: Options
    ) -> grpc.aio.Channel:
        target = self._connection.target
        if credentials is None:
            return grpc.aio.insecure_channel(target, (*_OPTIONS, *options))
        return grpc.aio.secure_channel(target, credentials, (*_OPTIONS, *options))

    async def close(self) -> None:
        """End every call."""
        if self._channels is not None:
            self._guard.check()
        channels, self._channels = self._channels, None
        self._methods.clear()
        for stream in list(self._streams):
            stream.cancel()
        if channels is not None and self._given is None:
            try:
                await channels.calls.close()
            finally:
                await channels.waits.close()

    @property
    def channel(self) -> grpc.aio.Channel:
        """The open channel for what is answered at once."""
        return self._open_channels().calls

    def _open_channels(self) -> _Channels:
        self._guard.check()
        if self._channels is None:
            raise ClosedError("the transport is not open: use the client in `async with`")
        return self._channels

    async def call(
        self, rpc: str, request: bytes, *, timeout: float, compress: bool = False
    ) -> bytes:
        """Make a unary call."""
        method = self._methods.get(rpc)
        if method is None:
            channels = self._open_channels()
            channel = channels.waits if rpc == "Pull" else channels.calls
            method = self._methods[rpc] = channel.unary_unary(BY_NAME[rpc].path)
        self._guard.check()
        try:
            gzip = grpc.Compression.Gzip if compress and len(request) <= _COMPRESSED else None
            reply: bytes = await method(request, timeout=timeout, compression=gzip)
        except grpc.aio.AioRpcError as error:
            raise _our_error(error) from error
        except grpc.aio.UsageError as error:  # the channel was closed meanwhile
            raise service_error("CANCELLED", str(error)) from error
        except asyncio.CancelledError:
            if not _being_cancelled():  # then it is the channel that was closed
                raise service_error("CANCELLED", "the transport was closed") from None
            raise
        return reply

    def streaming_pull(self) -> GrpcStream:
        """A new stream."""
        channel = self._open_channels().waits
        method: Any = channel.stream_stream(BY_NAME["StreamingPull"].path)
        stream = GrpcStream(method, self._guard)
        self._streams.add(stream)
        return stream


class GrpcStream:
    """A StreamingPull over gRPC."""

    def __init__(self, method: Any, guard: ForkGuard) -> None:
        self._method = method
        self._guard = guard
        self._call: Call | None = None
        self._end: ServiceError | None = None
        self._cancelled = False
        self._writing: asyncio.Task[Any] | None = None
        self._interrupted = False

    async def write(self, request: bytes) -> None:
        """Send a request; the first opens the stream."""
        self._guard.check()
        if self._cancelled:
            raise service_error("CANCELLED", "the stream was ended here")
        await self._unless_cancelled(self._write(request))

    async def _unless_cancelled(self, writing: Coroutine[object, None, None]) -> None:
        """Write; who cancels the stream ends that too."""
        task = self._writing = asyncio.current_task()
        try:
            await writing
        except asyncio.CancelledError:
            if self._interrupted and task is not None:
                task.uncancel()
            if _being_cancelled():
                raise
            raise service_error("CANCELLED", "the stream was ended here") from None
        finally:
            self._writing = None
            self._interrupted = False

    async def _write(self, request: bytes) -> None:
        try:
            if self._call is None:
                self._call = self._method()
                self._call.add_done_callback(self._note_end)
            await self._call.write(request)
        except (*_ERRORS, asyncio.InvalidStateError) as error:
            raise await self._ending() from error

    async def done_writing(self) -> None:
        """Send no more; the server ends the stream."""
        if self._call is None or self._cancelled:
            raise service_error("CANCELLED", "the stream is not open")
        await self._unless_cancelled(self._half_close(self._call))

    async def _half_close(self, call: Call) -> None:
        try:
            await call.done_writing()
        except (*_ERRORS, asyncio.InvalidStateError) as error:
            raise await self._ending() from error

    async def read(self) -> bytes:
        """The next response."""
        self._guard.check()
        if self._call is None or self._cancelled:
            raise service_error("CANCELLED", "the stream is not open")
        try:
            data = await self._call.read()
        except _ERRORS as error:
            raise await self._ending() from error
        except asyncio.CancelledError:
            if not _being_cancelled():
                raise service_error("CANCELLED", "the stream was ended here") from None
            raise
        if isinstance(data, bytes):
            return data
        raise await self._ending()

    def cancel(self) -> None:
        """End the stream."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()
        if self._writing is not None and not self._interrupted:
            # gRPC leaves a write waiting whose connection takes no more bytes.
            self._interrupted = True
            self._writing.cancel()

    def _note_end(self, call: Call) -> None:
        """Note what the server or the network said: a failed write puts its own words over it."""
        self._end = self._end or _at_once(_how_it_ended(call))

    async def _ending(self) -> ServiceError:
        """How the stream ended."""
        if self._cancelled or self._call is None:
            return service_error("CANCELLED", "the stream was ended here")
        for _ in range(_LOOKS):  # the write may have failed before the reason is here
            end = self._end or await _how_it_ended(self._call)
            if end.message != _WRITE_FAILED:
                return end
            self._end = None
            await asyncio.sleep(_LOOK_PAUSE)
        return service_error("UNAVAILABLE", "the stream ended while it was written to")


async def _how_it_ended(call: Call) -> ServiceError:
    code, details = await call.code(), await call.details()
    if code is grpc.StatusCode.OK:
        return service_error("UNAVAILABLE", "the server ended the stream")
    return _with_details(code.name, details or "", await call.trailing_metadata())


def _at_once(work: Coroutine[object, None, T]) -> T:
    """The result of something that does not have to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("it has to wait")


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    import google.auth.transport.grpc
    import google.auth.transport.requests

    plugin = google.auth.transport.grpc.AuthMetadataPlugin(  # type: ignore[no-untyped-call]
        credentials, google.auth.transport.requests.Request()
    )
    return grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(), grpc.metadata_call_credentials(plugin)
    )


def _our_error(error: grpc.aio.AioRpcError) -> ServiceError:
    return _with_details(error.code().name, error.details() or "", error.trailing_metadata())


def _with_details(code: str, message: str, metadata: Any) -> ServiceError:
    """The error, with what the google.rpc.Status in the trailers adds."""
    retry_delay: float | None = None
    ack_errors: dict[str, str] = {}
    for key, value in metadata or ():
        if key == "grpc-status-details-bin":
            retry_delay, ack_errors = details_of(value)
    return service_error(code, message, retry_delay=retry_delay, ack_errors=ack_errors)


def details_of(status: bytes) -> tuple[float | None, dict[str, str]]:
    """The retry delay and the refused ack ids that a google.rpc.Status carries."""
    retry_delay: float | None = None
    ack_errors: dict[str, str] = {}
    with contextlib.suppress(DecodeError):
        for detail in schema.Status.FromString(status).details:
            if detail.type_url.endswith("/google.rpc.RetryInfo"):
                info = schema.RetryInfo.FromString(detail.value)
                retry_delay = info.retry_delay.ToNanoseconds() / 1e9
            elif detail.type_url.endswith("/google.rpc.ErrorInfo"):
                metadata = schema.ErrorInfo.FromString(detail.value).metadata
                # Other errors have other things to tell.
                ack_errors.update(
                    (key, why) for key, why in metadata.items() if why.startswith(_ACK_FAILURES)
                )
    return retry_delay, ack_errors

"""The service over gRPC."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import grpc
import grpc.aio

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import RPCS, Rpc
from pubsub_aio.emulator.principals import HEADER
from pubsub_aio.emulator.service import PULL_PATIENCE, fault_in_emulator
from pubsub_aio.emulator.status import StatusError
from pubsub_aio.emulator.streaming import StreamSession

if TYPE_CHECKING:
    from pubsub_aio.emulator.faults import Faults
    from pubsub_aio.emulator.service import Service

    Context = grpc.aio.ServicerContext[bytes, bytes]

log = logging.getLogger("pubsub_aio.emulator")

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MAX_PATIENCE = 60.0

OPTIONS = (
    # The service answers for the size of requests; this only bounds what is read at all.
    ("grpc.max_receive_message_length", 32 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    # Past the default, calls that come at once are refused.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
    ("grpc.so_reuseport", 0),
    # Clients keep idle connections alive; that is no abuse.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)


def grpc_server(service: Service, faults: Faults) -> grpc.aio.Server:
    """A server for every RPC; it is given its address and started by the caller."""
    server = grpc.aio.server(options=OPTIONS)
    methods: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = {}
    for rpc in RPCS:
        handler: grpc.RpcMethodHandler[bytes, bytes]
        if rpc.name == "StreamingPull":
            handler = grpc.stream_stream_rpc_method_handler(_streaming(service, faults))
        else:
            handler = grpc.unary_unary_rpc_method_handler(_unary(service, rpc))
        methods.setdefault(rpc.service, {})[rpc.name] = handler
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, of) for name, of in methods.items())
    )
    return server


def _unary(service: Service, rpc: Rpc) -> Callable[[bytes, Context], Awaitable[bytes]]:
    asks_who = service.asks_who(rpc.name)

    async def handle(data: bytes, context: Context) -> bytes:
        patience = PULL_PATIENCE
        if rpc.name == "Pull" and (remaining := context.time_remaining()) is not None:
            if remaining <= 0:  # messages must not go to somebody who left
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")
            # Answer shortly before the client would give up.
            patience = min(max(remaining - 1, remaining / 2), _MAX_PATIENCE)
        try:
            principal = _principal(context) if asks_who else None
            return await service.call(rpc, data, patience=patience, principal=principal)
        except StatusError as error:
            await _abort(context, error)

    return handle


def _streaming(service: Service, faults: Faults) -> Callable[[object, Context], Awaitable[None]]:
    asks_who = service.asks_who("StreamingPull")

    async def handle(_: object, context: Context) -> None:
        async def read() -> bytes | None:
            data: object = await context.read()
            return data if isinstance(data, bytes) else None  # grpc.aio.EOF

        async def write(data: bytes) -> None:
            try:
                await context.write(data)
            except grpc.aio.BaseError as error:
                raise ConnectionError("the client is gone") from error

        principal = _principal(context) if asks_who else None
        session = StreamSession(service, faults, read=read, write=write, principal=principal)
        try:
            await session.run()
        except StatusError as error:
            await _abort(context, error)
        except Exception as bug:
            log.exception("StreamingPull failed")
            await _abort(context, fault_in_emulator(bug))

    return handle


def _principal(context: Context) -> str | None:
    """Who the caller says it is; what is said twice is refused as a name."""
    said = [str(value) for key, value in context.invocation_metadata() or () if key == HEADER]
    return ", ".join(said) if said else None


async def _abort(context: Context, error: StatusError) -> NoReturn:
    details = status_of(error).SerializeToString()
    metadata = (("grpc-status-details-bin", details),)
    await context.abort(_CODES[error.code], error.message, metadata)


def status_of(error: StatusError) -> schema.Status:
    """A refusal as a google.rpc.Status, with its details."""
    status = schema.Status(code=int(error.code), message=error.message)
    if error.ack_errors:
        info = schema.ErrorInfo(
            reason="EXACTLY_ONCE_ACKID_FAILURE",
            domain="pubsub.googleapis.com",
            metadata=error.ack_errors,
        )
        status.details.add().Pack(info)
    if error.info:
        status.details.add().Pack(schema.ErrorInfo(**error.info._asdict()))
    if error.retry_delay is not None:
        retry = schema.RetryInfo()
        retry.retry_delay.FromNanoseconds(round(error.retry_delay * 1e9))
        status.details.add().Pack(retry)
    return status

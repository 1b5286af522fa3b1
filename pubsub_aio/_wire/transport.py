"""What a transport is: bytes to the service and back, and how its refusals become our errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pubsub_aio.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    ServiceError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a transport can do."""

    streaming: bool
    """Messages come by StreamingPull; without it they are pulled."""

    server_flow_control: bool
    """The server can be told how much may be outstanding."""

    confirmations: bool
    """The server says of each ack id whether it was accepted, as exactly-once delivery needs."""

    pings: bool
    """A stream can be asked for a sign of life."""

    compression: bool = False
    """It is a `CompressingTransport`."""


class PullStream(Protocol):
    """One StreamingPull call. It is opened by its first write."""

    async def write(self, request: bytes) -> None:
        """Send a request. One at a time.

        Raises:
            ServiceError: The stream has ended, or cannot be opened.
        """

    async def done_writing(self) -> None:
        """Send no more; the server then ends the stream, and everything that it sent can be read.

        Raises:
            ServiceError: The stream has ended.
        """

    async def read(self) -> bytes:
        """The next response.

        Raises:
            ServiceError: How the stream ended; every stream does, sooner or later.
        """

    def cancel(self) -> None:
        """End the stream; a pending read or write fails with CANCELLED."""


class Transport(Protocol):
    """A way to the service. It serves one event loop."""

    name: str
    can: Capabilities

    async def open(self) -> None:
        """Make it ready, once, in the loop that will use it."""

    async def close(self) -> None:
        """End every call and free what it holds; safe to call more than once."""

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        """Make a call: `rpc` is a name such as `"Acknowledge"`, request and reply are protobuf.

        Raises:
            ServiceError: The service refused it, or could not be reached within `timeout` seconds.
            UnsupportedError: This transport does not carry that call.
        """

    def streaming_pull(self) -> PullStream:
        """A new stream."""


class CompressingTransport(Transport, Protocol):
    """A transport that can send a request compressed with gzip."""

    async def call(
        self, rpc: str, request: bytes, *, timeout: float, compress: bool = False
    ) -> bytes:
        """Make a call; its request may be compressed, where that does not hold up the loop."""


_BY_CODE: dict[str, type[ServiceError]] = {
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNAUTHENTICATED": PermissionDeniedError,
    "INVALID_ARGUMENT": InvalidRequestError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": UnavailableError,
}


def service_error(
    code: str,
    message: str,
    *,
    retry_delay: float | None = None,
    ack_errors: Mapping[str, str] | None = None,
) -> ServiceError:
    """A refusal as the error that stands for its code."""
    kind = _BY_CODE.get(code, ServiceError)
    return kind(code, message, retry_delay=retry_delay, ack_errors=ack_errors)

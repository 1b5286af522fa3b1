"""Which transport a client uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_aio._wire.connection import Connection, resolve
from pubsub_aio._wire.transport import Transport
from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials


_PARTS = ("name", "can", "open", "close", "call")  # what every client uses of a transport


def make_transport(
    transport: str | Transport,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    credentials: Credentials | None = None,
) -> tuple[Transport, Connection | None]:
    """The transport of that name, and where it goes to; one that exists is taken as it is.

    Raises:
        ConfigError: There is none of that name, or it cannot go there.
        MissingExtraError: It needs packages that are not installed.
    """
    if not isinstance(transport, str):
        if isinstance(transport, type) or not all(hasattr(transport, part) for part in _PARTS):
            raise _no_transport(transport)
        given = {"endpoint": endpoint, "region": region, "credentials": credentials}
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"{name}: give it to the transport, which was made without it")
        return transport, None
    connection = resolve(endpoint=endpoint, region=region, credentials=credentials)
    if transport == "grpc":
        from pubsub_aio._wire.grpc import GrpcTransport

        return GrpcTransport(connection), connection
    if transport == "rest":
        from pubsub_aio._wire.rest import RestTransport

        return RestTransport(connection), connection
    raise _no_transport(transport)


def _no_transport(given: object) -> ConfigError:
    return ConfigError(f"transport: must be 'grpc', 'rest' or a transport, not {given!r}")

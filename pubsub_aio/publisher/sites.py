"""The endpoints that a publisher publishes to, and whether they answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from siphash24 import siphash24

from pubsub_aio._core.endpoints import Endpoints
from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.transport import Transport
from pubsub_aio._wire.transports import make_transport
from pubsub_aio.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

log = logging.getLogger("pubsub_aio.publisher")

SILENT = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"})
"""Codes that say that nobody answered; any other is an answer."""

_PROBE_TIMEOUT = 5.0
_KEY = bytes(16)


class Sites:
    """Transports to the endpoints, the preferred one first.

    Args:
        transports: One for each endpoint.
        connections: Where each goes to, where that is known.
    """

    def __init__(
        self, transports: Sequence[Transport], connections: Sequence[Connection | None]
    ) -> None:
        self.transports = tuple(transports)
        self.names = tuple(
            connection.target if connection else f"{transport.name} {number}"
            for number, (transport, connection) in enumerate(
                zip(transports, connections, strict=True)
            )
        )
        self.source = connections[0].source if connections[0] else "argument"
        self.endpoints = Endpoints(len(self.transports))
        self._topic = ""
        self._silent: set[int] = set()
        self._isolated = asyncio.Event()

    def __len__(self) -> int:
        return len(self.transports)

    async def open(self) -> None:
        """Make all of them ready."""
        for transport in self.transports:
            await transport.open()

    async def close(self) -> None:
        """End every call."""
        for transport in self.transports:
            await transport.close()

    def of_key(self, ordering_key: str) -> int:
        """The endpoint of an ordering key, the same in every process."""
        digest = siphash24(ordering_key.encode(), key=_KEY).digest()
        return self.endpoints.of_key(int.from_bytes(digest, "little"))

    def failed(self, site: int, error: ServiceError, topic: str) -> None:
        """A call failed; whoever does not answer is left alone for a while."""
        if error.code not in SILENT:
            return
        if site not in self._silent:
            self._silent.add(site)
            log.warning("%s does not answer: %s", self.names[site], error)
        if self.endpoints.failed(site):
            self._topic = topic
            self._isolated.set()

    def answered(self, site: int) -> None:
        """A call was answered."""
        self.endpoints.answered(site)
        if site in self._silent:
            self._silent.discard(site)
            log.warning("%s answers again", self.names[site])

    async def probe(self, interval: float) -> None:
        """Ask those that did not answer now and then whether they do again, until cancelled."""
        while True:
            self._isolated.clear()
            while self.endpoints.isolated:
                await asyncio.sleep(interval)
                for site in sorted(self.endpoints.isolated):
                    if await self._answers(site):
                        self.answered(site)
            await self._isolated.wait()

    async def _answers(self, site: int) -> bool:
        """Whether an endpoint says anything at all; that it refuses to tell is an answer too."""
        request = schema.GetTopicRequest(topic=self._topic).SerializeToString()
        try:
            await self.transports[site].call("GetTopic", request, timeout=_PROBE_TIMEOUT)
        except ServiceError as error:
            return error.code not in SILENT
        except Exception:
            log.exception("%s could not be asked", self.names[site])
            return False
        return True


def make_sites(
    transport: str | Transport | Sequence[Transport],
    *,
    endpoint: str | Sequence[str] | None,
    region: str | Sequence[str] | None,
    credentials: Credentials | None,
) -> Sites:
    """The endpoints that the arguments of a client name.

    Raises:
        ConfigError: They contradict each other, or name none.
    """
    endpoints = _several("endpoint", endpoint, "host:port, such as localhost:8085")
    regions = _several("region", region, "a name such as 'europe-west1'")
    if len(endpoints) > 1 and len(regions) > 1:
        raise ConfigError("endpoint and region cannot both be given: a region names its endpoint")
    if isinstance(transport, Sequence) and not isinstance(transport, str | bytes):
        if not transport:
            raise ConfigError(f"transport: there must be one at least, not {transport!r}")
        if len(endpoints) > 1 or len(regions) > 1:
            name = "endpoint" if len(endpoints) > 1 else "region"
            raise ConfigError(f"{name}: there cannot be several of several transports")
        made = [
            make_transport(each, endpoint=endpoints[0], region=regions[0], credentials=credentials)
            for each in transport
        ]
    else:
        made = [
            make_transport(transport, endpoint=at, region=within, credentials=credentials)
            for at in endpoints
            for within in regions
        ]
    return Sites([each for each, _ in made], [connection for _, connection in made])


def _several(
    name: str, given: str | Sequence[str] | None, what: str
) -> Sequence[str] | tuple[None]:
    if given is None:
        return (None,)
    if isinstance(given, str):
        return (given,)
    texts = isinstance(given, Sequence) and all(isinstance(each, str) for each in given)
    if not texts or not given or len(set(given)) < len(given):
        raise ConfigError(f"{name} must be {what}, or a list of different ones, not {given!r}")
    return given

"""What a client asks of the server one call at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pubsub_aio._wire import codec, names, schema
from pubsub_aio._wire.connection import project_of
from pubsub_aio._wire.transport import Transport
from pubsub_aio._wire.transports import make_transport
from pubsub_aio.config import CALL_TIMEOUT, Setting, check
from pubsub_aio.errors import (
    AlreadyExistsError,
    ClosedError,
    ConfigError,
    NotFoundError,
    UnavailableError,
)
from pubsub_aio.message import Message, whole_seconds
from pubsub_aio.subscriber.adapters import ForAdapters
from pubsub_aio.subscriber.loops import ClientLoop
from pubsub_aio.subscriber.pulled import Pulled
from pubsub_aio.subscriber.reconnect import call_patiently

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

_FLUSH_TIMEOUT = 5.0

log = logging.getLogger("pubsub_aio.subscriber")


class SubscriberCalls(ForAdapters):
    """The calls of a `SubscriberClient` that do not subscribe."""

    def __init__(
        self,
        project: str | None = None,
        *,
        transport: str | Transport = "grpc",
        endpoint: str | None = None,
        region: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._transport, connection = make_transport(
            transport, endpoint=endpoint, region=region, credentials=credentials
        )
        if project is not None:
            names.project_name(project)
        of_transport: str | None = getattr(transport, "project", None)
        self._project = project or of_transport or project_of()
        self._settings = {
            "project": Setting(
                self._project, "argument" if project or of_transport else "environment"
            ),
            "transport": Setting(self._transport.name, "argument or default"),
        }
        if connection is not None:
            self._settings["endpoint"] = Setting(connection.target, connection.source)
        self._loop = ClientLoop()
        self._closed = False
        self._creating: dict[str, asyncio.Future[Any]] = {}
        self._pulled: dict[str, tuple[Pulled, asyncio.Task[None]]] = {}

    # Subscriptions

    def create_subscription(
        self, subscription: str, topic: str, *, timeout: float = CALL_TIMEOUT, **settings: object
    ) -> Any:
        """Create a subscription unless it exists.

        One that exists is left as it is; a setting that it has otherwise is logged.

        Args:
            subscription: Its name.
            topic: Its topic's name. The topic must exist.
            timeout: Seconds that it may take; a server that cannot be reached is tried again.
            **settings: Fields of the API's Subscription, as Google's client takes them, such as
                `ack_deadline_seconds`, `labels` or `enable_message_ordering`.

        Returns:
            The subscription as the server has it. Inside a running loop it is an awaitable of it
            that has begun already; `subscribe` waits for it.

        Raises:
            ConfigError: It exists with another topic, or a setting cannot be as it is.
        """
        self._check_open()
        name = self.subscription_name(subscription)
        request = schema.Subscription(name=name, topic=self.topic_name(topic))
        codec.with_settings(request, settings)
        created = self._loop.now_or_later(self._create(request, [*settings], timeout))
        if isinstance(created, asyncio.Task):
            self._creating[name] = created
            created.add_done_callback(lambda _: self._creating.pop(name, None))
        return created

    async def _create(
        self, request: schema.Subscription, settings: list[str], timeout: float
    ) -> schema.Subscription:
        try:
            data = await self._ask(
                "CreateSubscription", request.SerializeToString(), timeout=timeout
            )
        except NotFoundError as error:
            error.add_note(f"create the topic first: AdminClient().create_topic({request.topic!r})")
            raise
        except AlreadyExistsError:
            look = schema.GetSubscriptionRequest(subscription=request.name)
            data = await self._ask("GetSubscription", look.SerializeToString(), timeout=timeout)
        found = schema.Subscription.FromString(data)
        if found.topic != request.topic:
            raise ConfigError(
                f"topic: {request.name} exists and belongs to {found.topic}, not to {request.topic}"
            )
        for name in settings:
            if (there := getattr(found, name)) != getattr(request, name):
                log.warning("%s exists, with another %s: %s", found.name, name, there)
        return found

    # One call at a time

    async def pull(
        self, subscription: str, *, max_messages: int = 100, timeout: float = CALL_TIMEOUT
    ) -> list[Message]:
        """Ask for messages once; an empty list if none came.

        Nobody keeps them alive: each must be settled within the subscription's ack deadline, or
        given more time with `modify_ack_deadline`.

        Args:
            subscription: Its name.
            max_messages: The most to return, 1 to 1,000.
            timeout: Seconds to wait for the first.
        """
        name = self.subscription_name(subscription)
        check("max_messages", max_messages, 1, whole=True)
        await self._open()
        request = schema.PullRequest(subscription=name, max_messages=max_messages)
        try:
            data = await self._transport.call("Pull", request.SerializeToString(), timeout=timeout)
        except UnavailableError as error:
            if error.code == "DEADLINE_EXCEEDED":
                return []
            raise
        received = schema.PullResponse.FromString(data).received_messages
        return self._settler(name).messages(received) if received else []

    def _settler(self, name: str) -> Pulled:
        if name not in self._pulled:
            pulled = Pulled(self._transport, name)
            task = asyncio.get_running_loop().create_task(pulled.sender.run())
            self._pulled[name] = (pulled, task)
        return self._pulled[name][0]

    async def acknowledge(
        self, subscription: str, ack_ids: Iterable[str], *, timeout: float = CALL_TIMEOUT
    ) -> None:
        """Ack deliveries by their ids."""
        await self._open()
        data = codec.acknowledge(self.subscription_name(subscription), _ids(ack_ids))
        await self._transport.call("Acknowledge", data, timeout=timeout)

    async def modify_ack_deadline(
        self,
        subscription: str,
        ack_ids: Iterable[str],
        seconds: float,
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Move the deadlines of deliveries to that many seconds from now, 0 to 600."""
        whole = whole_seconds(seconds, "seconds")
        await self._open()
        data = codec.modify_ack_deadline(self.subscription_name(subscription), _ids(ack_ids), whole)
        await self._transport.call("ModifyAckDeadline", data, timeout=timeout)

    async def seek(
        self, subscription: str, target: datetime | str, *, timeout: float = CALL_TIMEOUT
    ) -> None:
        """Go back or forward.

        Args:
            subscription: Its name.
            target: An aware time, after which published messages come again and before which they
                count as acked; or the name of a snapshot.
            timeout: Seconds that it may take.
        """
        request = schema.SeekRequest(subscription=self.subscription_name(subscription))
        if isinstance(target, str):
            request.snapshot = names.full_name(target, "snapshots", self._project)
        elif target.tzinfo is None:
            raise ConfigError("target must be an aware datetime, such as datetime.now(UTC)")
        else:
            request.time.FromDatetime(target)
        await self._open()
        await self._transport.call("Seek", request.SerializeToString(), timeout=timeout)

    async def _ask(self, rpc: str, request: bytes, *, timeout: float = CALL_TIMEOUT) -> bytes:
        await self._open()
        return await call_patiently(self._transport, rpc, request, timeout=timeout)

    def topic_name(self, topic: str) -> str:
        """The full name of a topic. The library's own."""
        return names.full_name(topic, "topics", self._project)

    async def _end_creations(self) -> None:
        """End creations that nobody waited for."""
        creating = list(self._creating.values())
        for task in creating:
            task.cancel()
        if creating:
            await asyncio.wait(creating)

    async def _end_pulls(self) -> None:
        """Send what pulled messages were settled with, bounded."""
        for pulled, task in self._pulled.values():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_TIMEOUT):
                    await pulled.sender.drained()
            task.cancel()
            await asyncio.wait([task])
            pulled.sender.end()
        self._pulled.clear()

    # Parts

    def subscription_name(self, subscription: str) -> str:
        """The full name of a subscription. The library's own."""
        return names.full_name(subscription, "subscriptions", self._project)

    async def _open(self) -> None:
        self._check_open()
        self._loop.get()
        await self._transport.open()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed: make another")


def _ids(ack_ids: Iterable[str]) -> Iterable[str]:
    """These, unless they are a single one by mistake."""
    if isinstance(ack_ids, str):
        raise ConfigError(f"ack_ids must be a list of ids, not {ack_ids!r}")
    return ack_ids

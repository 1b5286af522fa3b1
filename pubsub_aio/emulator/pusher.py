"""Pushes for one subscription: POSTs what the broker hands out, and tells it what came of it."""

from __future__ import annotations

import asyncio
import io
import logging
from functools import partial
from typing import TYPE_CHECKING

try:
    import aiohttp
except ImportError as error:
    raise ImportError(
        'the emulator needs aiohttp to push: pip install "pubsub-aio[emulator]"'
    ) from error

from pubsub_aio.emulator.push_request import request_for
from pubsub_aio.emulator.pushing import acks
from pubsub_aio.emulator.transforms import AT_ONCE, ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pubsub_aio._wire import schema
    from pubsub_aio.emulator.pushing import Pushing
    from pubsub_aio.emulator.service import Service
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.tokens import Tokens

log = logging.getLogger("pubsub_aio.emulator")

_READ_AT_MOST = 64 * 1024  # of a response's body; more is cut off, and the connection with it


class Pusher:
    """Runs for as long as a subscription pushes, or has something under way."""

    def __init__(
        self, service: Service, subscription: Subscription, pushing: Pushing, tokens: Tokens
    ) -> None:
        self._service = service
        self._subscription = subscription
        self._pushing = pushing
        self._tokens = tokens
        self._requests: dict[str, asyncio.Task[None]] = {}  # by ack id
        self._scripts = 0  # messages that wait for a script, or for its end

    async def run(self) -> None:
        """Push until the subscription is pulled, detached or deleted."""
        subscription = self._subscription
        with self._service.waiter(subscription) as waiter:
            async with _session() as session, asyncio.TaskGroup() as tasks:
                while subscription.pushes or self._pushing.under_way:
                    self._let_go()
                    received, more = self._next()
                    if received:
                        self._begin(tasks, session, received)
                    if received or more:
                        await asyncio.sleep(0)
                    else:
                        await waiter.wait()
                self._let_go()

    def _next(self) -> tuple[schema.ReceivedMessage | None, bool]:
        """What to push next, and whether there is more to look at already.

        None where scripts are busy: its lease would run while it waits for them.
        """
        if self._scripts >= AT_ONCE:
            return None, False
        found = self._service.broker.push(self._subscription, now=self._service.clock.now())
        self._service.wake()
        return found

    def _begin(
        self,
        tasks: asyncio.TaskGroup,
        session: aiohttp.ClientSession,
        received: schema.ReceivedMessage,
    ) -> None:
        request = tasks.create_task(self._push(session, received))
        self._requests[received.ack_id] = request
        request.add_done_callback(lambda _: self._requests.pop(received.ack_id, None))

    def _let_go(self) -> None:
        """End the requests whose responses do not count any more."""
        for ack_id, request in self._requests.items():
            if ack_id not in self._pushing:
                request.cancel()

    async def _push(self, session: aiohttp.ClientSession, received: schema.ReceivedMessage) -> None:
        """Push a message, as the transforms make it."""
        broker, subscription = self._service.broker, self._subscription
        settle: Callable[..., None] = partial(broker.settle_push, acked=False)
        try:
            if not await self._transformed(received):
                settle = broker.leave_out_push
            elif not subscription.pushes:  # any more: a script takes its time
                settle = broker.withdraw_push
            else:
                # Settings are replaced, never changed: these belong together.
                acked = await self._acked(session, subscription.config, received)
                settle = partial(broker.settle_push, acked=acked)
        except ScriptError as error:
            name, message_id = subscription.config.name, received.message.message_id
            log.warning("%s: message %s: %s", name, message_id, error)
        except Exception:
            log.exception("push for %s failed", subscription.config.name)
        settle(subscription, received.ack_id, now=self._service.clock.now())
        self._service.wake()

    async def _transformed(self, received: schema.ReceivedMessage) -> bool:
        """Transform a message; false if it is left out."""
        transform = self._service.transforms.of(self._subscription.config)
        if transform is None:
            return True
        self._scripts += 1
        self._service.working += 1
        try:
            return await transform(received.message) is not None
        finally:
            self._scripts -= 1
            self._service.working -= 1
            self._service.broker.changed[self._subscription] = None  # another may begin
            self._service.wake()

    async def _acked(
        self,
        session: aiohttp.ClientSession,
        config: schema.Subscription,
        received: schema.ReceivedMessage,
    ) -> bool:
        """Send a message as these settings say; whether the response acknowledges it."""
        endpoint = config.push_config.push_endpoint
        try:
            status = await self._post(session, config, received)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            log.info("push to %s: %r", endpoint, error)
            return False
        log.info("push to %s: HTTP %s", endpoint, status)
        return acks(status)

    async def _post(
        self,
        session: aiohttp.ClientSession,
        config: schema.Subscription,
        received: schema.ReceivedMessage,
    ) -> int:
        """Make the request; returns the status of its response."""
        endpoint = config.push_config.push_endpoint
        headers, body = request_for(config, received)
        if config.push_config.HasField("oidc_token"):
            email = config.push_config.oidc_token.service_account_email
            audience = config.push_config.oidc_token.audience or endpoint
            token = await self._tokens.token(email=email, audience=audience)
            headers = {
                name: value for name, value in headers.items() if name.lower() != "authorization"
            }
            headers["Authorization"] = f"Bearer {token}"
        async with session.post(
            endpoint, data=io.BytesIO(body), headers=headers, allow_redirects=False
        ) as response:
            read = 0
            while read < _READ_AT_MOST and (part := await response.content.readany()):
                read += len(part)
            return response.status


def _session() -> aiohttp.ClientSession:
    """Connections of one subscription; how many, and for how long, is decided elsewhere."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )

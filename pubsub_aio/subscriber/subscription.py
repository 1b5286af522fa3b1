"""A live subscription, as its users have it: the keep-alive future."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Mapping
from typing import Any

from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import FlowControl, Setting
from pubsub_aio.errors import ClosedError
from pubsub_aio.subscriber.engine import Engine, Kind
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.vitals import Health, State

log = logging.getLogger("pubsub_aio.subscriber")

_numbers = itertools.count(1)


class Subscription(asyncio.Future[None]):
    """A live subscription, as a future that is done when it has ended.

    Awaiting it keeps the program alive. It ends with `stop()`, when its client is closed, or with
    an error that cannot be recovered from, which the future then raises. Cancelling it, or a task
    that awaits it, stops it as its `ShutdownPolicy` says, and only then is the future cancelled;
    a second time stops it at once.

    Attributes:
        name: The full name of the subscription.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        kind: Kind[Any],
        options: Options,
        *,
        loop: asyncio.AbstractEventLoop,
        settings: Mapping[str, Setting],
    ) -> None:
        super().__init__(loop=loop)
        self.name = name
        self._transport = transport
        self._kind = kind
        self._options = options
        self._flow = options.flow_control
        self._settings = dict(settings)
        self._client_ids = [_client_id() for _ in range(options.streams.streams)]
        self._engine: Engine[Any] | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._started = asyncio.Event()
        self._was_cancelled = False
        self._failure: Exception | None = None

    # Life

    async def run(self, before: asyncio.Future[object] | None) -> None:
        """Serve it to its end. The client's own.

        Args:
            before: What must be done first.
        """
        error: BaseException | None = None
        try:
            await self._serve(before)
        except asyncio.CancelledError:
            self._was_cancelled = True
            raise
        except Exception as raised:  # noqa: BLE001 - whatever it is, the future tells
            error = _innermost(raised)
        finally:
            self._end(error)

    async def _serve(self, before: asyncio.Future[object] | None) -> None:
        self._engine = Engine(
            self.name,
            self._transport,
            self._kind,
            self._options,
            self._client_ids,
            started=self._started,
        )
        async with asyncio.TaskGroup() as tasks:
            stopped = tasks.create_task(self._stop.wait())
            starting = tasks.create_task(_outcome(self._engine.start(before)))
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
            starting.cancel()
            stopped.cancel()
        if starting.cancelled():
            return
        if error := starting.result():
            raise error
        await self._engine.run(self._stop, self._hurry)
        if failure := self._engine.failure or self._failure:
            raise failure

    def _end(self, error: BaseException | None) -> None:
        """Have the future done."""
        self._started.set()
        if self._engine:
            self._engine.vitals.change("failed" if error else "stopped", str(error or ""), error)
        if self.done():
            return
        if error:
            log.error("%s: ended: %s", self.name, error)
            self.set_exception(error)
        elif self._was_cancelled:
            super().cancel()
        else:
            self.set_result(None)

    async def ready(self) -> None:
        """Return when the first stream works.

        Raises:
            StartupError: It never will; the future raises the same.
            ClosedError: It was stopped before.
        """
        await self._started.wait()
        if self.done() and not self.cancelled() and (error := self.exception()):
            raise error
        if self.done():
            raise ClosedError(f"{self.name} was stopped")

    def stop(self) -> None:
        """Stop as the `ShutdownPolicy` says; the future is done when it has ended.

        Called a second time, stop at once.
        """
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def fail(self, error: Exception) -> None:
        """Stop, and have the future raise this error. The library's own."""
        self._failure = self._failure or error
        if not self.stopping:
            self.stop()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    def cancel(self, msg: object | None = None) -> bool:
        """Stop; the future is cancelled when it has ended."""
        del msg
        if self.done():
            return False
        self._was_cancelled = True
        self.stop()
        return True

    # How it is

    def __repr__(self) -> str:
        return f"<Subscription {self.name}: {self.state}>"

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._engine.vitals.state if self._engine else "starting"

    def health(self) -> Health:
        """How it fares, for probes."""
        if self._engine is None:
            return Health(ok=False, state="starting", reasons=("it is starting",))
        return self._engine.health()

    async def everything_read(self) -> bool:
        """Return when all that the server had sent at the call was read. The library's own.

        Returns whether it was: not if a stream ended before. That is found out from the server's
        signs of life, and taken for true of one that gives none.
        """
        return await self._engine.everything_read() if self._engine else False

    @property
    def flow_control(self) -> FlowControl:
        """The limits; set others and they take effect at once."""
        return self._flow

    @flow_control.setter
    def flow_control(self, flow: FlowControl) -> None:
        dataclasses.replace(self._options, flow_control=flow)  # refuses what is none
        self._flow = flow
        for field in dataclasses.fields(flow):
            self._settings[field.name] = Setting(getattr(flow, field.name), "changed")
        if self._engine:
            self._engine.change_flow(flow)

    @property
    def settings(self) -> dict[str, Setting]:
        """Every setting that is in force, and where it came from."""
        settings = dict(self._settings)
        settings["client_ids"] = Setting(tuple(self._client_ids), "made here")
        limit = self._flow.max_outstanding_messages
        settings["max_outstanding_messages"] = Setting(limit, "flow control")
        if self._engine is None:
            return settings
        custody, found = self._engine.custody, self._engine.startup.found
        settings["lease_extension"] = Setting(custody.extension, "observed ack times")
        if found:
            settings["topic"] = Setting(found.topic, "server, GetSubscription")
            deadline = found.ack_deadline_seconds
            settings["ack_deadline_seconds"] = Setting(deadline, "server, GetSubscription")
        if custody.ordered is not None:
            settings["enable_message_ordering"] = Setting(custody.ordered, "server")
            settings["enable_exactly_once_delivery"] = Setting(custody.exactly_once, "server")
        return settings


def _client_id() -> str:
    """Who a stream is: its host, its process, its number, and something that nobody else has."""
    return f"{socket.gethostname()}@{os.getpid()}@{next(_numbers)}@{secrets.token_hex(8)}"


def _innermost(error: Exception) -> Exception:
    """An error without the groups that it is alone in."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _outcome(work: Awaitable[None]) -> Exception | None:
    """What something raised, if it did."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - it is raised later
        return error
    return None

"""The life of a publisher: what it is made of, how it begins and ends, and how it is."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections.abc import Iterable, Sequence
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from pubsub_aio._wire import names
from pubsub_aio._wire.connection import project_of
from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import Setting, check
from pubsub_aio.errors import ClosedError, ConfigError, DrainTimeoutError, WrongLoopError
from pubsub_aio.publisher.options import PublisherOptions, check_hold, complete
from pubsub_aio.publisher.routes import Routes
from pubsub_aio.publisher.runners import Runners
from pubsub_aio.publisher.sites import make_sites

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

log = logging.getLogger("pubsub_aio.publisher")


class PublisherLife:
    """Everything of a `PublisherClient` but publishing."""

    def __init__(
        self,
        project: str | None = None,
        *,
        transport: str | Transport | Sequence[Transport] = "grpc",
        endpoint: str | Sequence[str] | None = None,
        region: str | Sequence[str] | None = None,
        credentials: Credentials | None = None,
        **options: Unpack[PublisherOptions],
    ) -> None:
        self._options = complete(options)
        if project is not None:
            names.project_name(project)
        sites = make_sites(transport, endpoint=endpoint, region=region, credentials=credentials)
        of_transport: str | None = getattr(sites.transports[0], "project", None)
        self._project = project or of_transport or project_of()
        topics = [names.full_name(name, "topics", self._project) for name in self._options.topics]
        self._runners = Runners(self._options, sites, topics=topics)
        self._queue = self._runners.queue
        # Numbers begin anew in each process: an id that begins as it was told to may come twice.
        self._publisher_id = secrets.token_hex(8) if "id_prefix" in options else ""
        self._departures = self._queue.departures
        look_up = self._runners.look_ups.want if self._options.check_topics else None
        self._routes = Routes(self._options, self._queue, self._project, look_up)
        self._runners.take_in = self._runners.listening.on_lost = self._routes.lent.clear
        self._lent = self._routes.lent
        self._thread = 0
        self._marks = self._options.send_flight_id or self._runners.traces is not None
        self._root: asyncio.Task[None] | None = None
        self._settings = {
            "project": Setting(
                self._project, "argument" if project or of_transport else "environment"
            ),
            "endpoints": Setting(sites.names, sites.source),
            **{
                field.name: Setting(
                    getattr(self._options, field.name),
                    "argument" if field.name in options else "default",
                )
                for field in dataclasses.fields(self._options)
            },
        }
        policy = self._options.retry
        if policy is not None and policy.deadline == self._options.wait_timeout:
            self._settings["wait_timeout"] = Setting(policy.deadline, "retry")

    def _note_preset(self, preset: str, names: Iterable[str]) -> None:
        """Some settings were not given, but come from a preset."""
        for name in names:
            self._settings[name] = dataclasses.replace(self._settings[name], source=preset)

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._runners.stopped:
                await self._drain_after(error)
        finally:
            await self.stop()

    async def _drain_after(self, error: BaseException | None) -> None:
        """Send what was published; who is cancelled does not wait, an error is not replaced."""
        if error is None:
            await self.drain(self._options.drain_timeout)
        elif isinstance(error, Exception):
            try:
                await self.drain(self._options.drain_timeout)
            except DrainTimeoutError as late:
                error.add_note(f"and the publisher was {late}")

    async def start(self) -> None:
        """Connect, check the `topics`, and run both runners in a task of the client's own.

        Raises:
            StartupError: A topic cannot be published to; the message lists what was checked.
        """
        self._check_usable()
        if self._runners.will_run or self._runners.running:
            raise ConfigError("start: the runners run already")
        self._runners.will_run = True
        try:
            await self._runners.startup.run()
        except BaseException:
            await self._runners.stop()
            raise
        if self._runners.stopped:
            raise ClosedError("the publisher was stopped while it started: make another")
        loop = asyncio.get_running_loop()
        self._root = loop.create_task(self._run(), name=f"pubsub-aio {self._options.id_prefix}")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run_publisher())
            tasks.create_task(self.run_flights())

    async def run_publisher(self) -> None:
        """Let messages depart, in a task of your own; it ends when drained or stopped.

        Run `run_flights` beside it: without that nothing lands. If it is cancelled, the
        publisher is stopped.
        """
        self._bind()
        await self._runners.publish()

    async def run_flights(self) -> None:
        """See to it that flights land, in a task of your own; it ends when drained or stopped.

        Run `run_publisher` beside it: without that nothing departs. If it is cancelled, the
        publisher is stopped.
        """
        self._bind()
        await self._runners.land()

    async def drain(self, timeout: float | None = None) -> None:
        """Take no more messages, and return when all were answered, failed or timed out.

        Args:
            timeout: Seconds that it may take; no limit unless told.

        Raises:
            DrainTimeoutError: It takes longer; it goes on all the same.
            ConfigError: Nobody runs the publisher; or an async listener would wait for itself.
        """
        self._bind()
        if timeout is not None:
            check("timeout", timeout, 0)
        await self._runners.drain(timeout)

    async def stop(self) -> None:
        """Stop at once and disconnect; what was not answered fails with `PublisherStoppedError`.

        Stopping again does nothing. In an async listener it does not wait for the end.
        """
        self._bind()
        await self._runners.stop()
        if self._root is not None and not self._runners.listening.is_telling_here:
            await asyncio.wait([self._root])
            if not self._root.cancelled() and (error := self._root.exception()):
                log.error("the publisher was stopped by an error", exc_info=error)

    def _bind(self) -> None:
        """Serve the loop that runs here, if it is the first."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongLoopError(
                "no event loop runs here: a PublisherClient is used inside of one, in an async "
                "function"
            ) from None
        if self._queue.loop is None:
            self._queue.loop, self._thread = running, get_ident()
        elif self._queue.loop is not running:
            raise WrongLoopError(
                "this publisher serves another event loop, the first that it was used in: make one "
                "in each loop, or hand over with that loop's call_soon_threadsafe"
            )

    def _check_usable(self) -> None:
        """Refuse to be used in another loop than the first, or after the end."""
        self._bind()
        if self._runners.stopped:
            raise ClosedError("the publisher was stopped: make another")
        if self._runners.draining:
            raise ClosedError("the publisher is drained and takes no more: make another")

    # How it is

    @property
    def queued(self) -> int:
        """Messages that have not departed yet."""
        return self._departures.count

    @property
    def in_flight(self) -> int:
        """Messages that wait for an answer."""
        return self._runners.flights.in_flight

    @property
    def holding(self) -> bool:
        """Whether nothing departs until `refill_allowed_at` is reached."""
        return self._runners.flights.holding

    def change_hold(self, *, max_in_flight: int, refill_allowed_at: int = 0) -> None:
        """Go by other limits of what is in flight, from now on."""
        check_hold(max_in_flight, refill_allowed_at)
        limits = {"max_in_flight": max_in_flight, "refill_allowed_at": refill_allowed_at}
        self._runners.flights.change(**limits)
        self._settings |= {name: Setting(value, "changed") for name, value in limits.items()}
        self._runners.wake_publisher()

    @property
    def settings(self) -> dict[str, Setting]:
        """Every setting that is in force, and where it came from; what is known of topics too."""
        topics = {
            topic: Setting(found, "server, GetTopic" if found else "not known")
            for topic, found in self._runners.topics.known.items()
        }
        return self._settings | topics

"""PublisherClient: what users begin with."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from pubsub_aio._wire import names
from pubsub_aio._wire.connection import project_of
from pubsub_aio._wire.publishing import encode
from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import FLIGHT_ID, RetryPolicy, Setting, check
from pubsub_aio.errors import (
    ClosedError,
    ConfigError,
    KeyPausedError,
    PubSubError,
    WrongLoopError,
)
from pubsub_aio.publisher.flight import Flight
from pubsub_aio.publisher.options import (
    UNSET,
    PublisherOptions,
    Unset,
    check_hold,
    complete,
    for_throughput,
)
from pubsub_aio.publisher.refusals import refuse
from pubsub_aio.publisher.routes import Routes
from pubsub_aio.publisher.runners import Runners
from pubsub_aio.publisher.sites import make_sites

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

Outgoing = bytes | tuple[bytes, Mapping[str, str]]
"""A message for `publish_many`: its data, or data and attributes."""


class PublisherClient:
    """Publishes messages from an asyncio program, and tells what becomes of each.

        async with PublisherClient("my-project") as publisher:
            flight = await publisher.publish("orders", b"tea")
            print(await flight.ack)

    As it comes it is careful: no more than 50 messages wait for an answer at once, and nothing is
    sent twice. `PublisherClient.throughput` is made for many messages.

    Leaving `async with` sends what was published and waits for the answers. Without it, `start` and
    `stop`, or run `run_publisher` and `run_flights` in tasks of your own.

    Args:
        project: The project of topics that are named without one; otherwise the environment's,
            GOOGLE_CLOUD_PROJECT or PUBSUB_PROJECT_ID.
        transport: `"grpc"`, `"rest"`, a transport of your own, or several of these.
        endpoint: `host:port` of the service; otherwise PUBSUB_EMULATOR_HOST if that is set, or
            Google's global endpoint. Of several, the first that answers is used.
        region: A region whose locational endpoint is used, or several.
        credentials: Google credentials; otherwise found as Google's libraries find them.
        **options: See `PublisherOptions`.
    """

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
        self._departures = self._queue.departures
        self._routes = Routes(self._options, self._queue, self._project, self._runners.look_up)
        self._runners.take_in = self._routes.lent.clear
        self._lent = self._routes.lent
        self._thread = 0
        self._marks = self._options.send_flight_id or self._runners.traces is not None
        self._numbers = itertools.count(1)
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

    @classmethod
    def throughput(
        cls,
        project: str | None = None,
        *,
        transport: str | Transport | Sequence[Transport] = "grpc",
        endpoint: str | Sequence[str] | None = None,
        region: str | Sequence[str] | None = None,
        credentials: Credentials | None = None,
        **options: Unpack[PublisherOptions],
    ) -> Self:
        """A publisher for many messages: in batches of up to 1,000, with Google's retries.

        A message waits for up to 10 ms for others, so do not await one before you publish the next.
        Everything can be told otherwise.
        """
        return cls(
            project,
            transport=transport,
            endpoint=endpoint,
            region=region,
            credentials=credentials,
            **for_throughput(options),
        )

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
                await self.drain(self._options.drain_timeout)
        finally:
            await self.stop()

    async def start(self) -> None:
        """Connect, check the `topics`, and run both runners in a task of the client's own.

        Raises:
            StartupError: A topic cannot be published to; the message lists what was checked.
        """
        self._check_usable()
        if self._root is not None or self._runners.running:
            raise ConfigError("start: the runners run already")
        try:
            await self._runners.start()
        except BaseException:
            await self._runners.stop()
            raise
        self._runners.will_run = True
        loop = asyncio.get_running_loop()
        self._root = loop.create_task(self._run(), name=f"pubsub-aio {self._options.id_prefix}")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run_publisher())
            tasks.create_task(self.run_flights())

    async def run_publisher(self) -> None:
        """Let messages depart, in a task of your own; it ends when drained or stopped.

        If it is cancelled, the publisher is stopped.
        """
        self._bind()
        await self._runners.publish()

    async def run_flights(self) -> None:
        """See to it that flights land, in a task of your own; it ends when drained or stopped.

        If it is cancelled, the publisher is stopped.
        """
        self._bind()
        await self._runners.land()

    async def drain(self, timeout: float | None = None) -> None:
        """Take no more messages, and return when all were answered, failed or timed out.

        Args:
            timeout: Seconds that it may take; no limit unless told.

        Raises:
            DrainTimeoutError: It takes longer; it goes on all the same.
        """
        if timeout is not None:
            check("timeout", timeout, 0)
        await self._runners.drain(timeout)

    async def stop(self) -> None:
        """Stop at once and disconnect; what was not answered fails with `PublisherStoppedError`.

        Stopping again does nothing.
        """
        await self._runners.stop()
        if self._root is not None:
            await asyncio.wait([self._root])

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
                "in each loop"
            )

    def _check_usable(self) -> None:
        """Refuse to be used in another loop than the first, or after the end."""
        self._bind()
        if self._runners.stopped:
            raise ClosedError("the publisher was stopped: make another")
        if self._runners.draining:
            raise ClosedError("the publisher is drained and takes no more: make another")

    # Publishing

    def publish(
        self,
        topic: str,
        data: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str = "",
        retry: RetryPolicy | Unset | None = UNSET,
        timeout: float | Unset | None = UNSET,
        deliver_at: None = None,
        transaction: None = None,
        expectations: None = None,
    ) -> Flight:
        """Publish a message. It returns at once.

        Args:
            topic: The topic's name.
            data: What to publish.
            attributes: What goes with it.
            ordering_key: Messages of one key are published in the order of these calls, and come
                in that order where the subscription has ordering on.
            retry: When to send it again, instead of the publisher's own policy; none for never.
            timeout: Seconds from its departure within which it must be answered, with all retries,
                instead of the publisher's `wait_timeout`.
            deliver_at: Refused: Pub/Sub has no delayed messages.
            transaction: Refused: nor transactional ones.
            expectations: Refused: nor does it check what was published before.

        Returns:
            The flight. Await it until the message is on its way; await its `ack` for the message
            id. Whoever does neither learns from the listener, or from the log.

        Raises:
            ConfigError: The service would not take it.
            QueueFullError: Too much waits already.
            KeyPausedError: A message of the ordering key failed before.
        """
        if deliver_at is not None or transaction is not None or expectations is not None:
            refuse(deliver_at=deliver_at, transaction=transaction, expectations=expectations)
        batch = self._lent.get(topic)
        if (
            batch is None
            or ordering_key
            or retry is not UNSET
            or timeout is not UNSET
            or get_ident() != self._thread
        ):
            return self._publish(topic, data, attributes, ordering_key, retry, timeout)
        # As for nearly all messages: what follows is what `_publish` would do, without a call.
        wire = encode(data, attributes, "")
        size = batch.size + len(wire)
        if size > batch.max_size:
            return self._publish(topic, data, attributes, ordering_key, retry, timeout)
        flight = Flight()
        flight.number = next(self._numbers)
        flight.interest = None
        flight.batch = batch
        passengers = batch.passengers
        flight.index = index = len(passengers)
        passengers.append(flight)
        batch.wires.append(wire)
        batch.size = size
        if index >= batch.last:
            self._departures.close(batch)
            self._runners.wake_publisher()
        return flight

    def _publish(
        self,
        topic: str,
        data: bytes,
        attributes: Mapping[str, str] | None,
        ordering_key: str,
        retry: RetryPolicy | Unset | None,
        timeout: float | Unset | None,
    ) -> Flight:
        """Publish a message that is the first of its batch, or out of the ordinary."""
        self._check_usable()
        if self._departures.is_full:
            raise self._queue.full_error()
        terms = self._routes.terms(retry, timeout)
        flight, wire = self._prepare(topic, data, attributes, ordering_key)
        try:
            lane = self._routes.lane(topic, ordering_key, terms)
        except PubSubError as error:
            self._refuse(flight, error)
            raise
        if self._departures.add(lane, flight, wire, terms):
            self._runners.wake_publisher()
        plain = not ordering_key and terms is self._routes.usual and not self._marks
        if plain and (batch := self._departures.lend(lane)):
            self._lent[topic] = batch
        return flight

    def _prepare(
        self, topic: str, data: bytes, attributes: Mapping[str, str] | None, ordering_key: str
    ) -> tuple[Flight, bytes]:
        """A message as a flight and as bytes."""
        flight = Flight()
        flight.number = next(self._numbers)
        flight.interest = None
        if not self._marks:
            return flight, encode(data, attributes, ordering_key)
        try:
            marks = self._marks_of(flight, topic, ordering_key, len(data))
            return flight, encode(data, {**(attributes or {}), **marks}, ordering_key)
        except (ConfigError, TypeError) as error:
            self._refuse(flight, error)
            raise

    def _marks_of(self, flight: Flight, topic: str, ordering_key: str, size: int) -> dict[str, str]:
        """Attributes by which a message is known elsewhere."""
        marks = {}
        if self._options.send_flight_id:
            marks[FLIGHT_ID] = f"{self._options.id_prefix}-{flight.number}"
        if self._runners.traces is not None:
            name = self._routes.full_name(topic)
            marks |= self._runners.traces.begin(flight, name, ordering_key, size)
        return marks

    def _refuse(self, flight: Flight, error: Exception) -> None:
        """A flight is not taken after all."""
        if self._runners.traces is not None:
            self._runners.traces.refused(flight, error)

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Outgoing],
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str = "",
        retry: RetryPolicy | Unset | None = UNSET,
        timeout: float | Unset | None = UNSET,
    ) -> list[Flight]:
        """Publish many messages; it returns when all of them are on their way.

        It waits where `publish` would say that the queue is full. Whoever is cancelled takes back
        what has not departed.

        Args:
            topic: The topic's name.
            messages: For each its data, or a tuple of its data and attributes.
            attributes: What goes with each of them; what a message has itself counts more.
            ordering_key: As `publish` has it, for all of them.
            retry: As `publish` has it.
            timeout: As `publish` has it.

        Returns:
            The flights, in order; some may have failed, as their `ack` tells.

        Raises:
            ConfigError: The service would not take one of them; none was published.
        """
        self._check_usable()
        terms = self._routes.terms(retry, timeout)
        lane = self._routes.lane(topic, ordering_key, terms)
        flights, wires = self._prepare_all(topic, messages, attributes, ordering_key)
        try:
            for number, (flight, wire) in enumerate(zip(flights, wires, strict=True)):
                if self._departures.add(lane, flight, wire, terms):
                    self._runners.wake_publisher()
                if self._queue.is_half_full:
                    await self._queue.room()
                    try:
                        lane = self._routes.lane(topic, ordering_key, terms)
                    except KeyPausedError as error:
                        rest = zip(flights[number + 1 :], wires[number + 1 :], strict=True)
                        self._runners.reject(lane, terms, rest, error)
                        break
            if flights:
                # They leave in order: with the last of them all have left.
                with contextlib.suppress(PubSubError):
                    await flights[-1]
        except BaseException:
            self._queue.take_back(flights)
            raise
        return flights

    def _prepare_all(
        self,
        topic: str,
        messages: Iterable[Outgoing],
        attributes: Mapping[str, str] | None,
        ordering_key: str,
    ) -> tuple[list[Flight], list[bytes]]:
        """Messages as flights and as bytes."""
        flights, wires = [], []
        for index, message in enumerate(messages):
            try:
                data, own = (message, attributes) if isinstance(message, bytes) else message
                if attributes and own and own is not attributes:
                    own = {**attributes, **own}
                flight, wire = self._prepare(topic, data, own, ordering_key)
            except (ConfigError, TypeError, ValueError) as error:
                for before in flights:
                    self._refuse(before, error)
                raise ConfigError(f"messages[{index}]: {error}") from error
            flights.append(flight)
            wires.append(wire)
        return flights, wires

    # Ordering keys

    def paused_keys(self) -> list[tuple[str, str]]:
        """The ordering keys that a failure has paused: the full name of the topic, and the key."""
        return [(lane.topic, lane.ordering_key) for lane in self._departures.paused()]

    def resume(self, topic: str, ordering_key: str) -> None:
        """Let an ordering key go on; one that is not paused is left as it is.

        What was published and failed is not sent again: publish it again, from the first message
        that failed on.
        """
        self._departures.resume(self._routes.full_name(topic), ordering_key)
        self._runners.wake_publisher()

    def resume_all(self) -> None:
        """Let every ordering key go on."""
        self._departures.resume_all()
        self._runners.wake_publisher()

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

"""PublisherClient: what users begin with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Self, Unpack

from pubsub_aio._wire.publishing import ATTRIBUTE, DATA, MESSAGE, encode, encode_with_care
from pubsub_aio._wire.transport import Transport
from pubsub_aio.config import FLIGHT_ID, PUBLISHER_ID, RetryPolicy
from pubsub_aio.errors import KeyPausedError, PubSubError
from pubsub_aio.publisher.flight import Flight, Terms
from pubsub_aio.publisher.life import PublisherLife
from pubsub_aio.publisher.options import UNSET, PublisherOptions, Unset, for_throughput
from pubsub_aio.publisher.refusals import Unsupported, check_many, fault_of, own_fault, refuse

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

Outgoing = bytes | tuple[bytes, Mapping[str, str]]
"""A message for `publish_many`: its data, or data and attributes."""


class PublisherClient(PublisherLife):
    """Publishes messages from an asyncio program, and tells what becomes of each.

        async with PublisherClient("my-project") as publisher:
            flight = await publisher.publish("orders", b"tea")
            print(await flight.ack)

    As it comes it is careful: no more than 50 messages wait for an answer at once, and nothing is
    sent twice. `PublisherClient.throughput` is made for many messages.

    Leaving `async with` sends what was published and waits for the answers, for up to
    `drain_timeout` seconds, also after an error; whoever is cancelled does not wait. Without it,
    `start` and `stop`, or run `run_publisher` and `run_flights` in tasks of your own.

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
        chosen = for_throughput(options)
        publisher = cls(
            project,
            transport=transport,
            endpoint=endpoint,
            region=region,
            credentials=credentials,
            **chosen,
        )
        publisher._note_preset("throughput", chosen.keys() - options.keys())
        return publisher

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
        **unsupported: Unpack[Unsupported],
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
            **unsupported: `deliver_at`, `transaction` and `expectations`, which other systems have,
                are refused with what to use instead.

        Returns:
            The flight. Await it until the message is on its way; await its `ack` for the message
            id. Whoever does neither learns from the listener, or from the log.

        Raises:
            ConfigError: The service would not take it, or there is no such argument.
            UnsupportedError: Pub/Sub has no such messages.
            QueueFullError: Too much waits already.
            KeyPausedError: A message of the ordering key failed before.
        """
        if unsupported:
            refuse(unsupported)
        try:
            batch = self._lent.get(topic)
        except TypeError:
            batch = None  # no name at all, as `_publish` says
        if (
            batch is None
            or ordering_key
            or retry is not UNSET
            or timeout is not UNSET
            or get_ident() != self._thread
        ):
            return self._publish(topic, data, attributes, ordering_key, retry, timeout)
        # As for nearly all messages: what follows is what `_publish` would do, without a call.
        try:
            if type(attributes) is dict and len(attributes) == 1 and type(data) is bytes:
                (name,) = attributes
                value = attributes[name].encode()
                before_data, before_value = DATA[len(data)], ATTRIBUTE[name][len(value)]
                size = len(before_data) + len(data) + len(before_value) + len(value)
                wire = b"".join((MESSAGE[size], before_data, data, before_value, value))
            else:
                wire = encode(data, attributes, "")
        except (AttributeError, LookupError, TypeError, UnicodeError):
            wire = encode_with_care(data, attributes, "")
        size = batch.size + len(wire)
        if size > batch.max_size:
            return self._publish(topic, data, attributes, ordering_key, retry, timeout)
        flight = Flight()
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
        self._runners.listening.check()
        self._runners.expect()
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
        if self._departures.is_tight:
            self._lent.clear()
        elif plain and (batch := self._departures.lend(lane)):
            self._lent[topic] = batch
        return flight

    def _prepare(
        self, topic: str, data: bytes, attributes: Mapping[str, str] | None, ordering_key: str
    ) -> tuple[Flight, bytes]:
        """A message as a flight and as bytes."""
        flight = Flight()
        flight.interest = None
        if not self._marks:
            return flight, encode(data, attributes, ordering_key)
        marks: dict[str, str] = {}
        try:
            size = len(data)
            if not size and not attributes:
                encode(data, attributes, ordering_key)  # which what is added does not change
            marks = self._marks_of(flight, topic, ordering_key, size)
            return flight, encode(data, {**(attributes or {}), **marks}, ordering_key)
        except (TypeError, ValueError) as error:
            refusal = own_fault(error, data, attributes, ordering_key, marks)
            self._refuse(flight, refusal)
            raise refusal from None

    def _marks_of(self, flight: Flight, topic: str, ordering_key: str, size: int) -> dict[str, str]:
        """Attributes by which a message is known elsewhere."""
        marks = {}
        if self._options.send_flight_id:
            marks[FLIGHT_ID] = flight.take_id(self._queue)
            if self._publisher_id:
                marks[PUBLISHER_ID] = self._publisher_id
        if self._runners.traces is not None:
            name = self._routes.full_name(topic)
            marks |= self._runners.traces.begin(flight, name, ordering_key, size)
        return marks

    def _refuse(self, flight: Flight, error: BaseException) -> None:
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
        **unsupported: Unpack[Unsupported],
    ) -> list[Flight]:
        """Publish many messages; it returns when all of them are on their way.

        It waits where `publish` would say that the queue is full. Whoever is cancelled takes back
        what has not departed.

        Args:
            topic: The topic's name.
            messages: For each its data, or a tuple of its data and attributes.
            attributes: What goes with each of them; what a message has itself counts more.
            ordering_key: As `publish` has it, for all of them. While they wait for room, what
                others publish with the key goes ahead of the rest of them.
            retry: As `publish` has it.
            timeout: As `publish` has it.
            **unsupported: As `publish` has it.

        Returns:
            The flights, in order; some may have failed, as their `ack` tells.

        Raises:
            ConfigError: The service would not take one of them, or there is no such argument; none
                was published.
            UnsupportedError: Pub/Sub has no such messages.
            KeyPausedError: A message of the ordering key failed before; none was published.
        """
        if unsupported:
            refuse(unsupported)
        self._check_usable()
        self._runners.expect()
        await self._runners.listening.caught_up()
        self._check_usable()
        terms = self._routes.terms(retry, timeout)
        flights, wires = self._prepare_all(topic, messages, attributes, ordering_key)
        try:
            await self._add_all(topic, ordering_key, terms, flights, wires)
            if flights:
                # They leave in order: with the last of them all have left.
                with contextlib.suppress(PubSubError):
                    await flights[-1]
        except BaseException as error:
            for flight in self._queue.take_back(flights):
                self._refuse(flight, error)
            raise
        return flights

    async def _add_all(
        self,
        topic: str,
        ordering_key: str,
        terms: Terms,
        flights: list[Flight],
        wires: list[bytes],
    ) -> None:
        """Put flights in line as there is room."""
        place = 0
        while place < len(flights):
            await self._queue.room()
            try:
                self._check_unbroken(ordering_key, flights[place - 1] if place else None)
                lane = self._routes.lane(topic, ordering_key, terms)
            except KeyPausedError as error:
                if not place:
                    raise
                rest = zip(flights[place:], wires[place:], strict=True)
                self._runners.reject(flights[0].batch.lane, terms, rest, error)
                return
            place = self._departures.add_some(
                lane, flights, wires, terms, start=place, most=self._queue.half_left
            )
            self._runners.wake_publisher()
            if self._departures.is_tight:
                self._lent.clear()

    def _check_unbroken(self, ordering_key: str, before: Flight | None) -> None:
        """Refuse what follows a message of its ordering key that failed, resumed or not."""
        if ordering_key and before is not None and before.error is not None:
            raise KeyPausedError(before.topic, ordering_key) from before.error

    def _prepare_all(
        self,
        topic: str,
        messages: Iterable[Outgoing],
        attributes: Mapping[str, str] | None,
        ordering_key: str,
    ) -> tuple[list[Flight], list[bytes]]:
        """Messages as flights and as bytes."""
        check_many(messages, attributes)
        self._routes.full_name(topic)  # a mistake in it is not one of a message
        flights: list[Flight] = []
        wires: list[bytes] = []
        marks = self._marks
        try:
            for message in messages:
                try:
                    data, own = message if isinstance(message, tuple) else (message, attributes)
                    if attributes and own is not attributes:
                        own = {**attributes, **own} if own else attributes
                    if marks:
                        flight, wire = self._prepare(topic, data, own, ordering_key)
                    else:
                        wire = encode(data, own, ordering_key)
                        flight = Flight()
                        flight.interest = None
                except (TypeError, ValueError) as error:
                    raise fault_of(len(flights), error) from error
                flights.append(flight)
                wires.append(wire)
        except BaseException as error:
            for before in flights:
                self._refuse(before, error)
            raise
        return flights, wires

    # Ordering keys

    def paused_keys(self) -> list[tuple[str, str]]:
        """The ordering keys that a failure has paused: the full name of the topic, and the key."""
        return [(lane.topic, lane.ordering_key) for lane in self._departures.paused()]

    def topic_name(self, topic: str) -> str:
        """The full name of a topic. The library's own."""
        return self._routes.full_name(topic)

    def resume(self, topic: str, ordering_key: str) -> None:
        """Let an ordering key go on; one that is not paused is left as it is.

        What was published and failed is not sent again: publish it again, from the first message
        that failed on.
        """
        self._departures.resume(*self._routes.place(topic, ordering_key))
        self._runners.wake_publisher()

    def resume_all(self) -> None:
        """Let every ordering key go on."""
        self._departures.resume_all()
        self._runners.wake_publisher()

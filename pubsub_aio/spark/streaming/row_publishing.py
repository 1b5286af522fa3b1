"""The rows of a task on their way to a topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pubsub_aio.config import QueueLimit
from pubsub_aio.errors import ConfigError, NotFoundError, PubSubError
from pubsub_aio.publisher.client import PublisherClient
from pubsub_aio.publisher.flight import Flight
from pubsub_aio.publisher.listening import PublisherListener
from pubsub_aio.spark.streaming.row_ids import RowIds
from pubsub_aio.spark.streaming.rows_out import Columns, Rows, rows_of, slices_of
from pubsub_aio.spark.streaming.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_ATTRIBUTES = 100  # what the service takes


class RowPublisher:
    """Publishes the rows of one task, and returns when each of them is confirmed.

    Args:
        options: Where to, and how.
        columns: What to publish.
        ids: Makes ids for rows; none if they have their own, or need none.
        partition: The number of the task's partition, for errors.
    """

    def __init__(
        self, options: SinkOptions, columns: Columns, ids: RowIds | None, *, partition: int
    ) -> None:
        self._options = options
        self._columns = columns
        self._ids = ids
        self._where = f"partition {partition}"
        self._failure = _FirstFailure()
        self._unconfirmed: deque[tuple[list[Flight], int]] = deque()
        self._messages = self._bytes = self._rows = 0

    async def run(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Publish all rows.

        Returns:
            How many there were.

        Raises:
            PubSubError: A row could not be published; nothing is sent any more.
        """
        # Nothing to publish is frequent after a shuffle, and should cost no connection.
        if (batch := await _next_of(batches)) is None:
            return 0
        client = self._client()
        try:
            await client.start()
            while batch is not None:
                for part in slices_of(batch):
                    await self._publish(client, part)
                batch = await _next_of(batches)
            while self._unconfirmed:
                await self._confirm_oldest()
        except NotFoundError as error:
            raise ConfigError(
                f"topic: there is no {self._options.topic}: create it, or give another ({error})"
            ) from error
        except PubSubError as error:
            error.add_note(f"This was while {self._where} was written to {self._options.topic}.")
            raise
        finally:
            await client.stop()
        return self._rows

    def _client(self) -> PublisherClient:
        options = self._options
        most = options.max_outstanding_messages
        return PublisherClient.throughput(
            **options.connection.arguments(),
            max_in_flight=most,
            refill_allowed_at=most * 4 // 5,
            max_in_flight_bytes=options.max_outstanding_bytes,
            # What is published here is within the limits, or is the only thing that is.
            queue=QueueLimit(max_messages=1 << 40, max_bytes=1 << 50),
            wait_timeout=options.publish_timeout,
            listener=self._failure,
            # Each task of each batch would ask, which is more than the quota of such calls.
            check_topics=False,
        )

    async def _publish(self, client: PublisherClient, part: pa.RecordBatch) -> None:
        """Publish some rows as soon as there is room for them."""
        rows = rows_of(part, self._columns, first=self._rows, where=self._where)
        count, size = part.num_rows, part.nbytes
        self._failure.check()
        while self._unconfirmed and (
            self._messages + count > self._options.max_outstanding_messages
            or self._bytes + size > self._options.max_outstanding_bytes
        ):
            await self._confirm_oldest()
        flights: list[Flight] = []
        publish, topic = client.publish, self._options.topic
        try:
            for data, attributes, key in zip(
                rows.data, self._with_ids(rows), rows.keys, strict=True
            ):
                flights.append(publish(topic, data, attributes=attributes, ordering_key=key))
        except ConfigError as error:
            raise self._fault(self._rows + len(flights), str(error)) from error
        self._unconfirmed.append((flights, size))
        self._messages += count
        self._bytes += size
        self._rows += count

    def _with_ids(self, rows: Rows) -> Iterator[dict[str, str] | None]:
        """The attributes of rows, with their ids among them."""
        name = self._options.id_attribute
        ids = rows.ids
        if self._ids is not None:
            ids = self._ids.of(rows.data, rows.attributes, rows.keys)
        if ids is None:
            yield from rows.attributes
            return
        for attributes, own in zip(rows.attributes, ids, strict=True):
            if attributes is None:
                yield {name: own}
                continue
            attributes[name] = own
            if len(attributes) > _MAX_ATTRIBUTES:
                raise ConfigError(
                    f"attributes: {_MAX_ATTRIBUTES} is all that the service takes, and {name} is "
                    "one more: leave one out, or set idAttribute to nothing"
                )
            yield attributes

    async def _confirm_oldest(self) -> None:
        """Wait until the service has the rows that were published first."""
        flights, size = self._unconfirmed.popleft()
        for flight in flights:
            if flight.message_id is None:  # as of most when the last one was awaited
                self._failure.check()
                await flight.ack
        self._messages -= len(flights)
        self._bytes -= size

    def _fault(self, row: int, why: str) -> ConfigError:
        """What is wrong with a row, by the name that its column has."""
        columns = self._columns
        for field, place in (
            ("data", columns.data),
            ("attributes", columns.attributes),
            ("ordering_key", columns.ordering_key),
        ):
            if place is not None and why.startswith(field):
                why = columns.name(place) + why.removeprefix(field)
                break
        return ConfigError(f"{why} (row {row:,} of {self._where})")


class _FirstFailure(PublisherListener):
    """Remembers the first failure: what fails after it fails because of it, or in the same way."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def completed_exceptionally(self, flight: Flight) -> None:
        self._error = self._error or flight.error

    def timed_out(self, flight: Flight) -> None:
        self._error = self._error or flight.error

    def check(self) -> None:
        """Raise it, if there is one."""
        if self._error is not None:
            raise self._error


async def _next_of(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The next rows; Spark may take long to make them, and answers come meanwhile."""
    return await asyncio.to_thread(next, batches, None)

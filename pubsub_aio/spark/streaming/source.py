"""Pub/Sub as a source and a sink of Spark's Structured Streaming."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pubsub_aio.errors import (
    ConfigError,
    MissingExtraError,
    PubSubError,
    UnsupportedError,
    WalError,
)
from pubsub_aio.spark.streaming.options import DEFAULTS, SourceOptions, source_options

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.types import (
        BinaryType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )
except ImportError as error:
    raise MissingExtraError("The Structured Streaming source (PySpark 4.0+)", "spark") from error

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

except ImportError:  # before 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark asks nobody for it."""

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Spark gives no limit."""


if TYPE_CHECKING:
    import pyarrow as pa

    from pubsub_aio.spark.streaming.intake import Intake
    from pubsub_aio.spark.streaming.manifests import Manifest, Waiting
    from pubsub_aio.spark.streaming.sink import PubSubStreamWriter, PubSubWriter

_COLUMNS = (
    ("message_id", StringType()),
    ("data", BinaryType()),
    ("attributes", MapType(StringType(), StringType())),
    ("publish_time", TimestampType()),
    ("ordering_key", StringType()),
    ("delivery_attempt", IntegerType()),
    ("sequence", LongType()),
)


class PubSubDataSource(DataSource):
    """Pub/Sub in Structured Streaming: `spark.dataSource.register(PubSubDataSource)`.

    Then `spark.readStream.format("pubsub")` reads a subscription, each message exactly once, and
    `df.writeStream.format("pubsub")` and `df.write.format("pubsub")` publish to a topic. The
    documentation has the options.
    """

    @classmethod
    def name(cls) -> str:
        """What it is called in `format`."""
        return "pubsub"

    def schema(self) -> StructType:
        """The columns of what is read."""
        return columns(source_options(self.options))

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002 - Spark's own
        """Refuse `spark.read`."""
        raise UnsupportedError(
            "spark.read: a subscription has no end; use spark.readStream with "
            ".trigger(availableNow=True)"
        )

    def streamReader(self, schema: StructType) -> PubSubStreamReader:
        """What Spark reads with."""
        try:
            options = source_options(self.options)
            _check_schema(schema, columns(options))
        except PubSubError as error:
            return RefusingReader(error)
        return PubSubStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> PubSubWriter:  # noqa: FBT001 - Spark's
        """What Spark writes a DataFrame with."""
        from pubsub_aio.spark.streaming.sink import PubSubWriter

        return PubSubWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's own
    ) -> PubSubStreamWriter:
        """What Spark writes the batches of a query with."""
        from pubsub_aio.spark.streaming.sink import PubSubStreamWriter

        return PubSubStreamWriter(self.options, schema)


class PubSubAioDataSource(PubSubDataSource):
    """The same by another name, for platforms that have a `pubsub` of their own."""

    @classmethod
    def name(cls) -> str:
        """What it is called in `format`."""
        return "pubsub_aio"


def columns(options: SourceOptions) -> StructType:
    """The columns of a query."""
    fields = [StructField(name, kind) for name, kind in _COLUMNS]
    if options.event_time_attribute:
        fields.append(StructField("event_time", TimestampType()))
    return StructType(fields)


def _check_schema(given: StructType, ours: StructType) -> None:
    plain = [(field.name, field.dataType) for field in given.fields]
    if plain != [(field.name, field.dataType) for field in ours.fields]:
        raise ConfigError(
            f"schema: the columns are {ours.simpleString()}, not {given.simpleString()}: leave "
            ".schema() out, and select and cast what the query needs"
        )


class FetchPartition(InputPartition):
    """A task that receives messages and keeps them for later batches."""

    def __init__(self, number: int, rows: int, wal: str) -> None:
        super().__init__(number)
        self.rows = rows
        self.wal = wal
        self.host = socket.gethostname()


class PubSubStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batches from the log of a query, and fills it.

    One object of it lives beside the driver and is asked for offsets; copies are sent to tasks,
    which only read.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._intake: Intake | None = None
        self._query = uuid.uuid4().hex  # until Spark tells that of the checkpoint
        self._at = 0  # the last batch that Spark is known to have noted
        self._patient = False
        self._finished = False

    def _opened(self) -> Intake:
        if self._intake is None:
            from pubsub_aio.spark.streaming.intake import Intake

            intake = Intake(self._options)
            intake.open()
            self._intake = intake
        return self._intake

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        from pubsub_aio.spark.streaming.manifests import Waiting

        done = self._opened().wal.done  # of a query that is gone, if there is any
        if done is None:
            return self._told(None, Waiting())
        self._at = self._at or done.seq
        return self._offset(done)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that latestOffset is given; other limits are known here alone."""
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends when nothing comes any more that was published until now."""
        self._opened().begin_available_now()
        self._patient = True

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Seal the next batch, if there is anything for it.

        Before 4.2 Spark tells neither where it is, nor that it wants all there is and no more.
        """
        after = self._at if start is None else self._known(start)
        if start is None:
            last = self._all(after) if self._wants_all() else self._next(after)
            return self._offset_at(after) if last is None else self._offset(last)
        if self._finished:
            last = self._opened().left(after, everything=False)
        else:
            last = self._all(after) if isinstance(limit, ReadAllAvailable) else self._next(after)
        return start if last is None else self._offset(last)

    def _wants_all(self) -> bool:
        """Whether it is the first batch of a query that was told so by an option."""
        return self._options.idle_is_given and not self._patient

    def _next(self, after: int) -> Manifest | None:
        """One batch more."""
        intake, ends = self._opened(), self._patient and not self._finished
        intake.check_owner(self._query)
        intake.start(ends=ends)
        manifest = intake.latest(after, everything=False, patient=ends)
        if ends and manifest is None:
            self._finish()
            return intake.left(after, everything=False)
        return manifest

    def _all(self, after: int) -> Manifest | None:
        """All there is; some of it may be sealed already. Spark will not ask again."""
        intake = self._opened()
        if not self._patient:
            self.prepareForTriggerAvailableNow()
        intake.check_owner(self._query)
        intake.start(ends=True)
        last = None
        while batch := intake.latest(last.seq if last else after, everything=True, patient=True):
            last = batch
        self._finish()
        return intake.left(last.seq if last else after, everything=True) or last

    def _finish(self) -> None:
        self._finished = True
        self._opened().finish()

    def _offset_at(self, seq: int) -> dict[str, Any]:
        return self._offset(self._opened().wal.manifest(seq)) if seq else self.initialOffset()

    def _seq(self, offset: dict[str, Any]) -> int:
        wal = self._opened().wal
        if offset.get("wal") != wal.id:
            raise WalError(
                f"walLocation: {wal.store.location} is not the log that the checkpoint goes with: "
                "give the walLocation with which the query began, or a new checkpoint and a new "
                "walLocation"
            )
        return int(offset["seq"])

    def _known(self, offset: dict[str, Any]) -> int:
        """The number of an offset that is in the checkpoint, by which the query is known."""
        seq = self._seq(offset)
        self._query = offset["query"]
        return seq

    def _offset(self, manifest: Manifest) -> dict[str, Any]:
        return self._told(manifest, manifest.waiting)

    def _told(self, last: Manifest | None, waiting: Waiting) -> dict[str, Any]:
        """An offset; all but the first three are for people."""
        return {
            "seq": last.seq if last else 0,
            "wal": self._opened().wal.id,
            "query": self._query,
            "rows": last.rows if last else 0,
            "duplicatesDropped": last.duplicates if last else 0,
            "backlogRows": waiting.rows,
            "segmentsWaiting": waiting.segments,
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How it goes, for `query.lastProgress`."""
        intake = self._opened()
        waiting = intake.waiting
        return self._told(intake.wal.last, waiting) | {"backlogBytes": waiting.size}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, which Spark has noted by now.

        Before 4.2 Spark first asks for an empty one when it goes on: it ends where the query is.
        """
        from pubsub_aio.spark.streaming.reading import shared_out

        intake, after, until = self._opened(), self._seq(start), self._known(end)
        wal = intake.wal.id
        if until:
            intake.begin(self._query)
        self._at = until
        pieces = intake.pieces(after, until)
        tasks: list[InputPartition] = [*shared_out(pieces, self._options, wal)]
        if rows := intake.rows_of_fetchers():
            fetchers = range(self._options.fetch_partitions)
            tasks += [FetchPartition(number, rows, wal) for number in fetchers]
        return tasks

    def commit(self, end: dict[str, Any]) -> None:
        """Batches up to this one are done with."""
        self._opened().commit(self._seq(end))

    def stop(self) -> None:
        """This process has to end, for something has failed.

        When a query ends Spark does not call it, but kills the process.
        """
        if self._intake:
            self._intake.stop()

    # Rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; those that fetch have none."""
        from pubsub_aio.spark.streaming.reading import read

        if isinstance(partition, FetchPartition):
            from pubsub_aio.spark.streaming.fetching import fetch

            fetch(self._options, partition.wal, partition.rows, driver=partition.host)
            return iter(())
        return read(partition, self._options)


class RefusingReader(PubSubStreamReader):
    """Raises what is wrong at the first call.

    What `streamReader` itself raises, Spark buries under an error of its own.
    """

    def __init__(self, error: PubSubError) -> None:
        super().__init__(DEFAULTS)
        self._error = error

    def _opened(self) -> NoReturn:
        raise self._error

"""What Spark writes to Pub/Sub with."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import ConfigError, MissingExtraError, UnsupportedError
from pubsub_aio.spark.streaming.rows_out import Columns, columns_of
from pubsub_aio.spark.streaming.sink_options import SinkOptions, sink_options

try:
    from pyspark import TaskContext
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceStreamWriter,
        WriterCommitMessage,
    )
except ImportError as error:
    raise MissingExtraError("The Spark sink (PySpark 4.0+)", "spark") from error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pubsub_aio.spark.streaming.row_ids import RowIds

logger = logging.getLogger("pubsub_aio.spark")

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_SHOWN = 8  # characters of what begins an id; all of it is hashed


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """What a task has done.

    Attributes:
        rows: How many rows it has published, each of them confirmed.
    """

    rows: int


class PubSubWriter(DataSourceArrowWriter):
    """Publishes the rows of a DataFrame.

    It is made beside the driver, and copies of it are sent to tasks.

    Args:
        options: As they were given to Spark.
        schema: The columns of what is written.
        overwrite: Whether what is there should go, which cannot be.

    Raises:
        ConfigError: An option or a column cannot be as it is.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                'mode: what is published stays: write with .mode("append"), not "overwrite"'
            )
        self._options, self._columns = _checked(options, schema)
        self._write_id = self._options.id_prefix or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a task."""
        partition = _task().partitionId()
        shown = self._options.id_prefix or self._write_id[:_SHOWN]
        scope = ("write", self._write_id, str(partition))
        return _written(self._options, self._columns, iterator, scope, shown=f"{shown}-{partition}")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All rows are published: there is nothing left to do."""
        logger.debug("%s rows published to %s", f"{_total(messages):,}", self._options.topic)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some rows may be published, which cannot be undone."""
        logger.warning(
            "a write to %s failed: %s rows of tasks that ended are published, and maybe others; %s",
            self._options.topic,
            f"{_total(messages):,}",
            "a further write with this idPrefix gives them the same ids"
            if self._options.id_prefix
            else "give an idPrefix or an idColumn if a further write should give them the same ids",
        )


class PubSubStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """Publishes the batches of a streaming query.

    It is made anew for each batch, twice. Spark asks whether it is a `DataSourceArrowWriter` to
    know that it wants Arrow, also where it is for a stream: so it was before there was a
    `DataSourceStreamArrowWriter`, and so it is now.

    Args:
        options: As they were given to Spark.
        schema: The columns of what is written.

    Raises:
        ConfigError: An option or a column cannot be as it is.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._columns = _checked(options, schema)
        if self._options.id_prefix:
            raise ConfigError(
                "idPrefix is for df.write: ids of a streaming query go by its checkpoint; leave "
                "it out"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a task."""
        task = _task()
        partition = task.partitionId()
        query = task.getLocalProperty(_QUERY) or ""
        batch = task.getLocalProperty(_BATCH) or ""
        if _makes_ids(self._options) and not (query and batch):
            raise UnsupportedError(
                "Spark does not say which batch of which query this is, so no ids can be made: "
                "give an idColumn, or set idAttribute to nothing"
            )
        scope = ("query", query, batch, str(partition))
        shown = f"{query[:_SHOWN]}-{batch}-{partition}"
        return _written(self._options, self._columns, iterator, scope, shown=shown)

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """All rows are published: there is nothing left to do."""
        logger.debug(
            "batch %s: %s rows published to %s",
            batch_id,
            f"{_total(messages):,}",
            self._options.topic,
        )

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Some rows may be published, and are again when the query goes on."""
        logger.warning(
            "batch %s to %s failed: %s rows of tasks that ended are published, and maybe others; "
            "they are published again %s when the query goes on",
            batch_id,
            self._options.topic,
            f"{_total(messages):,}",
            "with the same ids" if self._options.id_attribute else "without ids",
        )


def _checked(options: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, Columns]:
    made = sink_options(options)
    return made, columns_of(schema, made)


def _makes_ids(options: SinkOptions) -> bool:
    return bool(options.id_attribute and not options.id_column)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise UnsupportedError("write: only a task of Spark can call it")
    return task


def _written(
    options: SinkOptions,
    columns: Columns,
    batches: Iterator[pa.RecordBatch],
    scope: tuple[str, ...],
    *,
    shown: str,
) -> Published:
    from pubsub_aio.spark.streaming.row_publishing import RowPublisher

    ids: RowIds | None = None
    if _makes_ids(options):
        from pubsub_aio.spark.streaming.row_ids import RowIds

        ids = RowIds(scope, shown=shown)
    publisher = RowPublisher(options, columns, ids, partition=int(scope[-1]))
    return Published(asyncio.run(publisher.run(iter(batches))))


def _total(messages: Sequence[Any]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Published))

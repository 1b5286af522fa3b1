"""Arrow record batches as Spark DataFrames."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pubsub_aio.config import MIB
from pubsub_aio.errors import MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyspark
    from pyspark.sql.pandas.types import from_arrow_schema
except ImportError as error:
    raise MissingExtraError("Spark", "spark") from error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    *("message_id", "data", "attributes", "publish_time", "ordering_key", "delivery_attempt"),
)
"""The columns of a micro-batch, in order."""

MAX_CONNECT_BYTES = 64 * MIB
"""What Spark Connect sends along with a plan: a message to it may have twice as much."""

_MAX_PARTITION_BYTES = 32 * MIB  # a task goes to its executor in a message of 128 MiB at most
_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
_ROWS_EACH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_CONNECT_THRESHOLD = "spark.sql.session.localRelationCacheThreshold"

_settings_lock = threading.Lock()


def columns_of(records: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they came, with the columns of a micro-batch."""
    columns = {name: records.column(name) for name in COLUMNS}
    attempts = columns["delivery_attempt"]
    unknown = pc.equal(attempts, 0)  # so the wire has it without a dead-letter policy
    columns["delivery_attempt"] = pc.if_else(unknown, pa.scalar(None, attempts.type), attempts)
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def dataframe(spark: SparkSession, records: pa.RecordBatch) -> DataFrame:
    """A DataFrame of these rows, with a partition for each core, or more where they are large."""
    if is_connect(spark):
        # Above this the server keeps the rows until the session ends.
        with _settings_lock, _settings(spark, {_CONNECT_THRESHOLD: str(MAX_CONNECT_BYTES)}):
            return spark.createDataFrame(pa.Table.from_batches([records]))
    rows = records.num_rows
    parts = min(rows, spark.sparkContext.defaultParallelism)
    parts = max(1, parts, -(-records.nbytes // _MAX_PARTITION_BYTES))
    each = max(1, -(-rows // parts))
    table = pa.Table.from_batches(
        [records.slice(start, each) for start in range(0, max(1, rows), each)]
    )
    with _settings_lock:
        # How many rows Spark puts into a partition; without limit if it is not above 0.
        most = int(str(spark.conf.get(_ROWS_EACH)))
        # Below the threshold Spark takes the rows apart in the driver, one by one.
        settings = {_THRESHOLD: "0"} | ({} if most > 0 else {_ROWS_EACH: str(each)})
        with _settings(spark, settings):
            if int(pyspark.__version__.split(".", maxsplit=1)[0]) < 4:
                return _from_arrow_before_4(spark, table)
            df = spark.createDataFrame(table)
    return df.coalesce(parts) if 0 < most < each else df


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no JVM and no context here."""
    return not hasattr(spark, "_jsparkSession")


@contextmanager
def _settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Change settings of a session for a moment."""
    before = {name: str(spark.conf.get(name)) for name in wanted}
    changed = [name for name, value in wanted.items() if before[name] != value]
    try:
        for name in changed:
            spark.conf.set(name, wanted[name])
        yield
    finally:
        for name in changed:
            spark.conf.set(name, before[name])


def _from_arrow_before_4(spark: Any, table: pa.Table) -> DataFrame:
    """What `createDataFrame` does from 4.0 on, by the same parts of PySpark 3.5."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    jvm = spark._jvm  # noqa: SLF001 - 3.5 has no public way, and will not change any more
    rows = spark.sparkContext._serialize_to_jvm(  # noqa: SLF001
        table.to_batches(),
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    schema = from_arrow_schema(table.schema).json()
    frame = jvm.PythonSQLUtils.toDataFrame(rows, schema, spark._jsparkSession)  # noqa: SLF001
    return DataFrame(frame, spark)

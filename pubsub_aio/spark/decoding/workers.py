"""Decoding in Spark's Python workers, a batch of Arrow at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pubsub_aio.errors import MissingExtraError
from pubsub_aio.spark.decoding.columns import DATA, kept_columns
from pubsub_aio.spark.decoding.records import Decoder, decode_rows

try:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql import types as spark
except ImportError as error:
    raise MissingExtraError("decoding in Spark", "spark") from error

_SCALARS: list[tuple[Callable[[Any], bool], spark.DataType]] = [
    (pa.types.is_boolean, spark.BooleanType()),
    (pa.types.is_int32, spark.IntegerType()),
    (pa.types.is_int64, spark.LongType()),
    (pa.types.is_float32, spark.FloatType()),
    (pa.types.is_float64, spark.DoubleType()),
    (pa.types.is_string, spark.StringType()),
    (pa.types.is_binary, spark.BinaryType()),
    (pa.types.is_date32, spark.DateType()),
    (pa.types.is_duration, spark.DayTimeIntervalType()),
]


def decode_in_workers(
    df: DataFrame, decoder: Callable[[], Decoder], *, into: str | None, undecoded: str
) -> DataFrame:
    """The messages with their data decoded.

    Args:
        df: The messages.
        decoder: Makes the decoder, here and in each worker; it is pickled on the way.
        into: See `decode_avro`.
        undecoded: See `decode_avro`.
    """
    record = spark_type(decoder().record_type)
    kept = kept_columns(df, record.names, into=into, undecoded=undecoded)
    if (
        importlib.util.find_spec("pandas") is None
    ):  # PySpark asks for it, though nothing here uses it
        raise MissingExtraError("decoding in Spark's workers", "spark")
    decoded = record.fields if into is None else [spark.StructField(into, record)]
    schema = spark.StructType(
        [
            *(df.schema[name] for name in kept),
            *decoded,
            spark.StructField(undecoded, spark.BinaryType()),
        ]
    )
    step = DecodeBatches(decoder, df.columns.index(DATA), into is not None, tuple(schema.names))
    return df.mapInArrow(step, schema)


@dataclass(frozen=True)
class DecodeBatches:
    """What a worker does.

    Args:
        decoder: Makes the decoder.
        data: The position of the data among the columns.
        into_one: Whether the decoded fields are to be one column.
        names: The names of the columns that come out.
    """

    decoder: Callable[[], Decoder]
    data: int
    into_one: bool
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches of messages as batches of the result."""
        decoder = self.decoder()
        for batch in batches:
            columns = batch.columns
            records, undecoded = decode_rows(decoder, columns.pop(self.data))
            columns.extend([records] if self.into_one else records.flatten())
            yield pa.RecordBatch.from_arrays([*columns, undecoded], names=self.names)


def spark_type(kind: Any) -> Any:
    """The type of Spark for a type of Arrow that a decoder makes."""
    for is_it, scalar in _SCALARS:
        if is_it(kind):
            return scalar
    if pa.types.is_timestamp(kind):
        return spark.TimestampType() if kind.tz else spark.TimestampNTZType()
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    return spark.StructType([spark.StructField(each.name, spark_type(each.type)) for each in kind])

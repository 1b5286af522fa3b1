"""Data that is JSON: decoded by Spark itself, in the JVM."""

from __future__ import annotations

import functools
import operator
from typing import cast

from pubsub_aio.errors import ConfigError, MissingExtraError, UnsupportedError
from pubsub_aio.spark.decoding.columns import DATA, check_messages, kept_columns, quoted

try:
    import pyspark
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as sf
    from pyspark.sql import types as spark
except ImportError as error:
    raise MissingExtraError("decoding in Spark", "spark") from error

_PARSED = "__pubsub_aio_parsed"
_RECORD = "__pubsub_aio_record"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
}
_LIMITS = {
    spark.DateType: ("0001-01-01", "9999-12-31"),
    spark.TimestampType: ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    spark.TimestampNTZType: ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"),
}


def decode_json(
    df: DataFrame,
    schema: spark.StructType | str,
    *,
    into: str | None = None,
    undecoded: str = "undecoded",
) -> DataFrame:
    """Decode data that is a JSON object in UTF-8, by Spark's `from_json`.

    A row is decoded as a whole or not at all: if a field that the schema names is of another type,
    or the text is not one JSON object and nothing else, the decoded columns are null and the data
    is in the column `undecoded`. Fields that the schema does not name are left out, and those that
    the object does not have are null, even if the schema says `NOT NULL`.

    Args:
        df: Messages, batch or streaming, with their `data`.
        schema: The fields, as a `StructType` or in Spark's DDL, such as `"id long, name string"`.
        into: The name of one struct column for all decoded fields; without it each is a column.
        undecoded: The name of the column for the data that could not be decoded.

    Returns:
        The columns of `df` but `data`, the decoded ones, and `undecoded`.

    Raises:
        ConfigError: An argument is not what it should be, or two columns would have one name.
        UnsupportedError: PySpark is older than 4.0.
    """
    if not hasattr(sf, "is_valid_utf8"):
        raise UnsupportedError(f"decode_json needs PySpark 4.0, and this is {pyspark.__version__}")
    check_messages(df)
    record = _struct(schema)
    kept = [quoted(name) for name in kept_columns(df, record.names, into=into, undecoded=undecoded)]
    try:
        parsed = df.select(*kept, DATA, _parsed(record).alias(_PARSED))
        _ = parsed.schema  # with Spark Connect nothing is looked at before it is asked for
    except AnalysisException as error:
        raise ConfigError(f"Spark cannot decode JSON with this schema: {error}") from error
    found = parsed.select(*kept, DATA, _whole_record(record).alias(_RECORD))
    decoded = (
        [sf.col(_RECORD).getField(name).alias(name) for name in record.names]
        if into is None
        else [sf.col(_RECORD).alias(into)]
    )
    rest = sf.when(sf.col(_RECORD).isNull(), sf.col(DATA)).alias(undecoded)
    return found.select(*kept, *decoded, rest)


def _parsed(record: spark.StructType) -> Column:
    """The data parsed as the only item of an array, with a field behind it.

    Spark's parser stops where a record ends. Inside an array whatever follows a record, be it
    garbage or another record, is an error or another item; and the field is only found if the
    array ends where it should.
    """
    envelope = (
        spark.StructType()
        .add("records", spark.ArrayType(record))
        .add("end", spark.BooleanType())
        .add("corrupt", spark.StringType())
    )
    text = sf.col(DATA).cast("string")
    whole = sf.concat(sf.lit('{"records":['), text, sf.lit('],"end":true}'))
    return sf.from_json(whole, envelope, _OPTIONS)


def _whole_record(record: spark.StructType) -> Column:
    """The record, if all of it could be decoded."""
    parsed = sf.col(_PARSED)
    found = sf.get(parsed["records"], 0)
    whole = (
        sf.is_valid_utf8(sf.col(DATA).cast("string"))
        & parsed["corrupt"].isNull()
        & parsed["end"]
        & (sf.size(parsed["records"]) == 1)
    )
    if (in_range := _in_range(found, record)) is not None:
        whole &= sf.coalesce(in_range, sf.lit(col=True))
    return sf.when(whole, found)


def _in_range(value: Column, kind: spark.DataType) -> Column | None:
    """Whether every time in a value is of the years 1 to 9999, if it has any; see `rows_beyond`."""
    match kind:
        case spark.DateType() | spark.TimestampType() | spark.TimestampNTZType():
            first, last = (sf.lit(text).cast(kind) for text in _LIMITS[type(kind)])
            return value.between(first, last)
        case spark.StructType():
            fields = [_in_range(value.getField(field.name), field.dataType) for field in kind]
            known = [each for each in fields if each is not None]
            return functools.reduce(operator.and_, known) if known else None
        case spark.ArrayType():
            items, inner = value, kind.elementType
        case spark.MapType():
            items, inner = sf.map_values(value), kind.valueType
        case _:
            return None
    if _in_range(value, inner) is None:
        return None
    return sf.forall(items, lambda item: cast("Column", _in_range(item, inner)))


def _struct(schema: object) -> spark.StructType:
    if isinstance(schema, str):
        try:
            schema = spark.DataType.fromDDL(schema)
        except ParseException as error:
            raise ConfigError(f"schema is not Spark's DDL: {error}") from error
    if not isinstance(schema, spark.StructType):
        raise ConfigError(f"schema must be a StructType or a DDL string of fields, not {schema!r}")
    if not schema.fields:
        raise ConfigError("schema must have a field")
    _check_types(schema, "")
    return schema


def _check_types(kind: spark.DataType, path: str) -> None:
    match kind:
        case spark.StructType():
            for field in kind:
                _check_types(field.dataType, f"{path}.{field.name}".lstrip("."))
        case spark.ArrayType():
            _check_types(kind.elementType, f"{path}[]")
        case spark.MapType():
            _check_types(kind.valueType, f"{path}{{}}")
        case spark.NullType() | spark.CalendarIntervalType():
            # Spark makes null of whatever stands there, and does not say so.
            raise ConfigError(f"the field {path!r} of the schema cannot be {kind.simpleString()}")

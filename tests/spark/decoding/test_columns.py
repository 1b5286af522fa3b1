"""The columns of the result, whatever the format; and what a wrong argument is answered with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from google.protobuf.wrappers_pb2 import Int64Value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pubsub_aio import ConfigError
from pubsub_aio.spark import decode_avro, decode_json, decode_protobuf
from tests.spark.decoding.messages import kept, messages, rows_of

AVRO = {"type": "record", "name": "R", "fields": [{"name": "value", "type": "long"}]}

Decode = Callable[..., DataFrame]
FORMATS: dict[str, tuple[Decode, Any, bytes]] = {
    "json": (decode_json, "value long", b'{"value":7}'),
    "avro": (decode_avro, AVRO, b"\x0e"),
    "protobuf": (decode_protobuf, Int64Value, b"\x08\x07"),
}
if pyspark.__version__ < "4":
    del FORMATS["json"]  # tests/spark/test_versions.py has what is said then
each_format = pytest.mark.parametrize(("decode", "schema", "seven"), FORMATS.values(), ids=FORMATS)


def test_messages_of_a_stream_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    df = messages(spark, [seven for _, _, seven in FORMATS.values()])
    df.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(df.schema).parquet(str(tmp_path / "in"))
    for decode, schema, _ in FORMATS.values():
        stream = (
            decode(stream, schema)
            .withColumnRenamed("value", decode.__name__)
            .withColumnRenamed("undecoded", "data")
        )

    query = (
        stream.writeStream.format("memory")
        .queryName("decoded")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    assert query.awaitTermination(90)
    names = [decode.__name__ for decode, _, _ in FORMATS.values()]
    decoded = dict.fromkeys([*names, "data"])
    assert rows_of(spark.table("decoded")) == [
        {**kept(number), **decoded, name: 7} for number, name in enumerate(names)
    ]


@each_format
def test_a_watermark_outlives_the_decoding(
    spark: SparkSession,
    decode: Decode,
    schema: Any,
    seven: bytes,  # noqa: ARG001 - of the format
) -> None:
    stream = spark.readStream.format("rate").load()
    df = stream.select(sf.lit(b"").alias("data"), stream.timestamp.alias("publish_time"))

    result = decode(df.withWatermark("publish_time", "1 minute"), schema)

    assert result.schema["publish_time"].metadata == {"spark.watermarkDelayMs": 60_000}


@each_format
def test_columns_that_were_dropped_or_added_do_not_matter(
    spark: SparkSession, decode: Decode, schema: Any, seven: bytes
) -> None:
    df = messages(spark, [seven, b"\xff"]).select(
        sf.struct(sf.array("ordering_key").alias("a")).alias("s"), "data", "message_id"
    )

    assert rows_of(decode(df, schema)) == [
        {"s": {"a": ["key"]}, "message_id": "0", "value": 7, "undecoded": None},
        {"s": {"a": ["key"]}, "message_id": "1", "value": None, "undecoded": b"\xff"},
    ]


@each_format
def test_a_result_can_be_filtered_joined_and_decoded_again(
    spark: SparkSession, decode: Decode, schema: Any, seven: bytes
) -> None:
    first = decode(messages(spark, [seven, b"\xff"]), schema)

    again = (
        first.where("undecoded is not null").drop("value").withColumnRenamed("undecoded", "data")
    )
    result = rows_of(decode(again.withColumn("data", sf.lit(seven)), schema))

    assert result == [{**kept(1), "value": 7, "undecoded": None}]


@each_format
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"into": ""}, "into must be the name of a column, not ''"),
        ({"into": 7}, "into must be the name of a column, not 7"),
        ({"undecoded": None}, "undecoded must be the name of a column, not None"),
        ({"into": "Message_Id"}, "into='Message_Id' is a column already: pass another name"),
        ({"undecoded": "message_id"}, "pass another name as undecoded="),
        ({"undecoded": "VALUE"}, "undecoded='VALUE' is a column already"),
        ({"into": "x", "undecoded": "x"}, "undecoded='x' is a column already"),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    spark: SparkSession,
    decode: Decode,
    schema: Any,
    seven: bytes,  # noqa: ARG001 - of the format
    arguments: dict[str, Any],
    why: str,
) -> None:
    with pytest.raises(ConfigError, match=why):
        decode(messages(spark, []), schema, **arguments)


@each_format
def test_a_field_with_the_name_of_a_column_is_refused(
    spark: SparkSession,
    decode: Decode,
    schema: Any,
    seven: bytes,  # noqa: ARG001 - of the format
) -> None:
    df = messages(spark, []).withColumnRenamed("ordering_key", "Value")

    with pytest.raises(ConfigError, match="field 'value' is a column already: pass into=, then"):
        decode(df, schema)
    assert decode(df, schema, into="record").columns[-2:] == ["record", "undecoded"]


@each_format
def test_messages_without_binary_data_are_refused(
    spark: SparkSession,
    decode: Decode,
    schema: Any,
    seven: bytes,  # noqa: ARG001 - of the format
) -> None:
    df = messages(spark, [])

    with pytest.raises(ConfigError, match="df must be a DataFrame, not list"):
        decode([], schema)
    with pytest.raises(ConfigError, match="df must have a column 'data'; it has message_id, attr"):
        decode(df.drop("data"), schema)
    with pytest.raises(ConfigError, match="'data' of df must be binary, not string"):
        decode(df.withColumn("data", df.ordering_key), schema)


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "fastavro", "ptars"])
def test_a_missing_package_is_said_with_its_cure(package: str) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
from pubsub_aio import MissingExtraError
try:
    from pubsub_aio.spark import decode_avro, decode_json, decode_protobuf
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )

    assert 'pip install "pubsub-aio[spark]"' in done.stdout


def test_missing_pandas_is_said_with_its_cure(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ImportError, match="pubsub-aio"):
        decode_avro(messages(spark, []), AVRO)

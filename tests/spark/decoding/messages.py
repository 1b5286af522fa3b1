"""DataFrames of messages, as they come from Pub/Sub, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "message_id string, data binary, attributes map<string,string>, publish_time timestamp, "
    "ordering_key string, delivery_attempt int"
)
PUBLISHED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def messages(spark: SparkSession, data: Sequence[bytes | None]) -> DataFrame:
    """One message for each, numbered from 0."""
    rows = [
        (str(number), each, {"number": str(number)}, PUBLISHED, "key", 0)
        for number, each in enumerate(data)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def rows_of(df: DataFrame) -> list[dict[str, Any]]:
    """The rows in the order of their numbers; times as texts, which do not depend on time zones."""
    texts = [
        df[name].cast("string").alias(name) if kind.startswith("timestamp") else df[name]
        for name, kind in df.dtypes
    ]
    rows = [row.asDict(recursive=True) for row in df.select(*texts).collect()]
    return sorted(rows, key=lambda row: int(row["message_id"]))


def kept(number: int) -> dict[str, Any]:
    """What a row has of its message."""
    return {
        "message_id": str(number),
        "attributes": {"number": str(number)},
        "publish_time": "2026-01-02 03:04:05.678901",
        "ordering_key": "key",
        "delivery_attempt": 0,
    }

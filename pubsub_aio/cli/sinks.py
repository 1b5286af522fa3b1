"""Where `pubsub-aio ingest` writes to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pubsub_aio.cli.output import reason
from pubsub_aio.errors import ConfigError, MissingExtraError

Sink = Callable[[Any, Any], None]
"""Writes rows; it is given them as a DataFrame, and as Arrow has them."""

_ROWS_A_FILE = 100_000


def sink_for(kind: str, path: str) -> Sink:
    """What appends to that path.

    Raises:
        MissingExtraError: It needs a package that is not installed.
    """
    if kind == "delta":
        return _delta(path)

    def append(df: Any, records: Any) -> None:
        files = math.ceil(records.num_rows / _ROWS_A_FILE)
        df.coalesce(files).write.mode("append").format(kind).save(path)

    return append


def check_path(spark: Any, kind: str, path: str) -> None:
    """Make sure that Spark can write there, as far as can be seen.

    Raises:
        ConfigError: It cannot, or nobody would find what is written.
    """
    if kind == "delta":
        return  # Spark does not write it
    table = spark._jvm.org.apache.hadoop.fs.Path(path, "_delta_log")  # noqa: SLF001 - no public way
    try:
        files = table.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
        is_table = files.exists(table)
    except Exception as error:
        raise ConfigError(f"--to: {path} cannot be used: {reason(error)}") from error
    if is_table:
        raise ConfigError(f"--to: {path} is a Delta table: give --format delta, or another folder")


def _delta(path: str) -> Sink:
    """Append to a Delta table. The driver does it: Spark would need jars that pip has not."""
    try:
        from deltalake import write_deltalake
    except ImportError as error:
        raise MissingExtraError("--format delta", "spark,cli,delta") from error
    import pyarrow as pa

    def append(_: Any, records: Any) -> None:
        write_deltalake(path, pa.Table.from_batches([records]), mode="append")

    return append

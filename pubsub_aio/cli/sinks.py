"""Where `pubsub-aio ingest` writes to."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pubsub_aio.cli.output import reason
from pubsub_aio.errors import ConfigError, MissingExtraError

Sink = Callable[[Any, Any], None]
"""Writes rows; it is given them as a DataFrame, and as Arrow has them."""

_ROWS_A_FILE = 100_000
_UNFINISHED = "_ingest-"
"""How folders begin that are not finished; Spark does not read what begins with `_`."""
_NO_CONNECTOR = (
    "; Spark needs a connector for it, in the environment "
    'PYSPARK_SUBMIT_ARGS="--jars CONNECTOR.jar pyspark-shell"'
)


def sink_for(kind: str, path: str) -> Sink:
    """What appends to that path.

    Raises:
        MissingExtraError: It needs a package that is not installed.
    """
    if kind == "delta":
        return _delta(path)

    def append(df: Any, records: Any) -> None:
        files = math.ceil(records.num_rows / _ROWS_A_FILE)
        # A folder of its own: of two who write to the same one at once, the first that is done
        # removes what the other has not finished, and Spark does not notice.
        unfinished = f"{path.rstrip('/')}/{_UNFINISHED}{uuid.uuid4().hex}"
        try:
            df.coalesce(files).write.format(kind).save(unfinished)
            _move(df.sparkSession, unfinished, path)
        finally:
            with contextlib.suppress(Exception):  # what is left of it is not read
                _delete(df.sparkSession, unfinished)

    return append


def _move(spark: Any, source: str, target: str) -> None:
    """Move the files of a folder to another."""
    folder, files = _hadoop(spark, source)
    for found in files.listStatus(folder):
        name = found.getPath().getName()
        to, _ = _hadoop(spark, target, name)
        if not name.startswith(("_", ".")) and not files.rename(found.getPath(), to):
            raise OSError(f"{name} cannot be moved from {source} to {target}")


def _delete(spark: Any, path: str) -> None:
    folder, files = _hadoop(spark, path)
    files.delete(folder, True)  # noqa: FBT003 - what is in it as well


def _hadoop(spark: Any, *path: str) -> tuple[Any, Any]:
    """A path, and the file system that it belongs to."""
    found = spark._jvm.org.apache.hadoop.fs.Path(*path)  # noqa: SLF001 - no public way
    return found, found.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001


def check_path(spark: Any, kind: str, path: str) -> None:
    """Make sure that Spark can write there, as far as can be seen.

    Raises:
        ConfigError: It cannot, or nobody would find what is written.
    """
    if kind == "delta":
        _check_table(path)  # Spark does not write it
        return
    try:
        table, files = _hadoop(spark, path, "_delta_log")
        is_table = files.exists(table)
    except Exception as error:
        why = reason(error)
        cure = _NO_CONNECTOR if "ClassNotFoundException" in why or "scheme" in why else ""
        raise ConfigError(f"--to: {path} cannot be used: {why}{cure}") from error
    if is_table:
        raise ConfigError(f"--to: {path} is a Delta table: give --format delta, or another folder")


def _check_table(path: str) -> None:
    """Refuse a folder on this machine with files that a table there would not have."""
    folder = Path(path.removeprefix("file://"))
    if (folder / "_delta_log").is_dir():
        return
    if any(folder.glob("*.parquet")) or any(folder.glob("*.json")):
        raise ConfigError(
            f"--to: {path} has files that are in no Delta table, and a vacuum of it may delete "
            "them: give another folder"
        )


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

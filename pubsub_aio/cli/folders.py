"""Folders that streaming queries write to: other files in them would not be read."""

from __future__ import annotations

from typing import Any

from pubsub_aio.cli.output import reason
from pubsub_aio.errors import ConfigError

_WRITTEN = "_spark_metadata"
"""Where Spark lists the files of a query: who reads the folder with Spark sees no others."""
_OTHERS = {"parquet": ".json", "json": ".parquet"}
_NO_DELTA = (
    "--format delta: with --streaming Spark itself writes the table, and this one has no Delta "
    "Lake: name its package for this version of Spark in the environment, PYSPARK_SUBMIT_ARGS="
    '"--packages io.delta:delta-spark_2.13:VERSION '
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog "
    'pyspark-shell", or give --format parquet, or leave --streaming out'
)


def refuse_streamed(spark: Any, path: str) -> None:
    """Refuse a folder that a streaming query writes to.

    Raises:
        ConfigError: It is one.
    """
    if _names(spark, "--to", path, _WRITTEN):
        raise ConfigError(
            f"--to: {path} was written with --streaming, and whoever reads it with Spark sees no "
            "other files there: give --streaming and its --checkpoint, or another folder"
        )


def check_folders(spark: Any, kind: str, *, to: str, checkpoint: str) -> None:
    """Make sure that what is written is found, and that nothing is taken for written.

    Raises:
        ConfigError: It would not be so.
    """
    names = _names(spark, "--to", to)
    visible = [name for name in names if not name.startswith(("_", "."))]
    if kind == "delta":
        _check_delta(spark)
    if visible and ("_delta_log" if kind == "delta" else _WRITTEN) not in names:
        raise ConfigError(
            f"--to: {to} has files already, which were not written with --streaming, and "
            "would not be seen any more beside those that are: give an empty folder, or leave "
            "--streaming out"
        )
    if kind == "delta":
        return
    other = _OTHERS[kind]
    if any(name.endswith(other) for name in visible):
        raise ConfigError(f"--to: {to} has {other[1:]}: give --format {other[1:]}")
    _check_numbers(spark, to, checkpoint)


def _check_numbers(spark: Any, to: str, checkpoint: str) -> None:
    """Refuse a folder and a checkpoint of different queries.

    Spark knows by its number alone that a batch is in the folder, and then leaves it out.
    """
    _names(spark, "--checkpoint", checkpoint)
    begun = _last(_names(spark, "--checkpoint", checkpoint, "offsets"))
    done = _last(_names(spark, "--checkpoint", checkpoint, "commits"))
    written = _last(_names(spark, "--to", to, _WRITTEN))
    if written > begun:
        raise ConfigError(
            f"--to: {to} was written with another --checkpoint, and Spark would leave out "
            "what it takes for written: give the --checkpoint of before, or an empty folder"
        )
    if written < done:
        raise ConfigError(
            f"--checkpoint: {checkpoint} goes with another folder than {to}: give the --to of "
            "before, or a new --checkpoint"
        )


def _last(names: list[str]) -> int:
    """The last of batches by their files; -1 if there is none."""
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def _names(spark: Any, argument: str, *path: str) -> list[str]:
    """What is in a folder; nothing if there is none."""
    try:
        folder = spark._jvm.org.apache.hadoop.fs.Path(*path)  # noqa: SLF001 - no public way
        files = folder.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
        if not files.exists(folder):
            return []
        is_file = files.getFileStatus(folder).isFile()
        found = [each.getPath().getName() for each in files.listStatus(folder)]
    except Exception as error:
        raise ConfigError(f"{argument}: {path[0]} cannot be used: {reason(error)}") from error
    if is_file:
        raise ConfigError(f"{argument}: {'/'.join(path)} is a file: give a folder")
    return found


def _check_delta(spark: Any) -> None:
    try:
        sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource  # noqa: SLF001
        sources.lookupDataSource("delta", spark._jsparkSession.sessionState().conf())  # noqa: SLF001
    except Exception as error:
        raise ConfigError(_NO_DELTA) from error

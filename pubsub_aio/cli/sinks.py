"""Where `pubsub-aio ingest` writes to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pubsub_aio.errors import MissingExtraError

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

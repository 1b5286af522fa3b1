"""Whether the batches of a subscription fit into the memory of Spark's driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_aio.config import MIB
from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.frames import MAX_CONNECT_BYTES, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMES = 5
"""How much of the driver's memory a batch takes: it is read, put into tasks, and sent to them."""


def check_memory(spark: SparkSession, *, max_bytes: int, max_in_flight: int) -> None:
    """Refuse batches that would end the driver, or stay on a server of Spark Connect for ever.

    Raises:
        ConfigError: They are too large, or too many.
    """
    if is_connect(spark):
        if max_bytes > MAX_CONNECT_BYTES:
            raise ConfigError(
                f"max_bytes: {max_bytes:,} is more than Spark Connect takes at once, "
                f"{MAX_CONNECT_BYTES:,}; lower it"
            )
        return
    memory: int = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr] # noqa: SLF001 - no public name tells
    needed = _TIMES * max_bytes * max_in_flight
    if needed > memory:
        raise ConfigError(
            f"max_bytes: {max_bytes:,} times max_in_flight={max_in_flight} needs about "
            f"{needed // MIB:,} MiB of the driver's memory, and it has {memory // MIB:,} MiB; "
            "lower one of them, or start Spark with a larger spark.driver.memory"
        )

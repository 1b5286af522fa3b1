"""The jobs that a thread runs in Spark, so that they can be told apart and interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pubsub_aio.errors import SparkGoneError
from pubsub_aio.spark.frames import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Jobs:
    """What is run in a Spark session, by tag.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Whatever this thread runs meanwhile has the tag."""
        add, remove = (
            (self._spark.addTag, self._spark.removeTag)
            if is_connect(self._spark)
            else (self._spark.sparkContext.addJobTag, self._spark.sparkContext.removeJobTag)
        )
        add(tag)
        try:
            yield
        finally:
            remove(tag)

    def interrupt(self, tag: str) -> None:
        """Have everything with the tag fail that runs now."""
        if is_connect(self._spark):
            self._spark.interruptTag(tag)
        else:
            self._spark.sparkContext.cancelJobsWithTag(tag)

    def check_alive(self) -> None:
        """Make sure that the session can still be used.

        Raises:
            SparkGoneError: It never can again.
        """
        if is_connect(self._spark):  # it says so itself
            if self._spark.is_stopped:  # type: ignore[attr-defined]
                raise SparkGoneError
            return
        try:
            self._spark.range(1)  # lazy: the driver is asked for nothing but a plan
        except Exception as error:
            raise SparkGoneError from error

"""Pub/Sub messages in Spark. It needs the extra `spark`."""

from pubsub_aio.spark.batch import BatchReport, MicroBatch
from pubsub_aio.spark.microbatch import microbatches

__all__ = ["BatchReport", "MicroBatch", "microbatches"]

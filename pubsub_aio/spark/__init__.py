"""Pub/Sub messages in Spark. It needs the extra `spark`."""

from pubsub_aio.spark.batch import BatchReport, MicroBatch
from pubsub_aio.spark.decoding import decode_avro, decode_json, decode_protobuf
from pubsub_aio.spark.frames import dataframe
from pubsub_aio.spark.microbatch import microbatches
from pubsub_aio.spark.session import session

__all__ = [
    "BatchReport",
    "MicroBatch",
    "dataframe",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "microbatches",
    "session",
]

"""Pub/Sub messages in Spark. It needs the extra `spark`.

Names are loaded when first used: Spark's Python workers import this too, and need little of it.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.spark.batch import BatchReport, MicroBatch
    from pubsub_aio.spark.decoding.from_avro import decode_avro
    from pubsub_aio.spark.decoding.from_json import decode_json
    from pubsub_aio.spark.decoding.from_protobuf import decode_protobuf
    from pubsub_aio.spark.frames import dataframe
    from pubsub_aio.spark.microbatch import microbatches
    from pubsub_aio.spark.sessions import session
    from pubsub_aio.spark.streaming.source import PubSubAioDataSource, PubSubDataSource

__all__ = [
    "BatchReport",
    "MicroBatch",
    "PubSubAioDataSource",
    "PubSubDataSource",
    "dataframe",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "microbatches",
    "session",
]

_HOME_OF = {
    "BatchReport": "batch",
    "MicroBatch": "batch",
    "PubSubAioDataSource": "streaming.source",
    "PubSubDataSource": "streaming.source",
    "dataframe": "frames",
    "decode_avro": "decoding.from_avro",
    "decode_json": "decoding.from_json",
    "decode_protobuf": "decoding.from_protobuf",
    "microbatches": "microbatch",
    "session": "sessions",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

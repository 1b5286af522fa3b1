"""Messages whose data is JSON, Avro or protobuf as columns; what cannot be decoded is kept."""

from pubsub_aio.spark.decoding.from_avro import decode_avro
from pubsub_aio.spark.decoding.from_json import decode_json
from pubsub_aio.spark.decoding.from_protobuf import decode_protobuf

__all__ = ["decode_avro", "decode_json", "decode_protobuf"]

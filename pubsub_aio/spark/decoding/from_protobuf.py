"""Data that is protobuf: decoded by ptars, in Spark's Python workers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import MissingExtraError
from pubsub_aio.spark.decoding.protobuf_schema import MessageType, message_type
from pubsub_aio.spark.decoding.workers import decode_in_workers

try:
    import ptars
    import pyarrow as pa
except ImportError as error:
    raise MissingExtraError("decoding protobuf", "spark") from error

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from pyspark.sql import DataFrame


def decode_protobuf(
    df: DataFrame,
    message: type[Message] | Descriptor | tuple[bytes, str],
    *,
    into: str | None = None,
    undecoded: str = "undecoded",
) -> DataFrame:
    """Decode data that is one protobuf message.

    A field that was not set is null if protobuf can tell, else it has its default. Enums are the
    names of their values, or the number where there is no name; `uint32` is a `bigint`, `uint64` a
    `decimal(20,0)`; `Timestamp` is a `timestamp`, to the microsecond, `Duration` an interval, and
    `Int64Value` and its like are what they wrap.

    What protobuf refuses is in the column `undecoded`, and the decoded columns are null; so is a
    message with text that is not UTF-8, or a time that is not of the years 1 to 9999. But protobuf
    accepts fields that it does not know, so that data of another type may be decoded as a message
    with nothing in it, or with something wrong. Such fields, and extensions, are left out.

    Args:
        df: Messages, batch or streaming, with their `data`.
        message: The type: a generated class, its descriptor, or the bytes of a file descriptor set
            (`protoc --include_imports --descriptor_set_out`) and the full name of the message.
        into: The name of one struct column for all decoded fields; without it each is a column.
        undecoded: The name of the column for the data that could not be decoded.

    Returns:
        The columns of `df` but `data`, the decoded ones, and `undecoded`.

    Raises:
        ConfigError: An argument is not what it should be, two columns would have one name, or the
            type has what a column cannot: no field at all, or a message inside itself.
    """
    decoder = functools.partial(protobuf_decoder, message_type(message))
    return decode_in_workers(df, decoder, into=into, undecoded=undecoded)


class ProtobufDecoder:
    """Reads messages of one type."""

    def __init__(self, of: MessageType) -> None:
        self._message = of.message_class()
        descriptor = self._message.DESCRIPTOR
        config = ptars.PtarsConfig(
            timestamp_unit="us",
            duration_unit="us",
            enum_repr="string",
            list_nullable=True,
            map_nullable=True,
            list_value_nullable=True,
            map_value_nullable=True,
        )
        self._handler = ptars.HandlerPool([descriptor.file], config).get_for_message(descriptor)
        self.record_type = pa.struct(list(map(_column, self._handler.schema())))

    def decode(self, data: Any) -> Any:
        """See `Decoder`."""
        messages = pa.array([self._rewritten(each) for each in data.to_pylist()], pa.binary())
        batch = self._handler.array_to_record_batch(messages)
        records = pa.StructArray.from_arrays(
            batch.columns, fields=[*batch.schema], mask=messages.is_null()
        )
        return records.cast(self.record_type)

    def _rewritten(self, data: bytes | None) -> bytes | None:
        """The message as protobuf itself writes it, if it is one.

        ptars is not made for hostile bytes: groups in groups overflow its stack, some lengths make
        it panic. And it keeps what should replace another: a key of a map, a member of a oneof.
        """
        if data is None:
            return None
        try:
            rewritten: bytes = self._message.FromString(data).SerializeToString()
        except Exception:  # noqa: BLE001 - not a message, or without a field that is required
            return None
        return rewritten


@functools.lru_cache(maxsize=16)
def protobuf_decoder(of: MessageType) -> ProtobufDecoder:
    """The decoder for a type; made once in a worker, which serves many tasks."""
    return ProtobufDecoder(of)


def _column(field: Any) -> Any:
    return pa.field(field.name, _column_type(field.type))


def _column_type(kind: Any) -> Any:
    """The type of the column; Spark has no unsigned numbers, and a row may be null in any part."""
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_struct(kind):
        return pa.struct(list(map(_column, kind)))
    if pa.types.is_map(kind):
        return pa.map_(_column_type(kind.key_type), _column_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_column_type(kind.value_type))
    return kind

"""Data that is Avro: decoded by fastavro, in Spark's Python workers."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import ConfigError, MissingExtraError
from pubsub_aio.spark.decoding.avro_schema import compile_schema
from pubsub_aio.spark.decoding.workers import decode_in_workers

try:
    import pyarrow as pa
    from fastavro import schemaless_reader
except ImportError as error:
    raise MissingExtraError("decoding Avro", "spark") from error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def decode_avro(
    df: DataFrame,
    schema: str | Mapping[str, Any],
    *,
    into: str | None = None,
    undecoded: str = "undecoded",
) -> DataFrame:
    """Decode data that is one Avro record in the binary encoding, as Pub/Sub's schemas have it.

    There is no header: `schema` must be the one that the data was written with. Types become those
    of Spark's own Avro reader; times of day are numbers, as there. A row is decoded as a whole or
    not at all: if its bytes end early or go on after the record, or a value is none that the schema
    or the column allows, the decoded columns are null and the data is in the column `undecoded`.
    Avro has few bytes that mean nothing, so data of another schema may well be decoded, wrongly.

    Args:
        df: Messages, batch or streaming, with their `data`.
        schema: The Avro schema of a record, as JSON or as a dict.
        into: The name of one struct column for all decoded fields; without it each is a column.
        undecoded: The name of the column for the data that could not be decoded.

    Returns:
        The columns of `df` but `data`, the decoded ones, and `undecoded`.

    Raises:
        ConfigError: An argument is not what it should be, two columns would have one name, or the
            schema has what a column cannot: a record inside itself, or a field without data.
    """
    decoder = functools.partial(avro_decoder, _text(schema))
    return decode_in_workers(df, decoder, into=into, undecoded=undecoded)


class AvroDecoder:
    """Reads records of one schema."""

    def __init__(self, text: str) -> None:
        self._schema, self.record_type = compile_schema(text)

    def decode(self, data: Any) -> Any:
        """See `Decoder`."""
        return pa.array([self._record(each) for each in data.to_pylist()], self.record_type)

    def _record(self, data: bytes | None) -> object:
        if data is None:
            return None
        stream = BytesIO(data)
        try:
            record = schemaless_reader(stream, self._schema, None)
        except Exception:  # noqa: BLE001 - bytes that are no record may bring about anything
            return None
        return record if stream.tell() == len(data) else None


@functools.lru_cache(maxsize=16)
def avro_decoder(text: str) -> AvroDecoder:
    """The decoder for a schema; made once in a worker, which serves many tasks."""
    return AvroDecoder(text)


def _text(schema: object) -> str:
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        raise ConfigError(f"schema must be an Avro schema, as JSON or as a dict, not {schema!r}")
    try:
        # fastavro leaves notes of its own in a schema that it has parsed.
        return json.dumps({key: schema[key] for key in schema if not key.startswith("__")})
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"schema is not JSON: {error}") from error

"""Responses of the server as Arrow columns, without a Python object for each message."""

from __future__ import annotations

from typing import Any

from pubsub_aio._wire import schema
from pubsub_aio.errors import MissingExtraError

try:
    import ptars
    import pyarrow as pa
    import pyarrow.compute  # Arrow would import it with the first batch, while the loop waits
except ImportError as error:
    raise MissingExtraError("Arrow batches", "spark") from error

_MESSAGE_COLUMNS = ("message_id", "publish_time", "data", "attributes", "ordering_key")

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("publish_time", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("ordering_key", pa.string()),
        ("delivery_attempt", pa.int32()),
    ]
)
"""The columns of a batch; `delivery_attempt` is zero without a dead-letter policy."""


class ArrowCodec:
    """Decodes the messages of responses, many responses at once."""

    def __init__(self) -> None:
        config = ptars.PtarsConfig(timestamp_unit="us")
        pool = ptars.HandlerPool([schema.PullResponse.DESCRIPTOR.file], config=config)
        # Responses of streams and of pulls have their messages in the same field.
        self._handler = pool.get_for_message(schema.PullResponse.DESCRIPTOR)

    def decode(self, responses: list[bytes]) -> tuple[pa.RecordBatch, Any]:
        """The messages of these as rows, in order, and the column of their ack ids.

        To put messages of protobuf one after another is to merge them, so that many responses are
        decoded as one.
        """
        received = self._handler.list_to_record_batch([b"".join(responses)]).column(0).flatten()
        message = received.field("message")
        columns = [message.field(name) for name in _MESSAGE_COLUMNS]
        columns.append(received.field("delivery_attempt"))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), received.field("ack_id")

"""The messages of responses as columns: a list for each of the fields that everybody needs.

That takes half the time of reading them as objects. The other fields of a message are read when
somebody asks for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import service_error

_LEAST_BYTES = 2 * 1024  # with fewer it takes longer
_MOST_BYTES = 1024 * 1024
_LARGE = 4 * 1024  # bytes of a message; two copies of such would be too much to hold

_DATA = b"\x0a"  # the tag of a field of bytes with the number 1


class Columns(NamedTuple):
    """The messages of responses. All lists of these are of the same length.

    But for attempts: where there are none, the list is empty.
    """

    ack_ids: list[str]
    delivery_attempts: list[int]
    message_ids: list[str]
    sources: list[bytes]
    """The messages as they were sent, for `read`."""
    data: list[bytes]
    properties: Sequence[schema.StreamingPullResponse.SubscriptionProperties]
    """What was said of the subscription, each time that something was."""

    @staticmethod
    def read(source: bytes) -> schema.PubsubMessage:
        """A message with all its fields.

        Raises:
            ServiceError: One of them cannot be read.
        """
        try:
            return schema.PubsubMessage.FromString(source)
        except DecodeError as error:
            raise service_error("INTERNAL", f"a message cannot be read: {error}") from error


def columns_of(responses: bytes) -> Columns | None:
    """Responses, of a stream or of a pull, as columns; none if they are not worth it.

    That, too, if the lists do not have as many values as there are messages: then it cannot be
    told which belongs to which.

    Raises:
        DecodeError: These are no responses.
    """
    if not _LEAST_BYTES <= len(responses) <= _MOST_BYTES:
        return None
    merged = schema.MergedResponses.FromString(responses)
    received = merged.received_messages
    sources, ack_ids = received.message[:], received.ack_id[:]
    count = len(sources)
    if not count or len(ack_ids) != count or len(responses) > count * _LARGE:
        return None
    fields = schema.MergedMessage.FromString(b"".join(sources))
    message_ids = fields.message_id[:]  # none has no id: the server gives it one
    attempts = received.delivery_attempt[:]
    if len(message_ids) != count or (attempts and len(attempts) != count):
        return None
    data = fields.data[:]
    # All begin with data if the least and the greatest do. Otherwise one may have none, and another
    # have it twice, of which the last counts.
    if len(data) != count or not min(sources)[:1] == max(sources)[:1] == _DATA:
        return None
    return Columns(ack_ids, attempts, message_ids, sources, data, merged.subscription_properties)

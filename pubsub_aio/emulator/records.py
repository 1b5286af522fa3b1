"""Messages as bytes: out of a PublishRequest, into the log, into a response.

A record is what a subscriber is sent for one message, all but the ack id at its end:

    0a <length> | 12 <length> <PubsubMessage> | 0a 30 | (48 characters of ack id)

that is, field 1 of a PullResponse or StreamingPullResponse, holding a ReceivedMessage. Framing
happens once, at publish; delivering is joining bytes. The message inside is the publisher's own
bytes with `message_id` and `publish_time` appended: on the wire the last value of a field wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pubsub_aio._wire import schema
from pubsub_aio.emulator import ack_ids
from pubsub_aio.emulator.status import invalid

MAX_REQUEST_BYTES = 10 * 1024 * 1024
MAX_DATA_BYTES = 10_000_000
MAX_MESSAGES = 1_000
MAX_ATTRIBUTES = 100
MAX_KEY_BYTES = 256
MAX_VALUE_BYTES = 1_024
MAX_ORDERING_KEY_BYTES = 1_024

_ACK_ID_HEADER = bytes((0x0A, ack_ids.LENGTH))
_NO_ACK_ID = b"0" * ack_ids.LENGTH
# A body no longer than this cannot break a limit on attributes, so it need not be looked into.
_PLAIN = 200


def varint(number: int) -> bytes:
    """A non-negative number as the wire has it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bodies_of(data: bytes) -> list[bytes]:
    """The wire bytes of each message of a PublishRequest that is known to be well formed."""
    return list(schema.RawPublishRequest.FromString(data).messages)


def doubtful(data: bytes, bodies: Sequence[bytes]) -> Sequence[int]:
    """The positions of messages that must be looked into before they are accepted.

    A short message that begins with data that is not empty cannot break a limit, unless it has a
    reserved or an empty attribute key.
    """
    if b"goog" in data or b"\x0a\x00" in data:
        return range(len(bodies))
    return [at for at, body in enumerate(bodies) if not 2 < len(body) <= _PLAIN or body[0] != 0x0A]


def check_messages(request: schema.PublishRequest, positions: Iterable[int]) -> None:
    """Refuse a request that breaks a documented limit; looks into the messages at `positions`."""
    count = len(request.messages)
    if not count:
        raise invalid("messages", "at least one message is needed")
    if count > MAX_MESSAGES:
        raise invalid("messages", f"{count} is more than {MAX_MESSAGES} in one request")
    for index in positions:
        error = fault_of(request.messages[index])
        if error:
            raise invalid(f"messages[{index}].{error[0]}", error[1])


def fault_of(
    message: schema.PubsubMessage, *, most_attributes: int = MAX_ATTRIBUTES
) -> tuple[str, str] | None:
    """The field of a message that breaks a limit, and how."""
    if not message.data and not message.attributes:
        return "data", "a message must have data or at least one attribute"
    if len(message.data) > MAX_DATA_BYTES:
        return "data", f"{len(message.data)} bytes is more than {MAX_DATA_BYTES}"
    if len(message.attributes) > most_attributes:
        return "attributes", f"{len(message.attributes)} is more than {most_attributes}"
    if len(message.ordering_key.encode()) > MAX_ORDERING_KEY_BYTES:
        return "ordering_key", f"longer than {MAX_ORDERING_KEY_BYTES} bytes"
    for key, value in message.attributes.items():
        if not key:
            return "attributes", "a key must not be empty"
        if len(key.encode()) > MAX_KEY_BYTES:
            return "attributes", f"the key {key[:40]!r}... is longer than {MAX_KEY_BYTES} bytes"
        if len(value.encode()) > MAX_VALUE_BYTES:
            return "attributes", f"the value of {key!r} is longer than {MAX_VALUE_BYTES} bytes"
        if key.startswith("goog") and not key.startswith("googclient_"):
            return "attributes", f'the key {key!r} must not begin with "goog"'
    return None


def frame(bodies: Sequence[bytes], *, first_id: int, time: float) -> list[bytes]:
    """Records for messages that get ids from `first_id` on and were published at `time`."""
    seconds, micros = divmod(round(time * 1_000_000), 1_000_000)
    # Both parts are written even when zero: the parts of a message field are merged one by one.
    timestamp = b"\x08" + varint(seconds) + b"\x10" + varint(micros * 1_000)
    tail = b"\x22" + varint(len(timestamp)) + timestamp
    id_header = b"\x1a" + varint(len(str(first_id)))
    added = len(id_header) + len(str(first_id)) + len(tail)
    shape = b"%b%b" + id_header + b"%d" + tail.replace(b"%", b"%%") + _ACK_ID_HEADER
    headers: dict[int, bytes] = {}
    for size in set(map(len, bodies)):
        inner = b"\x12" + varint(size + added)
        total = len(inner) + size + added + len(_ACK_ID_HEADER) + ack_ids.LENGTH
        headers[size] = b"\x0a" + varint(total) + inner
    return [
        shape % (headers[len(body)], body, number) for number, body in enumerate(bodies, first_id)
    ]


def publish_response(first_id: int, count: int) -> bytes:
    """A PublishResponse with `count` consecutive ids."""
    header = b"\x0a" + varint(len(str(first_id)))
    return ((header + b"%d") * count) % tuple(range(first_id, first_id + count))


def deliver(records: Sequence[bytes], ids: Sequence[bytes]) -> bytes:
    """The part of a response that carries these records."""
    parts = [b""] * (2 * len(records))
    parts[::2] = records
    parts[1::2] = ids
    return b"".join(parts)


def deliver_attempt(record: bytes, ack_id: bytes, attempt: int) -> bytes:
    """The same for one record, with its delivery attempt."""
    start = 1
    while record[start] > 0x7F:
        start += 1
    rest = record[start + 1 :] + ack_id + b"\x18" + varint(attempt)
    return b"\x0a" + varint(len(rest)) + rest


def record_of(message: schema.PubsubMessage) -> bytes:
    """The record of a message that has its id and its time."""
    body = message.SerializeToString()
    rest = b"\x12" + varint(len(body)) + body + _ACK_ID_HEADER
    return b"\x0a" + varint(len(rest) + ack_ids.LENGTH) + rest


def message_of(record: bytes) -> schema.PubsubMessage:
    """The message that a record holds."""
    return schema.PullResponse.FromString(record + _NO_ACK_ID).received_messages[0].message


def check_request_size(data: bytes) -> None:
    """Refuse a request that is larger than the service takes."""
    if len(data) > MAX_REQUEST_BYTES:
        raise invalid("request", f"{len(data)} bytes is more than {MAX_REQUEST_BYTES}")

"""Messages as the wire bytes of a PublishRequest, and the ids that come back.

A message is encoded when it is published: as bytes it can be counted, joined with others and sent
again, and no protobuf object is made of it, which would take longer than all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import DecodeError

from pubsub_aio._wire import schema
from pubsub_aio.config import MAX_PUBLISH_BYTES
from pubsub_aio.errors import ConfigError

MAX_ATTRIBUTES = 100
MAX_KEY_BYTES = 256
MAX_VALUE_BYTES = 1_024
MAX_ORDERING_KEY_BYTES = 1_024

RESERVED, ALLOWED = "goog", "googclient_"

_MAX_NAMES = 200
_SHORT = 256  # bytes of a value, as most are


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_VARINTS = [_varint(number) for number in range(1 << 14)]

# What comes before a value, by its length in bytes; longer ones are out of the ordinary.
MESSAGE = [b"\x12" + size for size in _VARINTS]
"""Before a message."""
DATA = [b"", *(b"\x0a" + size for size in _VARINTS[1:])]
"""Before the data of a message."""
ATTRIBUTE: dict[str, list[bytes]] = {}
"""Before the value of an attribute, by its name. There are few names, and they are checked once."""


def varint(number: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    return _VARINTS[number] if number < len(_VARINTS) else _varint(number)


def encode(data: bytes, attributes: Mapping[str, str] | None, ordering_key: str) -> bytes:
    """A message as field 2 of a PublishRequest.

    Raises:
        ConfigError: The service would not take it; the field is named.
    """
    try:
        if ordering_key or type(data) is not bytes or not (data or attributes):
            return encode_with_care(data, attributes, ordering_key)
        head = DATA[len(data)]
        if not attributes:
            return b"".join((MESSAGE[len(head) + len(data)], head, data))
        if len(attributes) == 1 and type(attributes) is dict:  # as most, if any; as in `publish`
            (name,) = attributes
            content = attributes[name].encode()
            start = ATTRIBUTE[name][len(content)]
            size = len(head) + len(data) + len(start) + len(content)
            return b"".join((MESSAGE[size], head, data, start, content))
        tail = b""
        for name, value in attributes.items():
            content = value.encode()
            tail += ATTRIBUTE[name][len(content)] + content
        if len(attributes) > MAX_ATTRIBUTES:
            return encode_with_care(data, attributes, ordering_key)
        return b"".join((MESSAGE[len(head) + len(data) + len(tail)], head, data, tail))
    except (AttributeError, LookupError, TypeError, ValueError):
        return encode_with_care(data, attributes, ordering_key)


def encode_with_care(data: bytes, attributes: Mapping[str, str] | None, ordering_key: str) -> bytes:
    """The same for a message that is out of the ordinary, or not allowed."""
    content = _as_bytes(data)
    tail = b"" if attributes is None else _attributes(attributes)
    if not content and not tail:
        raise ConfigError("data: a message must have data or at least one attribute")
    if len(content) > MAX_PUBLISH_BYTES:
        raise ConfigError(
            f"data: {len(content):,} bytes are more than the service takes, {MAX_PUBLISH_BYTES:,}"
        )
    if ordering_key:
        tail += _field(b"\x2a", _text("ordering_key", ordering_key, MAX_ORDERING_KEY_BYTES))
    return _field(b"\x12", (_field(b"\x0a", content) if content else b"") + tail)


def decode(wire: bytes) -> schema.PubsubMessage:
    """The message that was encoded."""
    return schema.PublishRequest.FromString(wire).messages[0]


def request(topic: str, wires: Iterable[bytes]) -> bytes:
    """A PublishRequest of encoded messages."""
    return b"".join([_field(b"\x0a", topic.encode()), *wires])


def message_ids(reply: bytes, count: int) -> list[str] | None:
    """The ids in a PublishResponse; none if it is not an answer to so many messages."""
    try:
        found = schema.PublishResponse.FromString(reply).message_ids[:]
    except DecodeError:
        return None
    return found if len(found) == count else None


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + varint(len(value)) + value


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    hint = ": encode it" if isinstance(data, str) else ""
    raise ConfigError(f"data must be bytes, not {type(data).__name__}{hint}")


def _attributes(attributes: Mapping[str, str]) -> bytes:
    if not isinstance(attributes, Mapping):
        raise ConfigError(f"attributes must be a dict of strings, not {attributes!r}")
    if len(attributes) > MAX_ATTRIBUTES:
        raise ConfigError(
            f"attributes: {len(attributes)} are more than the service takes, {MAX_ATTRIBUTES}"
        )
    return b"".join(_attribute(key, value) for key, value in attributes.items())


def _attribute(key: str, value: str) -> bytes:
    name = _field(b"\x0a", _text("attributes: a key", key, MAX_KEY_BYTES)) + b"\x12"
    if not key:
        raise ConfigError("attributes: a key must not be empty")
    if key.startswith(RESERVED) and not key.startswith(ALLOWED):
        raise ConfigError(
            f"attributes: keys that begin with {RESERVED!r} are reserved, rename {key!r}"
        )
    content = _text(f"attributes[{key!r}]", value, MAX_VALUE_BYTES)
    if key not in ATTRIBUTE:
        if len(ATTRIBUTE) >= _MAX_NAMES:
            ATTRIBUTE.clear()
        ATTRIBUTE[key] = [_head(name, size) for size in range(_SHORT)]
    return _head(name, len(content)) + content


def _head(name: bytes, size: int) -> bytes:
    """What comes before a value of that many bytes."""
    length = varint(size)
    return b"\x12" + varint(len(name) + len(length) + size) + name + length


def _text(name: str, value: object, most: int) -> bytes:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {value!r}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} must be text that can be UTF-8: {error}") from error
    if len(encoded) > most:
        raise ConfigError(
            f"{name} has {len(encoded):,} bytes, more than the service takes, {most:,}"
        )
    return encoded

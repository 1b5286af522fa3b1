"""What was published to one topic of the load server: counted as it comes, read when it is over."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pubsub_aio._wire import schema
from tests.bench.turn import cpu_seconds

KEY = "key"
"""The attribute that every message has."""

ID = 16
"""Characters in a message id."""

_NUMBER = 16
_REQUEST = b"@" * 8
_INDEXES = [b"%b%08d" % (_REQUEST, index) for index in range(1_000)]
_GRPC_IDS = b"".join(b"\x0a%c%b" % (ID, identity) for identity in _INDEXES)
_JSON_IDS = b"".join(b',"%b"' % identity for identity in _INDEXES)
_GRPC_WIDTH, _JSON_WIDTH = ID + 2, ID + 3
_JSON_DATA = b'"data":'


def message(number: int, size: int) -> tuple[bytes, str]:
    """The data of a message, `size` bytes that begin with its number, and its attribute's value."""
    return b"%0*d" % (_NUMBER, number) + b"x" * (size - _NUMBER), f"value-{number:08d}"


@dataclass(frozen=True)
class _Request:
    body: bytes
    is_json: bool
    counted: int


class Inbox:
    """A topic that keeps the requests as they came.

    A message costs the server next to nothing: protobuf counts those of a request and leaves them
    as bytes, and in the answer, which is made once, only the request's number is new, in all
    message ids at once. Whether each message is as it should be is looked at afterwards.

    Args:
        topic: Its full name.
        size: Bytes of data in a message.
    """

    def __init__(self, topic: str, *, size: int) -> None:
        self._topic = topic
        self._size = size
        self._requests: list[_Request] = []
        self._messages = 0
        self.ids = ""
        """The message ids that the client has got, one after another, as it has published."""

    def publish(self, body: bytes) -> bytes:
        """Take an encoded PublishRequest; returns the encoded answer."""
        count = len(schema.RawPublishRequest.FromString(body).messages)
        assert count <= len(_INDEXES), "the service takes no more than 1,000 messages a request"
        number = self._take(_Request(body, is_json=False, counted=count))
        return _GRPC_IDS[: _GRPC_WIDTH * count].replace(_REQUEST, number)

    def publish_json(self, body: bytes) -> bytes:
        """Take a request over REST."""
        # No base64 text has a quote in it; that none of these is anything else is looked at later.
        count = body.count(_JSON_DATA)
        assert count <= len(_INDEXES), "the service takes no more than 1,000 messages a request"
        number = self._take(_Request(body, is_json=True, counted=count))
        ids = _JSON_IDS[1 : _JSON_WIDTH * count].replace(_REQUEST, number)
        return b'{"messageIds":[%b]}' % ids

    def _take(self, request: _Request) -> bytes:
        number = b"%08d" % len(self._requests)
        self._requests.append(request)
        self._messages += request.counted
        return number

    def totals(self) -> dict[str, float]:
        """What came so far, and the CPU seconds of this process."""
        return {
            "messages": self._messages,
            "requests": len(self._requests),
            "server_cpu": cpu_seconds(),
        }

    def checked(self) -> dict[str, float]:
        """Read everything that came.

        Returns:
            The messages and the bytes of data in them, and how many were `wrong`: not as they were
            published, there twice, missing, or known to the client by another's message id.
        """
        wrong = data_bytes = messages = 0
        given: dict[int, str] = {}
        for number, request in enumerate(self._requests):
            found = list(_json_messages(request.body) if request.is_json else self._read(request))
            wrong += abs(len(found) - request.counted)
            for index, (data, attributes) in enumerate(found):
                identity = int(data[:_NUMBER]) if data[:_NUMBER].isdigit() else -1
                expected, value = message(identity, self._size)
                wrong += (data, attributes) != (expected, {KEY: value}) or identity in given
                given[identity] = f"{number:08d}{index:08d}"
                data_bytes += len(data)
            messages += len(found)
        starts = range(0, len(self.ids), ID)
        known = {number: self.ids[start : start + ID] for number, start in enumerate(starts)}
        wrong += len(given.items() ^ known.items())
        return {"messages": messages, "data_bytes": data_bytes, "wrong": wrong}

    def _read(self, request: _Request) -> Iterator[tuple[bytes, Mapping[str, str]]]:
        parsed = schema.PublishRequest.FromString(request.body)
        if parsed.topic == self._topic:
            for each in parsed.messages:
                yield each.data, dict(each.attributes)


def _json_messages(body: bytes) -> Iterator[tuple[bytes, Mapping[str, str]]]:
    for each in json.loads(body)["messages"]:
        yield base64.b64decode(each["data"]), each["attributes"]

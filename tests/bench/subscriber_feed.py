"""What one subscription of the load server sends, and what it is told about it."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import re
import resource
import time
from collections.abc import Callable, Mapping

from pubsub_aio._wire import schema

SIZE = 100
"""Bytes of data in a message."""

STAMP = 20
"""The first bytes of a stamped message's data: when it was sent, on the machine's clock."""

OWN_ID = "{its message id}"
"""The value of an attribute that is to be another for each message."""

_RESPONSE = "@" * 8
_CLOCK = b"#" * STAMP
_MARK = "RID"
_ID = re.compile(rb"RID([0-9]{16})")
_PADDING = "UAYWLF1GSFE3GQhoUQ5PXiM_NSAoRRIICBQFfH1xU1t1Xl8aB1ENGXJ8ZnQ" * 3
_ACK_ID = 184
_SENT_TIME = 1_750_000_000
_ATTRIBUTES = {"key": "value"}

_Attributes = tuple[tuple[str, str], ...]


class Feed:
    """A subscription whose messages are made as they are sent.

    The wire bytes of a response are made once. In the copy that is sent only the response's number
    is new, in every message id and ack id at once. So a message costs the server next to nothing,
    and still no two are alike.

    Args:
        per_response: Messages in each response of a stream.
        window: The most messages outstanding, whatever the client allows.
        held: How many messages the client keeps; no ack is awaited for them.
        stamped: Whether the data begins with the time it was sent at.
        attributes: Those of each message, see `OWN_ID`; one unless told.
    """

    def __init__(
        self,
        *,
        per_response: int,
        window: int | None = None,
        held: int = 0,
        stamped: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self.per_response = per_response
        self._window = window
        self._held = held
        self._stamped = stamped
        self._attributes = tuple((attributes or _ATTRIBUTES).items())
        self._released = 0
        self._sizes: list[int] = []
        self._sent = 0
        self._acked: set[bytes] = set()
        self._acks = self._ack_requests = 0
        self._modacks = self._modack_requests = self._nacks = 0
        self._changed = asyncio.Event()
        self.listeners: set[Callable[[], None]] = set()
        """Called whenever there may be room for more."""

    @property
    def left(self) -> int:
        """Messages that may be sent and were not."""
        return self._released - self._sent

    def has_room(self, limit: int) -> bool:
        """Whether the next response may be sent to a client that allows `limit` messages."""
        if self._window is not None:
            limit = min(limit, self._window)
        outstanding = self._sent - len(self._acked) - self._nacks
        return self.left > 0 and (outstanding + self.per_response <= limit or not outstanding)

    def take(self) -> bytes:
        """The next response of a stream."""
        template = _grpc_response(self.per_response, self._attributes)
        response = template.replace(_RESPONSE.encode(), self._number())
        self._count(self.per_response)
        if self._stamped:
            # Stamped last, and with the width of the field: nothing else is patched after it.
            response = response.replace(_CLOCK, b"%0*d" % (STAMP, time.monotonic_ns()))
        return response

    def take_json(self, most: int) -> bytes:
        """The answer to a pull over REST."""
        size = min(most, self.left)
        template = _json_response(size, self._attributes)
        response = template.replace(_RESPONSE.encode(), self._number())
        self._count(size)
        return response

    def _number(self) -> bytes:
        return b"%08d" % len(self._sizes)

    def _count(self, size: int) -> None:
        self._sizes.append(size)
        self._sent += size
        if not self.left:
            self.wake()

    def ack(self, request: bytes) -> None:
        """Count the ack ids in an encoded request."""
        found = _ID.findall(request)
        self._acks += len(found)
        self._ack_requests += 1
        self._acked.update(found)
        self.wake()

    def modack(self, request: bytes, *, nack: bool) -> None:
        """Count the ack ids in an encoded request whose deadline is changed."""
        found = request.count(_MARK.encode())
        self._modacks += found
        self._modack_requests += 1
        if nack:
            self._nacks += found
            self.wake()

    async def run(self, count: int) -> None:
        """Send `count` messages more; return once all that are not to be held were acked."""
        self._released += count
        self.wake()
        wanted = self._released - self._held
        await self.until(lambda: not self.left and len(self._acked) >= wanted)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what acks, nacks and releases may bring about."""
        while not condition():
            await self._changed.wait()

    def wake(self) -> None:
        """Have every condition looked at again."""
        for listener in list(self.listeners):
            listener()
        self._changed.set()
        self._changed = asyncio.Event()

    def totals(self) -> dict[str, float]:
        """What was sent and told so far, and the CPU seconds of this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "sent": self._sent,
            "acked": len(self._acked),
            "acks": self._acks,
            "ack_requests": self._ack_requests,
            "modacks": self._modacks,
            "modack_requests": self._modack_requests,
            "nacks": self._nacks,
            "server_cpu": usage.ru_utime + usage.ru_stime,
        }

    def wrong(self) -> int:
        """How many messages were sent and not acked, or acked and not sent."""
        sent = {
            b"%08d%08d" % (number, index)
            for number, size in enumerate(self._sizes)
            for index in range(size)
        }
        return len(sent ^ self._acked)


@functools.cache
def _received(index: int, attributes: _Attributes) -> schema.ReceivedMessage:
    """A message of a response, with marks where the response's number and the time belong."""
    identity = f"{_RESPONSE}{index:08d}"
    ack_id = f"{_PADDING[: _ACK_ID - len(_MARK) - len(identity)]}{_MARK}{identity}"
    message = schema.PubsubMessage(
        data=_CLOCK + b"x" * (SIZE - STAMP),
        attributes={name: value.replace(OWN_ID, identity) for name, value in attributes},
        message_id=identity,
    )
    message.publish_time.FromSeconds(_SENT_TIME)
    return schema.ReceivedMessage(ack_id=ack_id, message=message)


@functools.cache
def _grpc_response(size: int, attributes: _Attributes) -> bytes:
    received = [_received(index, attributes) for index in range(size)]
    response = schema.StreamingPullResponse(received_messages=received)
    response.subscription_properties.SetInParent()
    return response.SerializeToString()


@functools.cache
def _json_response(size: int, attributes: _Attributes) -> bytes:
    # One base64 text for all: the data of the messages is the same.
    data = base64.b64encode(_received(0, attributes).message.data).decode()
    messages = [
        {
            "ackId": received.ack_id,
            "message": {
                "data": data,
                "attributes": dict(received.message.attributes),
                "messageId": received.message.message_id,
                "publishTime": received.message.publish_time.ToJsonString(),
            },
        }
        for received in [_received(index, attributes) for index in range(size)]
    ]
    return json.dumps({"receivedMessages": messages} if messages else {}).encode()

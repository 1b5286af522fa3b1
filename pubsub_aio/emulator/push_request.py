"""What is sent to a push endpoint for a message: headers and body."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pubsub_aio._wire import schema

USER_AGENT = "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)"

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")  # no line ends: they would begin a header

# What says how the request itself is sent is not for publishers to choose.
_OF_THE_CONNECTION = frozenset(
    {
        *("connection", "content-length", "expect", "host", "keep-alive", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)


class PushRequest(NamedTuple):
    """A POST to a push endpoint."""

    headers: dict[str, str]
    body: bytes


def request_for(config: schema.Subscription, received: schema.ReceivedMessage) -> PushRequest:
    """The request that delivers a message as a subscription's `push_config` says."""
    if config.push_config.HasField("no_wrapper"):
        return _unwrapped(config, received.message)
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
    return PushRequest(headers, _wrapped(config.name, received))


def _wrapped(subscription: str, received: schema.ReceivedMessage) -> bytes:
    source = received.message
    published = source.publish_time.ToJsonString()
    message: dict[str, object] = {}
    if source.attributes:
        message["attributes"] = dict(source.attributes)
    if source.data:
        message["data"] = base64.b64encode(source.data).decode()
    # Both spellings are sent.
    message["messageId"] = message["message_id"] = source.message_id
    if source.ordering_key:
        message["orderingKey"] = source.ordering_key
    message["publishTime"] = message["publish_time"] = published
    body: dict[str, object] = {"message": message, "subscription": subscription}
    if received.delivery_attempt:
        body["deliveryAttempt"] = received.delivery_attempt
    return json.dumps(body).encode()


def _unwrapped(config: schema.Subscription, message: schema.PubsubMessage) -> PushRequest:
    named = {
        "content-type": ("Content-Type", "application/octet-stream"),
        "user-agent": ("User-Agent", USER_AGENT),
    }
    if config.push_config.no_wrapper.write_metadata:
        for name, value in _metadata(config.name, message):
            if _NAME.fullmatch(name) and _VALUE.fullmatch(value):
                named[name.lower()] = (name, value)
    return PushRequest(dict(named.values()), message.data)


def _metadata(subscription: str, message: schema.PubsubMessage) -> Iterator[tuple[str, str]]:
    """Headers that tell of the message; the later of one name is the right one."""
    for name, value in message.attributes.items():
        if name.lower() not in _OF_THE_CONNECTION:
            yield name, value
    yield "x-goog-pubsub-subscription-name", subscription
    yield "x-goog-pubsub-message-id", message.message_id
    yield "x-goog-pubsub-publish-time", message.publish_time.ToJsonString()
    if message.ordering_key:
        yield "x-goog-pubsub-ordering-key", message.ordering_key

"""A call as an HTTP request with JSON, and its answer back, by the mapping Google documents."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from google.protobuf import json_format

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import RPCS, Rpc
from pubsub_aio._wire.transport import service_error
from pubsub_aio.errors import ServiceError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    Json = dict[str, Any]

_FOREIGN = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
    407: "UNAVAILABLE",
    408: "DEADLINE_EXCEEDED",
    429: "UNAVAILABLE",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}
"""What an answer means that is not the service's own: a proxy's, say. As gRPC reads it."""

_ACK_FAILURES = ("PERMANENT_FAILURE_", "TRANSIENT_FAILURE_")


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Requests


class _Route(NamedTuple):
    """Where a call is sent: a verb, and a path with a field of the request in it."""

    verb: str
    head: str
    field: list[str]
    shape: re.Pattern[str]
    tail: str


def _route(text: str) -> _Route:
    verb, _, template = text.partition(" ")
    head, _, rest = template.partition("{")
    variable, _, tail = rest.partition("}")
    field, _, shape = variable.partition("=")
    return _Route(
        verb, head, field.split("."), re.compile(shape.replace("*", "[^/]+"), re.DOTALL), tail
    )


_ROUTES = {rpc.name: [_route(text) for text in rpc.http] for rpc in RPCS}


def as_http(rpc: Rpc, request: Message) -> tuple[str, str, bytes]:
    """A request as its verb, its path with a query, and its body.

    Raises:
        InvalidRequestError: There is no path for such a name, or no JSON for such a value.
    """
    try:
        fields: Json = _published(request) if rpc.name == "Publish" else {}
        fields = fields or json_format.MessageToDict(request, descriptor_pool=schema.pool)
    except (ValueError, json_format.Error) as error:  # such as a time beyond the year 9999
        raise service_error("INVALID_ARGUMENT", str(error)) from error
    for route in _ROUTES[rpc.name]:
        name = _take(fields, route.field)
        if route.shape.fullmatch(name):
            break
        _put(fields, route.field, name)
    else:
        raise _no_name(route, name)
    body: Json | None = None
    if route.verb not in ("GET", "DELETE"):
        body, fields = (fields, {}) if rpc.body == "*" else (fields.pop(rpc.body, {}), fields)
    query = urlencode(list(_query(fields)))
    path = f"{route.head}{quote(name, safe='/')}{route.tail}{'?' * bool(query)}{query}"
    return route.verb, path, b"" if body is None else json.dumps(body).encode()


def _published(request: Any) -> Json:
    """A Publish's fields, five times as fast as protobuf writes them; none if not as usual."""
    messages = []
    for message in request.messages:
        if message.message_id or message.HasField("publish_time"):  # the service's to give
            return {}
        fields: Json = {"data": base64.b64encode(message.data).decode()}
        if message.attributes:
            fields["attributes"] = dict(message.attributes)
        if message.ordering_key:
            fields["orderingKey"] = message.ordering_key
        messages.append(fields)
    return {"topic": request.topic, "messages": messages}


def _no_name(route: _Route, name: str) -> ServiceError:
    named = ".".join(route.field)
    return service_error("INVALID_ARGUMENT", f"{named} {name!r} is no name of a resource")


def _take(fields: Json, path: list[str]) -> str:
    """Remove a field, for it goes into the path; empty if it is not set."""
    *parents, last = path
    for parent in parents:
        fields = fields.setdefault(parent, {})
    name: str = fields.pop(last, "")
    return name


def _put(fields: Json, path: list[str], name: str) -> None:
    *parents, last = path
    for parent in parents:
        fields = fields[parent]
    fields[last] = name


def _query(fields: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in fields.items():
        if isinstance(value, dict):
            yield from _query(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value)


# Answers


def _load(body: bytes) -> Json | None:
    """The JSON object that an answer is, if it is one."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def parse(rpc: Rpc, body: bytes) -> Message:
    """The reply that is in an answer.

    Raises:
        ServiceError: It is no reply of the service; somebody else may have answered.
    """
    fields = _load(body)
    if fields is None:
        raise service_error("UNKNOWN", f"the answer is not the service's: {_shown(body)}")
    if rpc.name == "Pull" and (pulled := _pulled(fields)) is not None:
        return pulled
    reply: Message = getattr(schema, rpc.response)()
    try:
        json_format.ParseDict(
            fields, reply, ignore_unknown_fields=True, descriptor_pool=schema.pool
        )
    except (json_format.ParseError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise service_error("UNKNOWN", f"the answer is not the service's: {error}") from error
    return reply


def _pulled(fields: Json) -> schema.PullResponse | None:
    """A Pull's reply, five times as fast as protobuf reads it; None if it is not as usual."""
    response = schema.PullResponse()
    try:
        for received in fields.get("receivedMessages", ()):
            sent = received["message"]
            message = schema.PubsubMessage(
                data=base64.b64decode(sent.get("data", ""), validate=True),
                attributes=sent.get("attributes"),
                message_id=sent["messageId"],
                ordering_key=sent.get("orderingKey", ""),
            )
            message.publish_time.FromJsonString(sent["publishTime"])
            response.received_messages.add(
                ack_id=received["ackId"],
                message=message,
                delivery_attempt=received.get("deliveryAttempt", 0),
            )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return response


def gave_up(answer: Answer) -> bool:
    """Whether the server says that it has waited long enough."""
    return answer.status == 504 and refusal(answer).code == "DEADLINE_EXCEEDED"


def refusal(answer: Answer) -> ServiceError:
    """The error that an answer stands for."""
    retry_after = answer.headers.get("Retry-After", "")
    delay = float(retry_after) if retry_after.isdecimal() else None
    error = (_load(answer.body) or {}).get("error")
    code = error.get("status") if isinstance(error, dict) else None
    if not isinstance(error, dict) or not isinstance(code, str):
        code = _FOREIGN.get(answer.status, "UNKNOWN")
        text = f"HTTP {answer.status}, and not the service's answer: {_shown(answer.body)}"
        return service_error(code, text, retry_delay=delay)
    ack_errors: dict[str, str] = {}
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        kind = detail.get("@type") if isinstance(detail, dict) else None
        if kind == "type.googleapis.com/google.rpc.RetryInfo":
            delay = _seconds(detail.get("retryDelay"))
        elif kind == "type.googleapis.com/google.rpc.ErrorInfo":
            ack_errors.update(_ack_failures(detail.get("metadata")))
    message = str(error.get("message", ""))
    return service_error(code, message, retry_delay=delay, ack_errors=ack_errors)


def _ack_failures(metadata: object) -> Iterator[tuple[str, str]]:
    """The ack ids among what an ErrorInfo tells; other errors have other things to tell."""
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if str(value).startswith(_ACK_FAILURES):
            yield str(key), str(value)


def _seconds(duration: object) -> float | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(duration))
    return float(found[1]) if found else None


def _shown(body: bytes) -> str:
    return repr(body[:200].decode(errors="replace"))

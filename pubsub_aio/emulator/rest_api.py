"""The service over HTTP/1.1 and JSON, by the HTTP mapping that Google documents."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from google.protobuf import json_format
from google.protobuf.message import Message

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import RPCS, Rpc
from pubsub_aio.emulator.grpc_api import status_of
from pubsub_aio.emulator.service import fault_in_emulator
from pubsub_aio.emulator.status import Code, StatusError, invalid

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from pubsub_aio.emulator.service import Service

    # Deeper levels are protobuf's to check.
    Json = dict[str, Any] | list[Any] | str | int | float | bool | None

log = logging.getLogger("pubsub_aio.emulator")

HTTP_STATUS = {
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}

# Query parameters that every Google API takes and that say nothing about the request.
_SYSTEM = re.compile(
    r"\$.*|alt|fields|key|access_token|oauth_token|prettyPrint|quotaUser|callback"
    r"|upload_protocol|uploadType"
)

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_PUBLISHED = {"data", "attributes", "orderingKey"}


class _Route(NamedTuple):
    verb: str
    path: re.Pattern[str]
    field: str
    rpc: Rpc


def _routes() -> Iterator[_Route]:
    for rpc in RPCS:
        for route in rpc.http:
            verb, _, template = route.partition(" ")
            head, _, rest = template.partition("{")
            variable, _, tail = rest.partition("}")
            field, _, shape = variable.partition("=")
            name = re.escape(shape).replace(r"\*", "[^/]+")
            path = re.compile(f"{re.escape(head)}({name}){re.escape(tail)}")
            yield _Route(verb, path, field, rpc)


# The longest template first: a name may itself contain what follows it in another.
ROUTES = sorted(_routes(), key=lambda route: -len(route.path.pattern))


class RestApi:
    """Answers HTTP requests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        *,
        principal: str | None = None,
    ) -> tuple[int, bytes]:
        """The HTTP status and the JSON of the answer to a request."""
        try:
            rpc, request = _parse(verb, path, query, body)
            data = request.SerializeToString()
            reply = await self._service.call(rpc, data, principal=principal)
            return 200, _render(rpc, reply)
        except StatusError as error:
            return self.refuse(error)
        except Exception as bug:
            log.exception("%s %s failed", verb, path)
            return self.refuse(fault_in_emulator(bug))

    @staticmethod
    def refuse(error: StatusError) -> tuple[int, bytes]:
        """The HTTP status and the JSON of a refusal."""
        return HTTP_STATUS[error.code], _render_error(error)


def _parse(verb: str, path: str, query: Mapping[str, str], body: bytes) -> tuple[Rpc, Message]:
    """Which RPC is asked for, and its request."""
    for route in ROUTES:
        match = route.path.fullmatch(path) if route.verb == verb else None
        if match:
            break
    else:
        raise StatusError(Code.NOT_FOUND, f"no method is at {verb} {path}")
    rpc = route.rpc
    request = getattr(schema, rpc.request)()
    fields = _load(body) if verb not in ("GET", "DELETE") else {}
    if rpc.body != "*":
        fields = {rpc.body: fields}
    for key, value in query.items():
        if not _SYSTEM.fullmatch(key):
            _put(fields, key, value)
    _fill(request, fields)
    target = request
    *parents, field = route.field.split(".")
    for parent in parents:
        target = getattr(target, parent)
    setattr(target, field, match.group(1))
    return rpc, request


def _load(body: bytes) -> dict[str, Json]:
    if not body.strip():
        return {}
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid("body", f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise invalid("body", "must be a JSON object")
    return fields


def _put(fields: dict[str, Json], key: str, value: str) -> None:
    """Set a field by its dotted path, as query parameters name fields."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = fields.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise invalid(key, "is given twice")
        fields = inner
    fields[last] = value


def _fill(request: Message, fields: dict[str, Json]) -> None:
    """Set a request's fields from JSON."""
    if isinstance(request, schema.PublishRequest) and _fill_publish(request, fields):
        return
    if "update_mask" in fields:
        fields["updateMask"] = fields.pop("update_mask")
    mask = fields.get("updateMask")
    if isinstance(mask, str):
        # Either spelling of a field's name is accepted; protobuf knows one.
        fields["updateMask"] = re.sub(r"_([a-z])", lambda found: found[1].upper(), mask)
    try:
        _check_base64(fields, cast("Descriptor", request.DESCRIPTOR))
        json_format.ParseDict(fields, request, descriptor_pool=schema.pool)
    except (json_format.ParseError, RecursionError) as error:
        raise invalid("body", str(error)) from error


def _check_base64(fields: Mapping[str, Json], kind: Descriptor, path: str = "") -> None:
    """Refuse bytes that are not base64, at any depth: protobuf passes over what is wrong there."""
    for name, value in fields.items():
        field = kind.fields_by_camelcase_name.get(name) or kind.fields_by_name.get(name)
        if field is None:
            continue
        many = isinstance(value, list)
        for index, one in enumerate(value if isinstance(value, list) else [value]):
            where = f"{path}{name}[{index}]" if many else f"{path}{name}"
            if field.type == field.TYPE_BYTES and isinstance(one, str):
                if not _BASE64.fullmatch(one) or len(one.rstrip("=")) % 4 == 1:
                    raise invalid(where, f"{one[:40]!r} is not base64")
            elif field.message_type and isinstance(one, dict):
                _check_base64(one, field.message_type, f"{where}.")


def _fill_publish(request: schema.PublishRequest, fields: dict[str, Json]) -> bool:
    """The same, quicker, for the shape that every publisher sends; false if it is another."""
    messages = fields.get("messages")
    if set(fields) != {"messages"} or not isinstance(messages, list):
        return False
    try:
        for message in messages:
            if not isinstance(message, dict) or not message.keys() <= _PUBLISHED:
                raise TypeError
            request.messages.add(
                data=base64.b64decode(message.get("data", ""), validate=True),
                attributes=message.get("attributes"),
                ordering_key=message.get("orderingKey"),
            )
    except (TypeError, ValueError):
        request.Clear()  # the careful way accepts it or finds out what is wrong
        return False
    return True


def _render(rpc: Rpc, reply: bytes) -> bytes:
    if rpc.name == "Pull":
        return _json(_pulled(schema.PullResponse.FromString(reply)))
    message = getattr(schema, rpc.response).FromString(reply)
    return _json(json_format.MessageToDict(message, descriptor_pool=schema.pool))


def _pulled(response: schema.PullResponse) -> dict[str, Json]:
    received: list[Json] = []
    for item in response.received_messages:
        message: dict[str, Json] = {
            "messageId": item.message.message_id,
            "publishTime": item.message.publish_time.ToJsonString(),
        }
        if item.message.data:
            message["data"] = base64.b64encode(item.message.data).decode()
        if item.message.attributes:
            message["attributes"] = dict(item.message.attributes)
        if item.message.ordering_key:
            message["orderingKey"] = item.message.ordering_key
        entry: dict[str, Json] = {"ackId": item.ack_id, "message": message}
        if item.delivery_attempt:
            entry["deliveryAttempt"] = item.delivery_attempt
        received.append(entry)
    return {"receivedMessages": received} if received else {}


def _render_error(error: StatusError) -> bytes:
    shown: dict[str, Json] = {
        "code": HTTP_STATUS[error.code],
        "message": error.message,
        "status": error.code.name,
    }
    details = json_format.MessageToDict(status_of(error), descriptor_pool=schema.pool).get(
        "details"
    )
    if details:
        shown["details"] = details
    return _json({"error": shown})


def _json(value: Json) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"

"""Requests that a client may send, sensible or not: strategies over every field of every RPC.

Every value is mostly one that the service accepts, or requests would seldom get past their names.
"""

from __future__ import annotations

import base64
import functools
import json
import urllib.parse
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import BY_NAME, RPCS, Rpc
from pubsub_aio.emulator.clock import START

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

PROJECT = "projects/fuzz"
TOPICS = [f"{PROJECT}/topics/{name}" for name in ("one", "two", "dead")]
SUBSCRIPTIONS = [f"{PROJECT}/subscriptions/{name}" for name in ("plain", "ordered", "once", "dlq")]
SNAPSHOTS = [f"{PROJECT}/snapshots/{name}" for name in ("snap", "shot")]
SHAPE = '{"type": "record", "name": "Shape", "fields": [{"name": "corners", "type": "int"}]}'
SCHEMAS = [f"{PROJECT}/schemas/shape", f"{PROJECT}/schemas/shape@1a2b3c4d"]
FIELD = FieldDescriptor
DAY = 86_400

# What is seldom or never accepted

_ODD_NAMES = [
    "",
    "/",
    "garbage",
    f"{PROJECT}/",
    "projects//topics/one",
    f"{PROJECT}/topics/",
    f"{PROJECT}/topics/googled",
    f"{PROJECT}/topics/one/more",
    f"{PROJECT}/topics/" + "a" * 256,
    f"{PROJECT}/topics/" + "a" * 30_000,
    "projects/-/subscriptions/one",
    f"{PROJECT}/topics/%2e%2e",
    f"{PROJECT}/snapshots/\u00e4\u00f6\u00fc",
    f"{PROJECT}/topics/o\x00ne",
    "_deleted-topic_",
]
_ODD_FILTERS = ["attributes.colour =", 'attributes.a = "\u00e9\\u0041\\x"', "a" * 257, "\x00"]
_ODD_FILTERS += ["NOT " * 60 + "attributes:a", "(" * 200 + "attributes:a" + ")" * 200]
_TOKENS = [base64.b64encode(name.encode()).decode() for name in [*TOPICS, *SUBSCRIPTIONS, "\x00"]]
_INT32 = [0, -1, 601, 1_001, 2**31 - 1, -(2**31)]
_INT64 = [*_INT32, 2**53 + 1, 2**63 - 1, -(2**63)]
_SECONDS = [0, 1, -1, 599, 2_678_401, 253_402_300_799, 253_402_300_800, 315_576_000_001]
_SECONDS += [-62_135_596_801, 2**63 - 1, -(2**63)]
_NANOS = [0, 1, -1, 999_999_999, 1_000_000_000, 2**31 - 1, -(2**31)]
_odd_ids = ["", "garbage", "0" * 48, "f" * 48, "0" * 47, "\u00e9" * 48, "a" * 1_000]
_everything = [*_ODD_NAMES, *_ODD_FILTERS, *_TOKENS, *TOPICS, *SUBSCRIPTIONS, *SNAPSHOTS, *_odd_ids]
odd_text = st.one_of(st.sampled_from(_everything), st.text(max_size=20))


def mostly(
    good: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], *, one_in: int = 16
) -> st.SearchStrategy[Any]:
    return st.integers(1, one_in).flatmap(lambda n: odd if n == 2 else good)


def _some(*values: object) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


# What is mostly accepted

ack_ids = st.integers(0, 40).map("ack:{}".format)
"""An id of the form `ack:N` stands for one that was issued; see `with_ack_ids`."""


def _new(kind: str) -> list[str]:
    return [f"{PROJECT}/{kind}/new-{number}" for number in range(3)]


_GOOD: dict[str, st.SearchStrategy[Any]] = {
    "topic": _some(*TOPICS),
    "dead_letter_topic": _some(*TOPICS),
    "subscription": _some(*SUBSCRIPTIONS),
    "snapshot": _some(*SNAPSHOTS),
    "Topic.name": _some(*TOPICS, *_new("topics")),
    "Subscription.name": _some(*SUBSCRIPTIONS, *_new("subscriptions"), ""),
    "Snapshot.name": _some(*SNAPSHOTS),
    "CreateSnapshotRequest.name": _some(*SNAPSHOTS, *_new("snapshots"), ""),
    "name": _some(*SCHEMAS),
    "schema_id": _some("shape", "new-0"),
    "SchemaSettings.schema": _some(*SCHEMAS[:1]),
    "definition": _some(SHAPE, SHAPE, "message Shape { optional int32 corners = 1; }"),
    "type_": _some(2, 2, 1),
    "encoding": _some(1, 2),
    "message": _some(b"\x06", b'{"corners": 3}', b"\x08\x03"),
    "resource": _some(*TOPICS, *SUBSCRIPTIONS, *SCHEMAS),
    "project": _some(PROJECT, PROJECT, "projects/other"),
    "parent": _some(PROJECT),
    "filter": _some("", "attributes:colour", 'attributes.a = "b" AND NOT attributes:colour'),
    "page_token": _some("", *_TOKENS[:4]),
    "page_size": _some(0, 1, 2, 1_000),
    "ack_ids": ack_ids,
    "modify_deadline_ack_ids": ack_ids,
    "modify_deadline_seconds": _some(0, 10, 600),
    "ack_deadline_seconds": _some(0, 10, 60, 600),
    "stream_ack_deadline_seconds": _some(10, 60, 600),
    "max_outstanding_messages": _some(-1, 0, 1, 1_000),
    "max_outstanding_bytes": _some(-1, 0, 1, 1_000),
    "max_messages": _some(1, 2, 1_000),
    "max_delivery_attempts": _some(0, 5, 100),
    "ordering_key": _some("", "k", "q"),
    "client_id": _some("", "x", "y"),
    "data": st.binary(min_size=1, max_size=5),
    "push_endpoint": _some("", "http://127.0.0.1:9/refused", "https://a..b/x"),
    "service_account_email": st.just("a@b.com"),
    "table": _some("p.d.t", "projects/p/instances/i/tables/t"),
    "bucket": st.just("bucket"),
    "ttl": _some(DAY, 31 * DAY),
    "minimum_backoff": _some(0, 10),
    "maximum_backoff": _some(60, 600),
    "message_retention_duration": _some(600, DAY, 31 * DAY),
    "time": st.integers(-1_000, 10_000).map(lambda ago: int(START) + ago),
    "expire_time": st.integers(-10, 7 * DAY).map(lambda ahead: int(START) + ahead),
    "UpdateTopicRequest.update_mask": _some("labels", "message_retention_duration"),
    "UpdateSnapshotRequest.update_mask": _some("labels", "expire_time"),
    "UpdateSubscriptionRequest.update_mask": _some(
        *["labels", "retry_policy", "dead_letter_policy", "ack_deadline_seconds"],
        *["message_retention_duration", "expiration_policy", "enable_exactly_once_delivery"],
        *["push_config", "push_config.push_endpoint"],
    ),
}
_RARE = {"push_config", "schema_settings", "message_transforms", "bigquery_config", "tags"}
_RARE |= {"cloud_storage_config", "bigtable_config", "ingestion_data_source_settings"}
_ALWAYS = {"data", "max_messages", "stream_ack_deadline_seconds", "messages", "update_mask"}


def _masks() -> list[str]:
    paths = ["", "*", "nope", "labels.x", "retry_policy.minimum_backoff", "topic.name", "a..b"]
    for resource in ("Topic", "Subscription", "Snapshot"):
        paths += getattr(schema, resource).DESCRIPTOR.fields_by_name
    return [*paths, "dead_letter_policy.max_delivery_attempts", "retryPolicy", "x" * 10_000]


_MASKS = _masks()


def _odd(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == FIELD.TYPE_STRING:
        return odd_text
    if field.type == FIELD.TYPE_BYTES:
        return st.binary(max_size=20)
    if field.type == FIELD.TYPE_BOOL:
        return st.booleans()
    if field.enum_type:
        return _some(*field.enum_type.values_by_number, 99, -1)
    if field.type in (FIELD.TYPE_INT32, FIELD.TYPE_SINT32):
        return _some(*_INT32)
    if field.type in (FIELD.TYPE_INT64, FIELD.TYPE_SINT64):
        return _some(*_INT64)
    if field.type in (FIELD.TYPE_DOUBLE, FIELD.TYPE_FLOAT):
        return st.floats(width=32)
    return _some(0, 1, 2**32 - 1)


@functools.cache
def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    owner = field.containing_type.name if field.containing_type else ""
    plain = _some("", "red", "x") if field.type == FIELD.TYPE_STRING else _odd(field)
    good = _GOOD.get(f"{owner}.{field.name}", _GOOD.get(field.name, plain))
    return mostly(good, _odd(field))


def _seconds(time: Any) -> int:
    return int(time.seconds)


def _well_known(field: FieldDescriptor, kind: Descriptor) -> st.SearchStrategy[Any] | None:
    made = schema.message_class(kind.full_name)
    if kind.full_name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        good = _GOOD.get(field.name, _some(600)).map(lambda seconds: made(seconds=seconds))
        seconds = mostly(good.map(_seconds), _some(*_SECONDS), one_in=3)
        return mostly(good, st.builds(made, seconds=seconds, nanos=_some(*_NANOS)), one_in=2)
    if kind.full_name == "google.protobuf.FieldMask":
        owner = field.containing_type.name if field.containing_type else ""
        good = st.lists(_GOOD.get(f"{owner}.{field.name}", _some("*")), min_size=1, max_size=2)
        odd = st.lists(_some(*_MASKS), max_size=3)
        return mostly(good, odd).map(lambda paths: made(paths=paths))
    return None


@functools.cache
def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if not field.message_type:
        return _scalar(field)
    known = _well_known(field, field.message_type)
    return messages(field.message_type, depth + 1) if known is None else known


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0) -> Message:
    """A message with some of its fields set."""
    made: Message = schema.message_class(descriptor.full_name)()
    for field in draw(_fields(descriptor, depth)):
        if not field.is_repeated:
            value = draw(_value(field, depth))
            if field.message_type:
                getattr(made, field.name).CopyFrom(value)
            else:
                setattr(made, field.name, value)
        elif field.message_type and field.message_type.GetOptions().map_entry:
            _fill_map(draw, getattr(made, field.name), field.message_type, depth)
        else:
            values = st.lists(_value(field, depth), min_size=1, max_size=4)
            getattr(made, field.name).extend(draw(values))
    return made


@functools.cache
def _fields(kind: Descriptor, depth: int) -> st.SearchStrategy[list[FieldDescriptor]]:
    """Which fields to set: all that a request needs, or all but one, and some of the others."""
    needed = [field for field in kind.fields if _is_needed(field, depth)]
    others = [field for field in kind.fields if not _is_needed(field, depth)]
    weighted = [field for field in others for _ in range(1 if field.name in _RARE else 6)]
    without = st.integers(0, 16 * len(needed)).map(lambda n: needed[:n] + needed[n + 1 :])
    if not others:
        return without
    chosen = st.lists(st.sampled_from(weighted), max_size=4, unique_by=lambda field: field.name)
    return st.tuples(without, chosen).map(lambda lists: lists[0] + lists[1])


def _is_needed(field: FieldDescriptor, depth: int) -> bool:
    if field.name in _ALWAYS or (not depth and field.name in BODIES):
        return True
    return field.name in _GOOD and field.type == FIELD.TYPE_STRING


BODIES = {"topic", "subscription", "snapshot", "schema", "policy"}


def _fill_map(draw: st.DrawFn, made: Any, entry: Descriptor, depth: int) -> None:
    field = entry.fields_by_name["value"]
    keys = mostly(_some("colour", "x"), _some("", "googx", "googclient_x", "A", "k" * 257))
    for key in draw(st.lists(keys, max_size=3)):
        value = draw(_value(field, depth))
        if field.message_type:
            made[key].CopyFrom(value)
        else:
            made[key] = value


@functools.cache
def requests(rpc: Rpc) -> st.SearchStrategy[Any]:
    """Any request of an RPC."""
    return messages(getattr(schema, rpc.request).DESCRIPTOR)


_BUSY = ["UpdateSnapshot", "UpdateTopic", "CreateSubscription"]
_BUSY += [
    "Publish",
    "Pull",
    "Pull",
    "Acknowledge",
    "ModifyAckDeadline",
    "Seek",
    "UpdateSubscription",
]
_unary = [rpc for rpc in RPCS if rpc.name != "StreamingPull"]
_rpcs = (
    _some(*_unary)
    | _some(*(rpc for rpc in _unary if "Schema" not in rpc.request))
    | _some(*(BY_NAME[name] for name in _BUSY))
)
calls = _rpcs.flatmap(lambda rpc: st.tuples(st.just(rpc), requests(rpc)))


@st.composite
def streams(draw: st.DrawFn) -> list[schema.StreamingPullRequest]:
    """The requests of one stream; most keep to what only the first of them may say."""
    sent: list[schema.StreamingPullRequest] = []
    for _ in range(draw(st.integers(0, 4))):
        request = draw(requests(BY_NAME["StreamingPull"]))
        if sent and draw(st.integers(0, 7)) != 7:
            for field in ("subscription", "client_id", "protocol_version"):
                request.ClearField(field)
            request.ClearField("max_outstanding_messages")
            request.ClearField("max_outstanding_bytes")
        if draw(st.integers(0, 7)) != 7:
            count = len(request.modify_deadline_ack_ids)
            request.modify_deadline_seconds[:] = draw(
                st.lists(_GOOD["modify_deadline_seconds"], min_size=count, max_size=count)
            )
        sent.append(request)
    return sent


def with_ack_ids(request: Message, issued: dict[str, list[str]], subscription: str) -> Message:
    """The request with real ids in place of `ack:N`, mostly of its own subscription."""
    for name in ("ack_ids", "modify_deadline_ack_ids"):
        ids: list[str] = getattr(request, name, [])
        for at, ack_id in enumerate(ids):
            head, _, digits = ack_id.partition("ack:")
            number = int(digits) if not head and digits.isdecimal() else -1
            own = [] if number % 8 == 7 else issued.get(subscription, [])
            pool = own or [other for of in issued.values() for other in of]
            if number >= 0 and pool:
                ids[at] = pool[number % len(pool)]
    return request


# REST

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | _some(*_INT64)
    | st.floats()
    | odd_text
    | _some("600s", "-1s", "1e3s", "2026-01-01T00:00:00Z", "labels,topic", "\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_some("name", "seconds", "messages", "a"), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def _bodies(draw: st.DrawFn, rpc: Rpc) -> bytes:
    """A request as JSON, sometimes with another value in one place, sometimes no JSON at all."""
    kind = draw(st.integers(0, 15))
    if kind == 7:
        odd = _some(b"", b"[" * 5_000, b'{"a":' * 5_000, b'{"messages":[{"data":"!"}]}', b"1")
        return draw(odd | st.binary(max_size=30))
    request = draw(requests(rpc))
    try:
        fields = json_format.MessageToDict(
            request, preserving_proto_field_name=kind == 8, descriptor_pool=schema.pool
        )
    except (ValueError, json_format.Error):  # a time that JSON cannot say
        fields = {}
    if rpc.body != "*":
        fields = fields.get(rpc.body, {})
    if draw(st.integers(0, 3)) == 1:
        _spoil(draw, fields)
    return json.dumps(fields).encode()


def _spoil(draw: st.DrawFn, fields: dict[str, Any]) -> None:
    """Put another value somewhere."""
    key = draw(_some(*fields, "name", "nope"))
    if isinstance(fields.get(key), dict) and draw(st.booleans()):
        _spoil(draw, fields[key])
    else:
        fields[key] = draw(_JSON)


@st.composite
def _targets(draw: st.DrawFn, rpc: Rpc) -> tuple[str, str]:
    """A verb and a path of one of the RPC's routes, with a name put in."""
    verb, _, template = draw(_some(*rpc.http)).partition(" ")
    head, _, rest = template.partition("{")
    shape, _, tail = rest.partition("}")
    kind = f"/{shape.split('/')[-2]}/"
    pool = [name for name in TOPICS + SUBSCRIPTIONS + SNAPSHOTS + SCHEMAS if kind in name]
    name = draw(mostly(_some(*(pool or [PROJECT])), odd_text))
    safe = draw(_some("/", "/", "/:%@", ""))
    return verb, head + urllib.parse.quote(name[:500], safe=safe) + tail


_verbs = _some("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PURGE")
_pieces = _some(
    *["/", "/v1/", "projects", "fuzz", "topics", ":publish", "%", "%ff", "%00", "..", "?", "//"]
)
_PARAMETERS = ["pageSize", "page_size", "pageToken", "updateMask", "$alt", "view", "a.b", "name"]
_PARAMETERS += [
    "maxMessages",
    "labels.x",
    "subscription.name",
    "options.requestedPolicyVersion",
    ".",
]
_queries = st.lists(
    st.tuples(_some(*_PARAMETERS), _some("1", "-1", "x", "", "1e400", "labels,name") | odd_text),
    min_size=1,
    max_size=3,
)


@st.composite
def rest_calls(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """A verb, a path with its query, and a body."""
    rpc = draw(_rpcs)
    verb, path = draw(_targets(rpc))
    if draw(st.integers(0, 15)) == 7:
        path = "/" + "".join(draw(st.lists(_pieces, max_size=8)))
    if draw(st.integers(0, 15)) == 7:
        verb = draw(_verbs)
    query = draw(mostly(st.just([]), _queries))
    query = [(key, value[:500]) for key, value in query]
    if path.endswith("pull"):
        query.append(("returnImmediately", "true"))
    if query:
        path += "?" + urllib.parse.urlencode(query, errors="surrogatepass")
    return verb, path, draw(_bodies(rpc))

"""Requests that a client may send, sensible or not: strategies over every field of every RPC."""

from __future__ import annotations

import base64
import json
import urllib.parse
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio.emulator.rpcs import RPCS, Rpc

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

PROJECT = "projects/fuzz"
TOPICS = [f"{PROJECT}/topics/{name}" for name in ("one", "two", "dead")]
SUBSCRIPTIONS = [f"{PROJECT}/subscriptions/{name}" for name in ("plain", "ordered", "once", "dlq")]
SNAPSHOTS = [f"{PROJECT}/snapshots/{name}" for name in ("snap", "shot")]
SCHEMAS = [f"{PROJECT}/schemas/shape", f"{PROJECT}/schemas/shape@1a2b3c4d"]
UNARY = [rpc for rpc in RPCS if rpc.name != "StreamingPull"]
INT32 = [0, 1, -1, 2, 9, 10, 100, 600, 601, 1_000, 2**31 - 1, -(2**31)]
INT64 = [*INT32, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
FIELD = FieldDescriptor

_ODD_NAMES = [
    "",
    "/",
    "garbage",
    PROJECT,
    f"{PROJECT}/",
    "projects//topics/one",
    "projects/fuzz/topics/",
    "projects/fuzz/topics/x",
    "projects/fuzz/topics/googled",
    "projects/fuzz/topics/one/more",
    "projects/fuzz/topics/" + "a" * 256,
    "projects/fuzz/topics/" + "a" * 30_000,
    "projects/-/topics/one",
    "projects/fuzz/topics/%2e%2e",
    "projects/fuzz/topics/\u00e4\u00f6\u00fc",
    "projects/fuzz/topics/o\x00ne",
    "_deleted-topic_",
]
_FILTERS = [
    "attributes:colour",
    'attributes.colour = "red"',
    'NOT hasPrefix(attributes.colour, "r") AND (attributes:"x" OR -attributes:y)',
    "NOT " * 60 + "attributes:a",
    "(" * 200 + "attributes:a" + ")" * 200,
    "attributes.colour =",
    'attributes.colour = "\u00e9\\u0041\\x"',
    "a" * 257,
    "\x00",
]
_TOKENS = [base64.b64encode(name.encode()).decode() for name in [*TOPICS, *SUBSCRIPTIONS, "\x00"]]
_SECONDS = [0, 1, -1, 10, 599, 600, 86_400, 604_800, 2_678_400, 253_402_300_799, 315_576_000_001]
_SECONDS += [-62_135_596_801, 1_767_225_600, 2**63 - 1, -(2**63)]
_NANOS = [0, 0, 1, -1, 999_999_999, 1_000_000_000, 2**31 - 1, -(2**31)]

existing = st.sampled_from(TOPICS + SUBSCRIPTIONS + SNAPSHOTS)
odd_text = st.one_of(
    st.sampled_from(_ODD_NAMES), st.text(max_size=20), st.sampled_from(_FILTERS + _TOKENS)
)
seconds = st.one_of(st.sampled_from(_SECONDS), st.integers(-(2**63), 2**63 - 1))
ack_ids = st.one_of(
    st.integers(0, 40).map("ack:{}".format),
    st.sampled_from(["", "garbage", "0" * 48, "f" * 48, "0" * 47, "\u00e9" * 48, "a" * 1_000]),
    st.text(max_size=50),
)
"""An id of the form `ack:N` stands for one that was issued; see `with_ack_ids`."""


def _names(first: list[str]) -> st.SearchStrategy[str]:
    """Mostly names of the right kind, sometimes of another, sometimes none at all."""
    return st.one_of(st.sampled_from(first), st.sampled_from(first), existing, odd_text)


_TEXTS = {
    "topic": _names(TOPICS),
    "dead_letter_topic": _names(TOPICS),
    "subscription": _names(SUBSCRIPTIONS),
    "snapshot": _names(SNAPSHOTS),
    "name": _names(TOPICS + SUBSCRIPTIONS + SNAPSHOTS + SCHEMAS),
    "resource": _names(TOPICS + SUBSCRIPTIONS + SCHEMAS),
    "project": _names([PROJECT, "projects/other"]),
    "parent": _names([PROJECT, "projects/other"]),
    "filter": st.one_of(st.just(""), st.sampled_from(_FILTERS), st.text(max_size=20)),
    "page_token": st.one_of(st.just(""), st.sampled_from(_TOKENS), odd_text),
    "ack_ids": ack_ids,
    "modify_deadline_ack_ids": ack_ids,
    "ordering_key": st.sampled_from(["", "", "k", "q", "k" * 1_025]),
    "push_endpoint": st.sampled_from(["", "", "http://localhost:1/", "garbage"]),
    "client_id": st.sampled_from(["", "x", "y"]),
}
_NAMES_OF = {"Topic": TOPICS, "Subscription": SUBSCRIPTIONS, "Snapshot": SNAPSHOTS}


def _text(field: FieldDescriptor) -> st.SearchStrategy[str]:
    owner = field.containing_type.name if field.containing_type else ""
    if field.name == "name" and owner.removeprefix("Create").removesuffix("Request") in _NAMES_OF:
        return _names(_NAMES_OF[owner.removeprefix("Create").removesuffix("Request")])
    return _TEXTS.get(field.name, odd_text)


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[object]:
    if field.type == FIELD.TYPE_STRING:
        return _text(field)
    if field.type == FIELD.TYPE_BYTES:
        return st.binary(max_size=20)
    if field.type == FIELD.TYPE_BOOL:
        return st.booleans()
    if field.enum_type:
        return st.sampled_from([*field.enum_type.values_by_number, 99, -1])
    if field.type in (FIELD.TYPE_INT64, FIELD.TYPE_SINT64, FIELD.TYPE_SFIXED64):
        return st.sampled_from(INT64)
    if field.type in (FIELD.TYPE_INT32, FIELD.TYPE_SINT32, FIELD.TYPE_SFIXED32):
        return st.one_of(st.sampled_from(INT32), st.integers(1, 20))
    if field.type in (FIELD.TYPE_UINT64, FIELD.TYPE_UINT32, FIELD.TYPE_FIXED32):
        return st.integers(0, 2**32 - 1)
    return st.floats(width=32)


def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    if field.message_type:
        return messages(field.message_type, depth + 1)
    return _scalar(field)


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0) -> Message:
    """A message with any of its fields set; the deeper, the fewer."""
    made: Message = schema.message_class(descriptor.full_name)()
    if descriptor.full_name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        nanos = draw(st.sampled_from(_NANOS))
        return type(made)(seconds=draw(seconds), nanos=nanos)
    if descriptor.full_name == "google.protobuf.FieldMask":
        return type(made)(paths=draw(st.lists(st.sampled_from(MASKS), max_size=3)))
    for field in descriptor.fields:
        if not draw(_is_set(field, depth)):
            continue
        if not field.is_repeated:
            _set(made, field, draw(_value(field, depth)))
        elif field.message_type and field.message_type.GetOptions().map_entry:
            _fill_map(draw, getattr(made, field.name), field.message_type, depth)
        else:
            getattr(made, field.name).extend(draw(st.lists(_value(field, depth), max_size=3)))
    return made


def _is_set(field: FieldDescriptor, depth: int) -> st.SearchStrategy[bool]:
    """Names are nearly always given, the rest less and less often."""
    if field.name in _TEXTS and not depth:
        return st.integers(0, 9).map(bool)
    return st.integers(0, 2 + 2 * depth).map(lambda n: n == 0)


def _set(made: Message, field: FieldDescriptor, value: object) -> None:
    if field.message_type:
        getattr(made, field.name).CopyFrom(value)
    else:
        setattr(made, field.name, value)


def _fill_map(draw: st.DrawFn, made: Any, entry: Descriptor, depth: int) -> None:
    field = entry.fields_by_name["value"]
    keys = st.sampled_from(["colour", "x", "", "googx", "googclient_x", "A", "k" * 257])
    for key in draw(st.lists(keys, max_size=3)):
        value = draw(_value(field, depth))
        if field.message_type:
            made[key].CopyFrom(value)
        else:
            made[key] = value


def _masks() -> list[str]:
    paths = ["", "*", "nope", "labels.x", "retry_policy.minimum_backoff", "topic.name", "a..b"]
    for resource in ("Topic", "Subscription", "Snapshot"):
        paths += getattr(schema, resource).DESCRIPTOR.fields_by_name
    return [*paths, "dead_letter_policy.max_delivery_attempts", "retryPolicy", "x" * 10_000]


MASKS = _masks()


def requests(rpc: Rpc) -> st.SearchStrategy[Message]:
    """Any request of an RPC."""
    return messages(getattr(schema, rpc.request).DESCRIPTOR)


calls = st.sampled_from(UNARY).flatmap(lambda rpc: st.tuples(st.just(rpc), requests(rpc)))
streams = st.lists(requests(next(r for r in RPCS if r.name == "StreamingPull")), max_size=4)


def with_ack_ids(request: Message, issued: list[str]) -> Message:
    """The request with real ids in place of `ack:N`."""
    for name in ("ack_ids", "modify_deadline_ack_ids"):
        ids: list[str] = getattr(request, name, [])
        for at, ack_id in enumerate(ids):
            head, _, number = ack_id.partition("ack:")
            if not head and number.isdecimal() and issued:
                ids[at] = issued[int(number) % len(issued)]
    return request


# REST

_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from(INT64),
        st.floats(),
        existing,
        odd_text,
        st.sampled_from(["600s", "-1s", "1e3s", "2026-01-01T00:00:00Z", "labels,topic", "\ud800"]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def _json_of(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0) -> object:
    """JSON with the fields of a message, and values that may or may not be theirs."""
    if draw(st.integers(0, 9)) == 0:
        return draw(_JSON)
    made: dict[str, object] = {}
    for field in descriptor.fields:
        if not draw(_is_set(field, depth)):
            continue
        value: object
        if draw(st.integers(0, 4)) == 0:
            value = draw(_JSON)
        elif field.message_type:
            value = draw(_json_of(field.message_type, depth + 1))
        else:
            value = draw(_scalar(field))
            value = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        name = draw(st.sampled_from([field.json_name, field.json_name, field.name]))
        made[name] = [value] if field.is_repeated and not field.message_type else value
    return made


def _bodies(rpc: Rpc) -> st.SearchStrategy[bytes]:
    shaped = _json_of(getattr(schema, rpc.request).DESCRIPTOR).map(lambda j: json.dumps(j).encode())
    deep = st.sampled_from([b"[" * 5_000, b'{"a":' * 5_000, b'{"messages":[{"data":"!"}]}'])
    return st.one_of(shaped, shaped, shaped, st.just(b""), deep, st.binary(max_size=30))


@st.composite
def _targets(draw: st.DrawFn, rpc: Rpc) -> tuple[str, str]:
    """A verb and a path of one of the RPC's routes, with a name put in."""
    verb, _, template = draw(st.sampled_from(rpc.http)).partition(" ")
    head, _, rest = template.partition("{")
    shape, _, tail = rest.partition("}")
    kind = shape.rpartition("=")[2].split("/")
    pool = [name for name in TOPICS + SUBSCRIPTIONS + SNAPSHOTS + SCHEMAS if kind[-2] in name]
    name = draw(_names([PROJECT] if len(kind) == 2 else pool))
    safe = draw(st.sampled_from(["/", "/", "/:%@", ""]))
    return verb, head + urllib.parse.quote(name[:500], safe=safe) + tail


_verbs = st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PURGE"])
_pieces = st.sampled_from(
    ["/", "/v1/", "projects", "fuzz", "topics", ":publish", "%", "%ff", "%00", "..", "?", "//", "*"]
)
_paths = st.lists(_pieces, max_size=8).map(lambda parts: "/" + "".join(parts))
_PARAMETERS = ["pageSize", "page_size", "pageToken", "updateMask", "$alt", "view", "a.b", "name"]
_PARAMETERS += [
    "maxMessages",
    "labels.x",
    "subscription.name",
    "options.requestedPolicyVersion",
    ".",
]
_queries = st.lists(
    st.tuples(
        st.sampled_from(_PARAMETERS),
        st.one_of(st.sampled_from(["1", "-1", "x", "", "%ff", "1e400", "labels,name"]), odd_text),
    ),
    max_size=3,
)


@st.composite
def rest_calls(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """A verb, a path with its query, and a body."""
    rpc = draw(st.sampled_from([rpc for rpc in RPCS if rpc.http]))
    verb, path = draw(_targets(rpc))
    if draw(st.integers(0, 9)) == 0:
        path = draw(_paths)
    if draw(st.integers(0, 9)) == 0:
        verb = draw(_verbs)
    query = [(key, value[:500]) for key, value in draw(_queries)]
    if path.endswith("pull"):
        query.append(("returnImmediately", "true"))
    if query:
        path += "?" + urllib.parse.urlencode(query, errors="surrogatepass")
    return verb, path, draw(_bodies(rpc))

"""Definitions and messages that are broken in some place or made to do harm: strategies."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

AVRO_SEEDS = [
    '"string"',
    '{"type": "record", "name": "List", "namespace": "a.b", "fields": ['
    '{"name": "value", "type": "long", "default": 1},'
    '{"name": "next", "type": ["null", "List"], "default": null}]}',
    '{"type": "record", "name": "All", "aliases": ["Old"], "fields": ['
    '{"name": "b", "type": "boolean"}, {"name": "i", "type": "int"},'
    '{"name": "f", "type": "float"}, {"name": "d", "type": "double"},'
    '{"name": "y", "type": "bytes", "default": "\\u00ff"}, {"name": "s", "type": "string"},'
    '{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"], "default": "X"}},'
    '{"name": "x", "type": {"type": "fixed", "name": "F", "size": 2}},'
    '{"name": "a", "type": {"type": "array", "items": {"type": "map", "values": "E"}}},'
    '{"name": "u", "type": ["null", "int", "string", "F", {"type": "array", "items": "null"}]}]}',
    '{"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}',
    '{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}',
]
PROTO_SEEDS = [
    'syntax = "proto3"; package a.b; message All { bool b = 1; int32 i = 2; repeated double d = 3;'
    " string s = 4; bytes y = 5; enum E { X = 0; Y = 1; } E e = 6; map<string, All> m = 7;"
    " oneof o { fixed64 f = 8; sint32 z = 9; } optional All next = 10; reserved 20 to 30; }",
    "message Old { required int32 a = 1; optional group G = 2 { optional string s = 3; }"
    ' optional string d = 4 [default = "x\\377"]; extensions 100 to max; repeated Old o = 5; }'
    " extend Old { optional int32 e = 100; }",
    'syntax = "proto2"; package google.protobuf; message Any { optional int32 type_url = 1; }',
]
AVRO_MESSAGES = [
    b"\x02\x61",
    b"\x02\x02\x02\x02\x00",
    b"\x01\x02\x00\x00\x80?" + bytes(8) + b"\x02\xff\x02a\x02ab\x02\x02\x02k\x02\x00\x00\x04\x02b",
    b"\x02\x00",
    b'"a"',
    b'{"value": 1, "next": {"a.b.List": {"value": 2, "next": null}}}',
    b'{"b": true, "i": 1, "f": 1.5, "d": 2, "y": "\\u00ff", "s": "a", "e": "X", "x": "ab",'
    b' "a": [{"k": "Y"}], "u": {"array": [null]}}',
    b"[{}, {}]",
]
PROTO_MESSAGES = [
    b"\x08\x01\x10\x02\x22\x01a\x30\x01\x52\x02\x08\x01",
    b"\x3a\x07\x0a\x01k\x12\x02\x08\x01",
    b"\x08\x01\x13\x1a\x01s\x14\xa0\x06\x01",
    b'{"b": true, "i": 1, "d": [1, "NaN"], "s": "a", "y": "AA==", "e": "Y", "m": {"k": {}}}',
    b'{"a": 1, "g": {"s": "x"}, "[e]": 3, "o": [{"a": 2}]}',
]

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
_KEYS = ["type", "name", "fields", "items", "values", "symbols", "size", "default", "aliases"]
_KEYS += ["namespace", "logicalType", "order", "precision"]
_TYPES: list[Any] = ["null", "int", "string", "record", "array", "map", "enum", "fixed", "error"]
_TYPES += ["List", "a.b.List", "E", [], ["null"], -1, 0, 2**70, "", "a b", True, 1e30]
_TOKENS = [*"{}=;<>[]()\"'/*-,.0\x00", "message", "enum", "oneof", "repeated", "required"]
_TOKENS += ["group", "extend", "import", "syntax", "option", "default", "max", "to", "map", "//"]
_TOKENS += ["google.protobuf.Any", "service", "rpc", "returns", "stream", "json_name", "é", "-inf"]


@st.composite
def _edited(draw: st.DrawFn, seeds: list[str], pieces: list[str]) -> str:
    """A text with something cut out, repeated or put in, a few times."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        put = draw(st.sampled_from(pieces) | st.text(max_size=3) | st.just(text[at:end] * 2))
        text = text[:at] + put + text[end:]
    return text


@st.composite
def _spoiled(draw: st.DrawFn) -> str:
    """An Avro definition with another value, or another key, in one place or a few."""
    whole = json.loads(draw(st.sampled_from(AVRO_SEEDS)))
    for _ in range(draw(st.integers(1, 3))):
        at: Any = whole
        while isinstance(at, (dict, list)) and at:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = draw(st.sampled_from(keys))
            if not isinstance(at[key], (dict, list)) or draw(st.integers(0, 3)) == 0:
                new = draw(st.sampled_from(_KEYS)) if isinstance(at, dict) else key
                value = copy.deepcopy(draw(st.sampled_from(_TYPES) | _JSON))
                at[draw(st.sampled_from([key, new]))] = value
                break
            at = at[key]
    return json.dumps(whole)


avro_definitions = _spoiled() | _edited(AVRO_SEEDS, ["{", "}", "[", "]", '"', ",", "null", "NaN"])
proto_definitions = _edited(PROTO_SEEDS, _TOKENS)


@st.composite
def messages(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A message with bytes cut out, repeated or put in, a few times."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 4)))
        odd = st.sampled_from([b"\xff" * 9 + b"\x01", b"\x80", b"[" * 2_000, b'{"a":' * 2_000])
        data = (
            data[:at] + draw(st.binary(max_size=4) | odd | st.just(data[at:end] * 3)) + data[end:]
        )
    return data

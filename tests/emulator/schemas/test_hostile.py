"""Whatever definition or message comes, the answer is OK or INVALID_ARGUMENT, and comes soon.

PUBSUB_AIO_FUZZ_EXAMPLES sets how many each test tries; they are then drawn at random.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import BY_NAME
from pubsub_aio.emulator import EmulatorThread, VirtualClock
from pubsub_aio.emulator.schemas.definitions import check_message, define
from pubsub_aio.emulator.schemas.errors import SchemaError
from pubsub_aio.emulator.status import Code, StatusError
from tests.emulator.schemas.hostile import (
    AVRO_MESSAGES,
    PROTO_MESSAGES,
    avro_definitions,
    messages,
    proto_definitions,
)

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
SOON = 5.0
"""Seconds of real time for what is as large as can be, on a busy machine, too."""

AVRO, PROTO = schema.Schema.Type.AVRO, schema.Schema.Type.PROTOCOL_BUFFER
JSON, BINARY = schema.Encoding.JSON, schema.Encoding.BINARY
PROJECT = "projects/hostile"
TOPIC, SCHEMA = f"{PROJECT}/topics/strict", f"{PROJECT}/schemas/made"

cases = st.one_of(
    st.tuples(st.just(AVRO), avro_definitions, messages(AVRO_MESSAGES)),
    st.tuples(st.just(PROTO), proto_definitions, messages(PROTO_MESSAGES)),
)
encodings = st.sampled_from([JSON, BINARY])

pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []


def tries(examples: int) -> settings:
    return settings(
        max_examples=int(EXAMPLES or examples),
        derandomize=EXAMPLES is None,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def attempt(kind: int, definition: str, data: bytes, encoding: int) -> str:
    """Whether a definition and a message are good: the first that is not is named."""
    try:
        made = define(schema.Schema(type_=schema.Schema.Type.Name(kind), definition=definition))
    except StatusError as refusal:
        return "definition" if refusal.code is Code.INVALID_ARGUMENT else refusal.code.name
    made.check_follows(made)
    try:
        check_message(made, encoding, data)
    except SchemaError:
        return "message"
    return ""


@tries(600)
@given(cases, encodings)
def test_every_definition_and_message_is_taken_or_refused(
    case: tuple[int, str, bytes], encoding: int
) -> None:
    began = time.monotonic()
    wrong = attempt(*case, encoding)

    assert wrong in ("", "definition", "message")
    assert time.monotonic() - began < SOON


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for definition in ("", "message A {}", "; message A {}", "\ufeffmessage A {}", "é", "\x00"):
        attempt(PROTO, definition, b"", BINARY)

    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with (
        EmulatorThread(clock=VirtualClock()) as emulator,
        grpc.insecure_channel(emulator.address) as channel,
    ):
        assert call(channel, "CreateTopic", name=TOPIC) is grpc.StatusCode.OK
        yield channel
        assert call(channel, "ListSchemas", parent=PROJECT) is grpc.StatusCode.OK


def call(channel: grpc.Channel, rpc_name: str, /, **fields: object) -> grpc.StatusCode:
    rpc = BY_NAME[rpc_name]
    request = getattr(schema, rpc.request)(**fields)
    method = channel.unary_unary(rpc.path, lambda data: data, lambda data: data)
    try:
        method(request.SerializeToString(), timeout=20)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


@tries(80)
@given(cases, encodings)
def test_the_rpcs_answer_ok_or_invalid_argument(
    channel: grpc.Channel, case: tuple[int, str, bytes], encoding: int
) -> None:
    kind, definition, data = case
    made = schema.Schema(type_=schema.Schema.Type.Name(kind), definition=definition)
    expected = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}

    assert call(channel, "ValidateSchema", parent=PROJECT, schema=made) in expected
    fields = {"parent": PROJECT, "message": data, "encoding": encoding}
    valid = call(channel, "ValidateMessage", schema=made, **fields)
    assert valid in expected
    created = call(channel, "CreateSchema", parent=PROJECT, schema=made, schema_id="made")
    assert created in expected
    if created is grpc.StatusCode.OK:
        chosen = schema.SchemaSettings(schema=SCHEMA, encoding=schema.Encoding.Name(encoding))
        topic = schema.Topic(name=TOPIC, schema_settings=chosen)
        mask = schema.FieldMask(paths=["schema_settings"])
        assert call(channel, "UpdateTopic", topic=topic, update_mask=mask) is grpc.StatusCode.OK
        if data:
            sent = [schema.PubsubMessage(data=data)]
            assert call(channel, "Publish", topic=TOPIC, messages=sent) is valid
        assert call(channel, "DeleteSchema", name=SCHEMA) is grpc.StatusCode.OK


# What has been seen to hang, to crash or to fill memory elsewhere


def _record(name: str, fields: list[tuple[str, object]]) -> dict[str, object]:
    made = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": made}


LIST = json.dumps(_record("L", [("next", ["null", "L"])]))
TREE = json.dumps(_record("T", [("inner", {"type": "array", "items": "T"})]))
LOOP = json.dumps(_record("A", [("a", "A")]))
NULLS = json.dumps({"type": "array", "items": _record("N", [("a", "null"), ("b", "null")])})
MAPS = '{"type": "map", "values": "null"}'
ALL = 10**12 * 2
"""That many items, as Avro writes numbers."""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _chain(length: int) -> str:
    """Records around each other, by name: each has the one before, and the first a boolean."""
    made = [("f0", _record("R0", [("a", "boolean")]))]
    made += [(f"f{n}", _record(f"R{n}", [("a", f"R{n - 1}")])) for n in range(1, length)]
    items = {"type": "array", "items": f"R{length - 1}"}
    return json.dumps(_record("All", [*made, ("many", items)]))


@pytest.mark.parametrize(
    ("kind", "definition", "data", "encoding", "wrong"),
    [
        pytest.param(AVRO, LIST, b"\x02" * 5_000_000, BINARY, "message", id="a list too long"),
        pytest.param(AVRO, LIST, b"\x02" * 100 + b"\x00", BINARY, "", id="a list of 100"),
        pytest.param(AVRO, LIST, b"\x02" * 101 + b"\x00", BINARY, "message", id="a list of 101"),
        pytest.param(AVRO, TREE, b"\x02" * 5_000_000, BINARY, "message", id="a tree too high"),
        pytest.param(AVRO, LOOP, b"", BINARY, "message", id="no end"),
        pytest.param(AVRO, LOOP, b'{"a":' * 90_000, JSON, "message", id="no end in JSON"),
        pytest.param(AVRO, NULLS, varint(ALL) + b"\x00", BINARY, "", id="a trillion nulls"),
        pytest.param(AVRO, NULLS, (varint(ALL) * 99_999) + b"\x00", BINARY, "", id="and again"),
        pytest.param(AVRO, MAPS, varint(ALL) + b"\x00", BINARY, "message", id="a trillion keys"),
        pytest.param(AVRO, '"bytes"', varint(2**62), BINARY, "message", id="a length"),
        pytest.param(AVRO, '"bytes"', b"\x01", BINARY, "message", id="a length below zero"),
        pytest.param(AVRO, '"long"', b"\xff" * 9_000_000, BINARY, "message", id="a number"),
        pytest.param(AVRO, '"long"', b"9" * 9_000_000, JSON, "message", id="a number in JSON"),
        pytest.param(AVRO, '"long"', b"[" * 9_000_000, JSON, "message", id="deep JSON"),
        pytest.param(AVRO, '{"type":' * 30_000, b"", JSON, "definition", id="deep definition"),
        pytest.param(
            AVRO,
            '{"type":"array","items":' * 290 + '"int"' + "}" * 290,
            b"\x02" * 600,
            BINARY,
            "message",
            id="arrays in arrays",
        ),
        pytest.param(
            AVRO,
            _chain(2_000),
            bytes([1]) * 2_000 + varint(1_800_000) + bytes([1]) * 900_000 + b"\x00",
            BINARY,
            "",
            id="records around each other",
        ),
        pytest.param(
            AVRO,
            '{"type": "fixed", "name": "F", "size": ' + "9" * 4_000 + "}",
            b"a" * 100,
            BINARY,
            "message",
            id="a huge fixed",
        ),
        pytest.param(
            PROTO,
            'syntax = "proto2"; message A {' + "optional group G = 1 {" * 10_000,
            b"",
            BINARY,
            "definition",
            id="groups in groups",
        ),
        pytest.param(
            PROTO,
            "message A {" + "".join(f"optional bool a{n}={n};" for n in range(1, 12_000)) + "}",
            b"",
            BINARY,
            "definition",
            id="more fields than a message can have",
        ),
        pytest.param(
            *(PROTO, "message A { optional A a = 1; }", b"\x0b" * 9_000_000, BINARY, "message"),
            id="a group without end",
        ),
        pytest.param(
            *(PROTO, "message A { optional A a = 1; }", b'{"a":' * 90_000, JSON, "message"),
            id="a message without end in JSON",
        ),
    ],
)
def test_no_size_or_depth_does_harm(
    kind: int, definition: str, data: bytes, encoding: int, wrong: str
) -> None:
    began = time.monotonic()

    assert attempt(kind, definition, data, encoding) == wrong
    assert time.monotonic() - began < SOON

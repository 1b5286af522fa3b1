"""Definitions of schemas, and messages that are validated without being published."""

import json

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1 import Schema, ValidateMessageRequest, ValidateSchemaRequest

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.schemas import (
    AVRO,
    BINARY,
    ORDER,
    ORDER_PROTO,
    PROTO,
    avro,
    create,
    record,
    validate,
    written,
)
from tests.emulator.conformance.servers import Server

without_protobuf = google_falls_short("does not know protobuf")


def _validate_schema(server: Server, made: Schema) -> None:
    request = ValidateSchemaRequest(parent=f"projects/{server.project}", schema=made)
    server.call(server.schemas.validate_schema, request)


@without_protobuf
@pytest.mark.parametrize(
    ("definition", "naming"),
    [
        pytest.param("order", "line 1, column 1", id="no definition"),
        pytest.param(
            'syntax = "proto3";\nmessage A { strin a = 1; }',
            'line 2, column 13: "strin"',
            id="type",
        ),
        pytest.param('syntax = "proto3"; message A { required int32 a = 1; }', "proto3", id="3"),
        pytest.param('syntax = "proto3"; message A {} message B {}', "one message", id="two"),
        pytest.param('syntax = "proto3"; message A {} enum E { X = 0; }', "one message", id="enum"),
        pytest.param('syntax = "proto3"; enum E { X = 0; }', "one message", id="no message"),
        pytest.param('syntax = "proto3";', "one message", id="nothing"),
        pytest.param('syntax = "proto4"; message A {}', "proto4", id="syntax"),
        pytest.param('edition = "2023"; message A {}', "editions", id="edition"),
        pytest.param(
            'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A {}',
            "imports",
            id="import",
        ),
        pytest.param('syntax = "proto3"; ' + "message A {" * 40 + "}" * 40, "nested", id="deep"),
    ],
)
def test_schema_invalid_protobuf_is_invalid_argument(
    server: Server, definition: str, naming: str
) -> None:
    made = Schema(type_=PROTO, definition=definition)

    with server.refuses(InvalidArgument, naming=naming):
        _validate_schema(server, made)
    with server.refuses(InvalidArgument, naming="schema.definition"):
        create(server, made)


@without_protobuf
@pytest.mark.parametrize(
    "definition",
    [
        pytest.param(ORDER_PROTO, id="proto3"),
        pytest.param('syntax = "proto2"; message A { required int32 a = 1; }', id="proto2"),
        pytest.param("message A { required int32 a = 1; }", id="proto2 without saying so"),
        pytest.param(
            '// import "x"\nsyntax = "proto3"; message A { A a = 1; }', id="inside itself"
        ),
        pytest.param('syntax="proto3";package a.b;message C{map<string,int32> m=1;}', id="map"),
    ],
)
def test_valid_protobuf_is_taken(server: Server, definition: str) -> None:
    made = Schema(type_=PROTO, definition=definition)

    _validate_schema(server, made)
    assert create(server, made).definition == definition


@pytest.mark.parametrize(
    ("definition", "naming"),
    [
        pytest.param("{", "not JSON", id="no JSON"),
        pytest.param("3", "Avro", id="a number"),
        pytest.param("{}", "'type'", id="no type"),
        pytest.param('{"type": "order"}', "order", id="unknown type"),
        pytest.param('{"type": "record", "name": "R"}', "'fields'", id="no fields"),
        pytest.param('{"type": "record", "fields": []}', "name", id="no name"),
        pytest.param('{"type": "record", "name": "a b", "fields": []}', "a b", id="bad name"),
        pytest.param('{"type": "array"}', "'items'", id="no items"),
        pytest.param('["null", ["null"]]', "union", id="union in union"),
        pytest.param('["int", "int"]', "twice", id="twice in a union"),
        pytest.param('{"type": "fixed", "name": "F", "size": -1}', "size", id="size"),
        pytest.param('{"type": "enum", "name": "E", "symbols": ["a", "a"]}', "unique", id="enum"),
        pytest.param('{"type": "enum", "name": "E", "symbols": "ab"}', "list", id="no list"),
        pytest.param(json.dumps(record("R2")), "R2", id="unknown name"),
        pytest.param(json.dumps(record("int", default="x")), "default", id="default"),
        pytest.param(
            json.dumps(record({"type": "array", "items": "int"}, default=["x"])),
            "a: a string",
            id="default inside",
        ),
        pytest.param(json.dumps(record(["null", "int"], default=3)), "a: ", id="union default"),
        pytest.param(json.dumps(record("int", order="up")), "order", id="order"),
        pytest.param(
            json.dumps(record({"type": "fixed", "name": "R", "size": 1})), "R", id="again"
        ),
        pytest.param("[" * 100_000, "", id="deep"),
    ],
)
def test_schema_invalid_avro_is_invalid_argument(
    server: Server, definition: str, naming: str
) -> None:
    made = Schema(type_=AVRO, definition=definition)

    with server.refuses(InvalidArgument, naming=naming):
        _validate_schema(server, made)
    with server.refuses(InvalidArgument, naming="schema.definition"):
        create(server, made)


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param('"string"', id="a string"),
        pytest.param('["null", "int"]', id="a union"),
        pytest.param(json.dumps({**record("int"), "namespace": "a.b"}), id="namespace"),
        pytest.param(json.dumps(record(["null", "R"], default=None)), id="inside itself"),
        pytest.param(json.dumps(record("bytes", default="\u00ff")), id="default of bytes"),
        pytest.param('{"type": "int", "logicalType": "unheard-of"}', id="unknown logical type"),
        pytest.param('{"type": "bytes", "logicalType": "decimal", "precision": 0}', id="precision"),
    ],
)
def test_valid_avro_is_taken(server: Server, definition: str) -> None:
    _validate_schema(server, Schema(type_=AVRO, definition=definition))


# Messages


def test_schema_validate_message_avro_json(server: Server) -> None:
    made = create(server, avro(ORDER))
    good = b'{"id": "a1", "note": {"string": "soon"}}'

    validate(server, avro(ORDER), good)
    validate(server, made.name, good)
    validate(server, f"{made.name}@{made.revision_id}", good)
    for wrong, why in [
        (b'{"id": 1, "note": null}', "id: a number"),
        (b'{"id": "a1"}', "note"),
        (b'{"id": "a1", "note": "soon"}', "note: a union"),
        (b"\xff", "UTF-8"),
        (b"", "JSON"),
    ]:
        with server.refuses(InvalidArgument, naming=why):
            validate(server, made.name, wrong)


def test_a_message_is_validated_in_binary(server: Server) -> None:
    good = written(ORDER, {"id": "a1", "note": "soon"})

    validate(server, avro(ORDER), good, BINARY)
    with server.refuses(InvalidArgument, naming="ends too early"):
        validate(server, avro(ORDER), good[:-1], BINARY)


@without_protobuf
def test_a_message_is_validated_in_protobuf(server: Server) -> None:
    made = Schema(type_=PROTO, definition=ORDER_PROTO)

    validate(server, made, b'{"id": "a1", "lines": [{"what": "tea"}], "state": "PAID"}')
    validate(server, made, b"\x0a\x02a1\x10\x05", BINARY)
    with server.refuses(InvalidArgument, naming="nope"):
        validate(server, made, b'{"nope": 1}')
    with server.refuses(InvalidArgument, naming="message"):
        validate(server, made, b"\x0a\x02a", BINARY)


def test_validation_needs_an_encoding_and_a_schema(server: Server) -> None:
    parent = f"projects/{server.project}"
    rpc = server.schemas.validate_message

    with server.refuses(InvalidArgument, naming="encoding"):
        made = avro({"type": "string"})
        server.call(rpc, ValidateMessageRequest(parent=parent, schema=made, message=b'"a"'))
    with server.refuses(InvalidArgument, naming="schema"):
        server.call(rpc, ValidateMessageRequest(parent=parent, encoding="JSON", message=b'"a"'))
    with server.refuses(NotFound):
        validate(server, server.schema_name(), b'"a"')

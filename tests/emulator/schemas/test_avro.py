"""Messages in Avro: what fits is what Avro's own library writes, and nothing else."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pubsub_aio.emulator.schemas.avro import AvroDefinition
from pubsub_aio.emulator.schemas.errors import SchemaError

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
KEYS = TEXT.filter(bool)  # fastavro does not write an empty one as JSON

KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", INT),
    ("long", LONG),
    ("float", FLOAT),
    ("double", DOUBLE),
    ("bytes", st.binary(max_size=5)),
    ("string", TEXT),
]
ALL: dict[str, Any] = {
    "type": "record",
    "name": "All",
    "namespace": "a.b",
    "fields": [
        *({"name": f"f_{kind}", "type": kind} for kind, _ in KINDS),
        {"name": "enum", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y", "Z"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "array", "type": {"type": "array", "items": "long"}},
        {"name": "map", "type": {"type": "map", "values": "E"}},
        {"name": "union", "type": ["null", "string", "F", "All"]},
    ],
}
BASES = st.fixed_dictionaries(
    {
        **{f"f_{kind}": values for kind, values in KINDS},
        "enum": st.sampled_from(["X", "Y", "Z"]),
        "fixed": st.binary(min_size=3, max_size=3),
        "array": st.lists(LONG, max_size=3),
        "map": st.dictionaries(KEYS, st.sampled_from(["X", "Y"]), max_size=2),
        "union": st.none(),
    }
)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """A value, with others inside it."""
    made: dict[str, Any] = draw(BASES)
    inner = st.none() | TEXT | st.binary(min_size=3, max_size=3).map(lambda of: ("a.b.F", of))
    made["union"] = draw(inner)
    for _ in range(draw(st.integers(0, 3))):
        outer: dict[str, Any] = draw(BASES)
        outer["union"] = ("a.b.All", made)
        made = outer
    return made


PARSED = fastavro.parse_schema(ALL)
CHECKS = AvroDefinition(json.dumps(ALL))
quickly = settings(
    phases=[Phase.generate], max_examples=80, derandomize=True, database=None, deadline=None
)


def written(value: object, schema: Any = PARSED) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


@quickly
@given(records())
def test_what_fastavro_writes_fits_and_no_part_of_it_does(value: dict[str, Any]) -> None:
    data = written(value)

    CHECKS.check_binary(data)
    for cut in (data[:-1], data + b"\x00"):
        with pytest.raises(SchemaError):
            CHECKS.check_binary(cut)


@quickly
@given(BASES, st.none() | TEXT)
def test_what_fastavro_writes_as_json_fits(value: dict[str, Any], union: str | None) -> None:
    value["union"] = union
    out = io.StringIO()
    fastavro.json_writer(out, PARSED, [value])

    CHECKS.check_json(out.getvalue().encode())


@quickly
@given(records(), st.data())
def test_what_fits_is_read_by_fastavro_to_its_end(
    value: dict[str, Any], data: st.DataObject
) -> None:
    spoiled = bytearray(written(value))
    spoiled[data.draw(st.integers(0, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    try:
        CHECKS.check_binary(bytes(spoiled))
    except SchemaError:
        return
    stream = io.BytesIO(spoiled)
    fastavro.schemaless_reader(stream, PARSED, None)

    assert stream.tell() == len(spoiled)


@pytest.mark.parametrize(
    ("definition", "data", "why"),
    [
        pytest.param('"boolean"', b"\x02", "a boolean is one byte, 0 or 1, not 2", id="boolean"),
        pytest.param('["null", "int"]', b"\x01", "a union has no branch -1", id="branch -1"),
        pytest.param('["null", "int"]', b"\x04", "a union has no branch 2", id="branch 2"),
        pytest.param(
            '{"type": "enum", "name": "E", "symbols": ["a"]}', b"\x01", "no symbol -1", id="symbol"
        ),
        pytest.param('"int"', b"\x80\x80\x80\x80\x10", "more than 32 bits", id="int"),
        pytest.param('"long"', b"\xff" * 9 + b"\x03", "more than 64 bits", id="long"),
        pytest.param('"long"', b"\x80" * 10 + b"\x00", "more than 64 bits", id="long, too long"),
        pytest.param('"string"', b"\x02\xff", "not UTF-8", id="not UTF-8"),
        pytest.param('"string"', b"\x03abc", "-2 is no length", id="length"),
        pytest.param(
            '{"type": "array", "items": "int"}', b"\x03\x06\x02\x02\x00", "block", id="block size"
        ),
        pytest.param('"double"', bytes(7), "ends too early", id="short"),
        pytest.param('"null"', b"\x00", "1 bytes are left over", id="left over"),
    ],
)
def test_binary_that_avro_does_not_allow(definition: str, data: bytes, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        AvroDefinition(definition).check_binary(data)


def test_items_may_come_in_blocks_with_their_size() -> None:
    of_ints = AvroDefinition('{"type": "array", "items": "int"}')

    of_ints.check_binary(b"\x03\x04\x02\x02\x02\x04\x00")
    of_ints.check_binary(b"\x00")


@pytest.mark.parametrize(
    ("definition", "data", "why"),
    [
        pytest.param('"int"', b"1.0", "a number 1.0 is not an int", id="not whole"),
        pytest.param('"int"', b"2147483648", "is not an int", id="too large"),
        pytest.param('"int"', b"true", "a boolean is not an int", id="boolean"),
        pytest.param('"long"', b"9223372036854775808", "is not a long", id="too large a long"),
        pytest.param('"double"', b"NaN", "not JSON: NaN", id="NaN"),
        pytest.param('"double"', b'"NaN"', 'a string "NaN" is not a number', id="NaN as a string"),
        pytest.param('"double"', b"1e999", "is not a number that fits", id="infinite"),
        pytest.param('"string"', b'"\\ud800"', "not Unicode", id="half a character"),
        pytest.param('"string"', b"null", "null is not a string", id="null"),
        pytest.param('"bytes"', '"\u0100"'.encode(), "U\\+00FF", id="bytes beyond a byte"),
        pytest.param('{"type": "fixed", "name": "F", "size": 2}', b'"a"', "1 bytes", id="fixed"),
        pytest.param('["null", "string"]', b'"a"', "a union is written", id="bare"),
        pytest.param('["null", "string"]', b'{"null": null}', "no 'null'", id="null in braces"),
        pytest.param('["null", "string"]', b'{"int": 1}', "no 'int', only null", id="branch"),
        pytest.param('"string"', b'"a" "b"', "Extra data", id="two"),
        pytest.param('{"type": "array", "items": "int"}', b"{}", "an object is not an a", id="{}"),
        pytest.param('{"type": "map", "values": "int"}', b'{"a": "b"}', "not an int", id="value"),
    ],
)
def test_json_that_avro_does_not_allow(definition: str, data: bytes, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        AvroDefinition(definition).check_json(data)


def test_an_error_says_where_it_is() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "b", "type": "boolean"}]}
    outer = {"type": "record", "name": "Out", "fields": [{"name": "a", "type": inner}]}
    definition = AvroDefinition(json.dumps(outer))

    with pytest.raises(SchemaError, match=r"^a\.b: a number 1 is not a boolean$"):
        definition.check_json(b'{"a": {"b": 1}}')
    with pytest.raises(SchemaError, match=r"^a: the field 'b' is missing$"):
        definition.check_json(b'{"a": {}}')
    two = [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Two"]}]
    linked = AvroDefinition(json.dumps({"type": "record", "name": "Two", "fields": two}))
    with pytest.raises(SchemaError, match=r"^next\.next: a union has no branch 2$"):
        linked.check_binary(b"\x02\x02\x02\x04")

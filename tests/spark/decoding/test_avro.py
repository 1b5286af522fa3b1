"""Data that is Avro, in the binary encoding without a header."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pubsub_aio import ConfigError
from pubsub_aio.spark import decode_avro
from pubsub_aio.spark.decoding.from_avro import AvroDecoder
from pubsub_aio.spark.decoding.records import decode_rows
from tests.spark.decoding.messages import kept, messages, rows_of


def logical(kind: str, what: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": what, **more}


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    each = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": each}


POINT = record(("x", "int"), ("y", ["null", "double"]), name="Point")
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
AMOUNT = logical("fixed", "decimal", name="Amount", size=8, precision=18, scale=3)
SCHEMA = record(
    *(("int", "int"), ("long", "long"), ("ok", "boolean"), ("text", "string"), ("raw", "bytes")),
    *(("float", "float"), ("double", "double"), ("color", COLOR), ("color2", ["null", "Color"])),
    *(("fixed", {"type": "fixed", "name": "Two", "size": 2}), ("amount", AMOUNT)),
    ("price", logical("bytes", "decimal", precision=38, scale=2)),
    ("day", logical("int", "date")),
    ("millis", logical("long", "timestamp-millis")),
    ("micros", logical("long", "timestamp-micros")),
    ("local_millis", logical("long", "local-timestamp-millis")),
    ("local_micros", logical("long", "local-timestamp-micros")),
    ("time", logical("int", "time-millis")),
    ("id", logical("string", "uuid")),
    ("list", {"type": "array", "items": ["null", "long"]}),
    ("map", {"type": "map", "values": POINT}),
    ("point", ["null", "Point"]),
    ("union", ["null", "int", "string", "Point", {"type": "array", "items": "boolean"}]),
    *(("wide", ["int", "long"]), ("one", ["string"])),
)
DECODER = AvroDecoder(json.dumps(SCHEMA))

EXAMPLE = {
    "int": -1,
    "long": 2**63 - 1,
    "ok": True,
    "text": "ü",
    "raw": b"\xff\0",
    "float": 1.5,
    "double": 2.5,
    "color": "GREEN",
    "color2": None,
    "fixed": b"ab",
    "amount": Decimal("-1.234"),
    "price": Decimal("9" * 36 + ".99"),
    "day": date(2026, 1, 2),
    "millis": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "micros": datetime(1, 1, 1, tzinfo=UTC),
    "local_millis": datetime(2026, 1, 2, 3, 4, 5, 678000),  # noqa: DTZ001 - it has none
    "local_micros": datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - it has none
    "time": time(1, 2, 3),
    "id": "11111111-2222-3333-4444-555555555555",
    "list": [1, None],
    "map": {"k": {"x": 1, "y": None}},
    "point": {"x": 2, "y": 0.5},
    "union": [True, False],
    "wide": 7,
    "one": "z",
}
MEMBERS = dict.fromkeys(["member0", "member1", "member2", "member3"])


def written(value: Any, schema: Any = SCHEMA) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def decoded(schema: Any, *data: bytes | None) -> tuple[list[Any], list[Any]]:
    decoder = AvroDecoder(json.dumps(schema))
    return tuple(each.to_pylist() for each in decode_rows(decoder, pa.array(data, pa.binary())))


def test_every_type_becomes_the_column_that_spark_has_for_it(spark: SparkSession) -> None:
    df = messages(spark, [written(EXAMPLE), written(EXAMPLE) + b"\0", None])

    result = decode_avro(df, SCHEMA)

    assert dict(result.dtypes[5:]) == {
        "int": "int",
        "long": "bigint",
        "ok": "boolean",
        "text": "string",
        "raw": "binary",
        "float": "float",
        "double": "double",
        "color": "string",
        "color2": "string",
        "fixed": "binary",
        "amount": "decimal(18,3)",
        "price": "decimal(38,2)",
        "day": "date",
        "millis": "timestamp",
        "micros": "timestamp",
        "local_millis": "timestamp_ntz",
        "local_micros": "timestamp_ntz",
        "time": "int",
        "id": "string",
        "list": "array<bigint>",
        "map": "map<string,struct<x:int,y:double>>",
        "point": "struct<x:int,y:double>",
        "union": "struct<member0:int,member1:string,member2:struct<x:int,y:double>,"
        "member3:array<boolean>>",
        "wide": "bigint",
        "one": "string",
        "undecoded": "binary",
    }
    nothing = dict.fromkeys(EXAMPLE)
    assert rows_of(result) == [
        {
            **kept(0),
            **EXAMPLE,
            "millis": "2026-01-02 03:04:05.678",
            "micros": "0001-01-01 00:00:00",
            "local_millis": "2026-01-02 03:04:05.678",
            "local_micros": "9999-12-31 23:59:59.999999",
            "time": 3_723_000,
            "union": {**MEMBERS, "member3": [True, False]},
            "undecoded": None,
        },
        {**kept(1), **nothing, "undecoded": written(EXAMPLE) + b"\0"},
        {**kept(2), **nothing, "undecoded": None},
    ]


def test_a_schema_can_be_json_a_dict_or_what_fastavro_made_of_it(spark: SparkSession) -> None:
    df = messages(spark, [])
    types = decode_avro(df, SCHEMA).dtypes

    assert decode_avro(df, json.dumps(SCHEMA)).dtypes == types
    assert decode_avro(df, fastavro.parse_schema(SCHEMA)).dtypes == types  # type: ignore[arg-type]


def test_hostile_bytes_cost_no_row_and_no_worker(spark: SparkSession) -> None:
    good = written(EXAMPLE)
    hostile = [b"", b"\xff" * 100, *(good[:end] for end in range(1, len(good), 7)), good * 2]
    df = messages(spark, [*hostile, good])

    result = decode_avro(df, SCHEMA, into="record").select("message_id", "record.text", "undecoded")

    assert rows_of(result) == [
        *(
            {"message_id": str(number), "text": None, "undecoded": data}
            for number, data in enumerate(hostile)
        ),
        {"message_id": str(len(hostile)), "text": "ü", "undecoded": None},
    ]


# Without Spark


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("boolean", b"\x01", b"\x02"),
        ("int", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10"),
        (COLOR, b"\x02", b"\x04"),
        (COLOR, b"\x02", b"\x01"),
        (["null", "int"], b"\x02\x02", b"\x01\x02"),
        (["null", "int"], b"\x00", b"\x03"),
        (["null", "int"], b"\x00", b"\x04\x02"),
        ("string", b"\x02a", b"\x02\xff"),
        ("string", b"\x02a", b"\x04a"),
        ("bytes", b"\x00", b"\x01"),
        ({"type": "fixed", "name": "Two", "size": 2}, b"ab", b"a"),
        ("double", b"\0" * 8, b"\0" * 7),
        ("long", b"\x02", b"\x82"),
        ("long", b"\x02", b"\x02\x02"),
        ({"type": "array", "items": "long"}, b"\x02\x02\x00", b"\xfe" + b"\xff" * 8 + b"\x01\x02"),
        ({"type": "map", "values": "long"}, b"\x00", b"\x02\x02a\x02"),
        (logical("bytes", "decimal", precision=2), b"\x02\x63", b"\x02\x64"),
        (logical("int", "date"), b"\x00", b"\xff\xff\xff\xff\x0f"),
        (logical("long", "timestamp-micros"), b"\x00", b"\xff" * 9 + b"\x01"),
        (logical("long", "timestamp-millis"), b"\x00", b"\xff" * 9 + b"\x01"),
        (
            ["null", logical("long", "local-timestamp-millis")],
            b"\x00",
            b"\x02" + b"\xff" * 8 + b"\0",
        ),
    ],
)
def test_a_value_that_the_schema_or_the_column_does_not_allow_is_undecoded(
    kind: Any, good: bytes, bad: bytes
) -> None:
    records, undecoded = decoded(record(("f", kind)), good, bad, good)

    assert [each is None for each in records] == [False, True, False]
    assert undecoded == [None, bad, None]


def test_times_out_of_range_are_found_wherever_they_are() -> None:
    at = logical("long", "timestamp-micros")
    schema = record(
        ("list", {"type": "array", "items": record(("at", ["null", at]), name="In")}),
        ("map", {"type": "map", "values": {"type": "array", "items": logical("int", "date")}}),
    )
    good = {"list": [{"at": 0}, {"at": None}], "map": {"a": [], "b": [0, 1]}}
    beyond = {"list": [{"at": 0}, {"at": 253_402_300_800_000_000}], "map": {}}
    before = {"list": [], "map": {"a": [], "b": [0, -719_163]}}
    data = [written(each, schema) for each in (good, beyond, good, before)]

    records, undecoded = decoded(schema, *data)

    assert [each is None for each in records] == [False, True, False, True]
    assert undecoded == [None, data[1], None, data[3]]


def test_a_decimal_of_a_million_bytes_is_not_reckoned_with() -> None:
    data = written({"f": b"\x7f" * 1_500_000}, record(("f", "bytes")))

    # To make a decimal of it would take minutes.
    assert decoded(record(("f", logical("bytes", "decimal", precision=38))), data) == (
        [None],
        [data],
    )


def test_blocks_of_an_array_may_say_their_size() -> None:
    schema = record(("f", {"type": "array", "items": "long"}))

    assert decoded(schema, b"\x01\x02\x02\x02\x04\x00") == ([{"f": [1, 2]}], [None])


values = st.fixed_dictionaries(
    {
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "ok": st.booleans(),
        "text": st.text(max_size=5),
        "raw": st.binary(max_size=5),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "color": st.sampled_from(["RED", "GREEN"]),
        "color2": st.sampled_from([None, "RED"]),
        "fixed": st.binary(min_size=2, max_size=2),
        "amount": st.decimals(-(10**14), 10**14, places=3),
        "price": st.decimals(-(10**30), 10**30, places=2),
        "day": st.dates(),
        "micros": st.datetimes(timezones=st.just(UTC)),
        "local_micros": st.datetimes(),
        "list": st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "map": st.dictionaries(
            st.text(max_size=3),
            st.fixed_dictionaries({"x": st.just(1), "y": st.none() | st.just(0.5)}),
            max_size=3,
        ),
    }
)


@settings(max_examples=200, deadline=None)
@given(values)
def test_what_was_written_is_read(value: dict[str, Any]) -> None:
    whole = {**EXAMPLE, **value}
    records, undecoded = decode_rows(DECODER, pa.array([written(whole)], pa.binary()))

    assert undecoded.to_pylist() == [None]
    read = records.to_pylist()[0]
    assert {name: read[name] for name in value} == {**value, "map": [*value["map"].items()]}


good_data = values.map(lambda value: written({**EXAMPLE, **value}))
changed_data = st.tuples(
    good_data, st.integers(0, 300), st.integers(0, 4), st.binary(max_size=4)
).map(lambda made: made[0][: made[1]] + made[3] + made[0][made[1] + made[2] :])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=60) | good_data | changed_data, max_size=20))
def test_any_bytes_are_decoded_or_kept(data: list[bytes | None]) -> None:
    records, undecoded = decode_rows(DECODER, pa.array(data, pa.binary()))

    records.validate(full=True)
    is_record = records.is_valid().to_pylist()
    kept_data = [None if good else each for good, each in zip(is_record, data, strict=True)]
    assert undecoded.to_pylist() == kept_data
    # Nobody fares differently for the company that it is in.
    alone = [decode_rows(DECODER, pa.array([each], pa.binary()))[0] for each in data]
    assert pa.concat_arrays([*alone, records[:0]]).equals(records)


@settings(max_examples=100, deadline=None)
@given(good_data, st.binary(min_size=1, max_size=3), st.integers(min_value=0))
def test_less_or_more_than_a_record_is_undecoded(data: bytes, more: bytes, end: int) -> None:
    bad = [data + more, data[: end % len(data)]]

    _, undecoded = decode_rows(DECODER, pa.array([*bad, data], pa.binary()))

    assert undecoded.to_pylist() == [*bad, None]


# Schemas


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (7, "schema must be an Avro schema, as JSON or as a dict, not 7"),
        ({"type": object()}, "schema is not JSON"),
        ("{", "schema is not an Avro schema"),
        ("7", "schema is not an Avro schema"),
        ({}, "schema is not an Avro schema"),
        ({"type": "record", "name": "R"}, "has no data"),
        (record(("f", "text")), "schema is not an Avro schema: UnknownType"),
        ('"string"', "schema must be an Avro schema of a record"),
        ('["null", "int"]', "schema must be an Avro schema of a record"),
        ({"type": "array", "items": "int"}, "schema must be an Avro schema of a record"),
        (record(), "schema has no data"),
        (record(("a", {"type": "array", "items": "null"})), r"field 'a\[\]' of the schema has no"),
        (record(("a", ["null"])), "field 'a' of the schema has no data"),
        (record(("a", record(name="E"))), "field 'a' of the schema has no data"),
        (
            record(("a", {"type": "fixed", "name": "F", "size": 0})),
            "field 'a' of the schema has no",
        ),
        (
            record(("a", record(("next", ["null", "R"]), name="N"))),
            "field 'a.next' .* a R inside a R",
        ),
        (record(("m", {"type": "map", "values": "R"})), "field 'm{}' of the schema is a R inside"),
        (record(("d", logical("bytes", "decimal", precision=39))), "'d' .* a decimal of 39 digits"),
        (record(("d", logical("bytes", "decimal"))), "'d' .* a decimal of 0 digits"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_at_once(
    spark: SparkSession, schema: Any, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        decode_avro(messages(spark, []), schema)

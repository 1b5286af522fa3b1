"""Data that is JSON."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types

from pubsub_aio import ConfigError
from pubsub_aio.spark import decode_json
from tests.spark.decoding.messages import kept, messages, rows_of

SCHEMA = (
    "a int, text string, n struct<x:int,y:double>, list array<int>, map map<string,int>, "
    "at timestamp, day date, price decimal(5,2), big bigint, ok boolean, raw binary, "
    "times array<struct<at:timestamp_ntz>>, days map<string,date>"
)

DECODED: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"a":1,"text":"x"}', {"a": 1, "text": "x"}),
    (b" \t\r\n{ } \n", {}),
    (b'{"a":null}', {}),
    (b'{"other":1,"a":2}', {"a": 2}),
    (b'{"A":1}', {}),
    (b'{"a":1,"a":2}', {"a": 2}),
    (b'{"text":"\xf0\x9f\x98\x80"}', {"text": "\N{GRINNING FACE}"}),
    (b'{"text":"\\ud83d\\ude00"}', {"text": "\N{GRINNING FACE}"}),
    (b'{"text":"]}"}', {"text": "]}"}),
    # Whatever stands where a string is wanted is taken as text, as Spark writes it.
    (b'{"text":1.10}', {"text": "1.1"}),
    (b'{"text":{"z": [1, true]}}', {"text": '{"z":[1,true]}'}),
    (b'{"n":{"x":1,"z":2}}', {"n": {"x": 1, "y": None}}),
    (b'{"n":{"y":1e400}}', {"n": {"x": None, "y": float("inf")}}),
    (b'{"n":{"y":-Infinity}}', {"n": {"x": None, "y": float("-inf")}}),
    (b'{"list":[1,null],"map":{"p":1}}', {"list": [1, None], "map": {"p": 1}}),
    (b'{"at":"2026-01-02T03:04:05.678901+01:00"}', {"at": "2026-01-02 02:04:05.678901"}),
    (b'{"at":5}', {"at": "1970-01-01 00:00:05"}),
    (b'{"day":"2026-01-02"}', {"day": date(2026, 1, 2)}),
    (b'{"days":{"p":"9999-12-31","q":null}}', {"days": {"p": date(9999, 12, 31), "q": None}}),
    (b'{"price":1.234}', {"price": Decimal("1.23")}),
    (b'{"raw":"AQI="}', {"raw": b"\x01\x02"}),
]

UNDECODED = [
    *(b"", b" ", b"null", b"[]", b'[{"a":1}]', b"3", b'"text"', b"true", b'"{}"', b"{", b"}"),
    # More than one object
    *(b'{"a":1} garbage', b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', b'{"a":1},{"a":2}', b'{"a":1},'),
    *(
        b'{"a":1}]}',
        b'{"a":1}]} garbage',
        b'{"a":1}]',
        b'{"a":1}}',
        b'{"a":1}\0',
        b'{"a":1}//',
        b'{"a":1},"b":1',
        b"{},null",
    ),
    # Not JSON
    *(b"{'a':1}", b"{a:1}", b'{"a":01}', b'{"a":1,}', b'{"text":"x\ny"}', b'{"other":bad}'),
    *(b"/*c*/{}", b'\xef\xbb\xbf{"a":1}', b"\0{}", b'{"a":1', b'{"text":"'),
    # Not UTF-8
    *(b'{"text":"\xff"}', b'{"\xff":1}', b'{"text":"\xed\xa0\x80"}', b'{"text":"\xc0\x80"}'),
    b"\xff\xfe{\0}\0",
    # Another type
    *(b'{"a":"x","text":"y"}', b'{"a":1.5}', b'{"a":"1"}', b'{"a":""}', b'{"a":[]}'),
    *(b'{"n":{"x":"bad","y":1}}', b'{"n":[1]}', b'{"n":""}', b'{"list":[1,"x"]}', b'{"list":{}}'),
    *(b'{"map":{"p":1,"q":"x"}}', b'{"ok":"true"}', b'{"ok":1}', b'{"raw":"***"}', b'{"raw":1}'),
    *(b'{"at":"bad"}', b'{"at":""}', b'{"day":"2026-13-01"}', b'{"day":5}', b'{"price":"x"}'),
    # Out of range
    *(b'{"a":3000000000}', b'{"big":99999999999999999999}', b'{"price":123456}', b'{"at":1e300}'),
    *(b'{"price":1e999999999}', b'{"big":1' + b"0" * 1200 + b"}"),
    *(b'{"at":1700000000000}', b'{"at":"0000-12-31T23:59:59Z"}', b'{"day":"10000-01-01"}'),
    *(b'{"times":[{"at":null},{"at":"10000-01-01T00:00:00"}]}', b'{"days":{"p":"0000-01-01"}}'),
    # Depth
    *(b"[" * 5_000, b'{"n":' * 5_000, b'{"other":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
]


def test_a_row_is_decoded_as_a_whole_or_kept_as_it_came(spark: SparkSession) -> None:
    df = messages(spark, [*(data for data, _ in DECODED), *UNDECODED, None])

    result = rows_of(decode_json(df, SCHEMA))

    nothing = dict.fromkeys(spark_types.DataType.fromDDL(SCHEMA).names)  # type: ignore[attr-defined]
    wanted = [{**nothing, **record, "undecoded": None} for _, record in DECODED]
    wanted += [{**nothing, "undecoded": data} for data in [*UNDECODED, None]]
    assert result == [{**kept(number), **each} for number, each in enumerate(wanted)]


def test_the_result_has_the_columns_of_the_messages_then_the_decoded_ones(
    spark: SparkSession,
) -> None:
    df = messages(spark, []).withColumn("more.more", sf.lit(1))
    schema = spark_types.StructType().add("data", "string").add("b.c`d", "integer", nullable=False)

    assert decode_json(df, schema).dtypes == [
        *((name, kind) for name, kind in df.dtypes if name != "data"),
        *(("data", "string"), ("b.c`d", "int"), ("undecoded", "binary")),
    ]
    assert decode_json(df.select("data"), schema, into="record", undecoded="rest").dtypes == [
        *(("record", "struct<data:string,b.c`d:int>"), ("rest", "binary")),
    ]


def test_the_decoded_fields_can_be_one_column(spark: SparkSession) -> None:
    df = messages(spark, [b'{"message_id":7}', b"{}", b"{"])

    result = rows_of(decode_json(df, "message_id int", into="order", undecoded="rest"))

    assert result == [
        {**kept(0), "order": {"message_id": 7}, "rest": None},
        {**kept(1), "order": {"message_id": None}, "rest": None},
        {**kept(2), "order": None, "rest": b"{"},
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("a in", "schema is not Spark's DDL"),
        ("int", "must be a StructType or a DDL string of fields, not IntegerType()"),
        ("map<string,int>", "must be a StructType or a DDL string of fields"),
        (7, "schema must be a StructType or a DDL string of fields, not 7"),
        ("", "schema must have a field"),
        ("Message_Id int", "the decoded field 'Message_Id' is a column already: pass into="),
        ("a int, A int", "the decoded field 'A' is a column already: pass into="),
        ("a varchar(3)", "Spark cannot decode JSON with this schema"),
        ("a struct<b:map<int,int>>", "Spark cannot decode JSON with this schema"),
        ("a struct<b:array<void>>", r"the field 'a.b\[\]' of the schema cannot be void"),
        ("m map<string,interval>", "the field 'm{}' of the schema cannot be interval"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_at_once(
    spark: SparkSession, schema: Any, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        decode_json(messages(spark, []), schema)

"""Data that is protobuf."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, empty_pb2, struct_pb2
from google.protobuf.message import DecodeError
from google.type import timeofday_pb2  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pubsub_aio import ConfigError
from pubsub_aio.spark import decode_protobuf
from pubsub_aio.spark.decoding.from_protobuf import ProtobufDecoder
from pubsub_aio.spark.decoding.protobuf_schema import message_type
from pubsub_aio.spark.decoding.records import decode_rows
from tests.spark.decoding.message_types import (
    NEW_TYPES,
    OLD_TYPES,
    TYPES,
    Old,
    Order,
    class_of,
    file_set,
)
from tests.spark.decoding.messages import kept, messages, rows_of

DECODER = ProtobufDecoder(message_type(Order))

EXAMPLE = {
    "id": 2**64 - 1,
    "count": 2**32 - 1,
    "name": "ü",
    "raw": b"\xff\0",
    "color": -5,
    "at": {"seconds": 253_402_300_799, "nanos": 999_999_999},
    "lasts": {"seconds": -1, "nanos": -500_000_000},
    "limit": {"value": 2**63},
    "day": {"month": 12, "day": 25},
    "time": {"hours": 24},
    "nothing": {},
    "point": {"x": -1, "at": {"seconds": -62_135_596_800}},
    "points": [{"x": 2}, {}],
    "ids": [0, 2**64 - 1],
    "colors": [0, 7, -5],
    "tags": {"a": 1, "": 0},
    "places": {2**32 - 1: {"x": 3}},
    "tip": 0,
    "card": "",
    "double": 0.5,
    "float": 1.5,
    "ok": True,
    "big": -(2**63),
}
WANTED = {
    **EXAMPLE,
    "id": Decimal(2**64 - 1),
    "color": "GREEN",
    "at": "9999-12-31 23:59:59.999999",
    "lasts": timedelta(seconds=-1.5),
    "limit": Decimal(2**63),
    "day": {"year": 0, "month": 12, "day": 25},
    "time": {"hours": 24, "minutes": 0, "seconds": 0, "nanos": 0},
    "point": "{-1, 0001-01-01 00:00:00}",
    "points": [{"x": 2, "at": None}, {"x": 0, "at": None}],
    "ids": [Decimal(0), Decimal(2**64 - 1)],
    "colors": ["RED", "7", "GREEN"],
    "places": {2**32 - 1: {"x": 3, "at": None}},
    "cash": None,
}
UNSET: dict[str, Any] = {
    **dict.fromkeys(WANTED),
    "id": Decimal(0),
    "count": 0,
    "name": "",
    "raw": b"",
    "color": "RED",
    "double": 0.0,
    "float": 0.0,
    "ok": False,
    "big": 0,
    "points": [],
    "ids": [],
    "colors": [],
    "tags": {},
    "places": {},
}


def read(*data: bytes | None, decoder: ProtobufDecoder = DECODER) -> tuple[list[Any], list[Any]]:
    records, undecoded = decode_rows(decoder, pa.array(data, pa.binary()))
    records.validate(full=True)
    return records.to_pylist(), undecoded.to_pylist()


def test_every_type_becomes_a_column_of_spark(spark: SparkSession) -> None:
    data = Order(**EXAMPLE).SerializeToString()
    df = messages(spark, [data, b"", data[:-1], None])

    result = decode_protobuf(df, Order)

    assert dict(result.dtypes[5:]) == {
        "id": "decimal(20,0)",
        "count": "bigint",
        "name": "string",
        "raw": "binary",
        "color": "string",
        "at": "timestamp",
        "lasts": "interval day to second",
        "limit": "decimal(20,0)",
        "day": "struct<year:int,month:int,day:int>",
        "time": "struct<hours:int,minutes:int,seconds:int,nanos:int>",
        "nothing": "struct<>",
        "point": "struct<x:int,at:timestamp>",
        "points": "array<struct<x:int,at:timestamp>>",
        "ids": "array<decimal(20,0)>",
        "colors": "array<string>",
        "tags": "map<string,int>",
        "places": "map<bigint,struct<x:int,at:timestamp>>",
        "tip": "int",
        "cash": "int",
        "card": "string",
        "double": "double",
        "float": "float",
        "ok": "boolean",
        "big": "bigint",
        "undecoded": "binary",
    }
    # The first day of the year 1 cannot be in a row of Python: in its time zone it may be earlier.
    assert rows_of(result.withColumn("point", result.point.cast("string"))) == [
        {**kept(0), **WANTED, "undecoded": None},
        {**kept(1), **UNSET, "undecoded": None},
        {**kept(2), **dict.fromkeys(WANTED), "undecoded": data[:-1]},
        {**kept(3), **dict.fromkeys(WANTED), "undecoded": None},
    ]


def test_a_type_can_be_a_class_a_descriptor_or_a_name_in_a_descriptor_set(
    spark: SparkSession,
) -> None:
    df = messages(spark, [b"\x18\x02", b"\x18"])
    files = file_set(TYPES).SerializeToString()

    results = [
        decode_protobuf(df, timeofday_pb2.TimeOfDay),
        decode_protobuf(df, timeofday_pb2.TimeOfDay.DESCRIPTOR),
        decode_protobuf(df, (files, "google.type.TimeOfDay")),
    ]

    good = {"hours": 0, "minutes": 0, "seconds": 2, "nanos": 0}
    wanted = [
        {**kept(0), **good, "undecoded": None},
        {**kept(1), **dict.fromkeys(good), "undecoded": b"\x18"},
    ]
    assert [rows_of(result) for result in results] == [wanted] * 3


def test_hostile_bytes_cost_no_row_and_no_worker(spark: SparkSession) -> None:
    hostile = [b"\xff", b"\x0b" * 3_000_000, b"\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
    df = messages(spark, [*hostile, b""])

    result = decode_protobuf(df, Order).select("message_id", "name", "undecoded")

    assert rows_of(result) == [
        *(
            {"message_id": str(number), "name": None, "undecoded": data}
            for number, data in enumerate(hostile)
        ),
        {"message_id": "3", "name": "", "undecoded": None},
    ]


# Without Spark


def test_what_was_written_twice_counts_as_protobuf_says() -> None:
    order = Order(tags={"a": 1}, cash=0, name="a", limit={"value": 1}, point={"x": 1})
    again = Order(tags={"a": 2}, card="b", name="b", limit={}, point={"at": {"seconds": 1}})
    merged = Order.FromString(order.SerializeToString() + again.SerializeToString())

    both = read(order.SerializeToString() + again.SerializeToString(), merged.SerializeToString())

    records, undecoded = both
    assert records[0] == records[1]
    assert records[0]["tags"] == [("a", 2)]
    assert (records[0]["cash"], records[0]["card"]) == (None, "b")
    assert undecoded == [None, None]


def test_an_entry_of_a_map_may_lack_its_value() -> None:
    records, undecoded = read(b"\x82\x01\x03\n\x01a", b"\x8a\x01\x02\x08\x05")

    assert (records[0]["tags"], undecoded) == ([("a", 0)], [None, None])
    assert records[1]["places"] == [(5, {"x": 0, "at": None})]


@pytest.mark.parametrize(
    "beyond",
    [
        {"at": {"seconds": 253_402_300_800}},
        {"at": {"seconds": -62_135_596_801}},
        {"at": {"seconds": 2**63 - 1}},
        {"lasts": {"seconds": 315_576_000_001}},
        {"point": {"at": {"seconds": -(2**63)}}},
        {"points": [{}, {"at": {"seconds": 2**62}}]},
        {"places": {1: {}, 2: {"at": {"seconds": 2**62}}}},
    ],
)
def test_a_time_that_protobuf_does_not_allow_is_undecoded(beyond: dict[str, Any]) -> None:
    good, bad = Order(**EXAMPLE).SerializeToString(), Order(**beyond).SerializeToString()

    records, undecoded = read(good, bad, good)

    assert [each is None for each in records] == [False, True, False]
    assert undecoded == [None, bad, None]


def test_the_old_syntax_has_required_fields_and_knows_what_is_unset() -> None:
    data = [b"\x08\x07", b"\x08\x07\x18\x09", b"\x08\x07\x12\x01\xff", b"\x12\x01a", b"\x08\x08"]

    assert read(*data, decoder=ProtobufDecoder(message_type(Old))) == (
        [
            {"id": 7, "text": None, "e": None},
            {"id": 7, "text": None, "e": "9"},
            *(None, None),
            {"id": 8, "text": None, "e": None},
        ],
        [None, None, b"\x08\x07\x12\x01\xff", b"\x12\x01a", None],
    )


seconds = st.integers(-(2**40), 2**40)
orders = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 2**64 - 1),
        "name": st.text(max_size=5),
        "color": st.integers(-6, 1),
        "at": st.fixed_dictionaries({"seconds": seconds}),
        "point": st.fixed_dictionaries({"at": st.fixed_dictionaries({"seconds": seconds})}),
        "points": st.lists(st.fixed_dictionaries({"x": st.integers(-5, 5)}), max_size=3),
        "ids": st.lists(st.integers(0, 2**64 - 1), max_size=3),
        "tags": st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3),
        "tip": st.just(0),
        "cash": st.just(0),
    },
)
good_data = orders.map(lambda fields: Order(**fields).SerializeToString())
changed_data = st.tuples(
    good_data, st.integers(0, 99), st.integers(0, 4), st.binary(max_size=4)
).map(lambda made: made[0][: made[1]] + made[3] + made[0][made[1] + made[2] :])


@st.composite
def fields_of_any_kind(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([0, 1, 2, 5]))
    tag = draw(st.integers(1, 24)) << 3 | kind
    content = draw(st.binary(max_size=9))
    sized = {0: b"\x05", 1: b"\1" * 8, 2: bytes([len(content)]) + content, 5: b"\1" * 4}
    return (bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])) + sized[kind]


any_data = (
    st.binary(max_size=40)
    | changed_data
    | st.lists(good_data | fields_of_any_kind(), max_size=5).map(b"".join)
)


def as_protobuf_reads_it(data: bytes) -> dict[str, Any] | None:
    """Some fields of what protobuf itself makes of it, or nothing if it makes nothing of it."""
    try:
        order = Order.FromString(data)
    except DecodeError:
        return None
    return {
        "id": Decimal(order.id),
        "name": order.name,
        "points": [each.x for each in order.points],
        "ids": [Decimal(each) for each in order.ids],
        "tags": dict(order.tags),
        "tip": order.tip if order.HasField("tip") else None,
        "cash": order.cash if order.HasField("cash") else None,
        "card": order.card if order.HasField("card") else None,
        "limit": Decimal(order.limit.value) if order.HasField("limit") else None,
        "nothing": {} if order.HasField("nothing") else None,
    }


def has_a_time_out_of_range(order: Any) -> bool:
    points = [order.point, *order.points, *order.places.values()]
    times = [order.at.seconds, *(point.at.seconds for point in points)]
    return order.lasts.ByteSize() > 0 or not all(abs(each) < 2**35 for each in times)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | good_data | any_data, max_size=10))
def test_any_bytes_are_decoded_as_protobuf_does_or_kept(data: list[bytes | None]) -> None:
    records, undecoded = decode_rows(DECODER, pa.array(data, pa.binary()))

    records.validate(full=True)
    valid = records.is_valid().to_pylist()
    assert undecoded.to_pylist() == [
        None if good else each for good, each in zip(valid, data, strict=True)
    ]
    some = [field.name for field in records.type]
    for name in ("at", "lasts", "point", "places", "float", "double"):  # not all fit into Python
        some.remove(name)
    columns = {name: records.field(name).to_pylist() for name in some}
    for row, each in enumerate(data):
        wanted = None if each is None else as_protobuf_reads_it(each)
        if wanted is None:
            assert not valid[row]
        elif not valid[row]:
            assert has_a_time_out_of_range(Order.FromString(each))
        else:
            found = {name: columns[name][row] for name in wanted}
            found["points"] = [point["x"] for point in columns["points"][row]]
            # Of an entry with something unknown inside, Python says it is unknown as a whole.
            tags = dict(reversed(found["tags"]))
            found["tags"] = {key: tags[key] for key in wanted["tags"]}
            assert found == wanted


# Types


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (7, "message must be a generated class, a descriptor, or .*, not 7"),
        (Order(), "message must be a generated class"),
        (int, "message must be a generated class"),
        ((b"", 7), "message must be a generated class"),
        ((b"\xff", "shop.Order"), "message begins with no file descriptor set"),
        ((b"", "shop.Order"), "message 'shop.Order' is not whole in the file descriptor set"),
        (empty_pb2.Empty, "message google.protobuf.Empty has no fields"),
        (struct_pb2.Struct, r"'fields.value.struct_value' of the message is a google.protobuf.Str"),
        (
            class_of(OLD_TYPES, "old.Tree"),
            "'below.trees' of the message is a old.Tree inside a old",
        ),
        (class_of(OLD_TYPES, "old.Grouped"), "'g' of the message is a group, which ptars leaves"),
        (class_of(NEW_TYPES, "new.New"), "message needs new.proto, which has an edition; ptars"),
    ],
)
def test_a_type_that_cannot_be_is_refused_at_once(
    spark: SparkSession, message: Any, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        decode_protobuf(messages(spark, []), message)


def test_a_descriptor_set_without_its_imports_is_refused(spark: SparkSession) -> None:
    alone = descriptor_pb2.FileDescriptorSet(file=file_set(TYPES).file[-1:])

    with pytest.raises(ConfigError, match="should be made with --include_imports"):
        decode_protobuf(messages(spark, []), (alone.SerializeToString(), "shop.Order"))

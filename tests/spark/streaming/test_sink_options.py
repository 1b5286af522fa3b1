"""The options of the sink, and the columns that they name."""

from __future__ import annotations

import pickle
import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.streaming.rows_out import OF_THE_SOURCE, Columns, columns_of
from pubsub_aio.spark.streaming.sink import Published, PubSubStreamWriter, PubSubWriter
from pubsub_aio.spark.streaming.sink_options import SinkOptions, sink_options

TOPIC = {"topic": "orders"}
STRING, MAP = StringType(), MapType(StringType(), StringType())


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


def columns(made: StructType, **options: str) -> Columns:
    return columns_of(made, sink_options(TOPIC | options))


def test_a_topic_is_enough() -> None:
    made = sink_options(TOPIC)

    assert made == SinkOptions(
        topic="orders", connection=made.connection, named=frozenset({"topic"})
    )


def test_names_have_any_case_and_values_units() -> None:
    made = sink_options(TOPIC | {"PUBLISHTIMEOUT": "2 minutes", "maxoutstandingbytes": "1m"})

    assert (made.publish_timeout, made.max_outstanding_bytes) == (120.0, 1 << 20)


def test_an_empty_id_attribute_means_no_ids() -> None:
    assert sink_options(TOPIC | {"idAttribute": ""}).id_attribute == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'topic is missing: give .option("topic", "projects/PROJECT/topics/NAME")'),
        (TOPIC | {"idColum": "a"}, "idColum: there is no such option; did you mean idColumn?"),
        (TOPIC | {"topicId": "a"}, "topicId: there is no such option here: give topic"),
        (TOPIC | {"dataColumn": ""}, "dataColumn must be the name of a column"),
        (TOPIC | {"idAttribute": "google"}, "idAttribute: names that begin with 'goog'"),
        (TOPIC | {"idAttribute": "é" * 129}, "idAttribute must have at most 256 bytes, not 258"),
        (TOPIC | {"idPrefix": "a\nb"}, "idPrefix must be a text of at most 200 characters"),
        (TOPIC | {"idPrefix": "a", "idColumn": "b"}, "idPrefix: give it or idColumn, not both"),
        (TOPIC | {"idAttribute": "", "idColumn": "b"}, "idColumn: no id is sent"),
        (TOPIC | {"idAttribute": "", "idPrefix": "b"}, "idPrefix: no id is sent"),
        (TOPIC | {"publishTimeout": "0s"}, "publishTimeout must be more than 0"),
        (TOPIC | {"maxOutstandingMessages": "0"}, "maxOutstandingMessages must be at least 1"),
    ],
)
def test_a_mistake_names_its_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        sink_options(options)


def test_columns_are_found_by_their_names() -> None:
    made = schema(ordering_key=STRING, DATA=BinaryType(), attributes=MAP, number=LongType())

    assert columns(made, idColumn="number") == Columns(
        names=("ordering_key", "DATA", "attributes", "number"),
        data=1,
        attributes=2,
        ordering_key=0,
        id=3,
    )


def test_what_the_source_reads_can_be_written() -> None:
    kinds: dict[str, DataType] = dict.fromkeys(sorted(OF_THE_SOURCE), STRING)
    made = schema(**kinds | {"attributes": MAP}, body=STRING)

    assert columns(made, dataColumn="body").data == made.names.index("body")


def test_attributes_alone_can_be_written() -> None:
    assert columns(schema(attributes=MAP)).data is None


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (schema(a=STRING), {}, "data: there is no such column, and no attributes; there are a:"),
        (schema(data=LongType()), {}, "data: the column must be binary or string, not bigint"),
        (
            schema(attributes=MapType(STRING, LongType())),
            {},
            "attributes: the column must be map<string,string>, not map<string,bigint>: cast it, "
            "or name another one with attributesColumn",
        ),
        (
            schema(data=STRING, ordering_key=LongType()),
            {},
            "ordering_key: the column must be string, not bigint",
        ),
        (
            schema(data=STRING, own=ArrayType(STRING)),
            {"idColumn": "own"},
            "own: the column must be string or a whole number, not array<string>",
        ),
        (
            schema(data=STRING),
            {"orderingKeyColumn": "customer"},
            "orderingKeyColumn: there is no column 'customer'; there are data",
        ),
        (
            schema(data=STRING, price=LongType(), name=STRING),
            {},
            "price, name: nothing publishes such a column: drop it, or put it into the data with "
            "to_json(struct(...))",
        ),
        (schema(data=STRING).add("data", STRING), {}, "data: there are 2 columns of that name"),
    ],
)
def test_a_column_that_does_not_fit_is_named(
    made: StructType, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        columns(made, **options)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(ConfigError, match=r'mode: .* write with .mode\("append"\)'):
        PubSubWriter(TOPIC, schema(data=STRING), overwrite=True)


def test_a_streaming_query_takes_no_prefix() -> None:
    with pytest.raises(ConfigError, match=r"idPrefix is for df\.write"):
        PubSubStreamWriter(TOPIC | {"idPrefix": "a"}, schema(data=STRING))


def test_an_abort_says_what_may_be_published(caplog: pytest.LogCaptureFixture) -> None:
    done = [Published(rows=1_200), None, Published(rows=34)]

    PubSubStreamWriter(TOPIC, schema(data=STRING)).abort(done, 7)
    PubSubStreamWriter(TOPIC | {"idAttribute": ""}, schema(data=STRING)).abort(done, 8)
    PubSubWriter(TOPIC, schema(data=STRING), overwrite=False).abort(done)
    PubSubWriter(TOPIC | {"idPrefix": "a"}, schema(data=STRING), overwrite=False).abort(done)

    start = "failed: 1,234 rows of tasks that ended are published, and maybe others; "
    assert [record.getMessage() for record in caplog.records] == [
        f"batch 7 to orders {start}they are published again with the same ids when the query goes "
        "on",
        f"batch 8 to orders {start}they are published again without ids when the query goes on",
        f"a write to orders {start}give an idPrefix or an idColumn if a further write should give "
        "them the same ids",
        f"a write to orders {start}a further write with this idPrefix gives them the same ids",
    ]


def test_writers_travel_to_tasks() -> None:
    writer = PubSubWriter(TOPIC, schema(data=STRING), overwrite=False)

    assert vars(pickle.loads(pickle.dumps(writer))) == vars(writer)  # noqa: S301 - our own

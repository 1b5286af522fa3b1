"""Rows are published: each once, with its id; what fails fails the batch."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.errors import ConfigError, PublishTimeoutError
from pubsub_aio.spark.streaming.row_ids import RowIds
from pubsub_aio.spark.streaming.row_publishing import RowPublisher
from pubsub_aio.spark.streaming.rows_out import columns_of
from pubsub_aio.spark.streaming.sink_options import ID_ATTRIBUTE, sink_options
from tests.spark.wire import TOPIC, WITHIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STRING, MAP = StringType(), MapType(StringType(), StringType())
DATA = StructType().add("data", BinaryType())
MANY = 7_000
"""Rows that are more than are published at once, and fewer than an emulator remembers."""


def options_of(emulator: EmulatorThread, **options: str) -> dict[str, str]:
    endpoint = f"http://{emulator.address}"
    return {"topic": TOPIC, "project": emulator.project, "endpoint": endpoint} | options


def data_of(emulator: EmulatorThread) -> Counter[bytes]:
    return Counter(message.data for message in emulator.messages(TOPIC))


def ids_of(emulator: EmulatorThread) -> list[str]:
    return [message.attributes[ID_ATTRIBUTE] for message in emulator.messages(TOPIC)]


# Without Spark


def publish(
    emulator: EmulatorThread, schema: StructType, batches: Iterator[pa.RecordBatch], **options: str
) -> int:
    made = sink_options(options_of(emulator, **options))
    ids = RowIds(("query", "q", "0", "3"), shown="q-0-3")
    makes_ids = made.id_attribute and not made.id_column
    publisher = RowPublisher(
        made, columns_of(schema, made), ids if makes_ids else None, partition=3
    )

    async def run() -> int:
        try:
            async with asyncio.timeout(WITHIN):
                return await publisher.run(batches)
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def rows(schema: StructType, *columns: list[Any]) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    yield pa.RecordBatch.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip(columns, to_arrow_schema(schema), strict=True)
        ],
        names=schema.names,
    )


def test_no_rows_cost_no_connection() -> None:
    nowhere = sink_options({"topic": TOPIC, "project": "p", "endpoint": "http://127.0.0.1:1"})
    publisher = RowPublisher(nowhere, columns_of(DATA, nowhere), None, partition=0)

    assert asyncio.run(publisher.run(iter([]))) == 0


def test_every_row_is_confirmed_before_the_end(emulator: EmulatorThread) -> None:
    batches = [*rows(DATA, [b"%d" % n for n in range(MANY)]), *rows(DATA, [b"0", b"1"])]

    assert publish(emulator, DATA, iter(batches)) == MANY + 2

    assert data_of(emulator) == Counter(b"%d" % n for n in [*range(MANY), 0, 1])
    assert len(set(ids_of(emulator))) == MANY + 2


def test_no_more_is_out_than_may_be(emulator: EmulatorThread) -> None:
    out: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 4_000, 100):
            out.append(start - len(emulator.messages(TOPIC)))
            yield from rows(DATA, [b"%d" % n for n in range(start, start + 100)])

    publish(emulator, DATA, batches(), maxOutstandingMessages="250")

    assert max(out) <= 250
    assert len(emulator.messages(TOPIC)) == 4_000


@pytest.mark.parametrize("large", ["data", "attributes"])
def test_large_rows_count_by_their_bytes(emulator: EmulatorThread, large: str) -> None:
    out: list[int] = []
    schema = StructType().add("data", STRING).add("attributes", MAP)
    many = [(f"{number}", "x" * 1_000) for number in range(98)]
    columns: tuple[list[object], ...] = (["x" * 100_000], [None])
    if large == "attributes":
        columns = ([None], [many])

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(20):
            out.append(start - len(emulator.messages(TOPIC)))
            yield from rows(schema, *columns)

    publish(emulator, schema, batches(), maxOutstandingBytes="300000")

    assert max(out) <= 3


def test_columns_of_each_kind(emulator: EmulatorThread) -> None:
    schema = StructType().add("body", STRING).add("tags", MAP).add("customer", STRING)
    columns = (
        ["tea", "é", None, "milk"],
        [[("a", "1"), ("b", "")], None, [("c", "3")], []],
        ["x", None, "", "y"],
    )
    names = {"dataColumn": "body", "attributesColumn": "tags", "orderingKeyColumn": "customer"}

    publish(emulator, schema, rows(schema, *columns), idAttribute="", **names)

    assert sorted((m.data, m.attributes, m.ordering_key) for m in emulator.messages(TOPIC)) == [
        (b"", {"c": "3"}, ""),
        (b"milk", {}, "y"),
        (b"tea", {"a": "1", "b": ""}, "x"),
        ("é".encode(), {}, ""),
    ]


def test_a_part_of_a_batch_has_its_own_attributes(emulator: EmulatorThread) -> None:
    """Arrow keeps the attributes of all rows in one place, whatever part of them is looked at."""
    schema = StructType().add("data", BinaryType()).add("attributes", MAP)
    numbers = range(MANY)
    columns = ([b"%d" % n for n in numbers], [[("n", str(n))] if n % 3 else None for n in numbers])

    publish(emulator, schema, rows(schema, *columns))

    assert {m.data: m.attributes.get("n") for m in emulator.messages(TOPIC)} == {
        b"%d" % n: str(n) if n % 3 else None for n in numbers
    }


def test_the_users_own_ids(emulator: EmulatorThread) -> None:
    from pyspark.sql.types import LongType

    schema = StructType().add("data", STRING).add("number", LongType())

    publish(
        emulator, schema, rows(schema, ["a", "b"], [7, -8]), idColumn="number", idAttribute="own"
    )

    assert {m.data: m.attributes for m in emulator.messages(TOPIC)} == {
        b"a": {"own": "7"},
        b"b": {"own": "-8"},
    }


def test_an_id_of_another_write_is_replaced(emulator: EmulatorThread) -> None:
    schema = StructType().add("attributes", MAP)
    full = [(f"a{n}", "") for n in range(99)] + [(ID_ATTRIBUTE, "before")]

    publish(emulator, schema, rows(schema, [full]))

    (message,) = emulator.messages(TOPIC)
    assert len(message.attributes) == 100
    assert message.attributes[ID_ATTRIBUTE].startswith("q-0-3-")


def test_rows_of_a_key_stay_in_order(emulator: EmulatorThread) -> None:
    schema = StructType().add("data", BinaryType()).add("ordering_key", STRING)
    numbers = range(MANY)
    emulator.faults.fail("Publish", "UNAVAILABLE", times=2)

    columns = ([b"%05d" % n for n in numbers], [f"key {n % 3}" for n in numbers])
    publish(emulator, schema, rows(schema, *columns))

    of_a_key: dict[str, list[bytes]] = {}
    for message in emulator.messages(TOPIC):
        of_a_key.setdefault(message.ordering_key, []).append(message.data)
    assert of_a_key == {f"key {k}": [b"%05d" % n for n in numbers if n % 3 == k] for k in range(3)}


def test_what_fails_for_a_while_is_tried_again(emulator: EmulatorThread) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", times=3)

    publish(emulator, DATA, rows(DATA, [b"%d" % n for n in range(MANY)]))

    assert data_of(emulator) == Counter(b"%d" % n for n in range(MANY))


def test_the_first_failure_ends_it(emulator: EmulatorThread) -> None:
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(1_000):
            taken.append(number)
            yield from rows(DATA, [b"x"] * 100)

    with pytest.raises(ConfigError, match=r"^topic: there is no gone: create it, or give another "):
        publish(emulator, DATA, batches(), topic="gone", maxOutstandingMessages="1000")

    assert len(taken) < 1_000


def test_who_gets_no_answer_gives_up(emulator: EmulatorThread) -> None:
    with emulator.faults.stall_connections(), pytest.raises(PublishTimeoutError) as caught:
        publish(emulator, DATA, rows(DATA, [b"x"]), publishTimeout="0.2s")

    assert caught.value.__notes__ == ["This was while partition 3 was written to orders."]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            ([b"", b"x" * 10_000_001], [None, None], ["", ""]),
            {},
            "body: 10,000,001 bytes are more than the service takes, 10,000,000 "
            "(row 1 of partition 3)",
        ),
        (
            ([b"", b""], [None, [("a", None)]], ["", ""]),
            {},
            "tags: the value of 'a' is null: leave it out with map_filter (row 1 of partition 3)",
        ),
        (
            ([b"", b""], [[("a", "x" * 1_025)], None], ["", ""]),
            {},
            "tags['a'] has 1,025 bytes, more than the service takes, 1,024 (row 0 of partition 3)",
        ),
        (
            ([b""], [[(f"a{n}", "") for n in range(100)]], [""]),
            {},
            "tags: 100 is all that the service takes, and pubsub_aio_row_id is one more: leave "
            "one out, or set idAttribute to nothing (row 0 of partition 3)",
        ),
        (
            ([b"x"], [None], ["k" * 1_025]),
            {},
            "customer has 1,025 bytes, more than the service takes, 1,024 (row 0 of partition 3)",
        ),
        (
            ([None], [[]], [""]),
            {"idAttribute": ""},
            "body: a message must have data or at least one attribute (row 0 of partition 3)",
        ),
        (
            ([b"a", b"b"], [None, None], ["", None]),
            {"idColumn": "customer", "orderingKeyColumn": "customer"},
            "customer: an id is null: give every row one (row 1 of partition 3)",
        ),
        (
            ([b"a"], [None], [""]),
            {"idColumn": "customer"},
            "customer: an id is empty: give every row one (row 0 of partition 3)",
        ),
    ],
)
def test_a_row_that_cannot_be_published_is_named(
    emulator: EmulatorThread, columns: tuple[list[Any], ...], options: dict[str, str], message: str
) -> None:
    schema = StructType().add("body", BinaryType()).add("tags", MAP).add("customer", STRING)
    names = {"dataColumn": "body", "attributesColumn": "tags", "orderingKeyColumn": "customer"}

    with pytest.raises(ConfigError) as caught:
        publish(emulator, schema, rows(schema, *columns), **names | options)

    assert str(caught.value) == message


# With Spark


def write(df: DataFrame, options: Mapping[str, str], *, mode: str = "append") -> None:
    df.write.format("pubsub").mode(mode).options(**options).save()


def test_a_dataframe_is_published(session: SparkSession, emulator: EmulatorThread) -> None:
    df = session.range(0, 1_000, 1, 2).selectExpr(
        "cast(id as string) as data",
        "map('id', cast(id as string)) as attributes",
        "concat('key ', id % 2) as ordering_key",
    )

    write(df, options_of(emulator))

    found = {m.data: (m.attributes["id"], m.ordering_key) for m in emulator.messages(TOPIC)}
    assert found == {b"%d" % n: (str(n), f"key {n % 2}") for n in range(1_000)}
    assert len(emulator.messages(TOPIC)) == len(set(ids_of(emulator))) == 1_000


def test_a_job_is_recognised_by_its_prefix_alone(
    session: SparkSession, emulator: EmulatorThread
) -> None:
    df = session.range(0, 20, 1, 2).selectExpr("cast(id % 5 as string) as data")
    for prefix in ("day 1", "day 1", "day 2"):
        write(df, options_of(emulator, idPrefix=prefix))
    write(df, options_of(emulator))
    write(df, options_of(emulator))

    ids = Counter(ids_of(emulator))

    assert sorted(ids.values()) == [1] * 60 + [2] * 20
    assert {row_id.startswith("day 1-") for row_id, count in ids.items() if count == 2} == {True}


def test_a_mistake_is_told_by_spark(session: SparkSession, emulator: EmulatorThread) -> None:
    df = session.range(3).selectExpr("cast(id as string) as data")

    with pytest.raises(Exception, match=r"write with .mode\(.append.\)"):
        write(df, options_of(emulator), mode="overwrite")
    with pytest.raises(Exception, match="price: nothing publishes such a column"):
        write(df.selectExpr("data", "1 as price"), options_of(emulator))


class Input:
    """A folder of files that a query reads one at a time, each a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "input"
        self.checkpoint = folder / "checkpoint"
        self.folder.mkdir()

    def add(self, name: str, values: list[int]) -> None:
        text = "".join(json.dumps({"value": value}) + "\n" for value in values)
        (self.folder / name).write_text(text)

    def rows(self, session: SparkSession) -> DataFrame:
        stream = session.readStream.schema("value long").option("maxFilesPerTrigger", 1)
        return stream.json(str(self.folder))

    def run(self, df: DataFrame, options: Mapping[str, str]) -> None:
        """Run a query until it has read everything."""
        writer = df.writeStream.format("pubsub").options(**options).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            assert query.awaitTermination(int(WITHIN))
        finally:
            query.stop()

    def forget_last_commit(self) -> None:
        """As if the driver had died right before it."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def given(tmp_path: Path) -> Input:
    return Input(tmp_path)


def test_a_batch_that_comes_again_has_the_same_ids(
    session: SparkSession, emulator: EmulatorThread, given: Input
) -> None:
    given.add("0.json", [*range(5), 1, 1])
    df = given.rows(session).selectExpr("cast(value as string) as data")
    given.run(df, options_of(emulator))
    given.add("1.json", [*range(5), 1, 1])
    given.run(df, options_of(emulator))
    before = ids_of(emulator)
    given.forget_last_commit()

    given.run(df, options_of(emulator))

    ids = ids_of(emulator)
    assert len(set(before)) == len(before) == 14
    assert sorted(ids[14:]) == sorted(before[7:])
    content = {(m.attributes[ID_ATTRIBUTE], m.data) for m in emulator.messages(TOPIC)}
    assert len(content) == 14


def test_a_batch_after_a_shuffle_has_the_same_ids(
    session: SparkSession, emulator: EmulatorThread, given: Input
) -> None:
    given.add("0.json", [*range(40)] * 2)
    df = given.rows(session).dropDuplicates(["value"]).repartition(3, "value")
    df = df.selectExpr("cast(value as string) as data")
    given.run(df, options_of(emulator))
    before = ids_of(emulator)
    given.forget_last_commit()

    given.run(df, options_of(emulator))

    assert len(set(before)) == len(before) == 40
    assert len({row_id.split("-")[2] for row_id in before}) > 1  # partitions
    assert sorted(ids_of(emulator)[40:]) == sorted(before)


def test_a_query_fails_with_the_name_of_the_topic(
    session: SparkSession, emulator: EmulatorThread, given: Input
) -> None:
    given.add("0.json", [1])
    df = given.rows(session).selectExpr("cast(value as string) as data")

    with pytest.raises(Exception, match="topics/gone"):
        given.run(df, options_of(emulator, topic="gone"))

    given.run(df, options_of(emulator))
    assert data_of(emulator) == Counter([b"1"])

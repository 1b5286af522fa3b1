"""Segments: what was written is read, and whatever happens to the file is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_aio.errors import DataLossError
from pubsub_aio.spark.streaming import segments
from pubsub_aio.spark.streaming.keys import keys_of
from pubsub_aio.spark.streaming.segments import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    SCHEMA,
    Segment,
    chunked,
    conformed,
    load,
    read_chunk,
)
from tests.spark.streaming.logs import NOW, MemoryStore, rows

NAME = "incoming/1-a.segment"
MIB = 1 << 20

Row = dict[str, Any]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
instants = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis adds the zone
messages = st.fixed_dictionaries(
    {
        "message_id": st.integers(0, 1 << 64).map(str) | texts,
        "data": st.binary(max_size=200)
        | st.binary(min_size=1, max_size=3).map(lambda b: b * 9_999),
        "attributes": st.dictionaries(texts, texts, max_size=4).map(lambda d: [*d.items()]),
        "publish_time": instants,
        "ordering_key": texts,
        "delivery_attempt": st.none() | st.integers(1, 1 << 30),
    }
)


def records_of(found: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)


def written(
    records: pa.RecordBatch, *, wal: str = "w", size: int = 77
) -> tuple[MemoryStore, Segment]:
    store = MemoryStore()
    return store, segments.write(store, NAME, wal, records, keys_of(records), size)


def read(store: MemoryStore, segment: Segment) -> list[Row]:
    return [row for chunk in segment.chunks for row in read_chunk(store, NAME, chunk).to_pylist()]


def known(segment: Segment) -> tuple[object, ...]:
    """What there is in a segment, in values that can be compared."""
    keys = tuple(column.tolist() for column in segment.keys)
    return segment.name, segment.rows, segment.size, segment.oldest, keys, segment.chunks


def damage(why: str = r"damaged \(.*\)") -> str:
    """How an error reads, for `match`."""
    return (
        rf"^walLocation: memory/{NAME} is {why}. It is the only copy of messages that were "
        r"acknowledged: bring it back, or set the option failOnDataLoss to false to go on without "
        r"them$"
    )


# What was written is read


@given(st.lists(messages, min_size=1, max_size=30))
@settings(deadline=None)
def test_what_was_written_is_read(found: list[Row]) -> None:
    store, segment = written(records_of(found))

    there = load(store, NAME, "w")

    assert known(there) == known(segment)
    assert read(store, there) == found
    times = [row["publish_time"].timestamp() for row in found]
    assert (there.rows, there.size) == (len(found), 77)
    assert there.oldest == min(times)


@given(st.lists(messages, min_size=1, max_size=30))
@settings(deadline=None)
def test_keys_are_read_without_the_rows(found: list[Row]) -> None:
    records = records_of(found)
    store, segment = written(records)
    first = segment.chunks[0].offset
    store.files[NAME] = store.files[NAME][:first]

    keys = load(store, NAME, "w").keys

    assert [column.tolist() for column in keys] == [c.tolist() for c in keys_of(records)]


def test_nulls_stay_nulls() -> None:
    row: Row = dict.fromkeys(SCHEMA.names) | {
        "message_id": "1",
        "publish_time": datetime.fromtimestamp(NOW, UTC),
    }

    store, segment = written(records_of([row]))

    assert read(store, segment) == [row]


def test_columns_of_like_types_become_those_of_segments() -> None:
    found = rows(["1", "2"], attributes=[{"a": "1"}, {}])
    types = {"message_id": pa.large_string(), "data": pa.large_binary()}
    types |= {"ordering_key": pa.dictionary(pa.int32(), pa.string())}
    types |= {"publish_time": pa.timestamp("us", tz="+01:00")}
    others = found
    for name, kind in types.items():
        place = SCHEMA.get_field_index(name)
        others = others.set_column(place, name, others.column(name).cast(kind))

    assert conformed(others).equals(found)
    assert conformed(others).schema == SCHEMA


def test_a_message_of_ten_megabytes() -> None:
    data = np.random.default_rng(1).bytes(10_000_000)
    found = [
        {**row, "data": data if row["message_id"] == "1" else row["data"]}
        for row in rows(["0", "1", "2"]).to_pylist()
    ]

    store, segment = written(records_of(found))

    assert read(store, load(store, NAME, "w")) == [
        {**row, "attributes": [*row["attributes"]]} for row in found
    ]
    assert [chunk.rows for chunk in segment.chunks] == [1, 1, 1]


# Chunks


def test_chunks_are_bounded_in_rows() -> None:
    records = rows([str(number) for number in range(2 * CHUNK_ROWS + 1)])

    parts = [*chunked(records)]

    assert [part.num_rows for part in parts] == [CHUNK_ROWS, CHUNK_ROWS, 1]
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(records)


@pytest.mark.parametrize("column", ["data", "attributes"])
def test_chunks_are_bounded_in_bytes(column: str) -> None:
    of_a_row = 64 * 1024
    large: Any = b"x" * of_a_row if column == "data" else [("a", "x" * of_a_row)]
    found = [{**row, column: large} for row in rows([str(n) for n in range(300)]).to_pylist()]

    store, segment = written(records_of(found))

    assert max(chunk.length for chunk in segment.chunks) < CHUNK_BYTES + MIB
    assert len(segment.chunks) < 2 * len(found) * of_a_row // CHUNK_BYTES + 2
    assert read(store, segment) == found


def test_large_rows_do_not_make_small_ones_lonely() -> None:
    found = rows([str(number) for number in range(1_000)]).to_pylist()
    found[500]["data"] = b"x" * 10 * MIB

    _, segment = written(records_of(found))

    assert len(segment.chunks) <= 20
    assert sum(chunk.rows for chunk in segment.chunks) == 1_000


@pytest.mark.parametrize("mistake", [0, 1, -1])
def test_a_chunk_starts_where_arrow_wants_it(mistake: int) -> None:
    _, segment = written(rows([str(number) for number in range(50 + mistake)]))

    assert [chunk.offset % 64 for chunk in segment.chunks] == [0]


# The name is taken


def test_who_lost_the_answer_may_write_again() -> None:
    store, segment = written(records := rows(["1", "2"]))

    again = segments.write(store, NAME, "w", records, keys_of(records), 77)

    assert known(again) == known(segment)


def test_a_name_that_others_took_is_refused() -> None:
    store, _ = written(rows(["1", "2"]))
    others = rows(["3"])

    with pytest.raises(FileExistsError, match=f"memory/{NAME} is there already"):
        segments.write(store, NAME, "w", others, keys_of(others), 77)


# Damage


def test_any_byte_that_changes_is_noticed_or_means_nothing() -> None:
    records = rows(["1", "22", "x"], attributes=[{"a": "b"}, {}, {"c": ""}])
    store, before = written(records)
    whole = store.files[NAME]
    expected = read(store, before)
    noticed: list[str] = []
    for place in range(len(whole)):
        for flipped in (0x01, 0x80):
            changed = bytearray(whole)
            changed[place] ^= flipped
            store.files[NAME] = bytes(changed)
            try:
                segment = load(store, NAME, "w")
                assert known(segment) == known(before)
                assert read(store, segment) == expected
            except DataLossError as error:
                noticed.append(str(error).partition(" (")[0])

    padding = 2 * (3 * 64 + 64)  # what is between the parts
    assert {*noticed} == {f"walLocation: memory/{NAME} is damaged"}
    assert len(noticed) >= 2 * len(whole) - padding


def test_a_file_that_was_cut_off_is_noticed() -> None:
    store, before = written(rows(["1", "22", "x"]))
    whole = store.files[NAME]
    last = before.chunks[-1]
    for length in range(last.offset + last.length):
        store.files[NAME] = whole[:length]
        with pytest.raises(DataLossError, match=damage(r"damaged \(.*\)")):
            read(store, load(store, NAME, "w"))


@pytest.mark.parametrize("there", [b"", b"\0" * 20, b"\0" * 4096, b"PAR1" * 100])
def test_another_kind_of_file_is_no_segment(there: bytes) -> None:
    store = MemoryStore()
    store.files[NAME] = there

    with pytest.raises(DataLossError, match=damage(r"damaged \((it is no segment|0 bytes .*)\)")):
        load(store, NAME, "w")


def test_a_file_that_is_gone_is_missing() -> None:
    store, segment = written(rows(["1"]))
    del store.files[NAME]

    with pytest.raises(DataLossError, match=damage("missing")):
        load(store, NAME, "w")
    with pytest.raises(DataLossError, match=damage("missing")):
        read_chunk(store, NAME, segment.chunks[0])


def test_a_segment_of_another_log_is_refused() -> None:
    store, _ = written(rows(["1"]), wal="other")

    with pytest.raises(DataLossError, match=damage(r"damaged \(it belongs to .* 'other'\)")):
        load(store, NAME, "w")


def rewritten(whole: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file whose header says something else, and whose checksum fits."""
    magic, length, _ = segments._PREFIX.unpack_from(whole)
    start = segments._PREFIX.size
    header = json.loads(whole[start : start + length])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    assert len(text) == length
    prefix = segments._PREFIX.pack(magic, length, xxhash.xxh3_64_intdigest(text))
    return prefix + text + whole[start + length :]


def test_a_segment_of_another_version_is_refused() -> None:
    store, _ = written(rows(["1"]))
    store.files[NAME] = rewritten(store.files[NAME], lambda header: header.update(version=2))

    with pytest.raises(DataLossError, match=damage(r"damaged \(it has the format 2, not 1\)")):
        load(store, NAME, "w")


def test_a_header_that_lacks_something_is_damage() -> None:
    store, _ = written(rows(["1"]))
    store.files[NAME] = rewritten(store.files[NAME], lambda header: header.pop("keys"))

    with pytest.raises(DataLossError, match=damage(r"damaged \('keys'\)")):
        load(store, NAME, "w")


def test_rows_that_are_others_than_the_header_says_are_damage() -> None:
    store, segment = written(rows(["1", "2"]))
    body = rows(["1"]).serialize().to_pybytes()
    chunk = segments.Chunk(0, len(body), 2, segments.checksum(body))
    store.files[NAME] = body

    with pytest.raises(DataLossError, match=damage(r"damaged \(a chunk has 1 rows, not 2\)")):
        read_chunk(store, NAME, chunk)
    assert segment.rows == 2


def test_headers_longer_than_what_is_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "CHUNK_ROWS", 1)
    found = rows([str(number) for number in range(3_000)]).to_pylist()

    store, segment = written(records_of(found))

    assert segment.chunks[0].offset > segments._FIRST_READ + 3_000 * 20
    assert known(load(store, NAME, "w")) == known(segment)
    assert read(store, segment) == found


def test_the_oldest_time_is_in_seconds_whatever_the_zone() -> None:
    found = rows(["1", "2"]).to_pylist()
    found[0]["publish_time"] += timedelta(microseconds=1)

    _, segment = written(records_of(found))

    assert segment.oldest == NOW

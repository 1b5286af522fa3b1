"""Ids are the same for the same rows in any order, and differ for all others."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio.spark.streaming.row_ids import RowIds

Row = tuple[bytes, dict[str, str], str]

texts = st.text("a1,:", max_size=3)
rows = st.tuples(
    st.binary(max_size=2) | st.sampled_from([b"0,0:", b"1,0:", b"\x00"]),
    st.dictionaries(texts, texts, max_size=2),
    texts,
)
SCOPE = ("query", "q", "7", "0")


def ids_of(some: list[Row], *, scope: tuple[str, ...] = SCOPE, parts: int = 1_000_000) -> list[str]:
    made = RowIds(scope, shown="q-7-0")
    ids: list[str] = []
    for start in range(0, len(some), parts):
        part = some[start : start + parts]
        ids += made.of(
            [data for data, _, _ in part], [more for _, more, _ in part], [key for *_, key in part]
        )
    return ids


def content(row: Row) -> tuple[bytes, tuple[tuple[str, str], ...], str]:
    data, attributes, key = row
    return data, tuple(sorted(attributes.items())), key


@given(st.lists(rows, max_size=30), st.integers(1, 5))
def test_no_two_rows_have_one_id(some: list[Row], parts: int) -> None:
    assert len(set(ids_of(some, parts=parts))) == len(some)


@given(st.lists(rows, max_size=30), st.integers(1, 5), st.integers(1, 5), st.randoms())
def test_the_order_of_rows_does_not_matter(
    some: list[Row], parts: int, others: int, random: object
) -> None:
    again = [*some]
    random.shuffle(again)  # type: ignore[attr-defined]

    first = Counter(zip(map(content, some), ids_of(some, parts=parts), strict=True))
    second = Counter(zip(map(content, again), ids_of(again, parts=others), strict=True))

    assert first == second


@pytest.mark.parametrize(
    ("row", "other"),
    [
        ((b"", {"a": "bc"}, ""), (b"", {"ab": "c"}, "")),
        ((b"y", {}, "x"), (b"", {}, "xy")),
        ((b"0,1:k", {}, ""), (b"", {}, "k")),
        ((b"1,1:ab", {"a": "b"}, ""), (b"", {"a": "b", "b": ""}, "")),
        ((b"", {"a": ""}, ""), (b"", {}, "a")),
    ],
)
def test_rows_that_read_alike_have_other_ids(row: Row, other: Row) -> None:
    assert ids_of([row]) != ids_of([other])


def test_the_order_of_attributes_does_not_matter() -> None:
    row, same = (b"", {"a": "1", "b": "2"}, ""), (b"", {"b": "2", "a": "1"}, "")

    assert ids_of([row]) == ids_of([same])


@pytest.mark.parametrize(
    "scope",
    [
        ("query", "q", "7", "1"),
        ("query", "q", "8", "0"),
        ("query", "r", "7", "0"),
        ("write", "q", "7", "0"),
        ("query", "q7", "", "0"),
    ],
)
def test_another_scope_has_other_ids(scope: tuple[str, ...]) -> None:
    row: Row = (b"tea", {}, "")

    assert ids_of([row]) != ids_of([row], scope=scope)


def test_an_id_stays_as_it_is_for_ever() -> None:
    """A query that goes on with another version of the library must give the same."""
    tea: Row = (b"tea", {}, "")
    more: Row = (b"tea", {"a": "1"}, "k")

    assert ids_of([tea, more, tea, tea]) == [
        "q-7-0-b55225854a8f50dde99cdd800d225969",
        "q-7-0-21b698d26670de6745ac04661dc623c4",
        "q-7-0-b55225854a8f50dde99cdd800d225969-1",
        "q-7-0-b55225854a8f50dde99cdd800d225969-2",
    ]

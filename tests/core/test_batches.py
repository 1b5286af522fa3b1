"""When a batch is full, or old enough."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.batches import Gathering


def gathering(count: int = 3, size: int = 100, latency: float = 5.0) -> Gathering[str]:
    return Gathering(max_count=count, max_bytes=size, max_latency=latency)


def test_nothing_is_gathered_at_first() -> None:
    empty = gathering()

    assert (len(empty), empty.due_at, empty.take()) == (0, math.inf, [])


def test_a_batch_is_complete_when_there_are_enough() -> None:
    batch = gathering(count=3)

    assert batch.add("a", size=1, now=0) == []
    assert batch.add("b", size=1, now=1) == []
    assert (len(batch), batch.due_at) == (2, 5)
    assert batch.add("c", size=1, now=2) == [["a", "b", "c"]]
    assert (len(batch), batch.due_at) == (0, math.inf)


def test_a_batch_is_complete_when_it_is_large_enough() -> None:
    batch = gathering(size=100)

    assert batch.add("a", size=60, now=0) == []
    assert batch.add("b", size=40, now=0) == [["a", "b"]]


def test_what_does_not_fit_begins_the_next_batch() -> None:
    batch = gathering(size=100)
    batch.add("a", size=60, now=0)

    assert batch.add("b", size=41, now=3) == [["a"]]
    assert (len(batch), batch.due_at) == (1, 8)
    assert batch.take() == ["b"]


def test_what_is_too_large_is_a_batch_of_its_own() -> None:
    batch = gathering(size=100)
    assert batch.add("large", size=500, now=0) == [["large"]]
    batch.add("a", size=1, now=0)

    assert batch.add("large", size=500, now=0) == [["a"], ["large"]]
    assert (len(batch), batch.due_at) == (0, math.inf)


def test_the_first_of_a_batch_says_when_it_is_due() -> None:
    batch = gathering(latency=5)
    batch.add("a", size=1, now=10)
    batch.add("b", size=1, now=14)
    assert batch.due_at == 15
    assert batch.take() == ["a", "b"]
    batch.add("c", size=1, now=20)

    assert batch.due_at == 25


def test_without_patience_a_batch_is_due_at_once() -> None:
    batch = gathering(latency=0)
    batch.add("a", size=1, now=10)

    assert batch.due_at == 10


def test_something_may_count_for_many() -> None:
    batch = gathering(count=100)

    assert batch.add("a", size=1, now=0, count=60) == []
    assert len(batch) == 60
    assert batch.add("b", size=1, now=0, count=60) == [["a"]]
    assert len(batch) == 60
    assert batch.add("c", size=1, now=0, count=40) == [["b", "c"]]
    assert batch.add("d", size=1, now=0, count=1_000) == [["d"]]


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_batch_that_was_taken_does_not_count_for_the_next(again: int) -> None:
    batch = gathering(count=3, size=10)
    for _ in range(again):
        assert batch.add("a", size=9, now=0) == []
        assert batch.take() == ["a"]


@given(
    items=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 120), st.floats(0, 3))),
    max_count=st.integers(1, 60),
    max_bytes=st.integers(1, 200),
    latency=st.floats(0, 10),
)
def test_nothing_is_lost_and_no_batch_is_above_its_limits(
    items: list[tuple[int, int, float]], max_count: int, max_bytes: int, latency: float
) -> None:
    """In order, within the limits unless it is a single one, and never waiting too long."""
    batch: Gathering[tuple[int, int, int, float]] = Gathering(
        max_count=max_count, max_bytes=max_bytes, max_latency=latency
    )
    batches: list[list[tuple[int, int, int, float]]] = []
    now = 0.0
    sent = []
    for number, (count, size, pause) in enumerate(items):
        now += pause
        if batch.due_at <= now:
            batches.append(batch.take())
        sent.append((number, count, size, now))
        batches += batch.add(sent[-1], size=size, now=now, count=count)
        left = sent[sum(map(len, batches)) :]
        assert len(batch) == sum(item[1] for item in left)
        assert batch.due_at == (left[0][3] + latency if left else math.inf)
    batches.append(batch.take())

    assert [item for part in batches for item in part] == sent
    for part in batches:
        counts, sizes = sum(item[1] for item in part), sum(item[2] for item in part)
        assert len(part) == 1 or (counts <= max_count and sizes <= max_bytes)

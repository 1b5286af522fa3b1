"""Messages that are looked at one by one: what is counted, and when it is over."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pubsub_aio._core import sieve as module
from pubsub_aio._core.sieve import Bounds, Sieve

BOUNDS = Bounds(
    limit=None, max_held=3, max_held_bytes=1_000, at_once=10, at_once_bytes=500, idle=5.0
)


def test_it_is_empty_when_nothing_came_for_a_while() -> None:
    sieve = Sieve(BOUNDS, ordered=False, now=0)
    assert sieve.came("a", now=3) == "new"

    assert (sieve.empty_at, sieve.ending(now=100)) == (math.inf, None)
    sieve.went("a", now=50)
    assert (sieve.empty_at, sieve.ending(now=54.9), sieve.ending(now=55)) == (55, None, "empty")
    sieve.wait_on(now=54)
    assert sieve.ending(now=55) is None


def test_no_more_are_taken_at_once_than_the_limit_leaves() -> None:
    sieve = Sieve(replace(BOUNDS, limit=2), ordered=False, now=0)

    assert [sieve.take(one, size=1) for one in "abc"] == [True, True, False]
    sieve.stays("a", "failed", size=1, ordering_key="")
    assert [sieve.take(one, size=1) for one in "cd"] == [True, False]
    sieve.taken("b")
    assert (sieve.take("d", size=1), sieve.ending(now=1)) == (False, None)
    sieve.let_go("c")
    assert sieve.take("d", size=1)
    sieve.taken("d")
    assert sieve.ending(now=1) == "limit"


def test_no_more_are_taken_at_once_than_may_be() -> None:
    sieve = Sieve(replace(BOUNDS, at_once=2), ordered=False, now=0)

    assert [sieve.take(one, size=1) for one in "abc"] == [True, True, False]
    sieve.taken("a")
    assert sieve.take("c", size=1)


def test_no_more_bytes_are_taken_at_once_than_may_be_but_one_message_is_however_large() -> None:
    sieve = Sieve(BOUNDS, ordered=False, now=0)

    assert [sieve.take("a", size=501), sieve.take("b", size=1)] == [True, False]
    sieve.taken("a")
    assert [sieve.take("b", size=300), sieve.take("c", size=200)] == [True, True]
    assert not sieve.take("d", size=1)
    sieve.stays("b", "failed", size=300, ordering_key="")
    assert [sieve.take("d", size=300), sieve.take("e", size=1)] == [True, False]
    sieve.let_go("c")
    assert sieve.take("e", size=200)


@pytest.mark.parametrize(("size", "count"), [(1, 3), (500, 2)])
def test_it_ends_when_too_much_is_held(size: int, count: int) -> None:
    sieve = Sieve(BOUNDS, ordered=False, now=0)

    for number in range(count):
        assert sieve.ending(now=1) is None
        sieve.stays(f"{number}", "skipped", size=size, ordering_key="")

    assert sieve.ending(now=1) == "max_held"


def test_what_is_shown_is_held_as_well() -> None:
    sieve = Sieve(BOUNDS, ordered=False, now=0)

    for number in range(3):
        sieve.take(f"{number}", size=1)
        sieve.shown(f"{number}", size=1)

    assert (sieve.counts["taken"], sieve.ending(now=1)) == (3, "max_held")


def test_it_ends_after_failures_in_a_row() -> None:
    sieve = Sieve(replace(BOUNDS, max_held=100), ordered=False, now=0)
    for name, fails in zip("abcdef", (True, True, False, True, True, True), strict=True):
        assert sieve.ending(now=1) is None
        sieve.take(name, size=1)
        if fails:
            sieve.failed()
            sieve.stays(name, "failed", size=1, ordering_key="")
        else:
            sieve.taken(name)

    assert sieve.ending(now=1) == "failures"


@pytest.mark.parametrize("ordered", [True, False])
def test_what_stays_holds_back_its_key_where_there_is_order(ordered: bool) -> None:
    sieve = Sieve(BOUNDS, ordered=ordered, now=0)
    sieve.stays("a", "skipped", size=1, ordering_key="")
    sieve.stays("b", "skipped", size=1, ordering_key="k")

    held_back = [sieve.holds_back(key) for key in ("", "k", "l")]

    assert held_back == [False, ordered, False]


def test_a_message_that_comes_again_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 2)
    sieve = Sieve(BOUNDS, ordered=False, now=0)
    for name in "abcd":
        sieve.came(name, now=0)
    for name in "abc":
        sieve.take(name, size=1)
        sieve.taken(name)
        sieve.went(name, now=0)
    sieve.stays("d", "skipped", size=1, ordering_key="")
    sieve.went("d", now=0)
    sieve.came("e", now=0)

    known = {name: sieve.came(name, now=1) for name in "abcdef"}

    assert known == {"a": "new", "b": "done", "c": "done", "d": "known", "e": "known", "f": "new"}

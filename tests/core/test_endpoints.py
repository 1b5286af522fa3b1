"""Which endpoint is used."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._core.compression import pays
from pubsub_aio._core.endpoints import Endpoints


def test_the_first_is_preferred() -> None:
    """R10."""
    assert Endpoints(3).choose() == 0


def test_a_retry_goes_from_one_to_the_next() -> None:
    """R16."""
    endpoints = Endpoints(3)

    assert [endpoints.choose(tried) for tried in ([0], [0, 1], [0, 1, 2], [0, 1, 2, 0])] == [
        *(1, 2, 0, 1)
    ]
    assert [endpoints.untried(tried) for tried in ([0], [0, 1], [0, 1, 2])] == [*(2, 1, 0)]


def test_who_has_failed_is_left_alone_until_it_answers() -> None:
    """R15, R17."""
    endpoints = Endpoints(3)
    assert endpoints.failed(0)
    assert not endpoints.failed(0)
    assert (endpoints.choose(), endpoints.choose([1]), endpoints.choose([1, 2])) == (1, 2, 1)

    assert endpoints.answered(0)
    assert not endpoints.answered(0)
    assert endpoints.choose() == 0


def test_if_all_have_failed_all_are_used() -> None:
    """R17."""
    endpoints = Endpoints(2)
    endpoints.failed(0)
    endpoints.failed(1)

    assert (endpoints.choose(), endpoints.choose([0]), endpoints.choose([0, 1])) == (0, 1, 0)


def test_the_only_one_is_never_left_alone() -> None:
    endpoints = Endpoints(1)

    assert not endpoints.failed(0)
    assert not endpoints.isolated
    assert (endpoints.choose([0, 0]), endpoints.untried([0])) == (0, 0)


@given(
    count=st.integers(1, 5),
    failures=st.lists(st.integers(0, 4)),
    tried=st.lists(st.integers(0, 4)),
    key=st.integers(0, 2**64 - 1),
)
def test_there_is_always_one(count: int, failures: list[int], tried: list[int], key: int) -> None:
    """R17, R19: and that of a key does not depend on what has failed."""
    endpoints = Endpoints(count)
    before = endpoints.of_key(key)
    for failure in failures:
        endpoints.failed(failure % count)
    chosen = endpoints.choose([one % count for one in tried])

    assert 0 <= chosen < count
    assert chosen not in endpoints.isolated or len(endpoints.isolated) == count
    assert endpoints.of_key(key) == before


def test_compression_pays_for_text_and_not_for_noise() -> None:
    noise = hashlib.shake_128(b"seed").digest(20_000)
    assert pays(b'{"order": 17, "item": "tea"}' * 1_000)
    assert not pays(noise)
    assert not pays(b"x")

"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio.emulator.seeds.durations import nanos_of, written

S = 10**9


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("600", 600 * S),
        ("0.5", S // 2),
        ("600s", 600 * S),
        ("10m", 600 * S),
        ("1h30m", 5_400 * S),
        ("1h 30m", 5_400 * S),
        ("7d", 604_800 * S),
        ("2w", 1_209_600 * S),
        ("1.5h", 5_400 * S),
        ("250ms", S // 4),
        ("0.000000001s", 1),
        ("3652500d", 315_576_000_000 * S),
    ],
)
def test_a_duration_is_read(text: str, nanos: int) -> None:
    assert nanos_of(text) == nanos


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "-1s", "1 fortnight", "10min", "1e3s", "1h30", "1:30", "1,5h", "nan", "10 m s"),
        *("1" * 20, "3652501d", "0.0000001ms", "\u0663s"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration|is too long"):
        nanos_of(text)


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0s"),
        (S, "1s"),
        (90 * S, "90s"),
        (600 * S, "10m"),
        (7_200 * S, "2h"),
        (604_800 * S, "7d"),
        (S // 2, "0.5s"),
        (1, "0.000000001s"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_it_is_whole_in(
    nanos: int, text: str
) -> None:
    assert written(nanos) == text


@given(st.integers(0, 315_576_000_000 * S))
def test_what_is_written_is_read_again(nanos: int) -> None:
    assert nanos_of(written(nanos)) == nanos

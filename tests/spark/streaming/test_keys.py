"""Keys: never two for one message, and never one for two."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_aio.spark.streaming.keys import keys_of
from tests.spark.streaming.logs import rows

NUMBERS = st.integers(0, 1 << 65).map(str) | st.integers(0, 20).map(str)
ODD = st.sampled_from(
    ["", "0", "00", "01", "-1", "+1", "1.0", " 1", "1 ", "1_0", "1e3", "0x1", "\u0661", "²", "\x00"]
    + [str((1 << 64) + step) for step in (-1, 0, 1)]
    + ["0" * 21, "9" * 20, "9" * 21, "9" * 5_000]
)
IDS = NUMBERS | NUMBERS.map(lambda text: f"0{text}") | ODD | st.text(max_size=5)


def keys(ids: list[str], attributes: list[dict[str, str]] | None = None) -> list[tuple[int, int]]:
    """The key of each message, in the order of rows."""
    found = keys_of(rows(ids, attributes=attributes), "order" if attributes else "")
    assert found.lows.tolist() == sorted(found.lows.tolist())
    both = zip(found.lows.tolist(), found.highs.tolist(), strict=True)
    of_rows = dict(zip(found.rows.tolist(), both, strict=True))
    return [of_rows[row] for row in range(len(ids))]


@given(st.lists(IDS, min_size=1, max_size=40))
@settings(deadline=None)
def test_ids_are_alike_if_their_keys_are(ids: list[str]) -> None:
    of = dict(zip(ids, found := keys(ids), strict=True))

    assert len({*of.values()}) == len({*ids})
    assert found == [of[each] for each in ids]


@given(st.lists(IDS, min_size=1, max_size=20))
@settings(deadline=None)
def test_a_key_does_not_depend_on_the_other_messages(ids: list[str]) -> None:
    """A column of plain numbers is made keys of at once, any other one by one."""
    assert keys(ids) == [keys([each])[0] for each in ids]


@pytest.mark.parametrize("number", [0, 1, 1 << 63, (1 << 64) - 1])
def test_a_plain_number_is_its_own_key(number: int) -> None:
    assert keys([str(number)]) == [(number, 0)]


@pytest.mark.parametrize("text", ["00", "01", "+1", "-0", str(1 << 64), "", "x", "\u0661"])
def test_anything_else_is_like_no_number(text: str) -> None:
    ((_, high),) = keys([text])

    assert high >> 63 == 1


def test_equal_keys_stay_in_the_order_of_rows() -> None:
    found = keys_of(rows(["7", "x", "7", "3", "x", "7"]))

    assert found.rows[found.lows == 7].tolist() == [0, 2, 5]
    assert found.rows[found.highs > 0].tolist() == [1, 4]


ATTRIBUTES = st.fixed_dictionaries(
    {}, optional={"order": st.sampled_from(["1", "2", "x", "01"]), "other": st.just("1")}
)


@given(st.lists(st.tuples(IDS, ATTRIBUTES), min_size=1, max_size=30))
@settings(deadline=None)
def test_messages_go_by_the_attribute_and_without_it_by_their_id(
    found: list[tuple[str, dict[str, str]]],
) -> None:
    """A message's id is never like another's attribute, whatever they say."""
    ids, attributes = [each for each, _ in found], [each for _, each in found]
    names = [("attribute", of["order"]) if "order" in of else ("id", each) for each, of in found]

    of_names = dict(zip(names, of_rows := keys(ids, attributes), strict=True))

    assert len({*of_names.values()}) == len({*names})
    assert of_rows == [of_names[name] for name in names]


def test_without_the_option_the_attribute_counts_for_nothing() -> None:
    found = keys_of(rows(["1", "2"], attributes=[{"order": "x"}, {"order": "x"}]))

    assert found.lows.tolist() == [1, 2]


def test_keys_of_some_rows() -> None:
    found = keys_of(rows(["5", "3", "4", "1"]))

    assert found.between(1, 3).rows.tolist() == [1, 2]
    assert found.between(1, 3).lows.tolist() == [3, 4]
    assert found.without(found.rows[:2]).lows.tolist() == [4, 5]
    assert found.without(found.rows[:0]) is found

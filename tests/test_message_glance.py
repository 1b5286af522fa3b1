"""A glance at a number in an attribute: it may not know, and is never wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub_aio import Message
from pubsub_aio._wire import schema
from pubsub_aio._wire.columns import Columns
from tests.test_message import Gathering, Notebook, ours, ours_whole, received

NAME = "expires_at"
QUOTED = f"{NAME}\x12\x041234"  # as it is on the wire

Made = Callable[..., Message]
made_both_ways = pytest.mark.parametrize("made", [ours, ours_whole])

texts = (
    st.text(max_size=8)
    | st.integers(min_value=0, max_value=10**15).map(str)
    | st.sampled_from([NAME, QUOTED, f"\n\n{QUOTED}", f"{NAME}\x12", "1" * 200])
)
attributes = st.dictionaries(texts, texts, max_size=4)


def glance(made: Made, **message: object) -> int | None:
    """What a message with these fields shows of the attribute."""
    return made(received(message=message)).glance(NAME.encode())


@made_both_ways
@pytest.mark.parametrize("value", ["1795076970095", "7", "9" * 14])
def test_a_number_is_seen(made: Made, value: str) -> None:
    assert glance(made, attributes={"a": "b", NAME: value, "z": "y"}) == int(value)


@made_both_ways
@pytest.mark.parametrize("value", ["", "tomorrow", "-1", "1_0", "²", "9" * 15, "9" * 1_024])
def test_what_is_no_number_or_a_long_one_is_not_told(made: Made, value: str) -> None:
    assert glance(made, attributes={NAME: value}) == 0


@made_both_ways
def test_none_is_seen_where_there_is_none(made: Made) -> None:
    assert glance(made, attributes={"persistent": "false"}) is None


def test_a_name_in_the_data_is_not_trusted() -> None:
    assert glance(ours, attributes={}, data=QUOTED.encode() * 100) == 0


def test_fields_may_come_in_any_order() -> None:
    """As those of a publisher may that writes its bytes itself."""
    attributes = schema.PubsubMessage(attributes={NAME: "1000"}).SerializeToString()
    data = schema.PubsubMessage(data=b"x" * 100).SerializeToString()
    columns = Columns(
        ack_ids=["a"],
        delivery_attempts=[],
        message_ids=["m"],
        data=[b"x" * 100],
        sources=[attributes + data],
        properties=(),
    )
    (message,) = Message.all_in(columns, Notebook(), Gathering())

    assert message.glance(NAME.encode()) == 1_000


def test_a_name_that_stands_there_twice_is_not_trusted() -> None:
    assert glance(ours, attributes={"note": QUOTED, NAME: "1000"}) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"ordering_key": NAME},
        {"ordering_key": f"{NAME}\x12"},
        {"attributes": {"note": NAME}},
    ],
)
def test_a_name_that_stands_elsewhere_is_not_taken_for_an_attribute(
    fields: dict[str, object],
) -> None:
    assert glance(ours, **fields) == 0


@made_both_ways
@given(attributes=attributes, key=texts, data=st.binary(max_size=8) | st.just(QUOTED.encode()))
@example(attributes={"note": f"\n\n{QUOTED}"}, key="", data=b"")
def test_what_is_seen_is_never_another_value(
    made: Made, attributes: dict[str, str], key: str, data: bytes
) -> None:
    seen = glance(made, attributes=attributes, ordering_key=key, data=data)

    if seen is None:
        assert NAME not in attributes
    elif seen and NAME in attributes:
        assert int(attributes[NAME]) == seen

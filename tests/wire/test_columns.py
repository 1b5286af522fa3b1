"""A response that is read as columns tells the same as one that is read message by message."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio._wire.columns import Columns, columns_of
from pubsub_aio.errors import ServiceError

MESSAGES = st.builds(
    schema.PubsubMessage,
    data=st.binary(max_size=40),
    attributes=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    message_id=st.text(max_size=20),
    publish_time=st.builds(
        schema.Timestamp, seconds=st.integers(0, 2**33), nanos=st.integers(0, 10**9 - 1)
    ),
    ordering_key=st.text(max_size=5),
)
RECEIVED = st.builds(
    schema.ReceivedMessage,
    ack_id=st.text(max_size=200),
    message=MESSAGES,
    delivery_attempt=st.integers(0, 2**31 - 1),
)
USUAL = 10


def received(number: int, *, attempt: int = 0, data: bytes = b"x" * 100) -> schema.ReceivedMessage:
    message = schema.PubsubMessage(
        data=data, attributes={"number": str(number)}, message_id=f"id {number}"
    )
    return schema.ReceivedMessage(
        ack_id=f"{'a' * 180}{number}", message=message, delivery_attempt=attempt
    )


def response(*messages: schema.ReceivedMessage) -> bytes:
    return schema.StreamingPullResponse(received_messages=messages).SerializeToString()


def rows(columns: Columns | None) -> list[tuple[str, int, schema.PubsubMessage]]:
    assert columns is not None
    found = []
    for ack_id, attempt, message_id, data, source in zip(
        columns.ack_ids,
        columns.delivery_attempts or [0] * len(columns.ack_ids),
        columns.message_ids,
        columns.data,
        columns.sources,
        strict=True,
    ):
        message = columns.read(source)
        assert (message.message_id, message.data) == (message_id, data)
        found.append((ack_id, attempt, message))
    return found


def whole(data: bytes) -> list[tuple[str, int, schema.PubsubMessage]]:
    parsed = schema.StreamingPullResponse.FromString(data).received_messages
    return [(one.ack_id, one.delivery_attempt, one.message) for one in parsed]


def test_the_usual_response_is_read_as_columns() -> None:
    data = response(*(received(number) for number in range(USUAL)))

    columns = columns_of(data)

    assert rows(columns) == whole(data)
    assert columns is not None
    assert not columns.properties


def test_delivery_attempts_are_told_where_there_are_any() -> None:
    data = response(*(received(number, attempt=number + 1) for number in range(USUAL)))

    assert rows(columns_of(data)) == whole(data)


def test_what_the_server_says_of_the_subscription_is_told() -> None:
    said = schema.StreamingPullResponse.SubscriptionProperties(exactly_once_delivery_enabled=True)
    parsed = schema.StreamingPullResponse(
        received_messages=[received(number) for number in range(USUAL)],
        subscription_properties=said,
    )

    columns = columns_of(parsed.SerializeToString())

    assert columns is not None
    assert columns.properties == [said]


def test_a_pulled_response_is_read_the_same_way() -> None:
    pulled = schema.PullResponse(received_messages=[received(number) for number in range(USUAL)])
    data = pulled.SerializeToString()

    assert rows(columns_of(data)) == whole(data)


@given(st.lists(RECEIVED, max_size=6))
def test_whatever_is_read_as_columns_is_what_was_sent(
    messages: list[schema.ReceivedMessage],
) -> None:
    usual = [received(number, attempt=1) for number in range(USUAL)]
    data = response(*usual, *messages)

    columns = columns_of(data)

    assert columns is None or rows(columns) == whole(data)


KINDS = ["as usual", "data twice", "no data", "data is a number", "id twice", "no id"]


@given(st.lists(st.sampled_from(KINDS)))
def test_values_never_go_to_another_message(kinds: list[str]) -> None:
    """A field that occurs twice has its last value, and so may make up for one that is missing."""
    data = b""
    for number in range(USUAL):
        kind = kinds[number] if number < len(kinds) else "as usual"
        one = received(number)
        raw = one.message.SerializeToString()
        if kind == "no data":
            one.message.ClearField("data")
            raw = one.message.SerializeToString()
        elif kind == "data is a number":  # which every reader leaves out
            one.message.ClearField("data")
            raw = b"\x08\x01" + one.message.SerializeToString()
        elif kind == "no id":
            one.message.ClearField("message_id")
            raw = one.message.SerializeToString()
        elif kind == "data twice":
            raw += schema.PubsubMessage(data=b"the last").SerializeToString()
        elif kind == "id twice":
            raw += schema.PubsubMessage(message_id="the last").SerializeToString()
        envelope = schema.ReceivedMessage(ack_id=one.ack_id).SerializeToString()
        envelope += bytes([0x12, 0x80 | len(raw) & 0x7F, len(raw) >> 7]) + raw
        data += bytes([0x0A, 0x80 | len(envelope) & 0x7F, len(envelope) >> 7]) + envelope
    ids_are_told = "no id" not in kinds[:USUAL] or "id twice" not in kinds[:USUAL]

    columns = columns_of(data)

    if ids_are_told and columns is not None:
        assert rows(columns) == whole(data)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="no message"),
        pytest.param([received(1)], id="few bytes"),
        pytest.param([received(1, data=b"x" * 20_000)], id="a large message"),
        pytest.param([received(n, data=b"x" * 2_000) for n in range(1_000)], id="many bytes"),
        pytest.param([received(n, data=b"x" * (n != 3)) for n in range(USUAL)], id="no data"),
        pytest.param([received(n, attempt=n) for n in range(USUAL)], id="some attempts"),
    ],
)
def test_what_would_gain_nothing_or_be_uncertain_is_not_read_as_columns(
    messages: list[schema.ReceivedMessage],
) -> None:
    assert columns_of(response(*messages)) is None


def test_what_is_no_response_is_refused() -> None:
    with pytest.raises(DecodeError):
        columns_of(b"\xff" * 5_000)


def test_a_message_that_cannot_be_read_says_so_in_our_words() -> None:
    with pytest.raises(ServiceError, match="INTERNAL: a message cannot be read"):
        Columns.read(b"\x12\x06\x0a\x01k\x12\x01\xff")  # an attribute is not UTF-8

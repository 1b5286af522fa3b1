"""Messages as wire bytes: what protobuf would send, and what is refused before it is sent."""

from __future__ import annotations

import json
import re

import pytest
from google.protobuf import json_format
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub_aio import ConfigError
from pubsub_aio._wire import publishing, rest_json, schema
from pubsub_aio._wire.rpcs import BY_NAME

TOPIC = "projects/p/topics/t"

keys = st.text(min_size=1, max_size=60).filter(lambda key: not key.startswith("goog"))
attributes = st.dictionaries(keys, st.text(max_size=200), max_size=8)
messages = st.tuples(st.binary(max_size=300), attributes, st.text(max_size=60)).filter(
    lambda message: message[0] or message[1]
)


@given(st.lists(messages, max_size=5))
@example([(b"", {"a": ""}, "")])
@example([(bytes(127), {}, ""), (bytes(128), {}, ""), (bytes(16_383), {}, "")])
@example([(bytes(16_384), {"k" * 256: "v" * 1_024}, "o" * 1_024)])
@example([(b"x", {"ü" * 128: "😀" * 256}, "ö" * 512)])
@example([(b"x", {f"key{number}": "" for number in range(100)}, "")])
@example([(b"x", {"googclient_traceparent": "00"}, "")])
def test_what_is_sent_is_what_protobuf_would_send(
    sent: list[tuple[bytes, dict[str, str], str]],
) -> None:
    expected = schema.PublishRequest(
        topic=TOPIC,
        messages=[
            schema.PubsubMessage(data=data, attributes=pairs, ordering_key=key)
            for data, pairs, key in sent
        ],
    )
    wires = [publishing.encode(data, pairs, key) for data, pairs, key in sent]
    ours = publishing.request(TOPIC, wires)

    assert schema.PublishRequest.FromString(ours) == expected
    assert len(ours) == expected.ByteSize()  # nothing is sent that protobuf would leave out


@given(messages)
def test_a_message_is_encoded_the_same_the_second_time(
    message: tuple[bytes, dict[str, str], str],
) -> None:
    """Names of attributes are remembered."""
    first, second = publishing.encode(*message), publishing.encode(*message)

    assert first == second


def test_names_that_are_remembered_are_bounded() -> None:
    for number in range(5_000):
        publishing.encode(b"x", {f"name-{number}": "v"}, "")

    assert len(publishing.ATTRIBUTE) <= 200


def test_other_kinds_of_bytes_are_bytes() -> None:
    expected = publishing.encode(b"tea", None, "")

    for kind in (bytearray, memoryview):
        assert publishing.encode(kind(b"tea"), None, "") == expected  # type: ignore[arg-type]
    assert publishing.encode(b"tea", {}, "") == expected


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ((b"", None, ""), "data: a message must have data or at least one attribute"),
        ((b"", {}, ""), "data: a message must have data or at least one attribute"),
        (("text", None, ""), "data must be bytes, not str: encode it"),
        ((None, None, ""), "data must be bytes, not NoneType"),
        ((17, {"a": "b"}, ""), "data must be bytes, not int"),
        ((bytes(10_000_001), None, ""), "data: 10,000,001 bytes are more than the service takes"),
        ((b"x", {"a": 1}, ""), "attributes['a'] must be a string, not 1"),
        ((b"x", {"a": b"b"}, ""), "attributes['a'] must be a string, not b'b'"),
        ((b"x", {"a": None}, ""), "attributes['a'] must be a string, not None"),
        ((b"x", {1: "a"}, ""), "attributes: a key must be a string, not 1"),
        ((b"x", {"": "a"}, ""), "attributes: a key must not be empty"),
        ((b"x", {"k" * 257: "a"}, ""), "a key has 257 bytes, more than the service takes, 256"),
        ((b"x", {"a": "v" * 1_025}, ""), "attributes['a'] has 1,025 bytes, more than"),
        ((b"x", {"a": "ü" * 513}, ""), "attributes['a'] has 1,026 bytes, more than"),
        ((b"x", {f"k{n}": "" for n in range(101)}, ""), "attributes: 101 are more than"),
        ((b"x", {"google": "a"}, ""), "keys that begin with 'goog' are reserved, rename 'google'"),
        ((b"x", [("a", "b")], ""), "attributes must be a dict of strings"),
        ((b"x", "ab", ""), "attributes must be a dict of strings"),
        ((b"x", {"a": "\ud800"}, ""), "attributes['a'] must be text that can be UTF-8"),
        ((b"x", None, "k" * 1_025), "ordering_key has 1,025 bytes, more than"),
        ((b"x", None, 5), "ordering_key must be a string, not 5"),
    ],
)
def test_what_the_service_would_not_take_is_refused_with_the_field_and_the_limit(
    message: tuple[object, ...], named: str
) -> None:
    """R11: before anything is sent."""
    for _ in range(2):
        with pytest.raises(ConfigError, match=re.escape(named)):
            publishing.encode(*message)  # type: ignore[arg-type]


def test_the_largest_message_is_taken() -> None:
    data, pairs = bytes(10_000_000), {"a": "b"}

    wire = publishing.encode(data, pairs, "")
    request = schema.PublishRequest.FromString(publishing.request(TOPIC, [wire]))
    assert request.messages[0].data == data


def test_the_ids_of_an_answer_must_be_as_many_as_the_messages() -> None:
    reply = schema.PublishResponse(message_ids=["1", "2"]).SerializeToString()

    assert publishing.message_ids(reply, 2) == ["1", "2"]
    assert publishing.message_ids(reply, 3) is None
    assert publishing.message_ids(b"\xff\xff", 1) is None


@given(st.lists(messages, max_size=5))
def test_as_json_messages_are_what_protobuf_would_write(
    sent: list[tuple[bytes, dict[str, str], str]],
) -> None:
    """The REST transport writes them itself, for speed."""
    request = schema.PublishRequest(
        topic=TOPIC,
        messages=[
            schema.PubsubMessage(data=data, attributes=pairs, ordering_key=key)
            for data, pairs, key in sent
        ],
    )
    verb, path, body = rest_json.as_http(BY_NAME["Publish"], request)

    assert (verb, path) == ("POST", f"/v1/{TOPIC}:publish")
    parsed = json_format.ParseDict(
        json.loads(body) | {"topic": TOPIC}, schema.PublishRequest(), descriptor_pool=schema.pool
    )
    assert parsed == request

"""What cannot be is refused at once, with an error of ours that names it and says what can be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

from pubsub_aio import ConfigError, PublisherClient, PublisherOptions, RetryPolicy
from pubsub_aio.config import FLIGHT_ID
from pubsub_aio.publisher.options import MAX_PREFIX
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, publisher_of, stored
from tests.subscriber.conftest import virtual
from tests.tracing.conftest import Spans

MANY = {f"key {number}": "value" for number in range(100)}

NO_TRANSPORT = "transport: must be 'grpc', 'rest' or a transport, not "
NO_ENDPOINT = (
    "endpoint must be host:port, such as localhost:8085, or a list of different ones, not "
)
NO_REGION = "region must be a name such as 'europe-west1', or a list of different ones, not "
NO_TOPICS = "topics must be a list of names, not "
NO_CREDENTIALS = "credentials must be a Credentials object of google.auth, not "
NO_LISTENER = "listener must have one of the methods published, acked"
NO_PREFIX = "id_prefix must be a text of 1 to 200 characters, all of them printable, not "
NO_TOPIC = "topic: must be NAME or projects/PROJECT/topics/NAME, not "
NO_ATTRIBUTES = "attributes must be a dict of strings, not "
NO_TUPLE = "must be data, or a tuple of data and attributes"


# Of a publisher


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"transport": 3}, f"{NO_TRANSPORT}3"),
        ({"transport": None}, f"{NO_TRANSPORT}None"),
        ({"transport": b"grpc"}, f"{NO_TRANSPORT}b'grpc'"),
        ({"transport": ["grpc", 3]}, f"{NO_TRANSPORT}3"),
        ({"transport": MemoryEmulator}, f"{NO_TRANSPORT}<class"),
        ({"transport": []}, "transport: there must be one at least, not []"),
        (
            {"transport": ["grpc", "rest"], "endpoint": ["a:1", "b:2"]},
            "endpoint: there cannot be several of several transports",
        ),
        ({"endpoint": 5}, f"{NO_ENDPOINT}5"),
        ({"endpoint": [5]}, f"{NO_ENDPOINT}[5]"),
        ({"endpoint": [["a:1"]]}, f"{NO_ENDPOINT}[['a:1']]"),
        ({"endpoint": b"a:1"}, f"{NO_ENDPOINT}b'a:1'"),
        ({"endpoint": {"a:1", "b:2"}}, NO_ENDPOINT),
        ({"region": 5}, f"{NO_REGION}5"),
        ({"region": [None]}, f"{NO_REGION}[None]"),
        ({"region": "Europe"}, "region must be a name such as 'europe-west1', not 'Europe'"),
        ({"topics": 5}, f"{NO_TOPICS}5"),
        ({"topics": None}, f"{NO_TOPICS}None"),
        ({"topics": "orders"}, f"{NO_TOPICS}'orders'"),
        ({"topics": b"orders"}, f"{NO_TOPICS}b'orders'"),
        ({"topics": [5]}, f"{NO_TOPICS}[5]"),
        ({"listener": 3}, NO_LISTENER),
        ({"listener": lambda flight: flight}, NO_LISTENER),
        ({"id_prefix": 5}, f"{NO_PREFIX}5"),
        ({"id_prefix": ""}, f"{NO_PREFIX}''"),
        ({"id_prefix": None}, f"{NO_PREFIX}None"),
        ({"id_prefix": "\udc00"}, NO_PREFIX + r"'\udc00'"),
        ({"id_prefix": "a\nb"}, NO_PREFIX + r"'a\nb'"),
        ({"id_prefix": "\x00"}, NO_PREFIX + r"'\x00'"),
        ({"id_prefix": "x" * 201}, f"{NO_PREFIX}'xxx"),
        ({"project": "p\udc00"}, r"project: must be text that can be UTF-8, not 'p\udc00'"),
    ],
)
def test_a_publisher_that_cannot_be_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)) as caught:
        PublisherClient(**{"project": "p", **arguments})

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("given", ["key.json", {"private_key": "secret"}, b"secret", 5])
def test_credentials_must_be_loaded(given: Any) -> None:
    """And what may be a secret is not shown."""
    with pytest.raises(ConfigError, match=NO_CREDENTIALS + type(given).__name__) as caught:
        PublisherClient("p", credentials=given)

    assert "Credentials.from_service_account_file()" in str(caught.value)
    assert "secret" not in str(caught.value)
    PublisherClient("p", credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"jitter": "x"}, "jitter must be True or False, not 'x'"),
        ({"codes": None}, "codes must be a set of ABORTED"),
        ({"codes": 5}, "codes must be a set of ABORTED"),
        ({"codes": [["ABORTED"]]}, "codes must be a set of ABORTED"),
        ({"wait": [0.1]}, "wait must be a number of seconds, or a tuple of numbers, not [0.1]"),
        ({"wait": ("1",)}, "wait must be a number of seconds, or a tuple of numbers, not ('1',)"),
        ({"wait": True}, "wait must be a number of seconds, or a tuple of numbers, not True"),
        ({"wait": float("inf")}, "wait must be at least 0 and at most 1,000,000,000, not inf"),
        ({"max_wait": float("inf")}, "max_wait must be at least 0 and at most 1,000,000,000"),
        ({"multiplier": 10**400}, "multiplier must be at least 1 and at most 1,000,000,000,000"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        RetryPolicy(**settings)


@pytest.mark.parametrize("letter", ["x", "é", "\N{GRINNING FACE}"])
@virtual
async def test_the_longest_prefix_fits_into_an_attribute(
    emulator: MemoryEmulator, letter: str
) -> None:
    prefix = letter * MAX_PREFIX
    async with publisher_of(emulator, id_prefix=prefix, send_flight_id=True) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        attributes = emulator.message(await flight.ack).attributes

    assert attributes[FLIGHT_ID] == flight.id == f"{prefix}-1"


# Of a message


@pytest.fixture(params=["plain", "with ids", "traced"])
def options(request: pytest.FixtureRequest) -> Iterator[PublisherOptions]:
    """Publishers that add something to a message say the same of it as one that does not."""
    spans = Spans()
    ways: dict[str, PublisherOptions] = {
        "plain": {},
        "with ids": {"send_flight_id": True},
        "traced": {"tracing": spans.provider},
    }
    yield ways[request.param]
    assert not spans.open


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"topic": ["orders"]}, f"{NO_TOPIC}['orders']"),
        ({"topic": 5}, f"{NO_TOPIC}5"),
        ({"topic": "a\udc00"}, r"topic: must be text that can be UTF-8, not 'a\udc00'"),
        ({"data": 5}, "data must be bytes, not int"),
        ({"data": None}, "data must be bytes, not NoneType"),
        ({"data": "text"}, "data must be bytes, not str: encode it"),
        ({"data": b""}, "data: a message must have data or at least one attribute"),
        ({"attributes": "ab"}, f"{NO_ATTRIBUTES}'ab'"),
        ({"attributes": 5}, f"{NO_ATTRIBUTES}5"),
        ({"attributes": [("a", "b")]}, f"{NO_ATTRIBUTES}[('a', 'b')]"),
        ({"attributes": "a"}, f"{NO_ATTRIBUTES}'a'"),
        ({"attributes": {"a"}}, f"{NO_ATTRIBUTES}{{'a'}}"),
        ({"attributes": {"a": 5}}, "attributes['a'] must be a string, not 5"),
        ({"attributes": {"a": "\udc00"}}, "attributes['a'] must be text that can be UTF-8"),
        ({"attributes": {"a": "v" * 1_025}}, "attributes['a'] has 1,025 bytes, more than"),
        ({"attributes": {"": "a"}}, "attributes: a key must not be empty"),
        ({"attributes": {5: "a"}}, "attributes: a key must be a string, not 5"),
        (
            {"attributes": MANY | {"one": "more"}},
            "attributes: 101 are more than the service takes, 100",
        ),
        ({"ordering_key": 5}, "ordering_key must be a string, not 5"),
        ({"retry": 3}, "retry must be a RetryPolicy or None, not 3"),
        ({"timeout": "1"}, "timeout must be a number, not '1'"),
        (
            {"color": "red"},
            "color: there is no such argument; there are attributes, ordering_key, retry, timeout, "
            "and an attribute of the message goes into attributes={'color': ...}",
        ),
        ({"color": None}, "color: there is no such argument"),
        (
            {"orderingkey": "k"},
            "orderingkey: there is no such argument; did you mean ordering_key?",
        ),
    ],
)
@virtual
async def test_a_message_that_cannot_be_is_refused(
    emulator: MemoryEmulator, options: PublisherOptions, message: dict[str, Any], named: str
) -> None:
    """Whether it is the first of its batch or not, and whatever the publisher adds."""
    wrong = {"topic": TOPIC, "data": b"x", **message}
    async with publisher_of(emulator, **options) as publisher:
        for _ in range(3):
            with pytest.raises(ConfigError) as caught:
                publisher.publish(**wrong)
            assert str(caught.value).startswith(named)
            assert "publisher adds" not in str(caught.value)
            publisher.publish(TOPIC, b"right")

    assert stored(emulator) == [b"right"] * 3


@virtual
async def test_what_is_added_counts_and_is_named(emulator: MemoryEmulator) -> None:
    ids: PublisherOptions = {"send_flight_id": True}
    both: PublisherOptions = {"send_flight_id": True, "tracing": Spans().provider}
    for options, added in (
        (ids, f"101 .* adds, {FLIGHT_ID}: give fewer"),
        (both, f"102 .* adds, {FLIGHT_ID}, googclient_traceparent: give fewer"),
    ):
        async with publisher_of(emulator, **options) as publisher:
            with pytest.raises(ConfigError, match=f"attributes: {added}") as caught:
                publisher.publish(TOPIC, b"x", attributes=MANY)
            assert "or a publisher without send_flight_id and tracing" in str(caught.value)
    async with publisher_of(emulator) as publisher:
        publisher.publish(TOPIC, b"x", attributes=MANY)

    assert stored(emulator) == [b"x"]


@virtual
async def test_no_ordering_key_may_be_none(emulator: MemoryEmulator) -> None:
    async with publisher_of(emulator) as publisher:
        flight = publisher.publish(TOPIC, b"x", ordering_key=None)  # type: ignore[arg-type]

        assert flight.ordering_key == ""


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (("orders", 3), "ordering_key must be a string, not 3"),
        (("orders", ["k"]), "ordering_key must be a string, not ['k']"),
        ((3, "k"), f"{NO_TOPIC}3"),
    ],
)
@virtual
async def test_what_cannot_be_resumed_is_refused(
    emulator: MemoryEmulator, place: tuple[Any, Any], named: str
) -> None:
    async with publisher_of(emulator) as publisher:
        with pytest.raises(ConfigError, match=re.escape(named)):
            publisher.resume(*place)


# Of many messages


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"messages": [b"x", (b"y",)]}, f"messages[1]: {NO_TUPLE}"),
        ({"messages": [()]}, f"messages[0]: {NO_TUPLE}"),
        ({"messages": [(b"x", {}, "k")]}, f"messages[0]: {NO_TUPLE}"),
        ({"messages": [(b"x", 5)]}, f"messages[0]: {NO_ATTRIBUTES}5"),
        ({"messages": [(b"x", 5)], "attributes": {"a": "b"}}, f"messages[0]: {NO_TUPLE}"),
        ({"messages": [({}, b"x")]}, "messages[0]: data must be bytes, not dict"),
        ({"messages": [None]}, "messages[0]: data must be bytes, not NoneType"),
        ({"messages": {b"x": {"a": "b"}}}, "messages must be a list of them, not dict"),
        ({"messages": bytearray(b"x")}, "messages must be a list of them, not bytearray"),
        ({"messages": None}, "messages must be a list of them, not NoneType"),
        ({"attributes": "ab"}, f"{NO_ATTRIBUTES}'ab'"),
        ({"attributes": 5}, f"{NO_ATTRIBUTES}5"),
        ({"topic": ["orders"]}, f"{NO_TOPIC}['orders']"),
    ],
)
@virtual
async def test_many_messages_that_cannot_be_are_refused(
    emulator: MemoryEmulator, options: PublisherOptions, arguments: dict[str, Any], named: str
) -> None:
    wrong = {"topic": TOPIC, "messages": [b"x"], **arguments}
    async with publisher_of(emulator, **options) as publisher:
        with pytest.raises(ConfigError) as caught:
            await publisher.publish_many(**wrong)
        assert str(caught.value).startswith(named)

    assert stored(emulator) == []


@virtual
async def test_an_error_of_whoever_makes_the_messages_is_left_as_it_is(
    emulator: MemoryEmulator, options: PublisherOptions
) -> None:
    def messages() -> Iterator[bytes]:
        yield b"x"
        raise ValueError("of the caller")

    async with publisher_of(emulator, **options) as publisher:
        with pytest.raises(ValueError, match=r"^of the caller$"):
            await publisher.publish_many(TOPIC, messages())

    assert stored(emulator) == []

"""Subscription filters: what each kind of expression lets through, and which are refused."""

import pytest
from google.api_core.exceptions import InvalidArgument
from google.pubsub_v1 import PubsubMessage, Subscription, UpdateSubscriptionRequest

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts

UNFILTERED = google_falls_short("delivers every message, whatever the filter")

LANGUAGE = "iana.org/language_tag"

MESSAGES = {
    "bare": {},
    "com": {"name": "com"},
    "COM": {"name": "COM"},
    "community": {"name": "community"},
    "net": {"name": "net"},
    "empty": {"name": ""},
    "Name": {"Name": "com"},
    "com in en": {"name": "com", LANGUAGE: "en"},
    "net in en": {"name": "net", LANGUAGE: "en"},
    "org in fr": {"name": "org", LANGUAGE: "fr"},
}


def delivered(server: Server, expression: str) -> set[str]:
    """Publish every kind of message, and say which a subscription with this filter gets."""
    topic, subscription = server.create_pair(filter=expression)
    everything = server.create_subscription(topic)
    server.publish(
        topic,
        *(
            PubsubMessage(data=text.encode(), attributes=attributes)
            for text, attributes in MESSAGES.items()
        ),
    )
    assert set(texts(server.receive(everything, len(MESSAGES)))) == set(MESSAGES)
    received: list[str] = []
    while batch := server.pull_now(subscription):
        received += texts(batch)
    assert len(received) == len(set(received))
    return set(received)


def without(*texts_left_out: str) -> set[str]:
    return set(MESSAGES) - set(texts_left_out)


@UNFILTERED
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('attributes.name = "com"', {"com", "com in en"}),
        ('attributes.name="com"', {"com", "com in en"}),
        ('attributes.name = ""', {"empty"}),
        ('attributes.Name = "com"', {"Name"}),
        ('attributes.colour = "red"', set()),
    ],
)
def test_filter_equality(server: Server, expression: str, expected: set[str]) -> None:
    assert delivered(server, expression) == expected


@UNFILTERED
def test_filter_not_equal(server: Server) -> None:
    # A message without the attribute has no such value either.
    assert delivered(server, 'attributes.name != "com"') == without("com", "com in en")


@UNFILTERED
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("attributes:name", without("bare", "Name")),
        ("attributes:Name", {"Name"}),
        ("attributes:colour", set()),
    ],
)
def test_filter_has_key(server: Server, expression: str, expected: set[str]) -> None:
    assert delivered(server, expression) == expected


@UNFILTERED
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('hasPrefix(attributes.name, "co")', {"com", "community", "com in en"}),
        ('hasPrefix(attributes.name, "community")', {"community"}),
        ('hasPrefix(attributes.name, "CO")', {"COM"}),
        ('NOT hasPrefix(attributes.name, "co")', without("com", "community", "com in en")),
    ],
)
def test_filter_has_prefix(server: Server, expression: str, expected: set[str]) -> None:
    assert delivered(server, expression) == expected


@UNFILTERED
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("NOT attributes:name", {"bare", "Name"}),
        ("-attributes:name", {"bare", "Name"}),
        (f'attributes.name = "com" AND attributes:"{LANGUAGE}"', {"com in en"}),
        (f'attributes.name = "com" AND -attributes:"{LANGUAGE}"', {"com"}),
        (
            f'attributes:"{LANGUAGE}" AND NOT attributes.name = "com"',
            {"net in en", "org in fr"},
        ),
        ('attributes.name = "net" OR attributes.name = "org"', {"net", "net in en", "org in fr"}),
        (
            f'attributes:"{LANGUAGE}" AND (attributes.name = "net" OR attributes.name = "org")',
            {"net in en", "org in fr"},
        ),
        (
            f'(attributes:"{LANGUAGE}" AND attributes.name = "net") OR attributes.name = "org"',
            {"net in en", "org in fr"},
        ),
        ("NOT (attributes:name OR attributes:Name)", {"bare"}),
        ('((attributes.name = "net"))', {"net", "net in en"}),
    ],
)
def test_filter_boolean_and_not_and_parens(
    server: Server, expression: str, expected: set[str]
) -> None:
    assert delivered(server, expression) == expected


@UNFILTERED
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'attributes:"{LANGUAGE}"', {"com in en", "net in en", "org in fr"}),
        (f'attributes."{LANGUAGE}" = "en"', {"com in en", "net in en"}),
        (f'hasPrefix(attributes."{LANGUAGE}", "f")', {"org in fr"}),
        ('attributes:"name"', without("bare", "Name")),
        (r'attributes:"\u006eame"', without("bare", "Name")),
    ],
)
def test_filter_quoted_key(server: Server, expression: str, expected: set[str]) -> None:
    assert delivered(server, expression) == expected


@UNFILTERED
def test_filter_quoted_value_may_be_escaped(server: Server) -> None:
    topic, subscription = server.create_pair(filter=r'attributes.a = "say \"\\\x41\101\u00e9\""')
    server.publish(
        topic,
        PubsubMessage(data=b"match", attributes={"a": 'say "\\AAé"'}),
        PubsubMessage(data=b"other", attributes={"a": "say"}),
    )

    assert texts(server.pull_now(subscription)) == ["match"]


@UNFILTERED
def test_filter_holds_for_streams(server: Server) -> None:
    topic, subscription = server.create_pair(filter="attributes:a")
    with server.stream(subscription) as stream:
        server.publish(topic, "no", PubsubMessage(data=b"yes", attributes={"a": ""}), "no")

        assert texts(stream.messages(1)) == ["yes"]
        assert stream.settle() == []


def test_filter_is_told_as_it_was_given(server: Server) -> None:
    _, subscription = server.create_pair(filter=' attributes.a  =  "b" ')

    assert server.get_subscription(subscription).filter == ' attributes.a  =  "b" '


@google_falls_short("takes any filter")
@pytest.mark.parametrize(
    "expression",
    [
        "nonsense",
        "attributes",
        "attributes.name",
        "attributes.name =",
        "attributes.name = com",
        'attributes.name = "com',
        'attributes.name > "com"',
        "attributes.name = attributes.other",
        '"com" = attributes.name',
        "attributes:iana.org/language_tag",
        'data = "com"',
        'attributes.name = "com" AND',
        'attributes.name = "com" AND ("net" OR "org")',
        "(attributes:name",
        "attributes:name)",
        "()",
        "hasPrefix(attributes.name)",
        'hasSuffix(attributes.name, "com")',
        # Boolean operators are upper case, and AND beside OR needs parentheses.
        "attributes:a and attributes:b",
        "not attributes:a",
        "attributes:a AND attributes:b OR attributes:c",
    ],
)
def test_filter_syntax_error_is_invalid_argument(server: Server, expression: str) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="filter"):
        server.create_subscription(topic, filter=expression)


@google_falls_short("takes any filter")
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("attributes:" + "a" * 246, id="257 characters"),
        pytest.param('attributes:"' + "é" * 122 + '"', id="135 characters in 257 bytes"),
    ],
)
def test_filter_syntax_error_and_length_limit(server: Server, expression: str) -> None:
    topic = server.create_topic()
    assert len(expression.encode()) == 257

    with server.refuses(InvalidArgument, naming="filter"):
        server.create_subscription(topic, filter=expression)


def test_filter_of_256_bytes_is_taken(server: Server) -> None:
    expression = "attributes:" + "a" * 245
    _, subscription = server.create_pair(filter=expression)

    assert server.get_subscription(subscription).filter == expression


@pytest.mark.parametrize("changed", ["attributes:b", ""])
def test_filter_is_immutable(server: Server, changed: str) -> None:
    _, subscription = server.create_pair(filter="attributes:a")
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, filter=changed),
        update_mask={"paths": ["filter"]},
    )

    with server.refuses(InvalidArgument, naming="filter"):
        server.call(server.subscriber.update_subscription, request)
    assert server.get_subscription(subscription).filter == "attributes:a"

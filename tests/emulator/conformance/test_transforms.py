"""Single message transforms: their settings, and what those of a topic do to what is published."""

import json

import pytest
from google.api_core.exceptions import InvalidArgument
from google.pubsub_v1 import (
    MessageTransform,
    PubsubMessage,
    Subscription,
    Topic,
    UpdateSubscriptionRequest,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import embedded_only, google_falls_short
from tests.emulator.conformance.servers import Server, texts

runs_no_transforms = google_falls_short("stores transforms and does not run them")
refuses_nothing = google_falls_short("takes any transform")


def udf(body: str, *, name: str = "change", **settings: object) -> dict[str, object]:
    """A transform that runs a function of this body."""
    code = f"function {name}(message, metadata) {{ {body} }}"
    return {"javascript_udf": {"function_name": name, "code": code}, **settings}


def inference(endpoint: str) -> dict[str, object]:
    return {"ai_inference": {"endpoint": endpoint, "unstructured_inference": {}}}


SHOUT = udf("message.data = message.data.toUpperCase(); return message;", name="shout")
EXCLAIM = udf("message.data += '!'; return message;", name="exclaim")
NO_DROPS = udf("return message.data.startsWith('drop') ? null : message;", name="noDrops")
FAIL = udf("if (message.data == 'bad') throw new Error('not this'); return message;", name="fail")
MODEL = "projects/p/locations/us-central1/publishers/google/models/gemini-2.0-flash"


def create(server: Server, *transforms: dict[str, object], **settings: object) -> tuple[str, str]:
    """Make a topic with these transforms, and a subscription."""
    topic = server.create_topic(message_transforms=list(transforms))
    return topic, server.create_subscription(topic, **settings)


# Settings


@pytest.mark.parametrize(
    "transforms",
    [
        [SHOUT],
        [SHOUT, EXCLAIM],
        [{**SHOUT, "disabled": True}, EXCLAIM],
        [inference(MODEL)],
        [inference("projects/p/locations/us-central1/endpoints/123")],
    ],
)
def test_smt_config_is_stored_and_returned(
    server: Server, transforms: list[dict[str, object]]
) -> None:
    topic = server.create_topic(message_transforms=transforms)
    subscription = server.create_subscription(topic, message_transforms=transforms)
    given = [MessageTransform(transform) for transform in transforms]

    assert list(server.get_topic(topic).message_transforms) == given
    assert list(server.get_subscription(subscription).message_transforms) == given


def test_smt_config_of_compression_is_stored_and_returned(server: Server) -> None:
    given = MessageTransform(
        compression={"compression_algorithm": "ZSTD", "compression_mode": "COMPRESS"}
    )
    topic = server.create_topic(message_transforms=[given])

    assert list(server.get_topic(topic).message_transforms) == [given]


def update_topic(server: Server, topic: str, *transforms: dict[str, object]) -> None:
    request = UpdateTopicRequest(
        topic=Topic(name=topic, message_transforms=transforms),
        update_mask={"paths": ["message_transforms"]},
    )
    server.call(server.publisher.update_topic, request)


@runs_no_transforms
def test_smt_update_takes_effect_on_what_is_published_next(server: Server) -> None:
    topic, subscription = create(server, SHOUT)
    server.publish(topic, "a")
    update_topic(server, topic, EXCLAIM)
    server.publish(topic, "b")
    update_topic(server, topic)
    server.publish(topic, "c")

    assert texts(server.receive(subscription, 3)) == ["A", "b!", "c"]
    assert not server.get_topic(topic).message_transforms


TOO_MUCH = udf("/*" + "x" * 20 * 1024 + "*/ return message;")
BAD: dict[str, list[dict[str, object]]] = {
    "nothing": [{}],
    "no name": [{"javascript_udf": {"code": "function f(m) { return m; }"}}],
    "no code": [{"javascript_udf": {"function_name": "f"}}],
    "not a name": [{"javascript_udf": {"function_name": "f()", "code": "function f() {}"}}],
    "another's name": [{"javascript_udf": {"function_name": "f", "code": "function g() {}"}}],
    "not a function": [{"javascript_udf": {"function_name": "f", "code": "var f = 1;"}}],
    "syntax": [{"javascript_udf": {"function_name": "f", "code": "function f( {"}}],
    "too long": [TOO_MUCH],
    "same name": [SHOUT, SHOUT],
    "no endpoint": [{"ai_inference": {}}],
    "bad endpoint": [inference("gemini")],
}


def test_smt_more_than_five_are_invalid_argument(server: Server) -> None:
    transforms = [udf("return message;", name=f"f{number}") for number in range(6)]
    topic = server.create_topic(message_transforms=transforms[:5])

    with server.refuses(InvalidArgument, naming="message_transforms"):
        server.create_topic(message_transforms=transforms)
    with server.refuses(InvalidArgument, naming="message_transforms"):
        server.create_subscription(topic, message_transforms=transforms)


@refuses_nothing
@pytest.mark.parametrize("transforms", BAD.values(), ids=BAD.keys())
def test_smt_bad_config_is_invalid_argument(
    server: Server, transforms: list[dict[str, object]]
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="message_transforms"):
        server.create_topic(message_transforms=transforms)
    with server.refuses(InvalidArgument, naming="message_transforms"):
        update_topic(server, topic, *transforms)
    with server.refuses(InvalidArgument, naming="message_transforms"):
        server.create_subscription(topic, message_transforms=transforms)


@refuses_nothing
def test_smt_bad_update_changes_nothing(server: Server) -> None:
    topic, subscription = create(server, SHOUT, message_transforms=[EXCLAIM])
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, message_transforms=BAD["syntax"]),
        update_mask={"paths": ["message_transforms"]},
    )

    with server.refuses(InvalidArgument, naming="code"):
        server.call(server.subscriber.update_subscription, request)
    with server.refuses(InvalidArgument, naming="code"):
        update_topic(server, topic, *BAD["syntax"])
    server.publish(topic, "a")
    assert texts(server.receive(subscription, 1)) == ["A!"]


@google_falls_short("cannot update a topic's labels")
def test_smt_that_the_mask_does_not_name_are_not_looked_at(server: Server) -> None:
    topic = server.create_topic(message_transforms=[SHOUT])
    request = UpdateTopicRequest(
        topic=Topic(name=topic, labels={"a": "b"}, message_transforms=BAD["syntax"]),
        update_mask={"paths": ["labels"]},
    )
    server.call(server.publisher.update_topic, request)

    assert list(server.get_topic(topic).message_transforms) == [MessageTransform(SHOUT)]


# What they do to what is published


@runs_no_transforms
def test_smt_on_topic_rewrites_data(server: Server) -> None:
    change = udf(
        """
        const data = JSON.parse(message.data);
        message.attributes.id = String(data.id);
        delete message.attributes.secret;
        delete data.name;
        message.data = JSON.stringify(data);
        return message;
        """
    )
    topic, subscription = create(server, change)
    data = b'{"id": 7, "name": "\xc3\x85sa", "text": "\xe6\xbc\xa2\xf0\x9f\x98\x80"}'
    attributes = {"kept": "yes", "secret": "word"}
    server.publish(topic, PubsubMessage(data=data, attributes=attributes))
    (delivery,) = server.receive(subscription, 1)

    assert json.loads(delivery.message.data) == {"id": 7, "text": "漢😀"}
    assert dict(delivery.message.attributes) == {"kept": "yes", "id": "7"}


@runs_no_transforms
def test_smt_on_topic_reaches_every_subscription(server: Server) -> None:
    topic, first = create(server, SHOUT)
    second = server.create_subscription(topic)
    (message_id,) = server.publish(topic, "a")

    for subscription in (first, second):
        (delivery,) = server.receive(subscription, 1)
        assert (delivery.message.data, delivery.message.message_id) == (b"A", message_id)


@runs_no_transforms
def test_smt_on_topic_filters_what_still_gets_an_id(server: Server) -> None:
    topic, subscription = create(server, NO_DROPS)
    ids = server.publish(topic, "drop 1", "a", "drop 2", "drop 3", "b")
    ids += server.publish(topic, "drop 4")
    ids += server.publish(topic, "c")
    received = server.receive(subscription, 3)

    assert texts(received) == ["a", "b", "c"]
    assert [delivery.message.message_id for delivery in received] == [ids[1], ids[4], ids[6]]
    assert len(set(ids)) == 7
    assert server.pull_now(subscription) == []


@runs_no_transforms
def test_smt_on_topic_that_fails_refuses_the_whole_publish(server: Server) -> None:
    topic, subscription = create(server, FAIL)

    with server.refuses(InvalidArgument, naming="messages[1]"):
        server.publish(topic, "a", "bad", "b")
    with server.refuses(InvalidArgument, naming="not this"):
        server.publish(topic, "bad")
    server.publish(topic, "c")
    assert texts(server.receive(subscription, 1)) == ["c"]
    assert server.pull_now(subscription) == []


@runs_no_transforms
def test_smt_several_run_in_order_and_a_disabled_one_is_passed_over(server: Server) -> None:
    twice = udf("message.data += message.data; return message;", name="twice")
    topic, subscription = create(server, EXCLAIM, {**SHOUT, "disabled": True}, twice, NO_DROPS)
    server.publish(topic, "a", "drop")

    assert texts(server.receive(subscription, 1)) == ["a!a!"]


@runs_no_transforms
def test_smt_knows_the_metadata(server: Server) -> None:
    change = udf("message.data = JSON.stringify(metadata); return message;")
    topic, subscription = create(server, change)
    plain, changed = server.create_pair(message_transforms=[change])
    message = PubsubMessage(data=b"a", ordering_key="key")
    server.publish(topic, message)
    (message_id,) = server.publish(plain, message)
    (early,) = server.receive(subscription, 1)
    (late,) = server.receive(changed, 1)

    assert json.loads(early.message.data) == {"ordering_key": "key"}
    assert json.loads(late.message.data) == {
        "message_id": message_id,
        "ordering_key": "key",
        "publish_time": f"{late.message.publish_time:%Y-%m-%dT%H:%M:%SZ}",
    }


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("return {data: message.data, attributes: {}};", {}),
        ("message.attributes = {}; return message;", {}),
        ("return {data: message.data};", {"k": "v"}),
        ("return {data: message.data, attributes: {a: 'b'}};", {"a": "b"}),
    ],
)
def test_smt_attributes_are_those_that_it_returns(
    server: Server, request: pytest.FixtureRequest, body: str, left: dict[str, str]
) -> None:
    if server.kind == "google" and left != {"k": "v"}:
        request.applymarker(pytest.mark.xfail(reason="runs no transforms"))
    topic, subscription = create(server, udf(body))
    server.publish(topic, PubsubMessage(data=b"a", attributes={"k": "v"}))
    (delivery,) = server.receive(subscription, 1)

    assert dict(delivery.message.attributes) == left


WRONG = {
    "a number": "return 1;",
    "a string": "return 'a';",
    "no data": "return {attributes: {a: 'b'}};",
    "data of another type": "message.data = 1; return message;",
    "an attribute of another type": "message.attributes.a = 1; return message;",
    "a promise": "return Promise.resolve(message);",
    "nothing at all": "return {data: '', attributes: {}};",
    "reserved attribute": "message.attributes.google = 'a'; return message;",
    "empty key": "message.attributes[''] = 'a'; return message;",
    "long value": "message.attributes.a = 'x'.repeat(1025); return message;",
    "many": "for (let i = 0; i < 101; i++) message.attributes[i] = 'x'; return message;",
    "too large": "message.data = 'x'.repeat(10000001); return message;",
    "no such name": "return nobody(message);",
    "console": "console.log(1); return message;",
}


@runs_no_transforms
@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
def test_smt_with_a_wrong_result_is_invalid_argument(server: Server, body: str) -> None:
    topic, subscription = create(server, udf(body))

    with server.refuses(InvalidArgument, naming="messages[0]: "):
        server.publish(topic, "a")
    assert server.pull_now(subscription) == []


@embedded_only("the documentation does not say what bytes that are no text become")
@pytest.mark.parametrize("body", ["return message;", "message.data += ''; return message;"])
def test_smt_leaves_bytes_that_are_no_text_as_they_are(server: Server, body: str) -> None:
    data = bytes(range(256)) + "漢😀".encode() + b"\xed\xa0\x80\xf0\x9f"
    topic, subscription = create(server, udf(body))
    server.publish(topic, PubsubMessage(data=data))
    (delivery,) = server.receive(subscription, 1)

    assert delivery.message.data == data


@runs_no_transforms
def test_smt_that_cuts_a_character_in_two_makes_a_replacement_character(server: Server) -> None:
    topic, subscription = create(server, udf("message.data = '\\ud83d'; return message;"))
    server.publish(topic, "a")

    assert texts(server.receive(subscription, 1)) == ["\N{REPLACEMENT CHARACTER}"]


@runs_no_transforms
def test_smt_of_a_9_mb_message(server: Server) -> None:
    topic, subscription = create(server, EXCLAIM)
    data = b"x" * 9_000_000
    server.publish(topic, PubsubMessage(data=data))
    (delivery,) = server.receive(subscription, 1)

    assert delivery.message.data == data + b"!"


@runs_no_transforms
def test_smt_on_topic_keeps_the_order_of_a_key(server: Server) -> None:
    topic, subscription = create(server, SHOUT, enable_message_ordering=True)
    server.publish(topic, *(PubsubMessage(data=c.encode(), ordering_key="k") for c in "abc"))
    server.publish(topic, PubsubMessage(data=b"d", ordering_key="k"))
    received = server.receive(subscription, 4)

    assert texts(received) == ["A", "B", "C", "D"]
    assert {delivery.message.ordering_key for delivery in received} == {"k"}


@runs_no_transforms
def test_smt_finds_nothing_that_another_message_left_behind(server: Server) -> None:
    count = udf("globalThis.n = (globalThis.n || 0) + 1; message.data += n; return message;")
    topic, subscription = create(server, count)
    server.publish(topic, "a", "b")
    server.publish(topic, "c")

    assert texts(server.receive(subscription, 3)) == ["a1", "b1", "c1"]

"""Topics with a schema: what may be published to them, and what subscribers are told of it."""

import json

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1 import Encoding, PubsubMessage, Schema, Topic, UpdateTopicRequest
from google.rpc.error_details_pb2 import ErrorInfo

from tests.emulator.conformance.marks import embedded_only, google_falls_short
from tests.emulator.conformance.schemas import (
    BINARY,
    JSON,
    ORDER,
    ORDER_PROTO,
    PROTO,
    avro,
    commit,
    create,
    delete,
    delete_revision,
    roll_back,
    topic_with,
    with_fields,
    written,
)
from tests.emulator.conformance.servers import Server, texts

without_protobuf = google_falls_short("does not know protobuf")

GOOD = '{"id": "a1", "note": null}'
WIDER = '{"id": "a1", "note": null, "more": ""}'


def told(name: str, revision_id: str, encoding: str = "JSON") -> dict[str, str]:
    """The attributes of a message that was checked."""
    return {
        "googclient_schemaname": name,
        "googclient_schemarevisionid": revision_id,
        "googclient_schemaencoding": encoding,
    }


def received(server: Server, subscription: str, count: int) -> list[dict[str, str]]:
    """The attributes of so many messages."""
    deliveries = server.receive(subscription, count)
    server.acknowledge(subscription, *deliveries)
    return [dict(each.message.attributes) for each in deliveries]


def update(server: Server, topic: str, *paths: str, **settings: object) -> Topic:
    request = UpdateTopicRequest(
        topic=Topic({"name": topic, **({"schema_settings": settings} if settings else {})}),
        update_mask={"paths": list(paths)},
    )
    return server.call(server.publisher.update_topic, request)


def test_topic_schema_avro_json_enforced_and_attributes_added(server: Server) -> None:
    made = create(server, avro(ORDER))
    topic = topic_with(server, made.name)
    subscription = server.create_subscription(topic.name)
    own = PubsubMessage(data=GOOD.encode(), attributes={"colour": "red"}, ordering_key="k")

    assert topic.schema_settings.schema == made.name
    assert topic.schema_settings.encoding == Encoding.JSON
    assert server.get_topic(topic.name) == topic
    for wrong in ("", '{"id": "a1"}', '{"id": 1, "note": null}', '{"id": "a1", "note": "x"}'):
        with server.refuses(InvalidArgument, naming="messages[0].data"):
            server.publish(topic.name, wrong or PubsubMessage(attributes={"only": "these"}))
    server.publish(topic.name, GOOD, own)
    first, second = server.receive(subscription, 2)
    assert texts([first, second]) == [GOOD, GOOD]
    expected = told(made.name, made.revision_id)
    assert dict(first.message.attributes) == expected
    assert dict(second.message.attributes) == {**expected, "colour": "red"}
    assert second.message.ordering_key == "k"


def test_topic_schema_avro_binary_enforced(server: Server) -> None:
    made = create(server, avro(ORDER))
    topic = topic_with(server, made.name, BINARY).name
    subscription = server.create_subscription(topic)
    good = written(ORDER, {"id": "a1", "note": "soon"})

    for wrong in (good[:-1], b"\x01" + good, GOOD.encode()):
        with server.refuses(InvalidArgument, naming="messages[0].data"):
            server.publish(topic, PubsubMessage(data=wrong))
    server.publish(topic, PubsubMessage(data=good))
    (delivery,) = server.receive(subscription, 1)
    assert delivery.message.data == good
    assert dict(delivery.message.attributes) == told(made.name, made.revision_id, "BINARY")


@google_falls_short("takes what is left over")
def test_bytes_left_over_are_refused(server: Server) -> None:
    topic = topic_with(server, create(server, avro(ORDER)).name, BINARY).name
    good = written(ORDER, {"id": "a1", "note": "soon"})

    with server.refuses(InvalidArgument, naming="1 bytes are left over"):
        server.publish(topic, PubsubMessage(data=good + b"\x00"))


@without_protobuf
def test_topic_schema_proto_enforced(server: Server) -> None:
    made = create(server, Schema(type_=PROTO, definition=ORDER_PROTO))
    binary = topic_with(server, made.name, BINARY).name
    text = topic_with(server, made.name, JSON).name
    subscriptions = [server.create_subscription(topic) for topic in (binary, text)]
    good = b"\x0a\x02a1\x10\x05"

    for wrong in (b"\x0a\x05a1", b"\x0a\x01\xff", b"\xff", good + b"\x50\x01", GOOD.encode()):
        with server.refuses(InvalidArgument, naming="messages[0].data"):
            server.publish(binary, PubsubMessage(data=wrong))
    for wrong_text in ("{", '{"id": 1}', '{"nope": "a"}', '{"state": "LOST"}', '{"amount": NaN}'):
        with server.refuses(InvalidArgument, naming="messages[0].data"):
            server.publish(text, wrong_text)
    server.publish(binary, PubsubMessage(data=good))
    server.publish(binary, PubsubMessage(attributes={"empty": "too"}))
    server.publish(text, '{"id": "a1", "lines": [{"what": "tea"}]}')
    first, second = received(server, subscriptions[0], 2)
    assert first == told(made.name, made.revision_id, "BINARY")
    assert second == {**told(made.name, made.revision_id, "BINARY"), "empty": "too"}
    assert received(server, subscriptions[1], 1) == [told(made.name, made.revision_id)]


@without_protobuf
def test_a_required_field_must_be_there(server: Server) -> None:
    definition = 'syntax = "proto2"; message A { required int32 a = 1; optional A b = 2; }'
    made = create(server, Schema(type_=PROTO, definition=definition))
    binary = topic_with(server, made.name, BINARY).name
    text = topic_with(server, made.name, JSON).name

    server.publish(binary, PubsubMessage(data=b"\x08\x01"))
    server.publish(text, '{"a": 1}')
    with server.refuses(InvalidArgument, naming="missing: b.a"):
        server.publish(binary, PubsubMessage(data=b"\x08\x01\x12\x00"))
    with server.refuses(InvalidArgument, naming="missing: a"):
        server.publish(text, "{}")


def test_topic_with_missing_schema_is_not_found(server: Server) -> None:
    made = create(server, avro(ORDER))

    with server.refuses(NotFound):
        topic_with(server, server.schema_name())
    with server.refuses(NotFound):
        topic_with(server, made.name, first_revision_id="00000000")
    with server.refuses(NotFound):
        topic_with(server, made.name, last_revision_id="not a revision")


def test_settings_need_a_schema_and_an_encoding(server: Server) -> None:
    made = create(server, avro(ORDER))

    with server.refuses(InvalidArgument, naming="schema_settings.encoding"):
        topic_with(server, made.name, Encoding.ENCODING_UNSPECIFIED)
    with server.refuses(InvalidArgument, naming="schema_settings.schema"):
        topic_with(server, "")


@google_falls_short("takes fields that the schema does not have")
def test_fields_that_the_schema_does_not_have_are_refused(server: Server) -> None:
    topic = topic_with(server, create(server, avro(ORDER)).name).name

    with server.refuses(InvalidArgument, naming="Order has no field 'more'"):
        server.publish(topic, WIDER)


def test_one_bad_message_refuses_all(server: Server) -> None:
    topic = topic_with(server, create(server, avro(ORDER)).name).name
    subscription = server.create_subscription(topic)

    with server.refuses(InvalidArgument, naming="messages[2].data"):
        server.publish(topic, GOOD, GOOD, "no order", GOOD)
    server.publish(topic, '{"id": "last", "note": null}')
    assert texts(server.receive(subscription, 1)) == ['{"id": "last", "note": null}']


@google_falls_short("does not say why")
def test_a_refusal_says_why_for_people_and_for_programs(server: Server) -> None:
    made = create(server, avro(ORDER))
    topic = topic_with(server, made.name).name

    with pytest.raises(InvalidArgument) as refused:
        server.publish(topic, '{"id": 5, "note": null}')
    assert "id: a number 5 is not a string" in refused.value.message
    (info,) = refused.value.details
    assert isinstance(info, ErrorInfo)
    assert (info.domain, info.reason) == ("pubsub.googleapis.com", "INVALID_JSON_AVRO_MESSAGE")
    assert made.revision_id in info.metadata["revisionInfo"]


def test_what_the_publisher_says_of_the_schema_is_replaced(server: Server) -> None:
    made = create(server, avro(ORDER))
    topic = topic_with(server, made.name).name
    subscription = server.create_subscription(topic)
    claims = told("projects/p/schemas/mine", "12345678", "BINARY")
    server.publish(topic, PubsubMessage(data=GOOD.encode(), attributes=claims))

    assert received(server, subscription, 1) == [told(made.name, made.revision_id)]


def test_a_message_is_checked_only_when_it_is_published(server: Server) -> None:
    topic = server.create_topic()
    subscription = server.create_subscription(topic)
    server.publish(topic, "anything")
    made = create(server, avro(ORDER))
    update(server, topic, "schema_settings", schema=made.name, encoding="JSON")

    with server.refuses(InvalidArgument, naming="messages[0].data"):
        server.publish(topic, "anything")
    server.publish(topic, GOOD)
    update(server, topic, "schema_settings")
    server.publish(topic, "whatever")
    assert received(server, subscription, 3) == [{}, told(made.name, made.revision_id), {}]


# Revisions


def test_a_later_revision_is_used_at_once(server: Server) -> None:
    first = create(server, avro(ORDER))
    topic = topic_with(server, first.name).name
    subscription = server.create_subscription(topic)
    with server.refuses(InvalidArgument, naming="messages[0].data"):
        server.publish(topic, '{"id": "a1"}')
    second = commit(server, first.name, avro(with_fields("more")))
    server.publish(topic, GOOD, WIDER)

    assert received(server, subscription, 2) == [
        told(first.name, first.revision_id),
        told(first.name, second.revision_id),
    ]


def test_of_two_revisions_that_fit_the_newer_counts(server: Server) -> None:
    first = create(server, avro(ORDER))
    second = roll_back(server, first.name, first.revision_id)
    topic = topic_with(server, first.name).name
    subscription = server.create_subscription(topic)
    server.publish(topic, GOOD)
    third = roll_back(server, first.name, first.revision_id)
    server.publish(topic, GOOD)

    found = [each["googclient_schemarevisionid"] for each in received(server, subscription, 2)]
    assert found == [second.revision_id, third.revision_id]


@pytest.mark.parametrize(
    ("first", "last", "fitting"),
    [
        pytest.param("", "", "abcd", id="any"),
        pytest.param("b", "", "bcd", id="first"),
        pytest.param("", "c", "abc", id="last"),
        pytest.param("b", "c", "bc", id="both"),
        pytest.param("c", "c", "c", id="one"),
    ],
)
def test_a_topic_allows_a_range_of_revisions(
    server: Server, first: str, last: str, fitting: str
) -> None:
    """The example of Google's documentation: four revisions, none of which fits another's."""
    name = create(server, avro(with_fields("a"))).name
    made = {"a": server.schemas.get_schema(name=name)}
    for letter in "bcd":
        made[letter] = commit(server, name, avro(with_fields(letter)))
    ids = {letter: each.revision_id for letter, each in made.items()} | {"": ""}
    topic = topic_with(server, name, first_revision_id=ids[first], last_revision_id=ids[last]).name
    subscription = server.create_subscription(topic)

    for letter in "abcd":
        message = json.dumps({"id": "a1", "note": None, letter: "x"})
        if letter in fitting:
            server.publish(topic, message)
        else:
            with server.refuses(InvalidArgument, naming="messages[0].data"):
                server.publish(topic, message)
    told_ids = [
        each["googclient_schemarevisionid"] for each in received(server, subscription, len(fitting))
    ]
    assert told_ids == [ids[letter] for letter in fitting]


def test_a_range_goes_on_without_the_revisions_that_bound_it(server: Server) -> None:
    made = [create(server, avro(with_fields("a")))]
    made += [commit(server, made[0].name, avro(with_fields(letter))) for letter in "bcd"]
    topic = topic_with(
        server,
        made[0].name,
        first_revision_id=made[1].revision_id,
        last_revision_id=made[2].revision_id,
    ).name
    delete_revision(server, made[1])

    server.publish(topic, '{"id": "a1", "note": null, "c": ""}')
    for letter in "abd":
        with server.refuses(InvalidArgument, naming="messages[0].data"):
            server.publish(topic, json.dumps({"id": "a1", "note": None, letter: ""}))
    delete_revision(server, made[2])
    with server.refuses(InvalidArgument, naming="are all deleted"):
        server.publish(topic, '{"id": "a1", "note": null, "c": ""}')


@google_falls_short("looks for the bound that stays, too")
def test_a_bound_that_was_deleted_may_stay_when_the_other_is_moved(server: Server) -> None:
    first = create(server, avro(ORDER))
    second = commit(server, first.name, avro(ORDER))
    topic = topic_with(server, first.name, first_revision_id=first.revision_id).name
    delete_revision(server, first)
    path = "schema_settings.last_revision_id"
    update(server, topic, path, last_revision_id=second.revision_id)

    server.publish(topic, GOOD)
    with server.refuses(NotFound):
        update(server, topic, path, last_revision_id=first.revision_id)


def test_a_range_must_not_end_before_it_begins(server: Server) -> None:
    first = create(server, avro(ORDER))
    second = commit(server, first.name, avro(ORDER))

    with server.refuses(InvalidArgument, naming="last_revision_id"):
        topic_with(
            server,
            first.name,
            first_revision_id=second.revision_id,
            last_revision_id=first.revision_id,
        )


# Changing settings, and deleting what is in use


def test_settings_are_changed_one_by_one_and_cleared(server: Server) -> None:
    first = create(server, avro(ORDER))
    second = commit(server, first.name, avro(with_fields("more")))
    topic = topic_with(server, first.name).name
    ids = {"first_revision_id": second.revision_id, "last_revision_id": second.revision_id}

    changed = update(server, topic, "schema_settings.first_revision_id", **ids).schema_settings
    assert (changed.first_revision_id, changed.last_revision_id) == (second.revision_id, "")
    assert (changed.schema, changed.encoding) == (first.name, Encoding.JSON)
    with server.refuses(InvalidArgument, naming="messages[0].data"):
        server.publish(topic, GOOD)
    changed = update(server, topic, "schema_settings.first_revision_id", encoding="JSON")
    assert not changed.schema_settings.first_revision_id
    server.publish(topic, GOOD)
    with server.refuses(NotFound):
        update(server, topic, "schema_settings.schema", schema=server.schema_name())
    with server.refuses(InvalidArgument, naming="schema_settings.encoding"):
        update(server, topic, "schema_settings", schema=first.name)
    assert "schema_settings" not in update(server, topic, "schema_settings")
    server.publish(topic, "anything")


def test_a_topic_whose_schema_is_deleted_refuses_messages(server: Server) -> None:
    made = create(server, avro(ORDER))
    topic = topic_with(server, made.name).name
    server.publish(topic, GOOD)
    delete(server, made.name)

    settings = server.get_topic(topic).schema_settings
    assert (settings.schema, settings.encoding) == ("_deleted-schema_", Encoding.JSON)
    with server.refuses(NotFound, naming="schema was deleted"):
        server.publish(topic, GOOD)
    again = create(server, avro(ORDER), made.name)
    assert server.get_topic(topic).schema_settings.schema == "_deleted-schema_"
    update(server, topic, "schema_settings", schema=again.name, encoding="JSON")
    server.publish(topic, GOOD)


@google_falls_short("takes no update of such a topic")
def test_a_topic_whose_schema_is_deleted_can_be_changed(server: Server) -> None:
    made = create(server, avro(ORDER))
    topic = topic_with(server, made.name).name
    delete(server, made.name)
    changed = update(server, topic, "message_retention_duration")

    assert changed.schema_settings.schema == "_deleted-schema_"
    with server.refuses(InvalidArgument, naming="schema_settings.schema"):
        update(server, topic, "schema_settings", schema="_deleted-schema_", encoding="BINARY")


def test_messages_tell_what_was_deleted_since(server: Server) -> None:
    first = create(server, avro(ORDER))
    second = commit(server, first.name, avro(with_fields("more")))
    topic = topic_with(server, first.name).name
    kept, other = server.create_subscription(topic), server.create_subscription(topic)
    server.publish(topic, GOOD, WIDER)
    delete_revision(server, second)

    gone = "_deleted-schema-revision_"
    assert received(server, kept, 2) == [
        told(first.name, first.revision_id),
        told(first.name, gone),
    ]
    delete(server, first.name)
    deliveries = server.receive(other, 2)
    assert [dict(each.message.attributes) for each in deliveries] == 2 * [
        told("_deleted-schema_", gone)
    ]
    assert texts(deliveries) == [GOOD, WIDER]
    assert all(each.message.message_id and each.message.publish_time for each in deliveries)


@embedded_only("Google's does not hold back by bytes")
def test_what_was_deleted_since_leaves_flow_control_right(server: Server) -> None:
    """What subscribers are told is longer than the short name and the id that it stands for."""
    made = create(server, avro(ORDER), "projects/p/schemas/abc")
    topic = topic_with(server, made.name).name
    subscription = server.create_subscription(topic)
    server.publish(topic, *[GOOD] * 4)
    names = []
    with server.stream(subscription, max_outstanding_bytes=1) as stream:
        for number in range(4):
            (delivery,) = stream.messages(1)
            names.append(delivery.message.attributes["googclient_schemaname"])
            if number == 1:
                delete(server, made.name)
            stream.acknowledge(delivery)

    assert names == [made.name] * 2 + ["_deleted-schema_"] * 2

"""Topics: their life, their names, their listing and their settings."""

from datetime import timedelta

import pytest
from google.api_core.exceptions import AlreadyExists, InvalidArgument, NotFound
from google.pubsub_v1 import (
    DeleteTopicRequest,
    ListTopicsRequest,
    ListTopicSubscriptionsRequest,
    Topic,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts

TEN_MINUTES = timedelta(minutes=10)
A_MONTH = timedelta(days=31)
A_SECOND = timedelta(seconds=1)


def delete(server: Server, topic: str) -> None:
    server.call(server.publisher.delete_topic, DeleteTopicRequest(topic=topic))


def update(server: Server, topic: str, *paths: str, **settings: object) -> Topic:
    request = UpdateTopicRequest(
        topic=Topic({"name": topic, **settings}), update_mask={"paths": list(paths)}
    )
    return server.call(server.publisher.update_topic, request)


def test_topic_create_get_delete(server: Server) -> None:
    name = server.topic_name()
    created = server.call(server.publisher.create_topic, Topic(name=name, labels={"team": "a"}))

    assert created.name == name
    assert dict(created.labels) == {"team": "a"}
    assert server.get_topic(name) == created
    delete(server, name)
    with server.refuses(NotFound):
        server.get_topic(name)


def test_a_deleted_topic_can_be_made_again(server: Server) -> None:
    topic = server.create_topic(labels={"team": "a"})
    delete(server, topic)

    assert server.create_topic(name=topic) == topic
    assert not server.get_topic(topic).labels


def test_topic_duplicate_is_already_exists(server: Server) -> None:
    topic = server.create_topic(labels={"team": "a"})

    with server.refuses(AlreadyExists):
        server.create_topic(name=topic, labels={"team": "b"})
    assert dict(server.get_topic(topic).labels) == {"team": "a"}


def test_unknown_topic_is_not_found(server: Server) -> None:
    unknown = server.topic_name()

    with server.refuses(NotFound):
        server.get_topic(unknown)
    with server.refuses(NotFound):
        delete(server, unknown)
    with server.refuses(NotFound):
        update(server, unknown, "message_retention_duration")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("orders", id="no project"),
        pytest.param("projects/{project}/topic/orders", id="misspelt collection"),
        pytest.param("projects/{project}/topics/", id="no id"),
        pytest.param(
            "projects//topics/orders",
            id="empty project",
            marks=google_falls_short("takes an empty project"),
        ),
        pytest.param("projects/{project}/topics/ab", id="2 characters"),
        pytest.param("projects/{project}/topics/" + "a" * 256, id="256 characters"),
        pytest.param("projects/{project}/topics/1abc", id="begins with a digit"),
        pytest.param("projects/{project}/topics/-abc", id="begins with a dash"),
        pytest.param("projects/{project}/topics/goog-orders", id="begins with goog"),
        pytest.param("projects/{project}/topics/my orders", id="a space"),
        pytest.param("projects/{project}/topics/my/orders", id="a slash"),
        pytest.param("projects/{project}/topics/my!orders", id="an exclamation mark"),
        pytest.param("projects/{project}/topics/commandé", id="a letter beyond ASCII"),
    ],
)
def test_topic_bad_name_is_invalid_argument(server: Server, name: str) -> None:
    with server.refuses(InvalidArgument, naming="name"):
        server.create_topic(name=name.format(project=server.project))


@pytest.mark.parametrize(
    "topic_id",
    [
        pytest.param("abc", id="3 characters"),
        pytest.param("a" * 255, id="255 characters"),
        pytest.param("Az09-_.~+%", id="every kind of character"),
        pytest.param("my-goog", id="goog, but not first"),
    ],
)
def test_topic_good_name_is_taken(server: Server, topic_id: str) -> None:
    name = server.topic_name(topic_id)

    assert server.create_topic(name=name) == name
    assert server.get_topic(name).name == name


def test_topic_malformed_name_is_invalid_argument_everywhere(server: Server) -> None:
    with server.refuses(InvalidArgument, naming="topic"):
        server.get_topic("orders")
    with server.refuses(InvalidArgument, naming="topic"):
        delete(server, "orders")
    with server.refuses(InvalidArgument, naming="topic"):
        server.publish("orders", "a")


def test_topic_list_pages(server: Server) -> None:
    created = {server.create_topic() for _ in range(5)}
    listed: list[str] = []
    sizes: list[int] = []
    token = ""
    while token or not sizes:
        request = ListTopicsRequest(
            project=f"projects/{server.project}", page_size=2, page_token=token
        )
        page = server.call(server.publisher.list_topics, request)
        listed += [topic.name for topic in page.topics]
        sizes.append(len(page.topics))
        token = page.next_page_token

    assert sizes == [2, 2, 1]
    assert len(listed) == len(set(listed))
    assert set(listed) == created


def test_topic_list_without_a_page_size_is_whole(server: Server) -> None:
    created = {server.create_topic() for _ in range(5)}
    page = server.call(
        server.publisher.list_topics, ListTopicsRequest(project=f"projects/{server.project}")
    )

    assert {topic.name for topic in page.topics} == created
    assert page.next_page_token == ""


def test_topic_list_of_another_project_is_empty(server: Server) -> None:
    server.create_topic()
    page = server.call(
        server.publisher.list_topics, ListTopicsRequest(project=f"projects/{server.project}-other")
    )

    assert list(page.topics) == []


@google_falls_short("answers UNKNOWN")
def test_topic_list_of_a_malformed_project_is_invalid_argument(server: Server) -> None:
    with server.refuses(InvalidArgument, naming="project"):
        server.call(server.publisher.list_topics, ListTopicsRequest(project="orders"))


@google_falls_short("does not know labels in an update mask")
def test_topic_update_labels_mask(server: Server) -> None:
    topic = server.create_topic(labels={"team": "a"}, message_retention_duration=TEN_MINUTES)
    updated = update(
        server, topic, "labels", labels={"stage": "test"}, message_retention_duration=A_MONTH
    )

    assert dict(updated.labels) == {"stage": "test"}
    assert updated.message_retention_duration == TEN_MINUTES
    assert server.get_topic(topic) == updated


def test_topic_update_retention_mask_leaves_the_labels(server: Server) -> None:
    topic = server.create_topic(labels={"team": "a"})
    updated = update(
        server,
        topic,
        "message_retention_duration",
        labels={"stage": "test"},
        message_retention_duration=A_MONTH,
    )

    assert dict(updated.labels) == {"team": "a"}
    assert updated.message_retention_duration == A_MONTH
    assert server.get_topic(topic) == updated


@google_falls_short("takes a retention that is not set for one of 0 s")
def test_topic_update_clears_a_masked_field_without_a_value(server: Server) -> None:
    topic = server.create_topic(message_retention_duration=TEN_MINUTES)
    updated = update(server, topic, "message_retention_duration")

    assert "message_retention_duration" not in updated
    assert server.get_topic(topic) == updated


@pytest.mark.parametrize(
    ("paths", "naming"),
    [
        pytest.param([], "update_mask", id="empty"),
        pytest.param(["colour"], "colour", id="unknown field"),
        pytest.param(["message_retention_duration", "colour"], "colour", id="one unknown field"),
        pytest.param(["name"], "name", id="immutable field"),
    ],
)
def test_topic_update_bad_or_empty_mask_is_invalid_argument(
    server: Server, paths: list[str], naming: str
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming=naming):
        update(server, topic, *paths, message_retention_duration=TEN_MINUTES)
    assert "message_retention_duration" not in server.get_topic(topic)


def test_topic_list_subscriptions(server: Server) -> None:
    topic, other = server.create_topic(), server.create_topic()
    created = {server.create_subscription(topic) for _ in range(3)}
    server.create_subscription(other)
    request = ListTopicSubscriptionsRequest(topic=topic, page_size=2)
    first = server.call(server.publisher.list_topic_subscriptions, request)
    request.page_token = first.next_page_token
    second = server.call(server.publisher.list_topic_subscriptions, request)

    assert len(first.subscriptions) == 2
    assert {*first.subscriptions, *second.subscriptions} == created
    assert second.next_page_token == ""


@google_falls_short("answers an empty list")
def test_topic_list_subscriptions_of_an_unknown_topic_is_not_found(server: Server) -> None:
    request = ListTopicSubscriptionsRequest(topic=server.topic_name())

    with server.refuses(NotFound):
        server.call(server.publisher.list_topic_subscriptions, request)


def test_deleted_topic_leaves_subscription_with_deleted_topic_name(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "before")
    delete(server, topic)

    assert server.get_subscription(subscription).topic == "_deleted-topic_"
    assert texts(server.pull(subscription)) == ["before"]


def test_a_topic_made_again_does_not_regain_its_subscriptions(server: Server) -> None:
    topic, subscription = server.create_pair()
    delete(server, topic)
    server.create_topic(name=topic)
    server.publish(topic, "after")

    assert server.get_subscription(subscription).topic == "_deleted-topic_"
    assert server.pull_now(subscription) == []


@pytest.mark.parametrize("retention", [TEN_MINUTES, A_MONTH])
def test_topic_retention_in_range_is_kept(server: Server, retention: timedelta) -> None:
    topic = server.create_topic(message_retention_duration=retention)

    assert server.get_topic(topic).message_retention_duration == retention


@pytest.mark.parametrize(
    "retention", [-A_SECOND, timedelta(0), TEN_MINUTES - A_SECOND, A_MONTH + A_SECOND]
)
def test_topic_retention_out_of_range_is_invalid_argument(
    server: Server, retention: timedelta
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="message_retention_duration"):
        server.create_topic(message_retention_duration=retention)
    with server.refuses(InvalidArgument, naming="message_retention_duration"):
        update(server, topic, "message_retention_duration", message_retention_duration=retention)


@google_falls_short("does not check labels")
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"": "a"}, id="empty key"),
        pytest.param({"Team": "a"}, id="upper case key"),
        pytest.param({"1team": "a"}, id="key begins with a digit"),
        pytest.param({"my team": "a"}, id="a space in a key"),
        pytest.param({"k" * 64: "a"}, id="key of 64 characters"),
        pytest.param({"team": "A"}, id="upper case value"),
        pytest.param({"team": "v" * 64}, id="value of 64 characters"),
        pytest.param({f"key{n}": "a" for n in range(65)}, id="65 labels"),
    ],
)
def test_topic_bad_labels_are_invalid_argument(server: Server, labels: dict[str, str]) -> None:
    with server.refuses(InvalidArgument, naming="label"):
        server.create_topic(labels=labels)


def test_topic_labels_up_to_their_limits_are_kept(server: Server) -> None:
    labels = {f"key-_{n}": "" for n in range(62)} | {"k" * 63: "v" * 63, "a": "0-_z"}

    assert dict(server.get_topic(server.create_topic(labels=labels)).labels) == labels

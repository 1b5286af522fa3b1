"""Subscriptions: their life, defaults, updates and detaching."""

from datetime import timedelta

import pytest
from google.api_core.exceptions import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from google.pubsub_v1 import (
    DeleteSubscriptionRequest,
    DetachSubscriptionRequest,
    ListSubscriptionsRequest,
    ListTopicSubscriptionsRequest,
    Subscription,
    UpdateSubscriptionRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, texts

TEN_MINUTES = timedelta(minutes=10)
A_MONTH = timedelta(days=31)
A_SECOND = timedelta(seconds=1)


def delete(server: Server, subscription: str) -> None:
    request = DeleteSubscriptionRequest(subscription=subscription)
    server.call(server.subscriber.delete_subscription, request)


def detach(server: Server, subscription: str) -> None:
    request = DetachSubscriptionRequest(subscription=subscription)
    server.call(server.publisher.detach_subscription, request)


def update(server: Server, subscription: str, *paths: str, **settings: object) -> Subscription:
    request = UpdateSubscriptionRequest(
        subscription=Subscription({"name": subscription, **settings}),
        update_mask={"paths": list(paths)},
    )
    return server.call(server.subscriber.update_subscription, request)


def test_subscription_create_get_delete(server: Server) -> None:
    topic, name = server.create_topic(), server.subscription_name()
    created = server.call(
        server.subscriber.create_subscription,
        Subscription(name=name, topic=topic, ack_deadline_seconds=30, labels={"team": "a"}),
    )

    assert (created.name, created.topic) == (name, topic)
    assert created.ack_deadline_seconds == 30
    assert dict(created.labels) == {"team": "a"}
    assert server.get_subscription(name) == created
    delete(server, name)
    with server.refuses(NotFound):
        server.get_subscription(name)


def test_a_subscription_made_again_has_no_backlog(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    delete(server, subscription)
    server.create_subscription(topic, name=subscription)

    assert server.pull_now(subscription) == []


@google_falls_short("names neither a state nor the default expiration policy")
def test_subscription_defaults(server: Server) -> None:
    topic, name = server.create_pair()
    subscription = server.get_subscription(name)

    assert subscription.topic == topic
    assert subscription.ack_deadline_seconds == 10
    assert subscription.message_retention_duration == timedelta(days=7)
    assert subscription.expiration_policy.ttl == A_MONTH
    assert subscription.state == Subscription.State.ACTIVE
    assert not subscription.push_config.push_endpoint
    assert not subscription.retain_acked_messages
    assert not subscription.enable_message_ordering
    assert not subscription.enable_exactly_once_delivery
    assert not subscription.detached
    assert subscription.filter == ""
    assert "dead_letter_policy" not in subscription
    assert "retry_policy" not in subscription
    assert "topic_message_retention_duration" not in subscription


def test_subscription_default_ack_deadline_and_retention(server: Server) -> None:
    _, name = server.create_pair(ack_deadline_seconds=0)
    subscription = server.get_subscription(name)

    assert subscription.ack_deadline_seconds == 10
    assert subscription.message_retention_duration == timedelta(days=7)


def test_subscription_errors(server: Server) -> None:
    topic, subscription = server.create_pair(ack_deadline_seconds=30)
    unknown = server.subscription_name()

    with server.refuses(AlreadyExists):
        server.create_subscription(topic, name=subscription, ack_deadline_seconds=40)
    assert server.get_subscription(subscription).ack_deadline_seconds == 30
    with server.refuses(NotFound):
        server.create_subscription(server.topic_name())
    with server.refuses(NotFound):
        server.get_subscription(unknown)
    with server.refuses(NotFound):
        delete(server, unknown)
    with server.refuses(NotFound):
        update(server, unknown, "ack_deadline_seconds", ack_deadline_seconds=20)


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "projects/{project}/topics/orders",
        "projects/{project}/subscriptions/",
        "projects/{project}/subscriptions/ab",
        "projects/{project}/subscriptions/" + "a" * 256,
        "projects/{project}/subscriptions/1abc",
        "projects/{project}/subscriptions/goog-orders",
        "projects/{project}/subscriptions/my orders",
        "projects/{project}/subscriptions/my/orders",
    ],
)
def test_subscription_bad_name_is_invalid_argument(server: Server, name: str) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="name"):
        server.create_subscription(topic, name=name.format(project=server.project))


@pytest.mark.parametrize("topic", ["", "orders", "_deleted-topic_"])
def test_subscription_bad_topic_name_is_invalid_argument(server: Server, topic: str) -> None:
    with server.refuses(InvalidArgument, naming="topic"):
        server.create_subscription(topic)


def test_subscription_without_a_name_is_given_one(server: Server) -> None:
    topic = server.create_topic()
    name = server.create_subscription(topic, name="")

    assert name.startswith(f"projects/{server.project}/subscriptions/")
    assert server.get_subscription(name).topic == topic


def test_subscription_to_a_topic_of_another_project(server: Server) -> None:
    topic = server.create_topic()
    name = f"projects/{server.project}-other/subscriptions/orders"
    assert server.create_subscription(topic, name=name) == name
    server.publish(topic, "a")
    own = ListSubscriptionsRequest(project=f"projects/{server.project}")
    attached = ListTopicSubscriptionsRequest(topic=topic)

    assert texts(server.pull(name)) == ["a"]
    assert not server.call(server.subscriber.list_subscriptions, own).subscriptions
    listed = server.call(server.publisher.list_topic_subscriptions, attached).subscriptions
    assert list(listed) == [name]


@pytest.mark.parametrize(
    "seconds",
    [
        -1,
        pytest.param(1, marks=google_falls_short("takes deadlines under 10 s")),
        pytest.param(9, marks=google_falls_short("takes deadlines under 10 s")),
        601,
    ],
)
def test_subscription_bad_ack_deadline_is_invalid_argument(server: Server, seconds: int) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="ack_deadline_seconds"):
        server.create_subscription(topic, ack_deadline_seconds=seconds)
    with server.refuses(InvalidArgument, naming="ack_deadline_seconds"):
        update(server, subscription, "ack_deadline_seconds", ack_deadline_seconds=seconds)
    assert server.get_subscription(subscription).ack_deadline_seconds == 10


@pytest.mark.parametrize("seconds", [10, 600])
def test_subscription_ack_deadline_in_range_is_kept(server: Server, seconds: int) -> None:
    _, subscription = server.create_pair(ack_deadline_seconds=seconds)

    assert server.get_subscription(subscription).ack_deadline_seconds == seconds


def test_subscription_ack_deadline_updated_to_0_is_the_default(server: Server) -> None:
    _, subscription = server.create_pair(ack_deadline_seconds=30)
    updated = update(server, subscription, "ack_deadline_seconds", ack_deadline_seconds=0)

    assert updated.ack_deadline_seconds == 10


@pytest.mark.parametrize(
    "retention", [-A_SECOND, timedelta(0), TEN_MINUTES - A_SECOND, A_MONTH + A_SECOND]
)
def test_subscription_retention_out_of_range_is_invalid_argument(
    server: Server, retention: timedelta
) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="message_retention_duration"):
        server.create_subscription(topic, message_retention_duration=retention)
    with server.refuses(InvalidArgument, naming="message_retention_duration"):
        update(
            server,
            subscription,
            "message_retention_duration",
            message_retention_duration=retention,
        )


@pytest.mark.parametrize(
    "retention",
    [
        TEN_MINUTES,
        timedelta(days=7),
        pytest.param(A_MONTH, marks=google_falls_short("stops at 7 days")),
    ],
)
def test_subscription_retention_in_range_is_kept(server: Server, retention: timedelta) -> None:
    _, subscription = server.create_pair(message_retention_duration=retention)

    assert server.get_subscription(subscription).message_retention_duration == retention


def test_subscription_update_mask_only_touches_named_fields(server: Server) -> None:
    _, name = server.create_pair(
        ack_deadline_seconds=30,
        labels={"team": "a"},
        retain_acked_messages=True,
        message_retention_duration=TEN_MINUTES,
    )
    expected = server.get_subscription(name)
    expected.ack_deadline_seconds = 40
    expected.retain_acked_messages = False
    updated = update(
        server,
        name,
        "ack_deadline_seconds",
        "retain_acked_messages",
        ack_deadline_seconds=40,
        labels={"stage": "test"},
        message_retention_duration=A_MONTH,
    )

    assert updated == expected
    assert server.get_subscription(name) == expected


@google_falls_short("does not know labels in an update mask")
def test_subscription_update_labels(server: Server) -> None:
    _, subscription = server.create_pair(labels={"team": "a"})

    assert update(server, subscription, "labels", labels={"b": "c"}).labels == {"b": "c"}
    assert not update(server, subscription, "labels").labels
    assert not server.get_subscription(subscription).labels


def test_subscription_update_clears_a_masked_policy_without_a_value(server: Server) -> None:
    topic = server.create_topic()
    subscription = server.create_subscription(
        topic, dead_letter_policy={"dead_letter_topic": topic}, retry_policy={}
    )
    assert "dead_letter_policy" in server.get_subscription(subscription)
    assert "retry_policy" in server.get_subscription(subscription)
    updated = update(server, subscription, "dead_letter_policy", "retry_policy")

    assert "dead_letter_policy" not in updated
    assert "retry_policy" not in updated
    assert server.get_subscription(subscription) == updated


@google_falls_short("takes no deeper paths")
def test_subscription_update_clears_a_masked_field_inside_a_policy(server: Server) -> None:
    a_day, month = timedelta(days=1), timedelta(days=31)
    _, name = server.create_pair(
        expiration_policy={"ttl": month}, retry_policy={"minimum_backoff": timedelta(seconds=20)}
    )
    update(server, name, "expiration_policy.ttl", expiration_policy={"ttl": a_day})
    assert server.get_subscription(name).expiration_policy.ttl == a_day
    updated = update(server, name, "expiration_policy.ttl", "retry_policy.minimum_backoff")

    assert "expiration_policy" in updated
    assert "ttl" not in updated.expiration_policy
    assert updated.retry_policy.minimum_backoff == timedelta(seconds=10)  # the default


@pytest.mark.parametrize(
    ("paths", "naming"),
    [
        pytest.param([], "update_mask", id="empty"),
        pytest.param(["message_transforms.disabled"], "transforms", id="part of a list"),
        pytest.param(["colour"], "colour", id="unknown field"),
        pytest.param(["ack_deadline_seconds", "colour"], "colour", id="one unknown field"),
    ],
)
def test_subscription_update_bad_mask_is_invalid_argument(
    server: Server, paths: list[str], naming: str
) -> None:
    _, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming=naming):
        update(server, subscription, *paths, ack_deadline_seconds=30)
    assert server.get_subscription(subscription).ack_deadline_seconds == 10


@pytest.mark.parametrize(
    "field", ["name", "topic", "enable_message_ordering", "detached", "filter"]
)
def test_subscription_immutable_fields_rejected(server: Server, field: str) -> None:
    _, subscription = server.create_pair()
    changed: dict[str, object] = {
        "name": subscription,
        "topic": server.create_topic(),
        "enable_message_ordering": True,
        "detached": True,
        "filter": "attributes:a",
    }
    before = server.get_subscription(subscription)

    with server.refuses(InvalidArgument, naming=field):
        update(server, subscription, field, **{field: changed[field]})
    assert server.get_subscription(subscription) == before


def test_subscription_list_pages(server: Server) -> None:
    topic = server.create_topic()
    created = {server.create_subscription(topic) for _ in range(5)}
    listed: list[str] = []
    sizes: list[int] = []
    token = ""
    while token or not sizes:
        request = ListSubscriptionsRequest(
            project=f"projects/{server.project}", page_size=2, page_token=token
        )
        page = server.call(server.subscriber.list_subscriptions, request)
        listed += [subscription.name for subscription in page.subscriptions]
        sizes.append(len(page.subscriptions))
        token = page.next_page_token

    assert sizes == [2, 2, 1]
    assert len(listed) == len(set(listed))
    assert set(listed) == created


def test_subscription_list_gives_whole_subscriptions(server: Server) -> None:
    _, name = server.create_pair(ack_deadline_seconds=30)
    request = ListSubscriptionsRequest(project=f"projects/{server.project}")
    page = server.call(server.subscriber.list_subscriptions, request)

    assert list(page.subscriptions) == [server.get_subscription(name)]


@google_falls_short("does not check labels")
@pytest.mark.parametrize("labels", [{"Team": "a"}, {"team": "A"}, {"": "a"}, {"k" * 64: "a"}])
def test_subscription_bad_labels_are_invalid_argument(
    server: Server, labels: dict[str, str]
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="label"):
        server.create_subscription(topic, labels=labels)


@google_falls_short("has no DetachSubscription")
def test_detach_drops_messages_and_pull_fails_precondition(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "before")
    detach(server, subscription)
    server.publish(topic, "after")

    assert server.get_subscription(subscription).detached
    with server.refuses(FailedPrecondition, naming="detached"):
        server.pull(subscription)
    with server.stream(subscription) as stream:
        assert stream.ending() == "FAILED_PRECONDITION"


@google_falls_short("has no DetachSubscription")
def test_detach_ends_open_streams(server: Server) -> None:
    _, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.settle()
        detach(server, subscription)

        assert stream.ending() == "FAILED_PRECONDITION"


@google_falls_short("has no DetachSubscription")
def test_detached_subscription_leaves_its_topic_and_its_siblings(server: Server) -> None:
    topic, detached = server.create_pair()
    sibling = server.create_subscription(topic)
    detach(server, detached)
    server.publish(topic, "after")
    request = ListTopicSubscriptionsRequest(topic=topic)
    attached = server.call(server.publisher.list_topic_subscriptions, request).subscriptions

    assert list(attached) == [sibling]
    assert texts(server.pull(sibling)) == ["after"]


@google_falls_short("has no DetachSubscription")
def test_detach_unknown_subscription_is_not_found(server: Server) -> None:
    with server.refuses(NotFound):
        detach(server, server.subscription_name())

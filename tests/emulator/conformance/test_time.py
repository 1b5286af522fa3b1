"""What the passing of minutes, days and weeks does, on a clock that a test turns."""

from collections import Counter
from datetime import timedelta

import pytest
from google.api_core.exceptions import FailedPrecondition, NotFound
from google.pubsub_v1 import (
    CreateSnapshotRequest,
    GetSnapshotRequest,
    ListSubscriptionsRequest,
    ListTopicSubscriptionsRequest,
    PullResponse,
    Snapshot,
    Subscription,
    UpdateSubscriptionRequest,
)

from tests.emulator.conformance.marks import embedded_only
from tests.emulator.conformance.servers import Server, moment, texts
from tests.emulator.conformance.streams import gather

pytestmark = embedded_only("its clock cannot be turned")

MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def listed(server: Server) -> list[str]:
    """The subscriptions there are. Listing, unlike getting, is no activity of theirs."""
    request = ListSubscriptionsRequest(project=f"projects/{server.project}")
    page = server.call(server.subscriber.list_subscriptions, request)
    return [subscription.name for subscription in page.subscriptions]


def create_snapshot(server: Server, subscription: str) -> Snapshot:
    request = CreateSnapshotRequest(name=server.snapshot_name(), subscription=subscription)
    return server.call(server.subscriber.create_snapshot, request)


def get_snapshot(server: Server, snapshot: str) -> Snapshot:
    return server.call(server.subscriber.get_snapshot, GetSnapshotRequest(snapshot=snapshot))


def test_the_clock_stands_still_until_it_is_turned(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    server.let_time_pass(HOUR)
    server.publish(topic, "b")
    first, second = (delivery.message for delivery in server.receive(subscription, 2))

    assert moment(second.publish_time) - moment(first.publish_time) == timedelta(hours=1)


def test_ack_deadline_is_exact(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    server.pull(subscription)
    server.let_time_pass(9.99)
    assert server.pull_now(subscription) == []
    server.let_time_pass(0.02)

    assert texts(server.pull_now(subscription)) == ["a"]


def test_updated_ack_deadline_holds_for_later_deliveries(server: Server) -> None:
    topic, subscription = server.create_pair()
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, ack_deadline_seconds=20),
        update_mask={"paths": ["ack_deadline_seconds"]},
    )
    server.call(server.subscriber.update_subscription, request)
    server.publish(topic, "a")
    server.pull(subscription)
    server.let_time_pass(19)
    assert server.pull_now(subscription) == []
    server.let_time_pass(2)

    assert texts(server.pull_now(subscription)) == ["a"]


def test_pull_that_waits_is_given_what_falls_due(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    server.pull(subscription)
    waiting = server.start_pull(subscription)
    server.let_time_pass(11)
    response: PullResponse = waiting.result()

    assert texts(list(response.received_messages)) == ["a"]


def test_everything_due_on_the_way_happens(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    with server.stream(subscription, stream_ack_deadline_seconds=10) as stream:
        stream.messages(1)
        server.let_time_pass(35)

        assert texts(gather(3, stream)) == ["a", "a", "a"]


def test_expired_deliveries_lead_to_a_dead_letter_on_the_way(server: Server) -> None:
    dead_letters, heap = server.create_pair()
    topic, subscription = server.create_pair(
        dead_letter_policy={"dead_letter_topic": dead_letters, "max_delivery_attempts": 5}
    )
    server.publish(topic, "a")
    with server.stream(subscription) as stream:
        first = stream.messages(1)
        server.let_time_pass(MINUTE)
        attempts = [d.delivery_attempt for d in first + gather(4, stream)]

    assert attempts == [1, 2, 3, 4, 5]
    assert texts(server.pull_now(heap)) == ["a"]


def test_retained_messages_age_out(server: Server) -> None:
    topic, subscription = server.create_pair(message_retention_duration=timedelta(minutes=10))
    server.publish(topic, "old")
    server.let_time_pass(9 * MINUTE)
    server.publish(topic, "new")
    server.let_time_pass(2 * MINUTE)

    assert texts(server.pull_now(subscription)) == ["new"]


def test_unacked_messages_age_out_after_7_days_by_default(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "old")
    server.let_time_pass(2 * DAY)
    server.publish(topic, "new")
    server.let_time_pass(5 * DAY + MINUTE)

    assert texts(server.pull_now(subscription)) == ["new"]


def test_outstanding_messages_age_out(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_retention_duration=timedelta(minutes=10), ack_deadline_seconds=600
    )
    server.publish(topic, "a")
    server.let_time_pass(9 * MINUTE)
    (delivery,) = server.pull(subscription)
    server.let_time_pass(2 * MINUTE)
    server.nack(subscription, delivery)

    assert server.pull_now(subscription) == []


def test_retained_acked_messages_age_out(server: Server) -> None:
    topic, subscription = server.create_pair(
        retain_acked_messages=True, message_retention_duration=timedelta(minutes=10)
    )
    server.publish(topic, "old")
    (old,) = server.pull(subscription)
    server.acknowledge(subscription, old)
    server.let_time_pass(9 * MINUTE)
    server.publish(topic, "new")
    server.acknowledge(subscription, *server.pull(subscription))
    server.let_time_pass(2 * MINUTE)
    server.seek(subscription, time=moment(old.message.publish_time) - timedelta(hours=1))

    assert texts(server.pull_now(subscription)) == ["new"]


def test_messages_retained_by_their_topic_age_out(server: Server) -> None:
    topic = server.create_topic(message_retention_duration=timedelta(minutes=10))
    witness = server.create_subscription(topic)
    server.publish(topic, "old")
    published = moment(server.pull(witness)[0].message.publish_time)
    server.let_time_pass(9 * MINUTE)
    server.publish(topic, "new")
    server.let_time_pass(2 * MINUTE)
    subscription = server.create_subscription(topic)
    server.seek(subscription, time=published - timedelta(hours=1))

    assert texts(server.pull_now(subscription)) == ["new"]


def test_topic_retention_outlasts_that_of_a_subscription(server: Server) -> None:
    topic = server.create_topic(message_retention_duration=timedelta(hours=1))
    subscription = server.create_subscription(
        topic, message_retention_duration=timedelta(minutes=10)
    )
    server.publish(topic, "a")
    (delivery,) = server.pull(subscription)
    server.acknowledge(subscription, delivery)
    server.let_time_pass(30 * MINUTE)
    server.seek(subscription, time=moment(delivery.message.publish_time) - timedelta(minutes=1))

    assert texts(server.pull_now(subscription)) == ["a"]


@pytest.mark.parametrize(
    ("settings", "days"),
    [
        pytest.param({"expiration_policy": {"ttl": timedelta(days=1)}}, 1, id="1 day"),
        pytest.param({}, 31, id="the default of 31 days"),
    ],
)
def test_subscription_without_activity_is_deleted_after_its_expiration_ttl(
    server: Server, settings: dict[str, object], days: int
) -> None:
    topic, subscription = server.create_pair(
        message_retention_duration=timedelta(minutes=10), **settings
    )
    server.let_time_pass(days * DAY - MINUTE)
    assert listed(server) == [subscription]
    server.let_time_pass(2 * MINUTE)

    assert listed(server) == []
    with server.refuses(NotFound):
        server.get_subscription(subscription)
    request = ListTopicSubscriptionsRequest(topic=topic)
    attached = server.call(server.publisher.list_topic_subscriptions, request)
    assert list(attached.subscriptions) == []


def test_activity_puts_a_subscriptions_expiration_off(server: Server) -> None:
    topic, subscription = server.create_pair(
        message_retention_duration=timedelta(minutes=10),
        expiration_policy={"ttl": timedelta(days=1)},
    )
    server.let_time_pass(DAY - MINUTE)
    server.publish(topic, "a")
    server.acknowledge(subscription, *server.pull(subscription))
    server.let_time_pass(DAY - MINUTE)
    assert listed(server) == [subscription]
    server.let_time_pass(2 * MINUTE)

    assert listed(server) == []


def test_publishing_does_not_put_a_subscriptions_expiration_off(server: Server) -> None:
    topic, _ = server.create_pair(
        message_retention_duration=timedelta(minutes=10),
        expiration_policy={"ttl": timedelta(days=1)},
    )
    server.let_time_pass(DAY - MINUTE)
    server.publish(topic, "a")
    server.let_time_pass(2 * MINUTE)

    assert listed(server) == []


def test_subscription_with_an_empty_expiration_policy_never_expires(server: Server) -> None:
    _, subscription = server.create_pair(expiration_policy={})
    server.let_time_pass(400 * DAY)

    assert listed(server) == [subscription]


def test_snapshot_expires_after_7_days(server: Server) -> None:
    _, subscription = server.create_pair()
    snapshot = create_snapshot(server, subscription)
    server.let_time_pass(7 * DAY - MINUTE)
    assert get_snapshot(server, snapshot.name) == snapshot
    server.let_time_pass(2 * MINUTE)

    with server.refuses(NotFound):
        get_snapshot(server, snapshot.name)
    with server.refuses(NotFound):
        server.seek(subscription, snapshot=snapshot.name)


def test_snapshot_expires_sooner_the_older_its_backlog(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "old")
    server.let_time_pass(3 * DAY)
    snapshot = create_snapshot(server, subscription)
    published = moment(server.pull(subscription)[0].message.publish_time)

    assert moment(snapshot.expire_time) - published == timedelta(days=7)
    server.let_time_pass(4 * DAY + MINUTE)
    with server.refuses(NotFound):
        get_snapshot(server, snapshot.name)


def test_snapshot_that_would_expire_within_an_hour_is_refused(server: Server) -> None:
    topic, subscription = server.create_pair(message_retention_duration=timedelta(days=31))
    server.publish(topic, "old")
    server.let_time_pass(7 * DAY - HOUR - MINUTE)
    create_snapshot(server, subscription)
    server.let_time_pass(2 * MINUTE)

    with server.refuses(FailedPrecondition):
        create_snapshot(server, subscription)


def test_stream_is_ended_after_30_minutes(server: Server) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.settle()
        server.let_time_pass(29 * MINUTE)
        assert stream.settle() == []
        server.let_time_pass(2 * MINUTE)
        assert stream.ending() == "UNAVAILABLE"

    with server.stream(subscription) as stream:
        server.publish(topic, "a")
        assert texts(stream.messages(1)) == ["a"]


def test_retry_policy_backoff_between_deliveries(server: Server) -> None:
    topic, subscription = server.create_pair(
        retry_policy={
            "minimum_backoff": timedelta(seconds=10),
            "maximum_backoff": timedelta(seconds=100),
        }
    )
    server.publish(topic, "a")
    delays: list[int] = []
    received = server.pull(subscription)
    for _ in range(8):
        server.nack(subscription, *received)
        delays.append(0)
        while not (received := server.pull_now(subscription)):
            server.let_time_pass(1)
            delays[-1] += 1
            assert delays[-1] <= 100

    # It grows from the minimum to the maximum, and then stays there.
    assert delays == sorted(delays)
    assert delays[0] == 10
    assert delays[1] > 10
    assert delays[-2:] == [100, 100]


def test_stream_takes_over_from_its_predecessor_of_the_same_client_id(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a", "b")
    with server.stream(subscription, client_id="me", max_outstanding_messages=1) as old:
        (held,) = old.messages(1)
        with server.stream(subscription, client_id="me", max_outstanding_messages=1) as new:
            assert new.settle() == []
            assert old.ending() != "OK"
            new.acknowledge(held)
            (other,) = new.messages(1)
            new.acknowledge(other)
            assert new.settle() == []

    assert {held.message.data, other.message.data} == {b"a", b"b"}
    server.let_time_pass(11)
    assert server.pull_now(subscription) == []


def test_streams_of_other_client_ids_and_subscriptions_go_on(server: Server) -> None:
    topic, subscription = server.create_pair()
    sibling = server.create_subscription(topic)
    with (
        server.stream(subscription, client_id="me") as mine,
        server.stream(subscription, client_id="you") as yours,
        server.stream(sibling, client_id="me") as elsewhere,
    ):
        for stream in (mine, yours, elsewhere):
            assert stream.settle() == []
        server.publish(topic, *"abcd")
        ours = texts(gather(4, mine, yours))
        theirs = texts(gather(4, elsewhere))

    assert Counter(ours) == Counter(theirs) == Counter("abcd")

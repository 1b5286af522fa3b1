"""Retention and expiry that are changed count from then on, for what is there already, too."""

from datetime import timedelta

import pytest
from google.api_core.exceptions import NotFound
from google.pubsub_v1 import (
    CreateSnapshotRequest,
    GetSnapshotRequest,
    Snapshot,
    Subscription,
    Topic,
    UpdateSnapshotRequest,
    UpdateSubscriptionRequest,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import embedded_only
from tests.emulator.conformance.servers import Server, moment, texts
from tests.emulator.conformance.test_time import DAY, HOUR, MINUTE, listed

pytestmark = embedded_only("its clock cannot be turned")


def change(server: Server, subscription: str, **settings: object) -> None:
    request = UpdateSubscriptionRequest(
        subscription=Subscription({"name": subscription, **settings}),
        update_mask={"paths": list(settings)},
    )
    server.call(server.subscriber.update_subscription, request)


@pytest.mark.parametrize(("minutes", "kept"), [(10, []), (60, ["a"])])
def test_changed_message_retention(server: Server, minutes: int, kept: list[str]) -> None:
    topic, subscription = server.create_pair(message_retention_duration=timedelta(minutes=30))
    server.publish(topic, "a")
    server.let_time_pass(9 * MINUTE)
    change(server, subscription, message_retention_duration=timedelta(minutes=minutes))
    server.let_time_pass(22 * MINUTE)

    assert texts(server.pull_now(subscription)) == kept


@pytest.mark.parametrize(("minutes", "kept"), [(10, []), (60, ["a"])])
def test_changed_topic_retention(server: Server, minutes: int, kept: list[str]) -> None:
    topic = server.create_topic(message_retention_duration=timedelta(minutes=30))
    witness = server.create_subscription(topic)
    server.publish(topic, "a")
    published = moment(server.pull(witness)[0].message.publish_time)
    server.let_time_pass(9 * MINUTE)
    retention = timedelta(minutes=minutes)
    request = UpdateTopicRequest(
        topic=Topic(name=topic, message_retention_duration=retention),
        update_mask={"paths": ["message_retention_duration"]},
    )
    server.call(server.publisher.update_topic, request)
    server.let_time_pass(22 * MINUTE)
    subscription = server.create_subscription(topic)
    server.seek(subscription, time=published - timedelta(hours=1))

    assert texts(server.pull_now(subscription)) == kept


@pytest.mark.parametrize(("days", "left"), [(2, 0), (60, 1)])
def test_changed_expiration_of_a_subscription(server: Server, days: int, left: int) -> None:
    _, subscription = server.create_pair(message_retention_duration=timedelta(minutes=10))
    server.let_time_pass(DAY)
    change(server, subscription, expiration_policy={"ttl": timedelta(days=days)})
    server.let_time_pass(40 * DAY)

    assert len(listed(server)) == left


@pytest.mark.parametrize("days", [-6, 6], ids=["sooner", "later"])
def test_changed_expiration_of_a_snapshot(server: Server, days: int) -> None:
    _, subscription = server.create_pair(expiration_policy={})
    request = CreateSnapshotRequest(name=server.snapshot_name(), subscription=subscription)
    snapshot = server.call(server.subscriber.create_snapshot, request)
    moved = moment(snapshot.expire_time) + timedelta(days=days)
    update = UpdateSnapshotRequest(
        snapshot=Snapshot(name=snapshot.name, expire_time=moved),
        update_mask={"paths": ["expire_time"]},
    )
    server.call(server.subscriber.update_snapshot, update)
    get = GetSnapshotRequest(snapshot=snapshot.name)
    server.let_time_pass((7 + days) * DAY - HOUR)
    assert server.call(server.subscriber.get_snapshot, get).expire_time == moved
    server.let_time_pass(2 * HOUR)

    with server.refuses(NotFound):
        server.call(server.subscriber.get_snapshot, get)

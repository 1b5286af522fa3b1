"""Snapshots, seeking, and messages that are retained."""

from datetime import timedelta

import pytest
from google.api_core.exceptions import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from google.pubsub_v1 import (
    CreateSnapshotRequest,
    DeleteSnapshotRequest,
    GetSnapshotRequest,
    ListSnapshotsRequest,
    ListTopicSnapshotsRequest,
    Snapshot,
    Topic,
    UpdateSnapshotRequest,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server, moment, texts

A_MINUTE = timedelta(minutes=1)
TEN_MINUTES = timedelta(minutes=10)


def create(server: Server, subscription: str, **settings: object) -> Snapshot:
    request = CreateSnapshotRequest(
        {"name": server.snapshot_name(), "subscription": subscription, **settings}
    )
    return server.call(server.subscriber.create_snapshot, request)


def get(server: Server, snapshot: str) -> Snapshot:
    return server.call(server.subscriber.get_snapshot, GetSnapshotRequest(snapshot=snapshot))


def delete(server: Server, snapshot: str) -> None:
    server.call(server.subscriber.delete_snapshot, DeleteSnapshotRequest(snapshot=snapshot))


def update(server: Server, snapshot: str, *paths: str, **settings: object) -> Snapshot:
    request = UpdateSnapshotRequest(
        snapshot=Snapshot({"name": snapshot, **settings}), update_mask={"paths": list(paths)}
    )
    return server.call(server.subscriber.update_snapshot, request)


def take(server: Server, subscription: str, count: int) -> list[str]:
    """Receive and acknowledge this many."""
    received = server.receive(subscription, count)
    server.acknowledge(subscription, *received)
    return sorted(texts(received))


def test_snapshot_create_seek_restores_backlog(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "acked", "backlog")
    acked, backlog = sorted(server.receive(subscription, 2), key=lambda d: d.message.data)
    server.acknowledge(subscription, acked)
    snapshot = create(server, subscription)
    server.acknowledge(subscription, backlog)
    server.publish(topic, "later")
    assert take(server, subscription, 1) == ["later"]
    server.seek(subscription, snapshot=snapshot.name)

    assert take(server, subscription, 2) == ["backlog", "later"]
    assert server.pull_now(subscription) == []


def test_snapshot_can_be_sought_more_than_once(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    snapshot = create(server, subscription)
    for _ in range(3):
        assert take(server, subscription, 1) == ["a"]
        server.seek(subscription, snapshot=snapshot.name)

    assert take(server, subscription, 1) == ["a"]


def test_seek_to_a_snapshot_takes_outstanding_messages_back(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    snapshot = create(server, subscription)
    (outstanding,) = server.pull(subscription)
    server.seek(subscription, snapshot=snapshot.name)
    (again,) = server.pull(subscription)

    assert again.message == outstanding.message
    assert again.ack_id != outstanding.ack_id


def test_snapshot_serves_another_subscription_of_its_topic(server: Server) -> None:
    topic, one = server.create_pair()
    two = server.create_subscription(topic)
    server.publish(topic, "a", "b")
    for delivery in server.receive(one, 2):
        if delivery.message.data == b"a":
            server.acknowledge(one, delivery)
    snapshot = create(server, one)
    server.seek(two, snapshot=snapshot.name)

    assert take(server, two, 1) == ["b"]
    assert server.pull_now(two) == []


@google_falls_short("has no earlier messages for a later subscription", hangs=True)
def test_snapshot_serves_a_later_subscription_of_its_topic(server: Server) -> None:
    topic, one = server.create_pair()
    server.publish(topic, "a")
    snapshot = create(server, one)
    two = server.create_subscription(topic)
    assert server.pull_now(two) == []
    server.seek(two, snapshot=snapshot.name)

    assert take(server, two, 1) == ["a"]


@google_falls_short("forgets labels, and has no UpdateSnapshot")
def test_snapshot_labels_list_and_update(server: Server) -> None:
    _, subscription = server.create_pair()
    snapshot = create(server, subscription, labels={"team": "a"})
    assert dict(snapshot.labels) == {"team": "a"}
    updated = update(server, snapshot.name, "labels", labels={"stage": "test"})

    assert dict(updated.labels) == {"stage": "test"}
    assert updated.topic == snapshot.topic
    assert moment(updated.expire_time) == moment(snapshot.expire_time)
    assert get(server, snapshot.name) == updated
    request = ListSnapshotsRequest(project=f"projects/{server.project}")
    listed = server.call(server.subscriber.list_snapshots, request)
    assert list(listed.snapshots) == [updated]


@google_falls_short("has no UpdateSnapshot")
@pytest.mark.parametrize(
    ("paths", "naming"), [([], "update_mask"), (["colour"], "colour"), (["topic"], "topic")]
)
def test_snapshot_update_bad_mask_is_invalid_argument(
    server: Server, paths: list[str], naming: str
) -> None:
    _, subscription = server.create_pair()
    snapshot = create(server, subscription)

    with server.refuses(InvalidArgument, naming=naming):
        update(server, snapshot.name, *paths, labels={"stage": "test"})
    assert get(server, snapshot.name) == snapshot


@google_falls_short("has no UpdateSnapshot")
def test_snapshot_update_unknown_is_not_found(server: Server) -> None:
    with server.refuses(NotFound):
        update(server, server.snapshot_name(), "labels")


def test_snapshot_list_pages(server: Server) -> None:
    topic, subscription = server.create_pair()
    _, other = server.create_pair()
    created = {create(server, subscription).name for _ in range(3)}
    others = {create(server, other).name}
    listed: list[str] = []
    sizes: list[int] = []
    token = ""
    while token or not sizes:
        request = ListSnapshotsRequest(
            project=f"projects/{server.project}", page_size=3, page_token=token
        )
        page = server.call(server.subscriber.list_snapshots, request)
        listed += [snapshot.name for snapshot in page.snapshots]
        sizes.append(len(page.snapshots))
        token = page.next_page_token
    of_topic = server.call(
        server.publisher.list_topic_snapshots, ListTopicSnapshotsRequest(topic=topic)
    )

    assert sizes == [3, 1]
    assert set(listed) == created | others
    assert set(of_topic.snapshots) == created


def test_snapshot_tells_its_topic_and_when_it_expires(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    snapshot = create(server, subscription)
    published = moment(server.pull(subscription)[0].message.publish_time)

    assert snapshot.topic == topic
    assert abs(moment(snapshot.expire_time) - published - timedelta(days=7)) < timedelta(seconds=5)
    assert get(server, snapshot.name) == snapshot


def test_snapshot_delete(server: Server) -> None:
    _, subscription = server.create_pair()
    snapshot = create(server, subscription)
    delete(server, snapshot.name)

    with server.refuses(NotFound):
        get(server, snapshot.name)
    with server.refuses(NotFound):
        server.seek(subscription, snapshot=snapshot.name)
    with server.refuses(NotFound):
        delete(server, snapshot.name)
    listed = server.call(
        server.subscriber.list_snapshots, ListSnapshotsRequest(project=f"projects/{server.project}")
    )
    assert list(listed.snapshots) == []


def test_snapshot_of_another_topic_is_rejected(server: Server) -> None:
    _, subscription = server.create_pair()
    topic, other = server.create_pair()
    server.publish(topic, "a")
    snapshot = create(server, subscription)

    with server.refuses(FailedPrecondition, naming="topic"):
        server.seek(other, snapshot=snapshot.name)
    assert texts(server.pull(other)) == ["a"]


def test_snapshot_duplicate_is_already_exists(server: Server) -> None:
    _, subscription = server.create_pair()
    snapshot = create(server, subscription)

    with server.refuses(AlreadyExists):
        create(server, subscription, name=snapshot.name)


def test_snapshot_of_unknown_subscription_is_not_found(server: Server) -> None:
    with server.refuses(NotFound):
        create(server, server.subscription_name())


@pytest.mark.parametrize("snapshot_id", ["ab", "1abc", "goog-abc", "a b c", "a" * 256])
def test_snapshot_bad_name_is_invalid_argument(server: Server, snapshot_id: str) -> None:
    _, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="name"):
        create(server, subscription, name=server.snapshot_name(snapshot_id))


@google_falls_short("insists on a name")
def test_snapshot_without_a_name_is_given_one(server: Server) -> None:
    _, subscription = server.create_pair()
    snapshot = create(server, subscription, name="")

    assert snapshot.name.startswith(f"projects/{server.project}/snapshots/")
    assert get(server, snapshot.name) == snapshot


def test_seek_unknown_is_not_found(server: Server) -> None:
    _, subscription = server.create_pair()
    snapshot = create(server, subscription)

    with server.refuses(NotFound):
        server.seek(subscription, snapshot=server.snapshot_name())
    with server.refuses(NotFound):
        server.seek(server.subscription_name(), snapshot=snapshot.name)


def test_seek_without_a_target_is_invalid_argument(server: Server) -> None:
    _, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming="target"):
        server.seek(subscription)
    with server.refuses(InvalidArgument, naming="snapshot"):
        server.seek(subscription, snapshot="yesterday")


def test_seek_forward_in_time_purges(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "outstanding", "waiting")
    (outstanding,) = server.pull(subscription, max_messages=1)
    server.seek(subscription, time=moment(outstanding.message.publish_time) + A_MINUTE)
    assert server.pull_now(subscription) == []
    server.nack(subscription, outstanding)

    assert server.pull_now(subscription) == []


def test_seek_back_in_time_replays_acked_when_retained(server: Server) -> None:
    topic, subscription = server.create_pair(retain_acked_messages=True)
    server.publish(topic, "a", "b")
    (first, *_) = received = server.receive(subscription, 2)
    server.acknowledge(subscription, *received)
    assert server.pull_now(subscription) == []
    server.seek(subscription, time=moment(first.message.publish_time) - A_MINUTE)

    assert take(server, subscription, 2) == ["a", "b"]
    assert server.pull_now(subscription) == []


def test_seek_back_in_time_replays_on_an_open_stream(server: Server) -> None:
    topic, subscription = server.create_pair(retain_acked_messages=True)
    with server.stream(subscription) as stream:
        server.publish(topic, "a")
        (delivery,) = stream.messages(1)
        stream.acknowledge(delivery)
        assert stream.settle() == []
        server.seek(subscription, time=moment(delivery.message.publish_time) - A_MINUTE)

        assert texts(stream.messages(1)) == ["a"]


def test_seek_back_in_time_does_not_replay_acked_when_not_retained(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "acked", "unacked")
    acked, unacked = sorted(server.receive(subscription, 2), key=lambda d: d.message.data)
    server.acknowledge(subscription, acked)
    server.seek(subscription, time=moment(unacked.message.publish_time) - A_MINUTE)

    assert take(server, subscription, 1) == ["unacked"]
    assert server.pull_now(subscription) == []


def test_seek_forward_and_back_does_not_restore_what_is_not_retained(server: Server) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    published = moment(server.pull(subscription)[0].message.publish_time)
    server.seek(subscription, time=published + A_MINUTE)
    server.seek(subscription, time=published - A_MINUTE)

    assert server.pull_now(subscription) == []


def test_seek_to_a_time_between_messages_splits_them(server: Server) -> None:
    topic, subscription = server.create_pair(retain_acked_messages=True)
    server.publish(topic, "before")
    server.let_time_pass(0.2)
    server.publish(topic, "after")
    before, after = sorted(
        server.receive(subscription, 2), key=lambda d: moment(d.message.publish_time)
    )
    server.acknowledge(subscription, before, after)
    gap = moment(after.message.publish_time) - moment(before.message.publish_time)
    server.seek(subscription, time=moment(before.message.publish_time) + gap / 2)

    assert take(server, subscription, 1) == ["after"]
    assert server.pull_now(subscription) == []


@google_falls_short("does not tell it")
def test_topic_retention_is_shown_on_the_subscription(server: Server) -> None:
    topic = server.create_topic(message_retention_duration=TEN_MINUTES)
    subscription = server.create_subscription(topic)
    shown = server.get_subscription(subscription).topic_message_retention_duration
    assert shown == TEN_MINUTES
    request = UpdateTopicRequest(
        topic=Topic(name=topic, message_retention_duration=2 * TEN_MINUTES),
        update_mask={"paths": ["message_retention_duration"]},
    )
    server.call(server.publisher.update_topic, request)

    shown = server.get_subscription(subscription).topic_message_retention_duration
    assert shown == 2 * TEN_MINUTES


def test_topic_retention_lets_new_subscription_seek_back(server: Server) -> None:
    topic = server.create_topic(message_retention_duration=TEN_MINUTES)
    witness = server.create_subscription(topic)
    server.publish(topic, "early")
    published = moment(server.pull(witness)[0].message.publish_time)
    subscription = server.create_subscription(topic)
    server.seek(subscription, time=published - A_MINUTE)

    assert take(server, subscription, 1) == ["early"]
    assert server.pull_now(subscription) == []


@google_falls_short("delivers what the topic retains without being asked")
def test_topic_retention_alone_delivers_nothing_from_before_a_subscription(
    server: Server,
) -> None:
    topic = server.create_topic(message_retention_duration=TEN_MINUTES)
    server.publish(topic, "early")
    subscription = server.create_subscription(topic)

    assert server.pull_now(subscription) == []


def test_topic_retention_replays_acked_messages(server: Server) -> None:
    topic = server.create_topic(message_retention_duration=TEN_MINUTES)
    subscription = server.create_subscription(topic)
    server.publish(topic, "a")
    (delivery,) = server.pull(subscription)
    server.acknowledge(subscription, delivery)
    server.seek(subscription, time=moment(delivery.message.publish_time) - A_MINUTE)

    assert take(server, subscription, 1) == ["a"]

"""What a client was answered is there when the emulator is started again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument, NotFound
from google.iam.v1.iam_policy_pb2 import GetIamPolicyRequest, SetIamPolicyRequest
from google.pubsub_v1 import (
    CreateSnapshotRequest,
    DeleteSubscriptionRequest,
    DeleteTopicRequest,
    DetachSubscriptionRequest,
    GetSnapshotRequest,
    ListSchemaRevisionsRequest,
    ListSchemasRequest,
    PubsubMessage,
    Schema,
    SchemaServiceClient,
    StreamingPullResponse,
    Subscription,
    Topic,
    UpdateSnapshotRequest,
    UpdateSubscriptionRequest,
    UpdateTopicRequest,
)
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport

from pubsub_aio.emulator import EmulatorThread, VirtualClock
from pubsub_aio.emulator.clock import START
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.streams import Stream
from tests.emulator.push_endpoint import Endpoint


class Start(Protocol):
    def __call__(self, *, killed: bool = ...) -> contextlib.AbstractContextManager[Server]: ...


DAY = 86_400.0


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts an emulator with the test's own directory, at the time at which the last one ended.

    If it is killed, its directory is left as it was in its last moment.
    """
    project = ""
    now = START

    @contextlib.contextmanager
    def start(*, killed: bool = False) -> Iterator[Server]:
        nonlocal project, now
        clock = VirtualClock(now)
        with EmulatorThread(clock=clock, data_dir=tmp_path / "data") as emulator:
            server = Server("embedded", emulator.address, let_time_pass=emulator.advance)
            server.project = project = project or server.project
            try:
                yield server
            finally:
                server.close()
                now = clock.now()
                if killed:
                    copy(tmp_path / "data", tmp_path / "as it was")
        if killed:
            shutil.rmtree(tmp_path / "data")
            (tmp_path / "as it was").rename(tmp_path / "data")

    return start


def copy(data: Path, target: Path) -> None:
    """Copy a directory that is in use, in a moment in which nothing happens there."""
    while True:
        before = {path.name: path.stat().st_size for path in data.iterdir()}
        with contextlib.suppress(shutil.Error):
            shutil.copytree(data, target)
            if {path.name: path.stat().st_size for path in data.iterdir()} == before:
                return
        shutil.rmtree(target)


def confirmation(stream: Stream) -> StreamingPullResponse.AcknowledgeConfirmation:
    """Read on to the next confirmation of acks."""
    while "acknowledge_confirmation" not in (response := stream.response()):
        pass
    return response.acknowledge_confirmation


def test_settings_survive(start: Start) -> None:
    with start() as server:
        topic = server.create_topic(labels={"team": "shop"})
        subscription = server.create_subscription(
            topic, enable_message_ordering=True, ack_deadline_seconds=33, labels={"a": "b"}
        )
        update = UpdateSubscriptionRequest(
            subscription=Subscription(name=subscription, ack_deadline_seconds=44),
            update_mask={"paths": ["ack_deadline_seconds"]},
        )
        server.call(server.subscriber.update_subscription, update)
        before = server.get_topic(topic), server.get_subscription(subscription)

    with start() as server:
        assert (server.get_topic(topic), server.get_subscription(subscription)) == before
        assert before[1].ack_deadline_seconds == 44


def test_unacked_messages_survive_as_they_were(start: Start) -> None:
    with start() as server:
        topic, subscription = server.create_pair()
        server.publish(
            topic,
            PubsubMessage(data=b"tea", attributes={"cup": "small"}, ordering_key="table-7"),
            "coffee",
            "juice",
        )
        first, second, third = server.receive(subscription, 3)
        server.acknowledge(subscription, second)

    with start() as server:
        again = server.receive(subscription, 2)

        assert [item.message for item in again] == [first.message, third.message]
        assert not {item.ack_id for item in again} & {item.ack_id for item in (first, third)}
        server.acknowledge(subscription, *again)

    with start() as server:
        assert server.pull_now(subscription) == []


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("subscribed", [False, True])
def test_ids_are_not_given_twice_though_no_time_passes(
    start: Start, subscribed: bool, killed: bool
) -> None:
    ids: list[str] = []
    for life in range(4):
        with start(killed=killed) as server:
            topic = server.topic_name("orders")
            if not life:
                server.create_topic(name=topic)
                if subscribed:
                    server.create_subscription(topic)
            ids += server.publish(topic, "a", "b")

    assert len(set(ids)) == 8
    assert sorted(ids, key=int) == ids


def test_a_dead_letter_is_not_where_it_was(start: Start) -> None:
    with start(killed=True) as server:
        letters, kept = server.create_pair()
        topic, subscription = server.create_pair(
            dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5}
        )
        server.publish(topic, "poison")
        for _ in range(5):
            server.nack(subscription, *server.receive(subscription, 1))
        assert texts(server.receive(kept, 1)) == ["poison"]
        server.create_topic()  # and what was before it is on disk, too

    with start() as server:
        assert server.pull_now(subscription) == []
        assert texts(server.receive(kept, 1)) == ["poison"]


def test_what_was_in_use_when_it_was_killed_does_not_expire(start: Start) -> None:
    with start(killed=True) as server:
        policy = {"ttl": timedelta(days=1)}
        _, subscription = server.create_pair(expiration_policy=policy)
        for _ in range(3):
            server.let_time_pass(DAY / 2)
            server.pull_now(subscription)

    with start() as server:
        assert server.get_subscription(subscription)
        server.let_time_pass(DAY * 1.1)
        with server.refuses(NotFound):
            server.get_subscription(subscription)


def test_a_topics_retention_is_shown_on_its_subscriptions(start: Start) -> None:
    with start(killed=True) as server:
        topic, subscription = server.create_pair()
        kept = Topic(name=topic, message_retention_duration=timedelta(days=1))
        request = UpdateTopicRequest(
            topic=kept, update_mask={"paths": ["message_retention_duration"]}
        )
        server.call(server.publisher.update_topic, request)
        before = server.get_subscription(subscription)

    with start() as server:
        assert server.get_subscription(subscription) == before
        assert server.get_topic(topic) == server.call(server.publisher.update_topic, request)


def test_snapshots_are_as_they_were_updated(start: Start) -> None:
    with start(killed=True) as server:
        _, subscription = server.create_pair()
        request = CreateSnapshotRequest(name=server.snapshot_name(), subscription=subscription)
        snapshot = server.call(server.subscriber.create_snapshot, request)
        snapshot.labels = {"team": "shop"}
        update = UpdateSnapshotRequest(snapshot=snapshot, update_mask={"paths": ["labels"]})
        server.call(server.subscriber.update_snapshot, update)

    with start() as server:
        found = GetSnapshotRequest(snapshot=snapshot.name)
        assert server.call(server.subscriber.get_snapshot, found) == snapshot


def test_what_is_granted_on_projects_survives(tmp_path: Path) -> None:
    role, ann = "projects/p/roles/clerk", "user:ann@example.com"
    with EmulatorThread(data_dir=tmp_path) as emulator:
        emulator.iam.define_role(role, ["pubsub.topics.publish"])
        emulator.iam.grant(role, ann, on="projects/p")
        emulator.iam.grant(role, "user:bob@example.com", on="projects/p")
        emulator.iam.revoke(role, "user:bob@example.com", on="projects/p")

    with EmulatorThread(data_dir=tmp_path) as emulator:
        assert not emulator.iam.grant(role, ann, on="projects/p")
        assert emulator.iam.grant(role, "user:bob@example.com", on="projects/p")


def test_an_ack_id_of_an_earlier_life_is_an_old_one(start: Start) -> None:
    with start() as server:
        topic, subscription = server.create_pair()
        server.publish(topic, "tea")
        old = server.receive(subscription, 1)

    with start() as server:
        server.acknowledge(subscription, *old)  # accepted, and ignored

        assert texts(server.receive(subscription, 1)) == ["tea"]


def test_snapshots_survive(start: Start) -> None:
    with start() as server:
        topic, subscription = server.create_pair()
        server.publish(topic, "one", "two")
        one, _ = server.receive(subscription, 2)
        server.acknowledge(subscription, one)
        request = CreateSnapshotRequest(name=server.snapshot_name(), subscription=subscription)
        snapshot = server.call(server.subscriber.create_snapshot, request)
        server.seek(subscription, time="2100-01-01T00:00:00Z")
        server.publish(topic, "three")

    with start() as server:
        request = GetSnapshotRequest(snapshot=snapshot.name)
        assert server.call(server.subscriber.get_snapshot, request) == snapshot
        server.seek(subscription, snapshot=snapshot.name)

        assert texts(server.receive(subscription, 2)) == ["two", "three"]


def test_what_was_deleted_stays_deleted(start: Start) -> None:
    with start() as server:
        topic, subscription = server.create_pair()
        orphan = server.create_subscription(topic)
        server.publish(topic, "tea")
        request = DeleteSubscriptionRequest(subscription=subscription)
        server.call(server.subscriber.delete_subscription, request)
        server.call(server.publisher.delete_topic, DeleteTopicRequest(topic=topic))

    with start() as server:
        with server.refuses(NotFound):
            server.get_subscription(subscription)
        with server.refuses(NotFound):
            server.get_topic(topic)
        assert server.get_subscription(orphan).topic == "_deleted-topic_"
        assert texts(server.receive(orphan, 1)) == ["tea"]
        # The next topic of that name is another one.
        server.create_topic(name=topic)
        assert server.get_subscription(orphan).topic == "_deleted-topic_"


def test_a_detached_subscription_stays_detached(start: Start) -> None:
    with start() as server:
        topic, subscription = server.create_pair()
        request = DetachSubscriptionRequest(subscription=subscription)
        server.call(server.publisher.detach_subscription, request)

    for _ in range(2):
        with start() as server:
            assert server.get_subscription(subscription).detached
            server.publish(topic, "tea")
            with server.refuses(FailedPrecondition, naming="detached"):
                server.pull(subscription)
            with server.refuses(FailedPrecondition, naming="detached"):
                server.seek(subscription, time="2000-01-01T00:00:00Z")


def test_a_push_subscription_goes_on_pushing(start: Start) -> None:
    with Endpoint() as endpoint:
        endpoint.always = 500
        with start() as server:
            topic = server.create_topic()
            push = {"push_endpoint": endpoint.url}
            subscription = server.create_subscription(topic, push_config=push)
            server.publish(topic, "tea")
            endpoint.wait_for(1)

        endpoint.always = 204
        with start() as server:
            endpoint.wait_for(2)
            assert server.get_subscription(subscription).push_config.push_endpoint == endpoint.url
            assert endpoint.requests[0].body == endpoint.requests[1].body


def test_schemas_survive(start: Start) -> None:
    definition = '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "string"}]}'
    with start() as server:
        schemas = SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=server.channel))
        made = Schema(type_=Schema.Type.AVRO, definition=definition)
        parent = f"projects/{server.project}"
        first = schemas.create_schema(parent=parent, schema=made, schema_id="order")
        made.name = ""
        second = schemas.commit_schema(name=first.name, schema=made)
        gone = schemas.create_schema(parent=parent, schema=made, schema_id="gone")
        settings = {"schema": first.name, "encoding": "JSON"}
        topic = server.create_topic(schema_settings=settings)
        orphan = server.create_topic(schema_settings={"schema": gone.name, "encoding": "JSON"})
        schemas.delete_schema(name=gone.name)
        subscription = server.create_subscription(topic)
        server.publish(topic, '{"a": "tea"}')

    with start() as server:
        schemas = SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=server.channel))
        listed = ListSchemasRequest(parent=parent, view="FULL")
        assert list(schemas.list_schemas(listed)) == [second]
        revisions = ListSchemaRevisionsRequest(name=first.name, view="FULL")
        assert list(schemas.list_schema_revisions(revisions)) == [second, first]
        assert server.get_topic(orphan).schema_settings.schema == "_deleted-schema_"
        with server.refuses(InvalidArgument, naming="messages[0].data"):
            server.publish(topic, "{}")
        server.publish(topic, '{"a": "coffee"}')
        told = server.receive(subscription, 2)[1].message.attributes
        assert told["googclient_schemarevisionid"] == second.revision_id
        third = schemas.commit_schema(name=first.name, schema=made)
        assert third.revision_id not in (first.revision_id, second.revision_id)
        schemas.delete_schema(name=first.name)

    with start() as server:
        told = server.receive(subscription, 2)[0].message.attributes
        assert told["googclient_schemaname"] == "_deleted-schema_"


@pytest.mark.parametrize("kind", ["topic", "subscription"])
def test_policies_survive(start: Start, kind: str) -> None:
    with start() as server:
        topic, subscription = server.create_pair()
        resource = topic if kind == "topic" else subscription
        binding = {"role": "roles/pubsub.viewer", "members": ["user:ann@example.com"]}
        request = SetIamPolicyRequest(resource=resource, policy={"bindings": [binding]})
        policy = server.call(server.publisher.set_iam_policy, request)

    with start() as server:
        asked = GetIamPolicyRequest(resource=resource)
        assert server.call(server.publisher.get_iam_policy, asked) == policy
        changed = SetIamPolicyRequest(resource=resource, policy={"etag": policy.etag})
        assert server.call(server.publisher.set_iam_policy, changed).etag != policy.etag


def test_retained_messages_survive(start: Start) -> None:
    with start() as server:
        topic = server.create_topic(message_retention_duration=timedelta(hours=1))
        early = server.create_subscription(topic, retain_acked_messages=True)
        server.publish(topic, "tea")
        server.acknowledge(early, *server.receive(early, 1))

    with start() as server:
        late = server.create_subscription(topic)
        for subscription in (early, late):
            server.seek(subscription, time="2000-01-01T00:00:00Z")
            assert texts(server.receive(subscription, 1)) == ["tea"]

    with start() as server:
        server.let_time_pass(7 * DAY + 1)
        server.seek(early, time="2000-01-01T00:00:00Z")
        assert server.pull_now(early) == []


def test_a_subscription_expires_by_the_time_of_both_lives(start: Start) -> None:
    with start() as server:
        topic = server.create_topic()
        policy = {"ttl": timedelta(days=2)}
        idle = server.create_subscription(topic, expiration_policy=policy)
        busy = server.create_subscription(topic, expiration_policy=policy)
        server.let_time_pass(DAY)
        server.pull_now(busy)
        server.let_time_pass(DAY / 2)

    with start() as server:
        server.let_time_pass(DAY * 0.6)
        with server.refuses(NotFound):
            server.get_subscription(idle)
        assert server.get_subscription(busy)


def test_exactly_once_refuses_ids_of_an_earlier_life(start: Start) -> None:
    with start() as server:
        topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
        server.publish(topic, "tea")
        with server.stream(subscription) as stream:
            old = stream.messages(1)

    with start() as server, server.stream(subscription) as stream:
        new = stream.messages(1)
        stream.acknowledge(*old)
        refused = confirmation(stream)
        stream.acknowledge(*new)

        assert list(refused.invalid_ack_ids) == [old[0].ack_id]
        assert list(confirmation(stream).ack_ids) == [new[0].ack_id]

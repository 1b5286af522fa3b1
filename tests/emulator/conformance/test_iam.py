"""IAM policies: set, read, changed by one writer at a time, and gone with their resource."""

import pytest
from google.api_core.exceptions import Aborted, InvalidArgument, NotFound
from google.iam.v1.iam_policy_pb2 import GetIamPolicyRequest, SetIamPolicyRequest
from google.iam.v1.policy_pb2 import Policy
from google.pubsub_v1 import (
    CreateSnapshotRequest,
    DeleteSnapshotRequest,
    DeleteSubscriptionRequest,
    DeleteTopicRequest,
    Topic,
)

from tests.emulator.conformance import schemas
from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.rest import Json, Rest
from tests.emulator.conformance.servers import Server
from tests.emulator.conformance.streams import WITHIN

without_iam = google_falls_short("has no IAM")

PUBLISHER, VIEWER = "roles/pubsub.publisher", "roles/pubsub.viewer"
ANN, BOB = "user:ann@example.com", "user:bob@example.com"
BINDINGS: list[dict[str, object]] = [{"role": PUBLISHER, "members": [ANN, BOB]}]
CONDITIONAL: list[dict[str, object]] = [
    {"role": PUBLISHER, "members": [ANN], "condition": {"title": "a while", "expression": "true"}}
]
AUDIT = [{"service": "pubsub.googleapis.com", "audit_log_configs": [{"log_type": "DATA_READ"}]}]


def get(server: Server, resource: str, *, version: int = 0) -> Policy:
    options = {"requested_policy_version": version}
    request = GetIamPolicyRequest(resource=resource, options=options)
    return server.call(server.publisher.get_iam_policy, request)


def put(
    server: Server, resource: str, policy: dict[str, object], mask: list[str] | None = None
) -> Policy:
    request = SetIamPolicyRequest(
        resource=resource, policy=policy, update_mask={"paths": mask} if mask else None
    )
    return server.call(server.subscriber.set_iam_policy, request)


def create(server: Server, kind: str) -> str:
    """Make a resource of that kind."""
    if kind == "schema":
        return schemas.create(server, schemas.avro(schemas.ORDER)).name
    topic, subscription = server.create_pair()
    if kind == "snapshot":
        request = CreateSnapshotRequest(name=server.snapshot_name(), subscription=subscription)
        return server.call(server.subscriber.create_snapshot, request).name
    return topic if kind == "topic" else subscription


def delete(server: Server, kind: str, name: str) -> None:
    if kind == "topic":
        server.call(server.publisher.delete_topic, DeleteTopicRequest(topic=name))
    elif kind == "subscription":
        request = DeleteSubscriptionRequest(subscription=name)
        server.call(server.subscriber.delete_subscription, request)
    elif kind == "schema":
        schemas.delete(server, name)
    else:
        server.call(server.subscriber.delete_snapshot, DeleteSnapshotRequest(snapshot=name))


kinds = pytest.mark.parametrize("kind", ["topic", "subscription", "snapshot", "schema"])


@without_iam
@kinds
def test_policy_is_empty_until_it_is_set(server: Server, kind: str) -> None:
    resource = create(server, kind)
    empty = get(server, resource)
    put(server, create(server, kind), {"bindings": BINDINGS})

    assert empty == Policy(etag=empty.etag)
    assert empty.etag
    assert get(server, resource) == empty


@without_iam
@kinds
def test_policy_is_kept_and_returned(server: Server, kind: str) -> None:
    resource = create(server, kind)
    made = put(server, resource, {"bindings": BINDINGS})

    assert made == Policy(bindings=BINDINGS, etag=made.etag, version=1)
    assert get(server, resource) == made


@without_iam
@kinds
def test_policy_goes_with_its_resource(server: Server, kind: str) -> None:
    resource = create(server, kind)
    put(server, resource, {"bindings": BINDINGS})
    delete(server, kind, resource)

    with server.refuses(NotFound, naming=resource):
        get(server, resource)


@without_iam
def test_next_of_the_name_has_no_policy(server: Server) -> None:
    topic, subscription = server.create_pair()
    put(server, topic, {"bindings": BINDINGS})
    delete(server, "topic", topic)
    server.call(server.publisher.create_topic, Topic(name=topic))

    assert not get(server, topic).bindings
    # The topic that is gone still serves this one, so it may still be known.
    assert server.get_subscription(subscription)


@without_iam
@kinds
def test_policy_needs_its_resource(server: Server, kind: str) -> None:
    missing = create(server, kind) + "-missing"

    with server.refuses(NotFound, naming=missing):
        get(server, missing)
    with server.refuses(NotFound, naming=missing):
        put(server, missing, {"bindings": BINDINGS})


@pytest.mark.parametrize("name", ["", "mine", "projects/p", "projects/p/queues/mine", "a/b/topics"])
def test_policy_needs_a_name_of_a_resource(server: Server, name: str) -> None:
    with server.refuses(InvalidArgument, naming="resource"):
        get(server, name)
    with server.refuses(InvalidArgument, naming="resource"):
        put(server, name, {})


@without_iam
def test_etag_changes_with_every_set(server: Server) -> None:
    topic = server.create_topic()
    etags = [get(server, topic).etag]
    etags += [put(server, topic, {"bindings": BINDINGS}).etag for _ in range(3)]

    assert len(set(etags)) == 4


@without_iam
def test_set_with_an_old_etag_is_aborted(server: Server) -> None:
    topic = server.create_topic()
    first = get(server, topic)
    second = put(server, topic, {"bindings": BINDINGS, "etag": first.etag})
    for stale in (first.etag, b"another"):
        with server.refuses(Aborted, naming="etag"):
            put(server, topic, {"bindings": [], "etag": stale})

    assert get(server, topic) == second
    assert not put(server, topic, {"bindings": [], "etag": second.etag}).bindings


@without_iam
def test_set_without_an_etag_is_taken(server: Server) -> None:
    topic = server.create_topic()
    put(server, topic, {"bindings": BINDINGS})

    assert not put(server, topic, {}).bindings


@without_iam
def test_set_needs_a_policy(server: Server) -> None:
    request = SetIamPolicyRequest(resource=server.create_topic())

    with server.refuses(InvalidArgument, naming="policy"):
        server.call(server.publisher.set_iam_policy, request)


@without_iam
@pytest.mark.parametrize(
    ("binding", "naming"),
    [
        ({"members": [ANN]}, "policy.bindings[1].role"),
        ({"role": VIEWER}, "policy.bindings[1].members"),
        ({"role": VIEWER, "members": [ANN, ""]}, "policy.bindings[1].members"),
        ({"role": VIEWER, "members": ["ann@example.com"]}, "user:EMAIL"),
        ({"role": "publisher", "members": [ANN]}, "roles/R"),
        ({"role": "roles/pubsub.publishr", "members": [ANN]}, "roles/pubsub.publisher"),
    ],
)
def test_binding_needs_a_role_and_members(
    server: Server, binding: dict[str, object], naming: str
) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming=naming):
        put(server, topic, {"bindings": [*BINDINGS, binding]})
    assert not get(server, topic).bindings


# Versions


@without_iam
def test_condition_needs_version_3_to_be_set(server: Server) -> None:
    topic = server.create_topic()
    with server.refuses(InvalidArgument, naming="policy.version"):
        put(server, topic, {"bindings": CONDITIONAL, "version": 1})
    made = put(server, topic, {"bindings": CONDITIONAL, "version": 3})

    assert made == Policy(bindings=CONDITIONAL, etag=made.etag, version=3)


@without_iam
def test_condition_needs_version_3_to_be_read(server: Server) -> None:
    topic = server.create_topic()
    made = put(server, topic, {"bindings": CONDITIONAL, "version": 3})

    assert get(server, topic, version=3) == made
    for version in (0, 1):
        with server.refuses(InvalidArgument, naming="requested_policy_version"):
            get(server, topic, version=version)


@without_iam
def test_policy_without_conditions_has_version_1(server: Server) -> None:
    topic = server.create_topic()

    assert put(server, topic, {"bindings": BINDINGS, "version": 3}).version == 1
    assert get(server, topic, version=3).version == 1


@without_iam
@pytest.mark.parametrize("version", [-1, 2, 4])
def test_there_are_versions_0_1_and_3(server: Server, version: int) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="requested_policy_version"):
        get(server, topic, version=version)
    with server.refuses(InvalidArgument, naming="policy.version"):
        put(server, topic, {"version": version})


# Masks


@without_iam
def test_set_without_a_mask_leaves_audit_configs(server: Server) -> None:
    topic = server.create_topic()
    put(server, topic, {"audit_configs": AUDIT}, ["audit_configs"])
    made = put(server, topic, {"bindings": BINDINGS, "audit_configs": []})

    assert made == Policy(bindings=BINDINGS, audit_configs=AUDIT, etag=made.etag, version=1)


@without_iam
def test_set_changes_what_its_mask_names(server: Server) -> None:
    topic = server.create_topic()
    put(server, topic, {"bindings": BINDINGS})
    etag = put(server, topic, {"audit_configs": AUDIT}, ["audit_configs", "etag"]).etag

    assert get(server, topic) == Policy(
        bindings=BINDINGS, audit_configs=AUDIT, etag=etag, version=1
    )


@without_iam
def test_set_with_an_unknown_mask_is_refused(server: Server) -> None:
    topic = server.create_topic()

    with server.refuses(InvalidArgument, naming="update_mask"):
        put(server, topic, {"bindings": BINDINGS}, ["bindings.role"])
    assert not get(server, topic).bindings


# REST


@without_iam
@kinds
def test_rest_sets_and_reads_a_policy(server: Server, kind: str) -> None:
    rest, resource = Rest(server.address, timeout=WITHIN), create(server, kind)
    empty = rest.get(f"{resource}:getIamPolicy")
    bindings: Json = [{"role": PUBLISHER, "members": [ANN, BOB]}]
    policy: Json = {"bindings": bindings, "etag": empty.body["etag"]}
    made = rest.post(f"{resource}:setIamPolicy", {"policy": policy, "updateMask": "bindings,etag"})

    assert (made.status, made.body["bindings"], made.body["version"]) == (200, bindings, 1)
    assert made.body["etag"] != empty.body["etag"]
    assert rest.get(f"{resource}:getIamPolicy?options.requestedPolicyVersion=3") == made
    assert get(server, resource) == Policy(
        bindings=BINDINGS, etag=get(server, resource).etag, version=1
    )


@without_iam
def test_rest_refuses_an_old_etag(server: Server) -> None:
    rest, topic = Rest(server.address, timeout=WITHIN), server.create_topic()
    empty = rest.get(f"{topic}:getIamPolicy").body
    rest.post(f"{topic}:setIamPolicy", {"policy": empty})
    refused = rest.post(f"{topic}:setIamPolicy", {"policy": empty})
    error = refused.body["error"]

    assert isinstance(error, dict)
    assert (refused.status, error["status"]) == (409, "ABORTED")


@without_iam
def test_rest_says_what_is_not_found(server: Server) -> None:
    rest, missing = Rest(server.address, timeout=WITHIN), server.topic_name()
    refused = rest.get(f"{missing}:getIamPolicy")
    error = refused.body["error"]

    assert isinstance(error, dict)
    assert (refused.status, error["status"]) == (404, "NOT_FOUND")

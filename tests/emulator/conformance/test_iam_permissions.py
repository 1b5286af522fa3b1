"""TestIamPermissions: answered from policies, for the caller that a header names."""

import http.client
import json

import pytest
from google.api_core.exceptions import InvalidArgument
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import CreateSnapshotRequest

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server
from tests.emulator.conformance.streams import WITHIN

without_iam = google_falls_short("has no IAM")

HEADER = "x-emulator-principal"
PUBLISHER, VIEWER = "roles/pubsub.publisher", "roles/pubsub.viewer"
ANN, BOB = "user:ann@example.com", "user:bob@example.com"
ON_TOPICS = [f"pubsub.topics.{verb}" for verb in ("get", "publish", "setIamPolicy")]
OF_KIND = {
    "topic": "pubsub.topics.publish",
    "subscription": "pubsub.subscriptions.consume",
    "snapshot": "pubsub.snapshots.seek",
}

kinds = pytest.mark.parametrize("kind", list(OF_KIND))


def ask(
    server: Server, resource: str, permissions: list[str], *, caller: str | None = None
) -> list[str]:
    """Which of these permissions a caller has; without one, whoever runs the server."""
    request = iam_policy_pb2.TestIamPermissionsRequest(resource=resource, permissions=permissions)
    response: iam_policy_pb2.TestIamPermissionsResponse = server.publisher.test_iam_permissions(
        request=request,
        retry=None,
        timeout=WITHIN,
        metadata=[] if caller is None else [(HEADER, caller)],
    )
    return list(response.permissions)


def bind(server: Server, resource: str, *bindings: dict[str, object]) -> None:
    policy = {"version": 3, "bindings": bindings}
    request = iam_policy_pb2.SetIamPolicyRequest(resource=resource, policy=policy)
    server.call(server.publisher.set_iam_policy, request)


def create(server: Server, kind: str) -> str:
    topic, subscription = server.create_pair()
    if kind == "snapshot":
        request = CreateSnapshotRequest(name=server.snapshot_name(), subscription=subscription)
        return server.call(server.subscriber.create_snapshot, request).name
    return topic if kind == "topic" else subscription


@without_iam
def test_iam_set_get_test_permissions(server: Server) -> None:
    topic = server.create_topic()
    bind(server, topic, {"role": PUBLISHER, "members": [ANN]}, {"role": VIEWER, "members": [BOB]})

    assert ask(server, topic, ON_TOPICS) == ON_TOPICS
    assert ask(server, topic, ON_TOPICS, caller=ANN) == ["pubsub.topics.publish"]
    assert ask(server, topic, ON_TOPICS, caller=BOB) == ["pubsub.topics.get"]
    assert ask(server, topic, ON_TOPICS, caller="user:eve@example.com") == []


@without_iam
@kinds
def test_permissions_are_those_of_the_resource(server: Server, kind: str) -> None:
    mine, other = create(server, kind), create(server, kind)
    wanted = OF_KIND[kind]
    bind(server, mine, {"role": "roles/pubsub.editor", "members": [ANN]})

    assert ask(server, mine, [wanted], caller=ANN) == [wanted]
    assert ask(server, mine, [wanted], caller=BOB) == []
    assert ask(server, other, [wanted], caller=ANN) == []


@without_iam
@kinds
def test_permissions_that_do_not_apply_are_left_out(server: Server, kind: str) -> None:
    others = [permission for of, permission in OF_KIND.items() if of != kind]
    on_projects = ["pubsub.topics.create", "pubsub.subscriptions.list"]
    unknown = ["", "pubsub.topics.fly", "storage.objects.get"]
    asked = [*others, *on_projects, *unknown]

    assert ask(server, create(server, kind), asked) == []


@without_iam
def test_permissions_come_once_and_as_they_were_asked_for(server: Server) -> None:
    asked = ["pubsub.topics.publish", "pubsub.topics.get", "pubsub.topics.publish"]

    assert ask(server, server.create_topic(), asked) == asked[:2]


@without_iam
@kinds
def test_on_what_does_not_exist_nobody_has_a_permission(server: Server, kind: str) -> None:
    missing = create(server, kind) + "-missing"

    assert ask(server, missing, [OF_KIND[kind]]) == []
    assert ask(server, missing, [OF_KIND[kind]], caller=ANN) == []


@without_iam
@pytest.mark.parametrize("wildcard", ["*", "pubsub.*", "pubsub.topics.*"])
def test_wildcards_are_invalid_argument(server: Server, wildcard: str) -> None:
    with server.refuses(InvalidArgument, naming="permissions[1]"):
        ask(server, server.create_topic(), ["pubsub.topics.get", wildcard])


@pytest.mark.parametrize("name", ["", "mine", "projects/p", "projects/p/queues/mine", "a/b/topics"])
def test_permissions_need_a_name_of_a_resource(server: Server, name: str) -> None:
    with server.refuses(InvalidArgument, naming="resource"):
        ask(server, name, ON_TOPICS)


@without_iam
@pytest.mark.parametrize(
    "caller", ["ann", "user:ann", "ann@example.com", "user:ann@example.com, user:bob@example.com"]
)
def test_caller_must_be_well_named(server: Server, caller: str) -> None:
    with server.refuses(InvalidArgument, naming=HEADER):
        ask(server, server.create_topic(), ON_TOPICS, caller=caller)


@without_iam
@pytest.mark.parametrize(
    ("member", "caller", "counts"),
    [
        ("user:ann@example.com", "user:Ann@Example.com", True),
        ("user:ann@example.com", "serviceAccount:ann@example.com", False),
        ("serviceAccount:w@p.iam.gserviceaccount.com",) * 2 + (True,),
        ("group:shop@example.com", "group:shop@example.com", True),
        ("group:shop@example.com", "user:ann@example.com", False),
        ("domain:example.com", "user:ann@example.com", True),
        ("domain:example.com", "user:ann@sub.example.com", False),
        ("domain:anonymous", "anonymous", False),
        ("allAuthenticatedUsers", "user:ann@example.com", True),
        ("allAuthenticatedUsers", "anonymous", False),
        ("allUsers", "anonymous", True),
        ("deleted:user:ann@example.com?uid=1", "user:ann@example.com", False),
    ],
)
def test_members_stand_for_callers(server: Server, member: str, caller: str, counts: bool) -> None:
    topic = server.create_topic()
    bind(server, topic, {"role": PUBLISHER, "members": [member]})
    granted = ask(server, topic, ["pubsub.topics.publish"], caller=caller)

    assert granted == (["pubsub.topics.publish"] if counts else [])


@without_iam
def test_binding_with_a_condition_gives_nothing(server: Server) -> None:
    topic = server.create_topic()
    condition = {"title": "always", "expression": "true"}
    bind(server, topic, {"role": PUBLISHER, "members": [ANN], "condition": condition})

    assert ask(server, topic, ON_TOPICS, caller=ANN) == []


@without_iam
def test_role_that_nobody_defined_gives_nothing(server: Server) -> None:
    topic = server.create_topic()
    bind(server, topic, {"role": "projects/p/roles/mine", "members": [ANN]})

    assert ask(server, topic, ON_TOPICS, caller=ANN) == []


@without_iam
@kinds
def test_rest_test_permissions(server: Server, kind: str) -> None:
    resource = create(server, kind)
    bind(server, resource, {"role": "roles/pubsub.admin", "members": [ANN]})
    wanted = OF_KIND[kind]

    assert rest_ask(server, resource, wanted) == (200, {"permissions": [wanted]})
    assert rest_ask(server, resource, wanted, ANN) == (200, {"permissions": [wanted]})
    assert rest_ask(server, resource, wanted, BOB) == (200, {})
    assert rest_ask(server, resource, wanted, ANN, BOB)[0] == 400
    assert rest_ask(server, resource, "pubsub.*")[0] == 400


def rest_ask(
    server: Server, resource: str, permission: str, *callers: str
) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(server.address, timeout=WITHIN)
    try:
        connection.putrequest("POST", f"/v1/{resource}:testIamPermissions")
        body = json.dumps({"permissions": [permission]}).encode()
        connection.putheader("Content-Length", str(len(body)))
        for caller in callers:
            connection.putheader("X-Emulator-Principal", caller)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()

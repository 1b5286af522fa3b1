"""`Emulator(enforce_iam=True)`: who lacks a permission is told which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.iam.v1 import iam_policy_pb2
from google.rpc import error_details_pb2, status_pb2

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import BY_NAME, RPCS
from pubsub_aio.emulator import Emulator, EmulatorThread, VirtualClock
from pubsub_aio.emulator.principals import HEADER
from pubsub_aio.emulator.roles import PERMISSIONS, ROLES
from pubsub_aio.errors import ConfigError
from tests.emulator.conformance.rest import Rest
from tests.emulator.test_virtual_time import ending, open_stream

ANN, BOB = "user:ann@example.com", "user:bob@example.com"
ROLE = "projects/shop/roles/tested"
SHOP = "projects/shop"
TOPIC, WORKER = f"{SHOP}/topics/orders", f"{SHOP}/subscriptions/worker"
SNAPSHOT, SCHEMA = f"{SHOP}/snapshots/then", f"{SHOP}/schemas/order"

# Of each RPC: a request, and what Google documents that its caller needs.
CALLS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "CreateTopic": ({"name": f"{SHOP}/topics/new"}, ["topics.create"]),
    "UpdateTopic": (
        {"topic": {"name": TOPIC, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}},
        ["topics.update"],
    ),
    "Publish": ({"topic": TOPIC, "messages": [{"data": b"a"}]}, ["topics.publish"]),
    "GetTopic": ({"topic": TOPIC}, ["topics.get"]),
    "ListTopics": ({"project": SHOP}, ["topics.list"]),
    "ListTopicSubscriptions": ({"topic": TOPIC}, ["topics.get"]),
    "ListTopicSnapshots": ({"topic": TOPIC}, ["topics.get"]),
    "DeleteTopic": ({"topic": TOPIC}, ["topics.delete"]),
    "DetachSubscription": ({"subscription": WORKER}, ["topics.detachSubscription"]),
    "CreateSubscription": (
        {"name": f"{SHOP}/subscriptions/new", "topic": TOPIC},
        ["subscriptions.create", "topics.attachSubscription"],
    ),
    "GetSubscription": ({"subscription": WORKER}, ["subscriptions.get"]),
    "UpdateSubscription": (
        {
            "subscription": {"name": WORKER, "labels": {"a": "b"}},
            "update_mask": {"paths": ["labels"]},
        },
        ["subscriptions.update"],
    ),
    "ListSubscriptions": ({"project": SHOP}, ["subscriptions.list"]),
    "DeleteSubscription": ({"subscription": WORKER}, ["subscriptions.delete"]),
    "ModifyAckDeadline": (
        {"subscription": WORKER, "ack_ids": ["00"], "ack_deadline_seconds": 10},
        ["subscriptions.consume"],
    ),
    "Acknowledge": ({"subscription": WORKER, "ack_ids": ["00"]}, ["subscriptions.consume"]),
    "Pull": (
        {"subscription": WORKER, "max_messages": 1, "return_immediately": True},
        ["subscriptions.consume"],
    ),
    "ModifyPushConfig": ({"subscription": WORKER, "push_config": {}}, ["subscriptions.update"]),
    "GetSnapshot": ({"snapshot": SNAPSHOT}, ["snapshots.get"]),
    "ListSnapshots": ({"project": SHOP}, ["snapshots.list"]),
    "CreateSnapshot": (
        {"name": f"{SHOP}/snapshots/new", "subscription": WORKER},
        ["snapshots.create", "subscriptions.consume"],
    ),
    "UpdateSnapshot": (
        {"snapshot": {"name": SNAPSHOT}, "update_mask": {"paths": ["labels"]}},
        ["snapshots.update"],
    ),
    "DeleteSnapshot": ({"snapshot": SNAPSHOT}, ["snapshots.delete"]),
    "Seek": (
        {"subscription": WORKER, "snapshot": SNAPSHOT},
        ["subscriptions.consume", "snapshots.seek"],
    ),
    "CreateSchema": ({"parent": SHOP, "schema_id": "new"}, ["schemas.create"]),
    "GetSchema": ({"name": SCHEMA}, ["schemas.get"]),
    "ListSchemas": ({"parent": SHOP}, ["schemas.list"]),
    "ListSchemaRevisions": ({"name": SCHEMA}, ["schemas.listRevisions"]),
    "CommitSchema": ({"name": SCHEMA}, ["schemas.commit"]),
    "RollbackSchema": ({"name": SCHEMA, "revision_id": "1"}, ["schemas.rollback"]),
    "DeleteSchemaRevision": ({"name": f"{SCHEMA}@1"}, ["schemas.delete"]),
    "DeleteSchema": ({"name": SCHEMA}, ["schemas.delete"]),
    "ValidateSchema": ({"parent": SHOP}, ["schemas.validate"]),
    "ValidateMessage": ({"parent": SHOP, "name": SCHEMA}, ["schemas.validate", "schemas.get"]),
    "SetIamPolicy": ({"resource": TOPIC, "policy": {}}, ["topics.setIamPolicy"]),
    "GetIamPolicy": ({"resource": WORKER}, ["subscriptions.getIamPolicy"]),
    "TestIamPermissions": ({"resource": TOPIC}, []),
}


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    """An emulator with a topic, a subscription and a snapshot, and nobody who may do anything."""
    async with Emulator(clock=VirtualClock(), project="shop", enforce_iam=True) as emulator:
        emulator.create_subscription("worker", "orders")
        async with grpc.aio.insecure_channel(emulator.address) as channel:
            await call(channel, "CreateSnapshot", {"name": SNAPSHOT, "subscription": WORKER})
        yield emulator


async def call(
    channel: grpc.aio.Channel, rpc: str, request: dict[str, Any], *callers: str
) -> bytes:
    """Make a call as somebody."""
    message = getattr(schema, BY_NAME[rpc].request)(**request)
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(BY_NAME[rpc].path)
    metadata = grpc.aio.Metadata(*((HEADER, caller) for caller in callers))
    return await method(message.SerializeToString(), metadata=metadata, timeout=10)


async def refusal(
    channel: grpc.aio.Channel, rpc: str, request: dict[str, Any], *callers: str
) -> tuple[str, str]:
    """The code and the words with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, rpc, request, *callers)
    return caught.value.code().name, str(caught.value.details())


async def is_denied(
    channel: grpc.aio.Channel, rpc: str, request: dict[str, Any], caller: str
) -> str:
    """With which words a call is denied, if it is; other refusals do not count."""
    try:
        await call(channel, rpc, request, caller)
    except grpc.aio.AioRpcError as error:
        denied = error.code() is grpc.StatusCode.PERMISSION_DENIED
        return str(error.details()) if denied else ""
    return ""


def test_calls_are_all_there_are() -> None:
    assert CALLS.keys() == {rpc.name for rpc in RPCS} - {"StreamingPull"}


@pytest.mark.parametrize("rpc", CALLS)
async def test_call_needs_what_is_documented_and_no_more(
    emulator: Emulator, channel: grpc.aio.Channel, rpc: str
) -> None:
    request, short = CALLS[rpc]
    needed = [f"pubsub.{permission}" for permission in short]
    emulator.iam.define_role(ROLE, [])
    emulator.iam.grant(ROLE, ANN)
    for missing in needed:
        emulator.iam.define_role(ROLE, PERMISSIONS - {missing})
        assert f"{ANN} lacks {missing} on {SHOP}" in await is_denied(channel, rpc, request, ANN)
    emulator.iam.define_role(ROLE, needed)

    assert await is_denied(channel, rpc, request, ANN) == ""


@pytest.mark.parametrize(
    ("rpc", "request_", "needed"),
    [
        ("CreateTopic", {"name": TOPIC, "schema_settings": {"schema": SCHEMA}}, "topics.create"),
        (
            "UpdateTopic",
            {
                "topic": {"name": TOPIC, "schema_settings": {"schema": SCHEMA}},
                "update_mask": {"paths": ["schema_settings.schema"]},
            },
            "topics.update",
        ),
    ],
)
async def test_topic_with_a_schema_needs_to_attach_it(
    emulator: Emulator,
    channel: grpc.aio.Channel,
    rpc: str,
    request_: dict[str, Any],
    needed: str,
) -> None:
    emulator.iam.define_role(ROLE, [f"pubsub.{needed}"])
    emulator.iam.grant(ROLE, ANN)
    denied = await is_denied(channel, rpc, request_, ANN)

    assert f"lacks pubsub.schemas.attach on {SCHEMA}" in denied


async def test_refusal_says_who_lacks_what_and_the_remedy(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    request = CALLS["Publish"][0]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, "Publish", request, ANN)
    (details,) = [v for k, v in caught.value.trailing_metadata() if k == "grpc-status-details-bin"]
    assert isinstance(details, bytes)
    (detail,) = status_pb2.Status.FromString(details).details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)

    assert caught.value.details() == (
        "User not authorized to perform this action. user:ann@example.com lacks "
        f"pubsub.topics.publish on {TOPIC}: grant it roles/pubsub.publisher or another role with "
        "that permission"
    )
    assert (info.reason, dict(info.metadata)) == (
        "IAM_PERMISSION_DENIED",
        {"permission": "pubsub.topics.publish", "resource": TOPIC},
    )
    assert emulator.messages() == []


async def test_callers_without_a_name_are_the_owner(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    for rpc in ("Publish", "CreateTopic", "Pull"):
        await call(channel, rpc, CALLS[rpc][0])
    with pytest.raises(grpc.aio.AioRpcError):
        await call(channel, "Publish", CALLS["Publish"][0], "anonymous")

    assert len(emulator.messages()) == 1


async def test_callers_without_a_name_are_the_one_that_was_chosen() -> None:
    async with (
        Emulator(enforce_iam=True, principal=ANN, project="shop") as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        emulator.create_topic("orders")
        code, why = await refusal(channel, "Publish", CALLS["Publish"][0])
        await call(channel, "Publish", CALLS["Publish"][0], "owner")
        emulator.iam.act_as(BOB)
        emulator.iam.grant("roles/pubsub.publisher", BOB, on=TOPIC)
        await call(channel, "Publish", CALLS["Publish"][0])

    assert (code, ANN in why) == ("PERMISSION_DENIED", True)


@pytest.mark.parametrize("callers", [["ann"], [ANN, BOB], [""]])
async def test_caller_must_be_well_named(
    emulator: Emulator, channel: grpc.aio.Channel, callers: list[str]
) -> None:
    del emulator
    code, why = await refusal(channel, "GetTopic", {"topic": TOPIC}, *callers)

    assert (code, why.startswith(HEADER)) == ("INVALID_ARGUMENT", True)


async def test_grant_on_a_resource_is_for_that_alone(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    other = emulator.create_topic("bills")
    assert emulator.iam.grant("roles/pubsub.publisher", ANN, on=TOPIC)
    assert not emulator.iam.grant("roles/pubsub.publisher", ANN, on=TOPIC)
    await call(channel, "Publish", CALLS["Publish"][0], ANN)

    assert await is_denied(channel, "Publish", CALLS["Publish"][0] | {"topic": other}, ANN)
    assert await is_denied(channel, "GetTopic", {"topic": TOPIC}, ANN)
    policy = schema.Policy.FromString(await call(channel, "GetIamPolicy", {"resource": TOPIC}))
    assert [(b.role, list(b.members)) for b in policy.bindings] == [
        ("roles/pubsub.publisher", [ANN])
    ]


async def test_grant_on_a_project_is_for_all_in_it(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    emulator.iam.grant("roles/pubsub.editor", ANN)
    emulator.iam.grant("roles/pubsub.editor", BOB, on="projects/other")
    await call(channel, "Publish", CALLS["Publish"][0], ANN)
    await call(channel, "CreateTopic", {"name": f"{SHOP}/topics/new"}, ANN)
    assert await is_denied(channel, "CreateTopic", {"name": "projects/other/topics/new"}, ANN)
    await call(channel, "CreateTopic", {"name": "projects/other/topics/new"}, BOB)

    assert await is_denied(channel, "Publish", CALLS["Publish"][0], BOB)


async def test_subscription_needs_both_projects(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    elsewhere = {"name": "projects/other/subscriptions/worker", "topic": TOPIC}
    emulator.iam.grant("roles/pubsub.editor", ANN, on="projects/other")
    denied = await is_denied(channel, "CreateSubscription", elsewhere, ANN)
    assert f"pubsub.topics.attachSubscription on {TOPIC}" in denied
    emulator.iam.grant("roles/pubsub.subscriber", ANN, on=TOPIC)
    await call(channel, "CreateSubscription", elsewhere, ANN)

    # Whoever owns the topic may detach it, and not whoever owns the subscription.
    detach = {"subscription": elsewhere["name"]}
    assert f"on {TOPIC}" in await is_denied(channel, "DetachSubscription", detach, ANN)


async def test_unnamed_subscription_is_created_in_the_project_of_its_topic(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    emulator.iam.grant("roles/pubsub.subscriber", ANN, on=TOPIC)
    denied = await is_denied(channel, "CreateSubscription", {"topic": TOPIC}, ANN)

    assert f"pubsub.subscriptions.create on {SHOP}:" in denied


async def test_who_may_not_see_learns_not_whether_it_exists(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    missing = f"{SHOP}/topics/missing"
    code, _ = await refusal(channel, "GetTopic", {"topic": missing}, ANN)
    emulator.iam.grant("roles/pubsub.viewer", ANN)
    other, _ = await refusal(channel, "GetTopic", {"topic": missing}, ANN)

    assert (code, other) == ("PERMISSION_DENIED", "NOT_FOUND")


@pytest.mark.parametrize("name", ["", "orders", "projects/shop", "a/b/c/d", "projects//topics/abc"])
@pytest.mark.parametrize("rpc", ["GetTopic", "GetSubscription", "GetSnapshot", "GetIamPolicy"])
async def test_bad_name_is_refused_all_the_same(
    emulator: Emulator, channel: grpc.aio.Channel, rpc: str, name: str
) -> None:
    emulator.iam.grant("roles/pubsub.admin", ANN)
    field = {"GetIamPolicy": "resource"}.get(rpc, rpc.removeprefix("Get").lower())
    code, why = await refusal(channel, rpc, {field: name}, ANN)

    assert (code, why.startswith(f"{field}:")) == ("INVALID_ARGUMENT", True)


async def test_condition_is_not_evaluated_and_the_refusal_says_so(
    emulator: Emulator, channel: grpc.aio.Channel
) -> None:
    del emulator
    binding = {
        "role": "roles/pubsub.publisher",
        "members": [ANN],
        "condition": {"title": "always", "expression": "true"},
    }
    policy = {"version": 3, "bindings": [binding]}
    await call(channel, "SetIamPolicy", {"resource": TOPIC, "policy": policy})
    denied = await is_denied(channel, "Publish", CALLS["Publish"][0], ANN)

    assert denied.endswith("a binding with a condition would give it, but none is evaluated here")


def test_rest_is_enforced_too() -> None:
    with EmulatorThread(enforce_iam=True, principal=ANN, project="shop") as threaded:
        threaded.create_topic("orders")
        rest = Rest(threaded.address, timeout=10)
        denied = rest.get(TOPIC)
        threaded.iam.grant("roles/pubsub.viewer", ANN, on=TOPIC)
        seen = rest.get(TOPIC)

    error = denied.body["error"]
    assert isinstance(error, dict)
    assert (denied.status, error["status"]) == (403, "PERMISSION_DENIED")
    assert (seen.status, seen.body["name"]) == (200, TOPIC)


# Streams


async def test_stream_needs_to_consume(emulator: Emulator, channel: grpc.aio.Channel) -> None:
    stream = await stream_as(channel, ANN)

    async with asyncio.timeout(10):
        assert await ending(stream) is grpc.StatusCode.PERMISSION_DENIED
    assert emulator.streams() == []


@pytest.mark.parametrize("how", ["revoke", "set policy", "redefine"])
async def test_stream_ends_when_its_permission_is_taken_away(
    emulator: Emulator, channel: grpc.aio.Channel, how: str
) -> None:
    emulator.iam.define_role(ROLE, ["pubsub.subscriptions.consume"])
    emulator.iam.grant(ROLE, ANN, on=WORKER)
    emulator.iam.grant("roles/pubsub.subscriber", BOB)
    ann, bob = await stream_as(channel, ANN), await stream_as(channel, BOB)
    await ann.read()
    await bob.read()
    if how == "revoke":
        assert emulator.iam.revoke(ROLE, ANN, on=WORKER)
        assert not emulator.iam.revoke(ROLE, ANN, on=WORKER)
    elif how == "set policy":
        await call(channel, "SetIamPolicy", {"resource": WORKER, "policy": {}})
    else:
        emulator.iam.define_role(ROLE, [])

    async with asyncio.timeout(10):
        assert await ending(ann) is grpc.StatusCode.PERMISSION_DENIED
    assert len(emulator.streams()) == 1
    bob.cancel()


async def test_owners_stream_stays_open(emulator: Emulator, channel: grpc.aio.Channel) -> None:
    stream = await open_stream(channel, WORKER)
    emulator.iam.grant("roles/pubsub.viewer", ANN)

    assert len(emulator.streams()) == 1
    stream.cancel()


async def stream_as(channel: grpc.aio.Channel, caller: str) -> Any:
    stream = channel.stream_stream(
        "/google.pubsub.v1.Subscriber/StreamingPull",
        request_serializer=schema.StreamingPullRequest.SerializeToString,
        response_deserializer=schema.StreamingPullResponse.FromString,
    )
    call = stream(metadata=grpc.aio.Metadata((HEADER, caller)))
    await call.write(
        schema.StreamingPullRequest(subscription=WORKER, stream_ack_deadline_seconds=10)
    )
    return call


# The Python side


async def test_nothing_is_enforced_unless_told_so() -> None:
    async with (
        Emulator(project="shop", principal=ANN) as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        emulator.create_topic("orders")
        await call(channel, "Publish", CALLS["Publish"][0], BOB)
        await call(channel, "Publish", CALLS["Publish"][0], "nobody that is well named")
        asked = {"resource": TOPIC, "permissions": ["pubsub.topics.publish"]}
        reply = await call(channel, "TestIamPermissions", asked)
        owner = await call(channel, "TestIamPermissions", asked, "owner")

    assert iam_policy_pb2.TestIamPermissionsResponse.FromString(reply).permissions == []
    assert schema.TestIamPermissionsResponse.FromString(owner).permissions == asked["permissions"]


async def test_deleted_project_has_no_policy(emulator: Emulator, channel: grpc.aio.Channel) -> None:
    emulator.iam.define_role(ROLE, PERMISSIONS)
    emulator.iam.grant(ROLE, ANN)
    emulator.iam.grant("roles/pubsub.editor", BOB)
    await call(channel, "CreateTopic", CALLS["CreateTopic"][0], ANN)
    emulator.delete_project()

    for caller in (ANN, BOB):
        assert await is_denied(channel, "CreateTopic", CALLS["CreateTopic"][0], caller)
    with pytest.raises(ConfigError, match="role"):
        emulator.iam.grant(ROLE, ANN)


def mistakes() -> Iterator[Any]:
    for role in ("", "publisher", "roles/pubsub.publsher", "projects/p/roles/none"):
        yield pytest.param(lambda iam, role=role: iam.grant(role, ANN), "role", id=f"role {role}")
    viewer = "roles/pubsub.viewer"
    for member in ("", "ann@example.com", "user:", "owner", "user:a@b.c d"):
        yield pytest.param(
            lambda iam, member=member: iam.grant(viewer, member), "member", id=f"member {member}"
        )
    for on in ("", "orders", "projects", "projects/", "projects/p/queues/mine"):
        yield pytest.param(lambda iam, on=on: iam.grant(viewer, ANN, on=on), "on:", id=f"on {on}")
    missing = f"{TOPIC}-missing"
    yield pytest.param(lambda iam: iam.revoke(viewer, ANN, on=missing), missing, id="missing")
    yield pytest.param(lambda iam: iam.define_role("mine", []), "role", id="role's name")
    yield pytest.param(lambda iam: iam.define_role(ROLE, ["pubsub.fly"]), "pubsub.fly", id="fly")
    yield pytest.param(lambda iam: iam.act_as("ann"), "principal", id="principal")


@pytest.mark.parametrize(("mistake", "naming"), list(mistakes()))
async def test_mistakes_are_config_errors(emulator: Emulator, mistake: Any, naming: str) -> None:
    with pytest.raises(ConfigError, match=naming):
        mistake(emulator.iam)


def test_principal_of_an_emulator_must_be_well_named() -> None:
    with pytest.raises(ConfigError, match="principal"):
        Emulator(principal="ann")


@pytest.mark.parametrize(
    ("role", "permissions"),
    [
        ("publisher", {"topics.publish"}),
        ("subscriber", {"snapshots.seek", "subscriptions.consume", "topics.attachSubscription"}),
    ],
)
def test_small_roles_grant_what_is_documented(role: str, permissions: set[str]) -> None:
    assert ROLES[f"roles/pubsub.{role}"] == {f"pubsub.{name}" for name in permissions}


def test_large_roles_grant_more_and_more() -> None:
    viewer, editor, admin = (ROLES[f"roles/pubsub.{r}"] for r in ("viewer", "editor", "admin"))

    assert viewer < editor < admin == PERMISSIONS
    assert admin - editor == {
        f"pubsub.{kind}.{verb}IamPolicy"
        for kind in ("topics", "subscriptions", "snapshots", "schemas")
        for verb in ("get", "set")
    }
    assert {name.rpartition(".")[2] for name in viewer} == {
        *("get", "list", "listEffectiveTags", "listRevisions", "listTagBindings", "validate")
    }

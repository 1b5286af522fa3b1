"""IAM policies through the admin client, over every transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.iam.v1.policy_pb2 import Policy

from pubsub_aio.admin import AdminClient
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import ConfigError, NotFoundError, PermissionDeniedError, ServiceError
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.test_admin import PROJECT, client_of

TOPIC, WORKER = "projects/shop/topics/orders", "projects/shop/subscriptions/worker"
PUBLISHER, VIEWER = "roles/pubsub.publisher", "roles/pubsub.viewer"
ANN, BOB = "user:ann@example.com", "user:bob@example.com"
FOR_A_WHILE = {"title": "a while", "expression": "true"}


@pytest.fixture(params=["grpc", "given", "rest", "memory"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def emulator(transport: str) -> AsyncIterator[Emulator]:
    kind = MemoryEmulator if transport == "memory" else Emulator
    async with kind(project=PROJECT) as emulator:
        emulator.create_subscription("worker", "orders")
        yield emulator


@pytest.fixture
async def admin(emulator: Emulator, transport: str) -> AsyncIterator[AdminClient]:
    async with client_of(emulator, transport) as admin:
        yield admin


def bindings(policy: Policy) -> list[tuple[str, list[str]]]:
    return [(binding.role, list(binding.members)) for binding in policy.bindings]


@pytest.mark.parametrize("resource", [TOPIC, WORKER])
async def test_a_policy_is_empty_until_it_is_set(admin: AdminClient, resource: str) -> None:
    empty = await admin.get_iam_policy(resource)
    assert empty == Policy(etag=empty.etag)

    empty.bindings.add(role=PUBLISHER, members=[ANN])
    made = await admin.set_iam_policy(resource, empty)

    assert bindings(made) == [(PUBLISHER, [ANN])]
    assert made.etag != empty.etag
    assert await admin.get_iam_policy(resource) == made


async def test_a_policy_may_be_given_as_a_dict(admin: AdminClient) -> None:
    binding = {"role": PUBLISHER, "members": [ANN], "condition": FOR_A_WHILE}
    made = await admin.set_iam_policy(TOPIC, {"version": 3, "bindings": [binding]})

    assert made == Policy(version=3, bindings=[binding], etag=made.etag)
    assert await admin.get_iam_policy(TOPIC) == made
    assert not (await admin.set_iam_policy(TOPIC, {})).bindings


async def test_a_policy_that_was_changed_since_it_was_read_is_not_set(admin: AdminClient) -> None:
    read = await admin.get_iam_policy(TOPIC)
    made = await admin.set_iam_policy(TOPIC, {"bindings": [{"role": VIEWER, "members": [BOB]}]})

    with pytest.raises(ServiceError, match=r"etag") as refused:
        await admin.set_iam_policy(TOPIC, read)
    assert refused.value.code == "ABORTED"
    assert await admin.get_iam_policy(TOPIC) == made


async def test_what_is_not_there_has_no_policy(admin: AdminClient) -> None:
    with pytest.raises(NotFoundError):
        await admin.get_iam_policy(f"{TOPIC}-missing")
    with pytest.raises(NotFoundError):
        await admin.set_iam_policy(f"{WORKER}-missing", {})
    with pytest.raises(NotFoundError):
        await admin.grant(f"{TOPIC}-missing", role=VIEWER, member=ANN)


@pytest.mark.parametrize(
    "resource",
    [
        *("orders", "", "projects/shop/topics/", f"{TOPIC}/more", "projects/shop/schemas/order"),
        *("projects/shop/snapshots/before", "_deleted-topic_", None, 3),
    ],
)
async def test_a_resource_is_a_topic_or_a_subscription_by_its_full_name(
    admin: AdminClient, resource: str
) -> None:
    text = r"^resource: must be the full name of a topic or a subscription, projects/PROJECT/topics"
    with pytest.raises(ConfigError, match=text):
        await admin.get_iam_policy(resource)
    with pytest.raises(ConfigError, match=text):
        await admin.set_iam_policy(resource, {})
    with pytest.raises(ConfigError, match=text):
        await admin.grant(resource, role=VIEWER, member=ANN)


@pytest.mark.parametrize("policy", [None, 3, {"rules": []}, {"bindings": 3}, [("etag", b"")]])
async def test_a_policy_that_is_none_is_refused(admin: AdminClient, policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"^policy: "):
        await admin.set_iam_policy(TOPIC, policy)


# Testing


@pytest.mark.parametrize(
    ("resource", "asked"),
    [
        (TOPIC, ["pubsub.topics.publish", "pubsub.topics.get"]),
        (WORKER, ["pubsub.subscriptions.consume"]),
    ],
)
async def test_permissions_are_those_that_a_policy_gives(
    admin: AdminClient, emulator: Emulator, resource: str, asked: list[str]
) -> None:
    assert await admin.test_iam_permissions(resource, asked) == asked
    emulator.iam.act_as(ANN)
    assert await admin.test_iam_permissions(resource, asked) == []
    await admin.grant(
        resource, role=PUBLISHER if resource == TOPIC else "roles/pubsub.subscriber", member=ANN
    )

    assert await admin.test_iam_permissions(resource, asked) == asked[:1]


async def test_nobody_may_do_anything_with_what_is_not_there(admin: AdminClient) -> None:
    missing = f"{TOPIC}-missing"

    assert await admin.test_iam_permissions(missing, ["pubsub.topics.get"]) == []


async def test_permissions_are_a_list_without_wildcards(admin: AdminClient) -> None:
    with pytest.raises(ConfigError, match="permissions"):
        await admin.test_iam_permissions(TOPIC, "pubsub.topics.get")
    with pytest.raises(ServiceError, match="wildcard"):
        await admin.test_iam_permissions(TOPIC, ["pubsub.topics.*"])


# Granting


@pytest.mark.parametrize("resource", [TOPIC, WORKER])
async def test_a_role_is_granted_once(admin: AdminClient, resource: str) -> None:
    assert await admin.grant(resource, role=PUBLISHER, member=ANN)
    granted = await admin.get_iam_policy(resource)

    assert not await admin.grant(resource, role=PUBLISHER, member=ANN)
    assert bindings(granted) == [(PUBLISHER, [ANN])]
    assert await admin.get_iam_policy(resource) == granted


async def test_granting_keeps_what_others_may_do(admin: AdminClient) -> None:
    policy = {"bindings": [{"role": r, "members": [BOB]} for r in (VIEWER, PUBLISHER)]}
    await admin.set_iam_policy(TOPIC, policy)

    assert await admin.grant(TOPIC, role=PUBLISHER, member=ANN)
    assert bindings(await admin.get_iam_policy(TOPIC)) == [
        (VIEWER, [BOB]),
        (PUBLISHER, [BOB, ANN]),
    ]


async def test_a_member_of_any_binding_of_the_role_has_it(admin: AdminClient) -> None:
    policy = {"bindings": [{"role": VIEWER, "members": [member]} for member in (BOB, ANN)]}
    await admin.set_iam_policy(TOPIC, policy)

    assert not await admin.grant(TOPIC, role=VIEWER, member=ANN)


async def test_a_binding_with_a_condition_is_left_alone(admin: AdminClient) -> None:
    conditional = {"role": PUBLISHER, "members": [ANN], "condition": FOR_A_WHILE}
    await admin.set_iam_policy(TOPIC, {"version": 3, "bindings": [conditional]})

    assert await admin.grant(TOPIC, role=PUBLISHER, member=ANN)
    assert await admin.grant(TOPIC, role=PUBLISHER, member=BOB)
    policy = await admin.get_iam_policy(TOPIC)
    assert policy == Policy(
        version=3,
        bindings=[conditional, {"role": PUBLISHER, "members": [ANN, BOB]}],
        etag=policy.etag,
    )


async def test_several_may_grant_at_once(admin: AdminClient) -> None:
    members = [f"user:{n}@example.com" for n in range(4)]

    given = await asyncio.gather(*(admin.grant(TOPIC, role=VIEWER, member=m) for m in members))

    assert given == [True] * 4
    ((_, granted),) = bindings(await admin.get_iam_policy(TOPIC))
    assert sorted(granted) == members


def test_granting_gives_up_when_others_change_the_policy_all_the_time() -> None:
    async def scenario(emulator: MemoryEmulator) -> float:
        emulator.create_topic("orders")
        async with client_of(emulator, "memory") as admin:
            emulator.faults.fail("SetIamPolicy", "ABORTED", times=4)
            assert await admin.grant(TOPIC, role=VIEWER, member=ANN)
            emulator.faults.fail("SetIamPolicy", "ABORTED", times=5)
            with pytest.raises(ServiceError) as refused:
                await admin.grant(TOPIC, role=VIEWER, member=BOB)
            assert refused.value.code == "ABORTED"
            assert bindings(await admin.get_iam_policy(TOPIC)) == [(VIEWER, [ANN])]
        return asyncio.get_running_loop().time()

    assert 1.5 <= run_scenario(scenario, project=PROJECT) <= 3


async def test_who_may_not_grant_is_told_at_once(admin: AdminClient, emulator: Emulator) -> None:
    emulator.faults.fail("SetIamPolicy", "PERMISSION_DENIED")

    with pytest.raises(PermissionDeniedError):
        await admin.grant(TOPIC, role=VIEWER, member=ANN)
    assert bindings(await admin.get_iam_policy(TOPIC)) == []


@pytest.mark.parametrize("role", ["pubsub.publisher", "", None])
async def test_a_role_has_its_full_name(admin: AdminClient, role: str) -> None:
    with pytest.raises(ConfigError, match=r"^role: must be one such as roles/pubsub.publisher"):
        await admin.grant(TOPIC, role=role, member=ANN)


async def test_a_member_says_what_it_is(admin: AdminClient) -> None:
    for member in ("ann@example.com", "", "all", None):
        with pytest.raises(ConfigError, match=r"^member: must say what it is"):
            await admin.grant(TOPIC, role=VIEWER, member=member)  # type: ignore[arg-type]
    assert await admin.grant(TOPIC, role=VIEWER, member="allUsers")
    assert await admin.grant(TOPIC, role="projects/shop/roles/mine", member="principal://x/y")

"""Retries and dead letters by the service: set up by one call, over every transport."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Literal

import pytest
from google.pubsub_v1.types import Subscription

from pubsub_aio import AdminClient, Message
from pubsub_aio.config import JobPolicy
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import ConfigError, NotFoundError, PermissionDeniedError, ServiceError
from pubsub_aio.jobs.server_policy import retry_on_server
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import TOPIC, WORKER, client_of, publish, virtual

PROJECT = "shop"
DEAD = "dead"
WORKER_NAME = "projects/shop/subscriptions/worker"
DEAD_TOPIC, DEAD_READER = "projects/shop/topics/dead", "projects/shop/subscriptions/dead"
ROBOT = "serviceAccount:service-123@gcp-sa-pubsub.iam.gserviceaccount.com"
PUBLISHER, SUBSCRIBER = "roles/pubsub.publisher", "roles/pubsub.subscriber"
WRITES = ("SetIamPolicy", "CreateTopic", "CreateSubscription", "UpdateSubscription")


@pytest.fixture(params=["grpc", "rest", "memory"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def emulator(transport: str) -> AsyncIterator[Emulator]:
    kind = MemoryEmulator if transport == "memory" else Emulator
    async with kind(project=PROJECT) as emulator:
        emulator.create_subscription(WORKER, TOPIC)
        yield emulator


@pytest.fixture
async def admin(emulator: Emulator, transport: str) -> AsyncIterator[AdminClient]:
    async with admin_of(emulator, transport) as admin:
        yield admin


def admin_of(emulator: Emulator, transport: str = "memory") -> AdminClient:
    if isinstance(emulator, MemoryEmulator):
        return AdminClient(project=emulator.project, transport=emulator.transport())
    return AdminClient(
        project=PROJECT,
        transport="rest" if transport == "rest" else "grpc",
        endpoint=f"http://{emulator.address}",
    )


in_memory = pytest.mark.parametrize("transport", ["memory"], indirect=True)


async def set_up(admin: AdminClient) -> Subscription:
    return await retry_on_server(admin, WORKER, dead_letter_topic=DEAD, project_number=123)


async def roles(admin: AdminClient, resource: str) -> list[tuple[str, list[str]]]:
    policy = await admin.get_iam_policy(resource)
    return [(binding.role, list(binding.members)) for binding in policy.bindings]


async def readers(admin: AdminClient, topic: str) -> list[str]:
    return [name async for name in admin.list_topic_subscriptions(topic)]


# What it sets up


async def test_one_call_sets_up_all_that_is_needed(admin: AdminClient) -> None:
    """B24: the server waits for 2 to 10 seconds, where it is chosen to retry."""
    made = await set_up(admin)

    assert made.name == WORKER_NAME
    assert made.dead_letter_policy.dead_letter_topic == DEAD_TOPIC
    assert made.dead_letter_policy.max_delivery_attempts == 5
    assert made.retry_policy.minimum_backoff == timedelta(seconds=2)
    assert made.retry_policy.maximum_backoff == timedelta(seconds=10)
    assert await admin.get_subscription(WORKER) == made
    assert await readers(admin, DEAD) == [DEAD_READER]
    assert await roles(admin, DEAD_TOPIC) == [(PUBLISHER, [ROBOT])]
    assert await roles(admin, WORKER_NAME) == [(SUBSCRIBER, [ROBOT])]


async def test_the_settings_are_those_that_are_given(admin: AdminClient) -> None:
    made = await retry_on_server(
        admin,
        WORKER_NAME,
        dead_letter_topic="projects/other/topics/heap",
        policy=JobPolicy(initial_backoff=0.5, max_backoff=600),
        max_delivery_attempts=100,
        service_account="robot@example.com",
    )

    assert made.dead_letter_policy.dead_letter_topic == "projects/other/topics/heap"
    assert made.dead_letter_policy.max_delivery_attempts == 100
    assert made.retry_policy.minimum_backoff == timedelta(seconds=0.5)
    assert made.retry_policy.maximum_backoff == timedelta(seconds=600)
    heap = "projects/other/subscriptions/heap"
    assert await readers(admin, "projects/other/topics/heap") == [heap]
    assert await roles(admin, WORKER_NAME) == [(SUBSCRIBER, ["serviceAccount:robot@example.com"])]


async def test_the_subscription_to_dead_letters_does_not_expire(admin: AdminClient) -> None:
    await set_up(admin)

    assert not (await admin.get_subscription(DEAD)).expiration_policy.ttl


async def test_calling_it_again_changes_nothing(admin: AdminClient, emulator: Emulator) -> None:
    made = await set_up(admin)
    for rpc in WRITES:
        emulator.faults.fail(rpc, "FAILED_PRECONDITION", message="nothing should be written")

    assert await set_up(admin) == made


async def test_another_call_changes_what_is_different(admin: AdminClient) -> None:
    await set_up(admin)
    changed = await retry_on_server(
        admin, WORKER, dead_letter_topic=DEAD, project_number="123", max_delivery_attempts=6
    )

    assert changed.dead_letter_policy.max_delivery_attempts == 6
    assert (await admin.get_subscription(WORKER)) == changed


async def test_a_topic_that_has_a_subscription_is_given_no_other(admin: AdminClient) -> None:
    await admin.create_topic(DEAD)
    await admin.create_subscription("undertaker", DEAD)
    await set_up(admin)

    assert await readers(admin, DEAD) == ["projects/shop/subscriptions/undertaker"]


async def test_a_topic_without_a_subscription_is_given_one(
    admin: AdminClient, emulator: Emulator
) -> None:
    await admin.create_topic(DEAD)
    emulator.faults.fail("CreateTopic", "PERMISSION_DENIED", message="it is there already")
    await set_up(admin)

    assert await readers(admin, DEAD) == [DEAD_READER]


async def test_several_may_set_it_up_at_once(admin: AdminClient) -> None:
    made = await asyncio.gather(*(set_up(admin) for _ in range(4)))

    assert made == [await admin.get_subscription(WORKER)] * 4
    assert await readers(admin, DEAD) == [DEAD_READER]
    assert await roles(admin, DEAD_TOPIC) == [(PUBLISHER, [ROBOT])]


@virtual
async def test_what_is_nacked_five_times_is_a_dead_letter(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with admin_of(emulator) as admin:
        await set_up(admin)
    (one,) = publish(emulator, 1)

    async def fail(message: Message) -> None:
        message.nack()

    dead: list[Message] = []

    async def bury(message: Message) -> None:
        dead.append(message)
        message.ack()

    async with client_of(emulator) as client:
        client.subscribe(WORKER, fail)
        client.subscribe(DEAD, bury)
        await asyncio.sleep(120)

    deliveries = [delivery.time.timestamp() for delivery in emulator.message(one).deliveries]
    waits = [later - earlier for earlier, later in itertools.pairwise(deliveries)]
    assert len(waits) == 4
    assert 2 <= min(waits) <= max(waits) < 10.1
    assert [message.data for message in dead] == [b"0"]
    assert dead[0].attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert (emulator.backlog(WORKER), emulator.backlog(DEAD)) == (0, 0)


# What goes wrong on the way


@in_memory
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(
    ("rpc", "before"),
    [
        *(("GetSubscription", n) for n in (0, 1)),
        *((rpc, 0) for rpc in ("GetTopic", "CreateTopic", "CreateSubscription")),
        *(("GetIamPolicy", n) for n in (0, 1)),
        *(("SetIamPolicy", n) for n in (0, 1)),
        ("UpdateSubscription", 0),
    ],
)
async def test_wherever_it_ends_no_message_can_be_lost(
    admin: AdminClient, emulator: Emulator, rpc: str, before: int, *, applied: bool
) -> None:
    for _ in range(before):
        emulator.faults.delay(rpc, 0)
    emulator.faults.fail(rpc, "INTERNAL", applied=applied)
    with pytest.raises(ServiceError, match=r"INTERNAL"):
        await set_up(admin)

    found = await admin.get_subscription(WORKER)
    if "dead_letter_policy" in found:
        assert (rpc, applied) == ("UpdateSubscription", True)
        assert await readers(admin, DEAD) == [DEAD_READER]
        assert await roles(admin, DEAD_TOPIC) == [(PUBLISHER, [ROBOT])]
        assert await roles(admin, WORKER_NAME) == [(SUBSCRIBER, [ROBOT])]
    await set_up(admin)
    assert "dead_letter_policy" in await admin.get_subscription(WORKER)
    assert await readers(admin, DEAD) == [DEAD_READER]


async def test_a_subscription_that_is_not_there_is_not_created(admin: AdminClient) -> None:
    with pytest.raises(NotFoundError, match=r"subscriptions/missing"):
        await retry_on_server(admin, "missing", dead_letter_topic=DEAD, project_number=123)
    with pytest.raises(NotFoundError):
        await admin.get_topic(DEAD)


@in_memory
async def test_what_already_fails_too_often_is_not_forwarded_before_somebody_reads_it(
    admin: AdminClient, emulator: Emulator
) -> None:
    await admin.create_topic(DEAD)
    await admin.update_subscription(WORKER, dead_letter_policy={"dead_letter_topic": DEAD})
    emulator.faults.fail("CreateSubscription", "INTERNAL")
    with pytest.raises(ServiceError, match=r"INTERNAL"):
        await set_up(admin)

    assert await roles(admin, DEAD_TOPIC) == []


@pytest.mark.parametrize("rpc", ["GetIamPolicy", "SetIamPolicy"])
@pytest.mark.parametrize("found", ["nothing", "topic", "topic and subscription"])
async def test_who_may_not_grant_is_told_which_role_it_takes_before_anything_is_changed(
    admin: AdminClient, emulator: Emulator, rpc: str, found: str
) -> None:
    role, resource = SUBSCRIBER, WORKER_NAME
    if "topic" in found:
        await admin.create_topic(DEAD)
    if "subscription" in found:
        role, resource = PUBLISHER, DEAD_TOPIC
        await admin.create_subscription("undertaker", DEAD)
    emulator.faults.fail(rpc, "PERMISSION_DENIED", message="no way")
    for write in WRITES[1:]:
        emulator.faults.fail(write, "FAILED_PRECONDITION", message="nothing should be written")

    with pytest.raises(PermissionDeniedError, match=r"roles/pubsub\.admin") as refused:
        await set_up(admin)
    text = str(refused.value)
    assert all(part in text for part in (role, resource, ROBOT, "no way", "No setting was changed"))
    assert await roles(admin, WORKER_NAME) == []


async def test_a_server_without_iam_is_told_the_rest_with_a_warning(
    admin: AdminClient, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.faults.fail("GetIamPolicy", "UNIMPLEMENTED", times=2)
    with caplog.at_level(logging.WARNING, "pubsub_aio.jobs"):
        made = await set_up(admin)

    assert made.dead_letter_policy.dead_letter_topic == DEAD_TOPIC
    assert await readers(admin, DEAD) == [DEAD_READER]
    (warning,) = caplog.messages
    assert warning.startswith(f"this server has no IAM: {ROBOT} was not given {SUBSCRIBER} on")


@pytest.mark.parametrize("transport", ["grpc", "rest"])
async def test_on_googles_emulator_all_but_the_roles_is_set_up(
    google_address: str, transport: Literal["grpc", "rest"], caplog: pytest.LogCaptureFixture
) -> None:
    project, endpoint = f"shop-{uuid.uuid4().hex}", f"http://{google_address}"
    async with AdminClient(project=project, transport=transport, endpoint=endpoint) as admin:
        await admin.create_topic(TOPIC)
        await admin.create_subscription(WORKER, TOPIC)
        with caplog.at_level(logging.WARNING, "pubsub_aio.jobs"):
            made = await set_up(admin)
        assert await set_up(admin) == made
        assert len(await readers(admin, DEAD)) == 1

    assert made.dead_letter_policy.dead_letter_topic == f"projects/{project}/topics/dead"
    assert made.retry_policy.minimum_backoff == timedelta(seconds=2)
    assert "this server has no IAM" in caplog.text


# Arguments


@in_memory
@pytest.mark.parametrize("given", [{}, {"project_number": 123, "service_account": "a@b.com"}])
async def test_the_service_account_must_be_told_in_one_way(
    admin: AdminClient, given: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"^project_number, service_account: ") as refused:
        await retry_on_server(admin, WORKER, dead_letter_topic=DEAD, **given)  # type: ignore[arg-type]

    assert "gcloud projects describe PROJECT --format='value(projectNumber)'" in str(refused.value)


@in_memory
@pytest.mark.parametrize("number", ["shop", "", "12a", -1, 1.5, True])
async def test_a_project_number_is_not_an_id(admin: AdminClient, number: str) -> None:
    with pytest.raises(ConfigError, match=r"^project_number: .*gcloud projects describe"):
        await retry_on_server(admin, WORKER, dead_letter_topic=DEAD, project_number=number)


@in_memory
@pytest.mark.parametrize("account", ["robot", "", "serviceAccount:robot@example.com", 3])
async def test_a_service_account_is_an_address(admin: AdminClient, account: str) -> None:
    with pytest.raises(ConfigError, match=r"^service_account: .*@gcp-sa-pubsub\.iam"):
        await retry_on_server(admin, WORKER, dead_letter_topic=DEAD, service_account=account)


@in_memory
@pytest.mark.parametrize("attempts", [4, 101, 5.5, True, "5"])
async def test_the_service_takes_5_to_100_attempts(admin: AdminClient, attempts: int) -> None:
    with pytest.raises(ConfigError, match=r"^max_delivery_attempts must be"):
        await retry_on_server(
            admin,
            WORKER,
            dead_letter_topic=DEAD,
            project_number=123,
            max_delivery_attempts=attempts,
        )


@in_memory
@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (JobPolicy(max_backoff=600.5), "policy.max_backoff"),
        (JobPolicy(initial_backoff=601, max_backoff=700), "policy.initial_backoff"),
    ],
)
async def test_the_service_waits_for_600_seconds_at_most(
    admin: AdminClient, policy: JobPolicy, field: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{field} must be .* at most 600"):
        await retry_on_server(
            admin, WORKER, dead_letter_topic=DEAD, project_number=123, policy=policy
        )


@in_memory
@pytest.mark.parametrize("name", [TOPIC, "projects/shop/topics/orders"])
async def test_a_topic_is_not_its_own_dead_letter_topic(
    admin: AdminClient, emulator: Emulator, name: str
) -> None:
    for rpc in WRITES:
        emulator.faults.fail(rpc, "FAILED_PRECONDITION", message="nothing should be written")

    with pytest.raises(ConfigError, match=r"^dead_letter_topic: projects/shop/topics/orders is"):
        await retry_on_server(admin, WORKER, dead_letter_topic=name, project_number=123)


@in_memory
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("detached", [True, False])
async def test_a_subscription_to_something_else_does_not_count_as_one_to_dead_letters(
    admin: AdminClient, emulator: Emulator, *, exists: bool, detached: bool
) -> None:
    if exists:
        await admin.create_topic(DEAD)
    await admin.create_subscription(DEAD, DEAD if exists and detached else TOPIC)
    if detached:
        await admin.detach_subscription(DEAD)
    for rpc in WRITES:
        emulator.faults.fail(rpc, "FAILED_PRECONDITION", message="nothing should be written")

    with pytest.raises(ConfigError, match=r"^dead_letter_topic: .* create one with another name"):
        await set_up(admin)


@in_memory
async def test_the_dead_letter_topic_is_a_topic(admin: AdminClient) -> None:
    with pytest.raises(ConfigError, match=r"^topic: must be NAME or projects/PROJECT/topics/NAME"):
        await retry_on_server(
            admin, WORKER, dead_letter_topic="projects/shop/queues/dead", project_number=123
        )

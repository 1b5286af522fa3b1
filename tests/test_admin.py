"""The admin client, over every transport, against servers of the API."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.api_core.exceptions import GoogleAPICallError, ServiceUnavailable
from google.pubsub_v1 import types

from pubsub_aio._wire.call_channel import CallChannel
from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.transport import service_error
from pubsub_aio.admin import AdminClient
from pubsub_aio.emulator import Emulator, EmulatorThread
from pubsub_aio.errors import (
    AlreadyExistsError,
    ClosedError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    ServiceError,
    UnavailableError,
    UnsupportedError,
    WrongLoopError,
)
from pubsub_aio.testing import MemoryEmulator, run_scenario

PROJECT = "shop"
SOON = 0.5
"""Seconds after which a test gives up on a server that is not going to answer."""


def over_grpc(address: str) -> GrpcTransport:
    return GrpcTransport(Connection(target=address, tls=False, source="a test"))


def client_of(emulator: Emulator | EmulatorThread, transport: str) -> AdminClient:
    """A client; `given` is a transport made by the caller."""
    if isinstance(emulator, MemoryEmulator):
        return AdminClient(project=PROJECT, transport=emulator.transport())
    if transport == "given":
        return AdminClient(project=PROJECT, transport=over_grpc(emulator.address))
    return AdminClient(
        project=PROJECT,
        transport="rest" if transport == "rest" else "grpc",
        endpoint=f"http://{emulator.address}",
    )


@pytest.fixture(params=["grpc", "given", "rest", "memory"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def emulator(transport: str) -> AsyncIterator[Emulator]:
    kind = MemoryEmulator if transport == "memory" else Emulator
    async with kind(project=PROJECT) as emulator:
        yield emulator


@pytest.fixture
async def admin(emulator: Emulator, transport: str) -> AsyncIterator[AdminClient]:
    async with client_of(emulator, transport) as admin:
        yield admin


over_grpc_only = pytest.mark.parametrize("transport", ["grpc"], indirect=True)
over_sockets = pytest.mark.parametrize("transport", ["grpc", "given", "rest"])


# Topics


async def test_a_topic_is_created_read_changed_and_deleted(admin: AdminClient) -> None:
    created = await admin.create_topic(
        "orders", labels={"team": "a"}, message_retention_duration=timedelta(hours=1)
    )
    assert created.name == "projects/shop/topics/orders"
    assert await admin.get_topic("orders") == created
    assert [topic async for topic in admin.list_topics()] == [created]

    changed = await admin.update_topic("orders", labels={"team": "b"})
    assert dict(changed.labels) == {"team": "b"}
    assert changed.message_retention_duration == timedelta(hours=1)

    await admin.delete_topic("orders")
    with pytest.raises(NotFoundError):
        await admin.get_topic("orders")


async def test_a_setting_given_as_none_returns_to_its_default(admin: AdminClient) -> None:
    await admin.create_topic("orders", labels={"team": "a"})

    assert not (await admin.update_topic("orders", labels=None)).labels
    assert not (await admin.get_topic("orders")).labels


async def test_a_list_goes_over_all_pages(admin: AdminClient) -> None:
    names = [f"projects/shop/topics/topic-{n}" for n in range(5)]
    for name in names:
        await admin.create_topic(name)
        await admin.create_subscription(name.rpartition("/")[2], "topic-0")
    await admin.create_topic("projects/other/topics/elsewhere")

    subscriptions = [name.replace("topics", "subscriptions") for name in names]
    listed = [topic.name async for topic in admin.list_topics(page_size=2)]
    assert sorted(listed) == names
    listed = [made.name async for made in admin.list_subscriptions(page_size=2)]
    assert sorted(listed) == subscriptions
    listed = [name async for name in admin.list_topic_subscriptions("topic-0", page_size=2)]
    assert sorted(listed) == subscriptions
    elsewhere = [topic.name async for topic in admin.list_topics(project="other")]
    assert elsewhere == ["projects/other/topics/elsewhere"]


async def test_a_refusal_in_the_middle_of_a_list_is_raised(
    admin: AdminClient, emulator: Emulator
) -> None:
    for n in range(3):
        await admin.create_topic(f"topic-{n}")
    topics = admin.list_topics(page_size=2)
    seen = [await anext(topics), await anext(topics)]
    emulator.faults.fail("ListTopics", "PERMISSION_DENIED")

    with pytest.raises(ServiceError, match=r"PERMISSION_DENIED"):
        await anext(topics)
    assert len(seen) == 2


# Subscriptions


async def test_a_subscription_is_created_read_changed_and_deleted(admin: AdminClient) -> None:
    await admin.create_topic("orders")
    created = await admin.create_subscription(
        "worker",
        "orders",
        ack_deadline_seconds=60,
        retry_policy={"minimum_backoff": timedelta(seconds=5)},
        expiration_policy=types.ExpirationPolicy(ttl=timedelta(days=2)),
    )
    assert created.name == "projects/shop/subscriptions/worker"
    assert created.topic == "projects/shop/topics/orders"
    assert created.ack_deadline_seconds == 60
    assert created.retry_policy.minimum_backoff == timedelta(seconds=5)
    assert created.expiration_policy.ttl == timedelta(days=2)
    assert await admin.get_subscription("worker") == created
    assert [made async for made in admin.list_subscriptions()] == [created]

    changed = await admin.update_subscription("worker", ack_deadline_seconds=30)
    assert changed.ack_deadline_seconds == 30
    assert changed.retry_policy == created.retry_policy

    await admin.delete_subscription("worker")
    with pytest.raises(NotFoundError):
        await admin.get_subscription("worker")


async def test_a_dead_letter_topic_may_have_a_short_name(admin: AdminClient) -> None:
    await admin.create_topic("orders")
    await admin.create_topic("dead")
    policy = types.DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=5)
    created = await admin.create_subscription("worker", "orders", dead_letter_policy=policy)

    assert created.dead_letter_policy.dead_letter_topic == "projects/shop/topics/dead"
    assert policy.dead_letter_topic == "dead"


async def test_a_detached_subscription_says_so(admin: AdminClient) -> None:
    await admin.create_topic("orders")
    await admin.create_subscription("worker", "orders")

    await admin.detach_subscription("worker")

    assert (await admin.get_subscription("worker")).detached


def in_a_minute(emulator: Emulator) -> datetime:
    return datetime.fromtimestamp(emulator.clock.now() + 60, UTC)


async def test_seeking_to_a_time_drops_what_came_before_it(
    admin: AdminClient, emulator: Emulator
) -> None:
    await admin.create_topic("orders")
    await admin.create_subscription("worker", "orders")
    emulator.publish("orders", b"a")
    assert emulator.backlog("worker") == 1

    await admin.seek("worker", time=in_a_minute(emulator))

    assert emulator.backlog("worker") == 0


async def test_seeking_to_a_snapshot_brings_back_what_it_kept(
    admin: AdminClient, emulator: Emulator
) -> None:
    await admin.create_topic("orders")
    await admin.create_subscription("worker", "orders")
    emulator.publish("orders", b"a")
    await admin.create_snapshot("before", "worker")
    await admin.seek("worker", time=in_a_minute(emulator))

    await admin.seek("worker", snapshot="before")

    assert emulator.backlog("worker") == 1


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"time": datetime.now(UTC), "snapshot": "before"},
        {"time": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is the mistake
        {"time": 1_700_000_000},
        {"snapshot": "projects/shop/topics/orders"},
    ],
)
async def test_seeking_needs_one_clear_target(
    admin: AdminClient, target: dict[str, object]
) -> None:
    await admin.create_topic("orders")
    await admin.create_subscription("worker", "orders")

    with pytest.raises(ConfigError, match=r"^(time|snapshot)"):
        await admin.seek("worker", **target)  # type: ignore[arg-type]


# Snapshots


async def test_a_snapshot_is_created_read_changed_and_deleted(admin: AdminClient) -> None:
    await admin.create_topic("orders")
    await admin.create_subscription("worker", "orders")
    created = await admin.create_snapshot("before", "worker", labels={"team": "a"})
    assert created.name == "projects/shop/snapshots/before"
    assert created.topic == "projects/shop/topics/orders"
    assert await admin.get_snapshot("before") == created
    assert [snapshot async for snapshot in admin.list_snapshots()] == [created]
    assert [name async for name in admin.list_topic_snapshots("orders")] == [created.name]

    changed = await admin.update_snapshot("before", labels={"team": "b"})
    assert dict(changed.labels) == {"team": "b"}

    await admin.delete_snapshot("before")
    with pytest.raises(NotFoundError):
        await admin.get_snapshot("before")


# Arguments


async def test_an_unknown_setting_is_named_with_those_there_are(admin: AdminClient) -> None:
    with pytest.raises(ConfigError) as refused:
        await admin.create_subscription("worker", "orders", ack_deadline=60)

    assert str(refused.value).startswith("ack_deadline: not a setting of Subscription")
    assert "ack_deadline_seconds, retain_acked_messages" in str(refused.value)
    with pytest.raises(ConfigError, match=r"^expires: not a setting of Snapshot; .* expire_time"):
        await admin.update_snapshot("before", expires=1)
    with pytest.raises(ConfigError, match=r"^name: not a setting of Topic"):
        await admin.create_topic("orders", name="projects/shop/topics/orders")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ack_deadline_seconds", "soon"),
        ("message_retention_duration", 600),
        ("labels", 3),
        ("retry_policy", {"backoff": timedelta(seconds=1)}),
        ("cloud_storage_config", {"state": "FINE"}),
    ],
)
async def test_a_wrong_value_is_refused_with_the_name_of_its_setting(
    admin: AdminClient, setting: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=rf"^{setting}: "):
        await admin.create_subscription("worker", "orders", filter="", **{setting: value})  # type: ignore[arg-type]


async def test_an_update_of_nothing_is_refused(admin: AdminClient) -> None:
    with pytest.raises(ConfigError, match=r"needs a setting"):
        await admin.update_topic("orders")
    with pytest.raises(ConfigError, match=r"needs a setting"):
        await admin.update_subscription("worker")
    with pytest.raises(ConfigError, match=r"needs a setting"):
        await admin.update_snapshot("before")


async def test_a_name_of_another_kind_is_refused(admin: AdminClient) -> None:
    with pytest.raises(ConfigError, match=r"^topic: must be NAME or projects/PROJECT/topics/NAME"):
        await admin.get_topic("projects/shop/subscriptions/worker")
    with pytest.raises(ConfigError, match=r"^topic: "):
        admin.list_topic_subscriptions("")
    with pytest.raises(ConfigError, match=r"^project: "):
        admin.list_topics(project="projects/shop")
    with pytest.raises(ConfigError, match=r"^page_size: "):
        admin.list_topics(page_size=1 << 40)


@over_grpc_only
async def test_without_a_project_only_full_names_work(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GOOGLE_CLOUD_PROJECT", "PUBSUB_PROJECT_ID", "GCLOUD_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.address)

    async with AdminClient() as admin:
        assert admin.project is None
        assert await admin.create_topic("projects/shop/topics/orders")
        with pytest.raises(ConfigError, match=r"^project: not known"):
            await admin.get_topic("orders")
        with pytest.raises(ConfigError, match=r"^project: not known"):
            admin.list_topics()

    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    async with AdminClient() as admin:
        assert admin.project == PROJECT
        assert await admin.get_topic("orders")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, None, "5"])
async def test_a_timeout_must_be_a_time(admin: AdminClient, timeout: float) -> None:
    with pytest.raises(ConfigError, match=r"^timeout: "):
        await admin.get_topic("orders", timeout=timeout)


def test_a_client_that_cannot_be_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"^transport: must be"):
        AdminClient(transport="pigeon")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^endpoint: give it to the transport"):
        AdminClient(transport=over_grpc("127.0.0.1:1"), endpoint="127.0.0.1:2")
    with pytest.raises(ConfigError, match=r"^project: "):
        AdminClient(project="")


# Refusals, retries and time


async def test_refusals_are_our_errors_with_their_cause(admin: AdminClient) -> None:
    await admin.create_topic("orders")

    with pytest.raises(AlreadyExistsError) as refused:
        await admin.create_topic("orders")
    assert refused.value.code == "ALREADY_EXISTS"
    assert isinstance(refused.value.__cause__, GoogleAPICallError)
    with pytest.raises(NotFoundError, match=r"projects/shop/topics/none"):
        await admin.create_subscription("worker", "none")
    with pytest.raises(InvalidRequestError):
        await admin.create_topic("-")


async def test_what_fails_in_passing_is_tried_again(admin: AdminClient, emulator: Emulator) -> None:
    await admin.create_topic("orders")
    emulator.faults.fail("GetTopic", "UNAVAILABLE", times=2)

    assert await admin.get_topic("orders")


async def test_what_goes_on_failing_is_given_up_in_time_with_the_last_refusal(
    admin: AdminClient, emulator: Emulator
) -> None:
    await admin.create_topic("orders")  # to connect can take as long
    emulator.faults.fail(
        "GetTopic", "UNAVAILABLE", times=1_000, message="out to lunch", retry_delay=7
    )

    with pytest.raises(UnavailableError, match=r"out to lunch.*tried again for 2 s") as refused:
        await asyncio.wait_for(admin.get_topic("orders", timeout=2), 60)
    assert refused.value.code == "UNAVAILABLE"
    assert refused.value.retry_delay == 7


async def test_a_server_that_does_not_answer_is_given_up_in_time(
    admin: AdminClient, emulator: Emulator
) -> None:
    emulator.faults.delay("GetTopic", 30)
    try:
        raise ServiceUnavailable("another trouble")  # type: ignore[no-untyped-call]
    except ServiceUnavailable:
        with pytest.raises(UnavailableError) as refused:
            await admin.get_topic("orders", timeout=SOON)

    assert refused.value.code == "DEADLINE_EXCEEDED"
    assert "another trouble" not in str(refused.value)


def test_time_is_the_loops() -> None:
    async def scenario(emulator: MemoryEmulator) -> None:
        emulator.faults.fail("GetTopic", "UNAVAILABLE", times=10_000)
        loop = asyncio.get_running_loop()
        async with client_of(emulator, "memory") as admin:
            begun_at = loop.time()
            with pytest.raises(UnavailableError, match=r"tried again for 600 s"):
                await admin.get_topic("orders", timeout=600)
            assert loop.time() - begun_at == 600

    run_scenario(scenario)


async def test_a_retry_delay_comes_with_the_error(admin: AdminClient, emulator: Emulator) -> None:
    emulator.faults.fail("CreateTopic", "RESOURCE_EXHAUSTED", retry_delay=2.5)

    with pytest.raises(ServiceError) as refused:
        await admin.create_topic("orders")
    assert (refused.value.code, refused.value.retry_delay) == ("RESOURCE_EXHAUSTED", 2.5)


async def test_nobody_at_the_address_is_unavailable() -> None:
    async with AdminClient(project=PROJECT, endpoint="http://127.0.0.1:1") as admin:
        # It is tried again until the time is over, which may be in the middle of a try.
        with pytest.raises(UnavailableError, match=r"UNAVAILABLE: .*connect|no answer within 3 s"):
            await admin.get_topic("orders", timeout=6 * SOON)


async def test_a_cancelled_call_is_cancelled_and_the_client_goes_on(
    admin: AdminClient, emulator: Emulator
) -> None:
    await admin.create_topic("orders")
    emulator.faults.delay("GetTopic", 30)
    call = asyncio.create_task(admin.get_topic("orders"))
    await faults_taken(emulator, "GetTopic")

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert await admin.get_topic("orders")


async def faults_taken(emulator: Emulator, rpc: str) -> None:
    """Wait until a call has met the fault that was asked for."""
    await emulator.until(lambda: not emulator.faults._calls.get(rpc))


# Life


async def test_closing_ends_a_call_with_an_error(emulator: Emulator, transport: str) -> None:
    emulator.create_topic("orders")
    async with client_of(emulator, transport) as admin:
        emulator.faults.delay("GetTopic", 30)
        call = asyncio.create_task(admin.get_topic("orders"))
        await faults_taken(emulator, "GetTopic")

    with pytest.raises(ClosedError, match=r"closed during the call"):
        await asyncio.wait_for(call, 10)


class LateTransport(GrpcTransport):
    """Gives its only answer, that there is no such thing, when it is closed."""

    def __init__(self) -> None:
        super().__init__(Connection(target="127.0.0.1:1", tls=False, source="a test"))
        self.called = asyncio.Event()
        self.closed = asyncio.Event()

    async def call(
        self, rpc: str, request: bytes, *, timeout: float, compress: bool = False
    ) -> bytes:
        del rpc, request, timeout, compress
        self.called.set()
        await self.closed.wait()
        raise service_error("NOT_FOUND", "no such topic")

    async def close(self) -> None:
        await super().close()
        self.closed.set()


async def test_an_answer_that_comes_while_closing_is_still_the_answer() -> None:
    transport = LateTransport()
    async with AdminClient(project=PROJECT, transport=transport) as admin:
        call = asyncio.create_task(admin.get_topic("orders"))
        await transport.called.wait()

    with pytest.raises(NotFoundError):
        await call


@over_grpc_only
async def test_a_client_that_is_not_open_says_so(emulator: Emulator) -> None:
    admin = client_of(emulator, "grpc")
    with pytest.raises(ClosedError, match=r"async with"):
        await admin.get_topic("orders")
    async with admin:
        with pytest.raises(ConfigError, match=r"open already"):
            await admin.__aenter__()
        assert await admin.create_topic("orders")
    with pytest.raises(ClosedError, match=r"async with"):
        admin.list_topics()
    async with admin:
        assert await admin.get_topic("orders")


@over_grpc_only
async def test_a_transport_that_is_given_is_closed_with_the_client_and_left_unchanged(
    emulator: Emulator,
) -> None:
    transport = over_grpc(emulator.address)

    async with AdminClient(project=PROJECT, transport=transport) as admin:
        await admin.create_topic("orders")
        assert transport.channel._unary_unary_interceptors == []  # type: ignore[attr-defined]
    with pytest.raises(ClosedError):
        _ = transport.channel


async def test_another_loop_is_refused(admin: AdminClient) -> None:
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            asyncio.run(admin.get_topic("orders"))
        except WrongLoopError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert [type(error) for error in errors] == [WrongLoopError]


@over_sockets
async def test_no_task_is_left_behind(transport: str) -> None:
    with EmulatorThread() as emulator:  # whose own tasks are in another loop
        async with client_of(emulator, transport) as admin:
            await admin.create_topic("orders")
            assert [topic.name async for topic in admin.list_topics()]
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_importing_it_does_not_import_googles_client() -> None:
    code = "import pubsub_aio.admin, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "google.pubsub_v1" not in ran.stdout.split()


FORK = """
import asyncio, os, sys
from pubsub_aio.admin import AdminClient
from pubsub_aio.errors import ForkedError

async def main():
    async with AdminClient(project="shop", endpoint="http://127.0.0.1:1") as admin:
        child = os.fork()
        if child == 0:
            try:
                await admin.get_topic("orders")
            except ForkedError:
                os._exit(42)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_process_is_told_to_open_its_own() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout.split() == ["42"]


# A channel over a transport


async def test_streams_do_not_go_through_a_transports_channel() -> None:
    async with CallChannel(over_grpc("127.0.0.1:1")) as channel:
        await channel.channel_ready()
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        for method in (channel.unary_stream, channel.stream_unary, channel.stream_stream):
            with pytest.raises(UnsupportedError, match=r"is a stream"):
                await method("/google.pubsub.v1.Subscriber/StreamingPull")(b"")
        with pytest.raises(UnsupportedError, match=r"stays READY"):
            await channel.wait_for_state_change(channel.get_state())

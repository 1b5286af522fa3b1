"""Subscriptions that are created before they are subscribed to."""

from __future__ import annotations

import asyncio

import pytest

from pubsub_aio import (
    ConfigError,
    Message,
    NotFoundError,
    StartupError,
    SubscriberClient,
    UnavailableError,
)
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    TOPIC,
    WORKER,
    Calls,
    client_of,
    now,
    publish,
    virtual,
)


async def hold(_: Message) -> None:
    """Return without settling it."""


@virtual
async def test_a_creation_that_was_not_awaited_is_waited_for(emulator: MemoryEmulator) -> None:
    """G2: create and subscribe, one after the other, without a word in between."""
    emulator.create_topic(TOPIC)
    emulator.faults.delay("CreateSubscription", 5)
    calls = Calls()
    async with client_of(emulator) as client:
        client.create_subscription(WORKER, TOPIC)
        live = client.subscribe(WORKER, calls)
        await live.ready()
        assert now() >= 5
        publish(emulator, 1)
        await asyncio.sleep(1)

    assert len(calls.began) == 1


@virtual
async def test_a_creation_that_fails_fails_the_subscription(emulator: MemoryEmulator) -> None:
    async with client_of(emulator) as client:
        created = client.create_subscription(WORKER, TOPIC)
        live = client.subscribe(WORKER, hold)
        with pytest.raises(NotFoundError):
            await created
        with pytest.raises((NotFoundError, StartupError)):
            await live


@virtual
async def test_a_creation_that_nobody_waits_for_ends_with_its_client(
    emulator: MemoryEmulator,
) -> None:
    """G2: closing the client leaves no task behind."""
    emulator.create_topic(TOPIC)
    emulator.faults.delay("CreateSubscription", HOUR)
    async with client_of(emulator) as client:
        creating = client.create_subscription(WORKER, TOPIC)
        await asyncio.sleep(1)

    assert creating.cancelled()


@virtual
async def test_a_creation_is_tried_again_until_the_server_answers(emulator: MemoryEmulator) -> None:
    """G2, R3: as Google's client does."""
    emulator.create_topic(TOPIC)
    emulator.faults.fail("CreateSubscription", "UNAVAILABLE", times=8)
    async with client_of(emulator) as client:
        created = await client.create_subscription(WORKER, TOPIC)

    assert created.topic.endswith(TOPIC)
    assert 5 < now() < 60


@virtual
async def test_a_creation_gives_up_in_time(emulator: MemoryEmulator) -> None:
    """R3: with what the last attempt met."""
    emulator.create_topic(TOPIC)
    emulator.faults.fail("CreateSubscription", "UNAVAILABLE", times=1_000)
    async with client_of(emulator) as client:
        with pytest.raises(UnavailableError):
            await client.create_subscription(WORKER, TOPIC, timeout=30)

    assert 20 < now() <= 30


@virtual
async def test_a_creation_that_cannot_be_is_not_tried_again(emulator: MemoryEmulator) -> None:
    """G2: a missing topic is told at once."""
    async with client_of(emulator) as client:
        with pytest.raises(NotFoundError) as caught:
            await client.create_subscription(WORKER, TOPIC)

    assert "create_topic" in caught.value.__notes__[0]
    assert now() < 0.1


@virtual
async def test_a_subscription_that_exists_with_other_settings_is_told(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """G2: it is left as it is."""
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=30)
    async with client_of(emulator) as client:
        found = await client.create_subscription(
            WORKER, TOPIC, ack_deadline_seconds=60, enable_message_ordering=False
        )

    assert found.ack_deadline_seconds == 30
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"{found.name} exists, with another ack_deadline_seconds: 30"
    ]


@virtual
async def test_a_single_id_in_place_of_a_list_is_refused(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match="ack_ids must be a list of ids, not 'abc'"):
            await client.acknowledge(WORKER, "abc")


@virtual
async def test_a_subscription_shows_its_name_and_how_it_is(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        await live.ready()
        assert repr(live) == f"<Subscription {live.name}: running>"


@pytest.mark.parametrize("project", [5, "", "projects/mine"])
def test_what_is_no_project_is_refused(project: object) -> None:
    with pytest.raises(ConfigError, match=r"^project: must be an id"):
        SubscriberClient(project)  # type: ignore[arg-type]

"""One call at a time: pull, acknowledge, modify_ack_deadline and seek."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from pubsub_aio import (
    AlreadySettledError,
    ConfigError,
    InvalidRequestError,
    Message,
    NotFoundError,
    PubSubError,
    SubscriberClient,
)
from pubsub_aio.emulator import EmulatorThread
from tests.subscriber_wire.conftest import Site, nothing_left_behind, until

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def pull(client: SubscriberClient, name: str, count: int) -> list[Message]:
    """Pull until so many are here: one Pull may answer with fewer than there are."""
    messages: list[Message] = []
    while len(messages) < count:
        messages += await client.pull(name, max_messages=count - len(messages), timeout=10)
    return messages


def data(messages: list[Message]) -> list[bytes]:
    return sorted(message.data for message in messages)


async def test_what_is_pulled_and_acked_does_not_come_again(
    site: Site, client: SubscriberClient
) -> None:
    """R33: receive, process, ack."""
    topic, name = site.create_pair()
    site.publish(topic, *"abc")
    messages = await pull(client, name, 3)
    await client.acknowledge(name, [message.ack_id for message in messages])

    assert data(messages) == [b"a", b"b", b"c"]
    assert site.left(name, [message.ack_id for message in messages]) == []


async def test_a_pulled_message_can_be_settled_by_itself(
    site: Site, client: SubscriberClient
) -> None:
    """R33: with the methods that every message has."""
    topic, name = site.create_pair()
    site.publish(topic, *"ab")
    first, second = await pull(client, name, 2)
    await first.ack_with_response()
    await second.modify_ack_deadline_with_response(60)
    await second.nack_with_response()
    (again,) = await pull(client, name, 1)
    await again.ack_with_response()

    assert again.data == second.data
    assert site.left(name, [first.ack_id, second.ack_id, again.ack_id]) == []
    with pytest.raises(AlreadySettledError):
        await first.nack_with_response()


async def test_acks_are_sent_before_the_client_is_closed(site: Site) -> None:
    """R33: a plain ack is not lost by leaving at once."""
    topic, name = site.create_pair()
    site.publish(topic, *"abc")
    async with nothing_left_behind(), site.client() as client:
        messages = await pull(client, name, 3)
        for message in messages:
            message.ack()

    assert site.left(name, [message.ack_id for message in messages]) == []


async def test_settling_after_the_client_is_closed_is_told(site: Site) -> None:
    """R33: whoever waits for an answer does not wait for ever."""
    topic, name = site.create_pair()
    site.publish(topic, "a")
    async with nothing_left_behind(), site.client() as client:
        (message,) = await pull(client, name, 1)
    with pytest.raises(PubSubError):
        await asyncio.wait_for(message.ack_with_response(), 3)
    message.nack()  # no answer is waited for: nothing to tell


async def test_messages_can_be_settled_in_another_thread(
    site: Site, client: SubscriberClient
) -> None:
    topic, name = site.create_pair()
    site.publish(topic, "a")
    (message,) = await pull(client, name, 1)
    await asyncio.to_thread(lambda: message.ack_with_response().result(10))

    assert site.left(name, [message.ack_id]) == []


async def test_a_deadline_of_zero_brings_it_again_at_once(
    site: Site, client: SubscriberClient
) -> None:
    """R33: change the invisible duration."""
    topic, name = site.create_pair()
    site.publish(topic, "a")
    (first,) = await pull(client, name, 1)
    await client.modify_ack_deadline(name, [first.ack_id], 0)
    (second,) = await pull(client, name, 1)

    assert (second.data, second.message_id) == (b"a", first.message_id)
    await client.acknowledge(name, [second.ack_id])


async def test_a_deadline_is_zero_to_ten_minutes(site: Site, client: SubscriberClient) -> None:
    """R33: whatever the server would say to another."""
    topic, name = site.create_pair()
    site.publish(topic, "a")
    (message,) = await pull(client, name, 1)
    for seconds in (-1, 601, 10_000):
        with pytest.raises(ConfigError, match="seconds"):
            await client.modify_ack_deadline(name, [message.ack_id], seconds)
        with pytest.raises(ConfigError, match="seconds"):
            message.modify_ack_deadline(seconds)
    for allowed in (600, 0):
        await client.modify_ack_deadline(name, [message.ack_id], allowed)


async def test_no_more_is_pulled_than_was_asked_for(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    site.publish(topic, *"abcde")
    first = await client.pull(name, max_messages=2)
    for wrong in (0, 1.5, "10"):
        with pytest.raises(ConfigError, match=r"^max_messages must be"):
            await client.pull(name, max_messages=wrong)  # type: ignore[arg-type]

    assert 1 <= len(first) <= 2
    for message in first:
        await message.ack_with_response()


async def test_a_pull_that_finds_nothing_is_empty(site: Site, client: SubscriberClient) -> None:
    """R33: it is no error."""
    _, name = site.create_pair()
    began = asyncio.get_running_loop().time()

    assert await client.pull(name, timeout=0.3) == []
    assert asyncio.get_running_loop().time() - began < 3


async def test_a_missing_subscription_is_told(site: Site, client: SubscriberClient) -> None:
    missing = site.subscription_name()
    with pytest.raises(NotFoundError):
        await client.pull(missing)
    with pytest.raises(NotFoundError):
        await client.seek(missing, LONG_AGO)


async def test_an_ack_id_that_is_none_is_told(site: Site, client: SubscriberClient) -> None:
    _, name = site.create_pair()
    with pytest.raises(InvalidRequestError):
        await client.acknowledge(name, ["nonsense"])
    with pytest.raises(InvalidRequestError):
        await client.modify_ack_deadline(name, ["nonsense"], 10)


# Seek


async def test_seek_goes_back_and_forward(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair(retain_acked_messages=True)
    site.publish(topic, *"ab")
    first = await pull(client, name, 2)
    await client.acknowledge(name, [message.ack_id for message in first])
    await client.seek(name, LONG_AGO)
    again = await pull(client, name, 2)
    await client.seek(name, datetime.now(UTC) + timedelta(hours=1))

    assert data(again) == data(first) == [b"a", b"b"]
    assert site.left(name) == []


async def test_seek_goes_to_a_snapshot(site: Site, client: SubscriberClient) -> None:
    topic, name = site.create_pair()
    site.publish(topic, *"ab")
    snapshot = site.snapshot_name("before")
    site.subscriber.create_snapshot(name=snapshot, subscription=name, retry=None)
    first = await pull(client, name, 2)
    await client.acknowledge(name, [message.ack_id for message in first])
    await client.seek(name, "before")
    again = await pull(client, name, 2)

    assert data(again) == [b"a", b"b"]
    await client.acknowledge(name, [message.ack_id for message in again])


async def test_seek_needs_to_know_the_time_zone(site: Site, client: SubscriberClient) -> None:
    _, name = site.create_pair()
    with pytest.raises(ConfigError, match="aware"):
        await client.seek(name, datetime(2020, 1, 1))  # noqa: DTZ001 - that is the mistake


# The ack deadline, by a clock that the test moves


@pytest.fixture(params=["grpc", "rest"])
async def timed(
    request: pytest.FixtureRequest, pubsub_emulator_virtual: EmulatorThread
) -> AsyncIterator[SubscriberClient]:
    """A client of a server whose clock only the test moves."""
    client = SubscriberClient(pubsub_emulator_virtual.project, transport=request.param)
    async with nothing_left_behind(), client:
        yield client


@pytest.mark.parametrize("deadline", [10, 600])
async def test_what_is_not_acked_in_time_comes_again(
    pubsub_emulator_virtual: EmulatorThread, timed: SubscriberClient, deadline: int
) -> None:
    """R34: the consume timeout is the ack deadline, 10 to 600 s."""
    emulator = pubsub_emulator_virtual
    name = emulator.create_subscription("worker", "orders", ack_deadline_seconds=deadline)
    message_id = emulator.publish("orders", b"a")
    (first,) = await pull(timed, name, 1)
    emulator.advance(deadline - 1)
    assert emulator.outstanding(name) == 1
    emulator.advance(1)
    assert emulator.outstanding(name) == 0
    (second,) = await pull(timed, name, 1)
    await second.ack_with_response()

    assert first.message_id == second.message_id == message_id
    assert emulator.backlog(name) == 0


async def test_more_time_is_given_when_it_is_asked_for(
    pubsub_emulator_virtual: EmulatorThread, timed: SubscriberClient
) -> None:
    """R33 R34: a changed deadline counts from the change."""
    emulator = pubsub_emulator_virtual
    name = emulator.create_subscription("worker", "orders")
    emulator.publish("orders", b"a")
    (message,) = await pull(timed, name, 1)
    await timed.modify_ack_deadline(name, [message.ack_id], 600)
    emulator.advance(599)
    assert emulator.outstanding(name) == 1
    message.modify_ack_deadline(300)
    await until(lambda: len(emulator.message(message.message_id).modacks) == 2)
    emulator.advance(299)
    assert emulator.outstanding(name) == 1
    emulator.advance(1)

    assert emulator.outstanding(name) == 0
    assert len(emulator.message(message.message_id).deliveries) == 1


async def test_nobody_keeps_a_pulled_message_alive(
    pubsub_emulator_virtual: EmulatorThread, timed: SubscriberClient
) -> None:
    """R34: that is for its user to do."""
    emulator = pubsub_emulator_virtual
    name = emulator.create_subscription("worker", "orders")
    emulator.publish("orders", b"a")
    (message,) = await pull(timed, name, 1)
    emulator.advance(10)

    assert emulator.outstanding(name) == 0
    assert emulator.message(message.message_id).modacks == []

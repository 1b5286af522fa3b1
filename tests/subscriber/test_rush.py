"""Responses in quick succession are taken in together, and none is lost or late for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pubsub_aio import Message, SubscriberClient, Subscription
from pubsub_aio._core.rush import MANY, PATIENCE
from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import Capabilities, service_error
from pubsub_aio.subscriber.messages import MessageCustody
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import Events, now, virtual

QUICKLY = PATIENCE / 10
GARBAGE = b"\xff" * 50


class Site:
    """A server that sends what it is told to, as a transport."""

    name = "site"
    can = Capabilities(streaming=True, server_flow_control=True, confirmations=True, pings=False)

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.settled: list[str] = []
        self.streams: list[SiteStream] = []

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        del timeout
        if rpc == "GetSubscription":
            name = schema.GetSubscriptionRequest.FromString(request).subscription
            return schema.Subscription(name=name, ack_deadline_seconds=10).SerializeToString()
        if rpc == "Acknowledge":
            self.settled += schema.AcknowledgeRequest.FromString(request).ack_ids
        if rpc == "ModifyAckDeadline":
            change = schema.ModifyAckDeadlineRequest.FromString(request)
            self.settled += [] if change.ack_deadline_seconds else change.ack_ids
        return b""

    def streaming_pull(self) -> SiteStream:
        self.streams.append(SiteStream())
        return self.streams[-1]

    def send(self, data: bytes | None = None) -> str:
        """Send something, or a response of one message; returns its ack id."""
        ack_id = f"ack {len(self.sent)}"
        if data is None:
            self.sent.append(ack_id)
            message = schema.PubsubMessage(data=ack_id.encode(), message_id=f"id of {ack_id}")
            received = schema.ReceivedMessage(ack_id=ack_id, message=message)
            data = schema.StreamingPullResponse(received_messages=[received]).SerializeToString()
        self.streams[-1].responses.put_nowait(data)
        return ack_id


class SiteStream:
    def __init__(self) -> None:
        self.responses: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def write(self, request: bytes) -> None:
        pass

    async def done_writing(self) -> None:
        self.cancel()

    async def read(self) -> bytes:
        response = await self.responses.get()
        if response is None:
            raise service_error("CANCELLED", "the stream has ended")
        return response

    def cancel(self) -> None:
        self.responses.put_nowait(None)


class Seen:
    """Acks messages, and notes when they came."""

    def __init__(self) -> None:
        self.ack_ids: list[str] = []
        self.times: list[float] = []

    async def __call__(self, message: Message) -> None:
        self.ack_ids.append(message.ack_id)
        self.times.append(now())
        message.ack()


@contextlib.asynccontextmanager
async def subscribed(
    emulator: MemoryEmulator, site: Site, seen: Seen, events: Events
) -> AsyncIterator[Subscription]:
    async with SubscriberClient(project=emulator.project, transport=site) as client:
        keep_alive = client.subscribe("worker", seen, on_event=events)
        await keep_alive.ready()
        yield keep_alive
        keep_alive.stop()
        await keep_alive


async def rush(site: Site, count: int = 2 * MANY) -> None:
    """Have so many responses come that the next one waits."""
    for _ in range(count):
        site.send()
        await asyncio.sleep(QUICKLY)
    await asyncio.sleep(PATIENCE)


@virtual
async def test_a_response_that_comes_alone_does_not_wait(emulator: MemoryEmulator) -> None:
    site, seen = Site(), Seen()
    async with subscribed(emulator, site, seen, Events()):
        sent_at = []
        for _ in range(3 * MANY):
            sent_at.append(now())
            site.send()
            await asyncio.sleep(PATIENCE)

    assert (seen.ack_ids, seen.times) == (site.sent, sent_at)


@virtual
async def test_all_of_a_rush_is_handed_over_in_order_and_soon(emulator: MemoryEmulator) -> None:
    site, seen = Site(), Seen()
    async with subscribed(emulator, site, seen, Events()):
        sent_at = []
        for _ in range(1_000):
            sent_at.append(now())
            site.send()
            await asyncio.sleep(QUICKLY)
        await asyncio.sleep(PATIENCE)

    waited = [came - sent for came, sent in zip(seen.times, sent_at, strict=True)]
    assert seen.ack_ids == site.sent == site.settled
    assert max(waited) == pytest.approx(PATIENCE)
    assert len({*seen.times}) < 200  # most of them did wait


@virtual
async def test_what_waits_is_handed_over_before_a_ping_is_answered(
    emulator: MemoryEmulator,
) -> None:
    """All that was sent before the answer counts as read, and nothing later may overtake it."""
    site, seen = Site(), Seen()
    async with subscribed(emulator, site, seen, Events()):
        await rush(site)
        ack_id, sent_at = site.send(), now()
        site.send(b"")
        await asyncio.sleep(PATIENCE)

    assert (seen.ack_ids[-1], seen.times[-1]) == (ack_id, sent_at)


@virtual
async def test_what_waits_when_it_is_stopped_goes_back(emulator: MemoryEmulator) -> None:
    site, seen = Site(), Seen()
    async with subscribed(emulator, site, seen, Events()) as keep_alive:
        await rush(site)
        waiting = [site.send() for _ in range(3)]
        await asyncio.sleep(QUICKLY)
        keep_alive.stop()

    assert not {*waiting} & {*seen.ack_ids}
    assert {*site.settled} == {*site.sent}


@pytest.mark.parametrize("behind", [0, 1, 100])
@virtual
async def test_a_response_that_cannot_be_read_costs_no_other(
    emulator: MemoryEmulator, behind: int
) -> None:
    site, seen, events = Site(), Seen(), Events()
    async with subscribed(emulator, site, seen, events):
        await rush(site)
        site.send()
        site.send(GARBAGE)
        for _ in range(behind):
            site.send()
        await asyncio.sleep(1)
        after = site.send()
        await asyncio.sleep(1)

    before = site.sent[: 2 * MANY + 1]
    assert seen.ack_ids[: len(before)] == before
    assert seen.ack_ids[-1] == after
    assert len(site.streams) == 2
    (reconnecting,) = [event for event in events.of("state") if event.state == "reconnecting"]
    assert "cannot be read" in reconnecting.detail


@virtual
async def test_a_fault_while_a_rush_is_taken_in_fails_the_subscription(
    emulator: MemoryEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    async with SubscriberClient(project=emulator.project, transport=site) as client:
        keep_alive = client.subscribe("worker", Seen())
        await keep_alive.ready()
        await rush(site)

        def broken(*_: object) -> bool:
            raise ZeroDivisionError("broken")

        monkeypatch.setattr(MessageCustody, "receive", broken)
        site.send()
        with pytest.raises(ZeroDivisionError, match="broken"):
            await keep_alive


@pytest.mark.parametrize("size", [0, 3_000])
@virtual
async def test_what_is_said_last_of_the_subscription_counts(
    emulator: MemoryEmulator, size: int
) -> None:
    """However much of it comes together, and however it is read."""
    site = Site()
    async with SubscriberClient(project=emulator.project, transport=site) as client:
        keep_alive = client.subscribe("worker", Seen())
        await keep_alive.ready()
        await rush(site)
        for once in (True, False):
            said = {"exactly_once_delivery_enabled": once}
            response = schema.StreamingPullResponse(subscription_properties=said)
            received = response.received_messages.add(ack_id=f"{once}")
            received.message.message_id = f"{once}"
            received.message.data = b"x" * (size + 1)
            site.send(response.SerializeToString())
        await asyncio.sleep(1)
        assert keep_alive.settings["lease_extension"].value == 10
        keep_alive.stop()
        await keep_alive

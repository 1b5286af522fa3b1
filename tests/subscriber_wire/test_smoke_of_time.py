"""What depends on time, once each in real time over the wire; virtual time has the details."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import threading
from datetime import timedelta

import pytest

from pubsub_aio import (
    ArrowBatch,
    FlowControl,
    LeaseExpiredError,
    Message,
    StreamPolicy,
    SubscriberClient,
)
from tests.subscriber_wire.conftest import WITHIN, Events, Received, Site, until

pytestmark = pytest.mark.only("embedded-grpc")  # others do not tell what became of a message

DEADLINE = 10  # the least that the service allows
HELD = 11.5
SHORT = FlowControl(max_duration_per_lease_extension=DEADLINE)


async def held_for_longer_than_its_deadline(site: Site, client: SubscriberClient) -> None:
    """It is renewed, and so comes once."""
    assert site.emulator
    topic, name = site.create_pair(ack_deadline_seconds=DEADLINE)
    (message_id,) = site.publish(topic, "a")
    received = Received()

    async def callback(message: Message) -> None:
        await asyncio.sleep(HELD)
        await received(message)

    client.subscribe(name, callback, flow_control=SHORT)
    await until(lambda: site.emulator and site.emulator.backlog(name) == 0, timeout=HELD + WITHIN)
    seen = site.emulator.message(message_id)

    assert len(seen.deliveries) == len(received.messages) == 1
    assert [one.effective for one in seen.acks] == [True]
    assert len(seen.modacks) >= 2
    assert all(one.effective and one.seconds == DEADLINE for one in seen.modacks)


async def a_batch_held_for_longer_than_its_deadline(site: Site, client: SubscriberClient) -> None:
    """It is renewed as a whole."""
    assert site.emulator
    topic, name = site.create_pair(ack_deadline_seconds=DEADLINE)
    ids = site.publish(topic, *"abc")

    async def callback(batch: ArrowBatch) -> None:
        await asyncio.sleep(HELD)
        batch.ack()

    client.subscribe_arrow(name, callback, flow_control=SHORT)
    await until(lambda: site.emulator and site.emulator.backlog(name) == 0, timeout=HELD + WITHIN)

    for message_id in ids:
        seen = site.emulator.message(message_id)
        assert len(seen.deliveries) == 1
        assert len(seen.modacks) >= 2


async def pulled_and_forgotten(site: Site, client: SubscriberClient) -> None:
    """Nobody renews it, and so it comes again: the server's deadlines are real."""
    assert site.emulator
    topic, name = site.create_pair(ack_deadline_seconds=DEADLINE)
    (message_id,) = site.publish(topic, "a")
    assert len(await client.pull(name)) == 1
    async with asyncio.timeout(DEADLINE + WITHIN):
        while not (again := await client.pull(name, timeout=WITHIN)):
            pass
    await again[0].ack_with_response()
    first, second = site.emulator.message(message_id).deliveries

    assert timedelta(seconds=DEADLINE - 1) < second.time - first.time < timedelta(seconds=15)


async def held_for_longer_than_is_allowed(site: Site, client: SubscriberClient) -> None:
    """It is nacked and comes again; the first callback goes on, and its ack is a no-op."""
    assert site.emulator
    topic, name = site.create_pair()
    (message_id,) = site.publish(topic, "a")
    events = Events()
    late: list[BaseException] = []
    calls = 0

    async def callback(message: Message) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            message.ack()
            return
        await until(lambda: calls == 2)
        try:
            await message.ack_with_response()
        except LeaseExpiredError as error:
            late.append(error)

    flow = FlowControl(max_lease_duration=1)
    client.subscribe(name, callback, flow_control=flow, on_event=events)
    await until(lambda: late and site.emulator and site.emulator.backlog(name) == 0)
    first, second = site.emulator.message(message_id).deliveries

    assert timedelta(seconds=0.9) < second.time - first.time < timedelta(seconds=8)
    assert 0 in [one.seconds for one in site.emulator.message(message_id).modacks]
    assert {"expired", "late"} <= {*events.kinds()}


SMOKES = [
    held_for_longer_than_its_deadline,
    pulled_and_forgotten,
    held_for_longer_than_is_allowed,
]
if importlib.util.find_spec("ptars") is not None:
    SMOKES.append(a_batch_held_for_longer_than_its_deadline)


async def test_leases_are_renewed_and_end(site: Site, client: SubscriberClient) -> None:
    """G23 G26 R34: what is held is kept alive, until it is held for too long."""
    rest = SubscriberClient(site.project, transport="rest", endpoint=f"http://{site.address}")
    async with rest, asyncio.TaskGroup() as tasks:
        for smoke in SMOKES:
            tasks.create_task(smoke(site, client))
            tasks.create_task(smoke(site, rest))


async def test_a_stream_that_gives_no_sign_of_life_is_opened_anew(
    site: Site, client: SubscriberClient
) -> None:
    """R7: on a server that has answered a ping before."""
    assert site.emulator
    topic, name = site.create_pair()
    callback, events = Received(), Events()
    policy = StreamPolicy(ping_interval=0.2, ping_timeout=0.2, first_delay=0.01)
    live = client.subscribe(name, callback, streams=policy, on_event=events)
    await live.ready()
    streams = functools.partial(site.emulator.streams, name)
    (before,) = streams()
    with site.emulator.faults.stall_streams(name):
        await until(lambda: "reconnecting" in events.states())
    await until(lambda: [one.opened for one in streams()] > [before.opened])
    site.publish(topic, "a")
    # What went to a stream that is given up meanwhile comes again after its deadline.
    await until(lambda: callback.data == [b"a"], timeout=DEADLINE + WITHIN)
    (after,) = streams()
    reconnecting = next(one for one in events if one.state == "reconnecting")

    assert "sign of life" in reconnecting.detail
    assert (before.client_id, before.opened < after.opened) == (after.client_id, True)
    assert live.health().ok


@pytest.mark.only("embedded")
async def test_a_connection_that_is_cut_is_made_anew(site: Site, client: SubscriberClient) -> None:
    """R27: nothing is lost, and it is told."""
    assert site.emulator
    topic, name = site.create_pair()
    callback, events = Received(), Events()
    policy = StreamPolicy(first_delay=0.01)
    live = client.subscribe(name, callback, streams=policy, on_event=events)
    site.publish(topic, "a")
    await until(lambda: callback.data == [b"a"])
    for number in range(2):
        assert site.emulator.faults.cut_connections() > 0
        await until(lambda: events.states().count("reconnecting") > number)  # noqa: B023
        await until(lambda: live.state == "running")
        site.emulator.publish(topic, b"%d" % number)
        await until(lambda: callback.data[-1] == b"%d" % number)  # noqa: B023
    await until(lambda: live.health().ok)
    await until(lambda: site.emulator and site.emulator.backlog(name) == 0)

    assert callback.data == [b"a", b"0", b"1"]
    assert not live.done()


async def test_a_callback_that_blocks_the_loop_is_reported(
    site: Site, client: SubscriberClient
) -> None:
    """G21: for leases are not renewed meanwhile."""
    topic, name = site.create_pair()
    events = Events()

    async def callback(message: Message) -> None:
        await asyncio.sleep(0)
        threading.Event().wait(1.3)
        message.ack()

    client.subscribe(name, callback, on_event=events)
    site.publish(topic, "a")
    await until(lambda: "blocked" in events.kinds())
    (blocked,) = [event for event in events if event.kind == "blocked"]

    assert "1." in blocked.detail

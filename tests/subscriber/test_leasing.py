"""What is held is kept alive, for as long as it may be, and settled once."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import weakref
from collections.abc import Callable

import pytest

from pubsub_aio import (
    AlreadySettledError,
    ConfigError,
    FlowControl,
    LeaseExpiredError,
    Message,
    ShutdownPolicy,
)
from pubsub_aio._wire import schema
from pubsub_aio.subscriber.messages import MessageCustody
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.sender import Sender
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    DAY,
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    Events,
    Tapped,
    at,
    client_of,
    now,
    publish,
    virtual,
)


async def hold(_: Message) -> None:
    """Return without settling it."""


async def forever(_: Message) -> None:
    await asyncio.Event().wait()


def modacks(emulator: MemoryEmulator, message_id: str) -> list[tuple[float, float]]:
    """When its deadline was moved, and by how much."""
    return [(round(at(m.time), 2), m.seconds) for m in emulator.message(message_id).modacks]


# Held messages


@pytest.mark.parametrize("do", [hold, forever])
@virtual
async def test_what_is_held_for_hours_never_expires_on_the_server(
    emulator: MemoryEmulator, do: object
) -> None:
    """G22: what is neither acked nor nacked stays leased, whether its callback ended or not."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 3)
    calls = Calls(do)  # type: ignore[arg-type]
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=FlowControl(max_lease_duration=DAY))
        await asyncio.sleep(3 * HOUR)
        assert live.health().leased == 3
        assert emulator.outstanding(WORKER) == 3
        for message in calls.messages:
            message.ack()
        await asyncio.sleep(1)
        assert live.health().leased == 0
        live.stop()
        live.stop()

    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 3
    assert [[a.effective for a in emulator.message(one).acks] for one in ids] == [[True]] * 3
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_renewals_come_in_time_to_be_sent_again(emulator: MemoryEmulator) -> None:
    """Every extension is asked for well before the one before it ends."""
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, hold)
        await asyncio.sleep(10 * MINUTE)

    seen = [(time, seconds) for time, seconds in modacks(emulator, one) if seconds]
    assert len(seen) > 60
    for (time, seconds), (later, _) in itertools.pairwise(seen):
        assert later - time <= 0.8 * seconds


@virtual
async def test_a_held_message_is_extended_soon_after_it_came(emulator: MemoryEmulator) -> None:
    """The receipt modack: the subscription's own deadline does not matter after that."""
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=600)
    (one,) = publish(emulator, 1)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, hold)
        await asyncio.sleep(1)
        ((time, seconds),) = modacks(emulator, one)

    assert time <= 0.2
    assert seconds == 10


@virtual
async def test_what_is_acked_at_once_is_not_extended(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 50)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, Calls())
        await asyncio.sleep(MINUTE)

    assert [modacks(emulator, one) for one in ids] == [[]] * 50


@virtual
async def test_a_lost_renewal_is_sent_again_before_the_lease_ends(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, hold)
        await asyncio.sleep(1)
        for _ in range(20):
            emulator.faults.fail("ModifyAckDeadline", "UNAVAILABLE", times=2)
            await asyncio.sleep(30)

    assert len(emulator.message(one).deliveries) == 1


@virtual
async def test_messages_that_wait_to_be_leased_are_kept_alive_too(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 12)
    calls = Calls(hold)
    flow = FlowControl(max_messages=10, max_request_batch_size=4, max_lease_duration=DAY)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(HOUR)
        assert (live.health().leased, live.health().received) == (8, 4)
        for message in calls.messages:
            message.ack()
        await asyncio.sleep(1)
        assert (live.health().leased, live.health().received) == (4, 0)

    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 12


# By how much


async def ack_times(
    emulator: MemoryEmulator, seconds: float, flow: FlowControl, *, exactly_once: bool = False
) -> float:
    """By how much a lease is extended where messages take so long to be acked."""

    async def work(message: Message) -> None:
        await asyncio.sleep(seconds)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=exactly_once)
    publish(emulator, 20)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work, flow_control=flow)
        await asyncio.sleep(2 * seconds + 10)
        (one,) = publish(emulator, 1)
        await asyncio.sleep(1)
        last = modacks(emulator, one)[-1][1]
        assert last == live.settings["lease_extension"].value
        live.stop()
    return last


@pytest.mark.parametrize(
    ("seconds", "extension"), [(1, 10), (9.5, 10), (42, 42), (300.2, 301), (2_000, 600)]
)
@virtual
async def test_an_extension_is_the_99th_percentile_of_ack_times(
    emulator: MemoryEmulator, seconds: float, extension: float
) -> None:
    """Within 10 and 600 seconds."""
    assert await ack_times(emulator, seconds, FlowControl()) == pytest.approx(extension, abs=1)


@pytest.mark.parametrize(
    ("seconds", "least", "most", "extension"),
    [(1, 30, 600, 30), (300, 10, 120, 120), (50, 20, 100, 50)],
)
@virtual
async def test_an_extension_is_bounded_by_the_flow_control(
    emulator: MemoryEmulator, seconds: float, least: float, most: float, extension: float
) -> None:
    flow = FlowControl(
        min_duration_per_lease_extension=least, max_duration_per_lease_extension=most
    )
    assert await ack_times(emulator, seconds, flow) == pytest.approx(extension, abs=1)


@pytest.mark.parametrize(("seconds", "extension"), [(1, 60), (90, 90)])
@virtual
async def test_with_exactly_once_an_extension_is_a_minute_at_least(
    emulator: MemoryEmulator, seconds: float, extension: float
) -> None:
    seen = await ack_times(emulator, seconds, FlowControl(), exactly_once=True)
    assert seen == pytest.approx(extension, abs=1)


@virtual
async def test_one_slow_message_of_a_thousand_does_not_make_extensions_longer(
    emulator: MemoryEmulator,
) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(500 if message.data == b"7" else 0)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1_000)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(600)
        assert live.settings["lease_extension"].value == 10


@virtual
async def test_three_slow_messages_of_a_hundred_make_extensions_longer(
    emulator: MemoryEmulator,
) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(100 if int(message.data) < 3 else 0)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(150)
        assert live.settings["lease_extension"].value in (100, 101)


# Leases that end


@virtual
async def test_after_max_lease_duration_a_message_is_nacked_and_its_callback_goes_on(
    emulator: MemoryEmulator,
) -> None:
    """G26: the client nacks and does not drop; the slot is free; a late ack is a reported no-op."""
    late: list[object] = []

    async def work(message: Message) -> None:
        if len(calls.began) > 1:
            message.ack()
            return
        await asyncio.sleep(100)
        message.ack()
        try:
            await message.ack_with_response()
        except LeaseExpiredError as error:
            late.append(error.ack_id == message.ack_id)

    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls, events = Calls(work), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER, calls, flow_control=FlowControl(max_lease_duration=25), on_event=events
        )
        await asyncio.sleep(24.9)
        assert (live.health().leased, live.health().overdue) == (1, 0)
        await asyncio.sleep(10)
        health = live.health()
        assert (health.leased, health.overdue, health.running) == (0, 1, 1)
        await asyncio.sleep(90)
        assert (live.health().overdue, live.health().running) == (0, 0)

    assert calls.times == pytest.approx([0, 25], abs=0.1)
    assert calls.ended == [b"0", b"0"]
    assert late == [True]
    assert len(events.of("expired")) == 1
    assert len(events.of("late")) == 2
    assert [(a.effective, round(at(a.time))) for a in emulator.message(one).acks] == [(True, 25)]
    nacks = [time for time, seconds in modacks(emulator, one) if not seconds]
    assert nacks == pytest.approx([25], abs=0.1)


@virtual
async def test_a_message_can_be_dropped_instead_when_its_lease_ends(
    emulator: MemoryEmulator,
) -> None:
    """G26: `on_lease_expiry="drop"`; it comes again when its ack deadline has passed."""

    async def work(message: Message) -> None:
        if len(calls.began) > 1:
            message.ack()
        else:
            await asyncio.sleep(200)

    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER,
            calls,
            flow_control=FlowControl(max_lease_duration=25),
            on_lease_expiry="drop",
        )
        await asyncio.sleep(26)
        assert live.health().leased == 0
        await asyncio.sleep(MINUTE)

    assert [seconds for _, seconds in modacks(emulator, one) if not seconds] == []
    assert 25 < calls.times[1] <= 36
    assert calls.data == [b"0", b"0"]


@virtual
async def test_a_message_whose_callback_returned_expires_too(emulator: MemoryEmulator) -> None:
    """G22, G26: nobody works on it, so nothing is overdue."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=FlowControl(max_lease_duration=30))
        await asyncio.sleep(95)
        assert live.health().overdue == 0

    assert calls.times == pytest.approx([0, 30, 60, 90], abs=0.3)


@virtual
async def test_an_expired_message_frees_its_slot(emulator: MemoryEmulator) -> None:
    """G26: with the seed's own example, one message at a time and ten seconds each."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls = Calls(forever)
    flow = FlowControl(
        max_messages=1,
        resume_threshold=0.8,
        max_request_batch_size=1,
        max_request_batch_latency=0.1,
        max_lease_duration=10,
    )
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow, max_overdue_callbacks=10)
        await asyncio.sleep(5)
        assert live.health().leased == 1
        await asyncio.sleep(10)
        assert live.health().leased == 1
        assert live.health().overdue == 1
        await asyncio.sleep(10)
        assert live.health().overdue == 2
        live.stop()
        live.stop()

    assert calls.times == pytest.approx([0, 10, 20], abs=0.2)


@pytest.mark.parametrize("cap", [None, 3])
@virtual
async def test_too_many_overdue_callbacks_stop_the_leasing_until_they_end(
    emulator: MemoryEmulator, cap: int | None
) -> None:
    """G26: capped, `max_messages` by default; at the cap `health()` says why nothing is leased."""
    end = asyncio.Event()

    async def work(message: Message) -> None:
        if len(calls.began) <= 4:
            await end.wait()
        else:
            message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    calls, events = Calls(work), Events()
    flow = FlowControl(
        max_messages=4, resume_threshold=1, max_request_batch_size=1, max_lease_duration=20
    )
    async with client_of(emulator) as client:
        if cap is None:
            live = client.subscribe(WORKER, calls, flow_control=flow, on_event=events)
        else:
            live = client.subscribe(
                WORKER, calls, flow_control=flow, on_event=events, max_overdue_callbacks=cap
            )
        await asyncio.sleep(19)
        assert live.health().ok
        await asyncio.sleep(HOUR)
        health = live.health()
        assert not health.ok
        assert health.overdue == 4
        assert "4 callbacks run on" in "; ".join(health.reasons)
        assert health.leased == 0
        assert len(calls.began) == 4
        assert len(events.of("overdue")) == 1
        end.set()
        await asyncio.sleep(5)
        assert live.health().ok
        assert live.health().overdue == 0

    assert emulator.backlog(WORKER) == 0


@virtual
async def test_ordered_messages_that_expire_before_their_turn_are_not_overdue(
    emulator: MemoryEmulator,
) -> None:
    """G26: only callbacks that run count against the cap."""
    end = asyncio.Event()

    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            await end.wait()
        message.ack()

    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    publish(emulator, 6, key="a")
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER, calls, flow_control=FlowControl(max_lease_duration=20), max_overdue_callbacks=3
        )
        await asyncio.sleep(25)
        assert live.health().overdue == 1
        end.set()
        await asyncio.sleep(5)
        assert live.health().overdue == 0
        assert live.health().ok

    assert calls.data == [b"a0", b"a0", b"a1", b"a2", b"a3", b"a4", b"a5"]


@pytest.mark.parametrize(("slow", "warned"), [(0, False), (1, False), (10, True)])
@virtual
async def test_it_warns_when_the_95th_percentile_exceeds_max_lease_duration(
    emulator: MemoryEmulator, slow: int, warned: bool
) -> None:
    """G28: `max_lease_duration` should be no lower than the 95th percentile of what they take."""
    seen: set[bytes] = set()

    async def work(message: Message) -> None:
        first = message.data not in seen
        seen.add(message.data)
        if first and int(message.data) < slow:
            await asyncio.sleep(40)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    events = Events()
    async with client_of(emulator) as client:
        client.subscribe(
            WORKER, work, flow_control=FlowControl(max_lease_duration=30), on_event=events
        )
        publish(emulator, 100)
        await asyncio.sleep(MINUTE)

    assert len(events.of("slow")) == int(warned)
    assert all("max_lease_duration" in event.detail for event in events.of("slow"))


@virtual
async def test_the_warning_comes_even_if_every_message_is_slow(emulator: MemoryEmulator) -> None:
    """G28: none is acked in time, and still it is told."""

    async def work(message: Message) -> None:
        await asyncio.sleep(31)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 30)
    events = Events()
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER, work, flow_control=FlowControl(max_lease_duration=30), on_event=events
        )
        await asyncio.sleep(10 * MINUTE)
        live.stop()
        live.stop()

    assert events.of("slow")


# Leasing and execution


@virtual
async def test_leasing_goes_on_while_callbacks_run(emulator: MemoryEmulator) -> None:
    """G21: new messages are leased and begun although others are being worked on."""

    async def work(message: Message) -> None:
        await asyncio.sleep(MINUTE)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        for _ in range(10):
            publish(emulator, 1)
            await asyncio.sleep(1)
        await asyncio.sleep(2 * MINUTE)

    assert calls.times == pytest.approx([float(n) for n in range(10)], abs=0.05)
    assert calls.peak == 10


@virtual
async def test_no_message_waits_for_a_round_to_fill(emulator: MemoryEmulator) -> None:
    """G19, G20: a round stays open for the latency, and each message is handed over as it comes."""
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()
    flow = FlowControl(max_request_batch_size=100, max_request_batch_latency=10)
    async with client_of(emulator) as client:
        await client.subscribe(WORKER, calls, flow_control=flow).ready()
        for _ in range(5):
            publish(emulator, 1)
            await asyncio.sleep(1)

    assert calls.times == pytest.approx([0, 1, 2, 3, 4], abs=0.01)


@virtual
async def test_a_round_takes_at_most_a_batch(emulator: MemoryEmulator) -> None:
    """G19: one at least, and then up to the batch size, although only one was missing."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    calls = Calls(hold)
    flow = FlowControl(max_messages=10, resume_threshold=1, max_request_batch_size=4)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(1)
        assert live.health().leased == 12
        for message in calls.messages[:2]:
            message.ack()
        await asyncio.sleep(1)
        assert live.health().leased == 10
        calls.messages[2].ack()
        await asyncio.sleep(1)
        assert live.health().leased == 13


# The server's side


@virtual
async def test_what_nobody_extends_comes_again_after_the_ack_deadline(
    emulator: MemoryEmulator,
) -> None:
    """G23: a dropped message is leased again once its deadline has passed."""

    async def work(message: Message) -> None:
        message.drop()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(35)
        assert live.health().leased == 0

    assert calls.times == pytest.approx([0, 10, 20, 30], abs=0.3)


@virtual
async def test_an_ack_removes_the_message_at_once(emulator: MemoryEmulator) -> None:
    """G24: from the server within moments, and from the client's count immediately."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        calls.messages[0].ack()
        assert live.health().leased == 0
        await asyncio.sleep(0.05)
        assert emulator.backlog(WORKER) == 0
        await asyncio.sleep(HOUR)

    assert len(calls.began) == 1


@virtual
async def test_a_nack_brings_the_message_again_at_once(emulator: MemoryEmulator) -> None:
    """G25: to whoever is there, and this client forgets it."""

    async def work(message: Message) -> None:
        if len(calls.began) < 4:
            message.nack()
            assert live.health().leased == 0
        else:
            message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert calls.times == pytest.approx([0, 0, 0, 0], abs=0.1)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_delivery_is_at_least_once(emulator: MemoryEmulator) -> None:
    """G27: best effort: an ack that got lost brings the message again, and it is acked then."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    emulator.faults.lose_acks(WORKER, times=5)
    calls = Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert sorted(set(calls.data)) == sorted(str(n).encode() for n in range(20))
    assert len(calls.began) == 25
    assert emulator.backlog(WORKER) == 0


# Copies


@virtual
async def test_a_copy_of_a_held_message_is_recognised(emulator: MemoryEmulator) -> None:
    """The callback runs once, and its ack settles the message by the newer delivery's id."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 10)
    emulator.faults.duplicate(WORKER, times=10)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(HOUR / 2)
        assert live.health().leased == 10
        assert live.health().counts["copies"] == 10
        for message in calls.messages:
            await message.ack_with_response()
        await asyncio.sleep(MINUTE)

    assert len(calls.began) == 10
    assert [len(emulator.message(one).deliveries) for one in ids] == [2] * 10
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_copies_that_come_after_a_stall_are_recognised(emulator: MemoryEmulator) -> None:
    """Deadlines passed while nothing could be sent; what is still held is not begun again."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 10)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        with emulator.faults.stall_connections():
            await asyncio.sleep(5 * MINUTE)
        await asyncio.sleep(5 * MINUTE)
        assert live.health().leased == 10
        assert len(calls.began) == 10
        for message in calls.messages:
            message.ack()
        await asyncio.sleep(1)
        assert emulator.backlog(WORKER) == 0
        await asyncio.sleep(HOUR)

    assert len(calls.began) == 10
    assert all(len(emulator.message(one).deliveries) > 1 for one in ids)


@virtual
async def test_a_message_that_was_settled_is_no_copy_when_it_comes_again(
    emulator: MemoryEmulator,
) -> None:
    """Others that came with it are still held; it is begun again all the same."""

    async def work(message: Message) -> None:
        if message.data == b"3":
            message.nack(delay=len(calls.began))

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(5 * MINUTE)
        assert live.health().leased in (9, 10)

    assert calls.data.count(b"3") > 5
    assert sorted({*calls.data} - {b"3"}) == sorted(str(n).encode() for n in range(10) if n != 3)
    assert len(calls.data) - calls.data.count(b"3") == 9


# Settling


@virtual
async def test_a_callback_that_raises_is_logged_and_its_message_nacked(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            raise ValueError("no luck")
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls = Calls(work)
    with caplog.at_level(logging.ERROR, "pubsub_aio"):
        async with client_of(emulator) as client:
            live = client.subscribe(WORKER, calls)
            await asyncio.sleep(5)
            publish(emulator, 1)
            await asyncio.sleep(5)
            assert live.state == "running"
            assert live.health().counts["raised"] == 1

    assert calls.times == pytest.approx([0, 0, 5], abs=0.1)
    (record,) = caplog.records
    assert one in record.getMessage()
    assert record.exc_info
    assert isinstance(record.exc_info[1], ValueError)


@virtual
async def test_a_callback_that_raises_after_its_ack_does_not_undo_it(
    emulator: MemoryEmulator,
) -> None:
    async def work(message: Message) -> None:
        message.ack()
        raise ValueError

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert len(calls.began) == 1
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_auto_ack_acks_when_the_callback_returns(emulator: MemoryEmulator) -> None:
    """Not before, not if it raised, and not what it settled itself."""

    async def work(message: Message) -> None:
        await asyncio.sleep(20)
        if calls.data.count(message.data) == 1:
            if message.data == b"1":
                raise ValueError
            if message.data == b"2":
                message.nack(delay=30)

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls, auto_ack=True)
        await asyncio.sleep(19)
        assert emulator.backlog(WORKER) == 3
        await asyncio.sleep(2)
        assert emulator.backlog(WORKER) == 2
        await asyncio.sleep(20)
        assert emulator.backlog(WORKER) == 1
        await asyncio.sleep(MINUTE)

    began = sorted(calls.began, key=lambda call: (call[1], call[0]))
    assert [data for _, data in began] == [b"0", b"1", b"1", b"2", b"2"]
    assert [time for time, _ in began] == pytest.approx([0, 0, 20, 0, 50], abs=0.2)
    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("delay", [1, 29.2, 30, 600])
@virtual
async def test_a_delayed_nack_brings_the_message_after_the_delay(
    emulator: MemoryEmulator, delay: float
) -> None:
    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            message.nack(delay=delay)
        else:
            message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(0.9)
        assert live.health().leased == 0
        await asyncio.sleep(HOUR)

    assert len(calls.began) == 2
    assert delay <= calls.times[1] <= delay + 1.1


@virtual
async def test_a_renewal_under_way_does_not_undo_a_delayed_nack(emulator: MemoryEmulator) -> None:
    """It was sent before, and takes effect later."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5.5)
        emulator.faults.delay("ModifyAckDeadline", 1)
        await asyncio.sleep(1)
        calls.messages[0].nack(delay=3)
        await asyncio.sleep(MINUTE)

    assert 9.5 <= calls.times[1] <= 12


@pytest.mark.parametrize("delay", [-1, 600.5, float("nan")])
@virtual
async def test_a_delay_out_of_bounds_is_refused_and_settles_nothing(
    emulator: MemoryEmulator, delay: float
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        (message,) = calls.messages
        with pytest.raises(ConfigError):
            message.nack(delay=delay)
        with pytest.raises(ConfigError):
            message.nack_with_response(delay=delay)
        with pytest.raises(ConfigError):
            message.modify_ack_deadline(delay)
        assert live.health().leased == 1
        await message.ack_with_response()


@virtual
async def test_a_deadline_can_be_moved_and_the_message_stays_held(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        (message,) = calls.messages
        message.modify_ack_deadline(500)
        await message.modify_ack_deadline_with_response(300)
        assert [seconds for _, seconds in modacks(emulator, one)][-2:] == [500, 300]
        assert live.health().leased == 1
        await asyncio.sleep(MINUTE * 20)
        assert len(calls.began) == 1
        await message.modify_ack_deadline_with_response(0)
        await asyncio.sleep(1)

    assert len(calls.began) == 2


@virtual
async def test_a_short_deadline_does_not_begin_the_callback_again(
    emulator: MemoryEmulator,
) -> None:
    """H6: it is shorter than what is left until the next renewal, which so comes sooner."""
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        for _ in range(20):
            await asyncio.sleep(7)
            calls.messages[0].modify_ack_deadline(1)
        assert live.health().leased == 1
        await calls.messages[0].ack_with_response()
        await asyncio.sleep(MINUTE)

    assert len(calls.began) == len(emulator.message(one).deliveries) == 1
    assert emulator.backlog(WORKER) == 0


@virtual
@pytest.mark.parametrize("takes", [0.15, 0.5, 3.0])
async def test_a_short_deadline_that_comes_late_is_renewed_in_time(
    emulator: MemoryEmulator, takes: float
) -> None:
    """H6: a renewal that was sent after it has overtaken it."""

    class Slow(Tapped):
        async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
            if rpc == "ModifyAckDeadline":
                asked = schema.ModifyAckDeadlineRequest.FromString(request)
                await asyncio.sleep(takes if asked.ack_deadline_seconds == 11 else 0)
            return await super().call(rpc, request, timeout=timeout)

    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    flow = FlowControl(min_duration_per_lease_extension=60)

    async def work(message: Message) -> None:
        message.modify_ack_deadline(11)
        await asyncio.sleep(5 * MINUTE)
        message.ack()

    async with client_of(emulator, Slow(emulator.transport())) as client:
        client.subscribe(WORKER, work, flow_control=flow)
        await asyncio.sleep(6 * MINUTE)

    assert [seconds for _, seconds in modacks(emulator, one)][:2] == [60, 11]
    assert len(emulator.message(one).deliveries) == 1


@virtual
async def test_only_the_first_settlement_counts(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls, events = Calls(hold), Events()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls, on_event=events)
        await asyncio.sleep(1)
        (message,) = calls.messages
        message.ack()
        message.ack()
        message.nack()
        message.drop()
        message.modify_ack_deadline(20)
        for again in (
            message.ack_with_response(),
            message.nack_with_response(),
            message.modify_ack_deadline_with_response(20),
        ):
            with pytest.raises(AlreadySettledError) as caught:
                await again
            assert caught.value.ack_id == message.ack_id
        await asyncio.sleep(MINUTE)

    assert len(emulator.message(one).acks) == 1
    assert not [seconds for _, seconds in modacks(emulator, one) if seconds in (0, 20)]
    assert not events.of("late")
    assert len(calls.began) == 1


@virtual
async def test_messages_can_be_settled_in_another_thread(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 12)
    settled: list[str] = []

    def settle(message: Message) -> None:
        match int(message.data) % 4:
            case 0:
                message.ack()
            case 1:
                message.ack_with_response().result(timeout=10)
            case 2:
                message.nack(delay=600)
            case _:
                message.modify_ack_deadline(100)
                message.drop()
        settled.append(message.message_id)

    async def work(message: Message) -> None:
        await asyncio.to_thread(settle, message)

    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(5)
        assert live.health().leased == 0
        assert live.health().counts["acked"] == 6

    assert len(settled) == 12
    assert emulator.backlog(WORKER) == 6


@virtual
async def test_who_stops_waiting_for_a_confirmation_does_not_take_the_ack_back(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    emulator.faults.delay("Acknowledge", 5)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        confirmation = calls.messages[0].ack_with_response()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await confirmation
        assert now() == pytest.approx(2, abs=0.01)
        await confirmation
        assert now() == pytest.approx(6, abs=0.1)

    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("settle", [Message.ack, Message.nack])
@virtual
async def test_what_is_done_to_a_message_is_done_to_each_of_its_deliveries(
    emulator: MemoryEmulator, settle: Callable[[Message], None]
) -> None:
    """H6: they come by several streams; which of them is the newest cannot be told."""
    sender = Sender(emulator.transport(), "projects/p/subscriptions/s", flush_at=100)
    custody = MessageCustody(sender, Options(), lambda *_: None)
    handed: list[Message] = []
    custody.deliver = handed.extend
    for ack_id in ("1", "3", "2"):
        response = schema.StreamingPullResponse(subscription_properties={})
        response.received_messages.add(ack_id=ack_id).message.message_id = "a"
        custody.receive([response.SerializeToString()])
    (message,) = handed
    (at_once,) = sender.outbox.take(now=now())
    assert at_once.ids == ["3", "2"]  # that their leases last, until all are renewed together
    await asyncio.sleep(0.2)
    (renewal,) = sender.outbox.take(now=now())
    settle(message)
    (settled,) = sender.outbox.take(now=now())
    custody.stop()

    assert sorted(renewal.ids) == sorted(settled.ids) == ["1", "2", "3"]
    assert not custody._copies


@virtual
async def test_what_was_settled_is_not_kept_because_a_copy_came_once(
    emulator: MemoryEmulator,
) -> None:
    """R25: copies are told from new messages by those that are held, and by no others."""
    emulator.create_subscription(WORKER, TOPIC)
    alive: weakref.WeakSet[Message] = weakref.WeakSet()

    async def work(message: Message) -> None:
        alive.add(message)
        await asyncio.sleep(1)
        message.ack()

    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await live.ready()
        emulator.faults.duplicate(WORKER)
        for _ in range(10):
            publish(emulator, 10)
            await asyncio.sleep(0.1)
        await asyncio.sleep(MINUTE)
        gc.collect()
        assert live.health().counts["copies"] == 1
        assert not alive


@virtual
async def test_what_a_callback_left_and_the_next_acked_is_remembered_by_nobody(
    emulator: MemoryEmulator,
) -> None:
    """Although acks were being gathered when it was left."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    alive: weakref.WeakSet[Message] = weakref.WeakSet()
    left: list[Message] = []

    async def work(message: Message) -> None:
        alive.add(message)
        if message.data == b"1":
            left.append(message)
            return
        message.ack()
        if message.data == b"2":
            left.pop().ack()

    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await live.ready()
        await asyncio.sleep(1)
        assert live.health().counts["acked"] == 3
        gc.collect()
        assert not alive


@virtual
async def test_leases_are_kept_although_the_server_takes_no_acks(
    emulator: MemoryEmulator,
) -> None:
    """However many acks wait, and however long each is tried."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10)
    emulator.faults.delay("Acknowledge", MINUTE, times=1_000)
    held: list[Message] = []

    async def work(message: Message) -> None:
        if len(held) < 10:
            held.append(message)
        else:
            message.ack()

    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work, shutdown=ShutdownPolicy(flush_timeout=1))
        for _ in range(2_000):
            publish(emulator, 3)
            await asyncio.sleep(0.02)
        health = live.health()

    assert health.leased == 10
    assert not health.counts.get("copies")


@virtual
async def test_extensions_gather_while_the_server_is_slow(emulator: MemoryEmulator) -> None:
    """Each message by itself would take more calls than there can be."""
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.delay("ModifyAckDeadline", 3, times=1_000)

    async def work(message: Message) -> None:
        await asyncio.sleep(40)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        for _ in range(800):
            publish(emulator, 1)
            await asyncio.sleep(0.01)
        await asyncio.sleep(MINUTE)
        counts = live.health().counts

    assert len(calls.ended) == counts["received"] == counts["acked"] == 800

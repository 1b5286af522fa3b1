"""Streams that end, hang or cannot be opened, and what a subscription says of it."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket

import pytest

from pubsub_aio import (
    ClosedError,
    FlowControl,
    Message,
    NotFoundError,
    PermissionDeniedError,
    ReconnectError,
    ServiceError,
    Setting,
    StartupError,
    StreamPolicy,
    UnavailableError,
)
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    Events,
    Tapped,
    at,
    burn,
    client_of,
    delete,
    now,
    publish,
    update,
    virtual,
)


async def hold(_: Message) -> None:
    """Return without settling it."""


# Streams that end


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "ABORTED", "DEADLINE_EXCEEDED"])
@virtual
async def test_a_stream_that_is_cut_is_reopened_by_the_same_client(
    emulator: MemoryEmulator, code: str
) -> None:
    """R35: a stable client id, so that the server knows what it holds."""
    emulator.create_subscription(WORKER, TOPIC)
    calls, events = Calls(), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await live.ready()
        ids = set()
        for _ in range(5):
            (stream,) = emulator.streams(WORKER)
            ids.add(stream.client_id)
            assert emulator.faults.cut_streams(code=code) == 1
            publish(emulator, 1)
            await asyncio.sleep(MINUTE)
        assert live.health().ok
        assert isinstance(live.health().last_error, ServiceError)

    assert len(ids) == 1
    assert len(calls.began) == 5
    assert events.states == [
        *("running", *("reconnecting", "running") * 5),
        *("stopping", "stopped"),
    ]
    lost = [event for event in events.events if event.state == "reconnecting"]
    assert all(isinstance(event.error, ServiceError) for event in lost)
    assert all(code in event.detail for event in lost)


@virtual
async def test_client_ids_name_host_process_and_number_and_are_never_shared(
    emulator: MemoryEmulator,
) -> None:
    """R35: `host@pid@index@unique`."""
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        first = client.subscribe(WORKER, hold, streams=StreamPolicy(streams=3))
        second = client.subscribe(WORKER, hold)
        await asyncio.gather(first.ready(), second.ready())
        await asyncio.sleep(1)
        ids = [stream.client_id for stream in emulator.streams(WORKER)]
        named = first.settings["client_ids"].value

    assert len(set(ids)) == 4
    assert isinstance(named, tuple)
    assert set(named) < set(ids)
    for one in ids:
        host, pid, index, unique = one.rsplit("@", 3)
        assert (host, pid) == (socket.gethostname(), str(os.getpid()))
        assert index.isdigit()
        assert len(unique) >= 8


@virtual
async def test_the_end_of_a_streams_life_is_no_trouble(emulator: MemoryEmulator) -> None:
    """The service ends every stream after half an hour; nothing held is lost or comes again."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 3)
    calls, events = Calls(hold), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER, calls, on_event=events, flow_control=FlowControl(max_lease_duration=9 * HOUR)
        )
        await asyncio.sleep(3.1 * HOUR)
        assert events.states.count("reconnecting") >= 5
        assert live.health().ok
        assert live.health().leased == 3
        for message in calls.messages:
            message.ack()

    assert [len(emulator.message(one).deliveries) for one in ids] == [1, 1, 1]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_connections_that_are_cut_are_made_again(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        for _ in range(20):
            publish(emulator, 5)
            emulator.faults.cut_connections()
            await asyncio.sleep(3)
        await asyncio.sleep(MINUTE)
        assert live.health().ok

    assert len(calls.began) >= 100
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_several_streams_share_the_work_and_each_is_kept_alive(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls, events = Calls(), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, streams=StreamPolicy(streams=4), on_event=events)
        await live.ready()
        await asyncio.sleep(1)
        before = {stream.client_id for stream in emulator.streams(WORKER)}
        assert live.health().streams == 4
        emulator.faults.cut_streams()
        await asyncio.sleep(5)
        assert {stream.client_id for stream in emulator.streams(WORKER)} == before
        assert live.health().streams == 4
        publish(emulator, 100)
        await asyncio.sleep(5)
        live.stop()
        await live
        assert emulator.streams(WORKER) == []

    assert len(before) == 4
    assert len(calls.began) == 100


@virtual
async def test_with_one_of_several_streams_left_it_is_running(emulator: MemoryEmulator) -> None:
    """Only one of two can be opened again for a while."""
    emulator.create_subscription(WORKER, TOPIC)
    calls, events = Calls(), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, streams=StreamPolicy(streams=2), on_event=events)
        await live.ready()
        await asyncio.sleep(1)
        emulator.faults.cut_streams()
        emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=9)
        await asyncio.sleep(10 * MINUTE)
        assert live.health().streams == 2
        assert live.health().ok

    assert events.states[:3] == ["running", "reconnecting", "running"]


# Signs of life


@pytest.mark.parametrize("direction", ["both", "requests", "responses"])
@virtual
async def test_a_stream_that_hangs_is_noticed_and_reopened(
    emulator: MemoryEmulator, direction: str
) -> None:
    """R7: a ping every 30 s; one that is not answered within 15 s means a dead stream."""
    emulator.create_subscription(WORKER, TOPIC)
    calls, events, transport = Calls(), Events(), Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await asyncio.sleep(100)
        assert len(transport.opened) == 1
        stall = emulator.faults.stall_streams(direction=direction)  # type: ignore[arg-type]
        began = now()
        await asyncio.sleep(46)
        reopened = [time - began for time, _ in transport.opened[1:]]
        assert len(reopened) == 1
        assert 15 <= reopened[0] <= 45.2
        stall.resume()
        publish(emulator, 1)
        await asyncio.sleep(MINUTE)
        assert live.health().ok

    first, second = (first.client_id for _, first in transport.opened)
    assert first == second
    assert len(calls.began) == 1
    (lost,) = (event for event in events.events if event.state == "reconnecting")
    assert "no sign of life" in lost.detail


@virtual
async def test_an_idle_stream_that_answers_stays_open(emulator: MemoryEmulator) -> None:
    """R7: nothing happens for 29 minutes, and that is fine."""
    emulator.create_subscription(WORKER, TOPIC)
    transport, events = Tapped(emulator.transport()), Events()
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, hold, on_event=events)
        await asyncio.sleep(29 * MINUTE)
        assert live.health().ok

    assert len(transport.opened) == 1
    assert events.states == ["running", "stopping", "stopped"]


@virtual
async def test_a_server_that_never_answered_a_ping_is_not_judged_by_it(
    emulator: MemoryEmulator,
) -> None:
    """R7: some servers answer none."""
    emulator.create_subscription(WORKER, TOPIC)
    calls, transport = Calls(), Tapped(emulator.transport(), pongs=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(29 * MINUTE)
        publish(emulator, 1)
        await asyncio.sleep(1)
        assert live.health().ok

    assert len(transport.opened) == 1
    assert len(calls.began) == 1


@virtual
async def test_a_client_that_does_not_read_does_not_take_the_stream_for_dead(
    emulator: MemoryEmulator,
) -> None:
    """R7: answers wait behind messages for which there is no room, on a server without limits."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 500, size=1_000)
    transport = Tapped(emulator.transport(), limits=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(
            WORKER, hold, flow_control=FlowControl(max_messages=4, max_request_batch_size=1)
        )
        await asyncio.sleep(20 * MINUTE)
        assert live.state == "running"

    assert len(transport.opened) == 1


@virtual
async def test_the_watchdog_goes_by_the_policy(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport())
    policy = StreamPolicy(ping_interval=2, ping_timeout=1)
    async with client_of(emulator, transport) as client:
        client.subscribe(WORKER, hold, streams=policy)
        await asyncio.sleep(10)
        began = now()
        with emulator.faults.stall_streams():
            await asyncio.sleep(3.2)

    assert [time - began <= 3.2 for time, _ in transport.opened] == [True, True]


# Streams that cannot be opened


@virtual
async def test_reopening_is_tried_with_growing_delays(emulator: MemoryEmulator) -> None:
    """R27: doubled from 0.1 s to 30 s, spread over the upper half of each."""
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(MINUTE)
        emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=14)
        emulator.faults.cut_streams()
        await asyncio.sleep(10 * MINUTE)
        assert live.health().ok

    gaps = [b - a for (a, _), (b, _) in itertools.pairwise(transport.opened[1:])]
    assert len(gaps) == 14
    for number, gap in enumerate(gaps, 2):
        longest = min(30.0, 0.1 * 2 ** (number - 1))
        assert longest / 2 <= gap <= longest + 0.01


@virtual
async def test_delays_begin_anew_after_a_stream_has_worked(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        client.subscribe(WORKER, hold)
        for _ in range(3):
            await asyncio.sleep(MINUTE)
            emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=6)
            emulator.faults.cut_streams()
            await asyncio.sleep(MINUTE)
            cut = len(transport.opened)
            emulator.faults.cut_streams()
            began = now()
            await asyncio.sleep(0.2)
            assert transport.opened[cut][0] - began <= 0.11


@virtual
async def test_the_servers_wish_to_wait_is_heeded(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    transport = Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        client.subscribe(WORKER, hold)
        await asyncio.sleep(MINUTE)
        emulator.faults.fail("StreamingPull", "RESOURCE_EXHAUSTED", retry_delay=20)
        emulator.faults.cut_streams()
        await asyncio.sleep(MINUTE)

    refused, opened = (time for time, _ in transport.opened[1:])
    assert opened - refused == pytest.approx(20, abs=0.1)


@virtual
async def test_the_reconnect_budget_ends_the_subscription_with_the_cause(
    emulator: MemoryEmulator,
) -> None:
    """H9: and what is held is given back where that is possible."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    events = Events()
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER, hold, streams=StreamPolicy(reconnect_budget=100), on_event=events
        )
        await asyncio.sleep(MINUTE)
        began = now()
        emulator.faults.refuse_connections()
        emulator.faults.cut_connections()
        await asyncio.sleep(90)
        assert not live.done()
        health = live.health()
        assert (health.ok, health.state, health.streams) == (False, "reconnecting", 0)
        assert any("stream was lost" in reason for reason in health.reasons)
        with pytest.raises(ReconnectError) as caught:
            await live
        assert 100 <= now() - began <= 140
        assert isinstance(caught.value.__cause__, UnavailableError)
        assert caught.value.seconds >= 100
        assert caught.value.attempts > 5
        assert caught.value.subscription == live.name
        assert live.state == "failed"
        assert not live.health().ok

    assert events.states == ["running", "reconnecting", "stopping", "failed"]
    assert events.events[-1].error is caught.value


@virtual
async def test_streams_that_end_as_soon_as_they_open_use_up_the_budget(
    emulator: MemoryEmulator,
) -> None:
    """Such a stream does not work, although it opened."""
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold, streams=StreamPolicy(reconnect_budget=200))
        await asyncio.sleep(MINUTE)

        async def cut() -> None:
            while True:
                emulator.faults.cut_streams()
                await asyncio.sleep(0.05)

        cutting = asyncio.create_task(cut())
        done, _ = await asyncio.wait([live], timeout=HOUR)
        cutting.cancel()
        assert done == {live}
        assert isinstance(live.exception(), ReconnectError)


@virtual
async def test_streams_that_never_answer_again_use_up_the_budget(
    emulator: MemoryEmulator,
) -> None:
    """The server answered before; now it is a hole into which everything falls."""
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold, streams=StreamPolicy(reconnect_budget=200))
        await asyncio.sleep(MINUTE)
        emulator.faults.stall_connections()
        done, _ = await asyncio.wait([live], timeout=HOUR)
        assert done == {live}
        assert isinstance(live.exception(), ReconnectError)


@virtual
async def test_a_stream_that_works_restores_the_budget(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold, streams=StreamPolicy(reconnect_budget=100))
        for _ in range(10):
            await asyncio.sleep(MINUTE)
            refusal = emulator.faults.refuse_connections()
            emulator.faults.cut_connections()
            await asyncio.sleep(80)
            refusal.resume()
        await asyncio.sleep(MINUTE)
        assert live.health().ok


@virtual
async def test_a_subscription_that_is_deleted_fails_at_once(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 2)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        confirmation = calls.messages[0].ack_with_response()
        await delete(emulator, WORKER)
        began = now()
        with pytest.raises(NotFoundError):
            await live
        assert now() - began < 6
        assert confirmation.done()
        assert live.state == "failed"


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION"])
@virtual
async def test_a_refusal_that_will_not_change_ends_the_subscription(
    emulator: MemoryEmulator, code: str
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(MINUTE)
        emulator.faults.fail("StreamingPull", code)
        emulator.faults.cut_streams()
        with pytest.raises(ServiceError) as caught:
            await live
        assert caught.value.code == code


@virtual
async def test_acks_survive_while_the_server_cannot_be_reached(emulator: MemoryEmulator) -> None:
    """They are sent when it is back, and what was acked does not come again by our fault."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 50)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        emulator.faults.cut_connections()
        refusal = emulator.faults.refuse_connections()
        waiting = [message.ack_with_response() for message in calls.messages]
        await asyncio.sleep(2)
        assert live.health().unsent == 50
        assert emulator.backlog(WORKER) == 50
        refusal.resume()
        await asyncio.sleep(5)
        assert live.health().unsent == 0
        assert all(confirmation.done() for confirmation in waiting)

    assert emulator.backlog(WORKER) == 0
    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 50


@virtual
async def test_what_on_event_raises_does_no_harm(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()

    def fail(event: object) -> None:
        raise ValueError(event)

    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, on_event=fail)
        await asyncio.sleep(1)
        emulator.faults.cut_streams()
        publish(emulator, 1)
        await asyncio.sleep(5)
        assert live.health().ok

    assert len(calls.began) == 1


# A loop that is blocked


@virtual
async def test_a_callback_that_blocks_the_loop_is_noticed(emulator: MemoryEmulator) -> None:
    """It is reported with what to do about it, and what it holds is renewed as soon as it can."""

    async def work(message: Message) -> None:
        await asyncio.sleep(20)
        if message.data == b"0":
            burn(7)
        await asyncio.sleep(20)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls, events = Calls(work), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await asyncio.sleep(2 * MINUTE)
        assert live.health().ok

    assert len(events.of("blocked")) == 1
    assert "ThreadScheduler" in events.of("blocked")[0].detail
    assert len(calls.ended) == 3
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_long_block_does_not_begin_a_held_message_again(emulator: MemoryEmulator) -> None:
    """H6: its deadline passed meanwhile; the copy is recognised, and the ack settles it."""

    async def work(message: Message) -> None:
        await asyncio.sleep(5)
        if message.data == b"0":
            burn(MINUTE)
        await asyncio.sleep(5)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls, events = Calls(work), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await asyncio.sleep(5 * MINUTE)
        assert live.health().ok

    assert len(events.of("blocked")) == 1
    assert len(calls.began) == 3
    assert emulator.backlog(WORKER) == 0


# Startup


@virtual
async def test_an_unreachable_server_is_tried_again_until_it_answers(
    emulator: MemoryEmulator,
) -> None:
    """R1, R3: within `startup_timeout`."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls, events, transport = Calls(), Events(), Tapped(emulator.transport())
    refusal = emulator.faults.refuse_connections()
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        assert (live.state, live.health().ok) == ("starting", False)
        await asyncio.sleep(25)
        assert live.state == "starting"
        refusal.resume()
        await live.ready()
        assert now() < 31
        await asyncio.sleep(1)

    assert len(calls.began) == 1
    times = transport.times("GetSubscription")
    gaps = [later - time for time, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps) or max(gaps) <= 5
    assert len(times) >= 6


@pytest.mark.parametrize("way", ["refused", "stalled", "unavailable"])
@virtual
async def test_a_server_that_stays_unreachable_fails_the_startup(
    emulator: MemoryEmulator, way: str
) -> None:
    """R3: one error that lists what was checked and says what to do."""
    emulator.create_subscription(WORKER, TOPIC)
    match way:
        case "refused":
            emulator.faults.refuse_connections()
        case "stalled":
            emulator.faults.stall_connections()
        case _:
            emulator.faults.fail("GetSubscription", "UNAVAILABLE", times=1_000)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold, startup_timeout=20)
        with pytest.raises(StartupError) as caught:
            await live.ready()
        assert 10 <= now() <= 20.2
        assert live.exception() is caught.value
        assert live.state == "failed"

    outcomes = {check.name: check.outcome for check in caught.value.checks}
    assert outcomes == {
        "credentials": "ok",
        "server reached": "failed",
        "subscription exists": "not reached",
        "may consume": "not reached",
    }
    assert isinstance(caught.value.__cause__, UnavailableError)
    assert "20 s" in str(caught.value)


@virtual
async def test_a_missing_subscription_fails_the_startup_at_once(emulator: MemoryEmulator) -> None:
    """R1, R3: with what to do about it."""
    async with client_of(emulator) as client:
        live = client.subscribe("nothing", hold)
        with pytest.raises(StartupError, match="or create it") as caught:
            await live
        assert now() < 1
        with pytest.raises(StartupError):
            await live.ready()

    outcomes = {check.name: check.outcome for check in caught.value.checks}
    assert outcomes["server reached"] == "ok"
    assert outcomes["subscription exists"] == "failed"
    assert isinstance(caught.value.__cause__, NotFoundError)
    assert caught.value.name.endswith("/subscriptions/nothing")


@virtual
async def test_a_name_that_cannot_be_is_told_as_the_server_tells_it(
    emulator: MemoryEmulator,
) -> None:
    """R3: with nothing to add to it."""
    async with client_of(emulator) as client:
        with pytest.raises(StartupError) as caught:
            await client.subscribe("a", hold)

    (failed,) = [check for check in caught.value.checks if check.outcome == "failed"]
    assert failed.detail == str(caught.value.__cause__)


@virtual
async def test_no_permission_to_look_is_only_a_warning(emulator: MemoryEmulator) -> None:
    """R3: who may only consume must not be stopped; the stream tells what matters."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    emulator.faults.fail("GetSubscription", "PERMISSION_DENIED")
    publish(emulator, 1)
    calls, events = Calls(), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await live.ready()
        await asyncio.sleep(1)
        settings = live.settings
        assert settings["enable_message_ordering"].value is True
        assert "ack_deadline_seconds" not in settings
        assert live.health().ok

    assert len(events.of("warning")) == 1
    assert len(calls.began) == 1


@virtual
async def test_no_permission_to_consume_fails_the_startup(emulator: MemoryEmulator) -> None:
    """R3: fatal, and the error says which role is missing."""
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.fail("StreamingPull", "PERMISSION_DENIED")
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        with pytest.raises(StartupError, match=r"roles/pubsub\.subscriber") as caught:
            await live
        assert now() < 1

    assert isinstance(caught.value.__cause__, PermissionDeniedError)
    assert caught.value.checks[-1].name == "may consume"
    assert caught.value.checks[-1].outcome == "failed"


@virtual
async def test_a_stream_that_says_nothing_counts_as_started_after_a_moment(
    emulator: MemoryEmulator,
) -> None:
    """R2: some servers send no first response; startup does not wait for one."""
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.stall_streams(direction="responses")
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        await live.ready()
        assert 0.5 <= now() <= 2
        assert live.state == "running"


@virtual
async def test_a_stream_that_fails_at_startup_is_tried_again(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=4)
    publish(emulator, 1)
    calls = Calls()
    async with client_of(emulator) as client:
        await client.subscribe(WORKER, calls).ready()
        assert now() < 5
        await asyncio.sleep(1)

    assert len(calls.began) == 1


@virtual
async def test_settings_say_where_they_come_from(emulator: MemoryEmulator) -> None:
    """R2, R5: the effective ones, each with its source."""
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=77)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold, flow_control=FlowControl(max_messages=50))
        early = live.settings
        await live.ready()
        settings = live.settings

    assert early["max_messages"] == Setting(50, "argument")
    assert settings["project"] == Setting(emulator.project, "argument")
    assert settings["max_messages"] == Setting(50, "argument")
    assert settings["max_bytes"].source == "default"
    assert settings["max_outstanding_messages"].value == 140
    assert settings["ack_deadline_seconds"] == Setting(77, "server, GetSubscription")
    assert str(settings["topic"].value).endswith(f"/topics/{TOPIC}")
    assert settings["enable_message_ordering"].value is False
    assert settings["lease_extension"].value == 10


@virtual
async def test_settings_are_refreshed_when_asked_for(emulator: MemoryEmulator) -> None:
    """R6, R8: off unless told, for it counts against a quota; a failure is only a warning."""
    emulator.create_subscription(WORKER, TOPIC)
    events, transport = Events(), Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, hold, refresh_interval=5 * MINUTE, on_event=events)
        idle = client.subscribe(WORKER, hold)
        await asyncio.sleep(MINUTE)
        await update(emulator, WORKER, ack_deadline_seconds=123)
        await asyncio.sleep(3 * MINUTE)
        before = live.settings["ack_deadline_seconds"].value
        await asyncio.sleep(2 * MINUTE)
        assert (before, live.settings["ack_deadline_seconds"].value) == (10, 123)
        assert idle.settings["ack_deadline_seconds"].value == 10
        emulator.faults.fail("GetSubscription", "UNAVAILABLE")
        await asyncio.sleep(5 * MINUTE)
        assert live.health().ok

    assert len(events.of("warning")) == 1
    assert len(transport.times("GetSubscription")) == 2 + 2


@virtual
async def test_it_can_be_stopped_while_it_starts(emulator: MemoryEmulator) -> None:
    """H9: at once, and whoever waits for it to be ready is told."""
    emulator.create_subscription(WORKER, TOPIC)
    emulator.faults.stall_connections()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        waiting = asyncio.create_task(live.ready())
        await asyncio.sleep(5)
        live.stop()
        await live
        assert now() == pytest.approx(5, abs=0.1)
        with pytest.raises(ClosedError):
            await waiting
        assert live.state == "stopped"


@virtual
async def test_deliveries_go_on_after_an_hour_of_outages(emulator: MemoryEmulator) -> None:
    """H6: nothing is lost, and what comes twice is explained by an outage."""
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        for number in range(60):
            publish(emulator, 10)
            match number % 6:
                case 0:
                    emulator.faults.cut_streams()
                case 2:
                    emulator.faults.cut_connections()
                case 4:
                    stall = emulator.faults.stall_connections()
                    asyncio.get_running_loop().call_later(50, stall.resume)
                case 5:
                    emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=2)
            await asyncio.sleep(MINUTE)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)
        assert live.health().ok

    assert len(calls.began) >= 600
    for message in emulator.messages():
        assert [at(ack.time) for ack in message.acks if ack.effective]

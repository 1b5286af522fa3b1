"""How a subscription ends: by its policy, in time, with nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading

import pytest

from pubsub_aio import (
    AlreadySettledError,
    ClosedError,
    Confirmation,
    FlowControl,
    Message,
    ShutdownPolicy,
    SubscriberClient,
    UnconfirmedError,
)
from pubsub_aio.subscriber.streams import QUIET
from pubsub_aio.testing import MemoryEmulator, run, run_scenario
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
    leftovers,
    now,
    publish,
    virtual,
)


async def hold(_: Message) -> None:
    """Return without settling it."""


async def work_ten_seconds(message: Message) -> None:
    await asyncio.sleep(10)
    message.ack()


async def forever(_: Message) -> None:
    await asyncio.Event().wait()


class Second:
    """Another subscriber, which notes when it got what."""

    def __init__(self, emulator: MemoryEmulator) -> None:
        self.calls = Calls()
        self._emulator = emulator

    async def listen(self, seconds: float) -> list[tuple[float, bytes]]:
        async with client_of(self._emulator) as client:
            client.subscribe(WORKER, self.calls)
            await asyncio.sleep(seconds)
        return self.calls.began


# Waiting


@virtual
async def test_callbacks_that_have_begun_are_waited_for(emulator: MemoryEmulator) -> None:
    """H9: and their acks are sent."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    calls, events = Calls(work_ten_seconds), Events()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, on_event=events)
        await asyncio.sleep(1)
        live.stop()
        assert live.stopping
        await asyncio.sleep(1)
        assert emulator.streams(WORKER) == []
        await live
        assert now() == pytest.approx(10, abs=0.2)
        assert live.state == "stopped"
        assert await leftovers() == []

    assert len(calls.ended) == 20
    assert emulator.backlog(WORKER) == 0
    assert events.states == ["running", "stopping", "stopped"]


@virtual
async def test_leases_are_kept_while_callbacks_are_waited_for(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(HOUR / 2)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work, shutdown=ShutdownPolicy(timeout=2 * HOUR))
        await asyncio.sleep(1)
        live.stop()
        await live

    assert len(emulator.message(one).deliveries) == 1
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_what_has_not_begun_goes_to_others_at_once(emulator: MemoryEmulator) -> None:
    """Received and not leased: it is nacked when the shutdown begins."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 6)
    calls, second = Calls(work_ten_seconds), Second(emulator)
    flow = FlowControl(max_messages=2, resume_threshold=1, max_request_batch_size=4)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        await asyncio.sleep(1)
        begun = len(calls.began)
        assert 0 < begun < 6
        live.stop()
        got = await second.listen(3)
        await live

    assert len(calls.began) == begun
    assert len(got) == 6 - begun
    assert max(time for time, _ in got) < 1.5
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_ordered_messages_that_wait_for_their_turn_are_not_begun_any_more(
    emulator: MemoryEmulator,
) -> None:
    """They are given back at once, and another gets them in order when the first is done."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    publish(emulator, 6, key="a")
    calls, second = Calls(work_ten_seconds), Second(emulator)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() == pytest.approx(10, abs=0.2)
        got = await second.listen(5)

    assert calls.data == [b"a0"]
    assert [data for _, data in got] == [b"a1", b"a2", b"a3", b"a4", b"a5"]
    assert max(time for time, _ in got) < 11


@virtual
async def test_receipts_that_are_not_confirmed_yet_are_given_back(
    emulator: MemoryEmulator,
) -> None:
    """Exactly-once: nobody else could have the messages for a minute otherwise."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    calls, second = Calls(), Second(emulator)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        emulator.faults.delay("ModifyAckDeadline", 2)
        publish(emulator, 3)
        await asyncio.sleep(1)
        live.stop()
        await live
        got = await second.listen(10)

    assert calls.began == []
    assert len(got) == 3
    assert max(time for time, _ in got) < 10


@virtual
async def test_what_was_never_settled_is_given_back_at_the_end(emulator: MemoryEmulator) -> None:
    """Its callback returned long ago; there is nobody to wait for."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    second = Second(emulator)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() < 1.5
        got = await second.listen(1)

    assert len(got) == 5


@virtual
async def test_the_timeout_bounds_the_wait(emulator: MemoryEmulator) -> None:
    """H9: what is not done is cancelled and nacked."""
    cancelled: list[bytes] = []

    async def work(message: Message) -> None:
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            cancelled.append(message.data)
            raise

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    second = Second(emulator)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work, shutdown=ShutdownPolicy(timeout=20))
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() == pytest.approx(21, abs=0.3)
        got = await second.listen(1)

    assert sorted(cancelled) == [b"0", b"1", b"2"]
    assert len(got) == 3


@pytest.mark.parametrize("mode", ["wait", "nack"])
@virtual
async def test_being_cancelled_at_the_end_is_no_failure_of_the_callback(
    emulator: MemoryEmulator, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    policy = ShutdownPolicy(mode=mode, timeout=1)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "pubsub_aio"):
        async with client_of(emulator) as client:
            live = client.subscribe(WORKER, forever, shutdown=policy)
            await asyncio.sleep(1)
            live.stop()
            await live
            assert live.health().counts.get("raised", 0) == 0

    assert caplog.records == []


# Nacking at once


@virtual
async def test_in_nack_mode_everything_goes_back_at_once(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 10)
    calls = Calls(work_ten_seconds)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, shutdown=ShutdownPolicy(mode="nack"))
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() < 1.2

    assert calls.ended == []
    assert emulator.backlog(WORKER) == 10
    assert emulator.outstanding(WORKER) == 0
    for one in ids:
        assert [m.seconds for m in emulator.message(one).modacks][-1] == 0


@virtual
async def test_in_nack_mode_acks_made_before_are_sent(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        message.ack()
        await asyncio.sleep(10)

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, Calls(work), shutdown=ShutdownPolicy(mode="nack"))
        await live.ready()
        await asyncio.sleep(0.001)
        live.stop()
        await live

    assert emulator.backlog(WORKER) == 0


# Callbacks that refuse to end


@pytest.mark.parametrize("mode", ["wait", "nack"])
@virtual
async def test_callbacks_that_refuse_to_end_do_not_hold_up_the_end(
    emulator: MemoryEmulator, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """H9: they are reported, their messages are given back, and no task stays once they end."""

    async def work(message: Message) -> None:
        ends_at = now() + 100
        while now() < ends_at:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(ends_at - now())
        with pytest.raises(AlreadySettledError):
            await message.ack_with_response()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls, second = Calls(work), Second(emulator)
    policy = ShutdownPolicy(mode=mode, timeout=5)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "pubsub_aio"):
        async with client_of(emulator) as client:
            live = client.subscribe(WORKER, calls, shutdown=policy)
            await asyncio.sleep(1)
            live.stop()
            await live
            assert now() <= (4 if mode == "nack" else 9)
            assert len(await second.listen(1)) == 3
    told = [record for record in caplog.records if "did not end" in record.getMessage()]
    assert [record.getMessage() for record in told] == [
        f"{live.name}: 3 callbacks did not end although cancelled"
    ]
    await asyncio.sleep(2 * MINUTE)

    assert len(calls.ended) == 3
    assert await leftovers() == []


@virtual
async def test_a_callback_that_ends_when_cancelled_ends_the_shutdown(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """It swallows the cancellation and returns; its last word counts, and nobody waits longer."""

    async def work(message: Message) -> None:
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    with caplog.at_level(logging.ERROR, "pubsub_aio"):
        async with client_of(emulator) as client:
            live = client.subscribe(WORKER, work, shutdown=ShutdownPolicy(timeout=5))
            await asyncio.sleep(1)
            live.stop()
            await live
            assert now() == pytest.approx(6, abs=0.3)
            assert await leftovers() == []

    assert caplog.records == []
    assert emulator.backlog(WORKER) == 0


# The last acks


@virtual
async def test_the_last_acks_are_sent_again_if_they_fail(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10)
    emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=4)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, Calls())
        await live.ready()
        await asyncio.sleep(0.001)
        live.stop()
        await live
        assert now() < 5

    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_server_that_does_not_answer_does_not_hold_up_the_end(
    emulator: MemoryEmulator,
) -> None:
    """H9: `flush_timeout` bounds it, and who waits for a confirmation is told."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 2)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, shutdown=ShutdownPolicy(flush_timeout=3))
        await asyncio.sleep(1)
        emulator.faults.stall_connections()
        confirmation = calls.messages[0].ack_with_response()
        moved = calls.messages[1].modify_ack_deadline_with_response(50)
        live.stop()
        await live
        assert now() == pytest.approx(4 + QUIET, abs=0.2)
        for unconfirmed in (confirmation, moved):
            assert unconfirmed.done()
            with pytest.raises(UnconfirmedError):
                await unconfirmed
        assert await leftovers() == []


@virtual
async def test_what_comes_after_the_end_is_refused_at_once(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        live.stop()
        await live
        (message,) = calls.messages
        message.ack()
        message.nack()
        for answer in (message.ack_with_response(), message.nack_with_response(delay=3)):
            with pytest.raises(AlreadySettledError):
                await answer
        live.stop()
        live.flow_control = FlowControl(max_messages=3)
        assert live.cancel() is False
        assert live.result() is None
        with pytest.raises(ClosedError):
            await live.ready()


# Hurrying


@virtual
async def test_a_second_stop_hurries(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls = Calls(forever)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        live.stop()
        await asyncio.sleep(2)
        live.stop()
        live.stop()
        await live
        assert now() == pytest.approx(3, abs=0.5)
        assert await leftovers() == []


@virtual
async def test_hurrying_ends_the_flush_too(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        emulator.faults.stall_connections()
        confirmation = calls.messages[0].ack_with_response()
        live.stop()
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() == pytest.approx(2, abs=0.5)
        assert isinstance(confirmation.exception(0), UnconfirmedError)


# Cancelling


@virtual
async def test_cancelling_the_keep_alive_stops_it_by_the_policy(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls = Calls(work_ten_seconds)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        assert live.cancel()
        assert not live.done()
        with pytest.raises(asyncio.CancelledError):
            await live
        assert live.cancelled()
        assert now() == pytest.approx(10, abs=0.2)

    assert len(calls.ended) == 5
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_cancelling_the_task_that_awaits_it_stops_it_by_the_policy(
    emulator: MemoryEmulator,
) -> None:
    async def main() -> None:
        async with client_of(emulator) as client:
            await client.subscribe(WORKER, calls)

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls = Calls(work_ten_seconds)
    task = asyncio.create_task(main())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now() == pytest.approx(10, abs=0.2)
    assert await leftovers() == []
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_timeout_around_the_keep_alive_stops_it_by_the_policy(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls = Calls(work_ten_seconds)
    async with client_of(emulator) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4):
                await client.subscribe(WORKER, calls)
        assert now() == pytest.approx(10, abs=0.2)

    assert len(calls.ended) == 5


@virtual
async def test_who_shields_the_keep_alive_can_stop_waiting_for_it(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4):
                await asyncio.shield(live)
        publish(emulator, 1)
        await asyncio.sleep(1)
        assert live.state == "running"

    assert len(calls.began) == 1


# Closing the client


@virtual
async def test_closing_the_client_stops_every_subscription(emulator: MemoryEmulator) -> None:
    """H9: all at once, each by its own policy."""
    emulator.create_subscription(WORKER, TOPIC)
    emulator.create_subscription("other", TOPIC)
    publish(emulator, 5)
    calls, others = Calls(work_ten_seconds), Calls(work_ten_seconds)
    client = SubscriberClient(project=emulator.project, transport=emulator.transport())
    first = client.subscribe(WORKER, calls)
    second = client.subscribe("other", others, shutdown=ShutdownPolicy(mode="nack"))
    await asyncio.sleep(1)
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.5)
    assert (first.done(), second.done()) == (False, True)
    with pytest.raises(ClosedError):
        client.subscribe(WORKER, hold)
    await closing
    assert now() == pytest.approx(10, abs=0.2)
    assert (first.result(), second.result()) == (None, None)
    await client.aclose()

    assert (len(calls.ended), len(others.ended)) == (5, 0)
    assert (emulator.backlog(WORKER), emulator.backlog("other")) == (0, 5)


@virtual
async def test_a_client_whose_closing_was_cancelled_can_be_closed_again(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls = Calls(work_ten_seconds)
    client = SubscriberClient(project=emulator.project, transport=emulator.transport())
    live = client.subscribe(WORKER, calls)
    await asyncio.sleep(1)
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await client.aclose()
    assert live.done()
    assert now() == pytest.approx(10, abs=0.2)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_an_error_in_the_program_closes_the_client_in_order(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls = Calls(work_ten_seconds)

    async def program() -> None:
        async with client_of(emulator) as client:
            client.subscribe(WORKER, calls)
            await asyncio.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await program()
    assert len(calls.ended) == 5
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_failed_subscription_gives_back_what_it_held(emulator: MemoryEmulator) -> None:
    """It may not consume any more, but nacks still go through."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    second = Second(emulator)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(1)
        emulator.faults.fail("StreamingPull", "PERMISSION_DENIED")
        emulator.faults.cut_streams()
        await asyncio.wait([live])
        assert live.exception()
        got = await second.listen(1)

    assert len(got) == 5


@virtual
async def test_messages_that_arrive_during_the_end_are_given_back(
    emulator: MemoryEmulator,
) -> None:
    """Nothing published meanwhile is held by a subscriber that is about to leave."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls = Calls(work_ten_seconds)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        publish(emulator, 5)
        live.stop()
        publish(emulator, 5)
        await asyncio.sleep(0.5)
        publish(emulator, 5)
        await asyncio.sleep(0.5)
        assert emulator.outstanding(WORKER) == len(calls.began)
        await live

    assert emulator.outstanding(WORKER) == 0


# Programs that just end


def test_a_program_that_ends_without_closing_leaves_nobody_waiting() -> None:
    """A thread that waits for a confirmation would otherwise wait for ever."""
    kept: list[Confirmation] = []

    async def scenario(emulator: MemoryEmulator) -> None:
        emulator.create_subscription(WORKER, TOPIC)
        publish(emulator, 1)
        calls = Calls(hold)
        client = SubscriberClient(project=emulator.project, transport=emulator.transport())
        client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        emulator.faults.stall_connections()
        kept.append(calls.messages[0].ack_with_response())

    run_scenario(scenario)

    assert kept[0].done()


def test_a_message_can_be_settled_after_its_loop_is_closed() -> None:
    """By a thread that comes late; nothing is raised, and a confirmation is refused."""
    kept: list[Message] = []

    async def main() -> None:
        async with MemoryEmulator() as emulator:
            emulator.create_subscription(WORKER, TOPIC)
            publish(emulator, 1)
            calls = Calls(hold)
            async with client_of(emulator) as client:
                client.subscribe(WORKER, calls)
                await asyncio.sleep(1)
            kept.extend(calls.messages)

    outcomes: list[object] = []

    def settle() -> None:
        kept[0].ack()
        outcomes.append(type(kept[0].ack_with_response().exception(timeout=1)).__mro__[1].__name__)

    run(main())
    thread = threading.Thread(target=settle)
    thread.start()
    thread.join()

    assert outcomes == ["SettleError"]


@virtual
async def test_a_subscription_that_was_stopped_can_be_collected(emulator: MemoryEmulator) -> None:
    """The client holds on to nothing of it."""

    def engines() -> int:
        gc.collect()
        return [type(one).__name__ for one in gc.get_objects()].count("Engine")

    emulator.create_subscription(WORKER, TOPIC)
    before = engines()  # as those that a test which failed has left
    async with client_of(emulator) as client:
        for _ in range(20):
            publish(emulator, 1)
            live = client.subscribe(WORKER, Calls())
            await asyncio.sleep(1)
            live.stop()
            await live
        del live
        assert engines() <= before + 1


@virtual
async def test_nacks_at_the_end_reach_the_server_before_the_future_is_done(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(1)
        emulator.faults.delay("ModifyAckDeadline", 2)
        live.stop()
        await live
        nack = emulator.message(one).modacks[-1]
        assert (nack.seconds, round(at(nack.time), 1)) == (0, 3.0)


@virtual
async def test_nothing_begins_while_the_rest_is_read(emulator: MemoryEmulator) -> None:
    """H9: of a server that is silent it is awaited for a moment that nothing comes any more."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1_000)

    async def work(message: Message) -> None:
        burn(0.001)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await emulator.until(lambda: len(calls.began) > 0)
        emulator.faults.stall_connections()
        live.stop()
        await asyncio.sleep(0)
        begun = len(calls.began)
        await live

    assert len(calls.began) < begun + 200  # it takes a turn or two until it hears of the stop


@virtual
@pytest.mark.parametrize("streaming", [True, False])
async def test_what_is_on_its_way_is_read_while_callbacks_are_waited_for(
    emulator: MemoryEmulator, *, streaming: bool
) -> None:
    """H9: so that a silent server takes no time on top of `timeout` and `flush_timeout`."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    calls = Calls(forever)
    policy = ShutdownPolicy(timeout=0.5, flush_timeout=0.5)
    async with client_of(emulator, Tapped(emulator.transport(), streaming=streaming)) as client:
        live = client.subscribe(WORKER, calls, shutdown=policy)
        await emulator.until(lambda: len(calls.began) == 3)
        stopped_at = now()
        with emulator.faults.stall_connections():
            live.stop()
            await live
        assert now() <= stopped_at + 1.01


@virtual
async def test_nothing_is_taken_from_others_while_callbacks_are_waited_for(
    emulator: MemoryEmulator,
) -> None:
    """H9: not even of a server that goes on sending to a stream that was told its end."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    calls, second = Calls(forever), Second(emulator)
    async with client_of(emulator, Tapped(emulator.transport(), half_close=False)) as client:
        live = client.subscribe(WORKER, calls, shutdown=ShutdownPolicy(timeout=10 * MINUTE))
        await emulator.until(lambda: len(calls.began) == 1)
        live.stop()
        await asyncio.sleep(10)
        publish(emulator, 20)
        published_at = now()
        came = await second.listen(MINUTE)
        assert live.health().counts["received"] == 1
        live.stop()
        await live

    assert len(came) == 20
    assert max(time for time, _ in came) - published_at < 1


@virtual
async def test_every_confirmation_resolves_although_the_end_is_cancelled(
    emulator: MemoryEmulator,
) -> None:
    """Twice, so that it does not wait for a callback that refuses to end either."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    emulator.faults.delay("Acknowledge", 5)
    confirmations: list[Confirmation] = []

    async def stubborn(message: Message) -> None:
        confirmations.append(message.ack_with_response())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(2)

    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, stubborn)
        await emulator.until(lambda: bool(confirmations))
        await asyncio.sleep(0.5)
        for _ in range(2):
            client._roots[live].cancel()
            await asyncio.sleep(0.3)
        assert isinstance(confirmations[0].exception(timeout=0), UnconfirmedError)
        await asyncio.sleep(10)


@virtual
async def test_in_nack_mode_nothing_waits_until_the_rest_is_read(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    (one,) = publish(emulator, 1)
    calls = Calls(forever)
    async with client_of(emulator, Tapped(emulator.transport(), streaming=False)) as client:
        live = client.subscribe(WORKER, calls, shutdown=ShutdownPolicy(mode="nack"))
        await asyncio.sleep(1)
        live.stop()
        await live

    nack = next(each for each in emulator.message(one).modacks if each.seconds == 0)
    assert at(nack.time) == pytest.approx(1, abs=0.05)


@virtual
async def test_what_comes_at_the_end_is_given_back_once(emulator: MemoryEmulator) -> None:
    """H9: a server that goes on sending would send it again at once, for as long as it is read."""
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls(forever)
    transport = Tapped(emulator.transport(), half_close=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        live.stop()
        await asyncio.sleep(0.01)
        ids = publish(emulator, 5)
        await live

    assert calls.began == []
    assert emulator.outstanding(WORKER) == 0
    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 5


@virtual
@pytest.mark.parametrize("way", ["subscribe", "subscribe_batches", "subscribe_arrow"])
async def test_what_is_on_the_wire_at_the_end_goes_back(emulator: MemoryEmulator, way: str) -> None:
    """H9: whatever becomes of messages."""
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=60)
    calls = Calls(forever)
    async with client_of(emulator, Tapped(emulator.transport(), lag=0.02)) as client:
        live = getattr(client, way)(WORKER, calls)
        await asyncio.sleep(1)
        ids = publish(emulator, 7)
        await emulator.until(lambda: emulator.outstanding(WORKER) == 7)
        live.stop()
        await live

    assert calls.began == []
    assert emulator.outstanding(WORKER) == 0
    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 7


@virtual
@pytest.mark.parametrize("after", [0.005, 0.02])
async def test_a_stream_that_has_just_been_opened_is_read_to_its_end_too(
    emulator: MemoryEmulator, after: float
) -> None:
    """H9: nothing has come over it so far."""
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=60)
    async with client_of(emulator, Tapped(emulator.transport(), lag=0.05)) as client:
        live = client.subscribe(WORKER, hold)
        await asyncio.sleep(5)
        emulator.faults.cut_streams(WORKER)
        await emulator.until(lambda: emulator.streams(WORKER) == [])
        publish(emulator, 20)
        await emulator.until(lambda: emulator.streams(WORKER) != [])
        await asyncio.sleep(after)
        live.stop()
        await live

    assert (emulator.backlog(WORKER), emulator.outstanding(WORKER)) == (20, 0)


@virtual
async def test_nothing_is_pulled_once_the_last_pull_has_ended(emulator: MemoryEmulator) -> None:
    """H9: what it brought would be leased to nobody."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 30)
    flow = FlowControl(max_messages=10, max_request_batch_size=1)
    transport = Tapped(emulator.transport(), streaming=False)
    async with client_of(emulator, transport) as client:
        live = client.subscribe(WORKER, forever, flow_control=flow)
        await asyncio.sleep(0.3)
        pulls = len(transport.times("Pull"))
        assert live.health().leased > 0
        live.cancel()
        live.stop()
        await asyncio.wait([live])

    assert len(transport.times("Pull")) == pulls
    assert emulator.outstanding(WORKER) == 0

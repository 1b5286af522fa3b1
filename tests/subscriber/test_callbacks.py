"""Callbacks: each in a real task with a context of its own, many at once, none in another's way."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from pubsub_aio import ConfigError, FlowControl, Message, ThreadScheduler
from pubsub_aio.subscriber.callbacks import SLICE, WorkerChain
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    burn,
    client_of,
    now,
    publish,
    virtual,
)

current = contextvars.ContextVar[str]("current", default="")
shared = contextvars.ContextVar[list[int]]("shared")


# Contexts


@pytest.mark.parametrize("suspend", [False, True])
@virtual
async def test_what_a_callback_sets_is_not_seen_by_another(
    emulator: MemoryEmulator, suspend: bool
) -> None:
    """G6: as in a task for each; what was set where it was subscribed is seen by all."""
    seen: list[str] = []
    inside: list[bool] = []

    async def work(message: Message) -> None:
        seen.append(current.get())
        current.set(message.message_id)
        if suspend:
            await asyncio.sleep(0.1)
        inside.append(current.get() == message.message_id)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    current.set("subscribed here")
    async with client_of(emulator) as client:
        client.subscribe(WORKER, work)
        current.set("changed later")
        for _ in range(5):
            publish(emulator, 50)
            await asyncio.sleep(1)
        assert current.get() == "changed later"

    assert set(seen) == {"subscribed here"}
    assert inside == [True] * 250


@virtual
async def test_even_an_equal_value_is_not_handed_on(emulator: MemoryEmulator) -> None:
    """A list that a callback set is equal to the one it found, and is not the same."""
    mine: list[int] = []
    strangers: list[bytes] = []

    async def work(message: Message) -> None:
        if shared.get() is not mine:
            strangers.append(message.data)
        shared.set([])
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    shared.set(mine)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, work)
        publish(emulator, 20)
        await asyncio.sleep(1)
        publish(emulator, 20)
        await asyncio.sleep(1)

    assert strangers == []


class Incomparable:
    """A value that does not let itself be compared, as arrays do not."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        return 0


odd = contextvars.ContextVar[Incomparable]("odd")


@virtual
async def test_values_that_cannot_be_compared_do_no_harm(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        odd.set(Incomparable())
        await asyncio.sleep(0)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    odd.set(Incomparable())
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        for _ in range(3):
            publish(emulator, 10)
            await asyncio.sleep(1)

    assert len(calls.ended) == 30
    assert emulator.backlog(WORKER) == 0


# Tasks


@virtual
async def test_every_callback_runs_in_a_real_task(emulator: MemoryEmulator) -> None:
    """G6: timeouts, task groups and gather work inside as anywhere."""
    seen: list[str] = []

    async def work(message: Message) -> None:
        assert asyncio.current_task() is not None
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(10)
        except TimeoutError:
            seen.append("timeout")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(1))
            tasks.create_task(asyncio.sleep(2))
        seen.append("group")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                await asyncio.sleep(10)
        except* ValueError:
            seen.append("failure")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        await asyncio.gather(asyncio.sleep(1), asyncio.sleep(1))
        message.ack()

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)
        assert live.health().ok

    assert seen.count("timeout") == seen.count("group") == seen.count("failure") == 20
    assert len(calls.ended) == 20
    assert emulator.backlog(WORKER) == 0


async def cancel_and_return(message: Message) -> None:
    """Cancel its own task, and end before that is noticed."""
    task = asyncio.current_task()
    assert task
    task.cancel()
    message.ack()


async def cancel_and_wait(message: Message) -> None:
    """Cancel its own task, and be hit by it."""
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(1)
    message.ack()


async def cancel_and_swallow(message: Message) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await cancel_and_wait(message)
    message.ack()


async def cancel_later(message: Message) -> None:
    """Have its task cancelled when the callback is over, and another may have taken its place."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().call_later(0.5, task.cancel)
    message.ack()


async def await_cancelled(message: Message) -> None:
    """Await something that was cancelled by somebody else."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.1, future.cancel)
    await future
    message.ack()


async def raise_cancelled(_: Message) -> None:
    raise asyncio.CancelledError


class Unusual(BaseException):
    """Neither an Exception nor a cancellation."""


async def raise_unusual(_: Message) -> None:
    await asyncio.sleep(0)
    raise Unusual


STRANGE = [
    cancel_and_return,
    cancel_and_wait,
    cancel_and_swallow,
    cancel_later,
    await_cancelled,
    raise_cancelled,
]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("strange", STRANGE)
@virtual
async def test_a_strange_callback_harms_no_other(
    emulator: MemoryEmulator, strange: Callable[[Message], object], alone: bool
) -> None:
    """Whatever it does to its own task; and its message comes again unless it was acked."""

    async def work(message: Message) -> None:
        if message.data == b"0" and calls.data.count(b"0") == 1:
            await strange(message)  # type: ignore[misc]
        else:
            await asyncio.sleep(2)
            message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        publish(emulator, 1 if alone else 10)
        await asyncio.sleep(0.2)
        for _ in range(3):
            publish(emulator, 11)
            emulator.publish(TOPIC, b"last")
            await asyncio.sleep(5)
        assert live.state == "running"
        assert live.health().ok
        assert live.health().leased == 0
        assert live.health().running == 0

    again = len(calls.began) - (1 if alone else 10) - 36
    if strange is cancel_later:  # who took its place may be hit, and nacked
        assert again in (0, 1)
    else:
        assert again == int(strange in (cancel_and_wait, await_cancelled, raise_cancelled))
    assert calls.ended.count(b"last") == 3
    assert emulator.backlog(WORKER) == 0


def test_an_unusual_exception_is_told_and_the_message_nacked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The subscription goes on."""

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        async def work(message: Message) -> None:
            if len(calls.began) == 1:
                await raise_unusual(message)
            message.ack()

        emulator.create_subscription(WORKER, TOPIC)
        publish(emulator, 5)
        calls = Calls(work)
        async with client_of(emulator) as client:
            live = client.subscribe(WORKER, calls)
            await asyncio.sleep(5)
            assert live.health().ok
        assert len(calls.began) == 6
        assert emulator.backlog(WORKER) == 0

    with caplog.at_level(logging.ERROR, "pubsub_aio"):
        scenario()
    assert len(caplog.records) == 1


# Many


@virtual
async def test_thousands_of_callbacks_run_at_once(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(10)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5_000)
    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, flow_control=FlowControl(max_messages=10_000))
        await asyncio.sleep(5)
        assert live.health().running == 5_000
        await asyncio.sleep(10)
        assert live.health().running == 0
        tasks = [task for task in asyncio.all_tasks() if "callbacks" in task.get_name()]
        assert len(tasks) <= 200

    assert calls.peak == 5_000
    assert len(calls.ended) == 5_000
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_callback_that_suspends_many_times_holds_up_nobody(
    emulator: MemoryEmulator,
) -> None:
    async def work(message: Message) -> None:
        if message.data == b"0":
            for _ in range(10_000):
                await asyncio.sleep(0)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(1)

    assert calls.ended[-1] == b"0"
    assert len(calls.ended) == 100
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_messages_are_begun_in_the_order_they_came(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(int(message.data) % 3)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        publish(emulator, 500)
        await asyncio.sleep(10)

    assert calls.data == [str(n).encode() for n in range(500)]


@virtual
async def test_callbacks_that_never_suspend_let_others_have_the_loop(
    emulator: MemoryEmulator,
) -> None:
    """A thousand of them take a second; a ticker goes on all the while."""
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = now()
            await asyncio.sleep(0.001)
            gaps.append(now() - before)

    async def work(message: Message) -> None:
        burn(0.001)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1_000)
    calls = Calls(work)
    async with client_of(emulator) as client:
        ticking = asyncio.create_task(tick())
        client.subscribe(WORKER, calls)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0)
        ticking.cancel()

    assert len(calls.ended) == 1_000
    assert max(gaps) < 0.1


@virtual
async def test_two_subscriptions_that_never_suspend_take_turns(emulator: MemoryEmulator) -> None:
    turns: list[str] = []

    def worker(name: str) -> Callable[[Message], object]:
        async def work(message: Message) -> None:
            burn(0.001)
            turns.append(name)
            message.ack()

        return work

    emulator.create_subscription(WORKER, TOPIC)
    emulator.create_subscription("other", TOPIC)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, worker("a"))
        client.subscribe("other", worker("b"))
        await asyncio.sleep(1)
        publish(emulator, 500)
        await asyncio.sleep(5)

    assert len(turns) == 1_000
    assert set(turns[:100]) == {"a", "b"}


@virtual
async def test_two_subscriptions_do_not_starve_each_other(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    emulator.create_subscription("other", "things")
    busy, calm = Calls(), Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, busy)
        client.subscribe("other", calm)
        await asyncio.sleep(1)
        publish(emulator, 5_000)
        emulator.publish("things", b"one")
        await asyncio.sleep(0.2)
        assert len(calm.began) == 1
        await asyncio.sleep(5)

    assert len(busy.began) == 5_000


# Threads and schedulers


@virtual
async def test_a_plain_function_runs_in_a_thread(emulator: MemoryEmulator) -> None:
    """G7: and may block; the message can be settled there."""
    threads: set[str] = set()
    seen: list[str] = []

    def work(message: Message) -> None:
        threads.add(threading.current_thread().name)
        seen.append(current.get())
        current.set("spoilt")
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    current.set("of the subscriber")
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(5)
        assert live.health().leased == 0

    assert seen == ["of the subscriber"] * 20
    assert threading.current_thread().name not in threads
    assert all(name.startswith("pubsub-aio") for name in threads)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_plain_function_that_raises_is_nacked(emulator: MemoryEmulator) -> None:
    tries: list[bytes] = []

    def work(message: Message) -> None:
        tries.append(message.data)
        if len(tries) == 1:
            raise ValueError
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(5)
        assert live.health().counts["raised"] == 1

    assert tries == [b"0", b"0"]
    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("odd", [StopIteration(), SystemExit(2)], ids=["stop", "exit"])
def test_what_a_plain_function_raises_gets_out_of_its_thread_as_an_error(
    odd: BaseException,
) -> None:
    """No future takes the one, for which one would wait for ever; the other would end the loop."""
    tries: list[bytes] = []
    raised: list[BaseException] = []

    def work(message: Message) -> None:
        tries.append(message.data)
        if len(tries) == 1:
            raise odd
        message.ack()

    class Noting(ThreadScheduler):
        async def run(self, callback: Callable[[Message], object], message: Message) -> None:
            try:
                await super().run(callback, message)
            except BaseException as error:
                raised.append(error)
                raise

    @virtual
    async def scenario(emulator: MemoryEmulator) -> None:
        emulator.create_subscription(WORKER, TOPIC)
        publish(emulator, 1)
        scheduler = Noting(max_workers=1)
        async with client_of(emulator) as client:
            live = client.subscribe(WORKER, work, scheduler=scheduler)
            await asyncio.sleep(5)
            assert live.health().counts["raised"] == 1
        scheduler.close()
        assert emulator.backlog(WORKER) == 0

    scenario()
    assert tries == [b"0", b"0"]
    assert [type(error) for error in raised] == [RuntimeError]
    assert raised[0].__cause__ is odd


@virtual
async def test_threads_are_bounded_by_the_scheduler(emulator: MemoryEmulator) -> None:
    """G7: those that find no thread wait, with their leases kept."""
    lock = threading.Lock()
    running = peak = 0

    def work(message: Message) -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 30)
    scheduler = ThreadScheduler(max_workers=3)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, work, scheduler=scheduler)
        await asyncio.sleep(5)
    scheduler.close()

    assert peak == 3
    assert emulator.backlog(WORKER) == 0


class OneAfterAnother:
    """A scheduler that runs one callback at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.ran = 0
        self.closed = False

    async def run(self, callback: Callable[[Message], object], message: Message) -> None:
        async with self.lock:
            result = callback(message)
            if asyncio.iscoroutine(result):
                await result
            self.ran += 1

    def close(self) -> None:
        self.closed = True


@virtual
async def test_a_scheduler_of_ones_own_decides_where_callbacks_run(
    emulator: MemoryEmulator,
) -> None:
    """G7: it is given async and plain functions alike, and belongs to who made it."""

    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        message.ack()

    def plain(message: Message) -> None:
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    calls, scheduler = Calls(work), OneAfterAnother()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls, scheduler=scheduler)
        await asyncio.sleep(10)
        live.stop()
        await live
        assert not scheduler.closed
        publish(emulator, 5)
        client.subscribe(WORKER, plain, scheduler=scheduler)
        await asyncio.sleep(10)

    assert calls.peak == 1
    assert calls.times == pytest.approx([0, 1, 2, 3, 4], abs=0.1)
    assert scheduler.ran == 10
    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("callback", [None, "name", 7, lambda: None, lambda one, two: (one, two)])
@pytest.mark.parametrize("way", ["subscribe", "subscribe_batches", "subscribe_arrow"])
@virtual
async def test_what_cannot_be_called_with_a_message_is_refused(
    emulator: MemoryEmulator, callback: object, way: str
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match=r"^callback must"):
            getattr(client, way)(WORKER, callback)


@virtual
async def test_what_does_not_tell_its_arguments_is_called(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, cast(Any, max))
        await live.ready()


@virtual
async def test_an_option_that_there_is_not_is_refused(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    unknown: Any = {"max_leases": 1}
    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match=r"^max_leases: .* there are flow_control, auto_ack"):
            client.subscribe(WORKER, print, **unknown)


@virtual
async def test_a_callback_can_use_its_own_subscription(emulator: MemoryEmulator) -> None:
    """It stops it, changes its limits, subscribes to another, and publishes."""

    async def work(message: Message) -> None:
        match message.data:
            case b"change":
                live.flow_control = FlowControl(max_messages=7)
            case b"subscribe":
                client.subscribe("other", others)
            case b"stop":
                live.stop()
        message.ack()
        await asyncio.sleep(0.1)

    emulator.create_subscription(WORKER, TOPIC)
    emulator.create_subscription("other", TOPIC)
    others = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        for data in (b"change", b"subscribe", b"plain", b"stop"):
            emulator.publish(TOPIC, data)
            await asyncio.sleep(1)
        await live
        assert now() < 5

    assert len(others.began) == 4
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_callbacks_leave_the_loop_to_others_also_where_some_of_them_wait(
    emulator: MemoryEmulator,
) -> None:
    """G7: whoever goes on, or begins, while another worker rests leaves the queue to that one."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 400)
    longest = 0.0

    async def work(message: Message) -> None:
        if int(message.data) < 20:
            await asyncio.sleep(0.05)
        else:
            burn(0.002)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await emulator.until(lambda: len(calls.ended) > 0, timeout=MINUTE)
        while len(calls.ended) < 300:
            before = now()
            await asyncio.sleep(0)
            longest = max(longest, now() - before)

    assert SLICE / 2 < longest < 2 * SLICE


@virtual
async def test_callbacks_that_wait_a_moment_and_then_compute_leave_the_loop_to_others(
    emulator: MemoryEmulator,
) -> None:
    """G7: many of them that go on in one turn would hold up acks and renewals."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 200)
    longest = 0.0

    async def work(message: Message) -> None:
        await asyncio.sleep(0)
        burn(0.5)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        while emulator.backlog(WORKER):
            before = now()
            await asyncio.sleep(0.001)
            longest = max(longest, now() - before)

    assert len(calls.ended) == 200  # none came again
    assert longest < 3 * 0.5


@virtual
async def test_callbacks_begin_soon_although_others_wait(emulator: MemoryEmulator) -> None:
    """G7: in a few turns of the loop, however long each takes."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1_000)

    async def work(message: Message) -> None:
        if int(message.data) % 2:
            await asyncio.sleep(MINUTE)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(
            WORKER,
            calls,
            flow_control=FlowControl(max_messages=2_000, max_request_batch_size=2_000),
        )
        await emulator.until(lambda: len(calls.began) > 0, timeout=MINUTE)
        turns = 0
        while len(calls.began) < 1_000:
            turns += 1
            await asyncio.sleep(0)

    assert turns < 100


@virtual
async def test_who_cancels_a_worker_that_waits_cancels_nothing_else(
    emulator: MemoryEmulator,
) -> None:
    """G7: a callback's task that was kept, and is cancelled as the next message comes."""
    emulator.create_subscription(WORKER, TOPIC)
    tasks: list[asyncio.Task[object]] = []

    async def work(message: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        for turns in range(12):
            publish(emulator, 1)
            for _ in range(turns):
                await asyncio.sleep(0)
            if tasks:
                tasks[-1].cancel()
            await asyncio.sleep(1)
        assert not live.done()

    assert len(calls.ended) == 12


@virtual
async def test_workers_that_wait_keep_no_message_alive(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    alive: weakref.WeakSet[Message] = weakref.WeakSet()

    async def work(message: Message) -> None:
        alive.add(message)
        await asyncio.sleep(1)
        message.ack()

    async with client_of(emulator) as client:
        client.subscribe(WORKER, work)
        publish(emulator, 50)
        await asyncio.sleep(MINUTE)
        gc.collect()
        assert not alive


async def test_a_fault_in_dealing_with_a_callbacks_end_is_told() -> None:
    """And costs no other message its callback."""

    class Broken:
        watch_all = True

        def returned(self, message: Word, /) -> None:
            if message.data == "b":
                raise ZeroDivisionError("broken")

        def raised(self, _: Word, error: BaseException, /) -> None:
            raise error

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    seen: list[str] = []

    async def work(word: Word) -> None:
        seen.append(word.data)

    chain = WorkerChain(work, Broken())
    chain.put([Word("a"), Word("b"), Word("c")])
    await chain.finished()
    await chain.stop(timeout=1)

    assert seen == ["a", "b", "c"]
    assert [type(one["exception"]) for one in told] == [ZeroDivisionError]


@dataclass
class Word:
    """What a callback is called with, as far as a worker is concerned."""

    data: str
    lease: object = True

"""Which event loop a client serves, and how signals end it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from pubsub_aio import (
    ClosedError,
    ConfigError,
    Message,
    StartupError,
    SubscriberClient,
    WrongLoopError,
)
from tests.subscriber_wire.conftest import (
    WITHIN,
    Program,
    Received,
    Site,
    nothing_left_behind,
    until,
)

# Who brings the loop has nothing to do with the server, nor a signal with the transport.
pytestmark = pytest.mark.only("embedded")


class Stopping(Received):
    """Acks, and stops its subscription when so many messages have come."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.live: Any = None
        self._count = count

    async def __call__(self, message: Message) -> None:
        await super().__call__(message)
        if len(self.messages) == self._count:
            self.live.stop()


# Without a loop


def test_without_a_loop_the_client_brings_one(site: Site) -> None:
    """G5: run_forever blocks until the subscription has ended, and closes the client."""
    topic, name = site.create_pair()
    site.publish(topic, *"abc")
    callback = Stopping(3)
    client = site.client()
    callback.live = client.subscribe(name, callback)
    assert client.run_forever(callback.live) is None

    assert sorted(callback.data) == [b"a", b"b", b"c"]
    assert site.left(name, callback.ack_ids) == []
    with pytest.raises(ClosedError):
        client.subscribe(name, callback)


def test_without_a_loop_a_failure_is_raised_by_run_forever(site: Site) -> None:
    """G4 G5: so that the program ends with it."""
    client = site.client()
    live = client.subscribe(site.subscription_name(), Received())
    with pytest.raises(StartupError):
        client.run_forever(live)


def test_run_forever_runs_every_subscription_when_none_is_named(site: Site) -> None:
    """G5: it ends when the first does, and then stops the others."""
    pairs = [site.create_pair() for _ in range(2)]
    client = site.client()
    first, second = Stopping(1), Received()
    first.live = client.subscribe(pairs[0][1], first)
    other = client.subscribe(pairs[1][1], second)
    site.publish(pairs[1][0], "b")
    site.publish(pairs[0][0], "a")
    client.run_forever()

    assert other.done()
    assert other.result() is None


def test_there_must_be_something_to_run(site: Site) -> None:
    """G5: a program that would wait for nothing is told."""
    with pytest.raises(ConfigError, match="subscribe"):
        site.client().run_forever()


def test_run_forever_works_in_a_thread_that_is_not_the_main_one(site: Site) -> None:
    """G5: where signals do not reach."""
    topic, name = site.create_pair()
    site.publish(topic, *"ab")
    callback = Stopping(2)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            client = site.client()
            client.create_subscription(name, topic)
            callback.live = client.subscribe(name, callback)
            client.run_forever(callback.live)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            failures.append(error)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(WITHIN)

    assert not thread.is_alive()
    assert failures == []
    assert sorted(callback.data) == [b"a", b"b"]
    assert site.left(name, callback.ack_ids) == []
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_client_can_be_closed_twice_without_a_loop(site: Site) -> None:
    client = site.client()
    client.create_subscription("worker", site.create_topic())
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        client.create_subscription("worker", site.create_topic())


def test_run_forever_can_be_the_end_of_a_with_block(site: Site) -> None:
    """G5: both close the client."""
    topic, name = site.create_pair()
    site.publish(topic, "a")
    callback = Stopping(1)
    with site.client() as client:
        callback.live = client.subscribe(name, callback)
        client.run_forever(callback.live)

    assert callback.data == [b"a"]


def test_a_client_that_was_never_used_can_be_closed(site: Site) -> None:
    with site.client():
        pass
    site.client().close()


def test_closing_stops_what_still_runs(site: Site) -> None:
    """G5: in a `with` block nothing is left behind."""
    topic, name = site.create_pair()
    with site.client() as client:
        live = client.subscribe(name, Received())
        client.create_subscription(name, topic)  # the loop runs meanwhile

    assert live.done()


# In a loop


async def test_run_forever_is_awaited_in_a_loop(site: Site, client: SubscriberClient) -> None:
    """G5: and leaves the client open."""
    topic, name = site.create_pair()
    site.publish(topic, *"abc")
    callback = Stopping(3)
    callback.live = client.subscribe(name, callback)
    running = client.run_forever(callback.live)
    assert running is not None
    await asyncio.wait_for(running, WITHIN)

    assert sorted(callback.data) == [b"a", b"b", b"c"]
    assert site.left(name, callback.ack_ids) == []
    await client.create_subscription("another", topic)


async def test_a_failure_is_raised_by_run_forever_in_a_loop(
    site: Site, client: SubscriberClient
) -> None:
    """G4 G5: from whichever subscription it comes."""
    _, name = site.create_pair()
    good = client.subscribe(name, Received())
    bad = client.subscribe(site.subscription_name(), Received())
    running = client.run_forever(good, bad)
    assert running is not None
    with pytest.raises(StartupError):
        await asyncio.wait_for(running, WITHIN)

    assert good.done()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_run_forever_in_a_loop(
    site: Site, client: SubscriberClient, number: signal.Signals
) -> None:
    """G5: gracefully, and what reacted to it before does so again."""
    topic, name = site.create_pair()
    began, go_on = asyncio.Event(), asyncio.Event()
    before = signal.getsignal(number)
    ids: list[str] = []

    async def callback(message: Message) -> None:
        ids.append(message.ack_id)
        began.set()
        await go_on.wait()
        message.ack()

    live = client.subscribe(name, callback)
    site.publish(topic, "a")
    running = asyncio.ensure_future(client.run_forever(live) or asyncio.sleep(0))
    await asyncio.wait_for(began.wait(), WITHIN)
    os.kill(os.getpid(), number)
    await until(lambda: live.state == "stopping")
    assert not running.done()
    go_on.set()
    await asyncio.wait_for(running, WITHIN)

    assert site.left(name, ids) == []
    assert signal.getsignal(number) is before


@pytest.mark.only("embedded-grpc")
async def test_cancelling_run_forever_leaves_the_signals_as_they_were(
    site: Site, client: SubscriberClient
) -> None:
    """G5: and what it ran is stopped with the client."""
    _, name = site.create_pair()
    before = signal.getsignal(signal.SIGTERM)
    live = client.subscribe(name, Received())
    running = asyncio.ensure_future(client.run_forever(live) or asyncio.sleep(0))
    await live.ready()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert signal.getsignal(signal.SIGTERM) is before
    await client.aclose()
    assert live.done()


async def test_close_is_for_programs_without_a_loop(site: Site, client: SubscriberClient) -> None:
    with pytest.raises(ConfigError, match="aclose"):
        client.close()
    del site


async def test_a_client_can_be_closed_twice(site: Site) -> None:
    _, name = site.create_pair()
    async with nothing_left_behind(), site.client() as client:
        live = client.subscribe(name, Received())
        await client.aclose()
        await client.aclose()

        assert live.done()


@pytest.mark.only("embedded-grpc")
async def test_a_client_can_be_closed_by_two_at_once(site: Site) -> None:
    _, name = site.create_pair()
    async with nothing_left_behind():
        client = site.client()
        live = client.subscribe(name, Received())
        await live.ready()
        await asyncio.gather(client.aclose(), client.aclose())

        assert live.done()


async def test_a_closed_client_says_so(site: Site) -> None:
    topic, name = site.create_pair()
    client = site.client()
    await client.aclose()
    with pytest.raises(ClosedError):
        client.subscribe(name, Received())
    with pytest.raises(ClosedError):
        await client.create_subscription(name, topic)
    with pytest.raises(ClosedError):
        await client.pull(name)
    with pytest.raises(ClosedError):
        await client.acknowledge(name, ["x"])
    with pytest.raises(ClosedError):
        await anext(client.messages(name))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are counted there")
async def test_clients_leave_no_thread_and_no_socket_behind(site: Site) -> None:
    """G30: nothing but gRPC's own, which all clients share."""
    topic, name = site.create_pair()

    async def live_once() -> None:
        done = asyncio.Event()

        def callback(message: Message) -> None:
            message.ack()
            loop.call_soon_threadsafe(done.set)

        site.publish(topic, "a")
        async with nothing_left_behind(), site.client() as client:
            client.subscribe(name, callback)
            await asyncio.wait_for(done.wait(), WITHIN)

    loop = asyncio.get_running_loop()
    await live_once()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await live_once()

    await until(lambda: threading.active_count() <= threads)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= files)


# Two loops


def test_a_client_serves_the_first_loop_that_used_it(site: Site) -> None:
    """G30: asyncio only, and one loop of it; another is told so instead of failing oddly."""
    topic, name = site.create_pair()
    client = site.client()

    async def use() -> None:
        await client.create_subscription(name, topic)

    async def misuse() -> None:
        with pytest.raises(WrongLoopError, match="another event loop"):
            client.create_subscription(name, topic)
        with pytest.raises(WrongLoopError):
            client.subscribe(name, Received())
        with pytest.raises(WrongLoopError):
            await client.pull(name)
        with pytest.raises(WrongLoopError):
            await client.seek(name, "snapshot")

    with asyncio.Runner() as first:
        first.run(use())
        with asyncio.Runner() as second:
            second.run(misuse())
        with pytest.raises(WrongLoopError, match="does not run here"):
            client.create_subscription(name, topic)
        first.run(client.aclose())


def test_a_client_with_a_loop_of_its_own_is_not_for_another(site: Site) -> None:
    """G30: it was used without one before."""
    topic, name = site.create_pair()
    with site.client() as client:
        client.create_subscription(name, topic)

        async def misuse() -> None:
            with pytest.raises(WrongLoopError):
                client.create_subscription(name, topic)
            with pytest.raises(WrongLoopError):
                async with client:
                    pass

        asyncio.run(misuse())


def test_it_is_documented_that_a_client_belongs_to_one_loop() -> None:
    """G30: there is no thread-safe version, and its users can read that."""
    assert "serves one loop" in " ".join((SubscriberClient.__doc__ or "").split())


# Signals, in a program of its own

SLOW = """
import asyncio
from pubsub_aio import SubscriberClient, ShutdownPolicy

client = SubscriberClient(transport={transport!r})

async def callback(message):
    print("began")
    try:
        await asyncio.sleep({seconds})
    finally:
        print("ended")
    message.ack()

keep_alive = client.subscribe("worker", callback, shutdown=ShutdownPolicy(timeout={timeout}))
client.run_forever(keep_alive)
print("closed")
"""


def slow(site: Site, *, seconds: float, timeout: float) -> Program:
    source = SLOW.format(transport=site.transport, seconds=seconds, timeout=timeout)
    return Program(source, address=site.address, project=site.project)


@pytest.mark.only("embedded-grpc")
def test_a_signal_lets_callbacks_end(site: Site) -> None:
    """G5: and their acks are sent."""
    assert site.emulator
    topic = site.create_topic_named("orders")
    name = site.create_subscription_named("worker", topic)
    site.publish(topic, "a")
    with slow(site, seconds=0.5, timeout=30) as program:
        program.says(1)
        program.send(signal.SIGINT)

        assert program.ending() == (0, "")
        assert program.says(3) == ["began", "ended", "closed"]
    assert site.emulator.backlog(name) == 0


@pytest.mark.only("embedded-grpc")
def test_a_second_signal_ends_it_at_once(site: Site) -> None:
    """G5: without waiting for callbacks; what was not acked is not lost."""
    assert site.emulator
    topic = site.create_topic_named("orders")
    name = site.create_subscription_named("worker", topic)
    site.publish(topic, "a")
    with slow(site, seconds=60, timeout=60) as program:
        program.says(1)
        program.send(signal.SIGINT)
        program.send(signal.SIGTERM)

        assert program.ending() == (0, "")
        assert program.says(3) == ["began", "ended", "closed"]
    assert site.emulator.backlog(name) == 1


@pytest.mark.only("embedded-grpc")
def test_a_shutdown_policy_bounds_the_end(site: Site) -> None:
    """G5: one signal is enough then, and what was not done is given back."""
    topic = site.create_topic_named("orders")
    name = site.create_subscription_named("worker", topic)
    site.publish(topic, "a")
    with slow(site, seconds=60, timeout=0.1) as program:
        program.says(1)
        program.send(signal.SIGTERM)

        assert program.ending() == (0, "")
    assert [one.message.data for one in site.receive(name, 1)] == [b"a"]

"""Ordering keys: one at a time for each key and in order, many keys at once."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from pubsub_aio import FlowControl, Message, StreamPolicy
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    DAY,
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    Tapped,
    client_of,
    now,
    publish,
    update,
    virtual,
)


class KeyLog:
    """Checks that callbacks of a key run one at a time, in order, and restart where one failed.

    The n-th message of a key is `key:n`.
    """

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.next: defaultdict[str, int] = defaultdict(int)
        self.violations: list[str] = []
        self.story: defaultdict[str, list[str]] = defaultdict(list)

    def began(self, message: Message) -> int:
        key, number = message.ordering_key, int(message.data.split(b":")[1])
        self.story[key].append(f"{now():.2f} {number}")
        if key in self.running:
            self.violations.append(f"{key}: {number} began while {self.running[key]} ran")
        if number != self.next[key]:
            tail = self.story[key][-8:]
            self.violations.append(f"{key}: {number} began, not {self.next[key]}: {tail}")
        self.running[key] = number
        return number

    def acked(self, message: Message) -> None:
        self.next[message.ordering_key] = self._number(message) + 1
        self.story[message.ordering_key][-1] += " acked"

    def given_back(self, message: Message) -> None:
        self.next[message.ordering_key] = self._number(message)
        self.story[message.ordering_key][-1] += " back"

    def ended(self, message: Message) -> None:
        self.running.pop(message.ordering_key, None)

    def _number(self, message: Message) -> int:
        return int(message.data.split(b":")[1])


class Publisher:
    """Publishes numbered messages of several keys."""

    def __init__(self, emulator: MemoryEmulator) -> None:
        self.emulator = emulator
        self.count: defaultdict[str, int] = defaultdict(int)

    def __call__(self, key: str) -> None:
        self.emulator.publish(TOPIC, f"{key}:{self.count[key]}".encode(), ordering_key=key)
        self.count[key] += 1


def ordered(emulator: MemoryEmulator, **settings: object) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True, **settings)


@virtual
async def test_a_key_is_serial_and_keys_are_parallel(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        message.ack()

    ordered(emulator)
    for key in "abcde":
        publish(emulator, 10, key=key)
    publish(emulator, 10)
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(20)

    for key in "abcde":
        mine = [(time, data) for time, data in calls.began if data.startswith(key.encode())]
        assert [data for _, data in mine] == [f"{key}{n}".encode() for n in range(10)]
        assert [time for time, _ in mine] == pytest.approx(list(range(10)), abs=0.1)
    assert calls.peak == 15  # five keys, and all that have none
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_keys_do_not_matter_where_ordering_is_off(emulator: MemoryEmulator) -> None:
    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        message.ack()

    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10, key="a")
    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5)

    assert calls.peak == 10


@virtual
async def test_the_next_of_a_key_begins_when_both_ack_and_return_are_there(
    emulator: MemoryEmulator,
) -> None:
    """An ack in the middle of a callback does not begin the next, nor does a return without one."""
    ordered(emulator)
    publish(emulator, 3, key="a")
    held: list[Message] = []

    async def work(message: Message) -> None:
        if message.data == b"a0":
            message.ack()
            await asyncio.sleep(10)
        elif message.data == b"a1":
            held.append(message)
        else:
            message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(30)
        assert calls.times == pytest.approx([0, 10], abs=0.1)
        held[0].ack()
        await asyncio.sleep(1)

    assert calls.data == [b"a0", b"a1", b"a2"]
    assert calls.times == pytest.approx([0, 10, 30], abs=0.1)


@pytest.mark.parametrize(
    ("how", "wait"),
    [("nack", 0), ("delay", 30), ("drop", 8), ("raise", 0), ("expiry", 20), ("expiry drops", 20)],
)
@virtual
async def test_a_key_restarts_at_the_message_that_was_given_back(
    emulator: MemoryEmulator, how: str, wait: float
) -> None:
    """H4: and the later ones of its key wait for it, whatever way it was given back."""
    ordered(emulator)
    publish(emulator, 6, key="a")
    publish(emulator, 3, key="b")

    async def work(message: Message) -> None:
        first = calls.data.count(message.data) == 1
        if message.data == b"a2" and first:
            match how:
                case "nack":
                    message.nack()
                case "delay":
                    message.nack(delay=30)
                case "drop":
                    message.drop()
                case "raise":
                    raise ValueError
            return
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(
            WORKER,
            calls,
            flow_control=FlowControl(max_lease_duration=20),
            on_lease_expiry="drop" if how == "expiry drops" else "nack",
        )
        await asyncio.sleep(1)
        publish(emulator, 2, key="c")
        for number in (6, 7):
            emulator.publish(TOPIC, f"a{number}".encode(), ordering_key="a")
        await asyncio.sleep(2 * MINUTE)

    mine = [(time, data) for time, data in calls.began if data.startswith(b"a")]
    numbers = [0, 1, 2, 2, 3, 4, 5, 6, 7]
    assert [data for _, data in mine] == [f"a{n}".encode() for n in numbers]
    assert wait <= mine[3][0] <= wait + (12 if "drop" in how else 2.2)
    others = [time for time, data in calls.began if not data.startswith(b"a")]
    assert max(others) < 1.1
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_redelivery_waits_until_the_callback_before_it_ends(
    emulator: MemoryEmulator,
) -> None:
    """G26, H4: the lease ended, the message came again, and the key stays blocked meanwhile."""
    ordered(emulator)
    publish(emulator, 3, key="a")

    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            await asyncio.sleep(45)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls, flow_control=FlowControl(max_lease_duration=20))
        await asyncio.sleep(2 * MINUTE)

    assert calls.data == [b"a0", b"a0", b"a1", b"a2"]
    assert calls.times[1] >= 45
    assert calls.peak == 1
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_nack_in_the_middle_of_a_callback_keeps_the_key_blocked(
    emulator: MemoryEmulator,
) -> None:
    ordered(emulator)
    publish(emulator, 3, key="a")

    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            message.nack()
            await asyncio.sleep(10)
        else:
            message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert calls.data == [b"a0", b"a0", b"a1", b"a2"]
    assert calls.times == pytest.approx([0, 10, 10, 10], abs=0.2)


@virtual
async def test_what_is_on_its_way_when_a_message_is_nacked_does_not_overtake_it(
    emulator: MemoryEmulator,
) -> None:
    """H4: messages that were sent before the server knew of the nack."""
    ordered(emulator)
    publisher, log = Publisher(emulator), KeyLog()

    async def work(message: Message) -> None:
        number = log.began(message)
        if number % 3 == 0 and f"{number} back" not in " ".join(log.story["a"]):
            for _ in range(3):  # on their way before the nack is
                publisher("a")
            await asyncio.sleep(0)
            log.given_back(message)
            message.nack()
        else:
            log.acked(message)
            message.ack()
        log.ended(message)

    publisher("a")
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(1)
        for _ in range(20):
            publisher("a")
            await asyncio.sleep(0.1)
        live.stop()

    assert log.violations == []
    assert log.next["a"] > 20


async def play(
    emulator: MemoryEmulator,
    seed: int,
    *,
    streams: int = 1,
    cuts: bool = False,
    exactly_once: bool = False,
    pongs: bool = True,
    latency: float = 0.0,
) -> None:
    """Several keys, random settlements, publishing all the while; then everything drains."""
    rng = random.Random(seed)  # noqa: S311
    ordered(emulator, enable_exactly_once_delivery=exactly_once)
    publisher, log = Publisher(emulator), KeyLog()
    keys = [f"k{n}" for n in range(rng.randint(1, 5))]
    calm = False

    async def work(message: Message) -> None:
        log.began(message)
        try:
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice([0, 0.001, 0.1, 3, 30]))
            await settle(message)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.choice([0, 0.01, 2]))
        finally:
            log.ended(message)

    async def settle(message: Message) -> None:
        back = 0 if calm else rng.random()
        if back < 0.7:
            log.acked(message)
            message.ack()
            return
        log.given_back(message)
        match rng.randrange(4):
            case 0:
                message.nack()
            case 1:
                message.nack(delay=rng.choice([1, 5, 40]))
            case 2:
                message.drop()
            case _:
                raise ValueError("no luck")

    flow = FlowControl(
        max_messages=rng.choice([3, 10, 1_000]),
        max_request_batch_size=rng.choice([1, 10]),
        max_lease_duration=DAY,
    )
    async with client_of(emulator, Tapped(emulator.transport(), pongs=pongs)) as client:
        live = client.subscribe(
            WORKER, work, flow_control=flow, streams=StreamPolicy(streams=streams)
        )
        for _ in range(100):
            for _ in range(rng.choice([0, 1, 1, 5])):
                publisher(rng.choice(keys))
            if cuts and rng.random() < 0.1:
                emulator.faults.cut_streams()
            if latency and rng.random() < 0.3:
                emulator.faults.delay("ModifyAckDeadline", rng.uniform(0, latency))
                emulator.faults.delay("Acknowledge", rng.uniform(0, latency))
            await asyncio.sleep(rng.choice([0, 0.005, 0.2, 3]))
        calm = True
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=10 * HOUR)
        live.stop()

    assert log.violations == []
    assert {key: log.next[key] for key in publisher.count} == dict(publisher.count)


@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_order_holds_whatever_callbacks_do(emulator: MemoryEmulator, seed: int) -> None:
    """H4: random nacks, delayed nacks, drops and failures, several keys, messages in flight."""
    await play(emulator, seed)


@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_order_holds_while_the_server_answers_slowly(
    emulator: MemoryEmulator, seed: int
) -> None:
    """H4: acks and nacks take up to two seconds, so that much is under way meanwhile."""
    await play(emulator, seed, latency=2.0)


@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_order_holds_when_streams_are_cut(emulator: MemoryEmulator, seed: int) -> None:
    """H4: and are reopened by the same client."""
    await play(emulator, seed, cuts=True)


@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_order_holds_over_several_streams(emulator: MemoryEmulator, seed: int) -> None:
    """H4: a key may move from one stream to another."""
    await play(emulator, seed, streams=3)


@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_order_holds_with_exactly_once(emulator: MemoryEmulator, seed: int) -> None:
    """H3, H4: receipts are confirmed in between."""
    await play(emulator, seed, exactly_once=True)


@virtual
async def test_what_comes_again_with_what_waited_stays_in_order(emulator: MemoryEmulator) -> None:
    """H4: copies of messages that waited here, and a new one behind them, in one response."""
    ordered(emulator)
    publisher, log = Publisher(emulator), KeyLog()

    async def work(message: Message) -> None:
        number = log.began(message)
        if number == 0 and len(log.story["a"]) == 1:
            log.given_back(message)
            message.nack(delay=30)
        else:
            log.acked(message)
            message.ack()
        log.ended(message)

    async with client_of(emulator) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)
        publisher("a")
        await asyncio.sleep(5)
        publisher("a")  # delivered while the first is not to come yet
        publisher("a")
        with emulator.faults.stall_streams(direction="responses"):
            await asyncio.sleep(30)  # the first comes again meanwhile, together with new ones
            publisher("a")
            publisher("a")
        await asyncio.sleep(MINUTE)

    assert log.violations == []
    assert log.next["a"] == 5


@virtual
async def test_receipts_confirmed_out_of_order_do_not_change_the_order(
    emulator: MemoryEmulator,
) -> None:
    """H4: with exactly-once, the receipt of the first takes longer than that of the second."""
    ordered(emulator, enable_exactly_once_delivery=True)
    calls = Calls()
    async with client_of(emulator) as client:
        await client.subscribe(WORKER, calls).ready()
        emulator.faults.delay("ModifyAckDeadline", 2)
        for number in range(3):
            emulator.publish(TOPIC, f"a{number}".encode(), ordering_key="a")
            await asyncio.sleep(0.5)
        publish(emulator, 1, key="b")
        await asyncio.sleep(10)

    assert [data for data in calls.data if data != b"b0"] == [b"a0", b"a1", b"a2"]
    assert calls.data[0] == b"b0"


@pytest.mark.parametrize("way", ["nack", "drop"])
@virtual
async def test_a_renewal_under_way_does_not_change_the_order(
    emulator: MemoryEmulator, way: str
) -> None:
    """H4: it was sent before the message was given back, and takes effect later."""
    ordered(emulator)
    emulator.publish(TOPIC, b"a0", ordering_key="a")

    async def work(message: Message) -> None:
        if len(calls.began) > 1:
            message.ack()
            return
        await asyncio.sleep(6.5)
        if way == "nack":
            message.nack(delay=3)
        else:
            message.drop()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5.5)
        emulator.faults.delay("ModifyAckDeadline", 3 if way == "drop" else 1)
        await asyncio.sleep(1.2)
        for number in range(1, 40):
            emulator.publish(TOPIC, f"a{number}".encode(), ordering_key="a")
            await asyncio.sleep(0.4)
        await asyncio.sleep(MINUTE)

    assert calls.data == [b"a0", *(f"a{n}".encode() for n in range(40))]


@virtual
async def test_ordering_that_is_switched_on_later_is_heeded(emulator: MemoryEmulator) -> None:
    """R4: each response says how the subscription is; here nothing else could tell."""
    emulator.faults.fail("GetSubscription", "PERMISSION_DENIED")
    ordered(emulator)
    publish(emulator, 5, key="a")

    async def work(message: Message) -> None:
        await asyncio.sleep(1)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(10)
        assert live.settings["enable_message_ordering"].value is True

    assert calls.peak == 1
    assert calls.data == [f"a{n}".encode() for n in range(5)]


@virtual
async def test_exactly_once_that_is_switched_on_later_is_heeded(
    emulator: MemoryEmulator,
) -> None:
    """R4: the next response tells."""
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        before = live.settings["enable_exactly_once_delivery"].value
        await update(emulator, WORKER, enable_exactly_once_delivery=True)
        publish(emulator, 1)
        await asyncio.sleep(1)
        after = live.settings["enable_exactly_once_delivery"].value
        assert (before, after) == (False, True)
        assert live.settings["lease_extension"].value == 60

    assert len(calls.began) == 1


@virtual
async def test_a_blocked_key_does_not_hold_up_the_others(emulator: MemoryEmulator) -> None:
    """As long as there is room: what waits for its turn is leased, and counts."""
    ordered(emulator)
    publish(emulator, 20, key="a")

    async def work(message: Message) -> None:
        if message.ordering_key == "a":
            await asyncio.sleep(HOUR)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        assert live.health().leased == 20
        for key in "bcd":
            publish(emulator, 5, key=key)
        await asyncio.sleep(1)
        assert len(calls.ended) == 15
        live.stop()
        live.stop()


@virtual
async def test_keys_that_are_done_with_are_forgotten(emulator: MemoryEmulator) -> None:
    """Two thousand keys, each used once."""
    ordered(emulator)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        for number in range(2_000):
            emulator.publish(TOPIC, b"x", ordering_key=f"key-{number}")
            if number % 100 == 0:
                await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert live.health().leased == 0
        assert live._engine is not None
        assert len(live._engine.custody._lanes) == 0

    assert len(calls.began) == 2_000


@virtual
async def test_an_ack_that_the_server_lost_brings_later_messages_again_behind_it(
    emulator: MemoryEmulator,
) -> None:
    """H4: what ran or waited meanwhile runs once more, so that the last word is the last one's."""
    ordered(emulator)
    publish(emulator, 3, key="a")
    emulator.faults.lose_acks(WORKER, times=1)

    async def work(message: Message) -> None:
        if calls.data == [b"a0", b"a1"]:
            await asyncio.sleep(30)
        message.ack()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a0", b"a1", b"a0", b"a1", b"a2"]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_receipt_that_cannot_be_confirmed_restarts_its_key_there(
    emulator: MemoryEmulator,
) -> None:
    """H4: a failure for the moment does not mean that the message went to somebody else."""
    ordered(emulator, enable_exactly_once_delivery=True)
    emulator.faults.fail_confirmations(WORKER, times=9)
    publish(emulator, 3, key="a")
    calls = Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a0", b"a1", b"a2"]
    assert calls.times[-1] < 10  # it was given back, not left to its ack deadline


@pytest.mark.parametrize("turns", range(12))
@virtual
async def test_what_is_on_its_way_when_limits_change_is_read_first(
    emulator: MemoryEmulator, turns: int
) -> None:
    """H4: unread in a stream that is cancelled, it would come only after its ack deadline."""
    ordered(emulator)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        await asyncio.sleep(2)
        live.flow_control = FlowControl(max_messages=7)
        for _ in range(turns):
            await asyncio.sleep(0)
        publish(emulator, 1, key="a")
        await asyncio.sleep(0.5)
        emulator.publish(TOPIC, b"a1", ordering_key="a")
        await asyncio.sleep(2)

    assert calls.data == [b"a0", b"a1"]


@virtual
async def test_what_is_unread_while_reading_is_paused_is_read_before_the_stream_is_reopened(
    emulator: MemoryEmulator,
) -> None:
    """H4: on a server that heeds no limits. Otherwise later messages would come first."""
    ordered(emulator)
    (first,) = publish(emulator, 1, key="a")

    async def work(message: Message) -> None:
        await asyncio.sleep(8 if message.message_id == first else 0)
        message.ack()

    calls = Calls(work)
    tight = FlowControl(max_messages=1, max_request_batch_size=1, max_bytes=1)
    transport = Tapped(emulator.transport(), limits=False)
    async with client_of(emulator, transport=transport) as client:
        live = client.subscribe(WORKER, calls, flow_control=tight)
        await asyncio.sleep(1)
        for number in range(1, 4):
            emulator.publish(TOPIC, f"a{number}".encode(), ordering_key="a")
            await asyncio.sleep(1)
        assert "reading is paused" in str(live.health().reasons)
        live.flow_control = FlowControl(max_messages=2, max_request_batch_size=1, max_bytes=2)
        await asyncio.sleep(0.1)
        emulator.publish(TOPIC, b"a4", ordering_key="a")
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a0", b"a1", b"a2", b"a3", b"a4"]

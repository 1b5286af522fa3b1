"""Messages in batches, and messages by `async for`."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from pubsub_aio import (
    Batch,
    ConfigError,
    FlowControl,
    InvalidAckIdError,
    Message,
    ShutdownPolicy,
    StartupError,
)
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    DAY,
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    client_of,
    delete,
    leftovers,
    now,
    publish,
    virtual,
)


class Batches:
    """A batch callback that notes what it was called with, and when."""

    def __init__(self, *, ack: bool = True, seconds: float = 0.0) -> None:
        self.ack = ack
        self.seconds = seconds
        self.began: list[tuple[float, list[bytes]]] = []
        self.batches: list[Batch] = []

    async def __call__(self, batch: Batch) -> None:
        self.began.append((round(now(), 2), [message.data for message in batch]))
        self.batches.append(batch)
        await asyncio.sleep(self.seconds)
        if self.ack:
            batch.ack()

    @property
    def sizes(self) -> list[int]:
        return [len(data) for _, data in self.began]

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.began]

    @property
    def data(self) -> list[bytes]:
        return [one for _, data in self.began for one in data]


# Batches


@virtual
async def test_a_batch_is_complete_by_count(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    batches = Batches()
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, max_messages=30, max_latency=5)
        await asyncio.sleep(10)

    assert batches.sizes == [30, 30, 30, 10]
    assert batches.times == pytest.approx([0, 0, 0, 5], abs=0.1)
    assert batches.data == [str(n).encode() for n in range(100)]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_batch_is_complete_by_bytes(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 10, size=970)
    emulator.publish(TOPIC, bytes(9_000))
    publish(emulator, 1)
    batches = Batches()
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, max_bytes=4_000, max_latency=5)
        await asyncio.sleep(10)

    assert batches.sizes == [4, 4, 2, 1, 1] or batches.sizes == [3, 3, 3, 1, 1, 1]
    assert all(sum(m.size for m in batch) <= 4_000 or len(batch) == 1 for batch in batches.batches)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_no_message_waits_longer_than_the_latency(emulator: MemoryEmulator) -> None:
    """G19: only batches gather, and only for so long."""
    emulator.create_subscription(WORKER, TOPIC)
    batches = Batches()
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, max_latency=2)
        await asyncio.sleep(1)
        for _ in range(7):
            publish(emulator, 1)
            await asyncio.sleep(1)
        await asyncio.sleep(5)

    assert batches.times == pytest.approx([3, 5, 7, 9], abs=0.1)
    assert batches.sizes == [2, 2, 2, 1]


@virtual
async def test_batches_run_side_by_side(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 40)
    batches = Batches(seconds=10)
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, max_messages=10)
        await asyncio.sleep(15)

    assert batches.times == pytest.approx([0, 0, 0, 0], abs=0.1)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_batches_keep_to_the_flow_control(emulator: MemoryEmulator) -> None:
    """G16: with room for two batches no third is begun."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    batches = Batches(seconds=10)
    flow = FlowControl(max_messages=10, resume_threshold=1, max_request_batch_size=10)
    async with client_of(emulator) as client:
        live = client.subscribe_batches(WORKER, batches, max_messages=10, flow_control=flow)
        await asyncio.sleep(5)
        assert live.health().leased <= 20
        assert len(batches.began) <= 2
        await asyncio.sleep(3 * MINUTE)

    assert sorted(batches.data) == sorted(str(n).encode() for n in range(100))
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_batch_that_does_not_fit_the_flow_control_is_refused(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        with pytest.raises(ConfigError, match="max_messages"):
            client.subscribe_batches(
                WORKER,
                Batches(),
                max_messages=100,
                flow_control=FlowControl(max_messages=10, max_request_batch_size=10),
            )
        with pytest.raises(ConfigError, match="max_messages"):
            client.subscribe_batches(WORKER, Batches(), max_messages=0)
        with pytest.raises(ConfigError, match="max_bytes"):
            client.subscribe_batches(WORKER, Batches(), max_bytes=0)
        with pytest.raises(ConfigError, match="max_latency"):
            client.subscribe_batches(WORKER, Batches(), max_latency=-1)


@virtual
async def test_a_batch_can_be_settled_in_parts(emulator: MemoryEmulator) -> None:
    """What is settled by itself is left alone by the batch's own ack and nack."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 6)

    async def work(batch: Batch) -> None:
        seen.append([message.data for message in batch])
        if len(seen) == 1:
            assert (len(batch), batch[0].data, batch[-1].data) == (6, b"0", b"5")
            assert [message.data for message in batch[1:3]] == [b"1", b"2"]
            assert batch[2] in batch
            batch[0].ack()
            batch[1].nack(delay=30)
            batch.nack(delay=10)
        batch.ack()

    seen: list[list[bytes]] = []
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, work)
        await asyncio.sleep(MINUTE)

    assert [sorted(data) for data in seen] == [
        [b"0", b"1", b"2", b"3", b"4", b"5"],
        [b"2", b"3", b"4", b"5"],
        [b"1"],
    ]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_batch_whose_callback_raises_is_nacked(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """What it had settled before stays settled."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    seen: list[int] = []

    async def work(batch: Batch) -> None:
        seen.append(len(batch))
        if len(seen) == 1:
            batch[0].ack()
            raise ValueError
        batch.ack()

    with caplog.at_level(logging.ERROR, "pubsub_aio"):
        async with client_of(emulator) as client:
            live = client.subscribe_batches(WORKER, work)
            await asyncio.sleep(5)
            assert live.health().counts["raised"] == 1

    assert seen == [5, 4]
    assert len(caplog.records) == 1
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_auto_ack_acks_a_batch_when_its_callback_returns(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    batches = Batches(ack=False, seconds=5)
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, auto_ack=True)
        await asyncio.sleep(4)
        assert emulator.backlog(WORKER) == 5
        await asyncio.sleep(2)
        assert emulator.backlog(WORKER) == 0


@virtual
async def test_an_ack_of_a_batch_can_be_awaited(emulator: MemoryEmulator) -> None:
    """With one error for each message that was refused."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    publish(emulator, 80)
    errors: list[Exception] = []

    async def work(batch: Batch) -> None:
        if len(batch) == 80:
            emulator.faults.fail_confirmations(WORKER, times=2, permanent=True)
        try:
            await batch.ack_with_response()
        except* InvalidAckIdError as group:
            errors.extend(group.exceptions)

    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, work)
        await asyncio.sleep(MINUTE)

    assert len(errors) == 2
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_held_batches_are_kept_alive(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 5)
    batches = Batches(ack=False)
    flow = FlowControl(max_lease_duration=DAY)
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, flow_control=flow)
        await asyncio.sleep(HOUR)
        await batches.batches[0].ack_with_response()

    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 5
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_messages_that_gather_for_long_are_kept_alive(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 5)
    batches = Batches()
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches, max_latency=5 * MINUTE)
        await asyncio.sleep(6 * MINUTE)

    assert batches.times == pytest.approx([300], abs=0.1)
    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 5


@virtual
async def test_batches_of_ordered_messages_have_one_of_each_key(emulator: MemoryEmulator) -> None:
    """H4: so that a batch can be settled in any way without breaking the order."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    for key in "abc":
        publish(emulator, 4, key=key)
    batches = Batches(seconds=1)
    async with client_of(emulator) as client:
        client.subscribe_batches(WORKER, batches)
        await asyncio.sleep(MINUTE)

    for key in "abc":
        mine = [one for one in batches.data if one.startswith(key.encode())]
        assert mine == [f"{key}{n}".encode() for n in range(4)]
    for _, data in batches.began:
        assert len({one[:1] for one in data}) == len(data)
    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("mode", ["wait", "nack"])
@virtual
async def test_a_batch_that_gathers_at_the_end_is_given_back(
    emulator: MemoryEmulator, mode: str
) -> None:
    """H9: one that has begun is finished, or not, as the policy says."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 15)
    batches = Batches(seconds=5)
    async with client_of(emulator) as client:
        live = client.subscribe_batches(
            WORKER,
            batches,
            max_messages=10,
            max_latency=HOUR / 2,
            shutdown=ShutdownPolicy(mode=mode),  # type: ignore[arg-type]
        )
        await asyncio.sleep(1)
        live.stop()
        await live
        assert now() == pytest.approx(5 if mode == "wait" else 1, abs=0.2)
        assert emulator.outstanding(WORKER) == 0
        assert await leftovers() == []

    assert batches.sizes == [10]
    assert emulator.backlog(WORKER) == (5 if mode == "wait" else 15)


@virtual
async def test_batches_whose_messages_expired_are_not_handed_over(
    emulator: MemoryEmulator,
) -> None:
    """They gathered for longer than `max_lease_duration`; nobody may work on them any more."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    batches = Batches()
    flow = FlowControl(max_lease_duration=15)
    async with client_of(emulator) as client:
        live = client.subscribe_batches(WORKER, batches, max_latency=20, flow_control=flow)
        await asyncio.sleep(MINUTE)
        assert live.health().overdue == 0

    assert batches.data == [b"0", b"1", b"2"]
    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("seed", range(4))
@virtual
async def test_batches_lose_nothing_under_random_load(emulator: MemoryEmulator, seed: int) -> None:
    """H1: random sizes, failures, cuts and settlements."""
    rng = random.Random(seed)  # noqa: S311
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=bool(seed % 2))
    acked: set[str] = set()

    async def work(batch: Batch) -> None:
        await asyncio.sleep(rng.choice([0, 0.1, 3, 20]))
        for message in batch:
            match rng.randrange(8):
                case 0:
                    message.nack(delay=rng.choice([0, 5]))
                case 1:
                    message.drop()
                case _:
                    acked.add(message.message_id)
                    message.ack()
        if rng.random() < 0.2:
            raise ValueError

    ids: list[str] = []
    async with client_of(emulator) as client:
        live = client.subscribe_batches(WORKER, work, max_messages=7, max_latency=0.5)
        for _ in range(60):
            ids += publish(emulator, rng.randint(0, 10), key=rng.choice(["", "a", "b"]))
            if rng.random() < 0.1:
                emulator.faults.cut_streams()
            await asyncio.sleep(rng.choice([0, 0.2, 3]))
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=10 * HOUR)
        live.stop()

    assert acked == set(ids)


# Iteration


@virtual
async def test_messages_come_one_at_a_time(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    seen: list[bytes] = []
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            seen.append(message.data)
            await asyncio.sleep(1)
            message.ack()
            if len(seen) == 20:
                break
        await asyncio.sleep(5)
        assert emulator.streams(WORKER) == []

    assert seen == [str(n).encode() for n in range(20)]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_leaving_the_loop_gives_back_what_was_fetched_ahead(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            message.ack()
            break
        await asyncio.sleep(1)
        assert emulator.streams(WORKER) == []
        assert emulator.outstanding(WORKER) == 0
        assert emulator.backlog(WORKER) == 19
        assert await leftovers() == []


@pytest.mark.parametrize("auto_ack", [False, True])
@virtual
async def test_an_error_in_the_loop_gives_back_the_message(
    emulator: MemoryEmulator, auto_ack: bool
) -> None:
    """It was not dealt with, so it is not acked, whatever `auto_ack` says."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)

    async def program() -> None:
        async with client_of(emulator) as client:
            async for _ in client.messages(WORKER, auto_ack=auto_ack):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await program()
    await asyncio.sleep(1)

    assert emulator.backlog(WORKER) == 3
    assert emulator.outstanding(WORKER) == 0


@virtual
async def test_auto_ack_acks_when_the_next_is_asked_for(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    seen: list[tuple[bytes, int]] = []
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER, auto_ack=True):
            await asyncio.sleep(1)
            seen.append((message.data, emulator.backlog(WORKER)))
            if message.data == b"1":
                message.nack(delay=600)
            if len(seen) == 3:
                break

    assert seen == [(b"0", 3), (b"1", 2), (b"2", 2)]


@virtual
async def test_auto_ack_does_not_ack_what_is_still_being_worked_on(
    emulator: MemoryEmulator,
) -> None:
    """The client is closed in the middle of it."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    seen: list[bytes] = []

    async def program() -> None:
        async for message in client.messages(WORKER, auto_ack=True):
            seen.append(message.data)
            await asyncio.sleep(5)

    async with client_of(emulator) as client:
        running = asyncio.create_task(program())
        await asyncio.sleep(2)
    assert emulator.backlog(WORKER) == 3
    await running

    assert seen == [b"0"]
    assert emulator.backlog(WORKER) == 3


@virtual
async def test_closing_the_client_ends_the_loop(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    ended: list[float] = []

    async def program() -> None:
        async for message in client.messages(WORKER):
            message.ack()
        ended.append(now())

    async with client_of(emulator) as client:
        running = asyncio.create_task(program())
        publish(emulator, 3)
        await asyncio.sleep(5)
    await running

    assert ended == pytest.approx([5], abs=0.2)
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_cancelling_the_loop_ends_the_subscription(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)

    async def program() -> None:
        async for message in client.messages(WORKER):
            message.ack()

    async with client_of(emulator) as client:
        running = asyncio.create_task(program())
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        await asyncio.sleep(1)
        assert emulator.streams(WORKER) == []


@virtual
async def test_a_subscription_that_fails_raises_in_the_loop(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    async with client_of(emulator) as client:
        with pytest.raises(StartupError):
            async for _ in client.messages("nothing"):
                pass
        asyncio.get_running_loop().call_later(5, asyncio.ensure_future, delete(emulator, WORKER))
        with pytest.raises(Exception, match="NOT_FOUND"):
            async for _ in client.messages(WORKER):
                pass


@virtual
async def test_messages_fetched_ahead_are_kept_alive(emulator: MemoryEmulator) -> None:
    """One message takes minutes; those behind it do not expire."""
    emulator.create_subscription(WORKER, TOPIC)
    ids = publish(emulator, 10)
    count = 0
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            await asyncio.sleep(5 * MINUTE)
            message.ack()
            count += 1
            if count == 10:
                break

    assert [len(emulator.message(one).deliveries) for one in ids] == [1] * 10


@virtual
async def test_iteration_fetches_no_more_than_the_flow_control_allows(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 100)
    flow = FlowControl(max_messages=5, resume_threshold=1, max_request_batch_size=1)
    async with client_of(emulator) as client:
        count = 0
        async for message in client.messages(WORKER, flow_control=flow):
            await asyncio.sleep(0.1)
            assert emulator.outstanding(WORKER) <= 6
            message.ack()
            count += 1
            if count == 100:
                break

    assert emulator.backlog(WORKER) == 0


@virtual
async def test_iteration_keeps_the_order_of_each_key(emulator: MemoryEmulator) -> None:
    """H4: a nacked message comes before the later ones of its key."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    publish(emulator, 6, key="a")
    seen: list[bytes] = []
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            seen.append(message.data)
            if seen.count(message.data) == 1 and message.data in (b"a1", b"a3"):
                message.nack()
            else:
                message.ack()
            if message.data == b"a5":
                break

    assert seen == [b"a0", b"a1", b"a1", b"a2", b"a3", b"a3", b"a4", b"a5"]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_two_loops_share_the_messages(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    seen: list[bytes] = []

    async def program() -> None:
        async for message in client.messages(WORKER):
            seen.append(message.data)
            message.ack()

    async with client_of(emulator) as client:
        running = [asyncio.create_task(program()) for _ in range(3)]
        for _ in range(10):
            publish(emulator, 10)
            await asyncio.sleep(1)
    await asyncio.gather(*running)

    assert len(seen) == 100
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_message_kept_after_the_loop_can_be_settled_or_not(
    emulator: MemoryEmulator,
) -> None:
    """What is acked after the next was asked for counts, as long as the loop goes on."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    kept: list[Message] = []
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            kept.append(message)
            if len(kept) == 3:
                for one in kept:
                    await one.ack_with_response()
                break

    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_loop_over_nothing_waits(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    calls = Calls()
    async with client_of(emulator) as client:
        asyncio.get_running_loop().call_later(HOUR / 3, publish, emulator, 1)
        async for message in client.messages(WORKER):
            await calls(message)
            break

    assert calls.times == pytest.approx([1_200], abs=0.1)


@virtual
async def test_ordered_batches_go_on_after_one_that_was_let_go(emulator: MemoryEmulator) -> None:
    """G7: what comes while a batch is due is handed over in its time."""
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    publish(emulator, 4, key="a")
    seen: list[bytes] = []

    async def work(batch: Batch) -> None:
        seen.extend(message.data for message in batch)
        batch.ack()

    async with client_of(emulator) as client:
        live = client.subscribe_batches(
            WORKER, work, max_latency=8, flow_control=FlowControl(max_lease_duration=5)
        )
        await asyncio.sleep(7)
        live.flow_control = FlowControl()
        await asyncio.sleep(2 * MINUTE)

    assert seen == [b"a0", b"a1", b"a2", b"a3"]

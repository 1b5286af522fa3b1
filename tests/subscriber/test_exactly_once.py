"""Exactly-once delivery: receipts and acks that the server confirms."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

import pytest

from pubsub_aio import (
    FlowControl,
    InvalidAckIdError,
    Message,
    ServiceError,
    SettleError,
    UnconfirmedError,
    UnsupportedError,
)
from pubsub_aio._wire.transport import Capabilities, Transport, service_error
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import (
    HOUR,
    MINUTE,
    TOPIC,
    WORKER,
    Calls,
    Tapped,
    at,
    client_of,
    now,
    publish,
    virtual,
)


async def hold(_: Message) -> None:
    """Return without settling it."""


def exactly_once(emulator: MemoryEmulator, **settings: object) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True, **settings)


@virtual
async def test_a_message_is_handed_over_when_its_receipt_is_confirmed(
    emulator: MemoryEmulator,
) -> None:
    exactly_once(emulator)
    emulator.faults.delay("ModifyAckDeadline", 3)
    (one,) = publish(emulator, 1)
    calls = Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert calls.times == pytest.approx([3], abs=0.1)
    receipt = emulator.message(one).modacks[0]
    assert (receipt.seconds, receipt.effective) == (60, True)
    assert at(receipt.time) <= calls.times[0]


@virtual
async def test_a_refused_receipt_is_not_handed_over(emulator: MemoryEmulator) -> None:
    """The message comes again, by an id that is good."""
    exactly_once(emulator)
    emulator.faults.fail_confirmations(WORKER, times=3, permanent=True)
    ids = publish(emulator, 5)
    calls = Calls()
    async with client_of(emulator) as client:
        live = client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)
        assert live.health().counts["refused"] >= 3

    assert sorted(calls.data) == [f"{n}".encode() for n in range(5)]
    assert [len(emulator.message(one).deliveries) for one in ids] == [2, 2, 2, 1, 1]
    for message in calls.messages:
        assert message.ack_id == emulator.message(message.message_id).deliveries[-1].ack_id


@virtual
async def test_a_receipt_that_fails_for_the_moment_is_sent_again(
    emulator: MemoryEmulator,
) -> None:
    exactly_once(emulator)
    emulator.faults.fail_confirmations(WORKER, times=2)
    emulator.faults.fail("ModifyAckDeadline", "UNAVAILABLE")
    ids = publish(emulator, 2)
    calls = Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert sorted(calls.data) == [b"0", b"1"]
    assert [len(emulator.message(one).deliveries) for one in ids] == [1, 1]


@virtual
async def test_an_ack_resolves_when_the_server_has_confirmed_it(emulator: MemoryEmulator) -> None:
    exactly_once(emulator)
    publish(emulator, 1)
    emulator.faults.delay("Acknowledge", 4)
    confirmed: list[float] = []

    async def work(message: Message) -> None:
        await message.ack_with_response()
        confirmed.append(now())

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(3)
        assert emulator.backlog(WORKER) == 1
        await asyncio.sleep(HOUR)

    assert confirmed == pytest.approx([4], abs=0.1)
    assert len(calls.began) == 1


@pytest.mark.parametrize("way", ["confirmation", "call", "applied"])
@virtual
async def test_an_ack_that_fails_for_the_moment_is_sent_again(
    emulator: MemoryEmulator, way: str
) -> None:
    """With growing delays, until it is confirmed."""
    exactly_once(emulator)
    publish(emulator, 1)
    outcomes: list[object] = []

    async def work(message: Message) -> None:
        if way == "confirmation":
            emulator.faults.fail_confirmations(WORKER, times=4)
        else:
            emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=4, applied=way == "applied")
        try:
            await message.ack_with_response()
            outcomes.append("ok")
        except SettleError as error:
            outcomes.append(type(error))

    calls, transport = Calls(work), Tapped(emulator.transport())
    async with client_of(emulator, transport) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    times = transport.times("Acknowledge")
    assert len(times) == 5
    gaps = [later - time for time, later in itertools.pairwise(times)]
    for number, gap in enumerate(gaps):
        assert 0.05 * 2**number <= gap <= 0.1 * 2**number + 0.01
    # An ack that took effect although the answer was lost is refused the second time.
    assert outcomes == [InvalidAckIdError if way == "applied" else "ok"]
    assert emulator.backlog(WORKER) == 0
    assert len(calls.began) == 1


@virtual
async def test_an_ack_that_is_refused_for_good_is_a_named_error(emulator: MemoryEmulator) -> None:
    exactly_once(emulator)
    publish(emulator, 1)
    outcomes: list[InvalidAckIdError] = []

    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            emulator.faults.fail_confirmations(WORKER, permanent=True)
        try:
            await message.ack_with_response()
        except InvalidAckIdError as error:
            outcomes.append(error)

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    (error,) = outcomes
    assert error.ack_id == calls.messages[0].ack_id
    assert "INVALID" in error.reason
    assert len(calls.began) == 2
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_one_refusal_does_not_cost_the_others(emulator: MemoryEmulator) -> None:
    """A hundred acks at once, of which three are refused and four put off."""
    exactly_once(emulator)
    publish(emulator, 100)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(1)
        emulator.faults.fail_confirmations(WORKER, times=3, permanent=True)
        emulator.faults.fail_confirmations(WORKER, times=4)
        calls.do = None
        waiting = [message.ack_with_response() for message in calls.messages]
        outcomes = await asyncio.gather(*map(asyncio.wrap_future, waiting), return_exceptions=True)
        await asyncio.sleep(MINUTE)

    refused = [one for one in outcomes if one is not None]
    assert [type(one) for one in refused] == [InvalidAckIdError] * 3
    assert emulator.backlog(WORKER) == 0
    assert len(calls.began) == 103


@virtual
async def test_a_nack_and_a_deadline_can_be_confirmed_too(emulator: MemoryEmulator) -> None:
    exactly_once(emulator)
    publish(emulator, 1)
    seen: list[str] = []

    async def work(message: Message) -> None:
        if len(calls.began) == 1:
            await message.modify_ack_deadline_with_response(100)
            seen.append("deadline")
            await message.nack_with_response()
            seen.append("nack")
        elif len(calls.began) == 2:
            await message.nack_with_response(delay=20)
            seen.append("delayed")
        else:
            await message.ack_with_response()
            seen.append("ack")

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)

    assert seen == ["deadline", "nack", "delayed", "ack"]
    assert calls.times == pytest.approx([0, 0, 20], abs=0.2)


class Refusing(Tapped):
    """Takes its time for a deadline, and refuses all but the first."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.moved = 0

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        if rpc == "ModifyAckDeadline":
            self.moved += 1
            if self.moved > 1:
                raise service_error("PERMISSION_DENIED", "no")
            await asyncio.sleep(0.05)
        return await super().call(rpc, request, timeout=timeout)


@virtual
async def test_a_nack_is_not_confirmed_by_the_answer_to_an_extension(
    emulator: MemoryEmulator,
) -> None:
    """Although the receipt on its way asks for just as many seconds."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    way = Refusing(emulator.transport())
    seen: list[SettleError | None] = []

    async def work(message: Message) -> None:
        await emulator.until(lambda: way.moved == 1)
        confirmation = message.nack_with_response(delay=10)
        try:
            await confirmation
        except SettleError as error:
            seen.append(error)
        else:
            seen.append(None)

    async with client_of(emulator, way) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    assert [type(one) for one in seen] == [UnconfirmedError]


@virtual
async def test_a_nack_is_confirmed_although_it_strikes_an_extension(
    emulator: MemoryEmulator,
) -> None:
    """Which was to ask for just as many seconds."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    answers: list[object] = []

    async def work(message: Message) -> None:
        deadline = message.modify_ack_deadline_with_response(10)
        nack = message.nack_with_response(delay=10)
        answers.extend(await asyncio.gather(deadline, nack, return_exceptions=True))

    async with client_of(emulator) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    assert isinstance(answers[0], UnconfirmedError)
    assert answers[1] is None


@virtual
async def test_a_deadline_that_a_nack_strikes_while_it_waits_to_go_again_is_told(
    emulator: MemoryEmulator,
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    emulator.faults.fail("ModifyAckDeadline", "UNAVAILABLE", retry_delay=3)
    answers: list[object] = []

    async def work(message: Message) -> None:
        deadline = message.modify_ack_deadline_with_response(60)
        await asyncio.sleep(0.5)  # it was refused for the moment
        message.nack(delay=50)
        answers.extend(await asyncio.gather(deadline, return_exceptions=True))

    async with client_of(emulator) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(20)

    assert [type(one) for one in answers] == [UnconfirmedError]


@virtual
async def test_an_ack_that_is_never_answered_is_given_up_with_its_cause(
    emulator: MemoryEmulator,
) -> None:
    exactly_once(emulator)
    publish(emulator, 1)
    outcomes: list[tuple[float, UnconfirmedError]] = []

    async def work(message: Message) -> None:
        emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=10_000)
        try:
            await message.ack_with_response()
        except UnconfirmedError as error:
            outcomes.append((now(), error))

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(HOUR / 4)
        time, error = outcomes[0]
        assert 500 < time < 620
        assert "UNAVAILABLE" in str(error.__cause__)
        emulator.faults.clear()
        calls.do = None


@virtual
async def test_an_ack_that_the_server_lost_brings_the_message_again(
    emulator: MemoryEmulator,
) -> None:
    """It said ok and forgot: nobody could know better, and nothing is lost."""
    exactly_once(emulator)
    publish(emulator, 3)
    emulator.faults.lose_acks(WORKER, times=2)
    calls = Calls()
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5 * MINUTE)

    assert sorted(calls.data) == [b"0", b"0", b"1", b"1", b"2"]
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_held_message_stays_the_only_delivery_for_hours(emulator: MemoryEmulator) -> None:
    """H3, H6: no lease ends, so none overlaps."""
    exactly_once(emulator)
    ids = publish(emulator, 3)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls, flow_control=FlowControl(max_lease_duration=9 * HOUR))
        await asyncio.sleep(5 * HOUR)
        for message in calls.messages:
            await message.ack_with_response()

    assert [len(emulator.message(one).deliveries) for one in ids] == [1, 1, 1]
    assert len(calls.began) == 3


@virtual
async def test_a_copy_of_a_held_message_takes_over_its_ack_id(emulator: MemoryEmulator) -> None:
    """The older id is refused from then on, so the ack must go by the newer."""
    exactly_once(emulator)
    publish(emulator, 5)
    emulator.faults.duplicate(WORKER, times=5)
    calls = Calls(hold)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(MINUTE)
        for message in calls.messages:
            await message.ack_with_response()
        await asyncio.sleep(5 * MINUTE)

    assert len(calls.began) == 5
    assert emulator.backlog(WORKER) == 0


@pytest.mark.parametrize("ordering", [False, True])
@pytest.mark.parametrize("seed", range(3))
@virtual
async def test_after_a_confirmed_ack_no_delivery_begins(
    emulator: MemoryEmulator, seed: int, ordering: bool
) -> None:
    """H3: whatever fails, whoever nacks."""
    rng = random.Random(seed)  # noqa: S311
    exactly_once(emulator, enable_message_ordering=ordering)
    confirmed: set[str] = set()
    violations: list[str] = []

    async def work(message: Message) -> None:
        if message.message_id in confirmed:
            violations.append(message.message_id)
        await asyncio.sleep(rng.choice([0, 0.1, 5, 70]))
        if rng.random() < 0.2:
            message.nack(delay=rng.choice([0, 15]))
            return
        try:
            await message.ack_with_response()
            confirmed.add(message.message_id)
        except SettleError:
            pass

    ids: list[str] = []
    async with client_of(emulator) as client:
        live = client.subscribe(
            WORKER, work, flow_control=FlowControl(max_messages=20, max_request_batch_size=5)
        )
        for _ in range(40):
            ids += publish(emulator, rng.randint(0, 3), key=rng.choice("ab") if ordering else "")
            match rng.randrange(6):
                case 0:
                    emulator.faults.fail_confirmations(WORKER, times=3)
                case 1:
                    emulator.faults.fail_confirmations(WORKER, times=2, permanent=True)
                case 2:
                    emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=2)
                case 3:
                    emulator.faults.cut_streams()
            await asyncio.sleep(rng.uniform(0, 3))
        emulator.faults.clear()
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)
        live.stop()

    assert violations == []
    assert confirmed == set(ids)


@pytest.mark.parametrize("confirmed", [True, False])
@virtual
async def test_an_ack_refused_for_good_restarts_its_key(
    emulator: MemoryEmulator, confirmed: bool
) -> None:
    """H4: the server takes the acks of later messages only after that one's."""
    exactly_once(emulator, enable_message_ordering=True)
    publish(emulator, 6, key="a")

    async def work(message: Message) -> None:
        if message.data == b"a1" and calls.data.count(b"a1") == 1:
            emulator.faults.fail_confirmations(WORKER, permanent=True)
        if not confirmed:
            message.ack()
            return
        with contextlib.suppress(SettleError):
            await message.ack_with_response()

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(2 * MINUTE)

    assert emulator.backlog(WORKER) == 0
    assert calls.data[-5:] == [b"a1", b"a2", b"a3", b"a4", b"a5"]


@virtual
async def test_what_was_handed_over_is_bounded_by_the_flow_control(
    emulator: MemoryEmulator,
) -> None:
    """G16: messages whose receipts are not confirmed yet are bounded, too."""
    exactly_once(emulator)
    publish(emulator, 4_000)
    calls = Calls(hold)
    flow = FlowControl(max_messages=10, max_request_batch_size=2)
    async with client_of(emulator, Tapped(emulator.transport(), limits=False)) as client:
        live = client.subscribe(WORKER, calls, flow_control=flow)
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert live.health().leased <= 10
            assert live.health().received <= 1_000


class Unconfirming(Tapped):
    """A transport that cannot say of each ack whether it was accepted."""

    def __init__(self, emulator: MemoryEmulator) -> None:
        super().__init__(emulator.transport())
        self.can = Capabilities(
            streaming=True, server_flow_control=True, confirmations=False, pings=True
        )


@virtual
async def test_a_transport_that_cannot_confirm_is_refused_at_once(
    emulator: MemoryEmulator,
) -> None:
    exactly_once(emulator)
    async with client_of(emulator, Unconfirming(emulator)) as client:
        live = client.subscribe(WORKER, hold)
        with pytest.raises(UnsupportedError, match="exactly-once"):
            await live
        assert live.state == "failed"
        assert now() < 1


@virtual
async def test_receipts_that_are_not_answered_stop_the_reading(emulator: MemoryEmulator) -> None:
    """R28: of a server that ignores the limits; when it answers, everything comes."""
    exactly_once(emulator)
    publish(emulator, 5_000)
    emulator.faults.delay("ModifyAckDeadline", 4, times=10_000)
    calls = Calls()
    async with client_of(emulator, Tapped(emulator.transport(), limits=False)) as client:
        live = client.subscribe(WORKER, calls)
        await live.ready()
        await asyncio.sleep(2)
        assert live.health().counts["received"] <= 2_000  # the bound, and a response more
        emulator.faults.clear()
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=HOUR)

    assert {*calls.data} == {f"{n}".encode() for n in range(5_000)}


@virtual
@pytest.mark.parametrize("enabled", [True, False])
async def test_a_message_tells_whether_its_ack_can_be_relied_on(
    emulator: MemoryEmulator, *, enabled: bool
) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=enabled)
    publish(emulator, 1)
    async with client_of(emulator) as client:
        async for message in client.messages(WORKER):
            assert message.exactly_once_enabled is enabled
            message.ack()
            break


@virtual
async def test_an_ack_whose_confirmation_was_lost_does_not_hold_up_later_acks(
    emulator: MemoryEmulator,
) -> None:
    """H4: it is refused when it is sent again, though nothing of its key comes again."""
    exactly_once(emulator, enable_message_ordering=True)
    emulator.faults.fail("Acknowledge", "ABORTED", applied=True)
    emulator.faults.fail("Acknowledge", "UNAVAILABLE", retry_delay=2.0)
    publish(emulator, 2, key="a")

    async def work(message: Message) -> None:
        message.ack()
        await asyncio.sleep(0.05)

    calls = Calls(work)
    async with client_of(emulator) as client:
        client.subscribe(WORKER, calls)
        await asyncio.sleep(5 * MINUTE)

    assert calls.data == [b"a0", b"a1"]
    assert emulator.backlog(WORKER) == 0


class Uneven(Tapped):
    """Some calls take longer than others."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.refused: list[str] = []
        self._chances = random.Random(1)  # noqa: S311

    async def call(self, rpc: str, request: bytes, *, timeout: float) -> bytes:
        await asyncio.sleep(self._chances.uniform(0, 0.2))
        try:
            return await super().call(rpc, request, timeout=timeout)
        except ServiceError as error:
            self.refused += error.ack_errors.values()
            raise


@virtual
async def test_no_ack_of_a_key_overtakes_another(emulator: MemoryEmulator) -> None:
    """H4: the server would refuse it, and the more so the more are sent again."""
    exactly_once(emulator, enable_message_ordering=True)
    for number in range(400):
        emulator.publish(TOPIC, b"%d" % number, ordering_key=str(number % 5))

    async def work(message: Message) -> None:
        await asyncio.sleep(0.03)
        message.ack()

    calls = Calls(work)
    transport = Uneven(emulator.transport())
    async with client_of(emulator, transport) as client:
        client.subscribe(WORKER, calls)
        await emulator.until(lambda: emulator.backlog(WORKER) == 0, timeout=MINUTE)

    assert (len(calls.data), transport.refused) == (400, [])

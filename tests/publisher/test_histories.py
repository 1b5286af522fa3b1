"""Histories drawn at random, in virtual time: whatever goes wrong, the rules hold.

The checks read what the listener was told and what the server was given; they share nothing with
the publisher.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pubsub_aio import (
    Batching,
    Flight,
    KeyPausedError,
    PublisherClient,
    PublisherStoppedError,
    RetryPolicy,
)
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.publisher.conftest import TOPIC, Listener

TERMINAL = {"acked", "completed_exceptionally", "timed_out"}


@dataclass(frozen=True)
class Fault:
    """What goes wrong with some calls of Publish."""

    kind: str
    times: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """A history to be."""

    max_in_flight: int
    refill_allowed_at: int
    batch: int
    latency: float
    retry: RetryPolicy | None
    keys: list[str]
    pauses: list[float]
    faults: list[Fault] = field(default_factory=list)
    stops: bool = False


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    max_in_flight = draw(st.integers(1, 8))
    count = draw(st.integers(1, 40))
    return Plan(
        max_in_flight=max_in_flight,
        refill_allowed_at=draw(st.integers(0, max_in_flight - 1)),
        batch=draw(st.integers(1, 5)),
        latency=draw(st.sampled_from([0.0, 0.5])),
        retry=draw(st.sampled_from([None, RetryPolicy(), RetryPolicy(retries=-1, wait=1.0)])),
        keys=draw(st.lists(st.sampled_from(["", "", "k", "l"]), min_size=count, max_size=count)),
        pauses=draw(st.lists(st.sampled_from([0.0, 0.0, 0.3]), min_size=count, max_size=count)),
        faults=draw(
            st.lists(
                st.builds(
                    Fault,
                    kind=st.sampled_from(
                        ["unavailable", "lost", "slow", "denied", "invalid", "cut"]
                    ),
                    times=st.integers(1, 4),
                    seconds=st.sampled_from([0.5, 2.0, 7.0]),
                ),
                max_size=6,
            )
        ),
        stops=draw(st.sampled_from([False, False, False, True])),
    )


@dataclass
class History:
    """What happened."""

    listener: Listener
    flights: list[Flight]
    stored: list[tuple[str, str]]
    """For each message that the server took: its flight's id, and its ordering key."""
    numbers: list[int]


async def live(emulator: MemoryEmulator, plan: Plan) -> History:
    emulator.create_topic(TOPIC)
    listener = Listener()
    publisher = PublisherClient(
        emulator.project,
        transport=emulator.transport(),
        max_in_flight=plan.max_in_flight,
        refill_allowed_at=plan.refill_allowed_at,
        batching=Batching(max_messages=plan.batch, max_latency=plan.latency),
        retry=plan.retry,
        listener=listener,
        send_flight_id=True,
        id_prefix="f",
    )
    for fault in plan.faults:
        inject(emulator, fault)
    await publisher.start()
    flights = []
    for number, (key, pause) in enumerate(zip(plan.keys, plan.pauses, strict=True)):
        try:
            flights.append(publisher.publish(TOPIC, b"%d" % number, ordering_key=key))
        except KeyPausedError:
            publisher.resume(TOPIC, key)
        await asyncio.sleep(pause)
    if not plan.stops:
        await publisher.drain(timeout=10_000)
    await publisher.stop()
    stored = [
        (message.attributes["pubsub_aio_flight_id"], message.ordering_key)
        for message in emulator.messages(TOPIC)
    ]
    return History(listener, flights, stored, [int(flight.data) for flight in flights])


def inject(emulator: MemoryEmulator, fault: Fault) -> None:
    faults = emulator.faults
    if fault.kind == "unavailable":
        faults.fail("Publish", "UNAVAILABLE", times=fault.times)
    elif fault.kind == "denied":
        faults.fail("Publish", "PERMISSION_DENIED", times=fault.times)
    elif fault.kind == "invalid":
        faults.fail("Publish", "INVALID_ARGUMENT", times=fault.times)
    elif fault.kind == "lost":
        faults.fail("Publish", "UNAVAILABLE", times=fault.times, applied=True)
    elif fault.kind == "slow":
        faults.delay("Publish", fault.seconds, times=fault.times)
    else:
        asyncio.get_running_loop().call_later(fault.seconds, faults.cut_connections)


def violations(history: History, plan: Plan) -> Iterator[str]:
    """Everything that must not be."""
    yield from terminal_events(history)
    yield from what_answered_ok(history)
    yield from holds(history, plan)
    yield from order(history)


def terminal_events(history: History) -> Iterator[str]:
    """H7: one terminal event a flight, after its departure, and a future that says the same."""
    for flight in history.flights:
        events = history.listener.events(flight.data)
        if sum(event in TERMINAL for event in events) != 1 or events[-1] not in TERMINAL:
            yield f"{flight}: {events}"
        if events.count("published") != (flight.published_at is not None):
            yield f"{flight}: {events}, departed at {flight.published_at}"
        if not flight.ack.done():
            yield f"{flight}: pending"
        elif (events[-1] == "acked") != (flight.ack.exception() is None):
            yield f"{flight}: {events}, {flight.ack}"


def what_answered_ok(history: History) -> Iterator[str]:
    """H1, H2: what was acked is there; what is there was published, and sent by one flight."""
    there = Counter(flight_id for flight_id, _ in history.stored)
    ids = {flight.id for flight in history.flights}
    for flight in history.flights:
        if flight.message_id and not there[flight.id]:
            yield f"{flight}: acked and lost"
        if flight.published_at is None and there[flight.id]:
            yield f"{flight}: there, and never departed"
        if there[flight.id] > max(flight.attempts, 1):
            yield f"{flight}: there {there[flight.id]} times after {flight.attempts} attempts"
    yield from (f"{flight_id}: there, and unknown" for flight_id in there if flight_id not in ids)


def holds(history: History, plan: Plan) -> Iterator[str]:
    """H5: never above max_in_flight; a hold ends only at or below refill_allowed_at."""
    flying, hold = 0, False
    departed = {flight.data for flight in history.flights if flight.published_at is not None}
    for at, event, data in history.listener.told:
        if event == "published":
            if hold:
                yield f"{data!r} departed at {at} during a hold, {flying} in flight"
            flying += 1
            hold = hold or flying >= plan.max_in_flight
            if flying > plan.max_in_flight:
                yield f"{flying} in flight at {at}"
        elif data in departed:
            flying -= 1
            hold = hold and flying > plan.refill_allowed_at


def order(history: History) -> Iterator[str]:
    """P13: by key, first copies are in the order of publishing."""
    numbers = {flight.id: flight.number for flight in history.flights}
    for key in ("k", "l"):
        seen = list(dict.fromkeys(one for one, its_key in history.stored if its_key == key))
        in_order = sorted(seen, key=numbers.__getitem__)
        if seen != in_order:
            yield f"key {key}: {seen}"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_whatever_goes_wrong_the_rules_hold(plan: Plan) -> None:
    """M3, M4, M24, M25, M27, M28, P13: on the publisher as a whole, drained or stopped."""
    history = run_scenario(lambda emulator: live(emulator, plan))

    assert list(violations(history, plan)) == []
    if not plan.stops:
        assert not any(isinstance(f.error, PublisherStoppedError) for f in history.flights)

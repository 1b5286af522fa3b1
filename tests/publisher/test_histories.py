"""Histories drawn at random, in virtual time: whatever goes wrong, the rules hold.

The checks read what callers and the listener were told and what the server was given; they share
nothing with the publisher. PUBSUB_AIO_FUZZ_EXAMPLES sets how many histories are tried; they are
then drawn at random.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pubsub_aio import (
    Batching,
    ClosedError,
    KeyPausedError,
    PublisherStoppedError,
    QueueFullError,
    QueueLimit,
    RetryPolicy,
    TakenBackError,
)
from pubsub_aio._wire import schema
from pubsub_aio.testing import MemoryEmulator, run_scenario
from tests.publisher.history import MISSING, TOPICS, Act, Call, Fault, History, Plan

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")

TERMINAL = {"acked", "completed_exceptionally", "timed_out"}
REFUSED = {ClosedError, KeyPausedError, QueueFullError}

acts = st.builds(
    Act,
    kind=st.sampled_from(["publish", "await", "many"]),
    topic=st.sampled_from([*TOPICS, *TOPICS, *TOPICS, MISSING]),
    key=st.sampled_from(["", "", "k", "l"]),
    count=st.integers(1, 8),
    asks=st.booleans(),
    patience=st.sampled_from([None, None, 0.0, 0.1, 1.0, 3.0]),
    pause=st.sampled_from([0.0, 0.0, 0.0, 0.3, 2.0]),
)
faults = st.builds(
    Fault,
    kind=st.sampled_from(
        ["unavailable", "lost", "slow", "slow", "denied", "invalid", "cut", "slow lookup"]
    ),
    times=st.integers(1, 4),
    seconds=st.sampled_from([0.5, 2.0, 7.0]),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    max_in_flight = draw(st.integers(1, 8))
    return Plan(
        max_in_flight=max_in_flight,
        refill_allowed_at=draw(st.integers(0, max_in_flight - 1)),
        batching=Batching(
            max_messages=draw(st.integers(1, 5)), max_latency=draw(st.sampled_from([0.0, 0.5]))
        ),
        queue=QueueLimit(
            max_messages=draw(st.sampled_from([1, 4, 12, 20, 10_000])),
            when_full=draw(st.sampled_from(["block", "error"])),
        ),
        retry=draw(st.sampled_from([None, RetryPolicy(), RetryPolicy(retries=-1, wait=1.0)])),
        resume_after=draw(st.sampled_from([None, None, 1.0])),
        send_flight_id=draw(st.sampled_from([False, False, True])),
        acts=draw(st.lists(acts, min_size=6, max_size=20)),
        faults=draw(st.lists(faults, max_size=8)),
        stop_at=draw(st.sampled_from([None, None, None, 0.0, 0.5, 3.0, 8.0])),
        drains_early=draw(st.booleans()),
    )


def violations(history: History) -> Iterator[str]:
    """Everything that must not be."""
    yield from history.complaints
    yield from terminal_events(history)
    yield from what_was_told(history)
    yield from requests(history)
    yield from what_is_there(history)
    yield from holds(history)
    yield from order(history)


def terminal_events(history: History) -> Iterator[str]:
    """H7: one terminal event a flight, after its departure, and a future that says the same."""
    for flight in history.flights.values():
        events = history.listener.events(flight.data)
        if sum(event in TERMINAL for event in events) != 1 or events[-1] not in TERMINAL:
            yield f"{flight}: {events}"
        if events.count("published") != (flight.published_at is not None):
            yield f"{flight}: {events}, departed at {flight.published_at}"
        ack = flight.ack
        if not ack.done():
            yield f"{flight}: pending"
        elif isinstance(ack.exception(), TakenBackError):
            if events != ["completed_exceptionally"]:
                yield f"{flight}: taken back, and {events}"
        elif (events[-1] == "acked") != (ack.exception() is None):
            yield f"{flight}: {events}, {ack}"
    for flight, ack in history.acks:
        if not ack.done() or outcome(ack) != outcome(flight.ack):
            yield f"{flight}: {ack}, and asked again {flight.ack}"


def outcome(ack: asyncio.Future[str]) -> object:
    return repr(ack.exception()) if ack.exception() else ack.result()


def what_was_told(history: History) -> Iterator[str]:
    """Of what was returned all is told; of what was refused, nothing; a drain stops nothing."""
    for call in history.calls:
        told = [data for data in call.data if data in history.flights]
        if call.flights and told != call.data:
            yield f"{call}: only of {told} was told"
        if told and type(call.raised) in REFUSED:
            yield f"{call}: refused, and published"
        for flight in map(history.flights.__getitem__, told):
            if flight.published_at is not None and flight.published_at > call.raised_at:
                yield f"{flight}: departed, and was taken back at {call.raised_at}"
    for flight in history.flights.values():
        if history.plan.stop_at is None and isinstance(flight.error, PublisherStoppedError):
            yield f"{flight}: though drained"


def requests(history: History) -> Iterator[str]:
    """M27: nothing is in a request that does not belong together, and no more than may be."""
    for at, rpc, request in history.tap.calls:
        if rpc != "Publish":
            continue
        sent = schema.PublishRequest.FromString(request)
        count, keys = len(sent.messages), {message.ordering_key for message in sent.messages}
        if not 0 < count <= history.plan.batching.max_messages or len(keys) > 1:
            yield f"{count} messages of the keys {keys} in the request at {at}"


def what_is_there(history: History) -> Iterator[str]:
    """H1, H2: what was acked is there; what is there has departed, and was sent so many times."""
    there = Counter(data for _, _, data in history.stored)
    for data in there.keys() - history.flights.keys():
        yield f"{data!r}: there, and unknown"
    for data, flight in history.flights.items():
        if flight.published_at is None and there[data]:
            yield f"{flight}: there, and never departed"
        if there[data] > max(flight.attempts, 1):
            yield f"{flight}: there {there[data]} times after {flight.attempts} attempts"
        if flight.message_id:
            message = history.emulator.message(flight.message_id)
            found = (message.topic, message.ordering_key, message.data)
            if found != (flight.topic, flight.ordering_key, data):
                yield f"{flight}: acked, and there it is {found}"
            sent = message.attributes.get("pubsub_aio_flight_id")
            if sent != (flight.id if history.plan.send_flight_id else None):
                yield f"{flight}: there with {message.attributes}"


def holds(history: History) -> Iterator[str]:
    """H5: never above max_in_flight; a hold ends only at or below refill_allowed_at."""
    flying, hold, plan = 0, False, history.plan
    for at, event, data in history.listener.told:
        if event == "published":
            if hold:
                yield f"{data!r} departed at {at} during a hold, {flying} in flight"
            flying += 1
            hold = hold or flying >= plan.max_in_flight
            if flying > plan.max_in_flight:
                yield f"{flying} in flight at {at}"
        elif history.flights[data].published_at is not None:
            flying -= 1
            hold = hold and flying > plan.refill_allowed_at


def order(history: History) -> Iterator[str]:
    """P13: by key, first copies are in the order of the calls, and of each call."""
    calls = {data: call for call in history.calls for data in call.data}
    for key in {(topic, key) for topic, key, _ in history.stored if key}:
        seen = list(dict.fromkeys(data for *its, data in history.stored if (*its,) == key))
        for number, data in enumerate(seen):
            for before in seen[:number]:
                if is_earlier(data, calls[data], before, calls[before]):
                    yield f"{key}: {before!r} before {data!r} in {seen}"


def is_earlier(one: bytes, its: Call, other: bytes, others: Call) -> bool:
    """Whether a message was published before another; of calls at the same time none was."""
    if its is others:
        return its.data.index(one) < its.data.index(other)
    return its.ended is not None and its.ended < others.began


@settings(
    max_examples=int(EXAMPLES or 400),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(plans())
def test_whatever_goes_wrong_the_rules_hold(plan: Plan) -> None:
    """M3, M4, M24, M25, M26, M27, M28, P13: on the publisher as a whole, drained or stopped."""

    async def scenario(emulator: MemoryEmulator) -> list[str]:
        history = History(emulator, plan)
        await history.live()
        return list(violations(history))

    assert run_scenario(scenario) == []

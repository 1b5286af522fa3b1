"""The emulator side by side with Google's: start, rest, publishing, delivering, scale.

    nox -s bench -- emulator [--rounds 7]

Both servers run through the whole of it; their turns are interleaved, and ratios are of
neighbouring turns, since machines are noisy. Without Google's emulator on the machine only our own
figures are measured, and the ratios are reported as missing.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from statistics import median

from tests.bench.durable import durable
from tests.bench.load import Load, traffic
from tests.bench.report import Figure, plot
from tests.bench.servers import GOOGLE, OURS, Server, commands, running

PUBLISHED = 200_000
DELIVERED = {OURS: 200_000, GOOGLE: 4_000}
"""Messages a turn: about a second's worth."""


def main() -> None:
    """Measure everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved turns of each server")
    options = parser.parse_args()
    figures = [*start_and_rest()]
    with running(OURS) as ours:
        if GOOGLE in commands():
            with running(GOOGLE) as google:
                figures += rates(ours, google, options.rounds)
        else:
            print("Google's emulator is not on this machine: no ratios with it")
        figures += backlog(ours, options.rounds)
        figures += breadth(ours, options.rounds)
    figures += residue()
    figures += durable(options.rounds)
    print()
    for figure in figures:
        print(figure)
    print(f"\nplot: {plot(figures, 'emulator')}")


def start_and_rest() -> Iterator[Figure]:
    """From a fresh process to the first answer, and what it takes to do nothing."""
    starts, memory, idle = [], [], []
    for _ in range(5):
        with running(OURS) as server:
            starts.append(server.start_time)
            memory.append(server.memory())
            before = server.cpu()
            time.sleep(2)
            idle.append((server.cpu() - before) / 2 * 100)
    print(f"{OURS} started in {min(starts):.3f} s")
    if GOOGLE in commands():
        with running(GOOGLE) as google:
            print(f"{GOOGLE} started in {google.start_time:.3f} s, {google.memory():.0f} MiB")
    yield Figure("start to first answered RPC", starts, 0.35, " s", at_least=False, best=True)
    yield Figure("memory at rest", memory, 60, " MiB", at_least=False)
    yield Figure("CPU at rest", idle, 0.5, " %", at_least=False)


def rates(ours: Server, google: Server, rounds: int) -> Iterator[Figure]:
    """Publishing in batches of 1,000, and delivering with acks on one stream."""
    publish: dict[str, list[float]] = {OURS: [], GOOGLE: []}
    deliver: dict[str, list[float]] = {OURS: [], GOOGLE: []}
    with Load(ours.address) as first, Load(google.address) as second:
        loads = {OURS: first, GOOGLE: second}
        for turn in range(rounds + 1):
            for name, load in loads.items():
                with traffic(load) as (topic, _):
                    seconds = load.publish(topic, PUBLISHED)
                if turn:  # the first turn warms up
                    publish[name].append(PUBLISHED / seconds)
            for name, load in loads.items():
                with traffic(load) as (topic, subscription):
                    load.publish(topic, DELIVERED[name])
                    seconds = load.drain(subscription, DELIVERED[name])
                if turn:
                    deliver[name].append(DELIVERED[name] / seconds)
            print(f"turn {turn} of {rounds}")
    for title, found in (("published", publish), ("delivered and acked", deliver)):
        for name, values in found.items():
            print(f"{name:<12} {median(values):>10,.0f} messages a second {title}")
    pairs = zip(deliver[OURS], deliver[GOOGLE], strict=True)
    yield Figure(
        "delivered and acked on one stream, to Google's", [a / b for a, b in pairs], 50, "x"
    )
    pairs = zip(publish[OURS], publish[GOOGLE], strict=True)
    yield Figure("published in batches of 1,000, to Google's", [a / b for a, b in pairs], 1, "x")


def backlog(ours: Server, rounds: int) -> Iterator[Figure]:
    """A long backlog delivers as fast as a short one."""
    ratios = []
    with Load(ours.address) as load:
        for _ in range(min(rounds, 5)):
            short, long = drain_rate(load, 10_000, times=10), drain_rate(load, 1_000_000, times=1)
            ratios.append(long / short)
            print(f"backlog of 10,000: {short:,.0f} a second; of 1,000,000: {long:,.0f}")
    yield Figure("rate with 1,000,000 backlogged, to that with 10,000", ratios, 0.8, "x")


def drain_rate(load: Load, count: int, *, times: int) -> float:
    """Messages a second delivered from a backlog."""
    seconds = 0.0
    for _ in range(times):
        with traffic(load) as (topic, subscription):
            load.publish(topic, count)
            seconds += load.drain(subscription, count)
    return count * times / seconds


def breadth(ours: Server, rounds: int) -> Iterator[Figure]:
    """CPU a message with the traffic spread over 1,000 topics, to that with one."""
    calls, batch, ratios = 1_000, 100, []
    with Load(ours.address) as load, contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(traffic(load)) for _ in range(calls)]
        for turn in range(min(rounds, 5) + 1):
            costs = []
            for chosen in (pairs[:1] * calls, pairs):
                before = ours.cpu()
                for topic, subscription in chosen:
                    load.publish(topic, batch, batch=batch)
                    load.pull_all(subscription, batch, batch=batch)
                costs.append(ours.cpu() - before)
            if turn:
                ratios.append(costs[1] / costs[0])
    yield Figure(
        "CPU a message over 1,000 topics, to that of one", ratios, 1.2, "x", at_least=False
    )


def residue() -> Iterator[Figure]:
    """What a million messages, published, delivered and acked, leave behind."""
    left = []
    for _ in range(3):
        with (
            running(OURS) as server,
            Load(server.address) as load,
            traffic(load) as (topic, subscription),
        ):
            for turn in range(102):
                load.publish(topic, 10_000)
                load.drain(subscription, 10_000)
                if turn == 1:  # what is made once is there
                    before = server.memory()
            left.append(server.memory() - before)
    yield Figure("left behind by 1,000,000 messages", left, 10, " MiB", at_least=False)


if __name__ == "__main__":
    main()

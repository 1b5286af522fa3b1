"""The subscriber side by side with others: CPU a message, latency, leases held, rest.

    nox -s bench -- subscriber [--rounds 7] [--quick] [--only google-cloud-pubsub ...]

Each client runs in a process of its own, fed by a server in another (see `subscriber_server`). In
a round each has its turn, every second round in reverse order, and ratios are of turns of one
round, since machines are noisy. What is counted is the CPU time of the client's process, from
before the first message is sent until the server has the ack of the last. The server checks that
it has every ack, once the client has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from statistics import median, quantiles

from tests.bench.load_server import serving
from tests.bench.report import Figure, plot
from tests.bench.subscriber_clients import AIO, ARROW, BARE, CLIENTS, GOOGLE, HELD, OURS, SUSPENDS
from tests.bench.subscriber_table import Row, print_costs
from tests.bench.subscriber_trial import MOST_HELD
from tests.bench.subscriber_turns import Turns
from tests.bench.turn import Turn, direction

ROWS = (
    Row(AIO, 100, 10_000),
    Row(BARE, 100, 300_000),
    Row(OURS, 100, 300_000),
    Row(GOOGLE, 100, 30_000),
    Row(SUSPENDS, 100, 300_000),
    Row(ARROW, 100, 300_000),
    Row(BARE, 10, 200_000),
    Row(OURS, 10, 200_000),
    Row(GOOGLE, 10, 20_000),
)
"""Messages for about a second's worth of CPU each; what is compared has its turns close together,
for the speed of a machine changes within seconds."""

AIO_SETTINGS: tuple[dict[str, object], ...] = (
    {"ack_window": 0.1},
    {"ack_window": 0.1, "max_messages_per_producer": 1_000},
    {"ack_window": 0.1, "max_messages_per_producer": 1_000, "num_tasks_per_consumer": 100},
)
"""The best of them counts in each round.

Its own default for `ack_window`, 0.3 s, drops acks above 8,300 messages a second: no more than
2,500 of those that gather in a window are sent.
"""

FEW_HELD = 1_000
HELD_COUNT = 200_000
RENEWALS_SECONDS = 20.0
IDLE_SECONDS = 10.0
TIMED = 300
SUSPENSIONS = 200_000
SUSPENDED_AT_ONCE = 50


def main() -> None:
    """Measure everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved turns of each client")
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds")
    parser.add_argument("--only", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    options = parser.parse_args()
    rounds, scale = (2, 5) if options.quick else (options.rounds, 1)
    with serving("tests.bench.subscriber_server") as addresses:
        turns = Turns(addresses, options.only, scale)
        costs = throughput(turns, rounds)
        print_costs(costs)
        alone = price_of_suspending(rounds)
        print(
            "asyncio alone, to suspend a task once: "
            f"{median(alone):.2f} ({min(alone):.2f} to {max(alone):.2f})"
        )
        figures = [*ratios(costs)]
        figures += latency(turns, rounds)
        figures += held(turns, rounds)
        figures += idle(turns)
    print()
    for figure in figures:
        print(figure)
    medians = {row.title: median(turn.cost for turn in found) for row, found in costs.items()}
    print(f"\nplot: {plot(figures, 'subscriber', costs=medians)}")


def throughput(turns: Turns, rounds: int) -> dict[Row, list[Turn]]:
    """What each client takes for a message, round after round."""
    found: dict[Row, list[Turn]] = {row: [] for row in ROWS if row.client in turns.clients}
    for number in range(rounds):
        for row, taken in list(found.items())[:: direction(number)]:
            choices = AIO_SETTINGS if row.client == AIO else ({},)
            tried = [
                turns.cpu(row.client, row.count, per_response=row.per_response, settings=settings)
                for settings in choices
            ]
            taken.append(min(tried, key=lambda turn: turn.cost))
        print(f"round {number + 1} of {rounds}", flush=True)
    return found


def ratios(costs: dict[Row, list[Turn]]) -> Iterator[Figure]:
    """How many times less CPU a message ours takes, against what it is held to."""
    bars = (
        ("CPU a message: google-cloud-pubsub / ours", GOOGLE, OURS, 100, 12),
        ("CPU a message: gcloud-aio-pubsub / ours", AIO, OURS, 100, 14),
        ("CPU a message, 10 a response: google-cloud-pubsub / ours", GOOGLE, OURS, 10, 8),
        ("CPU a message, suspending: google-cloud-pubsub / ours", GOOGLE, SUSPENDS, 100, 9),
        ("CPU a message, Arrow: google-cloud-pubsub / ours", GOOGLE, ARROW, 100, 18),
        ("CPU a message: bare grpc.aio / ours", BARE, OURS, 100, 0.5),
    )
    by_key = {(row.client, row.per_response): found for row, found in costs.items()}
    for title, other, ours, per_response, bar in bars:
        theirs, mine = by_key.get((other, per_response)), by_key.get((ours, per_response))
        if theirs and mine:
            values = [a.cost / b.cost for a, b in zip(theirs, mine, strict=True)]
            yield Figure(title, values, bar, "x")


def price_of_suspending(rounds: int) -> list[float]:
    """What asyncio alone takes to suspend a task and resume it, in CPU seconds a million times.

    It bounds what a callback that suspends can cost: nobody can run it for less.
    """

    async def suspend(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SUSPENDED_AT_ONCE):
                tasks.create_task(suspend(SUSPENSIONS // SUSPENDED_AT_ONCE))

    taken = []
    for _ in range(rounds):
        before = time.process_time()
        asyncio.run(all_of_them())
        taken.append((time.process_time() - before) / SUSPENSIONS * 1e6)
    return taken


def latency(turns: Turns, rounds: int) -> Iterator[Figure]:
    """From the server's send to the callback's start, one message at a time."""
    clients = [name for name in (GOOGLE, OURS) if name in turns.clients]
    found: dict[str, list[list[float]]] = {name: [] for name in clients}
    for _ in range(rounds):
        for name in clients:
            found[name].append(turns.latencies(name, TIMED))
    print()
    for name, samples in found.items():
        cuts = quantiles([value * 1e3 for each in samples for value in each], n=100)
        print(f"{name:<32} latency p50 {cuts[49]:.3f} ms, p99 {cuts[98]:.3f} ms")
    if len(clients) == 2:
        pairs = zip(found[OURS], found[GOOGLE], strict=True)
        values = [median(ours) / median(google) for ours, google in pairs]
        yield Figure("p50 latency, to google-cloud-pubsub's", values, 0.25, "x", at_least=False)


def held(turns: Turns, rounds: int) -> Iterator[Figure]:
    """CPU a message that passes by many leases, to that by few; and what renewing takes."""
    if HELD not in turns.clients:
        return
    found = []
    for number in range(rounds):
        costs = {
            held: turns.cpu(HELD, HELD_COUNT, kind="held", held=held).cost
            for held in (FEW_HELD, MOST_HELD)[:: direction(number)]
        }
        few, many = costs[FEW_HELD], costs[MOST_HELD]
        print(f"{few:.2f} CPU s/M with {FEW_HELD:,} leases held, {many:.2f} with {MOST_HELD:,}")
        found.append(many / few)
    renewing = turns.rest(HELD, RENEWALS_SECONDS, kind="renewals", held=MOST_HELD)
    renewals = renewing.totals["modacks"]
    each = f"{renewing.cpu / renewals * 1e6:.2f} CPU s a million" if renewals else "none"
    print(
        f"renewals of {MOST_HELD:,} leases in {RENEWALS_SECONDS:g} s: {renewals:,.0f}, {each}, "
        f"{renewing.cpu / renewing.wall:.2%} of a CPU"
    )
    title = f"CPU a message with {MOST_HELD:,} held, to {FEW_HELD:,}"
    yield Figure(title, found, 1.15, "x", at_least=False)


def idle(turns: Turns) -> Iterator[Figure]:
    """CPU and threads of a subscription that nothing is sent on."""
    clients = [name for name in (GOOGLE, BARE, OURS) if name in turns.clients]
    found = {name: turns.rest(name, IDLE_SECONDS, kind="idle") for name in clients}
    for name, turn in found.items():
        print(f"{name:<32} idle: {turn.cpu / turn.wall:.3%} of a CPU, {turn.threads} threads")
    if OURS in found:
        share = found[OURS].cpu / found[OURS].wall * 100
        yield Figure("CPU of an idle subscription", [share], 0.5, " %", at_least=False)
    if OURS in found and BARE in found:
        more = found[OURS].threads - found[BARE].threads
        yield Figure("threads beyond those of bare grpc.aio", [more], 0, at_least=False)


if __name__ == "__main__":
    main()

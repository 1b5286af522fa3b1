"""The publisher side by side with others: CPU a message, and latency.

    nox -s bench -- publisher [--rounds 7] [--quick] [--only google-cloud-pubsub ...]

Each client runs in a process of its own and publishes to a server in another (see
`publisher_server`). In a round each has its turn, every second round in reverse order, and ratios
are of turns of one round, since machines are noisy. What is counted is the CPU time of the client's
process, from before the first message is published until every message id is there. Messages are
published in windows: no client has more of them outstanding than another. Once a client has ended
the server reads all that came: each message is to be there once, as it was published, and the
client is to have the message id that was given to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median, quantiles

from tests.bench.load_server import serving
from tests.bench.publisher_clients import AIO, BARE, CLIENTS, GOOGLE, MANAGED, MANY, OURS, TUNED
from tests.bench.publisher_table import Row, print_costs
from tests.bench.publisher_turns import Settings, Turns
from tests.bench.report import Figure, plot
from tests.bench.turn import Turn, direction

SIZE = 100
LONG = 1_000

ROWS = (
    Row(BARE, SIZE, 100_000),
    Row(AIO, SIZE, 100_000),
    Row(OURS, SIZE, 100_000),
    Row(GOOGLE, SIZE, 30_000),
    Row(MANY, SIZE, 100_000),
    Row(TUNED, SIZE, 30_000),
    Row(MANAGED, SIZE, 30_000),
    Row(BARE, LONG, 30_000),
    Row(AIO, LONG, 30_000),
    Row(OURS, LONG, 30_000),
    Row(GOOGLE, LONG, 20_000),
    Row(MANY, LONG, 30_000),
)
"""No more messages than are soon prepared, so that none is much colder than another when its time
comes; what is compared has its turns close together, for the speed of a machine changes within
seconds."""

CHOICES: dict[str, tuple[Settings, ...]] = {
    TUNED: tuple(
        {"max_messages": 1_000, "max_bytes": 9_000_000, "max_latency": latency}
        for latency in (0.01, 0.05, 0.2)
    ),
    AIO: ({"at_once": 1}, {"at_once": 4}),
}
"""The best of them counts, in all rounds: the one with the lowest median."""

COMPARED: tuple[tuple[str, str, int, float | None], ...] = (
    (GOOGLE, OURS, SIZE, 18),
    (GOOGLE, MANY, SIZE, 20),
    (AIO, OURS, SIZE, 1.5),
    (TUNED, OURS, SIZE, None),
    (TUNED, MANY, SIZE, None),
    (BARE, OURS, SIZE, None),
    (BARE, MANY, SIZE, None),
    (GOOGLE, OURS, LONG, None),
    (GOOGLE, MANY, LONG, None),
    (AIO, OURS, LONG, None),
    (BARE, OURS, LONG, None),
)
"""Whose cost is divided by which of ours, for messages of which size, and what it is held to."""

TIMED: tuple[tuple[str, Settings], ...] = (
    (BARE, {}),
    (MANAGED, {}),
    (GOOGLE, {"max_messages": 1}),
    (GOOGLE, {}),
)
TIMED_COUNT = 300


def main() -> None:
    """Measure everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved turns of each client")
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds")
    parser.add_argument("--only", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    options = parser.parse_args()
    rounds, scale = (2, 5) if options.quick else (options.rounds, 1)
    with serving("tests.bench.publisher_server") as addresses:
        turns = Turns(addresses, options.only, scale)
        costs = throughput(turns, rounds)
        latency(turns, rounds)
    figures = [*ratios(costs)]
    print()
    for figure in figures:
        print(figure)
    medians = {row.title: median(turn.cost for turn in found) for row, found in costs.items()}
    print(f"\nplot: {plot(figures, 'publisher', costs=medians)}")


def throughput(turns: Turns, rounds: int) -> dict[Row, list[Turn]]:
    """What each client takes for a message, round after round."""
    tried: dict[Row, list[list[Turn]]] = {
        row: [[] for _ in _choices(row)] for row in ROWS if row.client in turns.clients
    }
    for number in range(rounds):
        for row, found in list(tried.items())[:: direction(number)]:
            for taken, settings in zip(found, _choices(row), strict=True):
                taken.append(turns.cpu(row.client, row.count, row.size, settings))
        print(f"round {number + 1} of {rounds}", flush=True)
    best = {row: min(found, key=_typical) for row, found in tried.items()}
    print_costs(best)
    for row, found in tried.items():
        if len(found) > 1:
            settings = _choices(row)[found.index(best[row])]
            print(f"{_titled(row.title, settings)}: the best of {len(found)} settings")
    return best


def _choices(row: Row) -> tuple[Settings, ...]:
    return CHOICES.get(row.client, ({},))


def _typical(taken: list[Turn]) -> float:
    return median(turn.cost for turn in taken)


def _titled(title: str, settings: Settings) -> str:
    return ", ".join([title, *(f"{key}={value:,}" for key, value in settings.items())])


def ratios(costs: dict[Row, list[Turn]]) -> Iterator[Figure]:
    """How many times less CPU a message ours takes; what is held to no bar is printed only."""
    by_key = {(row.client, row.size): found for row, found in costs.items()}
    print()
    for other, ours, size, bar in COMPARED:
        theirs, mine = by_key.get((other, size)), by_key.get((ours, size))
        if not theirs or not mine:
            continue
        values = [a.cost / b.cost for a, b in zip(theirs, mine, strict=True)]
        many = ", publish_many" if ours == MANY else ""
        title = f"CPU a message{many}: {other} / ours"
        if bar is not None:
            yield Figure(title, values, bar, "x")
        else:
            spread = f"{min(values):.3g} to {max(values):.3g}; n={len(values)}"
            title = f"{title}, {size:,} bytes"
            print(f"{title:<76}{median(values):>6.3g}x ({spread})")


def latency(turns: Turns, rounds: int) -> None:
    """From publish() to the message id, one message at a time."""
    timed = [(name, settings) for name, settings in TIMED if name in turns.clients]
    found: dict[str, list[float]] = {_titled(*each): [] for each in timed}
    for number in range(rounds):
        for name, settings in timed[:: direction(number)]:
            taken = turns.latencies(name, TIMED_COUNT, SIZE, settings)
            found[_titled(name, settings)] += taken
    print()
    for title, seconds in found.items():
        cuts = quantiles([value * 1e3 for value in seconds], n=100)
        print(f"{title:<36} latency p50 {cuts[49]:.3f} ms, p99 {cuts[98]:.3f} ms")


if __name__ == "__main__":
    main()

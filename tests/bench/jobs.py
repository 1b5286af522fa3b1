"""What a job takes, to what a message takes without jobs: CPU.

    nox -s bench -- jobs [--rounds 7] [--quick]

Measured as the subscriber is (see `subscriber`), and on the same server. Both sides get the very
same messages, which are jobs: once handled by a `JobWorker`, once by the subscriber alone with a
callback that acks. Google's client gets them too, for comparison.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median

from pubsub_aio.jobs import job_attributes
from tests.bench.jobs_clients import ALONE, ALONE_SUSPENDS, GOOGLE, JOBS, JOBS_SUSPENDS
from tests.bench.load_server import serving
from tests.bench.report import Figure, plot
from tests.bench.subscriber_feed import OWN_ID
from tests.bench.subscriber_table import Row, print_costs
from tests.bench.subscriber_turns import Turns
from tests.bench.turn import Turn, direction

MOST = 1.5
"""What a job may take, to a message."""

PERSISTENT = "persistent"
DROPPABLE = "droppable, with a ttl"
MESSAGES = {
    PERSISTENT: job_attributes(job_id=OWN_ID),
    DROPPABLE: job_attributes(job_id=OWN_ID, persistent=False, ttl=86_400),
}
"""The attributes of the jobs of each kind; none of them expires meanwhile."""

ROWS = (
    Row(GOOGLE, 100, 30_000, PERSISTENT),
    Row(ALONE, 100, 300_000, PERSISTENT),
    Row(JOBS, 100, 300_000, PERSISTENT),
    Row(ALONE, 100, 300_000, DROPPABLE),
    Row(JOBS, 100, 300_000, DROPPABLE),
    Row(ALONE_SUSPENDS, 100, 300_000, PERSISTENT),
    Row(JOBS_SUSPENDS, 100, 300_000, PERSISTENT),
)
"""What is compared has its turns one after the other, for the speed of a machine changes."""


def main() -> None:
    """Measure everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved turns of each client")
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds")
    options = parser.parse_args()
    rounds, scale = (2, 5) if options.quick else (options.rounds, 1)
    with serving("tests.bench.subscriber_server") as addresses:
        clients = {row.client for row in ROWS}
        turns = Turns(addresses, clients, scale, module="tests.bench.jobs_clients")
        costs = throughput(turns, rounds)
    print_costs(costs)
    figures = [*ratios(costs)]
    print()
    for figure in figures:
        print(figure)
    medians = {row.title: median(turn.cost for turn in found) for row, found in costs.items()}
    print(f"\nplot: {plot(figures, 'jobs', costs=medians)}")


def throughput(turns: Turns, rounds: int) -> dict[Row, list[Turn]]:
    """What each client takes for a message, round after round."""
    found: dict[Row, list[Turn]] = {row: [] for row in ROWS}
    for number in range(rounds):
        for row in ROWS[:: direction(number)]:
            attributes = MESSAGES[row.messages]
            turn = turns.cpu(
                row.client, row.count, per_response=row.per_response, attributes=attributes
            )
            found[row].append(turn)
        print(f"round {number + 1} of {rounds}", flush=True)
    return found


def ratios(costs: dict[Row, list[Turn]]) -> Iterator[Figure]:
    """How many times the CPU of a message a job takes, in all."""
    by_key = {(row.client, row.messages): found for row, found in costs.items()}
    pairs = (
        ("CPU a job: jobs / subscriber alone", JOBS, ALONE, PERSISTENT),
        ("CPU a droppable job: jobs / subscriber alone", JOBS, ALONE, DROPPABLE),
        (
            "CPU a job, suspending: jobs / subscriber alone",
            JOBS_SUSPENDS,
            ALONE_SUSPENDS,
            PERSISTENT,
        ),
    )
    for title, ours, alone, messages in pairs:
        both = zip(by_key[ours, messages], by_key[alone, messages], strict=True)
        yield Figure(title, [a.cost / b.cost for a, b in both], MOST, "x", at_least=False)


if __name__ == "__main__":
    main()

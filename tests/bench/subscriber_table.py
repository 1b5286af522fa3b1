"""What each client took, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench.turn import Turn


@dataclass(frozen=True)
class Row:
    """A client under one kind of load."""

    client: str
    per_response: int
    count: int
    messages: str = ""
    """What kind of messages they are, where there are several."""

    @property
    def title(self) -> str:
        """What the row is called."""
        return f"{self.client} ({self.messages or f'{self.per_response} a response'})"


def print_costs(costs: Mapping[Row, Sequence[Turn]]) -> None:
    """Print a line for each row."""
    print(
        f"\n{'CPU seconds a million messages':<47}{'median':>8}{'min':>8}{'max':>8}"
        f"{'messages':>12}{'acks a':>9}{'modacks a':>11}{'server':>9}{'server':>8}"
    )
    print(f"{'':<71}{'a second':>12}{'request':>9}{'message':>11}{'CPU s/M':>9}{'busy':>8}")
    for row, turns in costs.items():
        taken = [turn.cost for turn in turns]

        def middle(value: Callable[[Turn], float], turns: Sequence[Turn] = turns) -> float:
            return median(map(value, turns))

        print(
            f"{row.title:<47}{median(taken):>8.2f}{min(taken):>8.2f}{max(taken):>8.2f}"
            f"{middle(lambda turn: turn.count / turn.wall):>12,.0f}"
            f"{middle(lambda turn: turn.totals['acks'] / turn.totals['ack_requests']):>9.0f}"
            f"{middle(lambda turn: turn.totals['modacks'] / turn.count):>11.2f}"
            f"{middle(lambda turn: turn.totals['server_cpu'] / turn.count * 1e6):>9.2f}"
            f"{middle(lambda turn: turn.totals['server_cpu'] / turn.wall):>8.0%}"
        )
    print("every message was acknowledged; none was given back")

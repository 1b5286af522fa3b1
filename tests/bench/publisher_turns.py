"""Runs the clients, one at a time, and checks that no work was left out."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from tests.bench.load_server import ask
from tests.bench.publisher_trial import PROJECT, WARM_UP, Kind
from tests.bench.turn import Turn, run_client

Settings = Mapping[str, float]


class Turns:
    """Runs clients, one at a time.

    Args:
        addresses: The server's.
        clients: The names of those to run.
        scale: By how much the numbers of messages are divided.
    """

    def __init__(self, addresses: dict[str, str], clients: Collection[str], scale: int) -> None:
        self._addresses = addresses
        self.clients = clients
        self._scale = scale
        self._names = itertools.count(1)

    def cpu(self, client: str, count: int, size: int, settings: Settings) -> Turn:
        """What a client takes for `count` messages with `size` bytes of data."""
        count //= self._scale
        figures = self._run(client, "cpu", count, size, settings, count + WARM_UP)
        return Turn.of(count, figures)

    def latencies(self, client: str, count: int, size: int, settings: Settings) -> list[float]:
        """The seconds that each of `count` messages takes, one at a time."""
        count //= self._scale
        figures = self._run(client, "latency", count, size, settings, count + count // 10)
        found: list[float] = figures["latencies"]
        return found

    def _run(
        self, client: str, kind: Kind, count: int, size: int, settings: Settings, sent: int
    ) -> dict[str, Any]:
        name = f"turn-{next(self._names)}"
        asked = {
            "client": client,
            "kind": kind,
            "topic": name,
            "count": count,
            "size": size,
            "settings": settings,
            **self._addresses,
        }
        figures = run_client("tests.bench.publisher_clients", asked)
        totals = ask(self._addresses["rest"], f"projects/{PROJECT}/topics/{name}", "DELETE")
        expected = {"messages": sent, "data_bytes": sent * size, "wrong": 0}
        if totals != expected:
            raise AssertionError(f"{client} published {totals} instead of {expected}")
        return figures

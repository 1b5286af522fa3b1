"""Runs the clients, one at a time, and checks that no work was left out."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from tests.bench.load_server import ask
from tests.bench.subscriber_trial import PROJECT, Kind
from tests.bench.turn import Turn, run_client


class Turns:
    """Runs clients, one at a time.

    Args:
        addresses: The server's.
        clients: The names of those to run.
        scale: By how much the numbers of messages are divided.
        module: The program that runs one of them.
    """

    def __init__(
        self,
        addresses: dict[str, str],
        clients: Collection[str],
        scale: int,
        *,
        module: str = "tests.bench.subscriber_clients",
    ) -> None:
        self._addresses = addresses
        self.clients = clients
        self._scale = scale
        self._module = module
        self._names = itertools.count(1)

    def cpu(
        self,
        client: str,
        count: int,
        *,
        kind: Kind = "cpu",
        per_response: int = 100,
        held: int = 0,
        settings: dict[str, object] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Turn:
        """What a client takes for `count` messages."""
        count //= self._scale
        figures = self._run(
            client,
            kind,
            count=count,
            per_response=per_response,
            held=held,
            settings=settings,
            attributes=attributes,
        )
        return Turn.of(count, figures)

    def latencies(self, client: str, count: int) -> list[float]:
        """The seconds that each of `count` messages takes."""
        found: list[float] = self._run(client, "latency", count=count // self._scale)["latencies"]
        return found

    def rest(self, client: str, seconds: float, *, kind: Kind, held: int = 0) -> Turn:
        """What a client takes to do nothing, or only to renew leases."""
        return Turn.of(0, self._run(client, kind, seconds=seconds, held=held))

    def _run(
        self,
        client: str,
        kind: Kind,
        *,
        count: int = 0,
        per_response: int = 100,
        held: int = 0,
        seconds: float = 0.0,
        settings: dict[str, object] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        name = f"turn-{next(self._names)}"
        asked = {
            "client": client,
            "kind": kind,
            "subscription": name,
            "count": count,
            "per_response": per_response,
            "held": held,
            "seconds": seconds,
            "settings": settings or {},
            "attributes": attributes or {},
            **self._addresses,
        }
        found = run_client(self._module, asked)
        path = f"projects/{PROJECT}/subscriptions/{name}"
        totals = ask(self._addresses["rest"], path, "DELETE")
        if totals["wrong"] or totals["nacks"] or totals["acked"] != totals["sent"]:
            raise AssertionError(f"{client} left messages unacknowledged: {totals}")
        return found

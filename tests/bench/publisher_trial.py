"""One client's turn: what it publishes, and what it is measured on."""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from tests.bench.load_server import ask
from tests.bench.publisher_inbox import message
from tests.bench.turn import cpu_seconds

Kind = Literal["cpu", "latency"]

PROJECT = "bench"
WARM_UP = 3_000
WINDOW = 10_000
"""Messages that are published before the message id of the first of them is awaited."""

Figures = dict[str, object]

Window = Sequence[tuple[bytes, str]]
"""Messages, each its data and its attribute's value."""

Publish = Callable[[Window], Awaitable[list[str]]]
"""Publishes messages; returns their message ids."""


@dataclass
class Trial:
    """A turn. Every client publishes the same messages, a window of them at a time."""

    kind: Kind
    grpc: str
    rest: str
    topic: str
    count: int
    size: int
    settings: dict[str, Any]
    """What the client is tried with."""

    @property
    def path(self) -> str:
        """The topic's full name."""
        return f"projects/{PROJECT}/topics/{self.topic}"

    async def measure(self, publish: Publish) -> Figures:
        """Have a client publish; returns the figures."""
        self._ask("PUT", json.dumps({"size": self.size}).encode())
        warm_up, window = (WARM_UP, WINDOW) if self.kind == "cpu" else (self.count // 10, 1)
        bounds = [0, *range(warm_up, warm_up + self.count, window), warm_up + self.count]
        first, *windows = [
            tuple(message(number, self.size) for number in range(*each))
            for each in itertools.pairwise(bounds)
        ]
        ids = ["".join(await publish(first))]
        # The collector learns that it need not look at tuples of texts, nor at tuples of these;
        # then what was prepared costs nobody anything while the clock runs.
        for _ in range(2):
            gc.collect()
        measured = self._cost if self.kind == "cpu" else self._latency
        figures = await measured(publish, windows, ids)
        self._ask("POST", "".join(ids).encode())
        return figures

    async def _cost(self, publish: Publish, windows: Sequence[Window], ids: list[str]) -> Figures:
        totals_before = self._ask("GET")
        before, began = cpu_seconds(), time.perf_counter()
        # The ids of a window are kept as one text: to keep each would cost the client too much.
        ids += ["".join(await publish(window)) for window in windows]
        cpu, wall = cpu_seconds() - before, time.perf_counter() - began
        totals = {key: value - totals_before[key] for key, value in self._ask("GET").items()}
        return {"cpu": cpu, "wall": wall, "threads": psutil.Process().num_threads(), **totals}

    async def _latency(
        self, publish: Publish, windows: Sequence[Window], ids: list[str]
    ) -> Figures:
        latencies = []
        for window in windows:
            began = time.perf_counter()
            ids += await publish(window)
            latencies.append(time.perf_counter() - began)
        return {"latencies": latencies}

    def _ask(self, method: str, body: bytes | None = None) -> dict[str, float]:
        return ask(self.rest, self.path, method, body)

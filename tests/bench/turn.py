"""One client's turn: it runs in a process of its own, and what it took is kept."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TIMEOUT = 240.0
_MEASURED = ("cpu", "wall", "threads")


@dataclass(frozen=True)
class Turn:
    """What a client took for its messages, and what the server counted meanwhile."""

    count: int
    cpu: float
    wall: float
    threads: int
    totals: Mapping[str, float]

    @classmethod
    def of(cls, count: int, figures: dict[str, Any]) -> Turn:
        """The turn that a client's figures tell of."""
        measured = {key: figures[key] for key in _MEASURED}
        totals = {key: value for key, value in figures.items() if key not in measured}
        return cls(count=count, **measured, totals=totals)

    @property
    def cost(self) -> float:
        """CPU seconds a million messages."""
        return self.cpu / self.count * 1e6


def direction(number: int) -> int:
    """Forwards or backwards, round by round: what becomes slower favours neither side."""
    return -1 if number % 2 else 1


def run_client(module: str, asked: Mapping[str, object]) -> dict[str, Any]:
    """Run a client as asked; returns what it has measured."""
    command = [sys.executable, "-m", module, json.dumps(asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def cpu_seconds() -> float:
    """What this process has used so far, with all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

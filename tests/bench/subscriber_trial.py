"""One client's turn: what it is fed, and what it is measured on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import psutil

from tests.bench.load_server import ask
from tests.bench.subscriber_feed import SIZE
from tests.bench.turn import cpu_seconds

Kind = Literal["cpu", "latency", "held", "renewals", "idle"]

PROJECT = "bench"
WARM_UP = 3_000
WINDOW = 4_000
"""Messages in flight beside those that are held."""

MOST_HELD = 100_000

_ALL_HELD_WITHIN = 30.0


Figures = dict[str, object]


class Running(Protocol):
    """A client that runs until it is cancelled."""

    def cancel(self) -> object:
        """End it in good order."""

    def __await__(self) -> Generator[Any, None, object]: ...


@dataclass
class Trial:
    """A turn. Every client reads the data of each message and acknowledges it.

    Callbacks append to `seen` themselves: a call more for each message would cost a good part of
    what is measured.
    """

    kind: Kind
    grpc: str
    rest: str
    subscription: str
    count: int
    per_response: int
    held: int
    seconds: float
    settings: dict[str, Any]
    """Keyword arguments for the client, where it is tried with several."""

    attributes: dict[str, str]
    """Those of each message; the feed's own if there are none."""

    seen: list[int] = field(default_factory=list)
    """For each message the bytes that it brought or, in a trial of latency, its nanoseconds."""

    @property
    def path(self) -> str:
        """The subscription's full name."""
        return f"projects/{PROJECT}/subscriptions/{self.subscription}"

    def create(self) -> None:
        """Have the server make the subscription."""
        feed: dict[str, object] = {
            "per_response": self.per_response,
            "held": self.held,
            "attributes": self.attributes,
        }
        if self.kind == "latency":
            feed |= {"per_response": 1, "window": 1, "stamped": True}
        elif self.held:
            feed["window"] = self.held + WINDOW
        self._ask("PUT", json.dumps(feed).encode())

    def measure(self) -> Figures:
        """Have messages sent while the client listens in other threads; returns the figures.

        It blocks without using CPU: each call is answered when the server has all its acks.
        """
        if self.held:
            self._run(self.held)
            self._until_held()
        if self.kind == "latency":
            return self._latency()
        if self.kind != "renewals":
            self._run(WARM_UP)
        before, began = cpu_seconds(), time.perf_counter()
        totals = self._rest() if self.kind in ("idle", "renewals") else self._run(self.count)
        cpu, wall = cpu_seconds() - before, time.perf_counter() - began
        return {"cpu": cpu, "wall": wall, "threads": psutil.Process().num_threads(), **totals}

    async def measure_beside(
        self, client: Running, *, settle: Callable[[], None] | None = None
    ) -> Figures:
        """Measure while a client runs in this loop, then `settle` what is left and end it.

        Raises:
            RuntimeError: The client ended by itself.
        """
        watching = asyncio.ensure_future(_ended(client))
        measuring = asyncio.ensure_future(asyncio.to_thread(self.measure))
        await asyncio.wait({measuring, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            raise RuntimeError("the client ended before the trial did") from watching.exception()
        if settle is not None:
            settle()
        client.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        return await measuring

    def check(self) -> None:
        """Fail unless each message was seen once, with all of its data."""
        sent = self.held + (WARM_UP + self.count if self.kind in ("cpu", "held") else 0)
        if sent and (len(self.seen), sum(self.seen)) != (sent, sent * SIZE):
            raise AssertionError(
                f"{len(self.seen)} messages with {sum(self.seen)} bytes came, {sent} were sent"
            )

    def _latency(self) -> Figures:
        self._run(self.count // 10)
        warm = len(self.seen)
        self._run(self.count)
        return {"latencies": [nanoseconds / 1e9 for nanoseconds in self.seen[warm:]]}

    def _rest(self) -> dict[str, float]:
        """Do nothing for a while."""
        before = self._ask("GET")
        time.sleep(self.seconds)
        after = self._ask("GET")
        return {key: after[key] - before[key] for key in after}

    def _until_held(self) -> None:
        """Wait until the callbacks have all that is to be held, and the server was told so."""
        give_up_at = time.monotonic() + _ALL_HELD_WITHIN
        while len(self.seen) < self.held or self._ask("GET")["modacks"] < self.held:
            if time.monotonic() > give_up_at:
                raise TimeoutError(
                    f"{len(self.seen)} of {self.held} messages came: {self._ask('GET')}"
                )
            time.sleep(0.01)

    def _run(self, count: int) -> dict[str, float]:
        return self._ask("POST", query=f"?count={count}")

    def _ask(self, method: str, body: bytes | None = None, query: str = "") -> dict[str, float]:
        return ask(self.rest, self.path, method, body, query)


async def _ended(client: Running) -> None:
    await client

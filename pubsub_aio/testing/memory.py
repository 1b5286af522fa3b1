"""The emulator without sockets, in the loop of its clients and on that loop's time."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pubsub_aio.emulator.broker import STREAM_LIFE
from pubsub_aio.emulator.clock import START
from pubsub_aio.emulator.journal import HISTORY
from pubsub_aio.emulator.principals import OWNER
from pubsub_aio.emulator.server import Emulator
from pubsub_aio.emulator.service import DELIVERY_LAG
from pubsub_aio.emulator.transforming import TIME_LIMIT
from pubsub_aio.testing.loop import MAX_TIME, run
from pubsub_aio.testing.transport import MemoryFront, MemoryTransport

if TYPE_CHECKING:
    from pubsub_aio.emulator.front import Front
    from pubsub_aio.emulator.quotas import Quotas

T = TypeVar("T")


class LoopClock:
    """A clock that goes by an event loop's time.

    Args:
        start: What it shows until `begin` is called, in seconds since 1970.
    """

    def __init__(self, start: float = START) -> None:
        self._offset = start
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Go by the running loop from now on."""
        now, loop = self.now(), asyncio.get_running_loop()
        self._offset, self._loop = now - loop.time(), loop

    def now(self) -> float:
        """Seconds since 1970."""
        return self._offset + (self._loop.time() if self._loop else 0.0)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class MemoryEmulator(Emulator):
    """An `Emulator` with no port: clients reach it by `transport()`, in the same event loop.

        async with MemoryEmulator() as emulator:
            emulator.create_subscription("worker", "orders")
            async with SubscriberClient(transport=emulator.transport()) as client:
                ...

    It goes by the loop's time. So in a `VirtualTimeLoop` ack deadlines, retention and the like
    pass in no time, together with its clients' own timers; in any other loop they pass as usual.
    With the same calls it answers the same way each time, ack ids and all.

    Args:
        project: The project of resources that are named without one; it may be changed later.
        history: How many messages are remembered for inspection.
        stream_life: Seconds after which a stream is ended, as the service does it.
        delivery_lag: Seconds between a publish and its delivery.
        start: What its clock shows at first, in seconds since 1970.
        instance: A number of 32 bits that is part of every ack id.
        transform_timeout: Seconds that a transform's script may take for a message.
        seed: A file of topics, subscriptions and schemas that are there from the start.
        enforce_iam: Whether callers need permissions.
        principal: Who the callers are; `owner` may do everything.
        quotas: What is refused, or slowed down, as being too much.
    """

    clock: LoopClock

    def __init__(
        self,
        *,
        project: str | None = None,
        history: int = HISTORY,
        stream_life: float = STREAM_LIFE,
        delivery_lag: float = DELIVERY_LAG,
        start: float = START,
        instance: int = 1,
        transform_timeout: float = TIME_LIMIT,
        seed: str | os.PathLike[str] | None = None,
        enforce_iam: bool = False,
        principal: str = OWNER,
        quotas: Quotas | None = None,
    ) -> None:
        super().__init__(
            clock=LoopClock(start),
            project=project,
            history=history,
            stream_life=stream_life,
            delivery_lag=delivery_lag,
            instance=instance,
            transform_timeout=transform_timeout,
            seed=seed,
            enforce_iam=enforce_iam,
            principal=principal,
            quotas=quotas,
        )
        self.front = MemoryFront(self._service, self.faults)
        """Where transports come in."""

    def transport(self) -> MemoryTransport:
        """A new transport to this emulator, for one client."""
        return MemoryTransport(self)

    @property
    def address(self) -> str:
        """There is none."""
        raise RuntimeError("an emulator in memory has no address: give clients its transport()")

    async def advance(self, seconds: float) -> None:
        """Let time pass, which is to sleep: all that falls due on the way happens."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds must be a number that is not negative, not {seconds}")
        await asyncio.sleep(seconds)

    async def _open(self) -> Front:
        self.clock.begin()
        self.front.open()
        return self.front

    async def _quiet(self) -> None:
        """What was published is on its way; there is no wire on which to wait for more."""
        self._service.wake_published()

    async def _close(self) -> None:
        await self.front.close()


class RunScenario(Protocol):
    """What `run_scenario` is to those who are given it with its project settled."""

    def __call__(
        self,
        scenario: Callable[[MemoryEmulator], Coroutine[Any, Any, T]],
        *,
        max_time: float = MAX_TIME,
    ) -> T:
        """Run it; returns what it returns."""


def run_scenario(
    scenario: Callable[[MemoryEmulator], Coroutine[Any, Any, T]],
    *,
    project: str | None = None,
    max_time: float = MAX_TIME,
) -> T:
    """Run a coroutine function in virtual time, with an emulator of its own; returns its result.

    Args:
        scenario: It is given a `MemoryEmulator` that has started.
        project: The emulator's project.
        max_time: Virtual seconds that it may take.
    """

    async def main() -> T:
        async with MemoryEmulator(project=project) as emulator:
            return await scenario(emulator)

    return run(main(), max_time=max_time)

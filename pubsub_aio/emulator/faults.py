"""Faults on demand: what a test asks the emulator to do wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from pubsub_aio._wire.rpcs import BY_NAME
from pubsub_aio.emulator.leases import INVALID_ACK_ID
from pubsub_aio.emulator.status import Code, StatusError

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.front import Front
    from pubsub_aio.emulator.subscriptions import Subscription

Direction = Literal["both", "requests", "responses"]


@dataclass(slots=True)
class _CallFault:
    times: int
    error: StatusError | None = None
    applied: bool = False
    delay: float = 0.0


class Stall:
    """Streams, or connections, on which nothing passes until `resume` is called.

    As a context manager it resumes at the end of the block. Any thread may resume.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self._over: Callable[[], None] | None = over
        self._loop = asyncio.get_running_loop()

    def resume(self) -> None:
        """Let everything pass again; a second call does nothing."""
        over, self._over = self._over, None
        if over is None or self._loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            over()
        else:
            self._loop.call_soon_threadsafe(over)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.resume()


class Faults:
    """What goes wrong next. Faults of one kind add up and happen in the order they were asked for.

    RPCs are named as in the API (`"Publish"`, `"StreamingPull"`), codes as in gRPC
    (`"UNAVAILABLE"`), subscriptions by their full or short name. Mistakes are ValueErrors.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        find: Callable[[str], Subscription],
        wake: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._find = find
        self._wake = wake
        self._front: Front | None = None
        self._ending: StatusError | None = None
        self._calls: dict[str, list[_CallFault]] = {}
        self._stalls: dict[Stall, tuple[str | None, Direction, asyncio.Event]] = {}
        self._confirmations: dict[Subscription, list[str]] = {}

    def attach(self, front: Front) -> None:
        """Learn which port's connections can be cut."""
        self._front = front

    def end(self, error: StatusError | None) -> None:
        """Answer all calls with that error from now on; none lets them through again."""
        self._ending = error

    # Calls

    def fail(
        self,
        rpc: str,
        code: str,
        *,
        times: int = 1,
        message: str = "injected by a test",
        retry_delay: float | None = None,
        applied: bool = False,
    ) -> None:
        """Answer the next calls of an RPC with an error.

        Args:
            rpc: Which RPC; for StreamingPull, the opening of a stream.
            code: The status code.
            times: For how many calls.
            message: The status message.
            retry_delay: Seconds that a RetryInfo in the status tells the client to wait.
            applied: Whether the call takes effect all the same, as if its answer had been lost.
        """
        if retry_delay is not None:
            _check_seconds("retry_delay", retry_delay)
        if applied and rpc == "StreamingPull":
            raise ValueError("applied: a stream that does not open has no effect")
        error = StatusError(_code(code), message, retry_delay=retry_delay)
        self._add(rpc, _CallFault(_positive(times), error, applied))

    def delay(self, rpc: str, seconds: float, *, times: int = 1) -> None:
        """Let the next calls of an RPC wait, by the emulator's clock, before anything is done."""
        _check_seconds("seconds", seconds)
        self._add(rpc, _CallFault(_positive(times), delay=seconds))

    def _add(self, rpc: str, fault: _CallFault) -> None:
        if rpc not in BY_NAME:
            raise ValueError(f"rpc {rpc!r} does not exist; choose from {', '.join(BY_NAME)}")
        self._calls.setdefault(rpc, []).append(fault)

    def next_call(self, rpc: str) -> tuple[float, StatusError | None, bool]:
        """What is wrong with a call: a delay, an error, whether it takes effect all the same."""
        if self._ending:
            return 0.0, self._ending, False
        waiting = self._calls.get(rpc)
        if not waiting:
            return 0.0, None, False
        fault = waiting[0]
        fault.times -= 1
        if not fault.times:
            waiting.pop(0)
        return fault.delay, fault.error, fault.applied

    # Streams

    def cut_streams(self, subscription: str | None = None, *, code: str = "UNAVAILABLE") -> int:
        """End open streams, of one subscription or all; returns how many."""
        error = StatusError(_code(code), "cut by a test")
        count = 0
        for target in self._subscriptions(subscription):
            count += len(target.streams)
            target.end_streams(error)
            self._broker.changed[target] = None
        self._wake()
        return count

    def stall_streams(
        self, subscription: str | None = None, *, direction: Direction = "both"
    ) -> Stall:
        """Let streams, open ones and new ones, hang without an error.

        Args:
            subscription: Whose streams; all if none is given.
            direction: `"responses"`: nothing reaches the subscriber; `"requests"`: nothing that it
                sends (acks, deadlines, heartbeats) is heeded; `"both"`.
        """
        _check_direction(direction)
        if subscription is not None:
            subscription = self._find(subscription).config.name
        over = asyncio.Event()

        def resume() -> None:
            self._stalls.pop(stall, None)
            over.set()
            self._broker.changed.update(dict.fromkeys(self._subscriptions(None)))
            self._wake()

        stall = Stall(resume)
        self._stalls[stall] = (subscription, direction, over)
        return stall

    async def while_stalled(self, subscription: str, direction: Direction) -> None:
        """Return once nothing stalls that direction of the subscription's streams."""
        while stalls := self._stalls_of(subscription, direction):
            await stalls[0].wait()

    def stalls(self, subscription: str, direction: Direction) -> bool:
        """Whether that direction of the subscription's streams is stalled."""
        return bool(self._stalls_of(subscription, direction))

    def _stalls_of(self, subscription: str, direction: Direction) -> list[asyncio.Event]:
        return [
            over
            for target, stalled, over in self._stalls.values()
            if target in (None, subscription) and stalled in ("both", direction)
        ]

    # Messages

    def duplicate(self, subscription: str, *, times: int = 1) -> None:
        """Deliver the next messages twice, the copy with an ack id of its own."""
        self._find(subscription).deliveries.duplicate_next += _positive(times)

    def lose_acks(self, subscription: str, *, times: int = 1) -> None:
        """Answer the next acks, counted by message, with OK and forget them."""
        self._find(subscription).deliveries.lose_acks += _positive(times)

    def fail_confirmations(
        self, subscription: str, *, times: int = 1, permanent: bool = False
    ) -> None:
        """Refuse the next acks and modacks of an exactly-once subscription, counted by message.

        Args:
            subscription: Which subscription; it must have exactly-once delivery enabled.
            times: How many messages.
            permanent: Whether the ids are called invalid, as if their deadlines had passed, so that
                the messages come again; otherwise a retry succeeds.
        """
        target = self._find(subscription)
        if not target.config.enable_exactly_once_delivery:
            raise ValueError(f"{subscription} does not have exactly-once delivery enabled")
        kind = INVALID_ACK_ID if permanent else "TRANSIENT_FAILURE_INJECTED"
        self._confirmations.setdefault(target, []).extend([kind] * _positive(times))

    def next_confirmations(self, subscription: Subscription, count: int) -> dict[int, str]:
        """Which of so many acks or modacks are to be refused, and why."""
        reasons = self._confirmations.get(subscription, [])
        refused = dict(enumerate(reasons[:count]))
        del reasons[:count]
        if not reasons:
            self._confirmations.pop(subscription, None)
        return refused

    # Connections

    def cut_connections(self) -> int:
        """Reset every open connection; returns how many."""
        return self._port().cut()

    def refuse_connections(self) -> Stall:
        """Reset new connections as soon as they are made; open ones stay."""
        return Stall(self._port().refuse())

    def stall_connections(self, *, direction: Direction = "both") -> Stall:
        """Let all connections, open and new, hang: bytes are neither read nor written."""
        _check_direction(direction)
        return Stall(self._port().stall(direction))

    def _port(self) -> Front:
        if self._front is None:
            raise RuntimeError("connections can only be disturbed once the emulator has started")
        return self._front

    # All

    def clear(self) -> None:
        """Forget every fault that has not happened yet, and resume what is stalled."""
        self._calls.clear()
        self._confirmations.clear()
        for subscription in self._broker.subscriptions.values():
            subscription.deliveries.duplicate_next = subscription.deliveries.lose_acks = 0
        for stall in list(self._stalls):
            stall.resume()
        if self._front:
            self._front.calm()

    def _subscriptions(self, name: str | None) -> list[Subscription]:
        if name is None:
            return list(self._broker.subscriptions.values())
        return [self._find(name)]


def _code(name: str) -> Code:
    known = [code.name for code in Code if code]
    if name not in known:
        raise ValueError(f"code {name!r} is no error; choose from {', '.join(known)}")
    return Code[name]


def _positive(times: int) -> int:
    if times < 1:
        raise ValueError(f"times must be at least 1, not {times}")
    return times


def _check_seconds(name: str, seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} must be a number that is not negative, not {seconds}")


def _check_direction(direction: str) -> None:
    if direction not in ("both", "requests", "responses"):
        raise ValueError(f"direction {direction!r} must be both, requests or responses")

"""The emulator as its users have it: start and stop, and time."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pubsub_aio.emulator.broker import STREAM_LIFE, Broker
from pubsub_aio.emulator.clock import Clock, SystemClock, VirtualClock
from pubsub_aio.emulator.contents import PROJECT, Contents
from pubsub_aio.emulator.faults import Faults
from pubsub_aio.emulator.journal import HISTORY, Journal
from pubsub_aio.emulator.listener import Listener
from pubsub_aio.emulator.principals import OWNER
from pubsub_aio.emulator.pushers import Pushers
from pubsub_aio.emulator.service import DELIVERY_LAG, Service
from pubsub_aio.emulator.status import Code, StatusError
from pubsub_aio.emulator.tokens import Tokens
from pubsub_aio.emulator.transforming import TIME_LIMIT, Transforms
from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from pubsub_aio.emulator.front import Front
    from pubsub_aio.emulator.iam import Iam
    from pubsub_aio.emulator.limits import Limits
    from pubsub_aio.emulator.quotas import Quotas
    from pubsub_aio.emulator.seeds import Seeded
    from pubsub_aio.emulator.storage.store import Store

log = logging.getLogger("pubsub_aio.emulator")

_LOOK_AGAIN = 0.05  # seconds after which a condition is tried although nothing happened
_BLOCKED = 1.0  # seconds of real time to wait for a stream whose client does not read


class Emulator(Contents):
    """A Pub/Sub server in this process, gRPC and REST on one port.

    Start it with `async with`; leaving the block ends every stream and connection. Its methods
    belong to the loop that it was started in; `EmulatorThread` serves other threads.

    Names of topics and subscriptions may be full (`projects/P/topics/T`) or short.

    Args:
        host: Where to listen. There are no credentials: whoever can reach it can use it.
        port: The port; zero takes a free one.
        clock: A `VirtualClock` for tests that must not wait; the machine's time if none is given.
        project: The project of resources that are named without one; it may be changed later.
        history: How many messages, with what became of them, are remembered for inspection; fewer
            where they are large, 4 MiB in all.
        stream_life: Seconds after which a stream is ended, as the service does it.
        delivery_lag: Seconds of real time between a publish and its delivery.
        data_dir: Where to keep topics, subscriptions, snapshots, policies and messages, so that
            they outlive this emulator, even if it is killed; in memory only if none is given.
        transform_timeout: Seconds that a transform's script may take for a message.
        instance: A number that is part of every ack id, so that one emulator's are not another's;
            a random one if none is given.
        seed: A file of topics, subscriptions and schemas that are there from the start; if no
            project is given, it is the one that the file names.
        enforce_iam: Whether callers need permissions, as policies and `iam` give them.
        principal: Who a caller is that does not say it by the header `x-emulator-principal`;
            `owner` may do everything.
        quotas: What is refused, or slowed down, as being too much; nothing if none are given.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        project: str | None = None,
        history: int = HISTORY,
        stream_life: float = STREAM_LIFE,
        delivery_lag: float = DELIVERY_LAG,
        data_dir: str | os.PathLike[str] | None = None,
        transform_timeout: float = TIME_LIMIT,
        instance: int | None = None,
        seed: str | os.PathLike[str] | None = None,
        enforce_iam: bool = False,
        principal: str = OWNER,
        quotas: Quotas | None = None,
    ) -> None:
        _check_seconds(stream_life=stream_life, transform_timeout=transform_timeout)
        if not (isinstance(port, int) and 0 <= port <= 65_535):
            raise ConfigError(f"port must be a number from 0 to 65535, not {port!r}")
        clock = clock or SystemClock()
        broker = Broker(
            instance=secrets.randbits(32) if instance is None else instance,
            journal=Journal(history),
            stream_life=stream_life,
        )
        self.faults = Faults(broker, find=self._subscription, wake=self._wake)
        transforms = Transforms(time_limit=transform_timeout)
        service = Service(
            broker,
            clock,
            self.faults,
            transforms,
            enforce_iam=enforce_iam,
            limits=None if quotas is None else _limits(quotas),
            delivery_lag=delivery_lag,
        )
        super().__init__(broker, service, transforms, clock=clock, project=project or PROJECT)
        self.seeded: Seeded | None = None
        """What became of the seed file that it was started with."""
        self._seed = seed
        self._project_given = project
        self._host = host
        self._port = port
        if principal != OWNER:
            self.iam.act_as(principal)
        self._service.on_time_changed = self._set_timer
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._store: Store | None = None
        self._tokens = Tokens(self.clock)
        self._pushers = Pushers(self._service, self._tokens)
        self._listener: Listener | None = None
        self._started = False
        self._timer: asyncio.TimerHandle | None = None

    @cached_property
    def iam(self) -> Iam:
        """Who may do what, beyond the policies that the API shows."""
        from pubsub_aio.emulator.iam import Iam

        access = self._service.access
        return Iam(self._broker, access, project=lambda: self.project, wake=self._wake)

    # Life

    async def __aenter__(self) -> Self:
        if self._store:
            raise RuntimeError("an emulator with a data_dir starts once: make another")
        if self._data_dir and self._broker.serial:
            raise RuntimeError("with a data_dir, nothing can be created before the emulator starts")
        self.faults.end(None)
        self._transforms.open()
        try:
            await self._open_store()
            if self._seed is not None:
                self.seeded = self.load_seed(self._seed, project=self._project_given)
                self.project = self.seeded.project
            self.faults.attach(await self._open())
        except BaseException:
            await self._let_go()
            raise
        self._started = True
        self._set_timer()
        self._pushers.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.faults.clear()
        stopping = StatusError(Code.UNAVAILABLE, "the emulator is stopping")
        self.faults.end(stopping)
        for subscription in self._broker.subscriptions.values():
            subscription.end_streams(stopping)
            self._broker.changed[subscription] = None
        self._wake()
        try:
            await self._pushers.stop()
            await self._quiet()
        finally:
            self._started = False
            self._set_timer()
            try:
                await self._close()
            finally:
                await self._let_go()

    async def _let_go(self) -> None:
        """End what runs for this life but for its clients."""
        try:
            self._transforms.close()
        finally:
            await self._close_store()

    async def _open_store(self) -> None:
        """Go on where the data directory ends, if there is one."""
        if self._data_dir is None:
            return
        # Only now: it takes its time to import.
        from pubsub_aio.emulator.storage.store import Store

        self._store = Store(self._data_dir, self._broker, self.clock)
        await self._store.open()
        self._service.store = self._store
        self._service.on_change = self._store.look

    async def _close_store(self) -> None:
        store, self._service.store = self._service.store, None
        self._service.on_change = lambda: None
        if store and self._store:
            await self._store.close()

    async def _open(self) -> Front:
        """Let clients in; returns where they come in."""
        listener = Listener(self._service, self.faults, self._tokens)
        try:
            self._port = await listener.start(self._host, self._port)
        except BaseException:
            await listener.stop()
            raise
        self._listener = listener
        if not _is_loopback(self._host):
            log.warning(
                "the emulator listens on %s: everybody who can reach it can read and publish",
                self.address,
            )
        return listener.front

    async def _close(self) -> None:
        """Let no client in any more, and end what those that are in have open."""
        listener, self._listener = self._listener, None
        if listener:
            await listener.stop()

    @property
    def address(self) -> str:
        """`host:port`, as PUBSUB_EMULATOR_HOST wants it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    # Time

    async def advance(self, seconds: float) -> None:
        """Move the virtual clock; everything that falls due on the way happens, in order.

        Streams are given what falls due to them. What their clients answer takes real time, as any
        bytes on a wire do: wait for it with `until` before moving on.
        """
        if not isinstance(self.clock, VirtualClock):
            raise TypeError("only a VirtualClock can be advanced: Emulator(clock=VirtualClock())")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds must be a number that is not negative, not {seconds}")
        target = self.clock.now() + seconds
        await self._quiet()
        while (at := min(self._broker.next_at, self.clock.next_at)) <= target:
            self.clock.move_to(at)
            self._broker.poll(self.clock.now())
            self._wake()
            await self._quiet()
        self.clock.move_to(target)

    async def _quiet(self) -> None:
        """Return once no call is at work and nobody has anything to deliver, or cannot."""
        ends_at = time.monotonic() + _BLOCKED
        quiet = 0
        while True:
            published = self._service.wake_published()
            await asyncio.sleep(0)
            busy = [w for of in self._service.waiters.values() for w in of if not w.idle]
            # Who was just woken begins a turn of the loop later, or two.
            quiet = 0 if busy or published or self._service.working else quiet + 1
            if quiet == 3:
                return
            if time.monotonic() > ends_at:
                for waiter in busy:
                    waiter.stuck = True  # until its client reads again
                return
            if busy:
                await asyncio.sleep(0.0005)

    def _set_timer(self) -> None:
        """Call the broker when it wants to be called; never, unless we are started."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        moved = isinstance(self.clock, VirtualClock)  # by `advance`
        if not self._started or moved or self._broker.next_at == math.inf:
            return
        wait = max(0.0, self._broker.next_at - self.clock.now())
        self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._broker.poll(self.clock.now())
        self._wake()
        self._set_timer()

    async def until(self, condition: Callable[[], bool], *, timeout: float = 10.0) -> None:
        """Return as soon as the condition holds.

        It is tried after everything that happens here, and now and then in between, for it may be
        about something else.

        Raises:
            TimeoutError: It did not hold within `timeout` seconds of real time.
        """
        async with asyncio.timeout(timeout):
            seen = self.activity()
            while not condition():
                seen = await self.activity_after(seen)

    def activity(self) -> int:
        """A number that grows whenever something happens."""
        return self._service.activity

    async def activity_after(self, seen: int) -> int:
        """The same number, once it is greater than `seen`, or after a while."""
        if self._service.activity <= seen:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN):
                    await self._service.stirred.wait()
        return self._service.activity


def _limits(quotas: Quotas) -> Limits:
    from pubsub_aio.emulator.limits import Limits
    from pubsub_aio.emulator.quotas import Quotas

    if not isinstance(quotas, Quotas):
        raise ConfigError(f"quotas must be Quotas(...), not {quotas!r}")
    return Limits(quotas)


def _check_seconds(**given: float) -> None:
    for name, seconds in given.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(f"{name} must be a number of seconds above 0, not {seconds!r}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Who waits for something to happen, and is woken when it may have."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.subscriptions import Subscription


class Waiter:
    """Somebody who waits for a subscription to have something to deliver."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = False
        self.stuck = False
        """Whether it cannot go on, be it a fault or a client that does not read."""

    async def wait(self) -> None:
        """Return when something may have changed since the last call."""
        self.waiting = True
        try:
            await self.event.wait()
        finally:
            self.waiting = False
        self.event.clear()

    @property
    def idle(self) -> bool:
        """Whether it waits, with nothing to wake it, or cannot go on."""
        return self.stuck or (self.waiting and not self.event.is_set())


class Waking:
    """Wakes whoever waits for a broker: its subscribers, its clock, its pushers and its store.

    Args:
        broker: What is waited for.
        delivery_lag: Seconds from a publish to its delivery.
    """

    def __init__(self, broker: Broker, *, delivery_lag: float) -> None:
        self.broker = broker
        self.waiters: dict[Subscription, dict[Waiter, None]] = {}  # in the order they came
        self.on_change: Callable[[], None] = lambda: None
        """Called whenever something may have changed."""
        self.on_policies_changed: Callable[[], None] = lambda: None
        """Called when somebody may have lost a permission."""
        self.on_time_changed: Callable[[], None] = lambda: None
        """Called when the broker may want to be polled at another time than before."""
        self.on_push: Callable[[], None] = lambda: None
        """Called when the broker has subscriptions for which nobody pushes yet."""
        self.activity = 0
        """Grows whenever something may have changed."""
        self.stirred = asyncio.Event()
        """Set when that happens, and replaced by another."""
        self._delivery_lag = delivery_lag
        self._next_at = math.inf
        self._published: dict[Subscription, None] = {}
        self._published_timer: asyncio.TimerHandle | None = None

    def stir(self) -> None:
        """Something happened."""
        self.activity += 1
        self.stirred.set()
        self.stirred = asyncio.Event()

    def wake(self) -> None:
        """Wake those for whom something may have changed."""
        self.stir()
        if self.broker.policies_changed:
            self.broker.policies_changed = False
            self.on_policies_changed()
        self.on_change()
        if self.broker.changed:
            for subscription in self.broker.changed:
                for waiter in self.waiters.get(subscription, ()):
                    waiter.event.set()
            self.broker.changed.clear()
        if self.broker.unserved:
            self.on_push()
        if self.broker.next_at != self._next_at:
            self._next_at = self.broker.next_at
            self.on_time_changed()

    def wake_later(self) -> None:
        """Wake them after the delivery lag: what changed is that messages were published."""
        self._published |= self.broker.changed
        self.broker.changed.clear()
        if not self._published_timer:
            loop = asyncio.get_running_loop()
            self._published_timer = loop.call_later(self._delivery_lag, self.wake_published)

    def wake_published(self) -> bool:
        """Let what was published be delivered; returns whether there was anything."""
        waiting = bool(self._published)
        if self._published_timer:
            self._published_timer.cancel()
            self._published_timer = None
        self.broker.changed |= self._published
        self._published.clear()
        self.wake()
        return waiting

    @contextlib.contextmanager
    def waiter(self, subscription: Subscription) -> Iterator[Waiter]:
        """Somebody who is woken when the subscription changes."""
        waiter = Waiter()
        waiters = self.waiters.setdefault(subscription, {})
        waiters[waiter] = None
        try:
            yield waiter
        finally:
            waiters.pop(waiter, None)
            if not waiters and self.waiters.get(subscription) is waiters:
                del self.waiters[subscription]

"""No more than so many callbacks at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pubsub_aio.subscriber.callbacks import WorkerChain
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.held import Held

M = TypeVar("M", bound=Held)


class Slots(Generic[M]):
    """Hands messages, or batches of them, to an async callback, so many at once and no more.

    Args:
        callback: What is called with each.
        custody: Where they come from.
        most: How many callbacks may run at once.
    """

    watch_all = True
    """Every callback's end frees a slot."""

    def __init__(
        self, callback: Callable[[M], Awaitable[object]], custody: Custody[M], most: int
    ) -> None:
        self.on_free: Callable[[], None] = lambda: None
        """Called when a slot is free that nobody waits for."""
        self._custody = custody
        self._most = most
        self._chain: WorkerChain[M] = WorkerChain(callback, self)
        self._taken = 0
        self._waiting: deque[M] = deque()

    @property
    def any_free(self) -> bool:
        """Whether what comes now would begin at once; where order matters one runs at a time."""
        most = self._most if self._custody.ordered is False else 1
        return self._taken < most and not self._waiting

    # What the subscription asks of it

    def put(self, messages: list[M]) -> None:
        """Run the callback for these, in turn; what was given back while it waited is let go."""
        gone = [one for one in self._waiting if one.lease is None]
        self._waiting = deque(one for one in (*self._waiting, *messages) if one not in gone)
        for message in gone:
            self._custody.returned(message)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._taken < self._most:
            self._taken += 1
            self._chain.put([self._waiting.popleft()])

    @property
    def busy(self) -> int:
        """How many callbacks have begun and not ended."""
        return self._chain.busy

    def withdraw(self) -> list[M]:
        """Take back what has not been begun."""
        called = self._chain.withdraw()
        self._taken -= len(called)
        waiting, self._waiting = self._waiting, deque()
        return [*called, *waiting]

    async def finished(self) -> None:
        """Return when no callback runs."""
        await self._chain.finished()

    async def stop(self, *, timeout: float) -> int:
        """Cancel the callbacks that run; returns how many did not end within the timeout."""
        return await self._chain.stop(timeout=timeout)

    # What the callbacks' workers tell it

    def returned(self, message: M, /) -> None:
        """A callback ended, or was never begun because its message had been given back."""
        self._taken -= 1
        if message.lease is not None or self._custody.watch_all:
            self._custody.returned(message)
        self._next()

    def raised(self, message: M, error: BaseException, /) -> None:
        """A callback failed."""
        self._taken -= 1
        self._custody.raised(message, error)
        self._next()

    def _next(self) -> None:
        self._begin()
        if self.any_free:
            self.on_free()

"""Whoever listens to what becomes of flights; whatever it does, the publisher goes on."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

from pubsub_aio.errors import ConfigError, QueueFullError
from pubsub_aio.publisher.flight import Flight

log = logging.getLogger("pubsub_aio.publisher")

Event = Literal["published", "acked", "completed_exceptionally", "timed_out"]

_EVENTS: tuple[Event, ...] = ("published", "acked", "completed_exceptionally", "timed_out")


class PublisherListener:
    """Is told what becomes of each flight. Override what matters; plain or async methods.

    For a flight that has departed `published` comes first, and then exactly one of the others. A
    flight that never departs has that one only. A plain method is called before the futures of the
    flight are done, so it must be quick; async ones run one after another, in order, beside the
    publisher, which pauses when they lag behind; when the publisher is stopped they have a second
    to hear the rest. What a listener raises is logged.
    """

    def published(self, flight: Flight) -> object:
        """It is on its way."""

    def acked(self, flight: Flight) -> object:
        """It has a message id."""

    def completed_exceptionally(self, flight: Flight) -> object:
        """It failed; `flight.error` says why."""

    def timed_out(self, flight: Flight) -> object:
        """No answer came in time."""


_SLOW = 10.0  # seconds for an async method of a listener before a warning is logged
_LOST = 10  # times as much as pauses publishing

_UNHEARD = tuple(getattr(PublisherListener, event) for event in _EVENTS)
"""Methods that were not overridden."""


class Listening:
    """Tells a listener, in order and without harm.

    Args:
        listener: Any object with some of the methods of a `PublisherListener`; none for nobody.
        max_waiting: How many events an async listener may be behind before publishing pauses.

    Raises:
        ConfigError: The listener listens to nothing.
    """

    def __init__(self, listener: object | None, *, max_waiting: int) -> None:
        methods = {event: getattr(listener, event, None) for event in _EVENTS}
        self._methods = {
            event: call
            for event, call in methods.items()
            if callable(call) and getattr(call, "__func__", None) not in _UNHEARD
        }
        if listener is not None and not self._methods:
            raise ConfigError(
                f"listener must have one of the methods {', '.join(_EVENTS)}, {listener!r} has none"
            )
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[Event, Awaitable[object]]] = deque()
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self._telling = False
        self._teller: asyncio.Task[None] | None = None
        self.on_room: Callable[[], None] = lambda: None
        """Called when an async listener has caught up."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when it is too far behind for more to come about."""

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._methods)

    def hears(self, event: Event) -> bool:
        """Whether anybody hears of such an event."""
        return event in self._methods

    @property
    def is_behind(self) -> bool:
        """Whether an async listener has so much to hear that publishing should pause."""
        return len(self._waiting) >= self._max_waiting

    @property
    def _most(self) -> int:
        return _LOST * self._max_waiting

    def check(self) -> None:
        """Refuse that still more comes about of which an async listener has to hear.

        Raises:
            QueueFullError: It is too far behind.
        """
        if len(self._waiting) >= self._most:
            raise QueueFullError("events", self._most, "the listener must hear of them first")

    async def caught_up(self) -> None:
        """Return when more may come about."""
        while len(self._waiting) >= self._most:
            self._quiet.clear()
            await self._quiet.wait()

    @property
    def untold(self) -> int:
        """How much is still to be told, or was begun to be."""
        return len(self._waiting) + self._telling

    @property
    def is_telling_here(self) -> bool:
        """Whether this is asked by the async listener that is being told."""
        return self._teller is not None and asyncio.current_task() is self._teller

    @property
    def is_idle(self) -> bool:
        """Whether everything was told."""
        return not self.untold

    def tell(self, event: Event, flights: Iterable[Flight]) -> None:
        """Tell of an event; an async listener is told soon."""
        method = self._methods.get(event)
        if method is None:
            return
        for flight in flights:
            try:
                told = method(flight)
            except BaseException as error:  # noqa: BLE001 - others must hear of their flights too
                _contain(error, event)
                continue
            if inspect.isawaitable(told):
                self._waiting.append((event, told))
                self._news.set()
        if len(self._waiting) >= self._most:
            self.on_lost()

    async def run(self) -> None:
        """Run what an async listener is to do, until cancelled."""
        self._teller = asyncio.current_task()
        try:
            while True:
                self._news.clear()
                while self._waiting:
                    await self._next()
                    if self._teller is not None and self._teller.cancelling():
                        return  # though a listener has caught it
                self._quiet.set()
                self.on_room()
                await self._news.wait()
        finally:
            self.forget()

    async def _next(self) -> None:
        self._telling = True
        event, told = self._waiting.popleft()
        slow = asyncio.get_running_loop().call_later(_SLOW, self._warn, event)
        try:
            await told
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # it is we who are cancelled
            _contain(error, event)
        finally:
            slow.cancel()
            self._telling = False
        if len(self._waiting) == self._max_waiting // 2:
            self.on_room()

    def _warn(self, event: Event) -> None:
        log.warning(
            "listener.%s has not returned for %g s, %d more things wait to be told: nothing is "
            "published while a listener is too far behind",
            event,
            _SLOW,
            len(self._waiting),
        )

    async def finish(self, within: float) -> None:
        """Return when all was told, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not self.is_idle:
                    self._quiet.clear()
                    await self._quiet.wait()

    def forget(self) -> None:
        """Forget what was not told yet, without a warning that it never ran."""
        while self._waiting:
            _, told = self._waiting.popleft()
            if inspect.iscoroutine(told):
                told.close()
        self._quiet.set()


def _contain(error: BaseException, event: Event) -> None:
    """Log what a listener raised; what is to end the program ends it in the loop's next turn."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        asyncio.get_running_loop().call_soon(_raise, error)
    else:
        log.error("listener.%s failed", event, exc_info=error)


def _raise(error: BaseException) -> None:
    raise error

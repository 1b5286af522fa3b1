"""Drops repeats of a message, by an id that its publisher gave it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pubsub_aio._core.repeats import Claim, Repeats
from pubsub_aio.config import FLIGHT_ID, MAX_ACK_DEADLINE, PUBLISHER_ID, check
from pubsub_aio.errors import ConfigError, WrongLoopError
from pubsub_aio.message import Message, Settler

log = logging.getLogger("pubsub_aio.deduplicator")

AsyncCallback = Callable[[Message], Awaitable[object]]

_MOST_AWAY = 60.0  # seconds until a repeat comes again that could not be dealt with


class Runner(Protocol):
    """What is asked of a scheduler."""

    async def run(self, callback: Callable[[Message], object], message: Message) -> None:
        """Run the callback with the message, and return when it has ended."""

    def close(self) -> None:
        """No more callbacks come."""


class Deduplicator:
    """Drops repeats of messages: those with an id that was handled before.

        dedupe = Deduplicator()
        keep_alive = client.subscribe("worker", dedupe(handle))

    When a publish is tried again because its answer was lost, the server may store the message
    twice. Both have the same value of an attribute, which the publisher gave them. Of these, and of
    deliveries of the same message, one is handled, and the others are acked without being handled.
    Messages that do not have the attribute, or an empty one, are always handled. Several attributes
    may tell messages apart together; the first of them is the one that a message must have.

    An id counts as seen when its message was acked; with `ack_with_response`, when the server has
    confirmed it. If the callback raises or nacks, or the lease ends, the id is free again, and the
    next message with it is handled: nothing is lost. While one is being handled, another with its
    id waits in its callback for the outcome, and is kept alive meanwhile. After `max_wait` it is
    nacked, and comes again within a minute, so that it does not take the place of others.

    Repeats are looked for within a subscription, and in this process: what is remembered ends with
    it. A deduplicator belongs to the first event loop that it is used in.

    Args:
        attribute: The attribute whose value tells one message from another, or several; those of
            our publisher unless told otherwise, `pubsub_aio.jobs.SAME_JOB` for jobs.
        window: Seconds since the ack for which an id is remembered. It should be longer than the
            time between a publish and its last retry, and than the ack deadline.
        max_ids: How many ids are remembered at once. An id takes some 300 bytes, so that 100,000
            take 30 MB. At 1,000 messages a second they last for 100 seconds: the oldest are then
            forgotten before the window is over, which is counted, and logged once.
        max_wait: Seconds that a repeat waits for the outcome of the one that is being handled, 0 to
            600.
    """

    def __init__(
        self,
        attribute: str | Sequence[str] = FLIGHT_ID,
        *,
        window: float = 600.0,
        max_ids: int = 100_000,
        max_wait: float = 10.0,
    ) -> None:
        several = isinstance(attribute, Sequence) and not isinstance(attribute, str)
        names: tuple[str, ...] = tuple(attribute if several else [attribute])  # type: ignore[list-item] # checked below
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(f"attribute must be the name of one, or several, not {attribute!r}")
        if names == (FLIGHT_ID,):
            names += (PUBLISHER_ID,)  # of publishers that were told how ids begin
        check("window", window, 0, above=True)
        check("max_ids", max_ids, 1, whole=True)
        check("max_wait", max_wait, 0, MAX_ACK_DEADLINE)
        self.handled = 0
        """Messages with an id that were handled and acked."""
        self.dropped = 0
        """Repeats that were acked without being handled."""
        self.deferred = 0
        """Repeats that were nacked, because one with their id was still being handled."""
        self._attribute, self._others = names[0], names[1:]
        self._max_ids = max_ids
        self._max_wait = max_wait
        # Before the window is over, or it would not be known any more.
        self._away = min(max(1.0, window / 2), _MOST_AWAY)
        self._repeats: Repeats[str, Message] = Repeats(window=window, max_ids=max_ids)
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._warned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._time = time.monotonic

    def __repr__(self) -> str:
        counts = f"handled={self.handled}, dropped={self.dropped}, forgotten={self.forgotten}"
        return f"Deduplicator({self._attribute!r}, {counts})"

    @property
    def forgotten(self) -> int:
        """Ids that were forgotten within the window, because there were too many."""
        return self._repeats.forgotten

    # What users call

    def __call__(self, callback: AsyncCallback) -> Callable[[Message], Awaitable[None]]:
        """A callback for `subscribe` that passes on what is no repeat.

        Args:
            callback: An async function. For a plain one, see `around`.
        """
        if not _is_async(callback):
            raise ConfigError(
                f"callback must be an async function, not {callback!r}; for a plain one, subscribe "
                "with scheduler=dedupe.around(ThreadScheduler())"
            )
        once = functools.partial(Deduplicator._once, self, callback)
        return functools.update_wrapper(once, callback, updated=())

    def around(self, scheduler: Runner) -> Runner:
        """A scheduler for `subscribe` that passes on to another what is no repeat.

        So callbacks may be plain functions, or run wherever else. What waits here takes up no
        thread.

            client.subscribe("worker", handle, scheduler=dedupe.around(ThreadScheduler()))
        """
        return _Around(self, scheduler)

    def claim(self, message: Message) -> bool:
        """Whether a message is to be handled, for those who are not called back with each.

            async for message in client.messages("worker"):
                if dedupe.claim(message):
                    ...
                    message.ack()

        If it is, its id is taken until the message is settled, by its own methods. Otherwise it is
        settled already: acked as a repeat, or nacked to come again within a minute, because one
        with its id is not settled yet. A message that was pulled, which nobody keeps alive, has its
        id for ten minutes, and for ten more each time that it moves its deadline.
        """
        claim = self._claim(message)
        if claim == "taken":
            self._defer(message)
        return claim in ("first", "again")

    def clear(self) -> None:
        """Forget what was handled: before messages are to come again on purpose, by a `seek`."""
        self._repeats.clear()

    # Turns

    async def _once(self, callback: AsyncCallback, message: Message) -> None:
        """Call back with a message unless it is a repeat."""
        claim = self._claim(message)
        if claim == "taken":
            claim = await self._turn(message)
        if claim in ("first", "again"):
            await callback(message)

    def _claim(self, message: Message) -> Claim:
        """Take the id of a message, or ack it as a repeat, or say that it is taken."""
        value = self._value(message)
        if not value or message.lease is None:
            return "first"  # what is settled already is none of our business
        if asyncio.get_running_loop() is not self._loop:
            self._belong_here()
        settler, now, repeats = message.settler, self._time(), self._repeats
        one = _id(settler, value)
        claim = repeats.claim(one, message, now=now)
        if claim == "first":
            settler.watch(message, functools.partial(self._settled, one, message))
            if repeats.forgotten and not self._warned:
                self._warn()
        elif claim == "repeat":
            self.dropped += 1
            message.ack()
        elif claim == "taken" and self._catch_up(one):
            return self._claim(message)
        return claim

    def _catch_up(self, one: str) -> bool:
        """Hear now what becomes of the one that has an id; returns whether it was settled."""
        holder = self._repeats.holder_of(one)
        if holder is not None:
            holder.settler.catch_up()
        return self._repeats.holder_of(one) is not holder

    def _settled(self, one: str, message: Message, acked: bool) -> None:  # noqa: FBT001 - it is told so
        """It is known what became of a message that was handled."""
        if acked:
            self.handled += 1
            self._repeats.done(one, message, now=self._time())
        else:
            self._repeats.release(one, message)
        if self._waiting:
            self._wake(one)

    async def _turn(self, message: Message) -> Claim:
        """Wait for what becomes of the one that is being handled; returns what this one is then."""
        one = _id(message.settler, self._value(message))
        try:
            async with asyncio.timeout(self._max_wait):
                while True:
                    await self._outcome(one)
                    if message.lease is None:
                        return "taken"  # it was given back meanwhile
                    if (claim := self._claim(message)) != "taken":
                        return claim
        except TimeoutError:
            self._defer(message)
            return "taken"

    async def _outcome(self, one: str) -> None:
        """Return when somebody is done with an id."""
        outcome = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(one, [])
        waiting.append(outcome)
        try:
            await outcome
        finally:
            waiting.remove(outcome)
            if not waiting and self._waiting.get(one) is waiting:
                del self._waiting[one]

    def _wake(self, one: str) -> None:
        for outcome in self._waiting.pop(one, ()):
            if not outcome.done():
                outcome.set_result(None)

    def _defer(self, message: Message) -> None:
        """Have a message come again later, unless it was given back meanwhile."""
        if message.lease is not None:
            self.deferred += 1
            message.nack(delay=self._away)

    # Parts

    def _value(self, message: Message) -> str:
        """The value that tells a message from others, empty if it has none."""
        if not self._others:
            return message.attribute(self._attribute)
        own = message.attributes
        if not own.get(self._attribute):
            return ""
        # As Python writes a list of strings: two lists are never written alike.
        return repr([own.get(name, "") for name in (self._attribute, *self._others)])

    def _belong_here(self) -> None:
        """Belong to the loop that runs, unless it is another's."""
        loop = asyncio.get_running_loop()
        if self._loop is not None:
            raise WrongLoopError(
                "this Deduplicator belongs to another event loop, the first that it was used in: "
                "make one in each loop"
            )
        self._loop = loop
        # The loop's own clock is the cheaper half of asking the loop.
        plain = type(loop).time is asyncio.BaseEventLoop.time
        self._time = time.monotonic if plain else loop.time

    def _warn(self) -> None:
        """Say once that ids are forgotten."""
        self._warned = True
        log.warning(
            "more than max_ids=%d ids within the window: the oldest are forgotten, so that repeats "
            "of them are handled too",
            self._max_ids,
        )


class _Around:
    """A scheduler that passes on to another what is no repeat."""

    def __init__(self, dedupe: Deduplicator, scheduler: Runner) -> None:
        self._dedupe = dedupe
        self._scheduler = scheduler

    async def run(self, callback: Callable[[Message], object], message: Message) -> None:
        """Run the callback with the message unless it is a repeat."""
        run = functools.partial(self._scheduler.run, callback)
        await self._dedupe._once(run, message)  # noqa: SLF001 - it is part of it

    def close(self) -> None:
        """No more callbacks come."""
        self._scheduler.close()


def _id(settler: Settler, value: str) -> str:
    """What repeats have in common: what one subscription has handled, others have not."""
    return f"{settler.subscription} {value}"


def _is_async(callback: object) -> bool:
    called = getattr(callback, "__call__", None)  # noqa: B004 - it is looked at
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called)

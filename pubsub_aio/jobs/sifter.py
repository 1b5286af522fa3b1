"""Looks through a subscription, message by message: takes some of them, and leaves the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from pubsub_aio._core.sieve import Ending, Sieve, Stays
from pubsub_aio._core.spacing import Spacing
from pubsub_aio.config import MAX_SECONDS, MIB, FlowControl, ShutdownPolicy
from pubsub_aio.errors import (
    ConfigError,
    InvalidRequestError,
    PermissionDeniedError,
    PubSubError,
)
from pubsub_aio.jobs.sifting import AT_ONCE, MAX_HELD_BYTES, Report, Sifting, matcher
from pubsub_aio.message import Message
from pubsub_aio.subscriber.client import SubscriberClient
from pubsub_aio.subscriber.inspection import look_through
from pubsub_aio.subscriber.subscription import Subscription
from pubsub_aio.subscriber.vitals import Event

log = logging.getLogger("pubsub_aio.jobs")

_SPARE_BYTES = 100 * MIB  # for what is under way, and for what goes with messages on the wire
_FINISH = 10.0  # seconds for what is under way when it ends

Act = Callable[[Message], Awaitable[bool]]
"""Does something with a message, and settles it; says whether it did, or its lease has ended."""


class Sifter:
    """Looks at each message of a subscription once. What stays is held, and given back at the end.

    Args:
        subscriber: Who receives.
        subscription: Its full name.
        sifting: What to look for.
        act: What is done with a message that is asked for; without one it is held, like those that
            stay.
        ordered: Whether the subscription has order.
        came_back: Whether a message is one that was taken here, and is here again: it stays.
        fans_out: For the report.
    """

    def __init__(
        self,
        subscriber: SubscriberClient,
        subscription: str,
        sifting: Sifting,
        *,
        act: Act | None,
        ordered: bool,
        came_back: Callable[[Message], bool] = lambda _: False,
        fans_out: tuple[str, ...] = (),
    ) -> None:
        self._subscriber = subscriber
        self._subscription = subscription
        self._sifting = sifting
        self._act = act
        self._on_progress = sifting.on_progress
        self._told: Report | None = None
        self._came_back = came_back
        self._fans_out = fans_out
        self._matches = matcher(sifting.where)
        self._spacing = Spacing(None if act is None else sifting.rate)
        self._loop = asyncio.get_running_loop()
        self._sieve = Sieve(sifting.bounds, ordered=ordered, now=self._loop.time())
        self._gate = asyncio.Lock()  # they are looked at one after another
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._changed = asyncio.Event()
        self._freed = asyncio.Event()  # something that was under way has ended
        self._over = asyncio.Event()
        self._ending: Ending | None = None
        self._first_error: Exception | None = None
        self._last_error: PubSubError | None = None

    async def run(self) -> Report:
        """Look at all messages, or as many as there may be.

        Raises:
            PubSubError: It cannot go on. What was not done is given back.
        """
        live = self._begin()
        try:
            await live.ready()
            self._sieve.wait_on(now=self._loop.time())
            await self._watch(live)
        finally:
            self._over.set()
            self._freed.set()  # who waits for his turn need not wait any more
            await _end(live)
            self._tell()  # of what was finished meanwhile
        live.result()
        if self._ending == "failures" and self._last_error is not None:
            raise self._last_error
        return self._report()

    def _begin(self) -> Subscription:
        flow = FlowControl(
            max_messages=self._sifting.max_held + AT_ONCE,
            max_bytes=MAX_HELD_BYTES + _SPARE_BYTES,
            resume_threshold=1.0,
            max_lease_duration=MAX_SECONDS,
        )
        live = look_through(
            self._subscriber,
            self._subscription,
            self._receive,
            flow_control=flow,
            shutdown=ShutdownPolicy(timeout=_FINISH),
            on_event=self._heard,
        )
        live.add_done_callback(lambda _: self._changed.set())
        return live

    def _heard(self, event: Event) -> None:
        if event.kind == "state":
            self._sieve.wait_on(now=self._loop.time())
            self._changed.set()

    async def _watch(self, live: Subscription) -> None:
        """Return when it is over."""
        while not live.done():
            now = self._loop.time()
            if live.state != "running":  # nothing can come
                self._sieve.wait_on(now=now)
            self._ending = self._sieve.ending(now=now)
            self._tell()
            if self._ending is not None:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._sieve.empty_at):
                    await self._changed.wait()

    def _tell(self) -> None:
        """Tell how it stands, if that has changed; whoever fails to listen is not told again."""
        report, listener = self._report(), self._on_progress
        if listener is not None and report != self._told:
            self._told, self._on_progress = report, None
            listener(report)
            self._on_progress = listener

    def _report(self) -> Report:
        counts = self._sieve.counts
        return Report(
            moved=counts["taken"],
            skipped=counts["skipped"],
            failed=counts["failed"],
            held_back=counts["held_back"],
            came_back=counts["came_back"],
            fans_out=self._fans_out,
            ended_by=self._ending,
            first_error=self._first_error,
            dry_run=self._act is None,
        )

    # A message

    async def _receive(self, message: Message) -> None:
        """Look at a message, and do with it what is to be done."""
        known = self._sieve.came(message.message_id, now=self._loop.time())
        if known == "done":
            message.ack()  # the first ack got lost
        if known != "new":
            return
        try:
            async with self._gate:
                wanted = await self._is_next(message)
            if wanted:  # no other comes between: those of a key go on in order
                await self._take(message)
        finally:
            self._sieve.went(message.message_id, now=self._loop.time())
            self._freed.set()
            self._changed.set()

    @property
    def _is_over(self) -> bool:
        """Whether nothing more is looked at; that may not have been noticed yet."""
        return self._over.is_set() or self._sieve.ending(now=self._loop.time()) is not None

    async def _is_next(self, message: Message) -> bool:
        """Whether a message is asked for; returns when it is its turn."""
        if self._is_over or self._stays_behind(message):
            return False
        if self._came_back(message):
            self._stays(message, "came_back")
            return False
        try:
            if not self._matches(message):
                self._stays(message, "skipped")
                return False
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            self._stays(message, "failed", error=error)
            return False
        while not self._sieve.take(message.message_id, size=message.size):
            self._freed.clear()
            await self._freed.wait()
            if self._over.is_set():
                return False
        at = self._spacing.take(now=self._loop.time())
        if at > self._loop.time():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(at):
                    await self._over.wait()
        if self._over.is_set():
            self._sieve.let_go(message.message_id)
            return False
        return True

    async def _take(self, message: Message) -> None:
        """Do with a message what is to be done, after the earlier ones of its ordering key."""
        async with self._lane(message.ordering_key):
            if message.lease is None:
                self._sieve.let_go(message.message_id)
            elif self._stays_behind(message):
                pass
            elif self._act is None:
                self._sieve.shown(message.message_id, size=message.size)
            else:
                await self._done(self._act, message)

    async def _done(self, act: Act, message: Message) -> None:
        try:
            is_done = await act(message)
        except (ConfigError, InvalidRequestError) as error:
            self._stays(message, "failed", error=error)
        except PubSubError as error:
            self._last_error = error
            self._sieve.failed()
            self._stays(message, "failed", error=error)
        else:
            if is_done:
                self._sieve.taken(message.message_id)
            else:
                self._sieve.let_go(message.message_id)

    def _lane(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Lets one message of an ordering key pass at a time."""
        if not key:
            return contextlib.nullcontext()
        return self._lanes.setdefault(key, asyncio.Lock())

    def _stays_behind(self, message: Message) -> bool:
        """Whether a message stays because an earlier one does."""
        if not self._sieve.holds_back(message.ordering_key):
            return False
        self._stays(message, "held_back")
        return True

    def _stays(self, message: Message, why: Stays, *, error: Exception | None = None) -> None:
        """Leave a message unsettled, so that it is held until the end."""
        if error is not None:
            self._first_error = self._first_error or error
            log.warning("%s: message %s stays: %s", self._subscription, message.message_id, error)
        key = message.ordering_key
        self._sieve.stays(message.message_id, why, size=message.size, ordering_key=key)


async def _end(live: Subscription) -> None:
    """Let what is under way finish, and give everything else back; who is cancelled hurries."""
    live.stop()
    try:
        await asyncio.wait([live])
    except asyncio.CancelledError:
        live.stop()
        await asyncio.wait([live])
        raise


async def has_order(subscriber: SubscriberClient, subscription: str) -> bool:
    """Whether a subscription has order; who may not look has to reckon with it.

    Raises:
        ConfigError: There is no such subscription.
    """
    try:
        found = await subscriber.find_subscription(subscription)
    except PermissionDeniedError:
        return True
    if found is None:
        raise missing(subscription)
    return found.enable_message_ordering


def missing(subscription: str) -> ConfigError:
    """What to say of a subscription that there is not."""
    return ConfigError(f"subscription: there is no {subscription}; check the project and the name")

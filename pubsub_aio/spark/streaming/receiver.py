"""Receives the messages of a subscription and hands them to whoever keeps them: then it acks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from pubsub_aio.config import CALL_TIMEOUT, MIB, FlowControl, ShutdownPolicy
from pubsub_aio.errors import AlreadyExistsError, ConfigError, NotFoundError
from pubsub_aio.spark.streaming.options import SourceOptions
from pubsub_aio.subscriber.client import SubscriberClient

if TYPE_CHECKING:
    from pubsub_aio.subscriber.arrow import ArrowBatch
    from pubsub_aio.subscriber.subscription import Subscription
    from pubsub_aio.subscriber.vitals import Event

SEGMENT_ROWS = 50_000
SEGMENT_BYTES = 32 * MIB
_LATENCY = 0.2  # seconds that a message waits for others of its segment
_WITH_FETCHERS = 1_000  # messages that the driver holds where tasks fetch
_SHUTDOWN = ShutdownPolicy(timeout=10.0)
_HOWEVER_LONG = 10 * 365 * 86_400.0
_LOOK_AGAIN = 0.05  # seconds
OWNER = "pubsub_aio_wal"
"""The label of a subscription that a query has created: the id of its log."""
_GONE = (
    "create the subscription again, and start the query again; what it has received is in its log"
)
_NEVER_WAS = "create it, or correct the name"


class Keeper(Protocol):
    """Keeps messages. It is called in threads, and may block."""

    def keep(self, batch: ArrowBatch) -> bool:
        """Have messages durable; returns False if they are to come again instead."""

    def rest(self) -> None:
        """Return when more may come."""

    def release(self) -> None:
        """From now on nothing is to block."""


class Owner(Keeper, Protocol):
    """A keeper that wants to know how its receiver fares."""

    def connection(self, *, works: bool) -> None:
        """The connection to the service is lost, or works again. It must not block."""


@contextlib.asynccontextmanager
async def receiving(
    client: SubscriberClient,
    options: SourceOptions,
    keeper: Keeper,
    failed: asyncio.Future[None],
    *,
    most: int,
    on_event: Callable[[Event], None] = lambda _: None,
    on_kept: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[Subscription]:
    """Receive for as long as this is entered. What cannot be kept fails the future.

    Args:
        client: Receives.
        options: Of the source.
        keeper: Keeps what comes.
        failed: Is told what cannot be kept.
        most: How many messages may be held at once.
        on_event: Is told when the state changes.
        on_kept: Is told how many messages were kept and acked.
    """

    async def keep(batch: ArrowBatch) -> None:
        try:
            kept = await asyncio.to_thread(keeper.keep, batch)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the panic of an extension is one
            if not failed.done():
                failed.set_exception(_as_exception(error))
            raise
        if kept:
            batch.ack()
            on_kept(len(batch))
            await asyncio.to_thread(keeper.rest)
        else:
            batch.nack()

    rows = min(SEGMENT_ROWS, most)
    live = client.subscribe_arrow(
        options.subscription,
        keep,
        max_messages=rows,
        max_bytes=min(SEGMENT_BYTES, options.max_outstanding_bytes),
        max_latency=_LATENCY,
        max_concurrent=1,
        flow_control=FlowControl(
            max_messages=max(1, most - rows),
            max_bytes=options.max_outstanding_bytes,
            resume_threshold=1.0,
            max_request_batch_size=rows,
            # Whoever waits for room must not give back: that counts as a failed delivery.
            max_lease_duration=_HOWEVER_LONG,
        ),
        shutdown=_SHUTDOWN,
        on_event=on_event,
    )
    try:
        await live.ready()
        yield live
    finally:
        keeper.release()


class Receiver:
    """Receives in a thread of its own until it is stopped.

    Args:
        options: Of the source.
        keeper: Keeps what comes.
        wal: The id of the log, by which a subscription is known that the query has created.
        seek: Whether the query is new, so that it begins where the options say.
    """

    def __init__(self, options: SourceOptions, keeper: Owner, *, wal: str, seek: bool) -> None:
        self._options = options
        self._keeper = keeper
        self._wal = wal
        self._seek = seek
        self._started = threading.Event()
        self._delete_then = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._live: Subscription | None = None
        self._kept = 0
        self._thread = threading.Thread(target=self._run, name="pubsub-aio receiver", daemon=True)
        self.error: Exception | None = None
        """Why it has ended by itself."""
        self.is_new = False
        """Whether the subscription was not there before."""
        self.is_own = False
        """Whether the query has created it, now or in an earlier run, and may delete it."""
        self.has_given_back = False
        """Whether it has ended, and nothing is leased any more that came and was not kept."""

    def start(self) -> None:
        """Begin; returns when messages can come.

        Raises:
            PubSubError: It cannot begin.
        """
        self._thread.start()
        self._started.wait()
        if self.error:
            raise self.error

    @property
    def may_be_ordered(self) -> bool:
        """Whether the subscription has message ordering, as far as is known."""
        return self._live is None or _ordered(self._live) is not False

    def all_kept(self) -> Future[bool]:
        """Ask the service for a sign of life, behind all that it has sent until now.

        Returns:
            Whether it came, and all that came before it was kept: not if the connection is lost.
        """
        known: Future[bool] = Future()
        asking = self._all_kept()
        try:
            if self._loop is None:
                raise RuntimeError
            known = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # it has ended
            asking.close()
            known.set_result(False)
        return known

    async def _all_kept(self) -> bool:
        live = self._live
        if live is None or not await live.everything_read():
            return False
        until = self._kept + _held(live)
        # Nobody tells when less is held.
        while live.state == "running" and self._kept < until and _held(live):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN)
        return live.state == "running" and self.error is None

    def stop(self, *, delete: bool = False) -> None:
        """End; what is held goes back.

        Args:
            delete: Whether the subscription is deleted then.

        Raises:
            PubSubError: It had ended by itself, or the subscription cannot be deleted.
            RuntimeError: It does not end.
        """
        self._delete_then = delete
        self._keeper.release()
        if self._loop:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stopped.set)
        within = _SHUTDOWN.timeout + _SHUTDOWN.flush_timeout + CALL_TIMEOUT * delete
        self._thread.join(within)
        if self._thread.is_alive():
            raise RuntimeError(
                f"the receiver has not ended within {within:g} s: end the process, and start the "
                "query again"
            )
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            asyncio.run(self._receive())
        except BaseException as error:  # noqa: BLE001 - it is raised by whoever asks next
            self.error = _as_exception(error)
        finally:
            self._started.set()
            self._keeper.release()

    async def _receive(self) -> None:
        options, loop = self._options, asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()
        failed.add_done_callback(self._note_failure)
        async with SubscriberClient(**options.connection.arguments()) as client:
            await self._prepare(client)
            most = _most_of_the_driver(options)
            async with receiving(
                client,
                options,
                self._keeper,
                failed,
                most=most,
                on_event=self._note,
                on_kept=self._note_kept,
            ) as live:
                _check_order(live, options)
                self._loop, self._live = loop, live
                self._started.set()
                waiting = asyncio.ensure_future(self._stopped.wait())
                ends: set[asyncio.Future[Any]] = {waiting, live, failed}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                for end in (failed, live):
                    if end.done():
                        with _missing(options.subscription, _GONE):
                            end.result()
        health = live.health()
        self.has_given_back = not (health.unsent or _held(live))
        if self._delete_then:
            await self._delete()

    def _note_failure(self, failed: asyncio.Future[None]) -> None:
        """Tell at once, and not when everything has ended."""
        if not failed.cancelled():
            self.error = self.error or _as_exception(failed.exception())

    def _note_kept(self, count: int) -> None:
        self._kept += count

    def _note(self, event: Event) -> None:
        if event.kind == "state" and event.state in ("running", "reconnecting"):
            self._keeper.connection(works=event.state == "running")

    async def _prepare(self, client: SubscriberClient) -> None:
        options = self._options
        if options.create:
            with _missing(f"topic {options.topic}", _NEVER_WAS):
                await self._create(client)
        if self._seek and options.start_at is not None:
            is_time = isinstance(options.start_at, datetime)
            what = options.subscription if is_time else f"startingSnapshot {options.start_at}"
            with _missing(what, _NEVER_WAS):
                await client.seek(options.subscription, options.start_at)

    async def _create(self, client: SubscriberClient) -> None:
        """Create the subscription unless it is there, labelled as the query's own."""
        from pubsub_aio.admin import AdminClient

        options, labels = self._options, {OWNER: self._wal}
        async with AdminClient(**options.connection.arguments()) as admin:
            try:
                await admin.create_subscription(options.subscription, options.topic, labels=labels)
                self.is_new = self.is_own = True
            except AlreadyExistsError:
                await client.create_subscription(options.subscription, options.topic)
                if options.delete_on_stop:
                    found = await admin.get_subscription(options.subscription)
                    self.is_own = found.labels.get(OWNER) == self._wal

    async def _delete(self) -> None:
        from pubsub_aio.admin import AdminClient

        async with AdminClient(**self._options.connection.arguments()) as admin:
            with contextlib.suppress(NotFoundError):  # it is gone, as it is to be
                await admin.delete_subscription(self._options.subscription)


@contextlib.contextmanager
def _missing(what: str, remedy: str) -> Iterator[None]:
    """Say what to do about something that the service does not have.

    Raises:
        ConfigError: It has not.
    """
    try:
        yield
    except NotFoundError as error:
        raise ConfigError(f"{what}: there is none (any more): {remedy} ({error})") from error


def _most_of_the_driver(options: SourceOptions) -> int:
    """How many messages the driver may hold: few where tasks fetch, which only need a batch."""
    if not options.fetch_partitions:
        return options.max_outstanding_messages
    return max(1, min(options.max_outstanding_messages, _WITH_FETCHERS, options.max_rows // 10))


def _check_order(live: Subscription, options: SourceOptions) -> None:
    if not options.fetch_partitions:
        return
    if (ordered := _ordered(live)) is not False:
        known = "has" if ordered else "may have"
        raise ConfigError(
            f"numFetchPartitions must be 0, for {options.subscription} {known} message ordering, "
            "and messages that several tasks fetch have no order"
        )


def _held(live: Subscription) -> int:
    """How many messages have come and are not settled."""
    health = live.health()
    return health.leased + health.received


def _as_exception(error: BaseException | None) -> Exception:
    """Something that Spark can tell: it knows of exceptions alone."""
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"the receiver has ended: {error!r}")


def _ordered(live: Subscription) -> bool | None:
    """Whether the subscription has message ordering; None if the service does not tell."""
    setting = live.settings.get("enable_message_ordering")
    return None if setting is None else bool(setting.value)

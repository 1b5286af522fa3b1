"""Receives the messages of a subscription and hands them to whoever keeps them: then it acks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
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
) -> AsyncIterator[Subscription]:
    """Receive for as long as this is entered. What cannot be kept fails the future.

    Args:
        client: Receives.
        options: Of the source.
        keeper: Keeps what comes.
        failed: Is told what cannot be kept.
        most: How many messages may be held at once.
        on_event: Is told when the state changes.
    """

    async def keep(batch: ArrowBatch) -> None:
        try:
            kept = await asyncio.to_thread(keeper.keep, batch)
        except Exception as error:
            if not failed.done():
                failed.set_exception(error)
            raise
        if kept:
            batch.ack()
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
        seek: Whether the query is new, so that it begins where the options say.
    """

    def __init__(self, options: SourceOptions, keeper: Owner, *, seek: bool) -> None:
        self._options = options
        self._keeper = keeper
        self._seek = seek
        self._started = threading.Event()
        self._delete_then = False
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="pubsub-aio receiver", daemon=True)
        self.error: Exception | None = None
        """Why it has ended by itself."""
        self.has_created = False
        """Whether the subscription was not there before."""
        self.may_be_ordered = True
        """Whether the subscription has message ordering, as far as is known."""

    def start(self) -> None:
        """Begin; returns when messages can come.

        Raises:
            PubSubError: It cannot begin.
        """
        self._thread.start()
        self._started.wait()
        if self.error:
            raise self.error

    def stop(self, *, delete: bool = False) -> None:
        """End; what is held goes back.

        Args:
            delete: Whether the subscription is deleted then.

        Raises:
            PubSubError: It had ended by itself, or the subscription cannot be deleted.
        """
        self._delete_then = delete
        self._keeper.release()
        self._stop()
        self._thread.join(_SHUTDOWN.timeout + _SHUTDOWN.flush_timeout + CALL_TIMEOUT * delete)
        if delete and self.error:
            raise self.error

    def _run(self) -> None:
        try:
            asyncio.run(self._receive())
        except Exception as error:  # noqa: BLE001 - it is raised by whoever asks next
            self.error = error
        except BaseException as error:  # noqa: BLE001 - as well, and Spark only knows of the others
            self.error = RuntimeError(f"the receiver has ended: {error!r}")
        finally:
            self._started.set()
            self._keeper.release()

    async def _receive(self) -> None:
        options, loop = self._options, asyncio.get_running_loop()
        stopped, failed = asyncio.Event(), loop.create_future()

        def stop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stopped.set)

        async with SubscriberClient(**options.connection.arguments()) as client:
            await self._prepare(client)
            most = _most_of_the_driver(options)
            async with receiving(
                client, options, self._keeper, failed, most=most, on_event=self._note
            ) as live:
                _check_order(live, options)
                self.may_be_ordered = _ordered(live) is not False
                self._stop = stop
                self._started.set()
                waiting = asyncio.ensure_future(stopped.wait())
                ends: set[asyncio.Future[Any]] = {waiting, live, failed}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                for end in (failed, live):
                    if end.done():
                        with _missing(options.subscription, _GONE):
                            end.result()
        if self._delete_then:
            await self._delete()

    def _note(self, event: Event) -> None:
        if event.kind == "state" and event.state in ("running", "reconnecting"):
            self._keeper.connection(works=event.state == "running")

    async def _prepare(self, client: SubscriberClient) -> None:
        options = self._options
        if options.create:
            with _missing(f"topic {options.topic}", _NEVER_WAS):
                self.has_created = await self._create()
                await client.create_subscription(options.subscription, options.topic)
        if self._seek and options.start_at is not None:
            is_time = isinstance(options.start_at, datetime)
            what = options.subscription if is_time else f"startingSnapshot {options.start_at}"
            with _missing(what, _NEVER_WAS):
                await client.seek(options.subscription, options.start_at)

    async def _create(self) -> bool:
        """Returns whether it was not there."""
        from pubsub_aio.admin import AdminClient

        options = self._options
        async with AdminClient(**options.connection.arguments()) as admin:
            try:
                await admin.create_subscription(options.subscription, options.topic)
            except AlreadyExistsError:
                return False
        return True

    async def _delete(self) -> None:
        from pubsub_aio.admin import AdminClient

        async with AdminClient(**self._options.connection.arguments()) as admin:
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


def _ordered(live: Subscription) -> bool | None:
    """Whether the subscription has message ordering; None if the service does not tell."""
    setting = live.settings.get("enable_message_ordering")
    return None if setting is None else bool(setting.value)

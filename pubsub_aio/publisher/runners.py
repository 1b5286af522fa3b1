"""The two loops of a publisher: one lets messages depart, the other sees to it that they land."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from pubsub_aio._core.flights import FlightTable
from pubsub_aio._core.outgoing import Batch, Lane
from pubsub_aio.config import FLIGHT_ID, PUBLISHER_ID
from pubsub_aio.errors import (
    ConfigError,
    DrainTimeoutError,
    PublisherStoppedError,
    PublishTimeoutError,
    PubSubError,
)
from pubsub_aio.publisher.fates import Fates
from pubsub_aio.publisher.flight import Flight, Terms
from pubsub_aio.publisher.listening import Listening
from pubsub_aio.publisher.look_ups import LookUps
from pubsub_aio.publisher.options import Options
from pubsub_aio.publisher.queue import Queue, apart
from pubsub_aio.publisher.raising import bare
from pubsub_aio.publisher.sending import Landing, Sending
from pubsub_aio.publisher.sites import Sites
from pubsub_aio.publisher.startup import Startup
from pubsub_aio.publisher.topics import Topics
from pubsub_aio.publisher.traces import ADDED, make_traces

log = logging.getLogger("pubsub_aio.publisher")

PUBLISHER, FLIGHTS = "run_publisher", "run_flights"

_LAST_WORDS = 1.0  # seconds for an async listener to hear how it ended
_PATIENCE = 5.0  # seconds before it is said that nobody runs a loop
_TURNS = 5  # of the event loop, in which what has come is heard of
_MIN_EVENTS = 1_000  # that an async listener may be behind, however little may be in flight


class Runners:
    """Everything between `publish` and the fate of a flight.

    Args:
        options: How it is to be.
        sites: Where messages go to.
        topics: Full names of topics that are checked before it begins.
    """

    def __init__(self, options: Options, sites: Sites, *, topics: list[str]) -> None:
        self._options = options
        self.sites = sites
        self.topics = Topics(sites)
        self.listening = Listening(
            options.listener, max_waiting=max(_MIN_EVENTS, 2 * options.max_in_flight)
        )
        self.listening.on_room = self.wake
        self.traces = make_traces(options.tracing)
        adds = [FLIGHT_ID, PUBLISHER_ID] if options.send_flight_id else []
        adds += ADDED if self.traces is not None else ()
        self.queue = Queue(options.batching, options.queue, id_prefix=options.id_prefix, adds=adds)
        self.flights: FlightTable[Batch[Flight]] = FlightTable(
            max_in_flight=options.max_in_flight,
            refill_allowed_at=options.refill_allowed_at,
            max_bytes=options.max_in_flight_bytes,
        )
        self._departures = self.queue.departures
        self._fates = Fates(
            self.queue, self.listening, resume_after=options.resume_after, traces=self.traces
        )
        self.queue.on_withdrawn = self._fates.drop
        self._sending = Sending(
            sites,
            compress_above=options.compress_above,
            parted=self._parted,
            landed=self._answered,
            sent=self._sent,
            traces=self.traces,
        )
        self.look_ups = LookUps(self.topics, self._departures, refused=self._refuse, news=self.wake)
        self._sends: dict[Batch[Flight], asyncio.Task[None]] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._answers: deque[Callable[[], None]] = deque()
        self._running: set[str] = set()
        self.will_run = False
        """Whether somebody sees to it that both loops run."""
        self.startup = Startup(self.topics, topics, timeout=options.startup_timeout)
        self.draining = False
        self.stopped = False
        self._news = {PUBLISHER: asyncio.Event(), FLIGHTS: asyncio.Event()}
        self._ended = asyncio.Event()
        self._hint: asyncio.TimerHandle | None = None
        self.take_in: Callable[[], None] = lambda: None
        """Called when nobody may add to a batch without asking any more."""

    def wake(self) -> None:
        """Have both loops look for what there is to do."""
        for news in self._news.values():
            news.set()

    def wake_publisher(self) -> None:
        """Have the one loop look that lets messages depart."""
        self._news[PUBLISHER].set()

    # Before

    def expect(self) -> None:
        """Somebody publishes: if nobody runs the loops before long, say so once."""
        if self._hint is None and len(self._running) < len(self._news):
            self._hint = asyncio.get_running_loop().call_later(_PATIENCE, self._say_who_is_missing)

    def _say_who_is_missing(self) -> None:
        missing = [f"{name}()" for name in self._news if name not in self._running]
        waiting = self._departures.count + self.flights.in_flight
        if not waiting:
            self._hint = None
        elif missing and not self.will_run:
            log.warning(
                "%d message(s) wait, and nobody runs %s: start() the publisher, use it in "
                "`async with`, or run both runners in tasks",
                waiting,
                " nor ".join(missing),
            )

    # The loops

    @contextlib.contextmanager
    def _as(self, runner: str) -> Iterator[None]:
        """Be one of the loops; however it ends, no future is left pending by that."""
        if runner in self._running:
            raise ConfigError(f"{runner}: it runs already, by start() or in another task")
        self._running.add(runner)
        self._ended.clear()
        try:
            yield
        finally:
            self._running.discard(runner)
            if not self._is_drained:
                self.shut()
            if not self._running:
                self._ended.set()

    @property
    def running(self) -> bool:
        """Whether a loop runs."""
        return bool(self._running)

    @property
    def _is_drained(self) -> bool:
        waiting = self._departures.count or self.queue.hopeful
        done = not waiting and not self.flights.in_flight
        return self.draining and done and self.listening.is_idle

    async def publish(self) -> None:
        """Let messages depart, until drained or stopped."""
        if self.stopped:
            return
        with self._as(PUBLISHER):
            await self.startup.run()
            async with asyncio.TaskGroup() as tasks:
                self._begin(tasks, self.sites.probe(self._options.probe_interval))
                if self._options.refresh_interval is not None:
                    self._begin(tasks, self.topics.refresh(self._options.refresh_interval))
                while not self.stopped and not self._is_drained:
                    await self._let_depart(tasks)
                for task in (*self._beside, *self._sends.values()):
                    task.cancel()
        await self._left()

    def _begin(self, tasks: asyncio.TaskGroup, work: Coroutine[object, None, None]) -> None:
        """Have something done beside the sending, until the end."""
        task = tasks.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _let_depart(self, tasks: asyncio.TaskGroup) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        self._news[PUBLISHER].clear()
        for look_up in self.look_ups.due():
            self._begin(tasks, look_up)
        next_at = self._departures.poll(now=loop.time())
        pause = options.poll_time
        while not self.stopped:
            if self.flights.holding or self.listening.is_behind:
                pause = options.hold_pause_time
                break
            batch = self._departures.take(self.flights.room)
            if batch is None:
                break
            self.take_in()
            self._depart(batch, tasks)
        await self._wait(PUBLISHER, min(next_at, loop.time() + pause))

    def _depart(self, batch: Batch[Flight], tasks: asyncio.TaskGroup) -> None:
        loop, terms = asyncio.get_running_loop(), batch.options
        assert isinstance(terms, Terms)  # noqa: S101 - tells the type checker
        batch.published_at = now = loop.time()
        batch.publish_time = datetime.now(UTC)
        batch.ends_at = math.inf if terms.timeout is None else now + terms.timeout
        self.flights.depart(batch, len(batch), ends_at=batch.ends_at, size=batch.size)
        task = tasks.create_task(self._sending.send(batch))
        self._sends[batch] = task
        task.add_done_callback(lambda _: self._sends.pop(batch, None))
        # In the next turn of the loop the task begins, then the listener hears of it, then others.
        if self.listening:
            loop.call_soon(self._fates.published, batch)
        self.queue.left(batch)
        if batch.ends_at < now + self._options.poll_time:
            self._news[FLIGHTS].set()

    def _refuse(self, topic: str, error: BaseException) -> None:
        """Nothing can be published to a topic."""
        self.take_in()
        now = asyncio.get_running_loop().time()
        for batches in self._departures.refuse(topic):
            self._fates.fail([(batch, error) for batch in batches], now=now)

    async def land(self) -> None:
        """See to it that what has departed lands, until drained or stopped."""
        if self.stopped:
            return
        with self._as(FLIGHTS):
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(self.listening.run())
                while not self.stopped and not self._is_drained:
                    await self._let_land()
                await self.listening.finish(_LAST_WORDS)
                telling.cancel()
        await self._left()

    async def _left(self) -> None:
        """A loop has ended; the last one closes the door."""
        self.wake()
        if not self._running:
            await self.sites.close()

    async def _let_land(self) -> None:
        loop = asyncio.get_running_loop()
        self._news[FLIGHTS].clear()
        overdue = self.flights.overdue(now=loop.time())
        if overdue:
            # If the loop was blocked, the answers may be there already.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        if self._answers or overdue:
            self._news[PUBLISHER].set()
        while self._answers:
            self._answers.popleft()()
        self._time_out(overdue)
        next_resume = self._fates.resume_due(now=loop.time())
        if not self._is_drained:
            until = min(self.flights.next_end, next_resume, loop.time() + self._options.poll_time)
            await self._wait(FLIGHTS, until)

    async def _wait(self, runner: str, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._news[runner].wait()

    # What becomes of batches

    def _answered(self, landings: Sequence[Landing]) -> None:
        """A batch was answered, or a part of one, and others have the same fate."""
        self._answers.append(functools.partial(self._land, landings))
        self._news[FLIGHTS].set()

    def _sent(self, lane: Lane[Flight]) -> None:
        """All that was sent together of an ordering key was answered."""
        self._answers.append(functools.partial(self._departures.landed, lane))
        self._news[FLIGHTS].set()

    def _parted(self, first: Batch[Flight], rest: Batch[Flight]) -> None:
        """A batch was parted in two, which are both on their way."""
        self.flights.part(rest, first, len(first), ends_at=first.ends_at, size=first.size)

    def _land(self, landings: Sequence[Landing]) -> None:
        """Batches of a lane were answered; what has timed out before hears no more of it."""
        failures = []
        for batch, fate in landings:
            if not self.flights.land(batch):
                continue
            if isinstance(fate, BaseException):
                failures.append((batch, fate))
            else:
                self._fates.acked(batch, fate)
        if failures:
            self._fates.fail(failures, now=asyncio.get_running_loop().time())

    def _time_out(self, overdue: list[Batch[Flight]]) -> None:
        now = asyncio.get_running_loop().time()
        lanes: dict[Lane[Flight], list[tuple[Batch[Flight], BaseException]]] = {}
        for batch in sorted(overdue, key=lambda batch: batch.offset):
            if self.flights.land(batch):  # otherwise it was answered at the last moment
                lanes.setdefault(batch.lane, []).append((batch, _too_late(batch)))
        for lane, failures in lanes.items():
            self._fates.fail(failures, now=now)
            # That of an ordering key goes on: until it ends, nothing of it may be sent after it.
            for batch, _ in failures if not lane.ordering_key else ():
                if (send := self._sends.get(batch)) is not None:
                    send.cancel()

    def reject(
        self,
        lane: Lane[Flight],
        terms: Terms,
        flights: Iterable[tuple[Flight, bytes]],
        error: PubSubError,
    ) -> None:
        """Some flights, each with its bytes, are not taken any more."""
        self._fates.drop(apart(lane, terms, flights), bare(error))

    # After

    async def drain(self, timeout: float | None) -> None:
        """Take no more, and return when everything has landed.

        Raises:
            DrainTimeoutError: It takes longer than that.
            ConfigError: Nobody runs the loops, or a listener would wait for itself.
        """
        if self.listening.is_telling_here:
            raise ConfigError(
                "drain: a listener would wait for itself, let a task of its own drain the publisher"
            )
        if not self._running and not self.will_run:
            await asyncio.sleep(0)  # loops that were begun just now run then
        nobody = not self._running and not self.will_run
        if nobody and not self.stopped and not self._is_drained:
            raise ConfigError("drain: nobody runs the publisher, start() it first")
        self.draining = True
        self.take_in()
        self._departures.flush()
        self.wake()
        try:
            async with asyncio.timeout(timeout):
                while not self.stopped and not (self._is_drained and not self._running):
                    await self._ended.wait()
        except TimeoutError:
            if self._is_drained:  # but for the end of the loops, which comes by itself
                return
            raise DrainTimeoutError(
                timeout or 0.0,
                queued=self._departures.count,
                in_flight=self.flights.in_flight,
                untold=self.listening.untold,
            ) from None

    def shut(self) -> None:
        """Stop at once: every future is done after this."""
        if self.stopped:
            return
        self.stopped = True
        self.take_in()
        while self._answers:  # what was answered in the last moment
            self._answers.popleft()()
        for batch in self._departures.take_all():
            self._fates.drop(batch, PublisherStoppedError(sent=False))
        for batch in self.flights.all():
            self.flights.land(batch)
            self._fates.drop(batch, PublisherStoppedError(sent=True))
        for send in self._sends.values():
            send.cancel()
        self.startup.give_up()
        if self._hint is not None:
            self._hint.cancel()
        self.queue.close()
        if not self._running:
            self._ended.set()
        self.wake()

    async def stop(self) -> None:
        """Stop, and return when nothing of it runs any more; a listener does not wait for that."""
        self.shut()
        if self.listening.is_telling_here:
            return
        if self._running:
            await self._ended.wait()
        await self.startup.ended()
        self.listening.forget()
        await self.sites.close()


def _too_late(batch: Batch[Flight]) -> PublishTimeoutError:
    seconds = batch.ends_at - (batch.published_at or 0.0)
    error = PublishTimeoutError(batch.lane.topic, seconds=seconds, attempts=batch.attempts)
    error.__cause__ = batch.trouble
    return error

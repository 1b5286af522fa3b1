"""The driver's side of the source: a receiver that fills the log, and batches made of it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import ConfigError, WalError
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.collection import Collection
from pubsub_aio.spark.streaming.manifests import Manifest, Waiting
from pubsub_aio.spark.streaming.marks import BEGUN, SOUGHT, Runs
from pubsub_aio.spark.streaming.options import SourceOptions
from pubsub_aio.spark.streaming.pieces import Piece
from pubsub_aio.spark.streaming.receiver import SEGMENT_BYTES, SEGMENT_ROWS, Receiver
from pubsub_aio.spark.streaming.segment_writer import SegmentWriter
from pubsub_aio.spark.streaming.silence import Silence
from pubsub_aio.spark.streaming.stores import store_at, writing
from pubsub_aio.spark.streaming.wal import Wal
from pubsub_aio.subscriber.client import SubscriberClient

if TYPE_CHECKING:
    from pubsub_aio.subscriber.arrow import ArrowBatch

logger = logging.getLogger("pubsub_aio.spark")

_BATCHES_AHEAD = 4
"""How many batches' worth may wait in the log."""
_LOOK_EVERY = 10.0
"""Seconds between two looks for segments that others wrote, where there are no fetch partitions."""
_LOOK_AGAIN = 1.0
"""The same where there are, and while the query waits for the last messages."""
_SOON = 0.02
_RESTS = ((1_000, 10.0), (100, 1.0))
"""How long segments are gathered while so many wait, in seconds: nobody is in a hurry then."""
_MOST_TRIES = 10
"""Collections that may fail one after another, until the query does."""


class Intake:
    """A log and what fills it, in the one process that speaks for a query.

    Args:
        options: Of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        client = SubscriberClient(**options.connection.arguments())
        self._subscription = client.subscription_name(options.subscription)
        self.wal = Wal(
            store_at(options.wal_location),
            window=options.dedupe_window,
            max_ids=options.dedupe_max_ids,
            fail_on_loss=options.fail_on_data_loss,
            in_order=not options.fetch_partitions,
        )
        self._limit = Limit(rows=options.max_rows, size=options.max_bytes)
        self._changed = threading.Condition()  # guards the log, too
        self._receiver: Receiver | None = None
        self._writer: SegmentWriter | None = None
        self._released = False
        self._everything = False  # whether the next batch has all there is
        self._waits_for_room = False
        self._fetched = False  # whether tasks of the last batch did
        self._owner: str | None = None  # the query that has begun with the log
        self._first_at: float | None = None  # when the oldest that waits came
        self._silence: Silence | None = None  # with AvailableNow
        self._runs = Runs(self.wal.marks, uuid.uuid4().hex)
        self._deletes = False
        self._looked_at = 0.0
        self._chores = ThreadPoolExecutor(1, "pubsub-aio chores")
        self._tries = 0  # of collections, since the last that succeeded
        self._error: Exception | None = None  # of the last one, if none succeeds

    # The beginning and the end

    def open(self) -> None:
        """Read the log, without receiving anything."""
        self.wal.open(self._subscription)
        self._owner = self.wal.marks.who(BEGUN)

    def start(self, *, ends: bool) -> None:
        """Begin to receive, unless it has begun.

        Args:
            ends: Whether the query ends by itself, so that `finish` will be called.
        """
        if self._receiver:
            return
        store, options = self.wal.store, self._options
        if options.delete_on_stop and not ends:
            raise ConfigError(
                "deleteSubscriptionOnStreamStop goes with the trigger availableNow (and on PySpark "
                "before 4.2 with availableNowIdle): Spark does not tell when others stop; delete "
                "the subscription after query.awaitTermination()"
            )
        is_new = not self.wal.seq and not self.wal.segments() and not self.wal.marks.who(SOUGHT)
        self._writer = SegmentWriter(store, self.wal.id, options.dedupe_attribute)
        held_by_others = self._runs.begin()
        self._receiver = Receiver(options, self, wal=self.wal.id, seek=is_new)
        self._receiver.start()
        self._looked_at = time.monotonic()
        if options.start_at is not None:
            self.wal.marks.put(SOUGHT, self.wal.id)
        if self._silence:
            self._silence.begin(now=time.monotonic())
        if not options.delete_on_stop:
            return
        self._deletes = self._receiver.is_own
        if not self._deletes:
            logger.warning(
                "deleteSubscriptionOnStreamStop: %s was there before the query, and stays",
                self._subscription,
            )
        elif self._silence:
            self._silence.is_final(
                held_by_others=(held_by_others and not self._receiver.is_new)
                or options.fetch_partitions > 0,
                grace=options.fetch_period,
            )

    @property
    def is_receiving(self) -> bool:
        """Whether it has begun to, and has not finished."""
        return self._receiver is not None

    def finish(self) -> None:
        """All has come: give back what came too late, and delete the subscription if asked to.

        Raises:
            PubSubError: Not all could be kept, or it cannot be deleted.
        """
        if (receiver := self._receiver) is None:
            return
        receiver.stop(delete=self._deletes)
        self._receiver, self._released = None, False
        if self._deletes:
            self._runs.forget()
        elif receiver.has_given_back:
            self._runs.end()

    def stop(self) -> None:
        """Receive no more."""
        if self._receiver:
            try:
                self._receiver.stop()
            except Exception as error:  # noqa: BLE001 - Spark wants to end, whatever it is
                logger.warning("%s", error)
        self._chores.shutdown()

    # Arrival, in threads of the receiver

    def keep(self, batch: ArrowBatch) -> bool:
        """Have messages durable when there is room; returns False if it ends before."""
        with self._changed:
            self._wait_for_room()
            if self._released or self._writer is None:
                return False
            after = self.wal.newest
        if self._is_ordered:  # what another driver has kept of a key comes before it
            after = max(after, self.wal.newest_of_all)
        segment = self._writer.write(batch, after=after)
        with self._changed:
            self.wal.arrived(segment)
            if self._silence:
                self._silence.came(segment.oldest, now=time.monotonic())
            self._changed.notify_all()
        return True

    def _wait_for_room(self) -> None:
        if self._released or self._has_room():
            return
        self._waits_for_room = True
        if self._silence:
            self._silence.pause(now=time.monotonic())
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._released or self._has_room())
        self._waits_for_room = False
        if self._silence:
            self._silence.resume(now=time.monotonic())

    @property
    def _is_ordered(self) -> bool:
        """Whether the order of messages matters, as far as is known."""
        return self._receiver is not None and self._receiver.may_be_ordered

    def rest(self) -> None:
        """Gather for longer while many segments wait, and nobody waits for the last message."""
        with self._changed:
            if self._silence:
                return
            before = self.wal.waiting.segments
            seconds = next((seconds for many, seconds in _RESTS if before >= many), 0.0)
            self._changed.wait_for(
                lambda: self._released or self.wal.waiting.segments < before, seconds
            )

    def connection(self, *, works: bool) -> None:
        """The connection to the service is lost, or works again. It never blocks."""
        if self._silence:
            self._silence.connection(works=works, now=time.monotonic())

    def release(self) -> None:
        """Nobody waits for room any more."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        if self._everything:
            return True
        waiting, options = self.wal.waiting, self._options
        rows, size = max(options.max_rows, SEGMENT_ROWS), max(options.max_bytes, SEGMENT_BYTES)
        return waiting.rows < _BATCHES_AHEAD * rows and waiting.size < _BATCHES_AHEAD * size

    def rows_of_fetchers(self) -> int:
        """How many rows each of the tasks may keep that fetch; 0 if none is to."""
        fetchers = self._options.fetch_partitions
        with self._changed:
            if not fetchers or not self.is_receiving or not self._has_room():
                return 0
            room = _BATCHES_AHEAD * self._options.max_rows - self.wal.waiting.rows
            self._fetched = True
            return max(0, room) // fetchers

    # Batches

    def latest(self, after: int, *, everything: bool, patient: bool) -> Manifest | None:
        """The batch after that one; none if there is none yet.

        Args:
            after: The number of a batch.
            everything: Whether it has all that there is, without limits.
            patient: Whether to wait for messages until none comes any more.
        """
        with self._changed:
            self._look(_LOOK_EVERY)
            if after >= self.wal.seq:
                self._everything = everything
                self._changed.notify_all()  # there may be room now
                try:
                    ready = self._settled() if patient else self._enough()
                finally:
                    self._everything = False
                if not ready:
                    return None
            limit = Limit() if everything else self._limit
            return self._seal(after, limit)

    def left(self, after: int, *, everything: bool) -> Manifest | None:
        """The batch after that one when nothing is received any more; none if the log has no more.

        What was published later, and came before the end, is not to stay in the log.
        """
        with self._changed:
            return self._seal(after, Limit() if everything else self._limit)

    def _seal(self, after: int, limit: Limit) -> Manifest | None:
        if self._is_ordered and after == self.wal.seq:
            self.wal.look()  # another driver may have kept what comes before it
        manifest = self.wal.seal(after, limit, now=time.time())
        self._changed.notify_all()  # there is room
        return manifest

    def _look(self, every: float) -> None:
        """See whether others have kept something, and whether something has failed."""
        if self._error:
            raise self._error
        if self._receiver and self._receiver.error:
            raise self._receiver.error
        now = time.monotonic()
        if self._options.fetch_partitions:
            every = min(every, _LOOK_AGAIN)
        if now >= self._looked_at + every:
            self._looked_at = now
            self.wal.look()

    def _settled(self) -> bool:
        """Wait for messages of before; returns whether there is to be a batch."""
        silence, asked = self._silence, None
        if silence is None:
            raise RuntimeError("nobody has told when before is")
        if self._fetched:  # what a task has kept, or held when it died, was no silence
            self._fetched = False
            silence.begin(now=time.monotonic())
        while True:
            if not self._everything and self.wal.oldest <= silence.until:
                return True
            if self._waits_for_room and not self._has_room():
                return True  # what was published before may be behind what has come
            if (left := silence.left(now=time.monotonic())) > 0:
                asked = None
            elif asked is None:
                self._look(0.0)
                asked = self._all_kept()
            elif asked.done() and not asked.cancelled() and asked.result():
                return self.wal.oldest <= silence.until
            elif asked.done():
                silence.begin(now=time.monotonic())
            self._changed.wait(min(max(left, _SOON), _LOOK_AGAIN))
            self._look(_LOOK_AGAIN)

    def _all_kept(self) -> Future[bool]:
        """Find out whether all that the service has sent until now is kept, while others go on."""
        if self._receiver:
            return self._receiver.all_kept()
        known: Future[bool] = Future()
        known.set_result(True)
        return known

    def _enough(self) -> bool:
        """Whether there is as much as a batch is to have, or it has waited long enough."""
        waiting, now = self.wal.waiting, time.monotonic()
        if not waiting.rows:
            self._first_at = None
            return False
        if self._first_at is None:
            self._first_at = now
        options = self._options
        is_much = waiting.rows >= options.min_rows or waiting.size >= options.max_bytes
        if not is_much and now < self._first_at + options.max_delay:
            return False
        self._first_at = None
        return True

    def begin_available_now(self) -> None:
        """From now on only what was published before is waited for."""
        idle = self._options.available_now_idle
        with self._changed:
            self._silence = Silence(idle, until=time.time(), now=time.monotonic())

    def begin(self, query: str) -> None:
        """Spark has noted a batch: from now on the log is that of this query.

        Raises:
            WalError: Another has begun with it.
        """
        if self._owner is None:
            self._owner = self.wal.marks.put(BEGUN, query)
        self.check_owner(query)

    def check_owner(self, query: str) -> None:
        """Refuse a log with which another query has begun."""
        if self._owner not in (None, query):
            raise WalError(
                f"walLocation: {self.wal.store.location} belongs to another query, which has come "
                f"to batch {self.wal.seq}: go on with the checkpoint of that query, or give this "
                "one a walLocation of its own. A query without a checkpointLocation is another "
                "one each time, and so is each load() of one query, and each side of a join. If "
                "that query is gone, delete marks/begun in the walLocation: then a new one has "
                "all that it was not done with"
            )

    def pieces(self, after: int, until: int) -> list[Piece]:
        """What there is to read. The next batch is sealed meanwhile, if it will be a full one."""
        with self._changed:
            found = [*self.wal.pieces(after, until)]
            waiting, options = self.wal.waiting, self._options
            is_full = waiting.rows >= options.max_rows or waiting.size >= options.max_bytes
            # With AvailableNow there is no next batch if all that waits was published since.
            if is_full and (not self._silence or self.wal.oldest <= self._silence.until):
                self._do(self._seal_ahead, until)
        return found

    def _seal_ahead(self, after: int) -> None:
        with self._changed:
            if after == self.wal.seq:
                self._seal(after, self._limit)

    def commit(self, seq: int) -> None:
        """Batches up to that one are done with; what they need no more is deleted, meanwhile."""
        with self._changed:
            collection = self.wal.commit(seq)
        if collection:
            self._do(self._collect, collection)

    def _collect(self, collection: Collection) -> None:
        try:
            with writing(self.wal.store):
                collection.perform(self.wal.store)
        except Exception as error:
            with self._changed:
                self._tries += 1
                self.wal.not_collected()
            if self._tries >= _MOST_TRIES:
                self._error = error
            raise
        with self._changed:
            self._tries = 0
            self.wal.collected(collection)

    def _do(self, chore: Callable[[Any], None], what: object) -> None:
        """Have something done while Spark is busy. What fails of it is done again later."""
        self._chores.submit(self._tried, chore, what)

    def _tried(self, chore: Callable[[Any], None], what: object) -> None:
        try:
            chore(what)
        except WalError as error:
            logger.warning("%s", error)
        except Exception:
            logger.exception("walLocation: %s could not be seen to", self.wal.store.location)

    @property
    def waiting(self) -> Waiting:
        """What is durable and in no batch yet."""
        with self._changed:
            return self.wal.waiting

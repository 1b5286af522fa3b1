"""The driver's side of the source: a receiver that fills the log, and batches made of it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import ConfigError, WalError
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.collection import Collection
from pubsub_aio.spark.streaming.manifests import Manifest, Waiting
from pubsub_aio.spark.streaming.marks import BEGUN, CREATED, RECEIVES, SOUGHT
from pubsub_aio.spark.streaming.options import SourceOptions
from pubsub_aio.spark.streaming.pieces import Piece
from pubsub_aio.spark.streaming.receiver import SEGMENT_BYTES, SEGMENT_ROWS, Receiver
from pubsub_aio.spark.streaming.segment_writer import SegmentWriter
from pubsub_aio.spark.streaming.segments import oldest_of
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
        self._keeping = False
        self._held_since = math.inf  # when the oldest was published that waits for room
        self._owner: str | None = None  # the query that has begun with the log
        self._first_at: float | None = None  # when the oldest that waits came
        self._silence: Silence | None = None  # with AvailableNow
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
        names = self.wal.segments()
        is_new = not self.wal.seq and not names and not self.wal.marks.who(SOUGHT)
        self._writer = SegmentWriter(
            store, self.wal.id, options.dedupe_attribute, after=names[-1] if names else ""
        )
        was_killed = self.wal.marks.who(RECEIVES) is not None
        self.wal.marks.put(RECEIVES, self.wal.id)
        self._receiver = Receiver(options, self, seek=is_new)
        self._receiver.start()
        self._looked_at = time.monotonic()
        if options.start_at is not None:
            self.wal.marks.put(SOUGHT, self.wal.id)
        if self._receiver.has_created:
            self.wal.marks.put(CREATED, self.wal.id)
        if self._silence:
            self._silence.begin(now=time.monotonic())
        if options.delete_on_stop:
            self._may_delete(was_killed=was_killed and not self._receiver.has_created)

    def _may_delete(self, *, was_killed: bool) -> None:
        """Find out whether the subscription is the query's own, so that it is deleted at the end.

        Args:
            was_killed: Whether a run was, which may have received of it.
        """
        self._deletes = self.wal.marks.who(CREATED) is not None
        if not self._deletes:
            logger.warning(
                "deleteSubscriptionOnStreamStop: %s was there before the query, and stays",
                self._subscription,
            )
        elif self._silence:
            self._silence.is_final(held_by_others=was_killed)

    @property
    def is_receiving(self) -> bool:
        """Whether it has begun to, and has not finished."""
        return self._receiver is not None

    def finish(self) -> None:
        """All has come: give back what came too late, and delete the subscription if asked to."""
        if self._receiver:
            self._receiver.stop(delete=self._deletes)
            self._receiver, self._released = None, False
            self.wal.marks.remove(*([CREATED] if self._deletes else []), RECEIVES)

    def stop(self) -> None:
        """Receive no more."""
        if self._receiver:
            self._receiver.stop()
        self._chores.shutdown()

    # Arrival, in threads of the receiver

    def keep(self, batch: ArrowBatch) -> bool:
        """Have messages durable when there is room; returns False if it ends before."""
        with self._changed:
            self._held_since = oldest_of(batch.records)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._released or self._has_room())
            self._held_since = math.inf
            if self._released or self._writer is None:
                return False
            self._keeping = True
        try:
            segment = self._writer.write(batch)
        finally:
            self._keeping = False
        with self._changed:
            self.wal.arrived(segment)
            if self._silence:
                self._silence.came(segment.oldest, now=time.monotonic())
            self._changed.notify_all()
        return True

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

    def room(self) -> int:
        """How many rows more may wait in the log."""
        with self._changed:
            most = _BATCHES_AHEAD * self._options.max_rows
            return max(0, most - self.wal.waiting.rows) if self._has_room() else 0

    # Batches

    def latest(self, after: int, *, everything: bool, patient: bool) -> Manifest | None:
        """The batch after that one; none if there is none yet.

        Args:
            after: The number of a batch.
            everything: Whether it has all that there is, without limits.
            patient: Whether to wait for messages until none comes any more.
        """
        with self._changed:
            if after >= self.wal.seq:
                self._look(_LOOK_EVERY)
                self._everything = everything
                try:
                    ready = self._settled() if patient else self._enough()
                finally:
                    self._everything = False
                if not ready:
                    return None
            limit = Limit() if everything else self._limit
            return self._seal(after, limit)

    def _seal(self, after: int, limit: Limit) -> Manifest | None:
        if self._receiver and self._receiver.may_be_ordered and after == self.wal.seq:
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
        """Wait for messages of before; returns whether there are any, when it is worth it."""
        silence = self._silence
        if silence is None:
            raise RuntimeError("nobody has told when before is")
        while True:
            left = silence.left(now=time.monotonic())
            is_over = left <= 0 and not self._keeping
            if is_over:
                self._look(0.0)
            if (is_over or not self._everything) and self.wal.oldest <= silence.until:
                return True
            if self._held_since <= silence.until and not self._has_room():
                return True
            if is_over:
                return False
            self._changed.notify_all()  # there may be room now
            self._changed.wait(min(max(left, 0.01), _LOOK_AGAIN))
            self._look(_LOOK_AGAIN)

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

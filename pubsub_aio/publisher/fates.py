"""What becomes of flights, told once to everybody whom it concerns."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque

from pubsub_aio._core.outgoing import Batch, Lane
from pubsub_aio.errors import KeyPausedError, PublishTimeoutError
from pubsub_aio.publisher.flight import Flight
from pubsub_aio.publisher.listening import Listening
from pubsub_aio.publisher.queue import Queue
from pubsub_aio.publisher.traces import Traces

log = logging.getLogger("pubsub_aio.publisher")


class Fates:
    """Tells futures, the listener and the log, and pauses ordering keys.

    Args:
        queue: Where what waits is found.
        listening: Who listens.
        resume_after: Seconds after which a paused ordering key goes on; none for never.
        traces: Note it too, if there are any.
    """

    def __init__(
        self,
        queue: Queue,
        listening: Listening,
        *,
        resume_after: float | None,
        traces: Traces | None,
    ) -> None:
        self._queue = queue
        self._listening = listening
        self._resume_after = resume_after
        self._traces = traces
        self._resumes: deque[tuple[float, Lane[Flight], BaseException]] = deque()

    def published(self, batch: Batch[Flight]) -> None:
        """A batch is on its way."""
        if not batch.announced:
            batch.announced = True
            self._listening.tell("published", batch.passengers)

    def acked(self, batch: Batch[Flight], message_ids: list[str]) -> None:
        """A batch has its message ids."""
        batch.message_ids = message_ids
        self._listening.tell("acked", batch.passengers)
        _tell(batch)

    def fail(self, batch: Batch[Flight], error: BaseException, *, now: float = math.inf) -> None:
        """A batch failed; if it has an ordering key, all that waits behind it does."""
        batch.error = error
        if batch.published_at is None:
            self._queue.left(batch)
        else:
            self.published(batch)  # which may be due in this very moment
        self.failed(batch)
        lane = batch.lane
        if lane.ordering_key and now < math.inf:
            paused = KeyPausedError(lane.topic, lane.ordering_key)
            paused.__cause__ = error
            for behind in self._queue.departures.pause(lane, error):
                self.fail(behind, paused)
            if self._resume_after is not None:
                self._resumes.append((now + self._resume_after, lane, error))

    def failed(self, batch: Batch[Flight]) -> None:
        """Tell that a batch failed."""
        if self._traces is not None and batch.error is not None:
            self._traces.failed(batch, batch.error)
        timed_out = isinstance(batch.error, PublishTimeoutError)
        self._listening.tell(
            "timed_out" if timed_out else "completed_exceptionally", batch.passengers
        )
        count = len(batch.passengers)
        _tell(batch)
        taken_back = isinstance(batch.error, asyncio.CancelledError)
        told = batch.asked_for or taken_back or (batch.awaited and batch.published_at is None)
        if not self._listening and not told:
            log.error(
                "%s: %d messages were not published, and nobody awaits them: %s",
                batch.lane.topic,
                count,
                batch.error,
            )

    def resume_due(self, *, now: float) -> float:
        """Let ordering keys go on that were paused for long enough; returns when others may."""
        while self._resumes and self._resumes[0][0] <= now:
            _, lane, error = self._resumes.popleft()
            if lane.paused_by is error:
                self._queue.departures.resume(lane.topic, lane.ordering_key)
        return self._resumes[0][0] if self._resumes else math.inf


def _tell(batch: Batch[Flight]) -> None:
    """Have the futures done that somebody asked for."""
    if batch.asked_for:
        for flight in batch.passengers:
            if flight.interest is not None:
                flight.tell()
    # They know their batch, and must not be known by it any longer: then they are freed as soon as
    # nobody else knows them, and the garbage collector need not look for them.
    batch.passengers = []

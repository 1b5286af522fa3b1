"""What becomes of flights, told once to everybody whom it concerns."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from pubsub_aio._core.outgoing import Batch, Lane
from pubsub_aio.errors import KeyPausedError, PublishTimeoutError, TakenBackError
from pubsub_aio.publisher.flight import Flight
from pubsub_aio.publisher.listening import Event, Listening
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
        self._resumes: dict[Lane[Flight], tuple[float, BaseException]] = {}

    def published(self, batch: Batch[Flight]) -> None:
        """A batch is on its way."""
        if not batch.announced:
            batch.announced = True
            self._listening.tell("published", batch.passengers)

    def acked(self, batch: Batch[Flight], message_ids: list[str]) -> None:
        """A batch has its message ids."""
        self.published(batch)  # which may be due in this very moment
        batch.message_ids = message_ids
        self._listening.tell("acked", batch.passengers)
        _tell(batch)

    def fail(self, failures: Sequence[tuple[Batch[Flight], BaseException]], *, now: float) -> None:
        """Batches of one lane failed, each by an error; what waits behind an ordering key does too.

        All of them have failed before anybody is told of one: whoever is told may resume the key.
        """
        failed = list(failures)
        first, error = failed[0]
        lane = first.lane
        if lane.ordering_key:
            paused = KeyPausedError(lane.topic, lane.ordering_key)
            paused.__cause__ = error
            behind = self._queue.departures.pause(lane, error)
            failed += ((batch, paused) for batch in behind)
            if self._resume_after is not None:
                self._resumes.pop(lane, None)  # they stand in order
                self._resumes[lane] = (now + self._resume_after, error)
        for batch, why in failed:
            self._note(batch, why)
        for batch, _ in failed:
            self._tell_failure(batch)

    def drop(self, batch: Batch[Flight], error: BaseException) -> None:
        """A batch is not sent any more, which has no consequences for others."""
        self._note(batch, error)
        self._tell_failure(batch)

    def _note(self, batch: Batch[Flight], error: BaseException) -> None:
        batch.error = error
        if batch.published_at is None:
            self._queue.left(batch)

    def _tell_failure(self, batch: Batch[Flight]) -> None:
        if batch.published_at is not None:
            self.published(batch)  # which may be due in this very moment
        if self._traces is not None and batch.error is not None:
            self._traces.failed(batch, batch.error)
        timed_out = isinstance(batch.error, PublishTimeoutError)
        event: Event = "timed_out" if timed_out else "completed_exceptionally"
        unheard = 0 if self._listening.hears(event) else _unheard(batch)
        self._listening.tell(event, batch.passengers)
        _tell(batch)
        if unheard:
            log.error(
                "%s: %d message(s) not published, and nobody awaits them: %s",
                batch.lane.topic,
                unheard,
                batch.error,
            )

    def resume_due(self, *, now: float) -> float:
        """Let ordering keys go on that were paused for long enough; returns when others may."""
        while self._resumes:
            lane, (resume_at, error) = next(iter(self._resumes.items()))
            paused = lane.paused_by is error
            if paused and resume_at > now:
                return resume_at
            del self._resumes[lane]
            if paused:
                self._queue.departures.resume(lane.topic, lane.ordering_key)
        return math.inf


def _tell(batch: Batch[Flight]) -> None:
    """Have the futures done that somebody asked for."""
    if batch.asked_for:
        for flight in batch.passengers:
            if flight.interest is not None:
                flight.tell()
    # They know their batch, and must not be known by it any longer: then they are freed as soon as
    # nobody else knows them, and the garbage collector need not look for them.
    batch.passengers = []


def _unheard(batch: Batch[Flight]) -> int:
    """Of how many flights of a batch nobody hears that they failed."""
    if isinstance(batch.error, TakenBackError):  # who took them back knows
        return 0
    waiting = batch.published_at is None
    return sum(
        flight.interest is None
        or (not flight.is_asked_for and not (waiting and flight.interest.leaving))
        for flight in batch.passengers
    )

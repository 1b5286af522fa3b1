"""Runs micro-batches: handed over, timed, tried in parts where they fail, and settled."""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field

from pubsub_aio.errors import StuckHandlerError
from pubsub_aio.spark.batch import BatchReport, MicroBatch, Outcome
from pubsub_aio.spark.bisection import Bisection
from pubsub_aio.spark.dead_letters import DeadLetters
from pubsub_aio.spark.frames import columns_of
from pubsub_aio.spark.handlers import Handler
from pubsub_aio.spark.suspects import Suspects
from pubsub_aio.subscriber.arrow import ArrowBatch

log = logging.getLogger("pubsub_aio.spark")

MAX_RETRY_DELAY = 60
"""Seconds after which what has failed comes again at the latest; the first time it is one."""

_WORDS = {
    "bisected": "failed, and was tried in parts,",
    "failed": "failed",
    "timed out": "was not done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """How batches are dealt with."""

    max_batch_duration: float
    """Seconds that a batch may take, with all its parts."""

    bisect: bool = False
    """Whether a batch that fails is tried in parts."""

    max_poisonous: int = 10
    """How many poisonous messages are looked for in a batch."""

    dead_letters: DeadLetters | None = None
    """Where poisonous messages go; without it they come again."""


@dataclass(slots=True)
class _Progress:
    """How far a batch has come."""

    whole: MicroBatch
    ordered: bool
    trying: MicroBatch
    left: list[int]
    """Rows that have not gone through."""
    outcome: Outcome = "cancelled"
    given_back: set[int] = field(default_factory=set)
    """Rows that the handler does not want."""
    poisonous: list[int] = field(default_factory=list)
    buried: set[int] = field(default_factory=set)
    """Those of them that are dead letters."""
    error: Exception | None = None


class BatchRunner:
    """The callback of a subscription to Arrow batches.

    Args:
        handler: Does something with each.
        policy: How they are dealt with.
        on_batch: Is told what became of each.

    Attributes:
        subscription: The full name of the subscription.
        on_end: Is told why it is no use to go on.
    """

    def __init__(
        self,
        handler: Handler,
        policy: BatchPolicy,
        *,
        on_batch: Callable[[BatchReport], object] | None = None,
    ) -> None:
        self.subscription = ""
        self.on_end: Callable[[Exception], None] = lambda _: None
        self._handler = handler
        self._policy = policy
        self._on_batch = on_batch
        self._over = self._checked = False
        self._failures = 0  # batches in a row of which nothing went through
        self._suspects = Suspects()

    async def __call__(self, arrived: ArrowBatch) -> None:
        """Deal with a batch; when it returns nothing runs for it any more."""
        if self._over:
            arrived.nack()
            return
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        batch = MicroBatch(len(arrived), lambda: columns_of(arrived.records))
        progress = _Progress(
            batch, bool(arrived.ordering_key), trying=batch, left=[*range(len(batch))]
        )
        try:
            await self._try_in_time(progress)
        finally:
            progress.left = arrived.and_behind(progress.left)
            report = self._report(progress, size=arrived.size, seconds=loop.time() - began_at)
            self._settle(arrived, progress)
            self._tell(report)
            await self._ended(progress.trying)

    async def _try_in_time(self, progress: _Progress) -> None:
        """Hand over a batch, and note what became of it."""
        seconds = self._policy.max_batch_duration
        try:
            async with asyncio.timeout(seconds):
                await self._check_dead_letters()
                await self._try(progress)
        except TimeoutError:
            progress.outcome = "timed out"
            progress.error = progress.error or TimeoutError(f"it was not done after {seconds:g} s")
        except asyncio.CancelledError:
            progress.outcome = "cancelled"
            raise
        except Exception as error:  # noqa: BLE001 - told to whoever awaits the subscription
            progress.outcome, progress.error = "cancelled", error
            self._end(error)

    async def _check_dead_letters(self) -> None:
        """Before the first batch: a poisonous message would have nowhere to go."""
        if self._policy.dead_letters and not self._checked:
            await self._policy.dead_letters.check(self.subscription)
            self._checked = True

    async def _ended(self, batch: MicroBatch) -> None:
        """Wait until nothing runs for a batch any more; if that takes too long, give up."""
        seconds = self._policy.max_batch_duration
        try:
            async with asyncio.timeout(seconds):
                await self._handler.ended(batch)
        except TimeoutError:
            self._end(StuckHandlerError(seconds))

    def _end(self, error: Exception) -> None:
        """It is no use to go on."""
        self._over = True
        self.on_end(error)

    async def _try(self, progress: _Progress) -> None:
        """Hand over a batch and, if it fails and that is wanted, its parts."""
        progress.error = await self._run(progress.whole)
        if progress.error is None:
            self._suspects.something_worked()
            progress.outcome, progress.left = "acked", sorted(progress.whole.given_back)
            return
        progress.outcome = "failed"
        if self._policy.bisect:
            await self._try_parts(progress)

    async def _run(self, batch: MicroBatch) -> Exception | None:
        """Hand over a batch or a part of one; returns what was raised, if anything was."""
        try:
            return await self._handler.run(batch)
        finally:
            batch.is_settled = True

    async def _try_parts(self, progress: _Progress) -> None:
        """Find the rows that make the handler fail, while the others go through."""
        whole = progress.whole
        search = Bisection(
            len(whole),
            max_poisonous=self._policy.max_poisonous,
            keys=whole.ordering_keys if progress.ordered else None,
            blocking=not self._policy.dead_letters,  # nothing may overtake what comes again
        )
        errors = {0: progress.error}
        try:
            if len(whole) == 1:
                self._suspects.failed_alone(whole.message_ids[0])
            while (rows := search.next) is not None:
                progress.trying = whole.part(rows)
                error = errors[rows[0]] = await self._run(progress.trying)
                if error is None:
                    search.worked()
                    self._suspects.something_worked()
                    progress.outcome = "bisected"
                    progress.given_back.update(rows[row] for row in progress.trying.given_back)
                    await self._blame(progress, self._sure(progress, search), errors)
                else:
                    search.failed()
                    if len(rows) == 1:
                        self._suspects.failed_alone(progress.trying.message_ids[0])
            await self._blame(progress, self._sure(progress, search, is_over=True), errors)
        finally:
            progress.left = sorted({*search.left, *progress.given_back} - progress.buried)

    def _sure(self, progress: _Progress, search: Bisection, *, is_over: bool = False) -> list[int]:
        """Rows found since that are at fault, and not what they were handed to."""
        found = [row for row in search.poisonous if row not in progress.poisonous]
        sure = [
            row
            for row in found
            if self._suspects.are_to_blame(progress.whole.row(row).message_ids[0])
        ]
        unsure = len(found) - len(sure)
        if is_over and unsure == 1 and search.works and search.is_complete:
            return found  # it was tried last; had all else gone down, there would be more of them
        return sure

    async def _blame(
        self, progress: _Progress, rows: list[int], errors: dict[int, Exception | None]
    ) -> None:
        """Bury these rows, if there is somewhere to bury them."""
        for row in rows:
            insort(progress.poisonous, row)
            if self._policy.dead_letters is None:
                continue
            message, failures = progress.whole.row(row), 0
            while not await self._bury(message, errors[row], self._policy.dead_letters):
                if not progress.ordered:
                    break
                # Others went through that are behind it, so it must not come again.
                await asyncio.sleep(_delay_after(failures := failures + 1))
            else:
                progress.buried.add(row)
                progress.outcome = "bisected"

    async def _bury(
        self, message: MicroBatch, error: Exception | None, dead_letters: DeadLetters
    ) -> bool:
        """Publish a message to the dead-letter topic; returns whether it is there."""
        try:
            await dead_letters.send(message.records, subscription=self.subscription, error=error)
        except Exception:
            log.exception(
                "%s: message %s cannot be published to %s",
                self.subscription,
                message.message_ids[0],
                dead_letters.topic,
            )
            return False
        return True

    def _settle(self, arrived: ArrowBatch, progress: _Progress) -> None:
        """Ack what went through, and give back the rest."""
        if len(progress.left) < len(progress.whole):
            self._failures = 0
        elif progress.outcome != "cancelled":
            self._failures += 1
        if not progress.left:
            arrived.ack()
        elif len(progress.left) == len(progress.whole):
            arrived.nack(delay=self._delay(progress))
        else:
            arrived.ack_all_but(progress.left, delay=self._delay(progress))

    def _delay(self, progress: _Progress) -> float:
        """Seconds after which what is left comes again."""
        if progress.outcome == "cancelled":
            return 0.0
        # Where order matters nothing is received meanwhile, of any key.
        if {*progress.left} <= {*progress.poisonous} and not progress.ordered:
            return MAX_RETRY_DELAY
        return _delay_after(self._failures)

    def _report(self, progress: _Progress, *, size: int, seconds: float) -> BatchReport:
        """What became of a batch."""
        batch = progress.whole
        poisonous = [batch.row(row).message_ids[0] for row in progress.poisonous]
        return BatchReport(
            id=batch.id,
            outcome=progress.outcome,
            rows=len(batch),
            size=size,
            seconds=seconds,
            acked=len(batch) - len(progress.left),
            dead_lettered=len(progress.buried),
            poisonous=tuple(poisonous),
            error=progress.error,
        )

    def _tell(self, report: BatchReport) -> None:
        """Say what became of a batch."""
        if report.outcome not in ("acked", "cancelled"):
            log.error(
                "%s: a batch of %d messages %s after %.1f s: %d come again, %d are dead letters%s",
                self.subscription,
                report.rows,
                _WORDS[report.outcome],
                report.seconds,
                report.nacked,
                report.dead_lettered,
                f"; poisonous: {', '.join(report.poisonous)}" if report.poisonous else "",
                exc_info=report.error,
            )
        if self._on_batch is None:
            return
        try:
            self._on_batch(report)
        except Exception:
            log.exception("%s: on_batch failed", self.subscription)


def _delay_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(2.0 ** min(max(0, failures - 1), 10), MAX_RETRY_DELAY)

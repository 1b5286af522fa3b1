"""Who holds which message of a subscription, by which delivery, and until when."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pubsub_aio.emulator import ack_ids
from pubsub_aio.emulator.log import MASK, SHIFT, SPAN, TopicLog
from pubsub_aio.emulator.progress import Block, Progress, Run
from pubsub_aio.emulator.response import Consumer
from pubsub_aio.emulator.status import invalid

NO_REFUSALS: Mapping[int, str] = MappingProxyType({})
INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"

_FIRST = array("I", [1]) * SPAN


class Leases:
    """The leases of one subscription, kept in the blocks of its progress.

    Lease ends are not kept by message: a block is looked at when the earliest of its leases ends.
    """

    def __init__(self, log: TopicLog, progress: Progress) -> None:
        self.epoch = 0
        """How often the subscription was sought: ids of an earlier epoch are old."""
        self.consumers: dict[int, Consumer] = {}
        self.released_bytes = 0
        """Size of the messages whose leases ended since this was last set to zero."""
        self._log = log
        self._progress = progress
        self._checks: list[tuple[float, int]] = []

    def read_from(self, log: TopicLog) -> None:
        """Take messages from another log, which goes on where this one ended."""
        self._log = log

    def begin_epoch(self) -> None:
        """Make every id that was ever issued an old one; the blocks are replaced by the caller."""
        self.epoch += 1
        self._checks.clear()
        for consumer in self.consumers.values():
            consumer.held_messages = consumer.held_bytes = 0

    @property
    def count(self) -> int:
        """How many messages are leased."""
        return sum(SPAN - block.ends.count(math.inf) for block in self._progress.blocks.values())

    @property
    def next_at(self) -> float:
        """When `expired` may have something to say."""
        return self._checks[0][0] if self._checks else math.inf

    def held(self, offset: int) -> bool:
        """Whether a message is leased."""
        block = self._progress.blocks.get(offset >> SHIFT)
        return block is not None and block.ends[offset & MASK] != math.inf

    def attempts(self, offset: int) -> int:
        """How often an unsettled message was delivered."""
        block, index = self._progress.blocks[offset >> SHIFT], offset & MASK
        return block.issues[index] - block.unsent.get(index, 0)

    def reissue(self, offset: int) -> int:
        """Count one more delivery of a settled message, which is not leased; returns which."""
        block = self._progress.blocks.get(offset >> SHIFT)
        if block is None:
            return 2  # how often it was delivered is not known any more, nor does it matter
        block.issues[offset & MASK] += 1
        return block.issues[offset & MASK]

    # Granting and ending

    def grant(self, run: Run, consumer: Consumer, *, now: float) -> int:
        """Lease a run; returns how often it was leased, this time included.

        Only a run of one may have been leased before.
        """
        block, number, begin, end = run
        if end - begin == 1:
            block.issues[begin] += 1
        else:
            block.issues[begin:end] = _FIRST[begin:end]
        ends_at = now + consumer.ack_deadline
        block.ends[begin:end] = array("d", [ends_at]) * (end - begin)
        block.holders[begin:end] = array("I", [consumer.number]) * (end - begin)
        self._check(number, block, ends_at)
        return block.issues[begin]

    def extend(self, offset: int, *, ends_at: float) -> None:
        """Let a lease end at another time."""
        number = offset >> SHIFT
        block = self._progress.blocks[number]
        block.ends[offset & MASK] = ends_at
        self._check(number, block, ends_at)

    def release(self, offset: int) -> None:
        """End a lease."""
        number, index = offset >> SHIFT, offset & MASK
        self.release_run(Run(self._progress.blocks[number], number, index, index + 1))

    def withdraw(self, offset: int) -> None:
        """End a lease of what was not sent: that was no delivery, though its id stays used."""
        unsent, index = self._progress.blocks[offset >> SHIFT].unsent, offset & MASK
        unsent[index] = unsent.get(index, 0) + 1
        self.release(offset)

    def release_run(self, run: Run) -> None:
        """End the leases of a run that one consumer holds."""
        block, number, begin, end = run
        block.ends[begin:end] = array("d", [math.inf]) * (end - begin)
        size = sum(map(len, self._log.chunk(number).records[begin:end]))
        self.released_bytes += size
        if consumer := self.consumers.get(block.holders[begin]):
            consumer.held_messages -= end - begin
            consumer.held_bytes -= size

    def expired(self, now: float) -> Iterator[int]:
        """The messages whose leases have ended; the caller releases each, and maybe others."""
        while self._checks and self._checks[0][0] <= now:
            at, number = heapq.heappop(self._checks)
            block = self._progress.blocks.get(number)
            if block is None or block.check_at != at:
                continue
            block.check_at = math.inf
            if min(block.ends) <= now:
                for index in range(SPAN):
                    if block.ends[index] <= now:
                        yield (number << SHIFT) + index
            self._check(number, block, min(block.ends))

    def _check(self, number: int, block: Block, at: float) -> None:
        """See to it that the block's leases are looked at then."""
        if at < block.check_at:
            block.check_at = at
            heapq.heappush(self._checks, (at, number))

    def hand_over(self, old: Consumer, new: Consumer) -> None:
        """Let one consumer take over what another holds."""
        for block in self._progress.blocks.values():
            for index, holder in enumerate(block.holders):
                if holder == old.number:
                    block.holders[index] = new.number
        new.held_messages, new.held_bytes = old.held_messages, old.held_bytes
        self.consumers.pop(old.number, None)
        self.consumers[new.number] = new

    # Which delivery an ack id means

    def match(
        self, issued: array[int], offsets: array[int], refuse: Mapping[int, str]
    ) -> tuple[list[int], dict[int, str]]:
        """The positions of deliveries that hold a lease, and why the others do not.

        Raises:
            StatusError: INVALID_ARGUMENT, before anything was changed, if one never took place.
        """
        good: dict[int, int] = {}  # by offset: a lease that is named twice counts once
        failed: dict[int, str] = {}
        current = ack_ids.delivery(self.epoch, 0)
        for at, offset in enumerate(offsets):
            block = self._progress.blocks.get(offset >> SHIFT)
            index = offset & MASK
            leased = block is not None and block.ends[index] != math.inf
            if block and leased and issued[at] == current + block.issues[index]:
                if at in refuse:
                    failed[at] = refuse[at]
                else:
                    good.setdefault(offset, at)
            elif self._was_issued(issued[at] - current, offset, block):
                failed[at] = refuse.get(at, INVALID_ACK_ID)
            else:
                raise invalid("ack_ids", f"the one at position {at} was never issued")
        return list(good.values()), failed

    def _was_issued(self, issue: int, offset: int, block: Block | None) -> bool:
        if issue <= 0:  # of an earlier epoch
            return offset < self._log.next and issue + ack_ids.delivery(self.epoch, 0) > 0
        known = block.issues[offset & MASK] if block else issue
        return offset < self._progress.frontier and issue <= known

    def match_runs(self, issued: array[int], offsets: array[int]) -> list[Run]:
        """The runs that these deliveries are, if they lie side by side and are all leased.

        That is what most acks are. For anything else the answer is empty.
        """
        count, start = len(offsets), min(offsets, default=0)
        if (
            not count
            or max(offsets) - start != count - 1
            or issued.count(issued[0]) != count
            or sorted(offsets) != list(range(start, start + count))
        ):
            return []
        issue = issued[0] - ack_ids.delivery(self.epoch, 0)
        runs = [run for run in self._progress.cut(start, start + count) if _one_lease(run, issue)]
        return runs if sum(run.end - run.begin for run in runs) == count else []


def _one_lease(run: Run, issue: int) -> bool:
    """Whether one consumer holds all of the run, by the same delivery."""
    block, _, begin, end = run
    return (
        block.issues[begin:end].count(issue) == end - begin
        and math.inf not in block.ends[begin:end]
        and block.holders[begin:end].count(block.holders[begin]) == end - begin
    )

"""What one subscription has delivered, to whom, until when, and what comes next."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pubsub_aio.emulator import ack_ids, records
from pubsub_aio.emulator.filters import Filter
from pubsub_aio.emulator.journal import Journal, Source
from pubsub_aio.emulator.lanes import Lanes
from pubsub_aio.emulator.log import MASK, SHIFT, SPAN, TopicLog
from pubsub_aio.emulator.progress import Block, Position, Progress, Run
from pubsub_aio.emulator.response import Consumer, Response
from pubsub_aio.emulator.status import invalid

INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED_ACK_ID = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"

_SCAN = 10_000  # messages looked at in one go where not every message may be delivered
_FIRST = array("I", [1]) * SPAN
_COPY = 2  # the delivery that the copy of an acked message is called


@dataclass(slots=True)
class Rules:
    """The part of a subscription's settings that decides about deliveries."""

    ordered: bool = False
    exactly_once: bool = False
    filter: Filter | None = None
    max_attempts: int = 0
    min_backoff: float = 0.0
    max_backoff: float = 0.0


class Deliveries:
    """Leases, redeliveries and acks of one subscription.

    Each message is settled (acked, filtered out, aged out), leased, waiting to be delivered again,
    or not delivered yet. It decides; it reads no clock.
    """

    def __init__(self, source: Source, log: TopicLog, rules: Rules, journal: Journal) -> None:
        self._source = source
        self.rules = rules
        self.progress = Progress(log)
        self.consumers: dict[int, Consumer] = {}
        self.duplicate_next = 0
        """A fault: how many of the next deliveries are made twice."""
        self.lose_acks = 0
        """A fault: how many of the next acks have no effect."""
        self.released_bytes = 0
        """Size of the messages whose leases ended since this was last set to zero."""
        self._log = log
        self._journal = journal
        self._epoch = 0
        self._lease_nothing()

    def _lease_nothing(self) -> None:
        self._returned: deque[int] = deque()
        self._copies: deque[tuple[int, bytes]] = deque()
        self._delayed: list[tuple[float, int]] = []
        self._checks: list[tuple[float, int]] = []
        self.dead: list[tuple[int, int]] = []
        """Offsets and attempts of messages that are to be dead-lettered."""
        self._lanes = Lanes()
        for consumer in self.consumers.values():
            consumer.held_messages = consumer.held_bytes = 0

    def read_from(self, log: TopicLog) -> None:
        """Take messages from another log, which goes on where this one ended."""
        self._log = log
        self.progress.read_from(log)

    @property
    def backlog(self) -> int:
        """Messages that are not settled, leased ones included; what a filter leaves out is not."""
        unseen = range(self.progress.frontier, self._log.next)
        if not self.rules.filter:
            return self.progress.unsettled + len(unseen)
        return self.progress.unsettled + sum(map(self._passes, unseen))

    def _passes(self, offset: int) -> bool:
        message = records.message_of(self._log.record(offset))
        return not self.rules.filter or self.rules.filter.matches(message.attributes)

    @property
    def outstanding(self) -> int:
        """Messages that are leased."""
        return sum(SPAN - block.ends.count(math.inf) for block in self.progress.blocks.values())

    @property
    def next_at(self) -> float:
        """When `poll` has something to do."""
        checks = self._checks[0][0] if self._checks else math.inf
        return min(checks, self._delayed[0][0]) if self._delayed else checks

    # Delivering

    def take(self, consumer: Consumer, *, limit: int, now: float) -> tuple[bytes, bool]:
        """Lease up to `limit` messages to the consumer.

        Returns:
            The `received_messages` of a response, and whether there may be more to look at.
        """
        response = Response(consumer, limit=limit, now=now)
        self._take_copies(response)
        self._take_returned(response)
        looked = 0
        if self.rules.ordered or self.rules.filter:
            looked = self._take_selected(response)
        else:
            for run in self.progress.runs():
                count = self._lease(run, response)
                self.progress.advance(run.offset + count)
                if run.begin + count < run.end or not response.room:
                    break
        return response.payload, looked >= _SCAN

    def _take_copies(self, response: Response) -> None:
        """A fault: deliver messages again that are leased, or were acked in the meantime."""
        while self._copies and response.room > 0:
            offset, record = self._copies[0]
            block = self.progress.blocks.get(offset >> SHIFT)
            if block and not block.settled[offset & MASK]:
                if block.ends[offset & MASK] != math.inf:
                    self._release(offset)
                if not self._lease_one(block, offset, response):
                    return
            else:
                delivery = ack_ids.delivery(self._epoch, _COPY)
                ids = ack_ids.encode(self._source.uid, delivery, offset, offset + 1)
                response.add([record], ids, attempt=0, held=False)
                self._journal.delivered(self._source, offset, 1, self._epoch, _COPY, response.now)
            self._copies.popleft()

    def _take_returned(self, response: Response) -> None:
        """Deliver what was given back."""
        while self._returned and response.room > 0:
            offset = self._returned[0]
            block = self.progress.blocks.get(offset >> SHIFT)
            index = offset & MASK
            waits = block and block.ends[index] == math.inf and not block.settled[index]
            if block and waits and not self._lease_one(block, offset, response):
                return
            self._returned.popleft()

    def _take_selected(self, response: Response) -> int:
        """Deliver one by one, where a filter or an ordering key may be in the way."""
        consumer = response.consumer.number
        for offset in self._lanes.ready(consumer, now=response.now):
            block = self.progress.blocks[offset >> SHIFT]
            if response.room <= 0 or not self._lease_one(block, offset, response):
                return 0
            self._lanes.hold(offset, consumer=consumer)
        looked = 0
        for run in self.progress.runs():
            if response.room <= 0 or looked >= _SCAN:
                break
            looked += 1
            offset = run.offset
            message = records.message_of(self._log.record(offset))
            if self.rules.filter and not self.rules.filter.matches(message.attributes):
                self.progress.advance(offset + 1)
                self.progress.settle(offset)
            elif not self.rules.ordered or not message.ordering_key:
                if not self._lease_one(run.block, offset, response):
                    break
                self.progress.advance(offset + 1)
            else:
                self.progress.advance(offset + 1)
                if self._lanes.admit(offset, message.ordering_key, consumer=consumer):
                    if not self._lease_one(run.block, offset, response):
                        self._lanes.postpone(offset)
                        break
                    self._lanes.hold(offset, consumer=consumer)
        return looked

    def _lease_one(self, block: Block, offset: int, response: Response) -> bool:
        number, index = offset >> SHIFT, offset & MASK
        return self._lease(Run(block, number, index, index + 1), response) == 1

    def _lease(self, run: Run, response: Response) -> int:
        """Lease as much of a run as fits. Only a run of one may have been delivered before."""
        block, number, begin, end = run
        taken = self._log.chunk(number).records[begin:end]
        count = response.fit(taken)
        if not count:
            return 0
        end = begin + count
        if count == 1:
            block.issues[begin] += 1
        else:
            block.issues[begin:end] = _FIRST[begin:end]
        issue = block.issues[begin]
        ends_at = response.now + response.consumer.ack_deadline
        block.ends[begin:end] = array("d", [ends_at]) * count
        block.holders[begin:end] = array("I", [response.consumer.number]) * count
        self._check(number, block, ends_at)
        delivery = ack_ids.delivery(self._epoch, issue)
        ids = ack_ids.encode(self._source.uid, delivery, run.offset, run.offset + count)
        response.add(taken[:count], ids, attempt=issue if self.rules.max_attempts else 0)
        if self.duplicate_next:
            copies = min(count, self.duplicate_next)
            self.duplicate_next -= copies
            self._copies.extend(enumerate(taken[:copies], run.offset))
        self._journal.delivered(self._source, run.offset, count, self._epoch, issue, response.now)
        return count

    # Settling

    def acknowledge(
        self,
        issued: array[int],
        offsets: array[int],
        *,
        now: float,
        refuse: Mapping[int, str] = MappingProxyType({}),
    ) -> dict[int, str]:
        """Settle deliveries; says which of them could not be and why, by position.

        With exactly-once those are refused; otherwise they are old, and ignored.

        Args:
            issued: Which delivery of each message.
            offsets: The messages.
            now: The time.
            refuse: A fault: which of them to refuse, and why.
        """
        if not refuse and self._settle_run(issued, offsets):
            self._journal.acked(self._source, issued, offsets, (), now)
            return {}
        good, failed = self._match(issued, offsets, refuse)
        lost, good = good[: self.lose_acks], good[self.lose_acks :]
        self.lose_acks -= len(lost)
        if self.rules.ordered:
            failed |= self._settle_in_order(good, offsets)
        else:
            self._settle_leased(offsets[at] for at in good)
        self._journal.acked(self._source, issued, offsets, {*failed, *lost}, now)
        return failed

    def _settle_run(self, issued: array[int], offsets: array[int]) -> bool:
        """Settle messages that lie side by side and are all leased, many at once.

        That is what most acks are. Anything else is left alone, and the answer is false.
        """
        count, start = len(offsets), min(offsets, default=0)
        if (
            not count
            or self.rules.ordered
            or self.lose_acks
            or max(offsets, default=0) - start != count - 1
            or issued.count(issued[0]) != count
            or sorted(offsets) != list(range(start, start + count))
        ):
            return False
        issue = issued[0] - ack_ids.delivery(self._epoch, 0)
        runs = [run for run in self.progress.cut(start, start + count) if _leased(run, issue)]
        if sum(run.end - run.begin for run in runs) != count:
            return False
        for run in runs:
            block, number, begin, end = run
            size = sum(map(len, self._log.chunk(number).records[begin:end]))
            self.released_bytes += size
            if consumer := self.consumers.get(block.holders[begin]):
                consumer.held_messages -= end - begin
                consumer.held_bytes -= size
            self.progress.settle_run(run)
        return True

    def _settle_in_order(self, good: Iterable[int], offsets: array[int]) -> dict[int, str]:
        failed: dict[int, str] = {}
        for at in sorted(good, key=lambda at: offsets[at]):
            offset = offsets[at]
            if offset not in self._lanes:
                self._settle_leased((offset,))
            elif self.rules.exactly_once and not self._lanes.is_first(offset):
                failed[at] = UNORDERED_ACK_ID
            else:
                self._release(offset)
                for settled in self._lanes.ack(offset):
                    self.progress.settle(settled)
        return failed

    def modify(
        self,
        issued: array[int],
        offsets: array[int],
        seconds: float,
        *,
        now: float,
        refuse: Mapping[int, str] = MappingProxyType({}),
    ) -> dict[int, str]:
        """Let leases end `seconds` from now; zero gives the messages back. See `acknowledge`."""
        good, failed = self._match(issued, offsets, refuse)
        for offset in sorted(offsets[at] for at in good):
            number, index = offset >> SHIFT, offset & MASK
            block = self.progress.blocks[number]
            if seconds > 0:
                block.ends[index] = now + seconds
                self._check(number, block, now + seconds)
            elif block.ends[index] != math.inf:  # it may have gone back with another of its key
                self._give_back(offset, now=now)
        self._journal.modified(self._source, issued, offsets, seconds, failed, now)
        return failed

    def _match(
        self, issued: array[int], offsets: array[int], refuse: Mapping[int, str]
    ) -> tuple[list[int], dict[int, str]]:
        """The positions of deliveries that hold a lease, and why the others do not.

        Raises:
            StatusError: INVALID_ARGUMENT, before anything was changed, if one never took place.
        """
        good: list[int] = []
        failed: dict[int, str] = {}
        seen: set[int] = set()
        current = ack_ids.delivery(self._epoch, 0)
        blocks = self.progress.blocks
        for at, offset in enumerate(offsets):
            block = blocks.get(offset >> SHIFT)
            index = offset & MASK
            if (
                block
                and block.ends[index] != math.inf
                and issued[at] == current + block.issues[index]
            ):
                if at in refuse:
                    failed[at] = refuse[at]
                elif offset not in seen:
                    seen.add(offset)
                    good.append(at)
            elif self._was_issued(issued[at] - current, offset, block):
                failed[at] = refuse.get(at, INVALID_ACK_ID)
            else:
                raise invalid("ack_ids", f"the one at position {at} was never issued")
        return good, failed

    def _was_issued(self, issue: int, offset: int, block: Block | None) -> bool:
        if issue <= 0:  # from before the last seek
            return offset < self._log.next and issue + ack_ids.delivery(self._epoch, 0) > 0
        return offset < self.progress.frontier and (
            block is None or issue <= block.issues[offset & MASK]
        )

    def _settle_leased(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._release(offset)
            self.progress.settle(offset)

    def _release(self, offset: int) -> None:
        """End a lease."""
        block = self.progress.blocks[offset >> SHIFT]
        index = offset & MASK
        block.ends[index] = math.inf
        size = len(self._log.record(offset))
        self.released_bytes += size
        consumer = self.consumers.get(block.holders[index])
        if consumer:
            consumer.held_messages -= 1
            consumer.held_bytes -= size

    def discard(self, offset: int) -> None:
        """Settle a message that went another way than by an ack."""
        block = self.progress.blocks[offset >> SHIFT]
        if block.ends[offset & MASK] != math.inf:
            self._release(offset)
        if offset in self._lanes:
            self._lanes.remove(offset)
        self.progress.settle(offset)

    # Coming again

    def poll(self, now: float) -> None:
        """End the leases whose time has passed, and let through what was held back long enough."""
        while self._checks and self._checks[0][0] <= now:
            at, number = heapq.heappop(self._checks)
            block = self.progress.blocks.get(number)
            if block is None or block.check_at != at:
                continue
            block.check_at = math.inf
            if min(block.ends) <= now:
                for index, end in enumerate(block.ends[:]):
                    if end <= now and block.ends[index] <= now:
                        self._give_back((number << SHIFT) + index, now=now)
            self._check(number, block, min(block.ends))
        while self._delayed and self._delayed[0][0] <= now:
            _, offset = heapq.heappop(self._delayed)
            if offset not in self._lanes:
                self._returned.append(offset)

    def _check(self, number: int, block: Block, at: float) -> None:
        """See to it that the block's leases are looked at then."""
        if at < block.check_at:
            block.check_at = at
            heapq.heappush(self._checks, (at, number))

    def _give_back(self, offset: int, *, now: float) -> None:
        """A leased message was not acked: it comes again, now or later."""
        attempts = self.progress.blocks[offset >> SHIFT].issues[offset & MASK]
        delay = self._backoff(attempts)
        if offset in self._lanes:
            for later in self._lanes.give_back(offset, not_before=now + delay):
                if self.progress.blocks[later >> SHIFT].ends[later & MASK] != math.inf:
                    self._release(later)
        else:
            self._release(offset)
            if not delay:
                self._returned.append(offset)
        if delay:
            heapq.heappush(self._delayed, (now + delay, offset))
        if 0 < self.rules.max_attempts <= attempts:
            self.dead.append((offset, attempts))

    def _backoff(self, attempts: int) -> float:
        doubled = self.rules.min_backoff * 2.0 ** min(attempts - 1, 60)
        return min(doubled, self.rules.max_backoff)

    # Moving

    def seek(self, position: Position) -> None:
        """Stand where a snapshot stood: leases end, and every ack id becomes an old one."""
        self._epoch += 1
        self._lease_nothing()
        self.progress.stand_at(position)

    def seek_offset(self, target: int, *, kept_from: int) -> None:
        """Settle everything before `target`; from there on, unsettle what was kept.

        Args:
            target: The first message to deliver.
            kept_from: The first message that is still there although it may have been acked.
        """
        self.settle_before(target)
        self.seek(self.progress.rewound_to(max(target, kept_from)))

    def settle_before(self, target: int) -> None:
        """Settle every message before `target`, delivered or not."""
        for offset in self.progress.unsettled_before(target):
            self.discard(offset)
        self.progress.skip_to(target)

    # Consumers

    def hand_over(self, old: Consumer, new: Consumer) -> None:
        """Let one consumer take over what another holds."""
        for block in self.progress.blocks.values():
            for index, holder in enumerate(block.holders):
                if holder == old.number:
                    block.holders[index] = new.number
        new.held_messages, new.held_bytes = old.held_messages, old.held_bytes
        self._lanes.hand_over(old.number, new.number)
        self.consumers.pop(old.number, None)
        self.consumers[new.number] = new


def _leased(run: Run, issue: int) -> bool:
    """Whether one consumer holds all of the run, by the same delivery."""
    block, _, begin, end = run
    return (
        block.issues[begin:end].count(issue) == end - begin
        and math.inf not in block.ends[begin:end]
        and block.holders[begin:end].count(block.holders[begin]) == end - begin
    )

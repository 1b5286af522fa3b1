"""What one subscription delivers next, and what becomes of it."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pubsub_aio.emulator import ack_ids, records
from pubsub_aio.emulator.journal import Journal, Source
from pubsub_aio.emulator.lanes import Lanes
from pubsub_aio.emulator.leases import INVALID_ACK_ID, NO_REFUSALS, Leases
from pubsub_aio.emulator.log import MASK, SHIFT, TopicLog
from pubsub_aio.emulator.progress import Position, Progress, Run
from pubsub_aio.emulator.response import MAX_BYTES, Consumer, Response
from pubsub_aio.filters import Filter

UNORDERED_ACK_ID = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"

_SCAN = 10_000  # messages looked at in one go where not every message may be delivered
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 60.0  # after a failed transform, without a retry policy


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
    """Deliveries, redeliveries and acks of one subscription.

    Each message is settled (acked, filtered out, aged out), leased, waiting to be delivered again,
    or not delivered yet. It decides; it reads no clock.
    """

    def __init__(self, source: Source, log: TopicLog, rules: Rules, journal: Journal) -> None:
        self.rules = rules
        self.progress = Progress(log)
        self.leases = Leases(log, self.progress)
        self.duplicate_next = 0
        """A fault: how many of the next deliveries are made twice."""
        self.lose_acks = 0
        """A fault: how many of the next acks have no effect."""
        self._source = source
        self._log = log
        self._journal = journal
        self._await_nothing()

    def _await_nothing(self) -> None:
        self.dead: list[tuple[int, int]] = []
        """Offsets and attempts of messages that are to be dead-lettered."""
        self._returned: deque[int] = deque()
        self._delayed: list[tuple[float, int]] = []
        self._copies: deque[tuple[int, bytes]] = deque()
        self._lanes = Lanes()

    def read_from(self, log: TopicLog) -> None:
        """Take messages from another log, which goes on where this one ended."""
        self._log = log
        self.progress.read_from(log)
        self.leases.read_from(log)

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
        return self.leases.count

    @property
    def next_at(self) -> float:
        """When `poll` has something to do."""
        delayed = self._delayed[0][0] if self._delayed else math.inf
        return min(self.leases.next_at, delayed)

    # Delivering

    def take(
        self,
        consumer: Consumer,
        *,
        limit: int,
        now: float,
        space: int = MAX_BYTES,
        beside: int = 0,
    ) -> tuple[bytes, bool]:
        """Lease up to `limit` messages to the consumer, or as many as fit into `space` bytes.

        Returns:
            The `received_messages` of a response, and whether there may be more to look at.
        """
        response = Response(
            consumer,
            limit=limit,
            now=now,
            space=space,
            beside=beside,
            retold=self._log.retold,
        )
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
        others: list[tuple[int, bytes]] = []  # those whose keys somebody else holds
        while self._copies and response.fit([self._copies[0][1]]):
            offset, record = self._copies[0]
            if not self._may_have(record, response.consumer):
                others.append((offset, record))
            elif self.leases.held(offset):
                self.leases.release(offset)
                self._lease_one(offset, response)
            elif self.progress.is_settled(offset):
                delivery = ack_ids.delivery(self.leases.epoch, self.leases.reissue(offset))
                ids = ack_ids.encode(self._source.uid, delivery, offset, offset + 1)
                response.add([record], ids, attempt=0, held=False)
                attempt = ack_ids.attempt(delivery)
                self._journal.delivered(self._source, offset, 1, delivery, attempt, response.now)
            self._copies.popleft()  # if it waits to be delivered again, it comes twice anyway
        self._copies.extendleft(reversed(others))

    def _may_have(self, record: bytes, consumer: Consumer) -> bool:
        """Whether a consumer may have a copy: nobody else holds messages of its key."""
        if not self.rules.ordered:
            return True
        key = records.message_of(record).ordering_key
        return self._lanes.may_have(key, consumer=consumer.number)

    def _take_returned(self, response: Response) -> None:
        """Deliver what was given back."""
        while self._returned and response.room > 0:
            offset = self._returned[0]
            waits = not self.progress.is_settled(offset) and not self.leases.held(offset)
            if waits and not self._lease_one(offset, response):
                return
            self._returned.popleft()

    def _take_selected(self, response: Response) -> int:
        """Deliver one by one, where a filter or an ordering key may be in the way."""
        consumer = response.consumer.number
        for offset in self._lanes.ready(consumer, now=response.now):
            if response.room <= 0 or not self._lease_one(offset, response):
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
                if not self._lease_one(offset, response):
                    break
                self.progress.advance(offset + 1)
            else:
                self.progress.advance(offset + 1)
                if self._lanes.admit(offset, message.ordering_key, consumer=consumer):
                    if not self._lease_one(offset, response):
                        self._lanes.postpone(offset)
                        break
                    self._lanes.hold(offset, consumer=consumer)
        return looked

    def _lease_one(self, offset: int, response: Response) -> bool:
        number, index = offset >> SHIFT, offset & MASK
        run = Run(self.progress.blocks[number], number, index, index + 1)
        return self._lease(run, response) == 1

    def _lease(self, run: Run, response: Response) -> int:
        """Lease as much of a run as fits; returns how much that is."""
        block, number, begin, end = run
        taken = self._log.chunk(number).records[begin:end]
        count = response.fit(taken)
        if not count:
            return 0
        taken = taken[:count]
        fitting = Run(block, number, begin, begin + count)
        issue = self.leases.grant(fitting, response.consumer, now=response.now)
        delivery = ack_ids.delivery(self.leases.epoch, issue)
        ids = ack_ids.encode(self._source.uid, delivery, run.offset, run.offset + count)
        attempt = issue - block.unsent.get(begin, 0) if block.unsent else issue
        response.add(taken, ids, attempt=attempt if self.rules.max_attempts else 0)
        if self.duplicate_next:
            copies = min(count, self.duplicate_next)
            self.duplicate_next -= copies
            self._copies.extend(enumerate(taken[:copies], run.offset))
        self._journal.delivered(self._source, run.offset, count, delivery, attempt, response.now)
        return count

    # Settling

    def acknowledge(
        self,
        issued: array[int],
        offsets: array[int],
        *,
        now: float,
        refuse: Mapping[int, str] = NO_REFUSALS,
    ) -> dict[int, str]:
        """Settle deliveries; says which of them could not be and why, by position.

        With exactly-once those are refused; otherwise they are old, and ignored.

        Args:
            issued: Which delivery of each message.
            offsets: The messages.
            now: The time.
            refuse: A fault: which of them to refuse, and why.
        """
        self._give_back_refused(issued, offsets, refuse, now=now)
        plain = not (refuse or self.lose_acks or self.rules.ordered)
        if plain and (runs := self.leases.match_runs(issued, offsets)):
            for run in runs:
                self.leases.release_run(run)
                self.progress.settle_run(run)
            self._journal.acked(self._source, issued, offsets, (), now)
            return {}
        good, failed = self.leases.match(issued, offsets, refuse)
        lost, good = good[: self.lose_acks], good[self.lose_acks :]
        self.lose_acks -= len(lost)
        if self.rules.ordered:
            failed |= self._settle_in_order(good, offsets)
        else:
            for at in good:
                self._settle(offsets[at])
        self._journal.acked(self._source, issued, offsets, {*failed, *lost}, now)
        return failed

    def _settle_in_order(self, good: Iterable[int], offsets: array[int]) -> dict[int, str]:
        failed: dict[int, str] = {}
        for at in sorted(good, key=lambda at: offsets[at]):
            offset = offsets[at]
            if offset not in self._lanes:
                self._settle(offset)
            elif self.rules.exactly_once and not self._lanes.is_first(offset):
                failed[at] = UNORDERED_ACK_ID
            else:
                self.leases.release(offset)
                for settled in self._lanes.ack(offset):
                    self.progress.settle(settled)
        return failed

    def _settle(self, offset: int) -> None:
        self.leases.release(offset)
        self.progress.settle(offset)

    def modify(
        self,
        issued: array[int],
        offsets: array[int],
        seconds: float,
        *,
        now: float,
        refuse: Mapping[int, str] = NO_REFUSALS,
    ) -> dict[int, str]:
        """Let leases end `seconds` from now; zero gives the messages back. See `acknowledge`."""
        self._give_back_refused(issued, offsets, refuse, now=now)
        good, failed = self.leases.match(issued, offsets, refuse)
        for offset in sorted(offsets[at] for at in good):
            if seconds > 0:
                self.leases.extend(offset, ends_at=now + seconds)
            elif self.leases.held(offset):  # it may have gone back with another of its key
                self._give_back(offset, now=now)
        self._journal.modified(self._source, issued, offsets, seconds, failed, now)
        return failed

    def _give_back_refused(
        self,
        issued: array[int],
        offsets: array[int],
        refuse: Mapping[int, str],
        *,
        now: float,
    ) -> None:
        """A fault: what is called invalid must stay invalid, so its lease ends."""
        if INVALID_ACK_ID in refuse.values():
            kept = {at: "" for at in range(len(offsets)) if refuse.get(at) != INVALID_ACK_ID}
            for at in self.leases.match(issued, offsets, kept)[0]:
                if self.leases.held(offsets[at]):  # it may have gone back with another of its key
                    self._give_back(offsets[at], now=now)

    def discard(self, offset: int) -> None:
        """Settle a message that went another way than by an ack."""
        if self.leases.held(offset):
            self.leases.release(offset)
        for settled in self._lanes.remove(offset) if offset in self._lanes else (offset,):
            self.progress.settle(settled)

    def leave_out(self, issued: array[int], offsets: array[int], *, now: float) -> None:
        """Settle deliveries of which a transform made nothing, in whatever order they are."""
        good, failed = self.leases.match(issued, offsets, NO_REFUSALS)
        for at in good:
            self.discard(offsets[at])
        self._journal.acked(self._source, issued, offsets, failed, now)

    def fail(self, issued: array[int], offsets: array[int], *, now: float) -> None:
        """Give back deliveries whose transform failed; they come again after a while."""
        good, failed = self.leases.match(issued, offsets, NO_REFUSALS)
        for at in good:
            attempts = self.leases.attempts(offsets[at])
            pause = min(_FIRST_PAUSE * 2.0 ** min(attempts - 1, 60), _LONGEST_PAUSE)
            self._give_back(offsets[at], now=now, at_least=0.0 if self.rules.max_backoff else pause)
        self._journal.modified(self._source, issued, offsets, 0.0, failed, now)

    def withdraw(self, issued: array[int], offsets: array[int]) -> None:
        """Undo deliveries that were never sent: they do not count, and come again at once."""
        good, _ = self.leases.match(issued, offsets, NO_REFUSALS)
        for offset in sorted((offsets[at] for at in good), reverse=True):
            if offset not in self._lanes:
                self._returned.appendleft(offset)
            elif self.leases.held(offset):  # it may have gone back with another of its key
                for later in self._lanes.give_back(offset):
                    if later != offset and self.leases.held(later):
                        self.leases.release(later)
            self.leases.withdraw(offset)
        self._journal.withdrawn(self._source, issued, offsets)

    # Coming again

    def poll(self, now: float) -> None:
        """End the leases whose time has passed, and let through what was held back long enough."""
        for offset in self.leases.expired(now):
            self._give_back(offset, now=now)
        while self._delayed and self._delayed[0][0] <= now:
            _, offset = heapq.heappop(self._delayed)
            if offset not in self._lanes:
                self._returned.append(offset)

    def _give_back(self, offset: int, *, now: float, at_least: float = 0.0) -> None:
        """A leased message was not acked: it comes again, now or later."""
        attempts = self.leases.attempts(offset)
        delay = max(self._backoff(attempts), at_least)
        if offset in self._lanes:
            for later in self._lanes.give_back(offset, not_before=now + delay):
                if self.leases.held(later):
                    self.leases.release(later)
        else:
            self.leases.release(offset)
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
        self.leases.begin_epoch()
        self._await_nothing()
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
            if not self.progress.is_settled(offset):  # it may have gone with one before it
                self.discard(offset)
        self.progress.skip_to(target)

    def hand_over(self, old: Consumer, new: Consumer) -> None:
        """Let one consumer take over what another holds."""
        self.leases.hand_over(old, new)
        self._lanes.hand_over(old.number, new.number)

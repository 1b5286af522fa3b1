"""Keeps messages from their arrival until they are let go: leases, renews, hands over."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pubsub_aio._core.lanes import Lanes
from pubsub_aio._core.leases import Block, LeaseTable
from pubsub_aio._wire import schema
from pubsub_aio.subscriber.alarm import Alarm
from pubsub_aio.subscriber.complaints import Complaints
from pubsub_aio.subscriber.copies import Copies
from pubsub_aio.subscriber.fates import Fates
from pubsub_aio.subscriber.halts import Halts
from pubsub_aio.subscriber.held import Held
from pubsub_aio.subscriber.options import Options
from pubsub_aio.subscriber.overdue import Overdue
from pubsub_aio.subscriber.receipts import Receipts
from pubsub_aio.subscriber.restarts import GivenBack, Restart
from pubsub_aio.subscriber.sender import Sender

_OVERFLOW_DELAY = 1  # seconds after which what was too much may come again

M = TypeVar("M", bound=Held)


class Keeping(Generic[M]):
    """Keeps messages from their arrival until they are let go. It belongs to its loop.

    Args:
        sender: Tells the server.
        options: How the subscription is to be.
        report: Is told of what should not happen: a kind, and what to do about it.
    """

    def __init__(
        self, sender: Sender, options: Options, report: Callable[[str, str], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.leases: LeaseTable[M] = LeaseTable(options.flow_control)
        self.knows_what_comes_again = True
        """Whether a message that was given back is recognised."""
        self.deliver: Callable[[list[M]], None] = lambda _: None
        """Takes messages that are leased."""
        self.room = asyncio.Event()
        """Set while more may be read from the server."""
        self.room.set()
        self.freed = asyncio.Event()
        """Set when the server has answered, and so may have room for more."""
        self.watch_all = True
        """Whether every callback's end must be told."""
        self._sender = sender
        self._report = report
        self._complaints = Complaints(self.counts, report)
        self._options = options
        self._ordered: bool | None = None
        self._follow_up = True  # something depends on which message is settled
        self._lanes: Lanes[M] = Lanes()
        self.given_back: GivenBack[M] = GivenBack(self._lanes)
        """What was given back where order matters."""
        self._copies: Copies[M] = Copies()
        self._fates: Fates[M] = Fates()
        self.ending = False
        """Whether nothing more is to be handed over."""
        self._put_aside: list[M] = []  # what came and is not kept
        self._acked: list[Block[M]] = []  # of which messages were acked, and not counted yet
        self._counting = False  # they are to be counted in the loop's next turn
        self._overdue: Overdue[M] = Overdue()
        self._receipts: Receipts[M] = Receipts(self._leave_out)
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._on_alarm)
        self.halts: Halts[M] = Halts(
            self.leases, self._overdue, sender.outbox, self.room, options.max_overdue_callbacks
        )
        """Whether nothing is leased at the moment, and why."""

    # What the server says of the subscription

    @property
    def ordered(self) -> bool | None:
        """Whether ordering keys matter; none as long as nobody has told."""
        return self._ordered

    @ordered.setter
    def ordered(self, ordered: bool) -> None:
        self._ordered = ordered
        self._watch()
        if not ordered:
            self._run(self._lanes.give_up())

    @property
    def exactly_once(self) -> bool:
        """Whether each receipt and ack is confirmed by the server."""
        return self.leases.exactly_once

    @exactly_once.setter
    def exactly_once(self, exactly_once: bool) -> None:
        self.leases.exactly_once = exactly_once
        self._sender.outbox.one_by_one = exactly_once

    def _watch(self) -> None:
        self.watch_all = bool(self._overdue) or self._ordered is not False
        unsettled = self._overdue.any_unsettled
        self._follow_up = unsettled or self._ordered is not False or bool(self._copies)
        if self._follow_up:
            self._follow_acks()

    def _follow_acks(self) -> None:
        """Something depends on which message is acked next."""
        self._follow_up = True
        for block in self._acked:
            block.gathers_in = 0

    # Acks

    def _acks_wait(self, block: Block[M]) -> None:
        """The first of a block was acked: count that, and what is acked meanwhile, in a turn."""
        self._acked.append(block)
        if not self._counting:
            self._counting = True
            self._loop.call_soon(self._after_acks)

    def count_acks(self) -> None:
        """Let go of what was acked, and tell the server soon."""
        if not self._acked:
            return
        blocks, self._acked = self._acked, []
        for block in blocks:
            acked = self.leases.release_acked(block, now=self._loop.time())
            self._fates.tell(acked, acked=True)
            if self._ordered is not False and self.leases.exactly_once:
                self._ack_in_order(acked)
            else:
                self._sender.acks += self._ids(acked)
        self._sender.acks_wait()

    def _ack_in_order(self, messages: list[M]) -> None:
        """Have the acks of each key reach the server one after another, or it refuses them."""
        for message in messages:
            if key := message.ordering_key:
                self._sender.ack_in_order(key, message.place, self._ids([message]))
            else:
                self._sender.acks += self._ids([message])

    def _after_acks(self) -> None:
        self._counting = False
        self.count_acks()
        if self.leases.received:
            self.lease_more()

    # Arrival

    def receive(self, responses: list[bytes]) -> bool:
        """Take in responses, of a stream or of a pull; returns whether they brought messages.

        Raises:
            DecodeError: One of them is none.
        """
        raise NotImplementedError

    def _heed(self, said: Sequence[schema.StreamingPullResponse.SubscriptionProperties]) -> None:
        """The server says how the subscription is, if it does; it may have been changed."""
        if not said:
            return
        last = said[-1]
        if last.message_ordering_enabled is not self._ordered:
            self.ordered = last.message_ordering_enabled
        if last.exactly_once_delivery_enabled is not self.leases.exactly_once:
            self.exactly_once = last.exactly_once_delivery_enabled

    def _take_in(self, block: Block[M], messages: list[M]) -> None:
        """Keep what came together, once its receipt is confirmed where that is called for."""
        self.counts["received"] += len(messages) * block.weight
        if self.ending:
            self._put_aside += messages
            return
        if self._ordered is not False:
            messages = self._admit(messages, block.received_at)
        if self.leases.exactly_once:
            for message in messages:
                key = message.ordering_key if self._ordered is not False else ""
                for older in self._receipts.add(message, self._ids([message]), key):
                    older.lease = None
            self._sender.extend(self._ids(messages), self.extension)
            self._sender.flush()
            self._bound()
        else:
            self._keep(block, messages)

    def _keep(self, block: Block[M], messages: list[M]) -> None:
        leases = self.leases
        if copies := leases.receive(block, messages):
            self.counts["copies"] += len(copies)
            holders = [*dict.fromkeys(map(leases.holder_of, copies))]
            if not leases.exactly_once:  # otherwise the last whose receipt was confirmed is valid
                self._copies.note(copies)
                self._sender.extend(self._ids(holders), self.extension)
                self._watch()
            self._renew_within(self.extension, holders)
        self.lease_more()
        if leases.received:
            self._bound()
        if leases.next_at < self._alarm.at:
            self._alarm.set(leases.next_at)

    @property
    def gathered(self) -> int:
        """Messages that came and are not received as yet, because they are gathered first."""
        return 0

    @property
    def wanted(self) -> int:
        """How many more messages may be asked for, where the server is asked for each."""
        leases = self.leases
        if self.halts.stuck or not leases.has_room():
            return 0
        held = leases.leased + leases.received + len(self._receipts) + self.gathered
        return leases.flow.max_outstanding_messages - held

    def _bound(self) -> None:
        """Stop reading when enough waits to be leased, and give back what is too much."""
        leases, flow = self.leases, self.leases.flow
        waiting = leases.received + len(self._receipts)
        full = waiting >= leases.most_received or leases.received_bytes >= flow.max_bytes
        if not full and self.room.is_set():
            return
        if not waiting:  # not sooner: who ignores the limits would have most of it nacked
            self.room.set()
            return
        self.room.clear()
        if too_many := self.leases.overflow():
            self.counts["overflow"] += len(too_many)
            self._tell_nack(too_many, _OVERFLOW_DELAY)
            for message in too_many:
                self._settled(message, acked=False, delay=_OVERFLOW_DELAY)
        if not leases.received and not self._receipts:
            self.room.set()

    def lease_more(self) -> None:
        """Lease what the limits allow, and hand it over."""
        if self._acked:
            self.count_acks()
        if self.ending or self.halts.stuck:
            return
        for messages in self.leases.take(now=self._loop.time()):
            if self._ordered is not False:
                ready, overtaken = self._lanes.enter(messages)
                self._take_back(overtaken)
                self._run(ready)
            else:
                self.deliver(messages)
        if not self.room.is_set():
            self._bound()

    def _run(self, ready: list[M]) -> None:
        if ready and not self.ending:
            self.deliver(ready)
        elif ready:
            self.give_back(ready)

    def _settled(self, message: M, *, acked: bool, delay: int = 0, told: bool = True) -> None:
        """Follow up on a message that is let go.

        Args:
            message: Which.
            acked: Whether it is dealt with, or comes again.
            delay: Seconds after which it may come.
            told: Whether the server is told of it, and so will answer.
        """
        self._overdue.settled(message)
        if not acked:
            self._fates.tell([message], acked=False)
        if (further := self._copies.take([message])) and acked:
            self._sender.acks += further
            self._sender.acks_wait()
        self._watch()
        if self._ordered is False or not message.ordering_key:
            return
        if acked:
            self._run(self._lanes.acked(message))
            return
        ready, later = self._lanes.given_back(message, at=self._loop.time() + delay)
        self.given_back.add([message], told=told)
        self._take_back(later, delay)
        self._run(ready)

    # Messages that come again

    def _admit(self, messages: list[M], now: float) -> list[M]:
        """Those messages that are in order; the others are given back."""
        admitted = self._lanes.admit(messages, now=now)
        for delay, stale in admitted.stale.items():
            self.counts["stale"] += len(stale)
            self._tell_nack(stale, math.ceil(delay))
            self.given_back.add(stale, stale=True)
        self._take_back(admitted.overtaken)
        return admitted.accepted

    def _take_back(self, messages: list[M], delay: int = 0) -> None:
        """Let go of messages that come again behind an earlier one; who works on them goes on."""
        if not messages:
            return
        gone = set(messages)
        withdrawn = self.leases.withdraw(lambda one: one in gone)
        withdrawn += self._receipts.withdraw(lambda one: one in gone)
        gone.difference_update(withdrawn)
        for message in messages:
            if message not in gone:
                continue
            self.leases.release(message)
            if self._lanes.has(message):
                self._overdue.expire(message, begun=True)
            self._overdue.settled(message)
        self._watch()
        self._fates.tell(messages, acked=False)
        self._tell_nack(messages, delay)
        self.given_back.add(messages)

    def _leave(self, message: M) -> None:
        """Let the deadline of a message pass.

        Where order matters the deadline is set anew, so that it is known when that will be.
        """
        if self._ordered is not False and message.ordering_key:
            self._tell_nack([message], self.extension)
        self._settled(message, acked=False, delay=self.extension)

    def _tell_nack(self, messages: Sequence[M], delay: int = 0) -> None:
        self._sender.nack(self._ids(messages) + self._copies.take(messages), delay)

    def _ids(self, messages: Sequence[M]) -> list[str]:
        """The ack ids of these."""
        return [message.ack_id for message in messages]

    # Leases that end

    @property
    def extension(self) -> int:
        """By how many seconds a lease is extended now."""
        leases = self.leases
        flow, exactly_once = leases.flow, leases.exactly_once
        return math.ceil(leases.ack_times.extension(flow, exactly_once=exactly_once))

    @property
    def overdue(self) -> int:
        """How many callbacks run on although their leases ended."""
        return len(self._overdue)

    def _expire(self, expired: list[M]) -> None:
        """Messages were held for too long; their callbacks go on."""
        nack = self._options.on_lease_expiry == "nack"
        if nack:
            self._tell_nack(expired)
        for message in expired:
            self._overdue.expire(message, begun=not self._lanes.waits(message))
        for message in expired:
            if nack:
                self._settled(message, acked=False)
            else:
                self._leave(message)
        self._watch()
        self._complaints.expired(len(expired), self.leases.flow.max_lease_duration)
        if self.halts.at_overdue_cap:
            self._report("overdue", "; ".join(self.halts.reasons()))
        self.lease_more()

    # Time

    def _on_alarm(self) -> None:
        """Renew what must be renewed, and let go of what was held too long."""
        self.count_acks()
        now = self._loop.time()
        self._complaints.late(now - self._alarm.at)
        due = self.leases.poll(now=now)
        if due.renew:
            ids = self._ids(due.renew) + self._copies.of(due.renew)
            self.counts["extended"] += len(ids)
            self._sender.extend(ids, math.ceil(due.extension))
            self._sender.flush()
        if due.expired:
            self._expire(due.expired)
        self._alarm.set(self.leases.next_at)

    def _renew_within(self, seconds: int, messages: list[M]) -> None:
        """The deadlines of these were moved; they may be sooner than was reckoned with."""
        for message in messages:
            self.leases.renew_within(seconds, message, now=self._loop.time())
        if self.leases.next_at < self._alarm.at:
            self._alarm.set(self.leases.next_at)

    # Exactly-once

    def _keep_sure(self, messages: list[M]) -> None:
        """Keep messages whose receipt is confirmed."""
        size = sum(message.size for message in messages)
        block: Block[M] = Block(self._loop.time(), size)
        for message in messages:
            message.lease = block
        self._keep(block, messages)

    def _leave_out(self, message: M, ack_ids: set[str]) -> bool:
        """Forget deliveries that were refused; returns whether anything is left of the message."""
        del message, ack_ids
        return False

    def trust(self) -> None:
        """Whatever comes is in order from now on."""

    def all_read(self, restarts: list[Restart]) -> None:
        """Whatever was sent before these messages were given back has been read."""
        self._lanes.all_read(restarts)

    # The end

    def close(self) -> None:
        """Lease no more; give back what waits to be leased."""
        self.count_acks()
        self.ending = True
        self._tell_nack([*self.leases.give_back(), *self._receipts.withdraw(lambda _: True)])
        self.give_back(self._lanes.give_up())
        self.room.set()

    def give_back_aside(self) -> None:
        """Give back what came and was not kept, now that it cannot come again the same way."""
        put_aside, self._put_aside = self._put_aside, []
        self._tell_nack(put_aside)

    def give_back(self, messages: Sequence[M]) -> None:
        """Give back what is held still, of these."""
        held = [message for message in messages if self.leases.release(message)]
        self._fates.tell(held, acked=False)
        self._tell_nack(held)

    def stop(self) -> None:
        """Give back everything, and stop to renew."""
        self.count_acks()
        self.give_back(self.leases.held())
        self._alarm.set(math.inf)

"""What a subscription holds: has it room for more, what must be renewed, what is let go.

Messages that came together are kept in one counted block, and leased together where the limits
allow, so that a message costs nothing here but a counter when it is settled.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from pubsub_aio._core.ack_times import AckTimes
from pubsub_aio._core.held_ids import HeldIds
from pubsub_aio.config import FlowControl

RECEIPT_DELAY = 0.05
"""Most messages are settled sooner than this; the others are then extended for the first time."""

RENEW_AT = 0.6
"""The part of its extension after which a lease is renewed, so that a lost request can be sent
again in time."""

GATHER = 0.25
"""What falls due within these seconds is renewed together."""


class Leased(Protocol):
    """What the table knows of a message."""

    lease: object | None

    @property
    def message_id(self) -> str: ...

    @property
    def size(self) -> int: ...

    def renew_with(self, copy: Self) -> None:
        """Take over the ack id of another delivery of the same message, and leave it the own."""


M = TypeVar("M", bound=Leased)


class Block(Generic[M]):
    """Messages that came together, counted."""

    __slots__ = (
        *("acked", "bytes", "due_at", "exact", "expires_at", "gathers_in", "held", "home", "ids"),
        *("messages", "order", "received_at", "renewed", "weight"),
    )

    def __init__(self, received_at: float, size: int, *, weight: int = 1) -> None:
        self.messages: list[M] = []
        self.weight = weight
        """What each of its messages counts for; more than one if it stands for many."""
        self.ids: Collection[str] = ()
        """Of its messages; whoever makes it may know them."""
        self.acked: list[M] = []
        """Those that were acked, and are not counted yet; they have no lease any more."""
        self.gathers_in = 0
        """The thread where messages may add themselves to these; 0 if nobody would count them."""
        self.held = 0
        self.bytes = size
        """An upper bound of what its unsettled messages take; the sum of their sizes if exact."""
        self.exact = False
        self.received_at = received_at
        self.expires_at = math.inf
        self.renewed = False
        self.order = (0, 0)
        """When it came among the others, and which part of what came together it is."""
        self.due_at = math.inf
        self.home: dict[Block[M], None] | None = None


@dataclass(frozen=True, slots=True)
class Due(Generic[M]):
    """What is to be done, and when to ask again."""

    renew: list[M]
    """Messages whose leases are to be extended by `extension` seconds."""
    extension: float
    expired: list[M]
    """Messages held for too long, in the order they came; they count no more."""
    next_at: float
    """When to poll again; infinity if there is nothing to wait for."""


class LeaseTable(Generic[M]):
    """Everything that a subscription received and has not settled.

    Args:
        flow: The limits.
        min_received: How many messages may wait to be leased, however small the limits are.
    """

    def __init__(self, flow: FlowControl, *, min_received: int = 1_000) -> None:
        self._min_received = min_received
        self.ack_times = AckTimes()
        self.exactly_once = False
        self.leased = 0
        self.received = 0
        """Messages that came and are not leased yet."""
        self.received_bytes = 0
        self._leased_bytes = 0
        self._waiting: deque[Block[M]] = deque()
        self._loose: dict[Block[M], None] = {}  # leased, with sizes not looked at yet
        self._ids: HeldIds[M] = HeldIds(self._everything)
        self._round_left = 0
        self._round_ends_at = -math.inf
        self._young: dict[Block[M], None] = {}
        self._fresh: dict[Block[M], None] = {}
        self._tick_at = math.inf
        self._aged: list[tuple[float, int, Block[M]]] = []
        self._count = 0
        self.flow = flow

    @property
    def flow(self) -> FlowControl:
        """The limits; they may be changed at any time."""
        return self._flow

    @flow.setter
    def flow(self, flow: FlowControl) -> None:
        self._flow = flow
        self._enough = flow.resume_threshold * flow.max_messages
        self._enough_bytes = flow.resume_threshold * flow.max_bytes
        self._round_ends_at = -math.inf

    # Receiving and leasing

    def receive(self, block: Block[M], messages: list[M]) -> list[M]:
        """Keep what came; returns copies of messages that are held already, which are not kept."""
        held = self.leased + self.received
        ids = block.ids or [message.message_id for message in messages]
        messages, ids, copies = self._ids.add(messages, ids, held=held)
        if not messages:
            return copies
        self._count += 1
        block.order = (self._count, 0)
        block.ids = ids
        block.messages = messages
        block.held = len(messages)
        self.received += block.held * block.weight
        self.received_bytes += block.bytes
        self._waiting.append(block)
        if not self._young and not self._fresh:
            self._tick_at = block.received_at + RECEIPT_DELAY
        self._young[block] = None
        block.home = self._young
        return copies

    def holder_of(self, copy: M) -> M:
        """The held message that a copy is of, which has just come."""
        return self._ids.holder_of(copy)

    def has_room(self) -> bool:
        """Whether a round of leasing may begin."""
        if self.leased >= self._enough:
            return False
        if self._leased_bytes >= self._enough_bytes:
            self._tighten()
        return self._leased_bytes < self._enough_bytes

    def take(self, *, now: float) -> list[list[M]]:
        """Lease as many of the received messages as the limits allow, in the order they came."""
        taken: list[list[M]] = []
        while self._waiting:
            if now > self._round_ends_at or not self._round_left:
                if not self.has_room():
                    break
                self._round_left = self._flow.max_request_batch_size
                self._round_ends_at = now + self._flow.max_request_batch_latency
            block = self._waiting[0]
            if block.held > self._round_left:
                block = self._split(block, self._round_left)
            else:
                self._waiting.popleft()
            self._round_left = max(0, self._round_left - self._move(block))
            block.expires_at = expires_at = now + self._flow.max_lease_duration
            if expires_at < block.due_at and (
                block.home is None or expires_at < block.received_at + 2 * RECEIPT_DELAY
            ):
                self._push(block, expires_at)
            taken.append(block.messages)
        return taken

    def _move(self, block: Block[M]) -> int:
        """Count a received block as leased; returns how many that are."""
        count, size = block.held * block.weight, block.bytes
        self.received -= count
        self.received_bytes -= size
        self.leased += count
        self._leased_bytes += size
        if not block.exact:
            self._loose[block] = None
        return count

    # Settling

    def release(self, message: M) -> Block[M] | None:
        """Let go of a leased message; none if it was let go before."""
        block: Block[M] | None = message.lease  # type: ignore[assignment] # opaque to messages
        if block is None:
            return None
        message.lease = None
        self.leased -= block.weight
        block.held -= 1
        if block.exact:
            size = message.size
            block.bytes -= size
            self._leased_bytes -= size
        if not block.held:
            self._finish(block)
        return block

    def release_acked(self, block: Block[M], *, now: float) -> list[M]:
        """Let go of a block's acked messages, and return them; it gathers no more."""
        acked, block.acked, block.gathers_in = block.acked, [], 0
        count = len(acked) * block.weight
        self.leased -= count
        block.held -= len(acked)
        if block.exact:
            size = sum(message.size for message in acked)
            block.bytes -= size
            self._leased_bytes -= size
        if block.renewed:
            self.ack_times.add(now - block.received_at, count=count)
        if not block.held:
            self._finish(block)
        return acked

    def _finish(self, block: Block[M]) -> None:
        """Forget a block of which everything is settled."""
        self._leased_bytes -= block.bytes
        if not block.exact:
            del self._loose[block]
        self._ids.remove(block.ids)
        if block.home is not None:
            del block.home[block]
        if not block.renewed:
            self.ack_times.add(0.0, count=len(block.messages) * block.weight)
        block.messages, block.ids = [], ()  # it may linger among the aged

    def give_back(self) -> list[M]:
        """Let go of everything that is received and not leased, and return it."""
        returned: list[M] = []
        while self._waiting:
            returned += self._let_go(self._waiting.popleft())
        return returned

    @property
    def most_received(self) -> int:
        """How many messages may wait to be leased: as many as may be leased, or a few responses."""
        return max(self._flow.max_outstanding_messages, self._min_received)

    def overflow(self) -> list[M]:
        """Let go of what came last and is too much to keep, and return it.

        A server that keeps to the limits that it was told never sends so much.
        """
        returned: list[M] = []
        while drop := self._too_many(self._waiting):
            block = self._waiting.pop()
            if drop < block.held:
                self._waiting.append(self._split(block, block.held - drop))
            returned[:0] = self._let_go(block)
        return returned

    def _too_many(self, waiting: deque[Block[M]]) -> int:
        """How many of the last block's messages must go; one message may always stay."""
        most, most_bytes = self.most_received, self._flow.max_bytes
        if self.received <= most and self.received_bytes <= most_bytes:
            return 0
        block = waiting[-1]
        self._measure(block)
        left, size, drop = self.received, self.received_bytes, 0
        while drop < block.held and left > 1 and (left > most or size > most_bytes):
            drop += 1
            left -= block.weight
            size -= block.messages[-drop].size
        return drop

    def withdraw(self, match: Callable[[M], bool]) -> list[M]:
        """Let go of what is received and not leased and matches, and return it."""
        withdrawn: list[M] = []
        for block in list(self._waiting):
            picked = [message for message in block.messages if match(message)]
            if not picked:
                continue
            withdrawn += picked
            self._measure(block)
            size = sum(message.size for message in picked)
            block.bytes -= size
            self.received_bytes -= size
            self.received -= len(picked) * block.weight
            block.held -= len(picked)
            for message in picked:
                message.lease = None
            block.messages = [message for message in block.messages if message.lease is block]
            if not block.held:
                self._waiting.remove(block)
                self._move(block)
                block.renewed = True
                self._finish(block)
        return withdrawn

    def _let_go(self, block: Block[M]) -> list[M]:
        self._move(block)
        block.renewed = True  # nobody worked on it: it says nothing about ack times
        for message in (messages := block.messages):
            self.release(message)
        return messages

    def held(self) -> list[M]:
        """Every message that is leased and not settled, in the order they came."""
        waiting = {*self._waiting}
        return [m for m in self._everything() if m.lease not in waiting]

    def _everything(self) -> list[M]:
        """Every message that is not settled, in the order they came."""
        blocks = {*self._young, *self._fresh, *(block for _, _, block in self._aged)}
        in_order = sorted(blocks, key=lambda block: block.order)
        return [m for block in in_order for m in block.messages if m.lease is block]

    @property
    def leased_bytes(self) -> int:
        """What the leased messages take, exactly."""
        self._tighten()
        return self._leased_bytes

    # Time

    def poll(self, *, now: float) -> Due[M]:
        """Say what is due; what must be renewed is scheduled for its next renewal."""
        extension = self.ack_times.extension(self._flow, exactly_once=self.exactly_once)
        renew: list[M] = []
        expired: list[tuple[tuple[int, int], list[M]]] = []
        if now >= self._tick_at:
            blocks, self._fresh, self._young = self._fresh, self._young, {}
            for block in blocks:
                block.home = None
                self._attend(block, now, extension, renew, expired)
            self._tick_at = now + RECEIPT_DELAY if self._fresh else math.inf
        while self._aged and self._aged[0][0] <= now + GATHER:
            due_at, _, block = self._aged[0]
            stale = not block.held or due_at != block.due_at
            if not stale and due_at > now and due_at == block.expires_at:
                break  # a lease does not end early
            heapq.heappop(self._aged)
            if not stale:
                self._attend(block, now, extension, renew, expired)
        in_order = [message for _, messages in sorted(expired) for message in messages]
        return Due(renew, extension, in_order, self.next_at)

    @property
    def next_at(self) -> float:
        """When to poll; infinity if there is nothing to wait for."""
        return min(self._tick_at, self._aged[0][0]) if self._aged else self._tick_at

    def _attend(
        self,
        block: Block[M],
        now: float,
        extension: float,
        renew: list[M],
        expired: list[tuple[tuple[int, int], list[M]]],
    ) -> None:
        """Renew a block's unsettled messages, or let them go."""
        live = [message for message in block.messages if message.lease is block]
        if now >= block.expires_at:
            expired.append((block.order, live))
            for message in live:
                self.release(message)
            return
        if not block.renewed:
            block.renewed = True
            self.ack_times.add(0.0, count=len(block.messages) - len(live))
        block.messages = live
        renew += live
        self._push(block, min(now + extension * RENEW_AT, block.expires_at))

    def renew_within(self, seconds: float, message: M, *, now: float) -> None:
        """The deadline of a held message was moved to so many seconds from now: renew it before."""
        block: Block[M] | None = message.lease  # type: ignore[assignment] # opaque to messages
        due_at = now + seconds * RENEW_AT
        if block is not None and block.home is None and due_at < block.due_at:
            self._push(block, due_at)

    def _push(self, block: Block[M], due_at: float) -> None:
        self._count += 1
        block.due_at = due_at
        heapq.heappush(self._aged, (due_at, self._count, block))

    # Bytes

    def _tighten(self) -> None:
        """Replace upper bounds by the sizes of what is held."""
        for block in self._loose:
            held = [message for message in block.messages if message.lease is block]
            exact = sum(message.size for message in (*held, *block.acked))
            self._leased_bytes -= block.bytes - exact
            block.bytes = exact
            block.exact = True
        self._loose.clear()

    def _measure(self, block: Block[M]) -> None:
        """Look at the sizes of a waiting block's messages."""
        if not block.exact:
            size = sum(message.size for message in block.messages)
            self.received_bytes -= block.bytes - size
            block.bytes, block.exact = size, True

    def _split(self, block: Block[M], count: int) -> Block[M]:
        """Take the first messages of a waiting block into one of their own."""
        self._measure(block)
        first: Block[M] = Block(block.received_at, 0, weight=block.weight)
        first.messages, block.messages = block.messages[:count], block.messages[count:]
        for message in first.messages:
            message.lease = first
        first.ids = {message.message_id for message in first.messages}
        block.ids = {*block.ids} - first.ids
        first.held, block.held = count, block.held - count
        first.bytes, first.exact = sum(message.size for message in first.messages), True
        block.bytes -= first.bytes
        first.renewed = block.renewed
        first.order, block.order = block.order, (block.order[0], block.order[1] + 1)
        if block.home is not None:
            first.home = block.home
            first.home[first] = None
        else:
            self._push(first, block.due_at)
        return first

"""How far a subscription has come: which messages are settled, and where new ones begin."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pubsub_aio.emulator.log import MASK, SHIFT, SPAN, TopicLog

_NEVER = array("d", [math.inf]) * SPAN
_SETTLED = b"\x01" * SPAN

WHOLE = -1
"""Stands for all blocks, among those that were touched."""


class Block:
    """The state of a chunk's messages; dropped when all of them are settled."""

    __slots__ = ("check_at", "ends", "holders", "issues", "left", "settled", "unsent")

    def __init__(self, settled: bytearray) -> None:
        self.settled = settled
        self.left = settled.count(0)
        self.issues = array("I", bytes(4 * SPAN))  # how often each was leased
        self.unsent: dict[int, int] = {}  # of those, how often it was not sent, unless never
        self.ends = _NEVER[:]  # when its lease ends; never, if it is not leased
        self.holders = array("I", bytes(4 * SPAN))  # the number of the consumer that has it
        self.check_at = math.inf  # when its leases are looked at next


class Run(NamedTuple):
    """Messages side by side in one block, from `begin` up to `end`."""

    block: Block
    number: int
    begin: int
    end: int

    @property
    def offset(self) -> int:
        """The first message's offset."""
        return (self.number << SHIFT) + self.begin


@dataclass(frozen=True, slots=True)
class Position:
    """Which messages are settled, at one moment: what a snapshot remembers.

    From `frontier` on nothing is; before it everything is, but for what the blocks say.
    """

    frontier: int
    settled: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def low(self) -> int:
        """The first message that may be unsettled, rounded down to its chunk."""
        return min([number << SHIFT for number in self.settled] + [self.frontier])


class Progress:
    """The settled messages of one subscription, and a cursor through the others."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self.touched: set[int] | None = None
        """Blocks in which messages were settled since they were saved; none is noted if nobody
        saves them."""
        self.stand_at(Position(log.next))

    def read_from(self, log: TopicLog) -> None:
        """Take messages from another log, which goes on where this one ended."""
        self._log = log

    def stand_at(self, position: Position) -> None:
        """Take over a position; the cursor goes back to its first unsettled message."""
        self.blocks = {
            number: Block(bytearray(flags)) for number, flags in position.settled.items()
        }
        self.frontier = position.frontier
        self.cursor = position.low
        self.unsettled = sum(block.left for block in self.blocks.values())
        if self.frontier >> SHIFT in self.blocks:
            self.unsettled -= SPAN - (self.frontier & MASK)
        self.freed = True  # something was settled: the log may have a chunk to drop
        if self.touched is not None:
            self.touched.add(WHOLE)

    def position(self) -> Position:
        """What is settled now."""
        flags = {number: bytes(block.settled) for number, block in self.blocks.items()}
        return Position(self.frontier, flags)

    @property
    def backlog(self) -> int:
        """How many messages are not settled."""
        return self.unsettled + self._log.next - self.frontier

    @property
    def low(self) -> int:
        """The first offset that is not settled."""
        for number, block in self.blocks.items():
            return min((number << SHIFT) + block.settled.find(0), self.frontier)
        return self.frontier

    def runs(self) -> Iterator[Run]:
        """Unsettled messages from the cursor on; the caller advances it past what it took."""
        while self.cursor < self._log.next:
            number, start = self.cursor >> SHIFT, self.cursor & MASK
            block = self.blocks.get(number)
            if block is None and self.cursor < self.frontier:
                self.advance(min((number + 1) << SHIFT, self.frontier))
                continue
            if block is None:
                flags = bytearray(_SETTLED[:start] + bytes(SPAN - start))
                block = self.blocks[number] = Block(flags)
            begin = block.settled.find(0, start)
            if begin < 0:
                self.advance((number + 1) << SHIFT)
                continue
            end = block.settled.find(1, begin)
            end = min(SPAN if end < 0 else end, self._log.next - (number << SHIFT))
            if begin >= end:
                return
            self.advance((number << SHIFT) + begin)
            yield Run(block, number, begin, end)

    def cut(self, start: int, stop: int) -> Iterator[Run]:
        """The messages from `start` up to `stop`, by block; a dropped block's are left out."""
        while start < stop:
            number = start >> SHIFT
            end = min(stop, (number + 1) << SHIFT)
            block = self.blocks.get(number)
            if block:
                base = number << SHIFT
                yield Run(block, number, start - base, end - base)
            start = end

    def advance(self, offset: int) -> None:
        """Move the cursor, and the frontier with it where that is passed."""
        self.cursor = offset
        if offset > self.frontier:
            self.unsettled += offset - self.frontier
            self.frontier = offset

    def is_settled(self, offset: int) -> bool:
        """Whether a message behind the frontier is settled."""
        block = self.blocks.get(offset >> SHIFT)
        return block is None or bool(block.settled[offset & MASK])

    def settle(self, offset: int) -> None:
        """Settle one message that is behind the frontier and not settled."""
        number = offset >> SHIFT
        block = self.blocks[number]
        block.settled[offset & MASK] = 1
        self._settled(number, block, 1)

    def settle_run(self, run: Run) -> None:
        """Settle messages side by side, none of which is settled."""
        block, number, begin, end = run
        block.settled[begin:end] = _SETTLED[begin:end]
        self._settled(number, block, end - begin)

    def _settled(self, number: int, block: Block, count: int) -> None:
        self.unsettled -= count
        block.left -= count
        if self.touched is not None:
            self.touched.add(number)
        if not block.left:
            del self.blocks[number]
            self.freed = True

    def unsettled_before(self, target: int) -> list[int]:
        """The unsettled messages behind the frontier and before `target`."""
        target = min(target, self.frontier)
        found: list[int] = []
        for number, block in self.blocks.items():
            base = number << SHIFT
            if base >= target:
                continue
            flags = block.settled
            at = flags.find(0)
            while 0 <= at < target - base:
                found.append(base + at)
                at = flags.find(0, at + 1)
        return found

    def skip_to(self, target: int) -> None:
        """Settle what lies between the frontier and `target`; all before it must be settled."""
        if target > self.frontier:
            number, index = target >> SHIFT, target & MASK
            block = self.blocks.pop(self.frontier >> SHIFT, None)
            if block and self.frontier >> SHIFT == number:
                block.settled[:index] = _SETTLED[:index]
                block.left = block.settled.count(0)
                self.blocks[number] = block
            self.frontier = target
        self.cursor = max(self.cursor, target)
        self.freed = True
        if self.touched is not None:
            self.touched.add(WHOLE)

    def rewound_to(self, start: int) -> Position:
        """The position with everything from `start` on unsettled."""
        now = self.position()
        if start >= self.frontier:
            return now
        number, index = start >> SHIFT, start & MASK
        flags = {n: kept for n, kept in now.settled.items() if n < number}
        before = now.settled.get(number, _SETTLED)[:index]
        if b"\x00" in before:
            flags[number] = before + bytes(SPAN - index)
        return Position(start, flags)

"""Which messages of a subscription are settled, as it is saved: a low mark, and bits by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubsub_aio.emulator.log import SHIFT, SPAN
from pubsub_aio.emulator.progress import WHOLE, Position, Progress
from pubsub_aio.emulator.storage.saved import SavedProgress

ALL = b""
"""A block whose messages are all settled."""

_TO_DIGITS = bytes.maketrans(b"\x00\x01", b"01")
_FROM_DIGITS = bytes.maketrans(b"01", b"\x00\x01")
_TOP = 1 << SPAN  # keeps leading zeros


def saved_progress(
    uid: int, progress: Progress, touched: Iterable[int], *, active_at: float
) -> SavedProgress:
    """What became of the blocks that were touched."""
    low, numbers = progress.low, set(touched)
    whole = WHOLE in numbers
    saved = SavedProgress(uid=uid, whole=whole, low=low, active_at=active_at)
    if whole:
        numbers = set(range(low >> SHIFT, (progress.frontier >> SHIFT) + 1))
    for number in sorted(numbers):
        if number < low >> SHIFT:
            continue
        block = progress.blocks.get(number)
        if block is not None:
            flags = _packed(block.settled)
        elif (number + 1) << SHIFT <= progress.frontier:
            flags = ALL
        else:
            continue
        saved.numbers.append(number)
        saved.blocks.append(flags)
    return saved


def saved_position(position: Position) -> SavedProgress:
    """A snapshot's position, which has no subscription."""
    saved = SavedProgress(whole=True, low=position.low)
    for number in range(position.low >> SHIFT, (position.frontier >> SHIFT) + 1):
        if number in position.settled:
            flags = _packed(position.settled[number])
        elif (number + 1) << SHIFT <= position.frontier:
            flags = ALL
        else:
            continue
        saved.numbers.append(number)
        saved.blocks.append(flags)
    return saved


def restored(low: int, blocks: Mapping[int, bytes], *, first: int, end: int) -> Position:
    """The position that was saved.

    Args:
        low: Everything before it is settled.
        blocks: What was saved of blocks; of others, nothing is settled.
        first: The first message that is still there; what is not was settled.
        end: Where the next message will be.
    """
    low = max(low, first)
    frontier = max([low] + [min((number + 1) << SHIFT, end) for number in blocks])
    settled: dict[int, bytes] = {}
    for number in range(low >> SHIFT, -(-frontier >> SHIFT)):
        saved = blocks.get(number)
        if saved == ALL:
            continue
        flags = _unpacked(saved) if saved else bytes(SPAN)
        before = max(0, low - (number << SHIFT))
        flags = b"\x01" * before + flags[before:]
        if b"\x00" in flags:
            settled[number] = flags
    return Position(frontier, settled)


def _packed(flags: bytes | bytearray) -> bytes:
    return int(flags.translate(_TO_DIGITS), 2).to_bytes(SPAN // 8, "big")


def _unpacked(bits: bytes) -> bytes:
    digits = bin(int.from_bytes(bits, "big") | _TOP)[3:]
    return digits.encode().translate(_FROM_DIGITS)

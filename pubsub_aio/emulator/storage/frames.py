"""Frames of a log file: what was written in one piece is read in one piece, or not at all.

    magic | number of its batch's first frame | number | length | CRC-32 | payload

Each field has four bytes. Frames are numbered through a file. Those of a batch are written and
synced together. The checksum covers the number of the file, both numbers and the payload.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

_MAGIC = b"\xabPSL"
_HEADER = struct.Struct("<4sIIII")
_LOOK_AT_MOST = 1 << 32  # bytes
_SEED = struct.Struct("<QII")


class DamagedError(Exception):
    """A file does not hold what was written to it.

    Attributes:
        position: Where, in bytes.
    """

    def __init__(self, position: int) -> None:
        super().__init__(f"byte {position}")
        self.position = position


def framed(payloads: Sequence[bytes], *, file: int, first: int) -> list[bytes]:
    """The parts to write for a batch whose first frame has the number `first`."""
    parts: list[bytes] = []
    for number, payload in enumerate(payloads, first):
        checksum = _checksum(payload, file, first, number)
        parts += [_HEADER.pack(_MAGIC, first, number, len(payload), checksum), payload]
    return parts


def unframed(data: bytes, *, file: int) -> tuple[list[memoryview], int]:
    """The payloads of a file's data, and where the last of them ends.

    A last batch that was not written to its end is no damage: nobody was told that it is there.
    Anything else that is wrong is.

    Raises:
        DamagedError: Something that had been written to its end cannot be read.
    """
    view, position = memoryview(data), 0
    payloads: list[memoryview] = []
    while position < len(data):
        found = _frame(view, position, file)
        if found is None or found[1] != len(payloads):
            if _goes_on(data, position + 1, file, len(payloads)):
                raise DamagedError(position)
            break
        payloads.append(found[2])
        position += _HEADER.size + len(found[2])
    return payloads, position


def _frame(view: memoryview, position: int, file: int) -> tuple[int, int, memoryview] | None:
    """The frame at that position, if there is a whole one: its batch's first, number, payload."""
    begin = position + _HEADER.size
    if begin > len(view):
        return None
    magic, first, number, length, checksum = _HEADER.unpack_from(view, position)
    if magic != _MAGIC or begin + length > len(view):
        return None
    payload = view[begin : begin + length]
    if _checksum(payload, file, first, number) != checksum:
        return None
    return first, number, payload


def _goes_on(data: bytes, position: int, file: int, number: int) -> bool:
    """Whether a later batch follows: then the frame of that number had been written to its end."""
    view, looked = memoryview(data), 0
    while 0 <= (position := data.find(_MAGIC, position)) <= len(data) - _HEADER.size:
        _, first, _, length, _ = _HEADER.unpack_from(data, position)
        if first > number:
            looked += length
            # What looks like a great many frames was made so: rather too careful than too late.
            if looked > _LOOK_AT_MOST or _frame(view, position, file) is not None:
                return True
        position += 1
    return False


def _checksum(payload: bytes | memoryview, file: int, first: int, number: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_SEED.pack(file, first, number)))

"""What messages are recognised by: 128 bits for each, in columns of NumPy.

An id that is a plain number, as all of Pub/Sub's are, is its own key. Of anything else the key is a
hash, whose highest bit is set so that none is like a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Halves = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.uint32]

_TOP = 1 << 127
_LOW = (1 << 64) - 1
_ID, _ATTRIBUTE = b"message_id", b"attribute"


class Keys(NamedTuple):
    """Keys in the order of their lower halves, and the row that each is of."""

    lows: Halves
    highs: Halves
    rows: Rows

    @classmethod
    def sorted(cls, lows: Halves, highs: Halves) -> Keys:
        """Keys of the rows 0, 1 and so on; equal ones stay in the order of rows."""
        order = np.argsort(lows, kind="stable")
        return cls(lows[order], highs[order], order.astype(np.uint32))

    def without(self, rows: Rows) -> Keys:
        """The keys of all rows but these."""
        if not len(rows):
            return self
        kept = ~np.isin(self.rows, rows)
        return Keys(self.lows[kept], self.highs[kept], self.rows[kept])

    def between(self, start: int, stop: int) -> Keys:
        """The keys of some rows."""
        kept = (self.rows >= start) & (self.rows < stop)
        return Keys(self.lows[kept], self.highs[kept], self.rows[kept])


def keys_of(records: pa.RecordBatch, attribute: str = "") -> Keys:
    """The keys of messages: by their ids, or by an attribute where they have it."""
    lows, highs = _of_ids(records.column("message_id"))
    if attribute:
        # Where an attribute is there twice, the last one counts, as in a dictionary.
        values = pc.map_lookup(records.column("attributes"), attribute, "last")
        for row, value in enumerate(values.to_pylist()):
            if value is not None:
                lows[row], highs[row] = _hashed(value, _ATTRIBUTE)
    return Keys.sorted(lows, highs)


def _of_ids(ids: Any) -> tuple[Halves, Halves]:
    try:
        numbers = pc.cast(ids, pa.uint64())
        if pc.cast(numbers, pa.string()).equals(ids):
            lows = numbers.to_numpy(zero_copy_only=False).copy()
            return lows, np.zeros(len(lows), np.uint64)
    except pa.ArrowInvalid:
        pass  # there are others
    return _columns(_of_id(each) for each in ids.to_pylist())


def _of_id(message_id: str) -> tuple[int, int]:
    if message_id.isascii() and message_id.isdecimal():
        number = int(message_id) if len(message_id) <= 20 else _TOP
        if number <= _LOW and str(number) == message_id:
            return number, 0
    return _hashed(message_id, _ID)


def _hashed(text: str, kind: bytes) -> tuple[int, int]:
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=16, person=kind).digest()
    key = int.from_bytes(digest, "big") | _TOP
    return key & _LOW, key >> 64


def _columns(keys: Iterable[tuple[int, int]]) -> tuple[Halves, Halves]:
    both = [*keys]
    lows = np.fromiter((low for low, _ in both), np.uint64, len(both))
    highs = np.fromiter((high for _, high in both), np.uint64, len(both))
    return lows, highs

"""Ids of rows, by which one that is published again can be recognised.

An id is a hash of what the row says, and of the write, the batch and the partition that it is of.
The place of a row in its partition has no part in it: after a shuffle rows come in any order, and
a place that is another row's at the second time would make two messages look alike. Rows that say
the same are told apart by a number, and it does not matter which of them has which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xxhash import xxh3_128_digest

from pubsub_aio.spark.streaming.keys import Keys
from pubsub_aio.spark.streaming.seen import Run, Seen, rows_repeated

_DATA_ALONE, _WITH_MORE = b"\x00", b"\x01"


class RowIds:
    """The ids of the rows of one partition.

    It remembers 16 bytes for each row, to know what came before.

    Args:
        scope: What rows are of: a query and its batch, or a write; and the partition. Each of its
            parts counts in full.
        shown: How an id begins, for people to read.
    """

    def __init__(self, scope: Sequence[str], *, shown: str) -> None:
        start = xxh3_128_digest("".join(f"{len(part)}:{part}" for part in scope).encode())
        self._alone, self._more = start + _DATA_ALONE, start + _WITH_MORE
        self._shown = f"{shown}-"
        self._seen = Seen(math.inf)
        self._copies: dict[bytes, int] = {}

    def of(
        self,
        data: Sequence[bytes],
        attributes: Sequence[Mapping[str, str] | None],
        keys: Sequence[str],
    ) -> list[str]:
        """The ids of the rows that come next, from their columns."""
        alone = self._alone
        digests = [
            self._rich(content, more, key) if more or key else xxh3_128_digest(alone + content)
            for content, more, key in zip(data, attributes, keys, strict=True)
        ]
        joined = b"".join(digests)
        text, start = joined.hex(), self._shown
        ids = [start + text[place : place + 32] for place in range(0, len(text), 32)]
        for row in self._known(joined):
            copies = self._copies.get(digests[row], 0) + 1
            self._copies[digests[row]] = copies
            ids[row] += f"-{copies}"
        return ids

    def _rich(self, data: bytes, attributes: Mapping[str, str] | None, key: str) -> bytes:
        """The hash of a row with more than data; the length of each part goes before it."""
        pairs = sorted(attributes.items()) if attributes else ()  # their order means nothing
        head = [f"{len(pairs)},{len(key)}:{key}"]
        head += [f"{len(name)},{len(value)}:{name}{value}" for name, value in pairs]
        return xxh3_128_digest(self._more + "".join(head).encode() + data)

    def _known(self, digests: bytes) -> list[int]:
        """The rows that say what one before them says, in order; the others are remembered."""
        halves = np.frombuffer(digests, np.uint64)
        keys = Keys.sorted(halves[::2], halves[1::2])
        known = np.union1d(self._seen.rows_seen(keys), rows_repeated(keys)).astype(np.uint32)
        news = keys.without(known)
        self._seen.add(Run(news.lows, news.highs))
        return [int(row) for row in known]

"""Whether it pays to compress a request."""

from __future__ import annotations

import zlib

SAMPLE = 4_096
"""Bytes that are tried."""

WORTH = 0.8
"""The part of its size that a request must shrink to."""


def pays(request: bytes) -> bool:
    """Whether a request would become a fifth smaller at least, by a sample from its middle."""
    start = max(0, (len(request) - SAMPLE) // 2)
    sample = request[start : start + SAMPLE]
    return len(zlib.compress(sample, level=1)) <= WORTH * len(sample)

"""Durations as people write them: `10m`, `7d`, `1h30m`, `0.5s`, or plain seconds."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {"ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}
_UNITS["w"] = 7 * _UNITS["d"]
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PART = re.compile(rf"({_NUMBER})\s?(ms|[smhdw])")
_WHOLE = re.compile(rf"{_NUMBER}|(?:{_NUMBER}\s?(?:ms|[smhdw])\s?)+")
_LONGEST = 315_576_000_000 * 10**9  # 10,000 years, protobuf's limit

HOW = 'a duration is written like 600, "600s", "10m", "1h30m" or "7d"'


def nanos_of(text: str) -> int:
    """The nanoseconds that a text means. ValueError if it is no duration."""
    text = text.strip()
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no duration: {HOW}")
    parts = _PART.findall(text) or [(text, "s")]
    exact = sum(Decimal(number) * _UNITS[unit] for number, unit in parts)
    nanos = int(exact)
    if nanos != exact or nanos > _LONGEST:
        raise ValueError(f"{text[:80]!r} is too long, or finer than a nanosecond")
    return nanos


def written(nanos: int) -> str:
    """The shortest way to write a duration in one unit."""
    for unit in ("d", "h", "m", "s"):
        if nanos and nanos % _UNITS[unit] == 0:
            return f"{nanos // _UNITS[unit]}{unit}"
    seconds = Decimal(nanos) / 10**9
    return f"{seconds.normalize():f}s" if nanos else "0s"

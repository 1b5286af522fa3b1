"""Durations and timestamps: as numbers, and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from pubsub_aio.emulator.status import invalid

if TYPE_CHECKING:
    from pubsub_aio._wire import schema

_SECOND = 1_000_000_000  # in nanoseconds
_LONGEST = 315_576_000_000  # seconds in 10,000 years
_FIRST_TIME, _LAST_TIME = -62_135_596_800, 253_402_300_799  # the years 1 to 9999


def seconds_of(duration: schema.Duration) -> float:
    """A duration in seconds."""
    return float(duration.seconds + duration.nanos / 1e9)


def check_duration(duration: schema.Duration, field: str, least: float, most: float) -> None:
    """Refuse a duration out of range."""
    seconds = seconds_of(duration)
    if not least <= seconds <= most:
        raise invalid(field, f"{seconds:g}s must be between {least:g}s and {most:g}s")


def check_times(message: Message) -> None:
    """Refuse a message that holds an impossible duration or timestamp, at any depth."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        parts: Iterable[Any] = (value,) if isinstance(value, Message) else value
        for part in parts:
            kind = part.DESCRIPTOR.full_name
            if kind == "google.protobuf.Duration":
                valid = abs(part.seconds) <= _LONGEST and abs(part.nanos) < _SECOND
                valid = valid and part.seconds * part.nanos >= 0
            elif kind == "google.protobuf.Timestamp":
                valid = _FIRST_TIME <= part.seconds <= _LAST_TIME and 0 <= part.nanos < _SECOND
            else:
                valid = True
                check_times(part)
            if not valid:
                raise invalid(field.name, f"{part.seconds} s, {part.nanos} ns is not a valid time")

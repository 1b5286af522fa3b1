"""Durations as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_aio.emulator.status import invalid

if TYPE_CHECKING:
    from pubsub_aio._wire import schema


def seconds_of(duration: schema.Duration) -> float:
    """A duration in seconds."""
    return float(duration.seconds + duration.nanos / 1e9)


def check_duration(duration: schema.Duration, field: str, least: float, most: float) -> None:
    """Refuse a duration out of range."""
    seconds = seconds_of(duration)
    if not least <= seconds <= most:
        raise invalid(field, f"{seconds:g}s must be between {least:g}s and {most:g}s")

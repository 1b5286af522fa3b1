"""What a topic makes of messages before it keeps them: first its transforms, then its schema.

A schema is about what is kept: transforms may make messages fit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.topics import Topic


def taken_in(topic: Topic, bodies: list[bytes]) -> list[bytes]:
    """The messages, as the topic's schema lets them in."""
    if topic.admit is None:
        return bodies
    return [body for body in taken_in_transformed(topic, bodies) if body is not None]


def taken_in_transformed(topic: Topic, made: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """The same for what the topic's transforms made; none stands for a message they left out."""
    return topic.admit(topic.config.schema_settings, made) if topic.admit else made

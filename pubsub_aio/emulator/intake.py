"""What a topic makes of messages before it keeps them: first its transforms, then its schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.topics import Topic


def taken_in(topic: Topic, bodies: list[bytes]) -> list[bytes]:
    """The messages, as the topic's schema lets them in."""
    if topic.admit:
        bodies = topic.admit(topic.config.schema_settings, bodies)
    return bodies


def taken_in_transformed(topic: Topic, made: Sequence[bytes | None]) -> list[bytes | None]:
    """The same for what the topic's transforms made; none stands for a message they left out.

    A schema is about what is kept: transforms may make messages fit it.
    """
    kept = iter(taken_in(topic, [body for body in made if body is not None]))
    return [None if body is None else next(kept) for body in made]

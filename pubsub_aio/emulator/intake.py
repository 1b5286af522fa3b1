"""What a topic makes of messages before it keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_aio.emulator.topics import Topic


def taken_in(topic: Topic, bodies: list[bytes]) -> list[bytes]:
    """The messages, as the topic's transforms and then its schema let them in.

    A schema is about what is kept: transforms may make messages fit it.
    """
    if topic.admit:
        bodies = topic.admit(topic.config.schema_settings, bodies)
    return bodies

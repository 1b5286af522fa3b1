"""What Pub/Sub does not have, and what to use instead."""

from __future__ import annotations

from typing import Never

from pubsub_aio.errors import UnsupportedError

_INSTEAD = {
    "deliver_at": (
        "Pub/Sub has no delayed messages: have the consumer nack(delay=...) until it is time, or "
        "use Cloud Tasks"
    ),
    "transaction": (
        "Pub/Sub has no transactional messages: publish with retry=None, or write to an outbox "
        "table in your transaction and publish from there"
    ),
    "expectations": (
        "Pub/Sub does not check what was published before: use an ordering key, and a Deduplicator "
        "where a message may come twice"
    ),
}


def refuse(**arguments: object) -> Never:
    """Refuse arguments of `publish` that other systems have.

    Raises:
        UnsupportedError: It says what to use instead.
    """
    name = next(name for name, value in arguments.items() if value is not None)
    raise UnsupportedError(f"{name}: {_INSTEAD[name]}")

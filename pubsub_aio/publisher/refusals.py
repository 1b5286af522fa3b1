"""What Pub/Sub does not have, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never

from pubsub_aio.errors import UnsupportedError

_DELAY = (
    "Pub/Sub has no delayed messages: have the consumer nack(delay=...) until it is time, or use "
    "Cloud Tasks"
)
_TRANSACTION = (
    "Pub/Sub has no transactional messages: publish with retry=None, or write to an outbox table "
    "in your transaction and publish from there"
)
_EXPECTATION = (
    "Pub/Sub does not check what was published before: use an ordering key, and a Deduplicator "
    "where a message may come twice"
)

_INSTEAD = {
    "delay": _DELAY,
    "deliver_at": _DELAY,
    "deliver_after": _DELAY,
    "delivery_timestamp": _DELAY,
    "transaction": _TRANSACTION,
    "transactional": _TRANSACTION,
    "expected_last_msg_id": _EXPECTATION,
    "expected_last_sequence": _EXPECTATION,
    "expected_last_subject_sequence": _EXPECTATION,
    "expected_stream": _EXPECTATION,
    "message_group": "use ordering_key, which is what Pub/Sub calls it",
    "headers": "use attributes, which is what Pub/Sub calls them",
}


def refuse(arguments: Mapping[str, object]) -> Never:
    """Refuse keyword arguments of `publish` that it does not have.

    Raises:
        UnsupportedError: Other systems have it.
        TypeError: Nobody has.
    """
    for name in arguments:
        if name in _INSTEAD:
            raise UnsupportedError(f"{name}: {_INSTEAD[name]}")
    name = next(iter(arguments))
    raise TypeError(
        f"publish() got an unexpected keyword argument {name!r}; if it is an attribute of the "
        f"message, it goes into attributes={{{name!r}: ...}}"
    )

"""Why a message cannot be published, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubsub_aio._wire.publishing import MAX_ATTRIBUTES, encode
from pubsub_aio.errors import ConfigError, UnsupportedError

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


def refuse(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of `publish` that other systems have; but none is no such argument.

    Raises:
        UnsupportedError: Pub/Sub has nothing of the kind; it says what to use instead.
        ConfigError: Nobody has it.
    """
    for name, value in arguments.items():
        if name not in _INSTEAD:
            raise ConfigError(
                f"{name}: publish() has no such argument; what is an attribute of the message "
                f"goes into attributes={{{name!r}: ...}}"
            )
        if value is not None:
            raise UnsupportedError(f"{name}: {_INSTEAD[name]}")


def own_fault(
    error: Exception,
    data: bytes,
    attributes: Mapping[str, str] | None,
    ordering_key: str,
    added: Mapping[str, str],
) -> ConfigError:
    """What is wrong with a message that could not be taken with what the publisher adds to it."""
    try:
        encode(data, attributes, ordering_key)
    except ConfigError as fault:
        return fault
    if not isinstance(error, ConfigError):
        return ConfigError(f"attributes must be a dict of strings, not {attributes!r}")
    count = len({*(attributes or ()), *added})
    if count <= MAX_ATTRIBUTES:
        return error  # of the topic
    return ConfigError(
        f"attributes: {count} are more than the service takes, {MAX_ATTRIBUTES}, with what the "
        f"publisher adds, {', '.join(added)}: give fewer, or a publisher without send_flight_id "
        "and tracing"
    )


def check_many(messages: object, attributes: object) -> None:
    """Refuse what are not many messages, or not the attributes of them all.

    Raises:
        ConfigError: It names the argument.
    """
    one = isinstance(messages, bytes | bytearray | memoryview | str | Mapping)
    if one or not isinstance(messages, Iterable):
        raise ConfigError(f"messages must be a list of them, not {type(messages).__name__}")
    if attributes is not None and not isinstance(attributes, Mapping):
        raise ConfigError(f"attributes must be a dict of strings, not {attributes!r}")


def fault_of(place: int, error: Exception) -> ConfigError:
    """What is wrong with one of many messages."""
    known = isinstance(error, ConfigError)
    fault = error if known else "must be data, or a tuple of data and attributes"
    return ConfigError(f"messages[{place}]: {fault}")

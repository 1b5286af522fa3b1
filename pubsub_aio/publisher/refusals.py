"""Why a message cannot be published, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from pubsub_aio._wire.publishing import MAX_ATTRIBUTES, encode
from pubsub_aio.errors import ConfigError, UnsupportedError

_ARGUMENTS = ("attributes", "ordering_key", "retry", "timeout")

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


class Unsupported(TypedDict, total=False):
    """Arguments that other systems have and Pub/Sub has not."""

    deliver_at: None
    transaction: None
    expectations: None


def refuse(arguments: Unsupported) -> None:
    """Refuse what is given to `publish` beside its arguments; one that is None is not given.

    Raises:
        UnsupportedError: Pub/Sub has nothing of the kind; it says what to use instead.
        ConfigError: There is no such argument; it says which there are.
    """
    for name, value in arguments.items():
        if name not in _INSTEAD:
            raise ConfigError(f"{name}: there is no such argument; {_hint(name)}")
        if value is not None:
            raise UnsupportedError(f"{name}: {_INSTEAD[name]}")


def _hint(name: str) -> str:
    """What may have been meant by an argument that there is not."""
    import difflib

    if close := difflib.get_close_matches(name, _ARGUMENTS, n=1):
        return f"did you mean {close[0]}?"
    return (
        f"there are {', '.join(_ARGUMENTS)}, and an attribute of the message goes into "
        f"attributes={{{name!r}: ...}}"
    )


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

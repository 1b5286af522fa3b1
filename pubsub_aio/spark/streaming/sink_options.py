"""The options of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pubsub_aio.config import MIB
from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.streaming.option_values import CONNECTION, ConnectionOptions, Given

NAMES = (
    *("topic", "dataColumn", "attributesColumn", "orderingKeyColumn"),
    *("idColumn", "idAttribute", "idPrefix"),
    *("maxOutstandingMessages", "maxOutstandingBytes", "publishTimeout", *CONNECTION),
)

OTHERS = {
    "topicId": "give topic",
    "projectId": "give project",
    "topicColumn": "give topic, and write once for each topic",
    "clientEmail": "give credentialsFile, the path of a JSON key",
    "clientId": "give credentialsFile, the path of a JSON key",
    "privateKey": "give credentialsFile, the path of a JSON key",
    "privateKeyId": "give credentialsFile, the path of a JSON key",
    "serviceCredential": "credentials are those of the machine, or give credentialsFile",
}
"""What others call them."""

ID_ATTRIBUTE = "pubsub_aio_row_id"
"""The attribute that carries the id of a row."""

_MAX_NAME_BYTES = 256
_MAX_PREFIX = 200
_RESERVED = "goog"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How rows are published to a topic. The docs have a table of them."""

    topic: str
    connection: ConnectionOptions
    data_column: str = "data"
    attributes_column: str = "attributes"
    ordering_key_column: str = "ordering_key"
    id_column: str = ""
    id_attribute: str = ID_ATTRIBUTE
    id_prefix: str = ""
    max_outstanding_messages: int = 10_000
    max_outstanding_bytes: int = 32 * MIB
    publish_timeout: float = 600.0
    named: frozenset[str] = frozenset()
    """The options that were given: a column that is named must be there."""


DEFAULTS = SinkOptions(topic="", connection=ConnectionOptions())


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a query that writes.

    Raises:
        ConfigError: One is missing, or cannot be.
    """
    given, default = Given(options, NAMES, OTHERS), DEFAULTS
    made = SinkOptions(
        topic=given.resource("topic", "topics"),
        connection=given.connection(),
        data_column=_column(given, "dataColumn", default.data_column),
        attributes_column=_column(given, "attributesColumn", default.attributes_column),
        ordering_key_column=_column(given, "orderingKeyColumn", default.ordering_key_column),
        id_column=given.text("idColumn"),
        id_attribute=_attribute(given.text("idAttribute", default.id_attribute)),
        id_prefix=_prefix(given.text("idPrefix")),
        max_outstanding_messages=given.whole(
            "maxOutstandingMessages", default.max_outstanding_messages
        ),
        max_outstanding_bytes=given.size("maxOutstandingBytes", default.max_outstanding_bytes),
        publish_timeout=given.seconds("publishTimeout", default.publish_timeout, above=True),
        named=frozenset(name for name in NAMES if name in given),
    )
    if made.id_prefix and made.id_column:
        raise ConfigError(
            "idPrefix: give it or idColumn, not both: ids of a column stay as they are"
        )
    if not made.id_attribute and (made.id_column or made.id_prefix):
        name = "idColumn" if made.id_column else "idPrefix"
        raise ConfigError(
            f"{name}: no id is sent, since idAttribute is empty: give the attribute's name, or "
            f"leave {name} out"
        )
    return made


def _column(given: Given, name: str, default: str) -> str:
    if not (column := given.text(name, default)):
        raise ConfigError(f"{name} must be the name of a column; leave it out for {default!r}")
    return column


def _attribute(name: str) -> str:
    if name.startswith(_RESERVED):
        raise ConfigError(
            f"idAttribute: names that begin with {_RESERVED!r} are reserved, rename {name!r}"
        )
    if (size := len(name.encode())) > _MAX_NAME_BYTES:
        raise ConfigError(f"idAttribute must have at most {_MAX_NAME_BYTES} bytes, not {size:,}")
    return name


def _prefix(prefix: str) -> str:
    if len(prefix) > _MAX_PREFIX or not prefix.isprintable():
        raise ConfigError(
            f"idPrefix must be a text of at most {_MAX_PREFIX} characters, all of them printable, "
            f"not {prefix!r:.60}"
        )
    return prefix

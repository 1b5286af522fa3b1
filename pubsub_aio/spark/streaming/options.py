"""The options of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pubsub_aio.config import MIB
from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.streaming.option_values import CONNECTION, ConnectionOptions, Given
from pubsub_aio.spark.streaming.stores import store_at

NAMES = (
    *("subscription", "walLocation", "maxRowsPerTrigger", "maxBytesPerTrigger"),
    *("minRowsPerTrigger", "maxTriggerDelay", "numPartitions", "numFetchPartitions"),
    *("maxFetchPeriod", "dedupeWindow", "dedupeMaxIds", "dedupeAttribute", "eventTimeAttribute"),
    *("maxOutstandingMessages", "maxOutstandingBytes", "topic", "createSubscription"),
    *("deleteSubscriptionOnStreamStop", "startingTimestamp", "startingSnapshot"),
    *("failOnDataLoss", "availableNowIdle", *CONNECTION),
)

DATABRICKS = {
    "subscriptionId": "give subscription",
    "projectId": "give project",
    "topicId": "give topic",
    "maxRecordsPerFetch": "give maxRowsPerTrigger, and maxFetchPeriod for fetch partitions",
    "clientEmail": "give credentialsFile, the path of a JSON key",
    "clientId": "give credentialsFile, the path of a JSON key",
    "privateKey": "give credentialsFile, the path of a JSON key",
    "privateKeyId": "give credentialsFile, the path of a JSON key",
    "serviceCredential": "credentials are those of the machine, or give credentialsFile",
}
KAFKA = {
    "subscribe": "give subscription",
    "maxOffsetsPerTrigger": "give maxRowsPerTrigger",
    "minOffsetsPerTrigger": "give minRowsPerTrigger",
    "minPartitions": "give numPartitions",
    "startingOffsets": "a new query has what the subscription has not delivered, and "
    "startingTimestamp or startingSnapshot seek",
    "endingOffsets": "use .trigger(availableNow=True)",
    "includeHeaders": "attributes are always there",
    "groupIdPrefix": "queries of one subscription share its messages",
    "kafka.group.id": "queries of one subscription share its messages",
    "kafka.bootstrap.servers": "give project, and endpoint where it is not the usual one",
}

OTHERS = DATABRICKS | KAFKA
"""What Databricks' source and Kafka's call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How a query reads a subscription. The docs have a table of them."""

    subscription: str
    wal_location: str
    connection: ConnectionOptions
    max_rows: int = 500_000
    max_bytes: int = 512 * MIB
    min_rows: int = 1
    max_delay: float = 900.0
    partitions: int = 0
    fetch_partitions: int = 0
    fetch_period: float = 2.0
    dedupe_window: float = 1_200.0
    dedupe_max_ids: int = 50_000_000
    dedupe_attribute: str = ""
    event_time_attribute: str = ""
    max_outstanding_messages: int = 200_000
    max_outstanding_bytes: int = 128 * MIB
    topic: str = ""
    create: bool = False
    delete_on_stop: bool = False
    start_at: datetime | str | None = None
    fail_on_data_loss: bool = True
    available_now_idle: float = 5.0
    idle_is_given: bool = False


DEFAULTS = SourceOptions(subscription="", wal_location="", connection=ConnectionOptions())


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a query that reads.

    Raises:
        ConfigError: One is missing, or cannot be.
    """
    given, default = Given(options, NAMES, OTHERS), DEFAULTS
    subscription = given.resource("subscription", "subscriptions")
    create = given.flag("createSubscription", default=default.create)
    topic = given.optional_resource("topic", "topics")
    if create and not topic:
        raise ConfigError("topic is missing: createSubscription needs the topic to subscribe to")
    if topic and not create:
        raise ConfigError("topic goes with createSubscription; a subscription knows its topic")
    made = SourceOptions(
        subscription=subscription,
        wal_location=store_at(given.needed("walLocation", "gs://BUCKET/FOLDER")).location,
        connection=given.connection(),
        max_rows=given.whole("maxRowsPerTrigger", default.max_rows),
        max_bytes=given.size("maxBytesPerTrigger", default.max_bytes),
        min_rows=given.whole("minRowsPerTrigger", default.min_rows),
        max_delay=given.seconds("maxTriggerDelay", default.max_delay),
        partitions=given.whole("numPartitions", default.partitions, least=0),
        fetch_partitions=given.whole("numFetchPartitions", default.fetch_partitions, least=0),
        fetch_period=given.seconds("maxFetchPeriod", default.fetch_period, above=True),
        dedupe_window=given.seconds("dedupeWindow", default.dedupe_window, above=True),
        dedupe_max_ids=given.whole("dedupeMaxIds", default.dedupe_max_ids),
        dedupe_attribute=given.text("dedupeAttribute"),
        event_time_attribute=given.text("eventTimeAttribute"),
        max_outstanding_messages=given.whole(
            "maxOutstandingMessages", default.max_outstanding_messages
        ),
        max_outstanding_bytes=given.size("maxOutstandingBytes", default.max_outstanding_bytes),
        topic=topic,
        create=create,
        delete_on_stop=given.flag("deleteSubscriptionOnStreamStop", default=default.delete_on_stop),
        start_at=_start(given),
        fail_on_data_loss=given.flag("failOnDataLoss", default=default.fail_on_data_loss),
        available_now_idle=given.seconds(
            "availableNowIdle", default.available_now_idle, above=True
        ),
        idle_is_given="availableNowIdle" in given,
    )
    if made.min_rows > made.max_rows:
        raise ConfigError(
            f"minRowsPerTrigger must be at most maxRowsPerTrigger, {made.max_rows:,}, not "
            f"{made.min_rows:,}"
        )
    if made.delete_on_stop and not create:
        raise ConfigError(
            "deleteSubscriptionOnStreamStop goes with createSubscription: what the query did not "
            "create it does not delete"
        )
    return made


def _start(given: Given) -> datetime | str | None:
    time = given.text("startingTimestamp")
    snapshot = given.optional_resource("startingSnapshot", "snapshots")
    if time and snapshot:
        raise ConfigError("startingSnapshot: give it or startingTimestamp, not both")
    if not time:
        return snapshot or None
    try:
        start = datetime.fromisoformat(time)
    except ValueError:
        start = None
    if start is None or start.tzinfo is None:
        raise ConfigError(
            "startingTimestamp must be a time with its zone, such as 2026-01-31T12:00:00Z, not "
            f"{time!r}"
        )
    return start

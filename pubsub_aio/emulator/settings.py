"""What the service accepts as settings of a topic, subscription or snapshot, and its defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pubsub_aio._wire import schema
from pubsub_aio.emulator.durations import check_duration, seconds_of
from pubsub_aio.emulator.exports import check_export
from pubsub_aio.emulator.names import check_name
from pubsub_aio.emulator.push_settings import check_push
from pubsub_aio.emulator.status import invalid
from pubsub_aio.emulator.transforms import check_transforms
from pubsub_aio.filters import Filter, FilterError, parse_filter

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MINUTE = 60
DAY = 24 * 60 * MINUTE
DEFAULT_ACK_DEADLINE = 10
MAX_ACK_DEADLINE = 600
DEFAULT_RETENTION = 7 * DAY
DEFAULT_EXPIRATION = 31 * DAY
DEFAULT_MIN_BACKOFF = 10
DEFAULT_MAX_BACKOFF = 10 * MINUTE
DEFAULT_DELIVERY_ATTEMPTS = 5
MAX_FILTER_BYTES = 256
"""The longest filter the service takes, in UTF-8."""

_KMS_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")
_MAX_LABELS = 64
_MAX_LABEL = 63

MUTABLE_TOPIC = frozenset(
    {
        "ingestion_data_source_settings",
        "kms_key_name",
        "labels",
        "message_retention_duration",
        "message_storage_policy",
        "message_transforms",
        "schema_settings",
        "tags",
    }
)
MUTABLE_SUBSCRIPTION = frozenset(
    {
        "ack_deadline_seconds",
        "bigquery_config",
        "bigtable_config",
        "cloud_storage_config",
        "dead_letter_policy",
        "enable_exactly_once_delivery",
        "expiration_policy",
        "labels",
        "message_retention_duration",
        "message_transforms",
        "push_config",
        "retain_acked_messages",
        "retry_policy",
        "tags",
    }
)
MUTABLE_SNAPSHOT = frozenset({"expire_time", "labels"})


def check_topic(topic: schema.Topic) -> None:
    """Refuse settings that the service would refuse."""
    check_name(topic.name, "topics", field="name")
    check_labels(topic.labels)
    if topic.HasField("message_retention_duration"):
        check_duration(
            topic.message_retention_duration, "message_retention_duration", 10 * MINUTE, 31 * DAY
        )
    if topic.kms_key_name and not _KMS_KEY.fullmatch(topic.kms_key_name):
        raise invalid("kms_key_name", "must be projects/P/locations/L/keyRings/R/cryptoKeys/K")
    policy = topic.message_storage_policy
    if topic.HasField("message_storage_policy") and not policy.allowed_persistence_regions:
        field = "message_storage_policy.allowed_persistence_regions"
        raise invalid(field, "must name a region; for no policy leave message_storage_policy out")
    check_transforms(topic.message_transforms)
    topic.state = schema.Topic.State.ACTIVE


def check_subscription(subscription: schema.Subscription) -> None:
    """Refuse settings that the service would refuse, and fill in its defaults."""
    check_name(subscription.name, "subscriptions", field="name")
    check_labels(subscription.labels)
    check_push(subscription)
    check_transforms(subscription.message_transforms)
    check_export(subscription)
    if not subscription.ack_deadline_seconds:
        subscription.ack_deadline_seconds = DEFAULT_ACK_DEADLINE
    check_ack_deadline(subscription.ack_deadline_seconds, "ack_deadline_seconds")
    if not subscription.HasField("message_retention_duration"):
        subscription.message_retention_duration.seconds = DEFAULT_RETENTION
    check_duration(
        subscription.message_retention_duration, "message_retention_duration", 10 * MINUTE, 31 * DAY
    )
    if not subscription.HasField("expiration_policy"):
        subscription.expiration_policy.ttl.seconds = DEFAULT_EXPIRATION
    elif subscription.expiration_policy.HasField("ttl"):
        ttl = subscription.expiration_policy.ttl
        check_duration(ttl, "expiration_policy.ttl", DAY, 100 * 365 * DAY)
    if subscription.HasField("retry_policy"):
        _check_retry_policy(subscription.retry_policy)
    if subscription.HasField("dead_letter_policy"):
        _check_dead_letter_policy(subscription.dead_letter_policy)
    parsed_filter(subscription)
    subscription.state = schema.Subscription.State.ACTIVE


def parsed_filter(subscription: schema.Subscription) -> Filter | None:
    """The subscription's filter, if it has one."""
    if not subscription.filter:
        return None
    try:
        return parse_filter(subscription.filter, max_bytes=MAX_FILTER_BYTES)
    except FilterError as error:
        raise invalid("filter", str(error)) from error


def check_snapshot(snapshot: schema.Snapshot) -> None:
    """Refuse settings that the service would refuse."""
    check_labels(snapshot.labels)
    if not snapshot.HasField("expire_time"):
        raise invalid("expire_time", "must be given")


def check_ack_deadline(seconds: int, field: str) -> None:
    """Refuse a deadline out of the service's range."""
    if not DEFAULT_ACK_DEADLINE <= seconds <= MAX_ACK_DEADLINE:
        raise invalid(
            field,
            f"{seconds} must be between {DEFAULT_ACK_DEADLINE} and {MAX_ACK_DEADLINE} seconds",
        )


def check_mask(mask: schema.FieldMask, mutable: frozenset[str], target: schema.Message) -> None:
    """Refuse an update mask that is empty or names what is unknown or cannot be changed."""
    if not mask.paths:
        raise invalid("update_mask", "must name at least one field to change")
    for path in mask.paths:
        descriptor, inside_many = cast("Descriptor | None", target.DESCRIPTOR), False
        for part in path.split("."):
            field = descriptor.fields_by_name.get(part) if descriptor else None
            if field is None or inside_many:
                raise invalid("update_mask", f"{path!r} is not a field of {target.DESCRIPTOR.name}")
            descriptor, inside_many = field.message_type, field.is_repeated
        if path.split(".")[0] not in mutable:
            raise invalid("update_mask", f"{path!r} cannot be changed")


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that the service would refuse."""
    if len(labels) > _MAX_LABELS:
        raise invalid("labels", f"{len(labels)} is more than {_MAX_LABELS}")
    rule = f"at most {_MAX_LABEL} lower-case letters, digits, _ or -"
    for key, value in labels.items():
        if not (key[:1].isalpha() and _is_label(key)):
            raise invalid("labels", f"the key {key[:80]!r} must be {rule}, the first a letter")
        if not _is_label(value):
            raise invalid("labels", f"the value {value[:80]!r} must be {rule}")


def _is_label(text: str) -> bool:
    """Letters of any script will do, if they are not capitals."""
    letters = all(c in "_-" or (c.isalnum() and c == c.lower()) for c in text)
    return letters and len(text) <= _MAX_LABEL


def _check_retry_policy(policy: schema.RetryPolicy) -> None:
    if not policy.HasField("minimum_backoff"):
        policy.minimum_backoff.seconds = DEFAULT_MIN_BACKOFF
    if not policy.HasField("maximum_backoff"):
        policy.maximum_backoff.seconds = DEFAULT_MAX_BACKOFF
    check_duration(policy.minimum_backoff, "retry_policy.minimum_backoff", 0, 600)
    check_duration(policy.maximum_backoff, "retry_policy.maximum_backoff", 0, 600)
    if seconds_of(policy.maximum_backoff) < seconds_of(policy.minimum_backoff):
        raise invalid("retry_policy.maximum_backoff", "must not be less than minimum_backoff")


def _check_dead_letter_policy(policy: schema.DeadLetterPolicy) -> None:
    if not policy.max_delivery_attempts:
        policy.max_delivery_attempts = DEFAULT_DELIVERY_ATTEMPTS
    if not 5 <= policy.max_delivery_attempts <= 100:
        raise invalid(
            "dead_letter_policy.max_delivery_attempts",
            f"{policy.max_delivery_attempts} must be between 5 and 100",
        )
    check_name(policy.dead_letter_topic, "topics", field="dead_letter_policy.dead_letter_topic")

"""Subscriptions that write to BigQuery, Cloud Storage or Bigtable: checked and kept, not done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator.durations import check_duration
from pubsub_aio.emulator.status import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

_BIGQUERY_TABLE = re.compile(r"[^.]+[.:][^.]+\.[^.]+")
_BIGTABLE_TABLE = re.compile(r"projects/[^/]+/instances/[^/]+/tables/[^/]+")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._\-]{1,220}[a-z0-9]")
_GIB = 1024**3


def check_export(subscription: schema.Subscription) -> None:
    """Refuse settings that the service would refuse."""
    given = [kind for kind in _CHECKS if subscription.HasField(kind)]
    if given and subscription.push_config.push_endpoint:
        raise invalid(given[0], "cannot be set together with push_config")
    if len(given) > 1:
        raise invalid(given[1], f"cannot be set together with {given[0]}")
    for kind in given:
        _CHECKS[kind](subscription)


def _check_bigquery(subscription: schema.Subscription) -> None:
    config = subscription.bigquery_config
    if not _BIGQUERY_TABLE.fullmatch(config.table):
        raise invalid("bigquery_config.table", f"{config.table!r} must be PROJECT.DATASET.TABLE")
    if config.use_topic_schema and config.use_table_schema:
        raise invalid("bigquery_config.use_table_schema", "excludes use_topic_schema")
    config.state = schema.BigQueryConfig.State.ACTIVE


def _check_cloud_storage(subscription: schema.Subscription) -> None:
    config = subscription.cloud_storage_config
    if not _BUCKET.fullmatch(config.bucket):
        field = "cloud_storage_config.bucket"
        raise invalid(field, f"{config.bucket!r} must be the name of a bucket, without gs://")
    if config.filename_suffix.endswith("/"):
        raise invalid("cloud_storage_config.filename_suffix", "must not end in a slash")
    if config.HasField("max_duration"):
        check_duration(config.max_duration, "cloud_storage_config.max_duration", 60, 600)
    if config.max_bytes and not 1_000 <= config.max_bytes <= 10 * _GIB:
        raise invalid("cloud_storage_config.max_bytes", "must be between 1 KB and 10 GiB")
    if config.max_messages and config.max_messages < 1_000:
        raise invalid("cloud_storage_config.max_messages", "must be at least 1000")
    config.state = schema.CloudStorageConfig.State.ACTIVE


def _check_bigtable(subscription: schema.Subscription) -> None:
    config = subscription.bigtable_config
    if not _BIGTABLE_TABLE.fullmatch(config.table):
        field = "bigtable_config.table"
        raise invalid(field, f"{config.table!r} must be projects/P/instances/I/tables/T")
    config.state = schema.BigtableConfig.State.ACTIVE


_CHECKS: dict[str, Callable[[schema.Subscription], None]] = {
    "bigquery_config": _check_bigquery,
    "cloud_storage_config": _check_cloud_storage,
    "bigtable_config": _check_bigtable,
}

"""A resource's settings without what the service adds: neither its defaults nor what it tells."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from pubsub_aio._wire import schema
from pubsub_aio.emulator import settings

Config = TypeVar("Config", bound=Message)

OUTPUT_ONLY = frozenset(
    {
        "analytics_hub_subscription_info",
        "detached",
        "revision_create_time",
        "revision_id",
        "satisfies_pzs",
        "state",
        "topic_message_retention_duration",
    }
)
"""Fields, of any message, that are only told."""

_PUSH_VERSION = "x-goog-version"


def bare(config: Config) -> Config:
    """A copy with what somebody set, and nothing else."""
    copy = type(config)()
    copy.CopyFrom(config)
    _clear_told(copy)
    if isinstance(copy, schema.Subscription):
        _clear_defaults(copy)
    return copy


def _clear_told(message: Message) -> None:
    for field, value in message.ListFields():
        if field.name in OUTPUT_ONLY:
            message.ClearField(field.name)
        elif field.message_type and not field.message_type.GetOptions().map_entry:
            if field.message_type.full_name.startswith("google.protobuf."):
                continue
            for part in value if field.is_repeated else (value,):
                _clear_told(part)


def _clear_defaults(config: schema.Subscription) -> None:
    if config.ack_deadline_seconds == settings.DEFAULT_ACK_DEADLINE:
        config.ClearField("ack_deadline_seconds")
    if config.message_retention_duration == _seconds(settings.DEFAULT_RETENTION):
        config.ClearField("message_retention_duration")
    expiration = schema.ExpirationPolicy(ttl=_seconds(settings.DEFAULT_EXPIRATION))
    if config.expiration_policy == expiration:
        config.ClearField("expiration_policy")
    if config.push_config.attributes.get(_PUSH_VERSION) == "v1":
        del config.push_config.attributes[_PUSH_VERSION]
    if config.push_config == schema.PushConfig():
        config.ClearField("push_config")
    retry = config.retry_policy
    if retry.minimum_backoff == _seconds(settings.DEFAULT_MIN_BACKOFF):
        retry.ClearField("minimum_backoff")
    if retry.maximum_backoff == _seconds(settings.DEFAULT_MAX_BACKOFF):
        retry.ClearField("maximum_backoff")
    if config.dead_letter_policy.max_delivery_attempts == settings.DEFAULT_DELIVERY_ATTEMPTS:
        config.dead_letter_policy.ClearField("max_delivery_attempts")


def _seconds(seconds: int) -> schema.Duration:
    return schema.Duration(seconds=seconds)

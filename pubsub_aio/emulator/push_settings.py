"""What the service accepts as a subscription's `push_config`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pubsub_aio.emulator.status import invalid

if TYPE_CHECKING:
    from pubsub_aio._wire import schema

VERSION = "x-goog-version"
"""The one attribute that the service knows: which version's format a push has."""

_VERSIONS = ("v1", "v1beta1", "v1beta2")
_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f]")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def check_push(subscription: schema.Subscription) -> None:
    """Refuse settings that the service would refuse; without an endpoint there are hardly any."""
    config = subscription.push_config
    _check_attributes(config)
    if not config.push_endpoint:
        for field in ("oidc_token", "pubsub_wrapper", "no_wrapper"):
            if config.HasField(field):
                raise invalid(
                    "push_config.push_endpoint",
                    f"must be given with {field}; an empty push_config lets it be pulled",
                )
        return
    _check_endpoint(config.push_endpoint)
    if subscription.enable_exactly_once_delivery:
        raise invalid("enable_exactly_once_delivery", "cannot be set together with push_config")
    if config.HasField("oidc_token"):
        email = config.oidc_token.service_account_email
        if not _EMAIL.fullmatch(email):
            raise invalid(
                "push_config.oidc_token.service_account_email",
                f"{email!r} must be the e-mail address of a service account",
            )


def modified(
    subscription: schema.Subscription, push_config: schema.PushConfig
) -> schema.Subscription:
    """A copy of a subscription's settings with another `push_config`."""
    changed = type(subscription)()
    changed.CopyFrom(subscription)
    changed.push_config.CopyFrom(push_config)
    keep_version(changed, subscription)
    return changed


def keep_version(changed: schema.Subscription, before: schema.Subscription) -> None:
    """Let the version of the format stay as it was, unless another is given."""
    version = before.push_config.attributes.get(VERSION)
    if version and VERSION not in changed.push_config.attributes:
        changed.push_config.attributes[VERSION] = version


def _check_attributes(config: schema.PushConfig) -> None:
    for key, value in config.attributes.items():
        if key != VERSION:
            raise invalid("push_config.attributes", f"{key[:80]!r} is not known; {VERSION} is")
        if value not in _VERSIONS:
            field = f"push_config.attributes[{VERSION}]"
            raise invalid(field, f"{value[:80]!r} is none of {', '.join(_VERSIONS)}")


def _check_endpoint(endpoint: str) -> None:
    from urllib.parse import urlsplit  # only now: most subscriptions are pulled

    field = "push_config.push_endpoint"
    wanted = f"must be a URL such as https://example.com/push, not {endpoint!r}"
    if _NOT_IN_A_URL.search(endpoint):
        raise invalid(field, f"{wanted}: spaces and control characters must be escaped")
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname if parts.port != 0 else None
    except ValueError as error:
        raise invalid(field, f"{wanted}: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise invalid(field, wanted)

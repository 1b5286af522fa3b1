"""Retries and dead letters by the service itself: all that they need, set up by one call."""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pubsub_aio.config import CALL_TIMEOUT, JobPolicy, check
from pubsub_aio.errors import (
    AlreadyExistsError,
    ConfigError,
    NotFoundError,
    PermissionDeniedError,
    ServiceError,
)

if TYPE_CHECKING:
    from google.pubsub_v1.types import Subscription

    from pubsub_aio.admin import AdminClient

log = logging.getLogger("pubsub_aio.jobs")

PUBLISHER, SUBSCRIBER = "roles/pubsub.publisher", "roles/pubsub.subscriber"
MIN_DELIVERY_ATTEMPTS, MAX_DELIVERY_ATTEMPTS = 5, 100
MAX_BACKOFF = 600.0
"""What the service takes."""

_FIND_NUMBER = "gcloud projects describe PROJECT --format='value(projectNumber)'"


async def retry_on_server(
    admin: AdminClient,
    subscription: str,
    *,
    dead_letter_topic: str,
    policy: JobPolicy | None = None,
    max_delivery_attempts: int = MIN_DELIVERY_ATTEMPTS,
    service_account: str | None = None,
    project_number: int | str | None = None,
    timeout: float = CALL_TIMEOUT,
) -> Subscription:
    """Let the service wait between attempts, and put aside what fails too often.

    Sets the subscription's `retry_policy` and `dead_letter_policy`. Before that, Pub/Sub's own
    service account is given what it needs: `roles/pubsub.publisher` on the dead letter topic and
    `roles/pubsub.subscriber` on the subscription. The topic is created if it is missing, and a
    subscription of the same name to it, unless it has one: what is published to a topic without a
    subscription is lost. That one does not expire, and holds a dead letter for 7 days. In no state
    in between can a message be lost; calling it again changes nothing.

    A server without IAM, such as Google's emulator, is told all but the roles, with a warning.

    Args:
        admin: Who makes the calls. Its credentials need `roles/pubsub.admin` on both resources.
        subscription: The name of a subscription that exists.
        dead_letter_topic: The name of a topic other than the subscription's own.
        policy: Its `initial_backoff` and `max_backoff`, of 600 seconds at most, become those of the
            service; the rest of it has no meaning there.
        max_delivery_attempts: How often a message is delivered before it is a dead letter, 5 to
            100. The service counts as best it can.
        service_account: The address of Pub/Sub's service account. Either this,
        project_number: or the number of the subscription's project, which is part of the address.
        timeout: Seconds for each call.

    Returns:
        The subscription as it is now.

    Raises:
        ConfigError: An argument cannot be as it is; nothing was changed.
        NotFoundError: There is no such subscription.
        PermissionDeniedError: A role may not be given; no setting was changed.
    """
    wanted = _Wanted.of(policy or JobPolicy(), max_delivery_attempts)
    rights = _Rights(admin, _member(service_account, project_number), timeout)
    found = await admin.get_subscription(subscription, timeout=timeout)
    letters = await _look(admin, dead_letter_topic, timeout)
    if letters.topic == found.topic:
        raise ConfigError(
            f"dead_letter_topic: {letters.topic} is the subscription's own topic, so that what "
            "fails would come back for ever; name another"
        )
    # What may be refused comes first. But what is forwarded needs a reader, and if the subscription
    # has a policy already, the right to publish may be all that was missing for that.
    if letters.is_read:
        await rights.give(letters.topic, PUBLISHER)
    await rights.give(found.name, SUBSCRIBER)
    if not letters.is_read:
        await _create(admin, letters, timeout)
        await rights.give(letters.topic, PUBLISHER)
    if wanted.is_met_by(found, letters.topic):
        return found
    return await admin.update_subscription(
        found.name, timeout=timeout, **wanted.settings(letters.topic)
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the subscription shall be set to."""

    attempts: int
    first_wait: timedelta
    longest_wait: timedelta

    @classmethod
    def of(cls, policy: JobPolicy, attempts: int) -> _Wanted:
        check(
            "max_delivery_attempts",
            attempts,
            MIN_DELIVERY_ATTEMPTS,
            MAX_DELIVERY_ATTEMPTS,
            whole=True,
        )
        check("policy.initial_backoff", policy.initial_backoff, 0, MAX_BACKOFF)
        check("policy.max_backoff", policy.max_backoff, 0, MAX_BACKOFF)
        return cls(
            attempts,
            timedelta(seconds=policy.initial_backoff),
            timedelta(seconds=policy.max_backoff),
        )

    def settings(self, topic: str) -> dict[str, dict[str, object]]:
        return {
            "dead_letter_policy": {
                "dead_letter_topic": topic,
                "max_delivery_attempts": self.attempts,
            },
            "retry_policy": {
                "minimum_backoff": self.first_wait,
                "maximum_backoff": self.longest_wait,
            },
        }

    def is_met_by(self, found: Subscription, topic: str) -> bool:
        return all(
            getattr(getattr(found, policy), field) == value
            for policy, fields in self.settings(topic).items()
            for field, value in fields.items()
        )


@dataclass(frozen=True, slots=True)
class _DeadLetters:
    """The dead letter topic, and what was found of it."""

    topic: str
    exists: bool
    is_read: bool
    """Whether it has a subscription."""

    @property
    def reader(self) -> str:
        """The subscription that it is given if it has none."""
        return self.topic.replace("/topics/", "/subscriptions/", 1)


async def _look(admin: AdminClient, name: str, timeout: float) -> _DeadLetters:
    """See what there is, and refuse what could not be created beside it."""
    exists, subscriptions = True, []
    try:
        await admin.get_topic(name, timeout=timeout)
        listed = admin.list_topic_subscriptions(name, timeout=timeout)
        subscriptions = [subscription async for subscription in listed]
    except NotFoundError:
        exists = False
    topic = name if "/" in name else f"projects/{admin.project}/topics/{name}"
    letters = _DeadLetters(topic, exists, bool(subscriptions))
    if not letters.is_read:
        await _check_name(admin, letters, timeout)
    return letters


async def _check_name(admin: AdminClient, letters: _DeadLetters, timeout: float) -> None:
    """Refuse a topic whose name is that of a subscription to something else."""
    try:
        other = await admin.get_subscription(letters.reader, timeout=timeout)
    except NotFoundError:
        return
    if other.topic != letters.topic or other.detached:
        raise ConfigError(
            f"dead_letter_topic: {letters.topic} needs a subscription, or dead letters are lost, "
            f"and {letters.reader} is one of {other.topic}: create one with another name"
        )


async def _create(admin: AdminClient, letters: _DeadLetters, timeout: float) -> None:
    """Create the dead letter topic, unless it exists, and a subscription to it."""
    if not letters.exists:
        with contextlib.suppress(AlreadyExistsError):  # there is another call like this one
            await admin.create_topic(letters.topic, timeout=timeout)
    with contextlib.suppress(AlreadyExistsError):
        await admin.create_subscription(
            letters.reader,
            letters.topic,
            timeout=timeout,
            expiration_policy={},  # never, or it would be gone when the first dead letter comes
        )


def _member(service_account: str | None, project_number: int | str | None) -> str:
    """Pub/Sub's service account, as policies name it."""
    if (service_account is None) == (project_number is None):
        raise ConfigError(
            "project_number, service_account: give one of them, and only one; the number of the "
            f"subscription's project is printed by {_FIND_NUMBER}"
        )
    if service_account is not None:
        if not isinstance(service_account, str) or not re.fullmatch(
            r"[^@:\s]+@[^@:\s]+", service_account
        ):
            raise ConfigError(
                "service_account: must be an address such as "
                f"service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com, "
                f"not {service_account!r}"
            )
        return f"serviceAccount:{service_account}"
    if not re.fullmatch(r"[0-9]+", str(project_number)):
        raise ConfigError(
            "project_number: must be the number of the subscription's project, which is not its "
            f"id, not {project_number!r}; {_FIND_NUMBER} prints it"
        )
    return f"serviceAccount:service-{project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"


class _Rights:
    """Gives roles to Pub/Sub's service account, where the server has IAM."""

    def __init__(self, admin: AdminClient, member: str, timeout: float) -> None:
        self._admin = admin
        self._member = member
        self._timeout = timeout
        self._has_iam = True

    async def give(self, resource: str, role: str) -> None:
        if not self._has_iam:
            return
        member = self._member
        try:
            given = await self._admin.grant(
                resource, role=role, member=member, timeout=self._timeout
            )
        except PermissionDeniedError as error:
            raise PermissionDeniedError(
                error.code,
                f"{resource}: {role} could not be given to {member}, without which Pub/Sub cannot "
                "forward dead letters; these credentials need roles/pubsub.admin there. No "
                f"setting was changed ({error.message})",
            ) from error
        except ServiceError as error:
            if error.code != "UNIMPLEMENTED":
                raise
            self._has_iam = False
            log.warning(
                "this server has no IAM: %s was not given %s on %s, nor anything else; the real "
                "service needs that to forward dead letters",
                *(member, role, resource),
            )
        else:
            if given:
                log.info("%s was given %s on %s", member, role, resource)

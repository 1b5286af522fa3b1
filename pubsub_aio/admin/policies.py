"""IAM policies of topics and subscriptions: who may do what with them."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pubsub_aio._core import backoff
from pubsub_aio._wire.names import full_name
from pubsub_aio.admin.calls import Calls
from pubsub_aio.config import CALL_TIMEOUT
from pubsub_aio.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from google.iam.v1.iam_policy_pb2 import SetIamPolicyRequest
    from google.iam.v1.policy_pb2 import Policy

_RESOURCE = re.compile(r"projects/[^/]+/(topics|subscriptions)/[^/]+")
_EVERYBODY = ("allUsers", "allAuthenticatedUsers")
_CONDITIONS = 3  # the version of policies with conditions; who does not ask for it cannot see them
_TRIES = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 1.0  # seconds


class Policies(Calls):
    """What can be done to IAM policies. Google's client does not try these calls again."""

    async def get_iam_policy(self, resource: str, *, timeout: float = CALL_TIMEOUT) -> Policy:
        """The policy of a topic or a subscription, conditions included; empty if there is none.

        Args:
            resource: The full name of a topic or a subscription.
            timeout: Seconds for the call.
        """
        google = self._google
        request = {
            "resource": _checked(resource),
            "options": {"requested_policy_version": _CONDITIONS},
        }
        return await google.call(google.publisher.get_iam_policy, request, timeout=timeout)

    async def set_iam_policy(
        self, resource: str, policy: Policy | Mapping[str, object], *, timeout: float = CALL_TIMEOUT
    ) -> Policy:
        """Replace the policy of a topic or a subscription; returns it as it is now.

        If it has the etag of the one that was read, and another was set since, it is refused with
        ABORTED. Without an etag it is taken, whatever was there.

        Args:
            resource: The full name of a topic or a subscription.
            policy: A `Policy` of `google.iam.v1.policy_pb2`, or a dict of its fields.
            timeout: Seconds for the call.
        """
        google = self._google
        request = _request(_checked(resource), policy)
        return await google.call(google.publisher.set_iam_policy, request, timeout=timeout)

    async def test_iam_permissions(
        self, resource: str, permissions: Collection[str], *, timeout: float = CALL_TIMEOUT
    ) -> list[str]:
        """Those of some permissions that these credentials have on a topic or a subscription.

        On what does not exist they have none; that is no error.

        Args:
            resource: The full name of a topic or a subscription.
            permissions: Such as `pubsub.topics.publish`, without wildcards.
            timeout: Seconds for the call.
        """
        if isinstance(permissions, str):
            raise ConfigError(f"permissions: must be a list of names, not {permissions!r}")
        google = self._google
        request = {"resource": _checked(resource), "permissions": list(permissions)}
        reply = await google.call(google.publisher.test_iam_permissions, request, timeout=timeout)
        return list(reply.permissions)

    async def grant(
        self, resource: str, *, role: str, member: str, timeout: float = CALL_TIMEOUT
    ) -> bool:
        """Give a member a role, unless it has it; returns whether it was given.

        All else in the policy stays, and so does what others change meanwhile. A binding with a
        condition is left alone and does not count: the member is given the role without one.

        Args:
            resource: The full name of a topic or a subscription.
            role: Such as `roles/pubsub.publisher`.
            member: Such as `serviceAccount:EMAIL` or `group:EMAIL`.
            timeout: Seconds for each call: one to read, one to write, and again if the policy was
                changed between the two.
        """
        _check_binding(role, member)
        attempt = 1
        while True:
            policy = await self.get_iam_policy(resource, timeout=timeout)
            if not _add(policy, role, member):
                return False
            try:
                await self.set_iam_policy(resource, policy, timeout=timeout)
            except ServiceError as error:
                if error.code != "ABORTED" or attempt == _TRIES:
                    raise
            else:
                return True
            chance = random.random()  # noqa: S311 - it spreads load, it guards nothing
            await asyncio.sleep(
                backoff.delay(attempt, first=_FIRST_WAIT, most=_LONGEST_WAIT, chance=chance)
            )
            attempt += 1


def _checked(resource: str) -> str:
    found = _RESOURCE.fullmatch(resource) if isinstance(resource, str) else None
    if found is None:
        raise ConfigError(
            "resource: must be the full name of a topic or a subscription, "
            f"projects/PROJECT/topics/NAME or projects/PROJECT/subscriptions/NAME, not {resource!r}"
        )
    return full_name(resource, "topics" if found[1] == "topics" else "subscriptions", None)


def _request(resource: str, policy: Policy | Mapping[str, object]) -> SetIamPolicyRequest:
    from google.iam.v1.iam_policy_pb2 import SetIamPolicyRequest

    fields = dict(policy) if isinstance(policy, Mapping) else policy
    try:
        request = SetIamPolicyRequest(resource=resource, policy=fields)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"policy: {error}") from error
    if not request.HasField("policy"):
        raise ConfigError("policy: must be a Policy of google.iam.v1, or a dict of its fields")
    return request


def _check_binding(role: str, member: str) -> None:
    if not isinstance(role, str) or "roles/" not in role:
        raise ConfigError(f"role: must be one such as roles/pubsub.publisher, not {role!r}")
    if not isinstance(member, str) or (":" not in member and member not in _EVERYBODY):
        raise ConfigError(
            "member: must say what it is, such as serviceAccount:EMAIL or user:EMAIL, "
            f"not {member!r}"
        )


def _add(policy: Policy, role: str, member: str) -> bool:
    """Add a member to a role's binding without a condition; false if it is there already."""
    plain = [b for b in policy.bindings if b.role == role and not b.HasField("condition")]
    if any(member in binding.members for binding in plain):
        return False
    binding = plain[0] if plain else policy.bindings.add(role=role)
    binding.members.append(member)
    return True

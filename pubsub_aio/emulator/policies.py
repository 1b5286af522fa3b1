"""IAM policies: kept with their resource and returned, but not enforced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from pubsub_aio._wire import schema
from pubsub_aio.emulator.status import Code, StatusError, invalid

if TYPE_CHECKING:
    from pubsub_aio.emulator.schemas.registry import VersionedSchema
    from pubsub_aio.emulator.snapshots import Snapshot
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.topics import Topic

    Resource: TypeAlias = Topic | Subscription | Snapshot | VersionedSchema

NEVER_SET = b"\x00\x20\x01"
"""The etag of a policy that was never set, as the service has it."""

CONDITIONS = 3
"""The version of policies that may have conditions."""

_VERSIONS = (0, 1, CONDITIONS)
_FIELDS = ("bindings", "etag", "version", "audit_configs")


class Policies:
    """The policies of all resources."""

    def __init__(self) -> None:
        # By the resource and not its name: the next of that name begins without a policy.
        self._set: WeakKeyDictionary[Resource, schema.Policy] = WeakKeyDictionary()
        self._changes = 0

    def get(self, resource: Resource, *, version: int) -> schema.Policy:
        """The policy of a resource, for somebody who knows policies up to that version."""
        field = "options.requested_policy_version"
        _check_version(version, field)
        policy = self._policy(resource)
        if policy.version > max(version, 1):
            raise invalid(field, f"must be {CONDITIONS}: a binding of this policy has a condition")
        return policy

    def set(
        self, resource: Resource, policy: schema.Policy, mask: schema.FieldMask
    ) -> schema.Policy:
        """Set what the mask names, bindings if it names nothing; returns the whole policy."""
        _check_version(policy.version, "policy.version")
        for path in mask.paths:
            if path not in _FIELDS:
                raise invalid("update_mask", f"{path!r} is not one of {', '.join(_FIELDS)}")
        before = self._policy(resource)
        if policy.etag and policy.etag != before.etag:
            raise StatusError(
                Code.ABORTED,
                "policy.etag: the policy was changed since it was read; read it again, change "
                "that, and set it with its etag",
            )
        paths = mask.paths or ("bindings", "etag")
        if "bindings" in paths:
            _check_bindings(policy)
        changed = schema.Policy(
            bindings=(policy if "bindings" in paths else before).bindings,
            audit_configs=(policy if "audit_configs" in paths else before).audit_configs,
        )
        changed.version = CONDITIONS if _has_conditions(changed) else 1
        self._changes += 1
        changed.etag = self._changes.to_bytes(8)
        self._set[resource] = changed
        return changed

    def go_on(self, changes: int, kept: Mapping[Resource, schema.Policy]) -> None:
        """Take over the policies of an earlier life, in which there were so many changes."""
        self._changes = changes
        self._set.update(kept)

    def kept(self, resource: Resource) -> schema.Policy | None:
        """The policy of a resource, if one was set."""
        return self._set.get(resource)

    @property
    def changes(self) -> int:
        """How often a policy was set."""
        return self._changes

    def _policy(self, resource: Resource) -> schema.Policy:
        return self._set.get(resource) or schema.Policy(etag=NEVER_SET)


def _check_version(version: int, field: str) -> None:
    if version not in _VERSIONS:
        raise invalid(field, f"{version} must be 0, 1 or {CONDITIONS}")


def _check_bindings(policy: schema.Policy) -> None:
    for index, binding in enumerate(policy.bindings):
        field = f"policy.bindings[{index}]"
        if not binding.role:
            raise invalid(f"{field}.role", "must be given")
        if not binding.members or not all(binding.members):
            raise invalid(f"{field}.members", "at least one is needed, and none may be empty")
    if _has_conditions(policy) and policy.version != CONDITIONS:
        raise invalid("policy.version", f"must be {CONDITIONS} if a binding has a condition")


def _has_conditions(policy: schema.Policy) -> bool:
    return any(binding.HasField("condition") for binding in policy.bindings)

"""IAM policies: kept with their resource, or for a project; `access` decides by them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from pubsub_aio._wire import schema
from pubsub_aio.emulator.principals import check_member
from pubsub_aio.emulator.status import Code, StatusError, invalid

if TYPE_CHECKING:
    from pubsub_aio.emulator.schemas.registry import VersionedSchema
    from pubsub_aio.emulator.snapshots import Snapshot
    from pubsub_aio.emulator.subscriptions import Subscription
    from pubsub_aio.emulator.topics import Topic

    Resource: TypeAlias = Topic | Subscription | Snapshot | VersionedSchema
    Target: TypeAlias = Resource | str

NEVER_SET = b"\x00\x20\x01"
"""The etag of a policy that was never set, as the service has it."""

CONDITIONS = 3
"""The version of policies that may have conditions."""

_ROLE = re.compile(r"((projects|organizations)/[^/\s]+/)?roles/[A-Za-z0-9_.]+")
_VERSIONS = (0, 1, CONDITIONS)
_FIELDS = ("bindings", "etag", "version", "audit_configs")


class Policies:
    """The policies of all resources and, by their names, of projects; and roles of one's own.

    Args:
        changed: Called with what has another policy, or with the name of a role or a project.
    """

    def __init__(self, changed: Callable[[Target], None] = lambda _: None) -> None:
        # By the resource and not its name: the next of that name begins without a policy.
        self._set: WeakKeyDictionary[Resource, schema.Policy] = WeakKeyDictionary()
        self.projects: dict[str, schema.Policy] = {}
        """By `projects/P`. The Pub/Sub API does not show them."""
        self.roles: dict[str, frozenset[str]] = {}
        """The permissions of custom roles, by their full names."""
        self._changes = 0
        self._changed = changed

    def get(self, resource: Resource, *, version: int) -> schema.Policy:
        """The policy of a resource, for somebody who knows policies up to that version."""
        field = "options.requested_policy_version"
        _check_version(version, field)
        policy = self.of(resource)
        if policy.version > max(version, 1):
            raise invalid(field, f"must be {CONDITIONS}: a binding of this policy has a condition")
        return policy

    def set(self, target: Target, policy: schema.Policy, mask: schema.FieldMask) -> schema.Policy:
        """Set what the mask names, bindings if it names nothing; returns the whole policy.

        The target is a resource, or a project's name: `projects/P`.
        """
        _check_version(policy.version, "policy.version")
        for path in mask.paths:
            if path not in _FIELDS:
                raise invalid("update_mask", f"{path!r} is not one of {', '.join(_FIELDS)}")
        before = self.of(target)
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
        if isinstance(target, str):
            self.projects[target] = changed
        else:
            self._set[target] = changed
        self._changed(target)
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

    def of(self, target: Target) -> schema.Policy:
        """The policy of a resource or a project; an empty one if none was set."""
        found = self.projects.get(target) if isinstance(target, str) else self._set.get(target)
        return found or schema.Policy(etag=NEVER_SET)

    def grant(self, target: Target, role: str, member: str) -> bool:
        """Give a member a role without a condition; returns whether it did not have it."""
        policy = _copy(self.of(target))
        binding = next(iter(_plain(policy, role)), None) or policy.bindings.add(role=role)
        if member in binding.members:
            return False
        binding.members.append(member)
        self.set(target, policy, schema.FieldMask())
        return True

    def revoke(self, target: Target, role: str, member: str) -> bool:
        """Take a role without a condition from a member; returns whether it had it."""
        policy = _copy(self.of(target))
        held = [binding for binding in _plain(policy, role) if member in binding.members]
        for binding in held:
            binding.members.remove(member)
            if not binding.members:
                policy.bindings.remove(binding)
        if held:
            self.set(target, policy, schema.FieldMask())
        return bool(held)

    def define_role(self, role: str, permissions: Collection[str]) -> None:
        """Say what a custom role grants."""
        self.roles[role] = frozenset(permissions)
        self._changed(role)

    def forget_project(self, project: str) -> None:
        """Forget what is granted on `projects/P`, and the roles that are defined in it."""
        self.projects.pop(project, None)
        for role in [role for role in self.roles if role.startswith(f"{project}/")]:
            del self.roles[role]
        self._changed(project)


def _copy(policy: schema.Policy) -> schema.Policy:
    copy = schema.Policy()
    copy.CopyFrom(policy)
    return copy


def _plain(policy: schema.Policy, role: str) -> list[schema.Binding]:
    """The bindings of a role that have no condition."""
    return [b for b in policy.bindings if b.role == role and not b.HasField("condition")]


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
        _check_role(binding.role, field=f"{field}.role")
        for member in binding.members:
            check_member(member, field=f"{field}.members")
    if _has_conditions(policy) and policy.version != CONDITIONS:
        raise invalid("policy.version", f"must be {CONDITIONS} if a binding has a condition")


def _check_role(role: str, *, field: str) -> None:
    """Refuse what cannot be a role, and roles of Pub/Sub that there are not."""
    from pubsub_aio.emulator.roles import ROLES  # only now: most emulators have no policies

    if not _ROLE.fullmatch(role):
        raise invalid(field, f"{role[:80]!r} must be roles/R or projects/P/roles/R")
    if role.startswith("roles/pubsub.") and role not in ROLES:
        known = ", ".join(name for name in ROLES if name.startswith("roles/pubsub."))
        raise invalid(field, f"{role[:80]!r} is no role of Pub/Sub; there are {known}")


def _has_conditions(policy: schema.Policy) -> bool:
    return any(binding.HasField("condition") for binding in policy.bindings)

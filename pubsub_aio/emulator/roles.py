"""IAM's permissions and roles, as far as they are about Pub/Sub."""

from __future__ import annotations

from collections.abc import Mapping

_TAGS = ("createTagBinding", "deleteTagBinding", "listEffectiveTags", "listTagBindings")
_POLICY = ("getIamPolicy", "setIamPolicy")
_OF_KIND = {
    "topics": (
        *("attachSubscription", "create", "delete", "detachSubscription", "get", "list"),
        *("publish", "update", "updateTag", *_POLICY, *_TAGS),
    ),
    "subscriptions": ("consume", "create", "delete", "get", "list", "update", *_POLICY, *_TAGS),
    "snapshots": ("create", "delete", "get", "list", "seek", "update", *_POLICY, *_TAGS),
    "schemas": (
        *("attach", "commit", "create", "delete", "get", "list", "listRevisions"),
        *("rollback", "validate", *_POLICY),
    ),
}
_OF_PROJECT = ("create", "list", "validate")

PERMISSIONS = frozenset(
    {f"pubsub.{kind}.{verb}" for kind, verbs in _OF_KIND.items() for verb in verbs}
    | {"pubsub.messageTransforms.validate"}
)
"""All there are."""

_EDITOR = frozenset(name for name in PERMISSIONS if not name.endswith("IamPolicy"))
_VIEWER = frozenset(
    name
    for name in _EDITOR
    if name.rpartition(".")[2]
    in ("get", "list", "listEffectiveTags", "listRevisions", "listTagBindings", "validate")
)

ROLES: Mapping[str, frozenset[str]] = {
    "roles/pubsub.publisher": frozenset({"pubsub.topics.publish"}),
    "roles/pubsub.subscriber": frozenset(
        {
            "pubsub.snapshots.seek",
            "pubsub.subscriptions.consume",
            "pubsub.topics.attachSubscription",
        }
    ),
    "roles/pubsub.viewer": _VIEWER,
    "roles/pubsub.editor": _EDITOR,
    "roles/pubsub.admin": PERMISSIONS,
    "roles/viewer": _VIEWER,
    "roles/editor": _EDITOR,
    "roles/owner": PERMISSIONS,
}
"""What the roles that Google defines grant; of equal ones, the least comes first."""


def is_on_project(permission: str) -> bool:
    """Whether a permission is asked for on a project, and not on one of its resources."""
    return permission.rpartition(".")[2] in _OF_PROJECT


def testable(kind: str) -> frozenset[str]:
    """The permissions that somebody can have on a resource of that kind."""
    every = (f"pubsub.{kind}.{verb}" for verb in _OF_KIND.get(kind, ()))
    return frozenset(permission for permission in every if not is_on_project(permission))


def least_role(permission: str) -> str:
    """The role with the fewest other permissions that has this one."""
    return next(role for role, granted in ROLES.items() if permission in granted)

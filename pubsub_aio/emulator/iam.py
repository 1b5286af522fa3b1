"""IAM as its users have it from Python: what the Pub/Sub API has no call for."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pubsub_aio.emulator.names import check_project
from pubsub_aio.emulator.principals import check_member, principal
from pubsub_aio.emulator.resources import find
from pubsub_aio.emulator.roles import PERMISSIONS, ROLES
from pubsub_aio.emulator.status import StatusError, invalid
from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from pubsub_aio.emulator.access import Access
    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.policies import Resource

_CUSTOM_ROLE = re.compile(r"(projects|organizations)/[^/\s]+/roles/[A-Za-z0-9_.]{3,64}")


class Iam:
    """Roles for those who call the emulator, had as `emulator.iam`.

    What it grants is seen in policies that are read by the API, and the other way round. It counts
    where permissions are enforced: `Emulator(enforce_iam=True)`.

    What cannot be is refused with ConfigError.
    """

    def __init__(
        self,
        broker: Broker,
        access: Access,
        *,
        project: Callable[[], str],
        wake: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._access = access
        self._project = project
        self._wake = wake

    def grant(self, role: str, member: str, *, on: str | None = None) -> bool:
        """Give somebody a role; returns whether that is new.

        Args:
            role: One of Pub/Sub's, such as `roles/pubsub.publisher`, or one that was defined.
            member: Such as `user:ann@example.com`, `serviceAccount:EMAIL`, `domain:example.com` or
                `allUsers`.
            on: The full name of a topic, subscription, snapshot or schema, or `projects/P`; the
                emulator's project if none is given. What is granted on a project counts for all
                in it.
        """
        try:
            if role not in ROLES and role not in self._broker.policies.roles:
                raise invalid(
                    "role",
                    f"{role!r} grants nothing in Pub/Sub: take one such as "
                    "roles/pubsub.publisher, or define it with define_role",
                )
            check_member(member, field="member")
            new = self._broker.policies.grant(self._target(on), role, member)
        except StatusError as error:
            raise ConfigError(error.message) from error
        self._wake()
        return new

    def revoke(self, role: str, member: str, *, on: str | None = None) -> bool:
        """Take a role away; returns whether they had it. Streams that may not go on are ended."""
        try:
            held = self._broker.policies.revoke(self._target(on), role, member)
        except StatusError as error:
            raise ConfigError(error.message) from error
        self._wake()
        return held

    def define_role(self, role: str, permissions: Collection[str]) -> None:
        """Say what a custom role grants; one that is not defined grants nothing.

        Args:
            role: Its full name, such as `projects/P/roles/orderClerk`.
            permissions: Such as `pubsub.topics.publish`.
        """
        if not _CUSTOM_ROLE.fullmatch(role):
            raise ConfigError(
                f"role: {role!r} must have the form projects/P/roles/R or organizations/O/roles/R"
            )
        if unknown := sorted(set(permissions) - PERMISSIONS):
            raise ConfigError(f"permissions: {', '.join(unknown)}: no permission of Pub/Sub")
        self._broker.policies.define_role(role, permissions)
        self._wake()

    def act_as(self, name: str) -> None:
        """From now on, callers that do not say who they are are this one.

        Args:
            name: `user:EMAIL`, `serviceAccount:EMAIL`, `group:EMAIL`, `anonymous`, or `owner`, who
                may do everything.
        """
        try:
            self._access.default = principal(name, field="principal")
        except StatusError as error:
            raise ConfigError(error.message) from error

    def _target(self, on: str | None) -> Resource | str:
        name = f"projects/{self._project()}" if on is None else on
        kind = "".join(name.split("/")[2:3])
        if not kind:
            check_project(name, field="on")
            return name
        if kind not in self._broker.tables:
            kinds = ", ".join(self._broker.tables)
            raise invalid("on", f"{name!r} must be projects/P or the full name of one of {kinds}")
        return find(self._broker.tables[kind], name, kind, field="on")

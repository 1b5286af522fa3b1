"""Who may do what: which permissions a call needs, and whether policies give them to its caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from pubsub_aio._wire import schema
from pubsub_aio.emulator.names import check_name, check_project
from pubsub_aio.emulator.principals import OWNER, is_member, principal
from pubsub_aio.emulator.roles import ROLES, is_on_project, least_role, testable
from pubsub_aio.emulator.status import Code, Info, StatusError, invalid
from pubsub_aio.emulator.subjects import project_in, subject_of, value

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.broker import Broker
    from pubsub_aio.emulator.policies import Resource

_PERMISSIONS = {
    "CreateTopic": "pubsub.topics.create",
    "UpdateTopic": "pubsub.topics.update",
    "Publish": "pubsub.topics.publish",
    "GetTopic": "pubsub.topics.get",
    "ListTopics": "pubsub.topics.list",
    "ListTopicSubscriptions": "pubsub.topics.get",
    "ListTopicSnapshots": "pubsub.topics.get",
    "DeleteTopic": "pubsub.topics.delete",
    "CreateSubscription": "pubsub.subscriptions.create",
    "GetSubscription": "pubsub.subscriptions.get",
    "UpdateSubscription": "pubsub.subscriptions.update",
    "ListSubscriptions": "pubsub.subscriptions.list",
    "DeleteSubscription": "pubsub.subscriptions.delete",
    "ModifyAckDeadline": "pubsub.subscriptions.consume",
    "Acknowledge": "pubsub.subscriptions.consume",
    "Pull": "pubsub.subscriptions.consume",
    "StreamingPull": "pubsub.subscriptions.consume",
    "ModifyPushConfig": "pubsub.subscriptions.update",
    "GetSnapshot": "pubsub.snapshots.get",
    "ListSnapshots": "pubsub.snapshots.list",
    "CreateSnapshot": "pubsub.snapshots.create",
    "UpdateSnapshot": "pubsub.snapshots.update",
    "DeleteSnapshot": "pubsub.snapshots.delete",
    "Seek": "pubsub.subscriptions.consume",
    "CreateSchema": "pubsub.schemas.create",
    "GetSchema": "pubsub.schemas.get",
    "ListSchemas": "pubsub.schemas.list",
    "ListSchemaRevisions": "pubsub.schemas.listRevisions",
    "CommitSchema": "pubsub.schemas.commit",
    "RollbackSchema": "pubsub.schemas.rollback",
    "DeleteSchemaRevision": "pubsub.schemas.delete",
    "DeleteSchema": "pubsub.schemas.delete",
    "ValidateSchema": "pubsub.schemas.validate",
    "ValidateMessage": "pubsub.schemas.validate",
}
"""On what a call is about, or on its project; `_needs` adds what some need elsewhere."""

_ATTACHING = {
    "CreateTopic": "schema_settings.schema",
    "UpdateTopic": "topic.schema_settings.schema",
}


class Need(NamedTuple):
    """A permission that a call needs on something that its request names in a field."""

    permission: str
    name: str
    field: str


class Access:
    """Says no to callers that a policy does not let do what they ask for.

    Args:
        broker: Where resources and policies are.
        enforced: Whether it does; otherwise everybody may do everything.
    """

    def __init__(self, broker: Broker, *, enforced: bool) -> None:
        self.enforced = enforced
        self.default = OWNER
        """Who a caller is that does not say it."""
        self._broker = broker

    def admit(self, rpc: str, request: Message, said: str | None) -> str:
        """Refuse a call whose caller may not make it; returns the caller.

        Args:
            rpc: Which RPC.
            request: Its request.
            said: Who the caller says it is.
        """
        caller = self._caller(said)
        if caller != OWNER and rpc != "TestIamPermissions":
            for need in self._needs(rpc, request):
                self._check(caller, need)
        return caller

    def tested(
        self, request: schema.TestIamPermissionsRequest, said: str | None
    ) -> schema.TestIamPermissionsResponse:
        """Those of the permissions asked for that the caller has on a resource.

        It has none on what does not exist, which is not an error.
        """
        caller = self._caller(said)
        for index, permission in enumerate(request.permissions):
            if "*" in permission:
                raise invalid(f"permissions[{index}]", f"{permission[:80]!r} must have no wildcard")
        kind = self._kind_of(request.resource)
        applicable = testable(kind) if self._found(request.resource) else frozenset()
        return schema.TestIamPermissionsResponse(
            permissions=[
                permission
                for permission in dict.fromkeys(request.permissions)
                if permission in applicable and self._may(caller, permission, request.resource)
            ]
        )

    def recheck(self) -> None:
        """End the streams whose callers may not read any more: a policy has changed."""
        for name, subscription in self._broker.subscriptions.items():
            need = Need(_PERMISSIONS["StreamingPull"], name, "subscription")
            for stream in subscription.streams.values():
                try:
                    self._check(stream.caller, need)
                except StatusError as error:
                    stream.ended = stream.ended or error
                    self._broker.changed[subscription] = None

    def _caller(self, said: str | None) -> str:
        return self.default if said is None else principal(said)

    # What is needed

    def _needs(self, rpc: str, request: Message) -> Iterator[Need]:
        name, field = subject_of(rpc, request)
        if permission := _PERMISSIONS.get(rpc):
            yield Need(permission, name, field)
        if rpc in ("GetIamPolicy", "SetIamPolicy"):
            verb = rpc[0].lower() + rpc[1:]
            yield Need(f"pubsub.{self._kind_of(name)}.{verb}", name, field)
        elif rpc == "CreateSubscription":
            topic = value(request, "topic")
            yield Need("pubsub.topics.attachSubscription", topic, "topic")
        elif rpc == "DetachSubscription":
            yield self._detaching(name)
        elif rpc == "CreateSnapshot":
            source = value(request, "subscription")
            yield Need("pubsub.subscriptions.consume", source, "subscription")
        elif rpc == "Seek" and (snapshot := value(request, "snapshot")):
            yield Need("pubsub.snapshots.seek", snapshot, "snapshot")
        elif rpc == "ValidateMessage" and (name := value(request, "name")):
            yield Need("pubsub.schemas.get", name, "name")
        elif rpc in _ATTACHING and (name := _attached(rpc, request)):
            yield Need("pubsub.schemas.attach", name, _ATTACHING[rpc])

    def _detaching(self, name: str) -> Need:
        """It is the topic's owner who may detach; where there is none, the project's."""
        permission = "pubsub.topics.detachSubscription"
        subscription = self._broker.subscriptions.get(name)
        if subscription is None:
            check_name(name, "subscriptions", field="subscription")
        elif subscription.config.topic in self._broker.topics:
            return Need(permission, subscription.config.topic, "subscription")
        return Need(permission, project_in(name), "subscription")

    def _kind_of(self, name: str) -> str:
        """Of which kind a resource is; refused if its name is none that has a policy."""
        kind = "".join(name.split("/")[2:3])
        if not testable(kind):
            kind = "topics"
        if not self._found(name):
            check_name(name, kind, field="resource")
        return kind

    # What is given

    def _check(self, caller: str, need: Need) -> None:
        permission, name, field = need
        name = name.partition("@")[0]  # what follows is a schema's revision
        if is_on_project(permission) or name.count("/") == 1:
            name = project_in(name)
            check_project(name, field=field)
        elif not self._found(name):
            check_name(name, permission.split(".")[1], field=field)
        if not self._may(caller, permission, name):
            raise self._denied(caller, permission, name)

    def _may(self, caller: str, permission: str, name: str) -> bool:
        return caller == OWNER or any(
            not binding.HasField("condition") for binding in self._giving(caller, permission, name)
        )

    def _denied(self, caller: str, permission: str, name: str) -> StatusError:
        role = least_role(permission)
        remedy = f"grant it {role} or another role with that permission"
        if any(self._giving(caller, permission, name)):
            remedy = "a binding with a condition would give it, but none is evaluated here"
        return StatusError(
            Code.PERMISSION_DENIED,
            f"User not authorized to perform this action. {caller} lacks {permission} on {name}: "
            f"{remedy}",
            info=Info(
                "IAM_PERMISSION_DENIED",
                "iam.googleapis.com",
                {"permission": permission, "resource": name},
            ),
        )

    def _giving(self, caller: str, permission: str, name: str) -> Iterator[schema.Binding]:
        """The bindings by which a caller has a permission, with a condition or without."""
        policies = self._broker.policies
        targets: list[Resource | str] = [project_in(name)]
        if resource := self._found(name):
            targets.append(resource)
        for target in targets:
            for binding in policies.of(target).bindings:
                granted = ROLES.get(binding.role) or policies.roles.get(binding.role, frozenset())
                if permission in granted and any(is_member(caller, m) for m in binding.members):
                    yield binding

    def _found(self, name: str) -> Resource | None:
        kind = "".join(name.split("/")[2:3])
        return self._broker.tables.get(kind, {}).get(name)


def _attached(rpc: str, request: Message) -> str:
    """The schema that a call gives to a topic, if it does."""
    if rpc == "UpdateTopic":
        paths = cast("schema.UpdateTopicRequest", request).update_mask.paths
        if not any(path.startswith("schema_settings") for path in paths):
            return ""
    return value(request, _ATTACHING[rpc])

"""Every RPC of the service: its messages, and its HTTP mapping."""

from __future__ import annotations

from typing import NamedTuple

PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"
SCHEMAS = "google.pubsub.v1.SchemaService"
IAM = "google.iam.v1.IAMPolicy"

_TOPIC = "projects/*/topics/*"
_SUBSCRIPTION = "projects/*/subscriptions/*"
_SNAPSHOT = "projects/*/snapshots/*"
_SCHEMA = "projects/*/schemas/*"


class Rpc(NamedTuple):
    """One method.

    `http` lists its routes, each a verb and a path template; every verb but GET and DELETE takes
    the request as its body, or the field `body` of it.
    """

    service: str
    name: str
    request: str
    response: str
    http: tuple[str, ...] = ()
    body: str = "*"

    @property
    def path(self) -> str:
        """Its path over gRPC."""
        return f"/{self.service}/{self.name}"


def _on_each(route: str) -> tuple[str, ...]:
    """A route for each kind of resource that has a policy."""
    return tuple(route.format(kind) for kind in (_TOPIC, _SUBSCRIPTION, _SNAPSHOT, _SCHEMA))


RPCS = (
    Rpc(PUBLISHER, "CreateTopic", "Topic", "Topic", (f"PUT /v1/{{name={_TOPIC}}}",)),
    Rpc(
        PUBLISHER,
        "UpdateTopic",
        "UpdateTopicRequest",
        "Topic",
        (f"PATCH /v1/{{topic.name={_TOPIC}}}",),
    ),
    Rpc(
        PUBLISHER,
        "Publish",
        "PublishRequest",
        "PublishResponse",
        (f"POST /v1/{{topic={_TOPIC}}}:publish",),
    ),
    Rpc(PUBLISHER, "GetTopic", "GetTopicRequest", "Topic", (f"GET /v1/{{topic={_TOPIC}}}",)),
    Rpc(
        PUBLISHER,
        "ListTopics",
        "ListTopicsRequest",
        "ListTopicsResponse",
        ("GET /v1/{project=projects/*}/topics",),
    ),
    Rpc(
        PUBLISHER,
        "ListTopicSubscriptions",
        "ListTopicSubscriptionsRequest",
        "ListTopicSubscriptionsResponse",
        (f"GET /v1/{{topic={_TOPIC}}}/subscriptions",),
    ),
    Rpc(
        PUBLISHER,
        "ListTopicSnapshots",
        "ListTopicSnapshotsRequest",
        "ListTopicSnapshotsResponse",
        (f"GET /v1/{{topic={_TOPIC}}}/snapshots",),
    ),
    Rpc(
        PUBLISHER, "DeleteTopic", "DeleteTopicRequest", "Empty", (f"DELETE /v1/{{topic={_TOPIC}}}",)
    ),
    Rpc(
        PUBLISHER,
        "DetachSubscription",
        "DetachSubscriptionRequest",
        "DetachSubscriptionResponse",
        (f"POST /v1/{{subscription={_SUBSCRIPTION}}}:detach",),
    ),
    Rpc(
        SUBSCRIBER,
        "CreateSubscription",
        "Subscription",
        "Subscription",
        (f"PUT /v1/{{name={_SUBSCRIPTION}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "GetSubscription",
        "GetSubscriptionRequest",
        "Subscription",
        (f"GET /v1/{{subscription={_SUBSCRIPTION}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "UpdateSubscription",
        "UpdateSubscriptionRequest",
        "Subscription",
        (f"PATCH /v1/{{subscription.name={_SUBSCRIPTION}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "ListSubscriptions",
        "ListSubscriptionsRequest",
        "ListSubscriptionsResponse",
        ("GET /v1/{project=projects/*}/subscriptions",),
    ),
    Rpc(
        SUBSCRIBER,
        "DeleteSubscription",
        "DeleteSubscriptionRequest",
        "Empty",
        (f"DELETE /v1/{{subscription={_SUBSCRIPTION}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "ModifyAckDeadline",
        "ModifyAckDeadlineRequest",
        "Empty",
        (f"POST /v1/{{subscription={_SUBSCRIPTION}}}:modifyAckDeadline",),
    ),
    Rpc(
        SUBSCRIBER,
        "Acknowledge",
        "AcknowledgeRequest",
        "Empty",
        (f"POST /v1/{{subscription={_SUBSCRIPTION}}}:acknowledge",),
    ),
    Rpc(
        SUBSCRIBER,
        "Pull",
        "PullRequest",
        "PullResponse",
        (f"POST /v1/{{subscription={_SUBSCRIPTION}}}:pull",),
    ),
    Rpc(SUBSCRIBER, "StreamingPull", "StreamingPullRequest", "StreamingPullResponse"),
    Rpc(
        SUBSCRIBER,
        "ModifyPushConfig",
        "ModifyPushConfigRequest",
        "Empty",
        (f"POST /v1/{{subscription={_SUBSCRIPTION}}}:modifyPushConfig",),
    ),
    Rpc(
        SUBSCRIBER,
        "GetSnapshot",
        "GetSnapshotRequest",
        "Snapshot",
        (f"GET /v1/{{snapshot={_SNAPSHOT}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "ListSnapshots",
        "ListSnapshotsRequest",
        "ListSnapshotsResponse",
        ("GET /v1/{project=projects/*}/snapshots",),
    ),
    Rpc(
        SUBSCRIBER,
        "CreateSnapshot",
        "CreateSnapshotRequest",
        "Snapshot",
        (f"PUT /v1/{{name={_SNAPSHOT}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "UpdateSnapshot",
        "UpdateSnapshotRequest",
        "Snapshot",
        (f"PATCH /v1/{{snapshot.name={_SNAPSHOT}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "DeleteSnapshot",
        "DeleteSnapshotRequest",
        "Empty",
        (f"DELETE /v1/{{snapshot={_SNAPSHOT}}}",),
    ),
    Rpc(
        SUBSCRIBER,
        "Seek",
        "SeekRequest",
        "SeekResponse",
        (f"POST /v1/{{subscription={_SUBSCRIPTION}}}:seek",),
    ),
    Rpc(
        SCHEMAS,
        "CreateSchema",
        "CreateSchemaRequest",
        "Schema",
        ("POST /v1/{parent=projects/*}/schemas",),
        body="schema",
    ),
    Rpc(SCHEMAS, "GetSchema", "GetSchemaRequest", "Schema", (f"GET /v1/{{name={_SCHEMA}}}",)),
    Rpc(
        SCHEMAS,
        "ListSchemas",
        "ListSchemasRequest",
        "ListSchemasResponse",
        ("GET /v1/{parent=projects/*}/schemas",),
    ),
    Rpc(
        SCHEMAS,
        "ListSchemaRevisions",
        "ListSchemaRevisionsRequest",
        "ListSchemaRevisionsResponse",
        (f"GET /v1/{{name={_SCHEMA}}}:listRevisions",),
    ),
    Rpc(
        SCHEMAS,
        "CommitSchema",
        "CommitSchemaRequest",
        "Schema",
        (f"POST /v1/{{name={_SCHEMA}}}:commit",),
    ),
    Rpc(
        SCHEMAS,
        "RollbackSchema",
        "RollbackSchemaRequest",
        "Schema",
        (f"POST /v1/{{name={_SCHEMA}}}:rollback",),
    ),
    Rpc(
        SCHEMAS,
        "DeleteSchemaRevision",
        "DeleteSchemaRevisionRequest",
        "Schema",
        (f"DELETE /v1/{{name={_SCHEMA}}}:deleteRevision",),
    ),
    Rpc(
        SCHEMAS, "DeleteSchema", "DeleteSchemaRequest", "Empty", (f"DELETE /v1/{{name={_SCHEMA}}}",)
    ),
    Rpc(
        SCHEMAS,
        "ValidateSchema",
        "ValidateSchemaRequest",
        "ValidateSchemaResponse",
        ("POST /v1/{parent=projects/*}/schemas:validate",),
    ),
    Rpc(
        SCHEMAS,
        "ValidateMessage",
        "ValidateMessageRequest",
        "ValidateMessageResponse",
        ("POST /v1/{parent=projects/*}/schemas:validateMessage",),
    ),
    Rpc(
        IAM,
        "SetIamPolicy",
        "SetIamPolicyRequest",
        "Policy",
        _on_each("POST /v1/{{resource={}}}:setIamPolicy"),
    ),
    Rpc(
        IAM,
        "GetIamPolicy",
        "GetIamPolicyRequest",
        "Policy",
        _on_each("GET /v1/{{resource={}}}:getIamPolicy"),
    ),
    Rpc(
        IAM,
        "TestIamPermissions",
        "TestIamPermissionsRequest",
        "TestIamPermissionsResponse",
        _on_each("POST /v1/{{resource={}}}:testIamPermissions"),
    ),
)

BY_NAME = {rpc.name: rpc for rpc in RPCS}

"""What is to come answers UNIMPLEMENTED, and says what it is that is missing."""

import grpc
import pytest
from google.api_core.exceptions import MethodNotImplemented
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import (
    CommitSchemaRequest,
    CreateSchemaRequest,
    DeleteSchemaRequest,
    DeleteSchemaRevisionRequest,
    GetSchemaRequest,
    ListSchemaRevisionsRequest,
    ListSchemasRequest,
    ModifyPushConfigRequest,
    PushConfig,
    RollbackSchemaRequest,
    Schema,
    Subscription,
    UpdateSubscriptionRequest,
    ValidateMessageRequest,
    ValidateSchemaRequest,
)

from tests.emulator.conformance.marks import embedded_only
from tests.emulator.conformance.rest import Json, Rest
from tests.emulator.conformance.servers import Server
from tests.emulator.conformance.streams import WITHIN

pytestmark = embedded_only("it is about what our own emulator cannot do yet")

PUSH = {"push_endpoint": "http://127.0.0.1:9/push"}
SCHEMA = "projects/p/schemas/mine"
DEFINITION = Schema(name=SCHEMA, type_=Schema.Type.AVRO, definition='{"type": "string"}')


def raw_call(server: Server, service: str, method: str, payload: bytes) -> grpc.RpcError:
    """Call a method by its name, past any client, and give its refusal."""
    call = server.channel.unary_unary(
        f"/{service}/{method}", request_serializer=bytes, response_deserializer=bytes
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(payload, timeout=WITHIN)
    return caught.value


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        (
            "CreateSchema",
            CreateSchemaRequest.serialize(
                CreateSchemaRequest(parent="projects/p", schema=DEFINITION, schema_id="mine")
            ),
        ),
        ("GetSchema", GetSchemaRequest.serialize(GetSchemaRequest(name=SCHEMA))),
        ("ListSchemas", ListSchemasRequest.serialize(ListSchemasRequest(parent="projects/p"))),
        (
            "ListSchemaRevisions",
            ListSchemaRevisionsRequest.serialize(ListSchemaRevisionsRequest(name=SCHEMA)),
        ),
        (
            "CommitSchema",
            CommitSchemaRequest.serialize(CommitSchemaRequest(name=SCHEMA, schema=DEFINITION)),
        ),
        (
            "RollbackSchema",
            RollbackSchemaRequest.serialize(RollbackSchemaRequest(name=SCHEMA, revision_id="1")),
        ),
        (
            "DeleteSchemaRevision",
            DeleteSchemaRevisionRequest.serialize(DeleteSchemaRevisionRequest(name=f"{SCHEMA}@1")),
        ),
        ("DeleteSchema", DeleteSchemaRequest.serialize(DeleteSchemaRequest(name=SCHEMA))),
        (
            "ValidateSchema",
            ValidateSchemaRequest.serialize(
                ValidateSchemaRequest(parent="projects/p", schema=DEFINITION)
            ),
        ),
        (
            "ValidateMessage",
            ValidateMessageRequest.serialize(
                ValidateMessageRequest(parent="projects/p", schema=DEFINITION, message=b'"a"')
            ),
        ),
    ],
)
def test_schema_service_is_unimplemented(server: Server, method: str, payload: bytes) -> None:
    error = raw_call(server, "google.pubsub.v1.SchemaService", method, payload)

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert method in str(error.details())


def test_iam_permissions_are_unimplemented(server: Server) -> None:
    request = iam_policy_pb2.TestIamPermissionsRequest(resource=server.create_topic())
    payload = request.SerializeToString()
    error = raw_call(server, "google.iam.v1.IAMPolicy", "TestIamPermissions", payload)

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "TestIamPermissions" in str(error.details())


@pytest.mark.parametrize("method", ["SetIamPolicy", "GetIamPolicy"])
def test_iam_policy_of_a_schema_is_unimplemented(server: Server, method: str) -> None:
    request = getattr(iam_policy_pb2, f"{method}Request")(resource=SCHEMA)
    error = raw_call(server, "google.iam.v1.IAMPolicy", method, request.SerializeToString())

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "policy of a schema" in str(error.details())


@pytest.mark.parametrize(
    ("method", "path", "body", "naming"),
    [
        ("POST", "projects/p/schemas?schemaId=mine", {"type": "AVRO"}, "CreateSchema"),
        ("GET", SCHEMA, None, "GetSchema"),
        ("GET", "projects/p/schemas", None, "ListSchemas"),
        ("GET", f"{SCHEMA}:listRevisions", None, "ListSchemaRevisions"),
        ("POST", f"{SCHEMA}:commit", {}, "CommitSchema"),
        ("POST", f"{SCHEMA}:rollback", {}, "RollbackSchema"),
        ("DELETE", f"{SCHEMA}:deleteRevision", None, "DeleteSchemaRevision"),
        ("DELETE", SCHEMA, None, "DeleteSchema"),
        ("POST", "projects/p/schemas:validate", {}, "ValidateSchema"),
        ("POST", "projects/p/schemas:validateMessage", {}, "ValidateMessage"),
        ("POST", f"{SCHEMA}:setIamPolicy", {}, "policy of a schema"),
        ("GET", f"{SCHEMA}:getIamPolicy", None, "policy of a schema"),
        ("POST", "projects/p/subscriptions/mine:testIamPermissions", {}, "TestIamPermissions"),
    ],
)
def test_rest_says_unimplemented_too(
    server: Server, method: str, path: str, body: dict[str, Json] | None, naming: str
) -> None:
    response = Rest(server.address, timeout=WITHIN).request(method, path, body)
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (response.status, error["code"], error["status"]) == (501, 501, "UNIMPLEMENTED")
    assert naming in str(error["message"])


def test_push_subscription_is_unimplemented(server: Server) -> None:
    topic = server.create_topic()

    with server.refuses(MethodNotImplemented, naming="push"):
        server.create_subscription(topic, push_config=PUSH)


def test_push_by_update_is_unimplemented(server: Server) -> None:
    _, subscription = server.create_pair()
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, push_config=PUSH),
        update_mask={"paths": ["push_config"]},
    )

    with server.refuses(MethodNotImplemented, naming="push"):
        server.call(server.subscriber.update_subscription, request)
    assert not server.get_subscription(subscription).push_config.push_endpoint


def test_modify_push_config_is_unimplemented(server: Server) -> None:
    _, subscription = server.create_pair()
    request = ModifyPushConfigRequest(subscription=subscription, push_config=PushConfig(PUSH))

    with server.refuses(MethodNotImplemented, naming="push"):
        server.call(server.subscriber.modify_push_config, request)


def test_modify_push_config_to_pull_is_taken(server: Server) -> None:
    _, subscription = server.create_pair()
    request = ModifyPushConfigRequest(subscription=subscription, push_config=PushConfig())

    server.call(server.subscriber.modify_push_config, request)

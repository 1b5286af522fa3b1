"""What is to come answers UNIMPLEMENTED, and says what it is that is missing."""

import grpc
import pytest
from google.api_core.exceptions import MethodNotImplemented
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import (
    Subscription,
    Topic,
    UpdateSubscriptionRequest,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import embedded_only
from tests.emulator.conformance.rest import Rest
from tests.emulator.conformance.servers import Server
from tests.emulator.conformance.streams import WITHIN

pytestmark = embedded_only("it is about what our own emulator cannot do yet")

TRANSFORM = {
    "javascript_udf": {
        "function_name": "same",
        "code": "function same(message, metadata) { return message; }",
    }
}


def raw_call(server: Server, service: str, method: str, payload: bytes) -> grpc.RpcError:
    """Call a method by its name, past any client, and give its refusal."""
    call = server.channel.unary_unary(
        f"/{service}/{method}", request_serializer=bytes, response_deserializer=bytes
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(payload, timeout=WITHIN)
    return caught.value


def test_iam_permissions_are_unimplemented(server: Server) -> None:
    request = iam_policy_pb2.TestIamPermissionsRequest(resource=server.create_topic())
    payload = request.SerializeToString()
    error = raw_call(server, "google.iam.v1.IAMPolicy", "TestIamPermissions", payload)

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "TestIamPermissions" in str(error.details())


def test_rest_says_unimplemented_too(server: Server) -> None:
    path = "projects/p/subscriptions/mine:testIamPermissions"
    response = Rest(server.address, timeout=WITHIN).post(path, {})
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (response.status, error["code"], error["status"]) == (501, 501, "UNIMPLEMENTED")
    assert "TestIamPermissions" in str(error["message"])


def test_message_transforms_of_a_topic_are_unimplemented(server: Server) -> None:
    topic = server.create_topic()
    request = UpdateTopicRequest(
        topic=Topic(name=topic, message_transforms=[TRANSFORM]),
        update_mask={"paths": ["message_transforms"]},
    )

    with server.refuses(MethodNotImplemented, naming="transform"):
        server.create_topic(message_transforms=[TRANSFORM])
    with server.refuses(MethodNotImplemented, naming="transform"):
        server.call(server.publisher.update_topic, request)


def test_message_transforms_of_a_subscription_are_unimplemented(server: Server) -> None:
    topic, subscription = server.create_pair()
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription, message_transforms=[TRANSFORM]),
        update_mask={"paths": ["message_transforms"]},
    )

    with server.refuses(MethodNotImplemented, naming="transform"):
        server.create_subscription(topic, message_transforms=[TRANSFORM])
    with server.refuses(MethodNotImplemented, naming="transform"):
        server.call(server.subscriber.update_subscription, request)

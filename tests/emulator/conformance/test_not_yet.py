"""What is to come answers UNIMPLEMENTED, and says what it is that is missing."""

from google.api_core.exceptions import MethodNotImplemented
from google.pubsub_v1 import (
    Subscription,
    Topic,
    UpdateSubscriptionRequest,
    UpdateTopicRequest,
)

from tests.emulator.conformance.marks import embedded_only
from tests.emulator.conformance.servers import Server

pytestmark = embedded_only("it is about what our own emulator cannot do yet")

TRANSFORM = {
    "javascript_udf": {
        "function_name": "same",
        "code": "function same(message, metadata) { return message; }",
    }
}


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

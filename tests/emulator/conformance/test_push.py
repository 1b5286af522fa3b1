"""What is pushed: bodies, headers, and which answers acknowledge."""

import base64
import json
from collections.abc import Iterator
from datetime import datetime

import pytest
from google.pubsub_v1 import PubsubMessage

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.servers import Server
from tests.emulator.push_endpoint import Endpoint

X_GOOG = "x-goog-pubsub"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


def create(server: Server, endpoint: Endpoint, **settings: object) -> tuple[str, str]:
    """Make a topic, and a subscription that pushes; settings of push_config begin with `push_`."""
    push = {
        key.removeprefix("push_"): settings.pop(key) for key in list(settings) if key[:5] == "push_"
    }
    return server.create_pair(push_config={"push_endpoint": endpoint.url, **push}, **settings)


RAW = {"push_no_wrapper": {"write_metadata": True}}


def test_push_delivers_wrapped_json(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = create(server, endpoint)
    (message_id,) = server.publish(topic, PubsubMessage(data=b"\x00\xff", attributes={"k": "v"}))
    (pushed,) = endpoint.wait_for(1)
    body = json.loads(pushed.body)
    published = body["message"].pop("publishTime")

    assert pushed.path == "/push?token=1"
    assert pushed.header("Content-Type") == "application/json"
    assert body == {
        "message": {
            "attributes": {"k": "v"},
            "data": base64.b64encode(b"\x00\xff").decode(),
            "messageId": message_id,
            "message_id": message_id,
            "publish_time": published,
        },
        "subscription": subscription,
    }
    assert published.endswith("Z")
    assert datetime.fromisoformat(published)


def test_push_says_that_it_is_googles(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint)
    server.publish(topic, "a")
    (pushed,) = endpoint.wait_for(1)

    assert pushed.header("Authorization") is None
    if server.kind == "embedded":  # Google's says that it is Java
        assert str(pushed.header("User-Agent")).startswith("APIs-Google; ")


@google_falls_short("leaves it out")
def test_push_wrapped_carries_the_ordering_key(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint)
    server.publish(topic, PubsubMessage(data=b"a", ordering_key="k"))
    (pushed,) = endpoint.wait_for(1)

    assert json.loads(pushed.body)["message"]["orderingKey"] == "k"


@google_falls_short("leaves it out")
def test_push_wrapped_carries_the_delivery_attempt(server: Server, endpoint: Endpoint) -> None:
    policy = {"dead_letter_topic": server.create_topic(), "max_delivery_attempts": 10}
    topic, _ = create(server, endpoint, dead_letter_policy=policy)
    endpoint.statuses.append(500)
    server.publish(topic, "a")
    pushed = endpoint.wait_for(2, server)

    assert [json.loads(push.body)["deliveryAttempt"] for push in pushed] == [1, 2]


def test_push_pubsub_wrapper_is_the_default(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = create(server, endpoint, push_pubsub_wrapper={})
    server.publish(topic, "a")
    (pushed,) = endpoint.wait_for(1)

    assert json.loads(pushed.body)["subscription"] == subscription


def test_push_no_wrapper_raw_body_and_metadata_headers(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = create(server, endpoint, **RAW)
    (message_id,) = server.publish(topic, PubsubMessage(data=b"raw", attributes={"Kind": "of a"}))
    (pushed,) = endpoint.wait_for(1)
    published = pushed.header(f"{X_GOOG}-publish-time")

    assert pushed.body == b"raw"
    assert pushed.header("kind") == "of a"
    assert pushed.header(f"{X_GOOG}-subscription-name") == subscription
    assert pushed.header(f"{X_GOOG}-message-id") == message_id
    assert published
    assert datetime.fromisoformat(published)
    assert pushed.header(f"{X_GOOG}-ordering-key") is None


@google_falls_short("takes it for UTF-8")
def test_push_no_wrapper_sends_any_bytes(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint, **RAW)
    server.publish(topic, PubsubMessage(data=b"\x00\xff\r\n"))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.body == b"\x00\xff\r\n"


def test_push_no_wrapper_without_metadata(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint, push_no_wrapper={})
    server.publish(topic, PubsubMessage(data=b"a", attributes={"Kind": "of a"}))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.body == b"a"
    assert pushed.header("Kind") is None
    assert [name for name in pushed.headers if name.lower().startswith("x-goog")] == []


@google_falls_short("leaves it out")
def test_push_no_wrapper_carries_the_ordering_key(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint, **RAW)
    server.publish(topic, PubsubMessage(data=b"a", ordering_key="k"))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.header(f"{X_GOOG}-ordering-key") == "k"


def test_push_no_wrapper_without_data(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint, **RAW)
    server.publish(topic, PubsubMessage(attributes={"Kind": "of a"}))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.body == b""
    assert pushed.header("Kind") == "of a"


@pytest.mark.parametrize("name", ["Content-Type", "content-type"])
def test_push_no_wrapper_content_type_is_the_publishers(
    server: Server, endpoint: Endpoint, name: str
) -> None:
    topic, _ = create(server, endpoint, **RAW)
    server.publish(topic, PubsubMessage(data=b"<a/>", attributes={name: "text/xml"}))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.header("Content-Type") == "text/xml"


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({"line end": "a"}, id="a name with a space"),
        pytest.param({"a\r\nInjected": "yes"}, id="a name with a line end"),
        pytest.param({"ü": "a"}, id="a name that is not ASCII"),
        pytest.param({"a": "b\r\nInjected: yes"}, id="a value with a line end"),
        pytest.param({"a": "b\nInjected: yes"}, id="a value with half a line end"),
        pytest.param({"a": "b\x00"}, id="a value with a NUL"),
    ],
)
@google_falls_short("never delivers it, or does with what it can", hangs=True)
def test_push_no_wrapper_leaves_out_what_is_no_header(
    server: Server, endpoint: Endpoint, attributes: dict[str, str]
) -> None:
    topic, _ = create(server, endpoint, **RAW)
    server.publish(topic, PubsubMessage(data=b"data", attributes={**attributes, "good": "one"}))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.body == b"data"
    assert pushed.header("good") == "one"
    assert not pushed.headers.keys() & {"Injected", "a", "ü", "line end"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Host", "elsewhere"),
        ("Connection", "close"),
        ("Expect", "100-continue"),
        (f"{X_GOOG}-message-id", "mine"),
    ],
)
@google_falls_short("takes over some of them", hangs=True)
def test_push_no_wrapper_attributes_do_not_disturb_the_request(
    server: Server, endpoint: Endpoint, name: str, value: str
) -> None:
    topic, _ = create(server, endpoint, **RAW)
    server.publish(topic, PubsubMessage(data=b"data", attributes={name: value}))
    (pushed,) = endpoint.wait_for(1)

    assert pushed.body == b"data"
    assert pushed.header(name) != value


def test_push_of_9_mb_arrives(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint)
    data = b"\x01" * 9_000_000
    server.publish(topic, PubsubMessage(data=data))
    (pushed,) = endpoint.wait_for(1)

    assert base64.b64decode(json.loads(pushed.body)["message"]["data"]) == data


@pytest.mark.last
def test_push_is_acknowledged_by_a_success(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = create(server, endpoint)
    endpoint.statuses.extend([200, 201, 204])
    server.publish(topic, "a", "b", "c")
    endpoint.wait_for(3)
    endpoint.settle(server, subscription)
    server.let_time_pass(11)  # no deadline is left

    assert len(endpoint.requests) == 3


@google_falls_short("delivers it again, sooner or later", hangs=True)
def test_push_is_acknowledged_by_202(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = create(server, endpoint)
    endpoint.statuses.append(202)
    server.publish(topic, "a")
    endpoint.wait_for(1)
    endpoint.settle(server, subscription)
    server.let_time_pass(1)

    assert len(endpoint.requests) == 1


def test_push_non_2xx_is_redelivered(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint)
    endpoint.statuses.extend([500, 404, 503])
    (message_id,) = server.publish(topic, "a")
    pushed = endpoint.wait_for(4, server)
    server.let_time_pass(1)

    assert [json.loads(push.body)["message"]["messageId"] for push in pushed] == 4 * [message_id]
    assert len(endpoint.requests) == 4


@pytest.mark.parametrize("status", [203, 205, 206, 299])
@google_falls_short("takes it for a success", hangs=True)
def test_push_other_2xx_is_redelivered(server: Server, endpoint: Endpoint, status: int) -> None:
    topic, _ = create(server, endpoint)
    endpoint.statuses.append(status)
    server.publish(topic, "a")

    assert len(endpoint.wait_for(2, server)) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@google_falls_short("follows it", hangs=True)
def test_push_redirect_is_not_followed(server: Server, endpoint: Endpoint, status: int) -> None:
    topic, _ = create(server, endpoint)
    endpoint.headers["Location"] = "/elsewhere"
    endpoint.statuses.append(status)
    server.publish(topic, "a")

    assert {push.path for push in endpoint.wait_for(2, server)} == {"/push?token=1"}


@google_falls_short("pushes both, in any order", hangs=True)
def test_push_filter_leaves_messages_out(server: Server, endpoint: Endpoint) -> None:
    topic, _ = create(server, endpoint, filter='attributes.k = "v"')
    server.publish(
        topic, PubsubMessage(data=b"no"), PubsubMessage(data=b"yes", attributes={"k": "v"})
    )
    pushed = endpoint.wait_for(1)
    server.let_time_pass(1)

    assert [json.loads(push.body)["message"]["attributes"] for push in pushed] == [{"k": "v"}]

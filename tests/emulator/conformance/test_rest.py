"""The REST API: the same service, on the same port, in JSON."""

import base64
import concurrent.futures
import re
import urllib.parse

import pytest

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.rest import Json, Response, Rest
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.streams import WITHIN


@pytest.fixture
def rest(server: Server) -> Rest:
    return Rest(server.address, timeout=WITHIN)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def deliveries(response: Response) -> list[dict[str, Json]]:
    """The messages of a Pull's answer, each with its ack id."""
    assert response.status == 200
    received = response.body.get("receivedMessages", [])
    assert isinstance(received, list)
    found: list[dict[str, Json]] = []
    for delivery in received:
        assert isinstance(delivery, dict)
        message = delivery["message"]
        assert isinstance(message, dict)
        found.append({**message, "ackId": delivery["ackId"]})
    return found


def names(listed: Json) -> list[Json]:
    """The names of the resources in a list's answer."""
    assert isinstance(listed, list)
    return [resource["name"] for resource in listed if isinstance(resource, dict)]


def test_rest_same_port_crud_publish_pull_ack(server: Server, rest: Rest) -> None:
    topic, subscription = server.topic_name(), server.subscription_name()
    made = rest.put(topic, {"labels": {"team": "a"}})
    assert (made.status, made.content_type) == (200, "application/json")
    assert made.body["name"] == topic
    assert rest.get(topic).body == made.body
    assert dict(server.get_topic(topic).labels) == {"team": "a"}

    made = rest.put(subscription, {"topic": topic, "ackDeadlineSeconds": 30})
    assert made.status == 200
    assert made.body["ackDeadlineSeconds"] == 30
    assert made.body["messageRetentionDuration"] == "604800s"
    assert rest.get(subscription).body == made.body
    assert rest.get(f"{topic}/subscriptions").body == {"subscriptions": [subscription]}

    message: Json = {"data": encoded(b"\xff\x00"), "attributes": {"k": "v"}, "orderingKey": "o"}
    published = rest.post(f"{topic}:publish", {"messages": [message]})
    assert published.status == 200
    (received,) = deliveries(rest.post(f"{subscription}:pull", {"maxMessages": 10}))
    assert [received["messageId"]] == published.body["messageIds"]
    assert received["data"] == encoded(b"\xff\x00")
    assert received["attributes"] == {"k": "v"}
    assert received["orderingKey"] == "o"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", str(received["publishTime"]))

    nack: Json = {"ackIds": [received["ackId"]], "ackDeadlineSeconds": 0}
    assert isinstance(nack, dict)
    assert rest.post(f"{subscription}:modifyAckDeadline", nack) == Response(
        200, "application/json", {}
    )
    (again,) = deliveries(rest.post(f"{subscription}:pull", {"maxMessages": 10}))
    assert again["messageId"] == received["messageId"]
    acked = rest.post(f"{subscription}:acknowledge", {"ackIds": [again["ackId"]]})
    assert acked == Response(200, "application/json", {})
    assert server.pull_now(subscription) == []

    for name in (subscription, topic):
        assert rest.delete(name) == Response(200, "application/json", {})
        assert rest.get(name).status == 404


def test_rest_and_grpc_see_the_same_messages(server: Server, rest: Rest) -> None:
    topic, subscription = server.create_pair()
    rest.post(f"{topic}:publish", {"messages": [{"data": encoded(b"by rest")}]})
    assert texts(server.pull(subscription)) == ["by rest"]
    server.publish(topic, "by grpc")
    (received,) = deliveries(rest.post(f"{subscription}:pull", {"maxMessages": 1}))

    assert received["data"] == encoded(b"by grpc")


def test_rest_message_without_data_says_nothing_of_data(server: Server, rest: Rest) -> None:
    topic, subscription = server.create_pair()
    rest.post(f"{topic}:publish", {"messages": [{"attributes": {"k": ""}}]})
    (received,) = deliveries(rest.post(f"{subscription}:pull", {"maxMessages": 1}))

    assert "data" not in received
    assert received["attributes"] == {"k": ""}


def test_rest_large_message_round_trips(server: Server, rest: Rest) -> None:
    topic, subscription = server.create_pair()
    data = encoded(b"0123456789" * 600_000)
    published = rest.post(f"{topic}:publish", {"messages": [{"data": data}]})
    assert published.status == 200
    (received,) = deliveries(rest.post(f"{subscription}:pull", {"maxMessages": 1}))

    assert received["data"] == data


def test_rest_pull_waits_for_a_message(server: Server, rest: Rest) -> None:
    topic, subscription = server.create_pair()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(rest.post, f"{subscription}:pull", {"maxMessages": 1})
        server.publish(topic, "a")

        assert [received["data"] for received in deliveries(waiting.result())] == [encoded(b"a")]


@pytest.mark.last
def test_rest_pull_on_an_empty_subscription_answers_within_60_s(
    lonely_rest_pull: concurrent.futures.Future[Response],
) -> None:
    # Google's emulator answers after 90 s, so only ours is asked.
    assert lonely_rest_pull.result() == Response(200, "application/json", {})


def test_rest_pull_returning_immediately(server: Server, rest: Rest) -> None:
    _, subscription = server.create_pair()
    pulled = rest.post(f"{subscription}:pull", {"maxMessages": 1, "returnImmediately": True})

    assert pulled == Response(200, "application/json", {})


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "status"),
    [
        ("GET", "projects/{project}/topics/unknown", None, 404, "NOT_FOUND"),
        ("PUT", "projects/{project}/topics/existing", {}, 409, "ALREADY_EXISTS"),
        ("PUT", "projects/{project}/topics/1", {}, 400, "INVALID_ARGUMENT"),
        ("POST", "projects/{project}/topics/unknown:publish", {"messages": []}, 404, "NOT_FOUND"),
        (
            "POST",
            "projects/{project}/topics/existing:publish",
            {"messages": []},
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            "projects/{project}/topics/existing:publish",
            {"messages": [{"data": "?"}]},
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            "projects/{project}/topics/existing:publish",
            {"message": []},
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            "projects/{project}/topics/existing:publish",
            b"{not json",
            400,
            "INVALID_ARGUMENT",
        ),
        (
            "POST",
            "projects/{project}/subscriptions/unknown:pull",
            {"maxMessages": 1},
            404,
            "NOT_FOUND",
        ),
    ],
)
def test_rest_errors_have_google_shape(
    server: Server,
    rest: Rest,
    method: str,
    path: str,
    body: dict[str, Json] | bytes | None,
    code: int,
    status: str,
) -> None:
    server.create_topic(name=server.topic_name("existing"))
    response = rest.request(method, path.format(project=server.project), body)
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (response.status, response.content_type) == (code, "application/json")
    assert (error["code"], error["status"]) == (code, status)
    assert error["message"]
    assert isinstance(error["message"], str)


@pytest.mark.parametrize("data", ["one tea, please", "!!!", "YWJjZ"])
def test_rest_data_that_is_not_base64_is_invalid_argument(
    server: Server, rest: Rest, data: str
) -> None:
    topic = server.create_topic()
    response = rest.post(f"{topic}:publish", {"messages": [{"data": "YQ=="}, {"data": data}]})
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    if server.kind == "embedded":
        assert "messages[1].data" in str(error["message"])


@pytest.mark.parametrize("data", ["/+8=", "_-8=", "/+8", "_-8"])
def test_rest_data_is_base64_of_either_alphabet(server: Server, rest: Rest, data: str) -> None:
    topic, subscription = server.create_pair()
    rest.post(f"{topic}:publish", {"messages": [{"data": data}]})

    assert server.receive(subscription, 1)[0].message.data == b"\xff\xef"


def test_rest_failed_precondition_is_400(server: Server, rest: Rest) -> None:
    _, one = server.create_pair()
    _, other = server.create_pair()
    snapshot = server.snapshot_name()
    rest.put(snapshot, {"subscription": one})
    response = rest.post(f"{other}:seek", {"snapshot": snapshot})
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (response.status, error["code"], error["status"]) == (400, 400, "FAILED_PRECONDITION")


@google_falls_short("leaves the details out")
def test_rest_exactly_once_failure_carries_error_info(server: Server, rest: Rest) -> None:
    topic, subscription = server.create_pair(enable_exactly_once_delivery=True)
    server.publish(topic, "a")
    (stale,) = server.pull(subscription)
    server.nack(subscription, stale)
    server.pull(subscription)
    response = rest.post(f"{subscription}:acknowledge", {"ackIds": [stale.ack_id]})
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (response.status, error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "EXACTLY_ONCE_ACKID_FAILURE",
            "domain": "pubsub.googleapis.com",
            "metadata": {stale.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"},
        }
    ]


@pytest.mark.parametrize("mask", ["ackDeadlineSeconds", "ack_deadline_seconds"])
def test_rest_patch_with_update_mask(server: Server, rest: Rest, mask: str) -> None:
    _, subscription = server.create_pair(labels={"team": "a"})
    patched = rest.patch(
        subscription,
        {"subscription": {"ackDeadlineSeconds": 33, "labels": {}}, "updateMask": mask},
    )

    assert patched.status == 200
    assert patched.body["ackDeadlineSeconds"] == 33
    assert patched.body["labels"] == {"team": "a"}
    assert server.get_subscription(subscription).ack_deadline_seconds == 33


@google_falls_short("does not know labels in an update mask")
def test_rest_patch_of_a_topic_and_of_several_fields(server: Server, rest: Rest) -> None:
    topic = server.create_topic()
    patched = rest.patch(
        topic,
        {
            "topic": {
                "name": topic,
                "labels": {"team": "a"},
                "messageRetentionDuration": "600s",
            },
            "updateMask": "labels,messageRetentionDuration",
        },
    )

    assert patched.status == 200
    assert patched.body["labels"] == {"team": "a"}
    assert patched.body["messageRetentionDuration"] == "600s"
    assert rest.get(topic).body == patched.body


@google_falls_short("has no UpdateSnapshot")
def test_rest_patch_of_a_snapshot(server: Server, rest: Rest) -> None:
    _, subscription = server.create_pair()
    snapshot = server.snapshot_name()
    rest.put(snapshot, {"subscription": subscription})
    patched = rest.patch(snapshot, {"snapshot": {"labels": {"team": "a"}}, "updateMask": "labels"})

    assert patched.status == 200
    assert rest.get(snapshot).body["labels"] == {"team": "a"}


def test_rest_patch_without_update_mask_is_invalid_argument(server: Server, rest: Rest) -> None:
    _, subscription = server.create_pair()
    response = rest.patch(subscription, {"subscription": {"ackDeadlineSeconds": 33}})
    error = response.body["error"]

    assert isinstance(error, dict)
    assert (response.status, error["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("size", "token"), [("pageSize", "pageToken"), ("page_size", "page_token")]
)
def test_rest_query_paging(server: Server, rest: Rest, size: str, token: str) -> None:
    created = {server.create_topic() for _ in range(3)}
    path = f"projects/{server.project}/topics"
    first = rest.get(f"{path}?{size}=2")
    following = urllib.parse.quote(str(first.body["nextPageToken"]), safe="")
    second = rest.get(f"{path}?{size}=2&{token}={following}")

    assert len(names(first.body["topics"])) == 2
    assert "nextPageToken" not in second.body
    assert {*names(first.body["topics"]), *names(second.body["topics"])} == created


@google_falls_short("never answers", hangs=True)
def test_rest_malformed_query_is_invalid_argument(server: Server, rest: Rest) -> None:
    response = rest.get(f"projects/{server.project}/topics?pageSize=many")

    assert response.status == 400


def test_rest_empty_list_is_an_empty_object(server: Server, rest: Rest) -> None:
    for kind in ("topics", "subscriptions", "snapshots"):
        assert rest.get(f"projects/{server.project}/{kind}").body == {}


def test_rest_percent_sign_in_a_name(server: Server, rest: Rest) -> None:
    path = f"projects/{server.project}/topics/half%25"

    assert rest.put(path, {}).body["name"] == server.topic_name("half%")
    assert server.get_topic(server.topic_name("half%"))
    assert rest.get(path).status == 200


def test_rest_snapshot_and_seek(server: Server, rest: Rest) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    snapshot = server.snapshot_name()
    made = rest.put(snapshot, {"subscription": subscription})
    assert made.status == 200
    assert made.body["topic"] == topic
    assert str(made.body["expireTime"]).endswith("Z")
    assert names(rest.get(f"projects/{server.project}/snapshots").body["snapshots"]) == [snapshot]
    assert rest.get(f"{topic}/snapshots").body == {"snapshots": [snapshot]}

    server.acknowledge(subscription, *server.pull(subscription))
    assert rest.post(f"{subscription}:seek", {"snapshot": snapshot}).status == 200
    assert texts(server.pull(subscription)) == ["a"]
    assert rest.post(f"{subscription}:seek", {"time": "2100-01-01T00:00:00Z"}).status == 200
    assert server.pull_now(subscription) == []
    assert rest.delete(snapshot).status == 200
    assert rest.get(snapshot).status == 404


def test_rest_modify_push_config_to_pull(server: Server, rest: Rest) -> None:
    _, subscription = server.create_pair()
    modified = rest.post(f"{subscription}:modifyPushConfig", {"pushConfig": {}})

    assert modified == Response(200, "application/json", {})


@google_falls_short("has no DetachSubscription")
def test_rest_detach(server: Server, rest: Rest) -> None:
    _, subscription = server.create_pair()

    assert rest.post(f"{subscription}:detach", {}).status == 200
    assert rest.get(subscription).body["detached"] is True

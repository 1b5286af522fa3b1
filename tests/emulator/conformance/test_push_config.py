"""`push_config`: what is accepted, and switching between pull and push."""

import json
from collections.abc import Iterator

import grpc
import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument, NotFound
from google.pubsub_v1 import (
    ModifyPushConfigRequest,
    PushConfig,
    Subscription,
    UpdateSubscriptionRequest,
)

from tests.emulator.conformance.marks import google_falls_short
from tests.emulator.conformance.rest import Json, Rest
from tests.emulator.conformance.servers import Server, texts
from tests.emulator.conformance.streams import WITHIN
from tests.emulator.push_endpoint import Endpoint

SOMEWHERE = "https://example.com/push"
lax = google_falls_short("accepts it")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


def modify(server: Server, subscription: str, **push_config: object) -> None:
    request = ModifyPushConfigRequest(
        subscription=subscription, push_config=PushConfig(push_config)
    )
    server.call(server.subscriber.modify_push_config, request)


def update(server: Server, subscription: str, *paths: str, **settings: object) -> Subscription:
    request = UpdateSubscriptionRequest(
        subscription=Subscription({"name": subscription, **settings}),
        update_mask={"paths": paths},
    )
    return server.call(server.subscriber.update_subscription, request)


def pushed_ids(endpoint: Endpoint) -> list[str]:
    return [json.loads(pushed.body)["message"]["messageId"] for pushed in endpoint.requests]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="an endpoint"),
        pytest.param({"pubsub_wrapper": {}}, id="wrapped"),
        pytest.param({"no_wrapper": {"write_metadata": True}}, id="unwrapped"),
        pytest.param(
            {"oidc_token": {"service_account_email": "a@b.com", "audience": "me"}}, id="a token"
        ),
        pytest.param({"attributes": {"x-goog-version": "v1beta2"}}, id="a version"),
    ],
)
def test_push_config_is_stored_and_returned(server: Server, settings: dict[str, object]) -> None:
    given = {
        "push_endpoint": SOMEWHERE,
        "attributes": {"x-goog-version": "v1"},
        **settings,
    }
    _, subscription = server.create_pair(push_config=given)

    assert server.get_subscription(subscription).push_config == PushConfig(given)


@google_falls_short("forgets it")
def test_push_config_keeps_the_version_that_was_set(server: Server) -> None:
    version = {"x-goog-version": "v1beta2"}
    _, subscription = server.create_pair(
        push_config={"push_endpoint": SOMEWHERE, "attributes": version}
    )
    modify(server, subscription, push_endpoint=f"{SOMEWHERE}/2")
    push_config = server.get_subscription(subscription).push_config
    request = UpdateSubscriptionRequest(
        subscription=Subscription(name=subscription), update_mask={"paths": ["push_config"]}
    )
    pulled = server.call(server.subscriber.update_subscription, request).push_config

    assert push_config == PushConfig(push_endpoint=f"{SOMEWHERE}/2", attributes=version)
    # So the service does it, as the tests of Google's client for Go tell.
    assert pulled == PushConfig(attributes=version)


@pytest.mark.parametrize(
    ("push_config", "naming"),
    [
        ({"push_endpoint": "nonsense"}, "push_endpoint"),
        ({"push_endpoint": "/push"}, "push_endpoint"),
        ({"push_endpoint": "ftp://example.com/push"}, "push_endpoint"),
        pytest.param({"push_endpoint": "https:///push"}, "push_endpoint", marks=lax),
        pytest.param({"push_endpoint": "https://a b/push"}, "push_endpoint", marks=lax),
        pytest.param({"push_endpoint": "https://a/\r\npush"}, "push_endpoint", marks=lax),
        ({"push_endpoint": "https://a:x/push"}, "push_endpoint"),
        pytest.param({"push_endpoint": "https://a:70000/push"}, "push_endpoint", marks=lax),
        ({"push_endpoint": "https://[::1/push"}, "push_endpoint"),
        pytest.param({"no_wrapper": {}}, "push_endpoint", marks=lax),
        pytest.param({"pubsub_wrapper": {}}, "push_endpoint", marks=lax),
        pytest.param(
            {"oidc_token": {"service_account_email": "a@b.com"}}, "push_endpoint", marks=lax
        ),
        pytest.param(
            {"push_endpoint": SOMEWHERE, "oidc_token": {}}, "service_account_email", marks=lax
        ),
        pytest.param(
            {"push_endpoint": SOMEWHERE, "oidc_token": {"service_account_email": "me"}},
            "service_account_email",
            marks=lax,
        ),
        pytest.param(
            {"push_endpoint": SOMEWHERE, "attributes": {"x-goog-version": "v2"}},
            "x-goog-version",
            marks=lax,
        ),
        pytest.param(
            {"push_endpoint": SOMEWHERE, "attributes": {"color": "red"}}, "color", marks=lax
        ),
    ],
)
def test_push_config_that_cannot_be_is_invalid_argument(
    server: Server, push_config: dict[str, object], naming: str
) -> None:
    topic, subscription = server.create_pair()

    with server.refuses(InvalidArgument, naming=naming):
        server.create_subscription(topic, push_config=push_config)
    with server.refuses(InvalidArgument, naming=naming):
        modify(server, subscription, **push_config)
    with server.refuses(InvalidArgument, naming=naming):
        update(server, subscription, "push_config", push_config=push_config)
    assert not server.get_subscription(subscription).push_config.push_endpoint


@pytest.mark.parametrize(
    "other",
    [
        {"enable_exactly_once_delivery": True},
        {"bigquery_config": {"table": "p.d.t"}},
        {"cloud_storage_config": {"bucket": "bucket"}},
        {"bigtable_config": {"table": "projects/p/instances/i/tables/t"}},
    ],
)
@lax
def test_push_config_excludes(server: Server, other: dict[str, object]) -> None:
    (naming,) = other
    push_config = {"push_endpoint": SOMEWHERE}
    topic, subscription = server.create_pair(**other)
    _, pushing = server.create_pair(push_config=push_config)

    with server.refuses(InvalidArgument, naming=naming):
        server.create_subscription(topic, push_config=push_config, **other)
    with server.refuses(InvalidArgument, naming=naming):
        modify(server, subscription, **push_config)
    with server.refuses(InvalidArgument, naming=naming):
        update(server, pushing, naming, **other)
    assert server.get_subscription(pushing).push_config.push_endpoint == SOMEWHERE


def test_modify_push_config_of_an_unknown_subscription_is_not_found(server: Server) -> None:
    with server.refuses(NotFound, naming="missing"):
        modify(server, server.subscription_name("missing"), push_endpoint=SOMEWHERE)


def test_push_config_changes_by_update(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = server.create_pair()
    update(server, subscription, "push_config", push_config={"push_endpoint": endpoint.url})
    (message_id,) = server.publish(topic, "a")
    endpoint.wait_for(1)
    update(server, subscription, "push_config")
    assert not server.get_subscription(subscription).push_config.push_endpoint
    server.publish(topic, "b")

    assert texts(server.receive(subscription, 1)) == ["b"]
    assert pushed_ids(endpoint) == [message_id]


@google_falls_short("knows no deeper paths")
def test_push_config_changes_in_part(server: Server, endpoint: Endpoint) -> None:
    raw = {"write_metadata": True}
    topic, subscription = server.create_pair(
        push_config={"push_endpoint": SOMEWHERE, "no_wrapper": raw}
    )
    path = "push_config.push_endpoint"
    update(server, subscription, path, push_config={"push_endpoint": endpoint.url})
    server.publish(topic, "a")
    (pushed,) = endpoint.wait_for(1)

    assert pushed.body == b"a"
    assert server.get_subscription(subscription).push_config.no_wrapper.write_metadata


def test_modify_push_config_switches_pull_to_push_and_back(
    server: Server, endpoint: Endpoint
) -> None:
    topic, subscription = server.create_pair()
    pulled_first = server.publish(topic, "a")
    server.acknowledge(subscription, *server.receive(subscription, 1))
    modify(server, subscription, push_endpoint=endpoint.url)
    assert server.get_subscription(subscription).push_config.push_endpoint == endpoint.url
    pushed = server.publish(topic, "b")
    endpoint.wait_for(1)
    modify(server, subscription)
    assert not server.get_subscription(subscription).push_config.push_endpoint
    pulled_last = server.publish(topic, "c")

    assert texts(server.receive(subscription, 1)) == ["c"]
    assert pushed_ids(endpoint) == pushed
    assert len({*pulled_first, *pushed, *pulled_last}) == 3


def test_modify_push_config_pushes_what_waits(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = server.create_pair()
    waiting = server.publish(topic, "a", "b")
    modify(server, subscription, push_endpoint=endpoint.url)
    endpoint.wait_for(2)

    assert sorted(pushed_ids(endpoint)) == sorted(waiting)


def test_modify_push_config_to_another_endpoint(server: Server, endpoint: Endpoint) -> None:
    with Endpoint() as before:
        topic, subscription = server.create_pair(push_config={"push_endpoint": before.url})
        first = server.publish(topic, "a")
        before.wait_for(1)
        modify(server, subscription, push_endpoint=endpoint.url)
        second = server.publish(topic, "b")
        endpoint.wait_for(1)

        assert (pushed_ids(before), pushed_ids(endpoint)) == (first, second)


@pytest.mark.last
def test_modify_push_config_to_pull_lets_requests_finish(
    server: Server, endpoint: Endpoint
) -> None:
    topic, subscription = server.create_pair(push_config={"push_endpoint": endpoint.url})
    endpoint.hold()
    server.publish(topic, "a")
    endpoint.wait_for(1)
    modify(server, subscription)
    waiting = server.start_pull(subscription)
    assert server.pull_now(subscription) == []
    endpoint.statuses.append(204)
    endpoint.release()
    server.publish(topic, "b")

    assert texts(list(waiting.result().received_messages)) == ["b"]
    endpoint.settle(server, subscription)
    server.let_time_pass(11)
    assert texts(server.pull_now(subscription)) == ["b"]


def test_modify_push_config_to_pull_gives_back_what_fails(
    server: Server, endpoint: Endpoint
) -> None:
    topic, subscription = server.create_pair(push_config={"push_endpoint": endpoint.url})
    endpoint.hold()
    endpoint.statuses.append(500)
    server.publish(topic, "a")
    endpoint.wait_for(1)
    modify(server, subscription)
    endpoint.release()

    assert texts(server.receive(subscription, 1)) == ["a"]
    assert len(endpoint.requests) == 1


@google_falls_short("answers nothing")
def test_pull_of_a_push_subscription_fails_precondition(server: Server) -> None:
    _, subscription = server.create_pair(push_config={"push_endpoint": SOMEWHERE})

    with server.refuses(FailedPrecondition, naming="push"):
        server.pull(subscription)


def test_streaming_pull_of_a_push_subscription_fails_precondition(server: Server) -> None:
    _, subscription = server.create_pair(push_config={"push_endpoint": SOMEWHERE})

    with server.stream(subscription) as stream:
        assert stream.ending() == "FAILED_PRECONDITION"


@google_falls_short("lets it wait on", hangs=True)
def test_modify_push_config_to_push_ends_pulls(server: Server, endpoint: Endpoint) -> None:
    _, subscription = server.create_pair()
    waiting = server.start_pull(subscription)
    assert server.pull_now(subscription) == []  # and so the other waits already
    modify(server, subscription, push_endpoint=endpoint.url)

    with pytest.raises(grpc.RpcError) as refused:
        waiting.result(timeout=WITHIN)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@google_falls_short("ends them all the same, but goes on with them first", hangs=True)
def test_modify_push_config_to_push_ends_streams(server: Server, endpoint: Endpoint) -> None:
    topic, subscription = server.create_pair()
    with server.stream(subscription) as stream:
        stream.settle()
        modify(server, subscription, push_endpoint=endpoint.url)

        assert stream.ending() == "FAILED_PRECONDITION"
    server.publish(topic, "a")
    endpoint.wait_for(1)


def test_modify_push_config_to_push_leaves_what_was_pulled(
    server: Server, endpoint: Endpoint
) -> None:
    topic, subscription = server.create_pair()
    server.publish(topic, "a")
    pulled = server.receive(subscription, 1)
    modify(server, subscription, push_endpoint=endpoint.url)
    server.acknowledge(subscription, *pulled)
    second = server.publish(topic, "b")
    endpoint.wait_for(1)

    assert pushed_ids(endpoint) == second


def test_push_over_rest(server: Server, endpoint: Endpoint) -> None:
    rest = Rest(server.address, timeout=WITHIN)
    topic, subscription = server.topic_name(), server.subscription_name()
    rest.put(topic, {})
    push: dict[str, Json] = {"pushEndpoint": endpoint.url, "noWrapper": {"writeMetadata": True}}
    assert rest.put(subscription, {"topic": topic, "pushConfig": push}).status == 200
    shown = rest.get(subscription).body["pushConfig"]
    assert isinstance(shown, dict)
    assert shown["pushEndpoint"] == endpoint.url
    server.publish(topic, "a")
    assert endpoint.wait_for(1)[0].body == b"a"
    assert rest.post(f"{subscription}:modifyPushConfig", {"pushConfig": {}}).status == 200
    server.publish(topic, "b")

    assert texts(server.receive(subscription, 1)) == ["b"]

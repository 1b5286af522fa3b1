"""Calls as HTTP and JSON, held against the emulator's reading of the same mapping."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio._wire.rest_json import Answer, as_http, gave_up, parse, refusal
from pubsub_aio._wire.rpcs import BY_NAME, RPCS, Rpc
from pubsub_aio.emulator import rest_api
from pubsub_aio.errors import InvalidRequestError, ServiceError
from tests.emulator.requests import requests

if TYPE_CHECKING:
    from google.protobuf.message import Message

UNARY = [rpc for rpc in RPCS if rpc.http]
PULL = BY_NAME["Pull"]
NAME = "projects/p/subscriptions/s"

each_rpc = pytest.mark.parametrize("rpc", UNARY, ids=lambda rpc: rpc.name)


def said(message: Message) -> dict[str, Any]:
    """All that JSON can say of a message: not, for one, that a path in a mask is empty."""
    return json_format.MessageToDict(message, descriptor_pool=schema.pool)


def understood(rpc: Rpc, request: Message) -> tuple[Rpc, Message]:
    """What the emulator makes of a request that we send."""
    verb, target, body = as_http(rpc, request)
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, strict_parsing=bool(url.query), keep_blank_values=True))
    return rest_api._parse(verb, unquote(url.path, errors="strict"), query, body)


@each_rpc
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_request_arrives_as_it_was_or_is_refused_here(rpc: Rpc, data: st.DataObject) -> None:
    request = data.draw(requests(rpc))
    # Neither a query nor a body can tell an empty message from none.
    if isinstance(request, schema.GetIamPolicyRequest) and not request.options.ByteSize():
        request.ClearField("options")
    if isinstance(request, schema.CreateSchemaRequest):
        request.schema.SetInParent()
    try:
        arrived, read = understood(rpc, request)
    except InvalidRequestError:
        return

    assert arrived == rpc
    assert said(read) == said(request)


text = st.text(max_size=5)
received = st.builds(
    schema.ReceivedMessage,
    ack_id=text,
    delivery_attempt=st.integers(0, 2**31 - 1),
    message=st.builds(
        schema.PubsubMessage,
        data=st.binary(max_size=8),
        attributes=st.dictionaries(text, text, max_size=2),
        message_id=text,
        ordering_key=text,
        publish_time=st.builds(
            schema.Timestamp, seconds=st.integers(0, 2**32), nanos=st.integers(0, 999_999_999)
        ),
    ),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(received, max_size=3))
def test_a_pulls_reply_arrives_as_it_was(messages: list[schema.ReceivedMessage]) -> None:
    reply = schema.PullResponse(received_messages=messages)

    assert parse(PULL, rest_api._render(PULL, reply.SerializeToString())) == reply


def test_a_field_that_is_the_whole_body_goes_there_and_the_others_into_the_query() -> None:
    request = schema.CreateSchemaRequest(
        parent="projects/p", schema_id="a b&c", schema=schema.Schema(definition="d")
    )
    verb, path, body = as_http(BY_NAME["CreateSchema"], request)

    assert (verb, path) == ("POST", "/v1/projects/p/schemas?schemaId=a+b%26c")
    assert json.loads(body) == {"definition": "d"}


def test_a_nested_field_of_a_get_goes_into_the_query_by_its_path() -> None:
    request = schema.GetIamPolicyRequest(resource="projects/p/snapshots/s")
    request.options.requested_policy_version = 3

    assert as_http(BY_NAME["GetIamPolicy"], request) == (
        "GET",
        "/v1/projects/p/snapshots/s:getIamPolicy?options.requestedPolicyVersion=3",
        b"",
    )


@pytest.mark.parametrize(
    "name", ["", "s", "projects/p/topics/t", f"{NAME}/more", "projects//subscriptions/s"]
)
def test_a_name_that_has_no_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="subscription"):
        as_http(PULL, schema.PullRequest(subscription=name))


@pytest.mark.parametrize(
    "request_",
    [
        schema.SeekRequest(subscription=NAME, time=schema.Timestamp(seconds=2**62)),
        schema.SeekRequest(subscription=NAME, time=schema.Timestamp(nanos=-1)),
    ],
)
def test_a_value_that_json_cannot_say_is_refused(request_: schema.SeekRequest) -> None:
    with pytest.raises(InvalidRequestError):
        as_http(BY_NAME["Seek"], request_)


def pulled(**message: object) -> bytes:
    sent = {"messageId": "1", "publishTime": "2026-01-01T00:00:00.123456789Z", **message}
    return json.dumps({"receivedMessages": [{"ackId": "a", "message": sent}]}).encode()


def test_a_pull_keeps_every_field() -> None:
    body = pulled(data="AP8=", attributes={"data": "x", "": "y"}, orderingKey="k")
    expected = schema.PubsubMessage(
        data=b"\x00\xff", attributes={"data": "x", "": "y"}, message_id="1", ordering_key="k"
    )
    expected.publish_time.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    expected.publish_time.nanos = 123_456_789

    assert parse(PULL, body) == schema.PullResponse(
        received_messages=[schema.ReceivedMessage(ack_id="a", message=expected)]
    )


@pytest.mark.parametrize("data", ["-_-_", "+/+/", "-_8", "+/8", "+/8="])
def test_data_in_either_alphabet_of_base64_is_read(data: str) -> None:
    reply = parse(PULL, pulled(data=data))

    assert isinstance(reply, schema.PullResponse)
    assert reply.received_messages[0].message.data in (b"\xfb\xff\xbf", b"\xfb\xff")


def test_what_a_newer_service_adds_is_left_out() -> None:
    body = json.loads(pulled(data="AA==", new={"a": 1}))
    body["receivedMessages"][0]["newer"] = body["newest"] = [1]
    reply = parse(PULL, json.dumps(body).encode())

    assert reply == parse(PULL, pulled(data="AA=="))
    assert parse(BY_NAME["GetTopic"], b'{"name": "n", "newer": {}}') == schema.Topic(name="n")


@pytest.mark.parametrize(
    ("rpc", "body"),
    [
        ("Acknowledge", b""),
        ("Acknowledge", b"<html>hello"),
        ("Acknowledge", b"\xff\xfe"),
        ("Acknowledge", b"[]"),
        ("Acknowledge", b'"text"'),
        ("Acknowledge", b"[" * 100_000),
        ("Pull", b'{"receivedMessages": 1}'),
        ("Pull", b'{"receivedMessages": [1]}'),
        ("Pull", b'{"receivedMessages": [{"message": {"data": 1}}]}'),
        ("Pull", pulled(publishTime="yesterday")),
        ("Pull", pulled(messageId="\ud800")),
        ("Pull", pulled(attributes={"a": 1})),
        ("GetTopic", b'{"name": {}}'),
        ("GetTopic", b'{"labels": []}'),
    ],
)
def test_an_answer_that_is_no_reply_is_an_unknown_error(rpc: str, body: bytes) -> None:
    with pytest.raises(ServiceError, match="not the service's") as caught:
        parse(BY_NAME[rpc], body)

    assert caught.value.code == "UNKNOWN"


def refused(status: int, error: Any, **headers: str) -> ServiceError:
    body = error if isinstance(error, bytes) else json.dumps({"error": error}).encode()
    return refusal(Answer(status, {key.replace("_", "-"): v for key, v in headers.items()}, body))


def detail(kind: str, **fields: object) -> dict[str, object]:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **fields}


def test_a_refusal_tells_code_message_delay_and_ack_ids() -> None:
    details = [
        detail("RetryInfo", retryDelay="1.500s"),
        detail("ErrorInfo", metadata={"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}),
        detail("ErrorInfo", metadata={"b": "TRANSIENT_FAILURE_X"}),
    ]
    error = refused(400, {"status": "FAILED_PRECONDITION", "message": "no", "details": details})

    assert (error.code, error.message, error.retry_delay) == ("FAILED_PRECONDITION", "no", 1.5)
    assert error.ack_errors == {"a": "PERMANENT_FAILURE_INVALID_ACK_ID", "b": "TRANSIENT_FAILURE_X"}


def test_what_other_errors_tell_is_not_taken_for_ack_ids() -> None:
    info = detail("ErrorInfo", reason="IAM_PERMISSION_DENIED", metadata={"permission": "p"})
    error = refused(403, {"status": "PERMISSION_DENIED", "details": [info]})

    assert error.ack_errors == {}


@pytest.mark.parametrize(
    "details",
    [
        "text",
        [1, None, [], {}],
        [
            detail("RetryInfo", retryDelay=1),
            detail("RetryInfo"),
            detail("RetryInfo", retryDelay={}),
        ],
        [detail("ErrorInfo", metadata=[1]), detail("ErrorInfo", metadata={"a": 1})],
        [detail("Help", links=[]), {"@type": 1}],
    ],
)
def test_odd_details_do_not_hide_the_refusal(details: object) -> None:
    error = refused(404, {"status": "NOT_FOUND", "message": "no", "details": details})

    assert (error.code, error.retry_delay, error.ack_errors) == ("NOT_FOUND", None, {})


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (302, "UNKNOWN"),
        (400, "UNKNOWN"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "UNIMPLEMENTED"),
        (407, "UNAVAILABLE"),
        (429, "UNAVAILABLE"),
        (500, "UNKNOWN"),
        (502, "UNAVAILABLE"),
        (503, "UNAVAILABLE"),
        (504, "UNAVAILABLE"),
    ],
)
@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"error": "no"}', b'{"error": {}}'])
def test_an_answer_of_somebody_else_is_read_as_grpc_reads_it(
    status: int, code: str, body: bytes
) -> None:
    error = refused(status, body)

    assert error.code == code
    assert f"HTTP {status}" in error.message


def test_a_retry_after_is_heeded_where_it_is_a_number() -> None:
    assert refused(503, b"", Retry_After="7").retry_delay == 7
    assert refused(503, b"", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT").retry_delay is None


def test_a_server_gives_up_only_when_it_says_so_itself() -> None:
    said = json.dumps({"error": {"status": "DEADLINE_EXCEEDED"}}).encode()

    assert gave_up(Answer(504, {}, said))
    assert not gave_up(Answer(504, {}, b"<html>a gateway"))
    assert not gave_up(Answer(200, {}, said))

"""The load server finds what a client did wrong."""

from __future__ import annotations

import base64
import json

import pytest

from pubsub_aio._wire import schema
from tests.bench.publisher_inbox import KEY, Inbox, message

TOPIC = "projects/bench/topics/topic"
SIZE = 20


def _request(*numbers: int, topic: str = TOPIC, key: str = KEY, tail: bytes = b"") -> bytes:
    request = schema.PublishRequest(topic=topic)
    for number in numbers:
        data, value = message(number, SIZE)
        request.messages.add(data=data + tail).attributes[key] = value
    return request.SerializeToString()


def _ids(*answers: bytes) -> str:
    return "".join("".join(schema.PublishResponse.FromString(each).message_ids) for each in answers)


def _right(count: int) -> dict[str, float]:
    return {"messages": count, "data_bytes": count * SIZE, "wrong": 0}


def test_messages_that_came_once_are_right() -> None:
    inbox = Inbox(TOPIC, size=SIZE)
    inbox.ids = _ids(inbox.publish(_request(0, 1)), inbox.publish(_request(2)))

    assert inbox.totals() | {"server_cpu": 0} == {"messages": 3, "requests": 2, "server_cpu": 0}
    assert inbox.checked() == _right(3)


def test_messages_over_rest_are_right() -> None:
    inbox = Inbox(TOPIC, size=SIZE)
    published = [message(number, SIZE) for number in range(2)]
    asked = [
        {"data": base64.b64encode(data).decode(), "attributes": {KEY: value}}
        for data, value in published
    ]
    answer = json.loads(inbox.publish_json(json.dumps({"messages": asked}).encode()))
    inbox.ids = "".join(answer["messageIds"])

    assert inbox.checked() == _right(2)


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([_request(0, 0)], id="twice"),
        pytest.param([_request(0), _request(2)], id="lost"),
        pytest.param([_request(1, 0)], id="ids of others"),
        pytest.param([_request(0, 1, tail=b"x")], id="other data"),
        pytest.param([_request(0, 1, key="other")], id="other attributes"),
        pytest.param([_request(0, 1, topic="projects/bench/topics/other")], id="other topic"),
    ],
)
def test_what_was_done_wrong_is_found(requests: list[bytes]) -> None:
    inbox = Inbox(TOPIC, size=SIZE)
    inbox.ids = _ids(*map(inbox.publish, requests))

    assert inbox.checked() != _right(2)


def test_ids_that_the_client_never_got_are_missed() -> None:
    inbox = Inbox(TOPIC, size=SIZE)
    inbox.ids = _ids(inbox.publish(_request(0, 1)))[:16]

    assert inbox.checked() == _right(2) | {"wrong": 1}

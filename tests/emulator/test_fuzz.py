"""Whatever is sent, the emulator answers as the service would: no INTERNAL, no UNKNOWN, no silence.

PUBSUB_AIO_FUZZ_EXAMPLES sets how many sequences each test tries; they are then drawn at random, and
one that fails is shrunk, which takes minutes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import socket
from collections.abc import Iterable, Iterator

import grpc
import pytest
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pubsub_aio._wire import schema
from pubsub_aio._wire.rpcs import BY_NAME, RPCS, Rpc
from pubsub_aio.emulator import EmulatorThread, VirtualClock
from tests.emulator import requests
from tests.emulator.requests import PROJECT, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, with_ack_ids

EXAMPLES = os.environ.get("PUBSUB_AIO_FUZZ_EXAMPLES")
WITHIN = 20.0
"""Seconds of real time in which every call must be answered, on a busy machine, too."""

REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # no more revisions of a schema
}
ENDINGS = REFUSALS | {
    grpc.StatusCode.OK,
    grpc.StatusCode.ABORTED,  # another stream of the client took over
    grpc.StatusCode.UNAVAILABLE,  # its life is over
}

pytestmark = [pytest.mark.timeout(0)] if EXAMPLES else []

advances = st.sampled_from([0.0, 0.5, 10.0, 61.0, 600.0, 1_800.0, 86_400.0, 691_200.0])


def sequences(examples: int) -> settings:
    return settings(
        max_examples=int(EXAMPLES or examples),
        derandomize=EXAMPLES is None,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate] + [Phase.shrink] * bool(EXAMPLES),
        suppress_health_check=list(HealthCheck),
    )


class Client:
    """Sends what it is told to and checks what every answer must be."""

    def __init__(self, emulator: EmulatorThread) -> None:
        self.emulator = emulator
        self.host, _, port = emulator.address.rpartition(":")
        self.port = int(port)
        # As Google's clients have it: all ids that are refused are named in the trailers.
        options = [("grpc.max_metadata_size", 4 * 1024 * 1024)]
        self.channel = grpc.insecure_channel(emulator.address, options)
        self.ack_ids: dict[str, list[str]] = {}
        self.errors: list[logging.LogRecord] = []

    def send(self, rpc: Rpc, data: bytes, *, within: float = WITHIN) -> bytes | None:
        """Call an RPC; returns none if it was refused as the service refuses."""
        method = self.channel.unary_unary(f"/{rpc.service}/{rpc.name}", lambda b: b, lambda b: b)
        reply, call = None, method.future(data, timeout=within)
        with contextlib.suppress(grpc.RpcError):
            reply = call.result()
        if reply is None:
            accepted = REFUSALS
            if within < WITHIN:
                accepted = REFUSALS | {grpc.StatusCode.DEADLINE_EXCEEDED}
            assert call.code() in accepted, f"{rpc.name}: {call.code()}: {call.details()}"
            return None
        answer = getattr(schema, rpc.response).FromString(reply)
        if rpc.name == "Pull":
            subscription = schema.PullRequest.FromString(data).subscription
            self._received(subscription, answer.received_messages)
        return reply

    def _received(self, subscription: str, messages: Iterable[schema.ReceivedMessage]) -> None:
        ids = self.ack_ids.setdefault(subscription, [])
        ids += [received.ack_id for received in messages]

    def call(self, rpc_name: str, /, **fields: object) -> bytes | None:
        rpc = BY_NAME[rpc_name]
        return self.send(rpc, getattr(schema, rpc.request)(**fields).SerializeToString())

    def stream(
        self, sent: list[bytes], *, subscription: str = "", cancel: bool = False, wait: float = 0.0
    ) -> None:
        """Send requests on one stream; then cancel or half-close it."""
        rpc = BY_NAME["StreamingPull"]
        method = self.channel.stream_stream(f"/{rpc.service}/{rpc.name}", lambda b: b, lambda b: b)
        call = method(iter(sent), timeout=WITHIN)
        with contextlib.suppress(grpc.RpcError):
            for data in call:
                response = schema.StreamingPullResponse.FromString(data)
                self._received(subscription, response.received_messages)
                if wait:
                    self.emulator.advance(wait)
                    wait = 0.0
                if cancel:
                    call.cancel()
                    return
        assert call.code() in ENDINGS, f"{rpc.name}: {call.code()}: {call.details()}"

    def rest(self, verb: str, path: str, body: bytes) -> None:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WITHIN)
        with contextlib.closing(connection):
            connection.request(verb, path, body)
            response = connection.getresponse()
            content = response.read()
            assert response.status != http.HTTPStatus.INTERNAL_SERVER_ERROR, content
            if verb == "HEAD" or path.partition("?")[0] == "/":
                return
            answer = json.loads(content)
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                assert answer["error"]["code"] == response.status
                assert isinstance(answer["error"]["message"], str)
                assert answer["error"]["status"] not in ("INTERNAL", "UNKNOWN")

    def begin(self) -> None:
        """Start from the same resources every time, with messages in every state."""
        self._clear()
        for topic in TOPICS:
            self.call("CreateTopic", name=topic)
        plain, ordered, once, dlq = SUBSCRIPTIONS
        one = TOPICS[0]
        policy = schema.DeadLetterPolicy(dead_letter_topic=TOPICS[-1])
        self.call("CreateSubscription", name=plain, topic=one, retain_acked_messages=True)
        self.call("CreateSubscription", name=ordered, topic=one, enable_message_ordering=True)
        self.call("CreateSubscription", name=once, topic=one, enable_exactly_once_delivery=True)
        self.call("CreateSubscription", name=dlq, topic=one, dead_letter_policy=policy)
        published = [schema.PubsubMessage(data=b"%d" % n, ordering_key="k") for n in range(6)]
        self.call("Publish", topic=one, messages=published)
        self.call("CreateSnapshot", name=SNAPSHOTS[0], subscription=plain)
        self.ack_ids.clear()
        for subscription in SUBSCRIPTIONS:
            self.call("Pull", subscription=subscription, max_messages=3, return_immediately=True)
        assert [len(ids) for ids in self.ack_ids.values()] == [3, 3, 3, 3]
        self.call("Acknowledge", subscription=once, ack_ids=self.ack_ids[once][:1])

    def _clear(self) -> None:
        for project in (PROJECT, "projects/other"):
            for kind in ("topic", "subscription", "snapshot"):
                token = ""
                while listed := self.call(
                    f"List{kind.capitalize()}s", project=project, page_token=token
                ):
                    answer = getattr(schema, f"List{kind.capitalize()}sResponse").FromString(listed)
                    for resource in getattr(answer, f"{kind}s"):
                        self.call(f"Delete{kind.capitalize()}", **{kind: resource.name})
                    token = answer.next_page_token
                    if not token:
                        break
        while listed := self.call("ListSchemas", parent=PROJECT):
            schemas = schema.ListSchemasResponse.FromString(listed).schemas
            for made in schemas:
                self.call("DeleteSchema", name=made.name)
            if not schemas:
                break

    def check_alive(self) -> None:
        """It still does its work, and nothing went wrong inside."""
        topic, subscription = f"{PROJECT}/topics/alive", f"{PROJECT}/subscriptions/alive"
        self.call("CreateTopic", name=topic)
        self.call("CreateSubscription", name=subscription, topic=topic)
        self.call("Publish", topic=topic, messages=[schema.PubsubMessage(data=b"alive")])
        pulled = self.call(
            "Pull", subscription=subscription, max_messages=1, return_immediately=True
        )
        assert pulled is not None
        assert b"alive" in pulled
        self.call("DeleteSubscription", subscription=subscription)
        self.call("DeleteTopic", topic=topic)
        assert [record.getMessage() for record in self.errors] == []


class _Keep(logging.Handler):
    def __init__(self, kept: list[logging.LogRecord]) -> None:
        super().__init__(logging.ERROR)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(
            error, HttpProcessingError
        ):  # aiohttp tells of a peer that speaks no HTTP
            self._kept.append(record)


@pytest.fixture(scope="module")
def running() -> Iterator[Client]:
    with EmulatorThread(clock=VirtualClock()) as emulator:
        client = Client(emulator)
        yield client
        client.channel.close()


@pytest.fixture
def client(running: Client) -> Iterator[Client]:
    """The client; every error that is logged, by us, asyncio or a server of ours, is kept."""
    running.errors = []
    handler = _Keep(running.errors)
    logging.getLogger().addHandler(handler)
    yield running
    logging.getLogger().removeHandler(handler)


def _send(client: Client, rpc: Rpc, request: schema.Message, *, patient: bool) -> None:
    within = WITHIN
    if isinstance(request, schema.PullRequest) and not request.return_immediately:
        request.return_immediately = patient
        within = WITHIN if patient else 0.2
    with_ack_ids(request, client.ack_ids, getattr(request, "subscription", ""))
    client.send(rpc, request.SerializeToString(), within=within)


@sequences(60)
@given(
    steps=st.lists(
        st.tuples(requests.calls, advances, st.integers(0, 19)), min_size=10, max_size=30
    )
)
def test_any_request_is_answered_or_refused(
    client: Client, steps: list[tuple[tuple[Rpc, schema.Message], float, int]]
) -> None:
    client.begin()
    for (rpc, request), seconds, chance in steps:
        _send(client, rpc, request, patient=chance > 0)
        if chance < 5:
            client.emulator.advance(seconds)
    for kind in ("topics", "subscriptions", "snapshots"):
        client.rest("GET", f"/v1/{PROJECT}/{kind}", b"")
    client.check_alive()


@sequences(60)
@given(
    steps=st.lists(st.tuples(requests.streams(), st.booleans(), advances), min_size=1, max_size=4)
)
def test_any_requests_on_a_stream_are_answered_or_end_it(
    client: Client, steps: list[tuple[list[schema.StreamingPullRequest], bool, float]]
) -> None:
    client.begin()
    for sent, cancel, wait in steps:
        name = sent[0].subscription if sent else ""
        data = [with_ack_ids(r, client.ack_ids, name).SerializeToString() for r in sent]
        client.stream(data, subscription=name, cancel=cancel, wait=wait)
    client.check_alive()


@sequences(100)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(RPCS), st.binary(max_size=60), st.booleans()), max_size=10
    )
)
def test_any_bytes_are_answered_or_refused(
    client: Client, steps: list[tuple[Rpc, bytes, bool]]
) -> None:
    for rpc, data, cancel in steps:
        if rpc.name == "StreamingPull":
            client.stream([data, data], cancel=cancel)
        else:
            client.send(rpc, data, within=0.2 if rpc.name == "Pull" and cancel else WITHIN)
    client.check_alive()


@sequences(60)
@given(steps=st.lists(st.tuples(requests.rest_calls(), advances), min_size=5, max_size=20))
@example(steps=[(("PURGE", "/v1/projects/fuzz/topics/one", b""), 0.0)])
def test_any_http_request_has_a_json_answer(
    client: Client, steps: list[tuple[tuple[str, str, bytes], float]]
) -> None:
    client.begin()
    for (verb, path, body), seconds in steps:
        client.rest(verb, path, body)
        if seconds < 1:
            client.emulator.advance(seconds)
    client.check_alive()


def test_a_refusal_is_understood_whatever_it_quotes(client: Client) -> None:
    long = f"{PROJECT}/topics/" + "a" * 1_000_000

    assert client.call("CreateTopic", name=long) is None
    assert client.call("GetSubscription", subscription=long) is None
    client.check_alive()


def test_a_thousand_ids_are_refused_at_once(client: Client) -> None:
    client.begin()
    once = SUBSCRIPTIONS[2]
    batch = [schema.PubsubMessage(data=b"x")] * 1_000
    client.call("Publish", topic=TOPICS[0], messages=batch)
    client.call("Pull", subscription=once, max_messages=1_000, return_immediately=True)
    ids = client.ack_ids[once][1:]

    assert len(ids) == 1_002
    assert client.call("Acknowledge", subscription=once, ack_ids=ids) is not None
    assert client.call("Acknowledge", subscription=once, ack_ids=ids) is None
    client.check_alive()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_begun = st.sampled_from(
    [
        b"",
        PREFACE,
        PREFACE[:7],
        PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"GET /v1/projects/fuzz/topics HTTP/1.1\r\n",
        b"POST /v1/projects/fuzz/topics/one:publish HTTP/1.1\r\nContent-Length: 99\r\n\r\n",
        b"PUT /v1/projects/fuzz/topics/one HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"GET / HTTP/9.9\r\n\r\n",
    ]
)


@sequences(100)
@given(
    connections=st.lists(
        st.tuples(_begun, st.lists(st.binary(max_size=40), max_size=3), st.integers(0, 3)),
        min_size=1,
        max_size=5,
    )
)
def test_any_bytes_on_the_port_leave_the_server_alive(
    client: Client, connections: list[tuple[bytes, list[bytes], int]]
) -> None:
    with contextlib.ExitStack() as opened:
        for begun, parts, ending in connections:
            peer = socket.create_connection((client.host, client.port), timeout=WITHIN)
            opened.callback(peer.close)
            with contextlib.suppress(OSError):
                peer.sendall(begun)
                for part in parts:
                    peer.sendall(part)
                if ending == 1:
                    peer.shutdown(socket.SHUT_WR)
            if ending == 2:
                peer.close()
        client.check_alive()
    client.check_alive()

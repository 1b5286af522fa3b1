"""The REST transport over the wire: our emulator, Google's where it is found, servers that lie."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from pubsub_aio._wire import schema
from pubsub_aio._wire.connection import Connection, resolve
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio._wire.rest import RestTransport
from pubsub_aio._wire.rpcs import BY_NAME, RPCS
from pubsub_aio._wire.transport import Transport
from pubsub_aio.emulator import Emulator, VirtualClock
from pubsub_aio.errors import (
    AlreadyExistsError,
    ClosedError,
    InvalidRequestError,
    NotFoundError,
    ServiceError,
    UnavailableError,
    UnsupportedError,
)
from tests.emulator.conformance import google_emulator

WITHIN = 30.0
SUBSCRIPTION = "projects/p/subscriptions/worker"
ACK = schema.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=["a"]).SerializeToString()
PULL = schema.PullRequest(subscription=SUBSCRIPTION, max_messages=9).SerializeToString()

Reply = TypeVar("Reply")


@contextlib.asynccontextmanager
async def opened(connection: Connection) -> AsyncIterator[RestTransport]:
    transport = RestTransport(connection)
    await transport.open()
    try:
        yield transport
    finally:
        await transport.close()


def plain(address: str) -> Connection:
    return resolve(endpoint=f"http://{address}")


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(clock=VirtualClock(), project="p") as emulator:
        yield emulator


@pytest.fixture
async def rest(emulator: Emulator) -> AsyncIterator[RestTransport]:
    async with opened(plain(emulator.address)) as transport:
        yield transport


# Every call, on both servers


@dataclass(frozen=True, slots=True)
class Server:
    """A server with a project of the test's own, and the transport to it."""

    kind: str
    transport: Transport
    project: str

    async def call(self, rpc: str, request: Any) -> Any:
        made = await self.transport.call(rpc, request.SerializeToString(), timeout=WITHIN)
        return getattr(schema, BY_NAME[rpc].response).FromString(made)

    def name(self, kind: str, resource: str) -> str:
        return f"{self.project}/{kind}/{resource}"

    async def topic(self) -> str:
        made = await self.call("CreateTopic", schema.Topic(name=self.name("topics", "topic")))
        return str(made.name)

    async def subscription(self, **settings: Any) -> tuple[str, str]:
        """A topic and a subscription to it."""
        topic = await self.topic()
        name = self.name("subscriptions", "worker")
        request = schema.Subscription(name=name, topic=topic, **settings)
        return topic, (await self.call("CreateSubscription", request)).name

    async def publish(self, topic: str, *messages: schema.PubsubMessage) -> list[str]:
        request = schema.PublishRequest(topic=topic, messages=messages)
        return list((await self.call("Publish", request)).message_ids)

    async def pull(self, subscription: str) -> list[schema.ReceivedMessage]:
        request = schema.PullRequest(subscription=subscription, max_messages=100)
        return list((await self.call("Pull", request)).received_messages)


KINDS = ["embedded", "google"] if google_emulator.command() else ["embedded"]


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    project = f"projects/project-{uuid.uuid4().hex[:12]}"
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "google":
            address = request.getfixturevalue("google_address")
        else:
            address = (await stack.enter_async_context(Emulator())).address
        transport = await stack.enter_async_context(opened(plain(address)))
        yield Server(request.param, transport, project)


async def test_topics_are_created_read_listed_updated_and_deleted(server: Server) -> None:
    name = server.name("topics", "a-%41+~b")
    made = await server.call("CreateTopic", schema.Topic(name=name, labels={"a": "b"}))
    found = await server.call("GetTopic", schema.GetTopicRequest(topic=name))
    if server.kind == "embedded":  # Google's emulator cannot update a topic
        update = schema.UpdateTopicRequest(topic=schema.Topic(name=name, labels={"c": "d"}))
        update.update_mask.paths.append("labels")
        assert (await server.call("UpdateTopic", update)).labels == {"c": "d"}
    await server.call("CreateTopic", schema.Topic(name=server.name("topics", "b-topic")))
    request = schema.ListTopicsRequest(project=server.project, page_size=1)
    first = await server.call("ListTopics", request)
    request.page_token = first.next_page_token
    second = await server.call("ListTopics", request)
    with pytest.raises(AlreadyExistsError):
        await server.call("CreateTopic", schema.Topic(name=name))
    await server.call("DeleteTopic", schema.DeleteTopicRequest(topic=name))
    with pytest.raises(NotFoundError) as missing:
        await server.call("GetTopic", schema.GetTopicRequest(topic=name))

    assert (made.name, made.labels) == (name, {"a": "b"})
    assert found == made
    assert {each.name for page in (first, second) for each in page.topics} == {
        name,
        server.name("topics", "b-topic"),
    }
    assert missing.value.code == "NOT_FOUND"


async def test_subscriptions_are_created_read_listed_updated_and_deleted(server: Server) -> None:
    project = schema.ListSubscriptionsRequest(project=server.project)
    assert not (await server.call("ListSubscriptions", project)).subscriptions
    topic, name = await server.subscription(ack_deadline_seconds=33, enable_message_ordering=True)
    found = await server.call("GetSubscription", schema.GetSubscriptionRequest(subscription=name))
    update = schema.UpdateSubscriptionRequest()
    update.subscription.name = name
    update.subscription.ack_deadline_seconds = 77
    update.update_mask.paths.append("ack_deadline_seconds")
    updated = await server.call("UpdateSubscription", update)
    listed = await server.call("ListSubscriptions", project)
    of_topic = await server.call(
        "ListTopicSubscriptions", schema.ListTopicSubscriptionsRequest(topic=topic)
    )
    await server.call("DeleteSubscription", schema.DeleteSubscriptionRequest(subscription=name))
    with pytest.raises(NotFoundError):
        await server.pull(name)

    assert (found.topic, found.ack_deadline_seconds) == (topic, 33)
    assert found.enable_message_ordering
    assert updated.ack_deadline_seconds == 77
    assert list(listed.subscriptions) == [updated]
    assert list(of_topic.subscriptions) == [name]


async def test_messages_are_published_pulled_nacked_extended_and_acked(server: Server) -> None:
    topic, name = await server.subscription(enable_message_ordering=True)
    sent = schema.PubsubMessage(
        data=bytes(range(256)),
        attributes={"data": "x", "ordering_key": "y", "ключ": "значение \U0001f600"},
        ordering_key="key",
    )
    (message_id,) = await server.publish(topic, sent)
    (first,) = await server.pull(name)
    await server.call(
        "ModifyAckDeadline",
        schema.ModifyAckDeadlineRequest(subscription=name, ack_ids=[first.ack_id]),
    )
    (again,) = await server.pull(name)
    for rpc, request in (
        ("ModifyAckDeadline", schema.ModifyAckDeadlineRequest(ack_deadline_seconds=60)),
        ("Acknowledge", schema.AcknowledgeRequest()),
    ):
        request.subscription = name
        request.ack_ids.append(again.ack_id)
        assert await server.call(rpc, request) == schema.Empty()
    at_once = schema.PullRequest(subscription=name, max_messages=1, return_immediately=True)

    assert again.message == first.message
    published = first.message.publish_time.ToDatetime(tzinfo=UTC)
    assert abs(published - datetime.now(UTC)) < timedelta(minutes=1)
    sent.message_id = message_id
    sent.publish_time.CopyFrom(first.message.publish_time)
    assert first.message == sent
    assert not (await server.call("Pull", at_once)).received_messages


async def test_snapshots_are_created_read_listed_sought_and_deleted(server: Server) -> None:
    topic, subscription = await server.subscription()
    await server.publish(topic, schema.PubsubMessage(data=b"a"))
    name = server.name("snapshots", "snapshot")
    listing = schema.ListSnapshotsRequest(project=server.project)
    assert not (await server.call("ListSnapshots", listing)).snapshots
    made = await server.call(
        "CreateSnapshot", schema.CreateSnapshotRequest(name=name, subscription=subscription)
    )
    listed = await server.call("ListSnapshots", listing)
    (message,) = await server.pull(subscription)
    await server.call(
        "Acknowledge",
        schema.AcknowledgeRequest(subscription=subscription, ack_ids=[message.ack_id]),
    )
    await server.call("Seek", schema.SeekRequest(subscription=subscription, snapshot=name))
    (again,) = await server.pull(subscription)
    await server.call("DeleteSnapshot", schema.DeleteSnapshotRequest(snapshot=name))

    assert (made.name, made.topic) == (name, topic)
    assert [each.name for each in listed.snapshots] == [name]
    assert again.message.data == b"a"
    assert not (await server.call("ListSnapshots", listing)).snapshots


async def test_an_old_ack_id_of_an_exactly_once_subscription_is_refused(server: Server) -> None:
    topic, name = await server.subscription(enable_exactly_once_delivery=True)
    await server.publish(topic, schema.PubsubMessage(data=b"a"))
    (stale,) = await server.pull(name)
    nack = schema.ModifyAckDeadlineRequest(subscription=name, ack_ids=[stale.ack_id])
    await server.call("ModifyAckDeadline", nack)
    (fresh,) = await server.pull(name)
    request = schema.AcknowledgeRequest(subscription=name, ack_ids=[stale.ack_id, fresh.ack_id])
    with pytest.raises(InvalidRequestError) as caught:
        await server.call("Acknowledge", request)

    told = {stale.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    # Google's emulator leaves the details of an error out, over REST.
    assert caught.value.ack_errors == (told if server.kind == "embedded" else {})


# Our emulator


@pytest.mark.parametrize("rpc", [rpc for rpc in RPCS if rpc.http], ids=lambda rpc: rpc.name)
async def test_every_unary_call_reaches_the_server_and_its_refusals_come_back(
    rpc: Any, emulator: Emulator, rest: RestTransport
) -> None:
    template = rpc.http[0].partition("{")[2].partition("}")[0]
    field, _, shape = template.partition("=")
    request = getattr(schema, rpc.request)()
    *parents, last = field.split(".")
    target = request
    for parent in parents:
        target = getattr(target, parent)
    setattr(target, last, shape.replace("*", "name"))
    emulator.faults.fail(rpc.name, "DATA_LOSS", message="for this call")
    with pytest.raises(ServiceError) as caught:
        await rest.call(rpc.name, request.SerializeToString(), timeout=WITHIN)

    assert (caught.value.code, caught.value.message) == ("DATA_LOSS", "for this call")


CODES = [
    *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
]


@pytest.mark.parametrize("code", CODES)
async def test_a_refusal_is_the_same_error_as_over_grpc(
    code: str, emulator: Emulator, rest: RestTransport
) -> None:
    emulator.faults.fail("Acknowledge", code, times=2, message="no", retry_delay=1.25)
    grpc = GrpcTransport(plain(emulator.address))
    await grpc.open()
    caught: list[ServiceError] = []
    for transport in (rest, grpc):
        with pytest.raises(ServiceError) as refused:
            await transport.call("Acknowledge", ACK, timeout=WITHIN)
        caught.append(refused.value)
    await grpc.close()

    ours, other = caught
    assert type(ours) is type(other)
    assert vars(ours) == vars(other)
    assert (ours.code, ours.message, ours.retry_delay) == (code, "no", 1.25)


async def test_a_pull_carries_what_grpc_carries(emulator: Emulator, rest: RestTransport) -> None:
    grpc = GrpcTransport(plain(emulator.address))
    await grpc.open()
    pulled: list[list[schema.PubsubMessage]] = []
    for name in ("one", "two"):
        emulator.create_subscription(name, "topic", enable_message_ordering=True)
    emulator.publish("topic", b"\x00\xff", attributes={"data": "x", "k": ""}, ordering_key="key")
    emulator.publish("topic", attributes={"only": "this"})
    for name, transport in (("one", rest), ("two", grpc)):
        request = schema.PullRequest(subscription=f"projects/p/subscriptions/{name}")
        request.max_messages = 10
        data = await transport.call("Pull", request.SerializeToString(), timeout=WITHIN)
        response = schema.PullResponse.FromString(data)
        pulled.append([each.message for each in response.received_messages])
    await grpc.close()

    assert pulled[0] == pulled[1]
    assert pulled[0][0].ordering_key == "key"


async def test_a_delivery_attempt_is_told(emulator: Emulator, rest: RestTransport) -> None:
    dead = schema.DeadLetterPolicy(
        dead_letter_topic=emulator.create_topic("dead"), max_delivery_attempts=5
    )
    emulator.create_subscription("worker", "topic", dead_letter_policy=dead)
    emulator.publish("topic", b"a")
    attempts: list[int] = []
    for _ in range(3):
        response = schema.PullResponse.FromString(await rest.call("Pull", PULL, timeout=WITHIN))
        (received,) = response.received_messages
        attempts.append(received.delivery_attempt)
        nack = schema.ModifyAckDeadlineRequest(
            subscription=SUBSCRIPTION, ack_ids=[received.ack_id]
        ).SerializeToString()
        await rest.call("ModifyAckDeadline", nack, timeout=WITHIN)

    assert attempts == [1, 2, 3]


async def test_a_transient_refusal_of_an_ack_is_told_apart(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.create_subscription("worker", "topic", enable_exactly_once_delivery=True)
    emulator.publish("topic", b"a")
    response = schema.PullResponse.FromString(await rest.call("Pull", PULL, timeout=WITHIN))
    ack_id = response.received_messages[0].ack_id
    ack = schema.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=[ack_id]).SerializeToString()
    emulator.faults.fail_confirmations("worker")
    with pytest.raises(ServiceError) as caught:
        await rest.call("Acknowledge", ack, timeout=WITHIN)
    await rest.call("Acknowledge", ack, timeout=WITHIN)

    assert caught.value.ack_errors == {ack_id: "TRANSIENT_FAILURE_INJECTED"}
    assert emulator.backlog("worker") == 0


async def test_a_stream_is_refused_with_the_transport_that_has_them(rest: RestTransport) -> None:
    with pytest.raises(UnsupportedError, match=r'StreamingPull.*transport="grpc"'):
        rest.streaming_pull()
    with pytest.raises(UnsupportedError, match=r'StreamingPull.*transport="grpc"'):
        await rest.call("StreamingPull", b"", timeout=WITHIN)
    assert not rest.can.streaming


# Time


async def test_a_pull_without_messages_in_time_is_an_empty_reply(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.create_subscription("worker", "topic")

    assert await rest.call("Pull", PULL, timeout=0.05) == b""


async def test_a_pull_that_the_server_gives_up_is_an_empty_reply(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.create_subscription("worker", "topic")
    emulator.faults.fail("Pull", "DEADLINE_EXCEEDED")

    assert await rest.call("Pull", PULL, timeout=WITHIN) == b""


async def test_another_call_without_an_answer_in_time_is_an_error(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.faults.delay("Acknowledge", 60)
    with pytest.raises(UnavailableError) as caught:
        await rest.call("Acknowledge", ACK, timeout=0.05)

    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_a_cancelled_pull_takes_no_message(emulator: Emulator, rest: RestTransport) -> None:
    emulator.create_subscription("worker", "topic")
    seen = emulator.activity()
    pulling = asyncio.create_task(rest.call("Pull", PULL, timeout=WITHIN))
    await waits_for_a_message(emulator)
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    await emulator.until(lambda: not emulator._service.waiters)
    emulator.publish("topic", b"a")
    response = schema.PullResponse.FromString(await rest.call("Pull", PULL, timeout=WITHIN))

    assert emulator.activity() > seen
    assert [received.message.data for received in response.received_messages] == [b"a"]


async def waits_for_a_message(emulator: Emulator) -> None:
    """Return once the server holds a Pull."""
    await emulator.until(
        lambda: any(w.waiting for of in emulator._service.waiters.values() for w in of)
    )


# Life


async def test_calls_end_when_the_transport_is_closed(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.create_subscription("worker", "topic")
    pulling = [asyncio.create_task(rest.call("Pull", PULL, timeout=WITHIN)) for _ in range(120)]
    await waits_for_a_message(emulator)
    await rest.close()
    ended = await asyncio.gather(*pulling, return_exceptions=True)

    assert {getattr(error, "code", error) for error in ended} == {"CANCELLED"}


async def test_it_can_be_closed_twice_and_opened_again(rest: RestTransport) -> None:
    await rest.close()
    await rest.close()
    with pytest.raises(ClosedError):
        await rest.call("Acknowledge", ACK, timeout=WITHIN)
    await asyncio.gather(rest.open(), rest.open())
    with pytest.raises(NotFoundError):
        await rest.call("Acknowledge", ACK, timeout=WITHIN)


def test_without_its_packages_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['gcloud'] = None; import pubsub_aio._wire.rest"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "MissingExtraError: the REST transport needs more packages: pip install" in done.stderr
    assert '"pubsub-aio[rest]"' in done.stderr


# Networks


async def test_a_connection_that_is_cut_is_unavailable(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.create_subscription("worker", "topic")
    pulling = asyncio.create_task(rest.call("Pull", PULL, timeout=WITHIN))
    await waits_for_a_message(emulator)
    emulator.faults.cut_connections()
    with pytest.raises(UnavailableError) as caught:
        await pulling

    assert caught.value.code == "UNAVAILABLE"


async def test_a_call_after_a_cut_makes_a_new_connection(
    emulator: Emulator, rest: RestTransport
) -> None:
    emulator.create_subscription("worker", "topic")
    emulator.publish("topic", b"a")
    nothing = schema.GetSubscriptionRequest(subscription=SUBSCRIPTION).SerializeToString()
    await rest.call("GetSubscription", nothing, timeout=WITHIN)
    emulator.faults.cut_connections()

    assert await rest.call("GetSubscription", nothing, timeout=WITHIN)

"""Where transforms meet pushes, dead letters, order and the end of things."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, cast

import grpc.aio
import pytest
from google.api_core.exceptions import (
    FailedPrecondition,
    GoogleAPICallError,
    NotFound,
    ServiceUnavailable,
)
from google.pubsub_v1 import (
    PublisherAsyncClient,
    PublishRequest,
    PubsubMessage,
    PullRequest,
    PullResponse,
    Schema,
    SchemaServiceAsyncClient,
    StreamingPullRequest,
    StreamingPullResponse,
    SubscriberAsyncClient,
)
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from pubsub_aio._wire import schema
from pubsub_aio.emulator import Emulator, VirtualClock
from pubsub_aio.emulator.transforms import Script, ScriptError, transformed
from tests.emulator.push_endpoint import Endpoint

if TYPE_CHECKING:
    from subprocess import Popen


def udf(body: str) -> dict[str, object]:
    code = f"function change(message, metadata) {{ {body} }}"
    return {"javascript_udf": {"function_name": "change", "code": code}}


def after(milliseconds: int, then: str = "return message;") -> dict[str, object]:
    """A transform that takes its time."""
    wait = f"const end = Date.now() + {milliseconds}; while (Date.now() < end) {{}}"
    return udf(f"{wait} {then}")


SAME = udf("return message;")
NONE = udf("return null;")
SLOW = after(600)


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(clock=VirtualClock(), transform_timeout=5.0) as emulator:
        yield emulator


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def other() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def publisher(channel: grpc.aio.Channel) -> PublisherAsyncClient:
    return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))


@pytest.fixture
def subscriber(channel: grpc.aio.Channel) -> SubscriberAsyncClient:
    return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))


def subscribe(emulator: Emulator, *transforms: dict[str, object], **settings: object) -> str:
    """A subscription "worker" of the topic "orders", whose messages are transformed."""
    return emulator.create_subscription(
        "worker", "orders", message_transforms=list(transforms), **settings
    )


def dead_letters(emulator: Emulator) -> dict[str, object]:
    """Settings that give up after five deliveries; dead letters are in the backlog of "dead"."""
    emulator.create_subscription("dead", "dead-letters")
    topic = f"projects/{emulator.project}/topics/dead-letters"
    return {
        "dead_letter_policy": {"dead_letter_topic": topic, "max_delivery_attempts": 5},
        "retry_policy": {"minimum_backoff": {"seconds": 10}},
    }


async def pull(subscriber: SubscriberAsyncClient, subscription: str) -> PullResponse:
    request = PullRequest(subscription=subscription, max_messages=10)
    return await subscriber.pull(request=request, retry=None, timeout=20)


async def in_script(emulator: Emulator) -> None:
    """Wait until a message is with a script."""
    await emulator.until(lambda: emulator.outstanding("worker") == 1)
    for _ in range(5):
        await asyncio.sleep(0)  # who took it begins


# What never left is not delivered


async def test_who_leaves_while_a_script_runs_costs_the_message_no_attempt(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    subscription = subscribe(emulator, SLOW, **dead_letters(emulator))
    emulator.publish("orders", b"a")
    for _ in range(6):
        call = asyncio.create_task(pull(subscriber, subscription))
        await in_script(emulator)
        call.cancel()
        await emulator.until(lambda: emulator.outstanding("worker") == 0)
    assert emulator.messages("orders")[0].deliveries == []
    (received,) = (await pull(subscriber, subscription)).received_messages

    assert received.delivery_attempt == 1
    assert [delivery.attempt for delivery in emulator.messages("orders")[0].deliveries] == [1]
    assert emulator.backlog("dead") == 0


async def test_streams_that_leave_while_a_script_runs_cost_the_message_no_attempt(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    subscription = subscribe(emulator, SLOW, **dead_letters(emulator))
    emulator.publish("orders", b"a")
    for _ in range(6):
        stream = await opened(subscriber, subscription)
        await in_script(emulator)
        stream.cancel()
        await emulator.until(lambda: emulator.outstanding("worker") == 0)
    (received,) = (await pull(subscriber, subscription)).received_messages

    assert received.delivery_attempt == 1
    assert emulator.backlog("dead") == 0


async def opened(
    subscriber: SubscriberAsyncClient, subscription: str
) -> grpc.aio.StreamStreamCall[StreamingPullRequest, StreamingPullResponse]:
    """A stream that has its first response, which has no message."""
    request = StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10)

    async def requests() -> AsyncIterator[StreamingPullRequest]:
        yield request
        await asyncio.Event().wait()

    stream = await subscriber.streaming_pull(requests=requests(), timeout=60)
    assert not (await anext(aiter(stream))).received_messages
    return cast("grpc.aio.StreamStreamCall[StreamingPullRequest, StreamingPullResponse]", stream)


# A subscription that ends meanwhile

ENDS = {
    "deleted": (NotFound, lambda broker, name, now: broker.delete_subscription(name, now=now)),
    "detached": (
        FailedPrecondition,
        lambda broker, name, now: broker.detach_subscription(name, now=now),
    ),
    "pushed": (
        FailedPrecondition,
        lambda broker, name, now: broker.modify_push_config(
            name, schema.PushConfig(push_endpoint="http://127.0.0.1:9/"), now=now
        ),
    ),
}


@pytest.mark.parametrize("how", [pull, opened], ids=["pull", "stream"])
@pytest.mark.parametrize(("error", "end"), ENDS.values(), ids=ENDS.keys())
async def test_nothing_is_sent_of_a_subscription_that_ends_while_a_script_runs(
    emulator: Emulator,
    subscriber: SubscriberAsyncClient,
    how: Callable[..., object],
    error: type[GoogleAPICallError],
    end: Callable[..., None],
) -> None:
    subscription = subscribe(emulator, SLOW)

    async def receive() -> object:
        if how is pull:
            return await pull(subscriber, subscription)
        return await anext(aiter(await opened(subscriber, subscription)))

    receiving = asyncio.create_task(receive())
    if how is opened:
        await emulator.until(lambda: len(emulator.streams("worker")) == 1)
    emulator.publish("orders", b"a")
    await in_script(emulator)
    end(emulator._broker, subscription, emulator.clock.now())
    emulator._wake()

    with pytest.raises(error):
        await receiving


async def test_nothing_is_sent_on_a_stream_that_ended_while_a_script_ran(
    emulator: Emulator, subscriber: SubscriberAsyncClient
) -> None:
    stream = await opened(subscriber, subscribe(emulator, SLOW))
    emulator.publish("orders", b"a")
    await in_script(emulator)
    assert emulator.faults.cut_streams("worker") == 1

    with pytest.raises(ServiceUnavailable, match="cut by a test"):
        await anext(aiter(stream))
    assert emulator.messages("orders")[0].deliveries == []


# Pushes


async def test_a_push_goes_where_the_settings_say_once_its_script_is_done(
    emulator: Emulator, endpoint: Endpoint, other: Endpoint
) -> None:
    subscription = subscribe(emulator, SLOW, push_config={"push_endpoint": endpoint.url})
    emulator.publish("orders", b"a")
    await in_script(emulator)
    elsewhere = schema.PushConfig(push_endpoint=other.url, no_wrapper=schema.PushConfig.NoWrapper())
    emulator._broker.modify_push_config(subscription, elsewhere, now=emulator.clock.now())
    await emulator.until(lambda: emulator.backlog("worker") == 0)

    assert [request.body for request in other.requests] == [b"a"]
    assert endpoint.requests == []


async def test_what_is_pulled_by_the_time_its_script_is_done_is_not_pushed(
    emulator: Emulator, endpoint: Endpoint, subscriber: SubscriberAsyncClient
) -> None:
    push_config = {"push_endpoint": endpoint.url}
    subscription = subscribe(emulator, SLOW, push_config=push_config, **dead_letters(emulator))
    emulator.publish("orders", b"a")
    await in_script(emulator)
    emulator._broker.modify_push_config(subscription, schema.PushConfig(), now=emulator.clock.now())
    await emulator.until(lambda: emulator.outstanding("worker") == 0)
    (received,) = (await pull(subscriber, subscription)).received_messages

    assert endpoint.requests == []
    assert (received.message.data, received.delivery_attempt) == (b"a", 1)


async def test_what_is_left_out_of_a_push_is_no_ack_that_can_be_lost(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    subscribe(emulator, NONE, push_config={"push_endpoint": endpoint.url})
    emulator.faults.lose_acks("worker")
    emulator.publish("orders", b"a")
    await emulator.until(lambda: emulator.backlog("worker") == 0)

    assert endpoint.requests == []


async def test_time_waits_for_the_script_of_a_push(emulator: Emulator, endpoint: Endpoint) -> None:
    subscribe(emulator, after(100, "return null;"), push_config={"push_endpoint": endpoint.url})
    emulator.publish("orders", b"a")
    await emulator.advance(11)

    assert emulator.backlog("worker") == 0
    (message,) = emulator.messages("orders")
    assert len(message.deliveries) == 1


async def test_no_more_is_leased_for_pushes_than_scripts_can_take(
    emulator: Emulator, endpoint: Endpoint
) -> None:
    subscribe(emulator, after(400), push_config={"push_endpoint": endpoint.url})
    endpoint.hold()
    for _ in range(4):
        emulator.publish("orders", b"a")
    await emulator.until(lambda: emulator.outstanding("worker") > 0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (emulator.outstanding("worker"), endpoint.requests) == (2, [])
    await emulator.until(lambda: len(endpoint.requests) == 4)
    endpoint.release()
    await emulator.until(lambda: emulator.backlog("worker") == 0)


# What the emulator adds


async def test_attributes_that_the_emulator_added_may_stay(
    emulator: Emulator,
    channel: grpc.aio.Channel,
    publisher: PublisherAsyncClient,
    subscriber: SubscriberAsyncClient,
) -> None:
    schemas = SchemaServiceAsyncClient(transport=SchemaServiceGrpcAsyncIOTransport(channel=channel))
    parent = f"projects/{emulator.project}"
    definition = '{"type": "record", "name": "Shape", "fields": []}'
    made = await schemas.create_schema(
        parent=parent, schema=Schema(type_="AVRO", definition=definition), schema_id="shape"
    )
    topic = emulator.create_topic(
        "orders", schema_settings={"schema": made.name, "encoding": "JSON"}
    )
    subscription = subscribe(emulator, SAME)
    attributes = {str(number): "a" for number in range(100)}
    request = PublishRequest(topic=topic, messages=[{"data": b"{}", "attributes": attributes}])
    await publisher.publish(request=request, retry=None, timeout=20)
    (received,) = (await pull(subscriber, subscription)).received_messages

    assert len(received.message.attributes) == 103


def test_transforms_may_not_add_to_too_many_attributes() -> None:
    attributes = {str(number): "a" for number in range(103)}
    message = schema.PubsubMessage(data=b"a", attributes=attributes)

    def one_more(script: Script, text: str) -> str:
        del script
        made, _ = json.loads(text)
        made["attributes"]["more"] = "a"
        return json.dumps(made)

    with pytest.raises(ScriptError, match="104 is more than 103"):
        transformed(message, [Script("change", "")], one_more)


# Order


async def publish(
    publisher: PublisherAsyncClient, topic: str, data: bytes, *, key: str = ""
) -> None:
    request = PublishRequest(topic=topic, messages=[PubsubMessage(data=data, ordering_key=key)])
    await publisher.publish(request=request, retry=None, timeout=20)


SLOW_IF_TOLD = "while (message.data == 'slow' && Date.now() < end) {} return message;"


async def test_messages_of_a_key_are_kept_in_the_order_in_which_they_came(
    emulator: Emulator, publisher: PublisherAsyncClient
) -> None:
    slow = udf(f"const end = Date.now() + 400; {SLOW_IF_TOLD}")
    topic = emulator.create_topic("orders", message_transforms=[slow])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(publish(publisher, topic, b"slow", key="key"))
        await emulator.until(lambda: emulator._service.working == 1)
        tasks.create_task(publish(publisher, topic, b"fast", key="key"))

    assert [message.data for message in emulator.messages("orders")] == [b"slow", b"fast"]


async def test_messages_without_a_key_do_not_wait_for_their_turn() -> None:
    async with (
        Emulator(transform_timeout=600.0) as emulator,
        grpc.aio.insecure_channel(emulator.address) as channel,
    ):
        publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
        slow = udf(f"const end = Infinity; {SLOW_IF_TOLD}")
        topic = emulator.create_topic("orders", message_transforms=[slow])
        publishing = asyncio.create_task(publish(publisher, topic, b"slow", key="key"))
        await emulator.until(lambda: emulator._service.working == 1)
        await publish(publisher, topic, b"fast")
        publishing.cancel()

        assert [message.data for message in emulator.messages("orders")] == [b"fast"]


# The emulator ends


def child_of(emulator: Emulator) -> Popen[bytes]:
    """The process that runs an emulator's scripts."""
    assert emulator._transforms._runner
    (child,) = emulator._transforms._runner._children
    return child._process


async def test_a_start_that_fails_leaves_no_script_runner() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        emulator = Emulator(port=taken.getsockname()[1])
        emulator.create_topic("orders", message_transforms=[SAME])
        child = child_of(emulator)
        with pytest.raises(OSError, match="in use"):
            await emulator.__aenter__()

    assert child.poll() is not None


class _ClosesBadly(Emulator):
    async def _close(self) -> None:
        await super()._close()
        raise OSError("this did not work")


async def test_an_end_that_fails_leaves_no_script_runner() -> None:
    emulator = await _ClosesBadly().__aenter__()
    emulator.create_topic("orders", message_transforms=[SAME])
    child = child_of(emulator)
    with pytest.raises(OSError, match="did not work"):
        await emulator.__aexit__(None, None, None)

    assert child.poll() is not None


async def test_no_script_runs_after_the_end() -> None:
    async with Emulator() as emulator:
        pass
    with pytest.raises(ValueError, match="the emulator has stopped"):
        emulator.create_topic("orders", message_transforms=[SAME])

    assert emulator._transforms._runner is None
    assert emulator.create_topic("plain")


async def test_scripts_run_when_an_emulator_is_entered_again() -> None:
    emulator = Emulator()
    for data in (b"a", b"b"):
        async with emulator, grpc.aio.insecure_channel(emulator.address) as channel:
            if data == b"a":
                emulator.create_topic("orders", message_transforms=[SAME])
            topic = f"projects/{emulator.project}/topics/orders"
            transport = PublisherGrpcAsyncIOTransport(channel=channel)
            await publish(PublisherAsyncClient(transport=transport), topic, data)

    assert [message.data for message in emulator.messages()] == [b"a", b"b"]

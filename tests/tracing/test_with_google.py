"""Google's clients and ours in one trace, and their spans side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message as GoogleMessage
from opentelemetry.trace import SpanKind

from pubsub_aio import Message, SubscriberClient
from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.tracing.publishing import PublishTracer
from tests.subscriber_wire.conftest import WITHIN, until
from tests.tracing.conftest import Looks, Spans, context_of, looks_of, result_of, said

TOPIC = "orders"


@pytest.fixture
def publisher(pubsub_emulator: EmulatorThread) -> Iterator[pubsub_v1.PublisherClient]:
    """Google's, with tracing on."""
    del pubsub_emulator
    options = pubsub_v1.types.PublisherOptions(enable_open_telemetry_tracing=True)
    client = pubsub_v1.PublisherClient(publisher_options=options)
    yield client
    client.stop()


def topic_of(emulator: EmulatorThread) -> str:
    return f"projects/{emulator.project}/topics/{TOPIC}"


@contextmanager
def googles(subscription: str, work: Callable[[GoogleMessage], None]) -> Iterator[None]:
    """Google's subscriber with tracing on, for as long as the block lasts."""
    options = pubsub_v1.types.SubscriberOptions(enable_open_telemetry_tracing=True)
    with pubsub_v1.SubscriberClient(subscriber_options=options) as client:
        future = client.subscribe(subscription, work)
        try:
            yield
        finally:
            future.cancel()
            future.result(timeout=WITHIN)


@asynccontextmanager
async def ours(
    emulator: EmulatorThread, transport: str = "grpc"
) -> AsyncIterator[SubscriberClient]:
    """Our subscriber; its spans go where Google's go."""
    async with SubscriberClient(
        emulator.project,
        transport=transport,
        endpoint=f"http://{emulator.address}",
        tracing=True,
    ) as client:
        yield client


@pytest.mark.parametrize("transport", ["grpc", "rest"])
async def test_what_google_publishes_and_we_receive_is_one_trace(
    pubsub_emulator: EmulatorThread,
    publisher: pubsub_v1.PublisherClient,
    global_spans: Spans,
    transport: str,
) -> None:
    pubsub_emulator.create_subscription("ours", TOPIC)
    published = publisher.publish(topic_of(pubsub_emulator), b"x").result(timeout=WITHIN)

    async def work(message: Message) -> None:
        with global_spans.provider.get_tracer("mine").start_as_current_span("mine"):
            message.ack()

    async with ours(pubsub_emulator, transport) as client:
        client.subscribe("ours", work)
        await until(lambda: global_spans.all("ours subscribe"))

    create, subscribe = global_spans.one("orders create"), global_spans.one("ours subscribe")
    process = global_spans.one("ours process")
    assert global_spans.parent_of(subscribe) == "orders create"
    assert global_spans.linked_to(process) == ["orders create"]
    assert said(subscribe)["messaging.message.id"] == published
    assert result_of(subscribe) == "acked"
    together = {context_of(create).trace_id}
    for name in ("subscriber scheduler", "subscriber concurrency control", "mine"):
        together.add(context_of(global_spans.one(name)).trace_id)
    assert together == {context_of(subscribe).trace_id}
    assert global_spans.open == {}


async def test_what_we_publish_and_google_receives_is_one_trace(
    pubsub_emulator: EmulatorThread, global_spans: Spans
) -> None:
    subscription = pubsub_emulator.create_subscription("theirs", TOPIC)
    tracer, topic = PublishTracer(), topic_of(pubsub_emulator)
    created, attributes = tracer.create(topic, "", 1)
    request = tracer.depart(topic, [created])
    message_id = pubsub_emulator.publish(TOPIC, b"x", attributes=attributes)
    tracer.land(request, [created], message_ids=[message_id])

    with googles(subscription, lambda message: message.ack()):
        await until(lambda: global_spans.all("theirs subscribe"))

    create, subscribe = global_spans.one("orders create"), global_spans.one("theirs subscribe")
    assert global_spans.parent_of(subscribe) == "orders create"
    assert global_spans.linked_to(global_spans.one("theirs process")) == ["orders create"]
    assert context_of(create).trace_id == context_of(subscribe).trace_id
    assert said(create)["messaging.message.id"] == said(subscribe)["messaging.message.id"]


# Side by side


def alike(spans: Spans, of: str, name: str = "both") -> set[Looks]:
    """All spans of somebody's, under a name that both have."""

    def renamed(text: str | None) -> str | None:
        return text if text is None else text.replace(f"{of} ", f"{name} ")

    told: set[Looks] = set()
    for span in spans.ended:
        looks = looks_of(spans, span)
        if not (looks.name.startswith(of) or (looks.parent or "").startswith(of)):
            continue
        attributes = dict(looks.attributes)
        if attributes.get("messaging.batch.message_count") == 0:
            continue  # theirs has a span for the receipt of a response without messages
        if attributes.get("messaging.gcp_pubsub.is_receipt_modack") is False:
            continue  # when a lease is renewed is a matter of chance
        if "messaging.destination.name" in attributes:
            attributes["messaging.destination.name"] = name
        if "messaging.gcp_pubsub.message.ack_id" in attributes:
            attributes["messaging.gcp_pubsub.message.ack_id"] = "some"
        told.add(
            dataclasses.replace(
                looks,
                name=renamed(looks.name) or "",
                parent=renamed(looks.parent),
                attributes=frozenset(attributes.items()),
                events=tuple(dict.fromkeys(looks.events)),
                links=tuple({(renamed(to) or "", said): None for to, said in looks.links}),
            )
        )
    return told


@pytest.mark.parametrize("settle", ["ack", "nack"])
async def test_our_subscribers_spans_are_like_googles_for_one_and_the_same_message(
    pubsub_emulator: EmulatorThread,
    publisher: pubsub_v1.PublisherClient,
    global_spans: Spans,
    settle: str,
) -> None:
    """Names, kinds, attributes, events, parents and links, all of them."""
    spans = global_spans
    # What is nacked is not seen again.
    later = {"retry_policy": {"minimum_backoff": {"seconds": 600}}}
    theirs = pubsub_emulator.create_subscription("theirs", TOPIC, **later)
    pubsub_emulator.create_subscription("ours", TOPIC, **later)
    publisher.publish(topic_of(pubsub_emulator), b"data").result(timeout=WITHIN)

    async def work(message: Message) -> None:
        # Theirs tells the server of every receipt; ours not where an ack comes sooner.
        await until(lambda: spans.all("ours modack"))
        getattr(message, settle)()

    with googles(theirs, lambda message: getattr(message, settle)()):
        await until(lambda: spans.all("theirs subscribe"))
    async with ours(pubsub_emulator) as client:
        client.subscribe("ours", work)
        await until(lambda: spans.all("ours subscribe"))

    expected = alike(spans, "theirs")
    assert {looks.name for looks in expected} == {
        *("both subscribe", "subscriber scheduler", "subscriber concurrency control"),
        *("both process", "both modack", f"both {settle}"),
    }
    assert alike(spans, "ours") == expected


async def test_our_publishers_spans_are_like_googles(
    pubsub_emulator: EmulatorThread,
    publisher: pubsub_v1.PublisherClient,
    global_spans: Spans,
) -> None:
    pubsub_emulator.create_topic(TOPIC)
    topic = topic_of(pubsub_emulator)
    publisher.publish(topic, b"data").result(timeout=WITHIN)
    await until(lambda: global_spans.all("orders create"))
    theirs = told(global_spans)
    size = next(
        said(span)["messaging.message.body.size"]
        for span in global_spans.ended
        if span.kind is SpanKind.PRODUCER
    )
    global_spans.clear()
    assert isinstance(size, int)

    tracer = PublishTracer()
    created, _ = tracer.create(topic, "", size)
    tracer.land(tracer.depart(topic, [created]), [created], message_ids=["17"])

    assert told(global_spans) == theirs


def told(spans: Spans) -> set[Looks]:
    """All spans; the id that the server gave is left out."""
    return {_without_id(looks_of(spans, span)) for span in spans.ended}


def _without_id(looks: Looks) -> Looks:
    attributes = {name: value for name, value in looks.attributes if "message.id" not in name}
    return dataclasses.replace(looks, attributes=frozenset(attributes.items()))

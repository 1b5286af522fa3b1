"""The spans of a publisher's messages, whatever becomes of them."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

from pubsub_aio import (
    Batching,
    ConfigError,
    KeyPausedError,
    PublisherClient,
    PublisherStoppedError,
    PublishTimeoutError,
    QueueLimit,
    RetryPolicy,
    ServiceError,
    SubscriberClient,
)
from pubsub_aio.emulator import EmulatorThread
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, Listener, publisher_of
from tests.subscriber.conftest import virtual
from tests.subscriber_wire.conftest import until
from tests.tracing.conftest import Broken, Spans, context_of, said


@virtual
async def test_a_message_has_spans_from_publish_to_its_id(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    """Below the caller's own, and the context of its trace goes with it."""
    async with publisher_of(emulator, tracing=spans.provider) as publisher:
        with spans.provider.get_tracer("shop").start_as_current_span("sell"):
            flight = publisher.publish(TOPIC, b"tea", attributes={"a": "b"})
        message_id = await flight.ack

        created = spans.one("orders create")
        assert spans.parent_of(created) == "sell"
        assert said(created)["messaging.message.id"] == message_id
        assert said(created)["messaging.message.body.size"] == 3
        sent = emulator.message(message_id).attributes
        trace = f"{context_of(created).trace_id:032x}-{context_of(created).span_id:016x}"
        assert trace in sent["googclient_traceparent"]
        assert flight.attributes == {"a": "b"}
    assert sorted(spans.names) == [
        *("orders create", "orders publish", "publisher batching", "publisher flow control"),
        "sell",
    ]


@virtual
async def test_messages_that_go_together_share_the_span_of_their_request(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    async with publisher_of(emulator, tracing=spans.provider) as publisher:
        flights = [publisher.publish(TOPIC, b"%d" % number) for number in range(3)]
        flights += await publisher.publish_many(TOPIC, [b"3", b"4"])
        for flight in flights:
            await flight.ack

    request = spans.one("orders publish")
    assert said(request)["messaging.batch.message_count"] == 5
    assert spans.linked_to(request) == ["orders create"] * 5
    ids = {said(span)["messaging.message.id"] for span in spans.all("orders create")}
    assert ids == {flight.message_id for flight in flights}


@virtual
async def test_each_attempt_has_a_span_of_its_own(emulator: MemoryEmulator, spans: Spans) -> None:
    emulator.faults.fail("Publish", "UNAVAILABLE", times=2)
    async with publisher_of(emulator, tracing=spans.provider, retry=RetryPolicy()) as publisher:
        await publisher.publish(TOPIC, b"x").ack

    assert [span.status.status_code for span in spans.all("orders publish")] == [
        *(StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET)
    ]
    assert spans.one("orders create").status.status_code is StatusCode.UNSET


@virtual
async def test_whatever_becomes_of_a_message_its_spans_end(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    """Refused, timed out, withdrawn, paused, not taken, or stopped: with the reason in them."""
    publisher = PublisherClient(
        emulator.project,
        transport=emulator.transport(),
        tracing=spans.provider,
        max_in_flight=2,
        batching=Batching(max_messages=1),
        queue=QueueLimit(max_messages=3),
        listener=Listener(),
    )
    emulator.create_topic(TOPIC)
    await publisher.start()
    emulator.faults.fail("Publish", "PERMISSION_DENIED")
    with pytest.raises(ServiceError):
        await publisher.publish(TOPIC, b"refused", ordering_key="k").ack
    with pytest.raises(KeyPausedError):
        publisher.publish(TOPIC, b"paused", ordering_key="k")
    with pytest.raises(KeyPausedError):
        await publisher.publish_many(TOPIC, [b"paused", b"paused"], ordering_key="k")
    with pytest.raises(ConfigError):
        publisher.publish(TOPIC, b"too long", attributes={"a": "x" * 2_000})
    with pytest.raises(ConfigError):
        await publisher.publish_many(TOPIC, [b"good", (b"bad", {"": ""})])
    emulator.faults.delay("Publish", 60, times=4)
    with pytest.raises(PublishTimeoutError):
        await publisher.publish(TOPIC, b"slow").ack
    sent = [publisher.publish(TOPIC, b"stopped") for _ in range(2)]
    await sent[-1]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await publisher.publish(TOPIC, b"withdrawn")
    unsent = publisher.publish(TOPIC, b"unsent")
    await publisher.stop()
    with pytest.raises(PublisherStoppedError):
        await unsent.ack

    assert not spans.open
    created = spans.all("orders create")
    assert len(created) == 12
    assert {span.status.status_code for span in created} == {StatusCode.ERROR}


@virtual
async def test_a_broken_tracer_does_not_break_the_publisher(emulator: MemoryEmulator) -> None:
    for where in ("start", "end"):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(Broken(where))
        async with publisher_of(emulator, tracing=provider) as publisher:
            assert await publisher.publish(TOPIC, b"x").ack


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match="tracing must be a bool or a tracer provider, not 'on'"):
        PublisherClient("p", endpoint="http://localhost:1", tracing="on")  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["grpc", "rest"])
async def test_a_trace_goes_from_our_publisher_to_our_subscriber(
    pubsub_emulator: EmulatorThread, spans: Spans, transport: str
) -> None:
    pubsub_emulator.create_subscription("worker", TOPIC)
    address = f"http://{pubsub_emulator.address}"
    project = pubsub_emulator.project
    publisher = PublisherClient(
        project, transport=transport, endpoint=address, tracing=spans.provider
    )
    subscriber = SubscriberClient(
        project, transport=transport, endpoint=address, tracing=spans.provider
    )
    async with publisher, subscriber:
        subscriber.subscribe("worker", acked, auto_ack=True)
        await publisher.publish(TOPIC, b"x").ack
        await until(lambda: spans.all("worker subscribe"))

    assert spans.parent_of(spans.one("worker subscribe")) == "orders create"
    traces = {context_of(spans.one(name)).trace_id for name in ("orders create", "worker process")}
    assert len(traces) == 1


async def acked(message: object) -> None:
    """A callback that does nothing."""
    del message

"""The spans of a subscriber's messages, whatever becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from pubsub_aio import (
    Batch,
    ConfigError,
    FlowControl,
    Message,
    ShutdownPolicy,
    SubscriberClient,
)
from pubsub_aio.testing import MemoryEmulator
from pubsub_aio.tracing import span_of
from tests.subscriber.conftest import HOUR, MINUTE, TOPIC, WORKER, publish, virtual
from tests.tracing.conftest import Broken, Spans, complaints, context_of, events_of, result_of, said

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"
UNSAMPLED = f"00-{TRACE:032x}-{SPAN:016x}-00"


@contextlib.asynccontextmanager
async def traced(emulator: MemoryEmulator, spans: Spans) -> AsyncIterator[SubscriberClient]:
    async with SubscriberClient(
        project=emulator.project, transport=emulator.transport(), tracing=spans.provider
    ) as client:
        yield client


async def ack(message: Message) -> None:
    message.ack()


async def hold(_: Message) -> None:
    """Return without settling it."""


# What happens to a message


@virtual
async def test_a_message_has_spans_from_its_arrival_to_its_ack(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    emulator.publish(TOPIC, b"four", attributes={"googclient_traceparent": PARENT})
    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, ack)
        await asyncio.sleep(1)

    assert spans.names == [
        "subscriber scheduler",
        "subscriber concurrency control",
        "worker process",
        "worker ack",
        "worker subscribe",
    ]
    subscribe, process = spans.one("worker subscribe"), spans.one("worker process")
    assert (subscribe.kind, process.kind) == (SpanKind.CONSUMER, SpanKind.INTERNAL)
    assert subscribe.parent is not None
    assert (subscribe.parent.trace_id, subscribe.parent.span_id) == (TRACE, SPAN)
    for name in spans.names[:3]:
        assert spans.parent_of(spans.one(name)) == "worker subscribe"
    assert [link.context.span_id for link in process.links] == [SPAN]
    assert events_of(process) == ["ack called"]
    assert events_of(subscribe) == ["ack start", "ack end"]
    assert result_of(subscribe) == "acked"


@virtual
async def test_the_span_of_a_request_is_linked_with_those_of_its_messages(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, ack)
        await asyncio.sleep(1)

    request = spans.one("worker ack")
    assert (request.kind, request.parent) == (SpanKind.CLIENT, None)
    assert said(request)["messaging.batch.message_count"] == 3
    assert spans.linked_to(request) == ["worker subscribe"] * 3
    for subscribe in spans.all("worker subscribe"):
        (link,) = subscribe.links
        assert link.context.span_id == context_of(request).span_id
        assert link.attributes == {"messaging.operation.name": "ack"}


@virtual
async def test_a_message_without_a_context_begins_a_trace_wherever_it_is_subscribed(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 2)
    tracer = spans.provider.get_tracer("main")
    async with traced(emulator, spans) as client:
        with tracer.start_as_current_span("main"):
            client.subscribe(WORKER, ack)
            await asyncio.sleep(1)

    first, second = spans.all("worker subscribe")
    assert (first.parent, second.parent) == (None, None)
    assert context_of(first).trace_id != context_of(second).trace_id
    assert spans.one("worker ack").parent is None
    assert spans.all("worker process")[0].links == ()


@virtual
async def test_a_nack_is_told_and_ends_the_spans(emulator: MemoryEmulator, spans: Spans) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        message.nack(delay=600)

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    subscribe = spans.one("worker subscribe")
    assert events_of(spans.one("worker process")) == ["nack called"]
    assert events_of(subscribe) == ["nack start", "nack end"]
    assert result_of(subscribe) == "nacked"
    assert spans.linked_to(spans.one("worker nack")) == ["worker subscribe"]


@virtual
async def test_what_a_callback_raises_is_recorded_and_its_message_nacked(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        if not spans.all("worker process"):
            raise ZeroDivisionError("broken")
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    failed, again = spans.all("worker process")
    assert (failed.status.status_code, again.status.status_code) == (
        StatusCode.ERROR,
        StatusCode.UNSET,
    )
    assert failed.status.description == "ZeroDivisionError: broken"
    (raised,) = failed.events
    assert raised.name == "exception"
    assert raised.attributes is not None
    assert raised.attributes["exception.type"] == "ZeroDivisionError"
    assert [result_of(one) for one in spans.all("worker subscribe")] == ["nacked", "acked"]


@virtual
async def test_an_error_after_the_ack_is_recorded(emulator: MemoryEmulator, spans: Spans) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        await message.ack_with_response()
        raise ZeroDivisionError

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    assert events_of(spans.one("worker process")) == ["ack called", "exception"]
    assert spans.names[-2:] == ["worker subscribe", "worker process"]
    assert result_of(spans.one("worker subscribe")) == "acked"


@pytest.mark.parametrize("how", ["nack", "drop"])
@virtual
async def test_a_message_whose_lease_expires_has_its_spans_ended_while_its_callback_goes_on(
    emulator: MemoryEmulator, spans: Spans, how: str
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    forever = asyncio.Event()

    async def work(message: Message) -> None:
        await forever.wait()
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(
            WORKER,
            work,
            flow_control=FlowControl(max_lease_duration=30),
            on_lease_expiry="nack" if how == "nack" else "drop",
            max_overdue_callbacks=1,
        )
        await asyncio.sleep(35)
        assert "worker process" not in spans.open.values()
        forever.set()
        await asyncio.sleep(1)

    process, subscribe = spans.all("worker process")[0], spans.all("worker subscribe")[0]
    assert events_of(process) == ["expired"]
    assert result_of(subscribe) == "expired"
    assert "ack start" not in events_of(subscribe)


@virtual
async def test_a_message_that_is_left_unsettled_has_its_spans_until_it_expires(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=600)
    publish(emulator, 1)
    async with traced(emulator, spans) as client:
        flow = FlowControl(max_lease_duration=HOUR)
        client.subscribe(WORKER, hold, flow_control=flow, on_lease_expiry="drop")
        await asyncio.sleep(1)
        assert [*spans.open.values()] == ["worker subscribe"]
        assert events_of(spans.one("worker process")) == []
        await asyncio.sleep(HOUR)
        assert spans.open == {}

    assert result_of(spans.one("worker subscribe")) == "expired"


@virtual
async def test_a_dropped_message_has_its_spans_ended(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC, ack_deadline_seconds=600)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        message.drop()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)
        assert spans.open == {}

    assert result_of(spans.one("worker subscribe")) == "dropped"


@virtual
async def test_extensions_are_told_and_the_first_is_the_receipt(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        await asyncio.sleep(9)
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(MINUTE)

    receipt, renewal = spans.all("worker modack")
    assert said(receipt)["messaging.gcp_pubsub.is_receipt_modack"] is True
    assert said(renewal)["messaging.gcp_pubsub.is_receipt_modack"] is False
    assert said(receipt)["messaging.gcp_pubsub.message.ack_deadline"] == 10
    assert events_of(spans.one("worker subscribe")) == [
        *("modack start", "modack end", "modack start", "modack end", "ack start", "ack end")
    ]
    assert spans.linked_to(spans.one("worker subscribe")) == [
        *("worker modack", "worker modack", "worker ack")
    ]


@virtual
async def test_an_ack_that_is_sent_again_has_a_span_for_each_attempt(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    emulator.faults.fail("Acknowledge", "UNAVAILABLE")
    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, ack)
        await asyncio.sleep(5)

    refused, accepted = spans.all("worker ack")
    assert refused.status.status_code is StatusCode.ERROR
    assert "UNAVAILABLE" in (refused.status.description or "")
    assert accepted.status.status_code is StatusCode.UNSET
    assert events_of(spans.one("worker subscribe")) == ["ack start", "ack start", "ack end"]


@virtual
async def test_an_ack_that_is_refused_is_no_result(emulator: MemoryEmulator, spans: Spans) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        if not spans.all("worker process"):
            emulator.faults.fail_confirmations(WORKER, permanent=True)
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(5 * MINUTE)

    first, second = spans.all("worker subscribe")
    assert (result_of(first), result_of(second)) == (None, "acked")
    assert first.status.status_code is StatusCode.ERROR
    assert said(first)["messaging.gcp_pubsub.message.exactly_once_delivery"] is True


@virtual
async def test_a_message_that_the_server_gave_to_somebody_else_is_expired(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=True)
    publish(emulator, 1)

    async def work(message: Message) -> None:
        if not spans.all("worker process"):
            emulator.faults.fail_confirmations(WORKER, permanent=True)
            await asyncio.sleep(10 * MINUTE)
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(30 * MINUTE)

    assert [result_of(one) for one in spans.all("worker subscribe")] == ["expired", "acked"]
    assert events_of(spans.all("worker process")[0]) == ["expired"]


@pytest.mark.parametrize(("exactly_once", "result"), [(False, "copy"), (True, "expired")])
@virtual
async def test_a_copy_of_a_message_has_a_span_of_its_own_and_one_of_them_is_worked_on(
    emulator: MemoryEmulator, spans: Spans, exactly_once: bool, result: str
) -> None:
    """With exactly-once delivery it is the copy: the receipt of the first is refused."""
    emulator.create_subscription(WORKER, TOPIC, enable_exactly_once_delivery=exactly_once)
    publish(emulator, 1)
    emulator.faults.duplicate(WORKER)

    async def work(message: Message) -> None:
        await asyncio.sleep(5)
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(MINUTE)
        assert spans.open == {}

    assert [result_of(one) for one in spans.all("worker subscribe")] == [result, "acked"]
    assert len(spans.all("worker process")) == 1
    assert emulator.backlog(WORKER) == 0


@virtual
async def test_a_message_waits_in_one_span_for_its_turn_and_in_another_for_its_callback(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC, enable_message_ordering=True)
    publish(emulator, 2, key="a")
    go_on = asyncio.Event()

    async def work(message: Message) -> None:
        await go_on.wait()
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)
        waiting = [name for name in spans.open.values() if name.startswith("subscriber ")]
        assert waiting == ["subscriber scheduler"]
        go_on.set()
        await asyncio.sleep(1)

    subscribe = spans.all("worker subscribe")[0]
    assert said(subscribe)["messaging.gcp_pubsub.message.ordering_key"] == "a"


# In a callback


@virtual
async def test_spans_of_a_callback_belong_below_its_process_span(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 20)
    tracer = spans.provider.get_tracer("mine")
    mine: dict[str, bool] = {}

    async def work(message: Message) -> None:
        await asyncio.sleep(0.01)
        mine[message.message_id] = trace.get_current_span() is span_of(message)
        with tracer.start_as_current_span("mine"):
            await asyncio.sleep(0.01)
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    assert [*mine.values()] == [True] * 20
    below = {one.parent.span_id for one in spans.all("mine") if one.parent}
    assert below == {context_of(one).span_id for one in spans.all("worker process")}
    assert not trace.get_current_span().get_span_context().is_valid


@virtual
async def test_spans_of_a_plain_function_in_a_thread_do_too(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    threads: list[int] = []

    def work(message: Message) -> None:
        threads.append(threading.get_ident())
        with spans.provider.get_tracer("mine").start_as_current_span("mine"):
            message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    assert threads != [threading.get_ident()]
    assert spans.parent_of(spans.one("mine")) == "worker process"
    assert events_of(spans.one("worker process")) == ["ack called"]
    assert result_of(spans.one("worker subscribe")) == "acked"


@virtual
async def test_messages_of_a_batch_are_worked_on_for_as_long_as_its_callback_runs(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    current: list[bool] = []

    async def work(batch: Batch) -> None:
        current.append(trace.get_current_span().get_span_context().is_valid)
        with trace.use_span(span_of(batch[1])):
            spans.provider.get_tracer("mine").start_span("mine").end()
        batch.ack()
        raise ZeroDivisionError

    async with traced(emulator, spans) as client:
        client.subscribe_batches(WORKER, work, max_messages=3)
        await asyncio.sleep(1)

    assert current == [False]
    processed = spans.all("worker process")
    assert [events_of(one) for one in processed] == [["ack called", "exception"]] * 3
    (mine,) = spans.all("mine")
    assert mine.parent == context_of(processed[1])
    assert [result_of(one) for one in spans.all("worker subscribe")] == ["acked"] * 3


@virtual
async def test_a_message_of_async_for_is_worked_on_until_the_next_is_asked_for(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    worked_on: list[list[str]] = []
    async with (
        traced(emulator, spans) as client,
        contextlib.aclosing(client.messages(WORKER)) as messages,
    ):
        async for message in messages:
            worked_on.append([name for name in spans.open.values() if "process" in name])
            assert not trace.get_current_span().get_span_context().is_valid
            if len(worked_on) == 3:
                break
            message.ack()

    assert worked_on == [["worker process"]] * 3
    assert [events_of(one) for one in spans.all("worker process")] == [
        *(["ack called"], ["ack called"], ["nack called"])
    ]
    assert [result_of(one) for one in spans.all("worker subscribe")][:3] == [
        *("acked", "acked", "nacked")
    ]


@virtual
async def test_a_message_without_tracing_has_an_invalid_span(emulator: MemoryEmulator) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    async with SubscriberClient(emulator.project, transport=emulator.transport()) as client:
        (message,) = await client.pull(WORKER)
        assert not span_of(message).get_span_context().is_valid
        message.ack()


# The end


@pytest.mark.parametrize("mode", ["wait", "nack"])
@virtual
async def test_no_span_is_left_open_at_the_end(
    emulator: MemoryEmulator, spans: Spans, mode: str
) -> None:
    """Nor where a callback does not end, the server does not answer, or messages wait."""
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 40)
    stubborn: list[asyncio.Event] = []

    async def work(message: Message) -> None:
        if message.data in (b"0", b"1"):
            message.ack()
            return
        stubborn.append(over := asyncio.Event())
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    policy = ShutdownPolicy(mode="wait" if mode == "wait" else "nack", timeout=3, flush_timeout=1)
    flow = FlowControl(max_messages=10, max_request_batch_size=5)
    async with traced(emulator, spans) as client:
        emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=1_000)
        live = client.subscribe(WORKER, work, flow_control=flow, shutdown=policy)
        await asyncio.sleep(5)
        assert "worker process" in spans.open.values()
        live.stop()
        await live
        assert spans.open == {}
        for over in stubborn:
            over.set()

    assert {result_of(one) for one in spans.all("worker subscribe")} == {None, "nacked"}


@virtual
async def test_a_request_that_is_cut_off_at_the_end_has_no_span_that_looks_answered(
    emulator: MemoryEmulator, spans: Spans
) -> None:
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 1)
    emulator.faults.delay("Acknowledge", HOUR)
    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, ack, shutdown=ShutdownPolicy(flush_timeout=1))
        await asyncio.sleep(1)

    assert spans.one("worker ack").status.status_code is StatusCode.ERROR
    assert result_of(spans.one("worker subscribe")) is None


# What is not to be traced, and what cannot be


@virtual
async def test_a_message_that_is_not_sampled_is_acked_and_has_no_spans(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Its publisher decided so; the request is also about one that is sampled."""
    spans = Spans()
    emulator.create_subscription(WORKER, TOPIC)
    emulator.publish(TOPIC, b"0", attributes={"googclient_traceparent": UNSAMPLED})
    emulator.publish(TOPIC, b"1", attributes={"googclient_traceparent": PARENT})
    current: dict[bytes, int] = {}

    async def work(message: Message) -> None:
        current[message.data] = trace.get_current_span().get_span_context().trace_id
        message.ack()

    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, work)
        await asyncio.sleep(1)

    assert current == {b"0": TRACE, b"1": TRACE}
    request, subscribe = spans.one("worker ack"), spans.one("worker subscribe")
    assert said(request)["messaging.batch.message_count"] == 2
    assert [link.context for link in request.links] == [context_of(subscribe)]
    assert emulator.backlog(WORKER) == 0
    assert (spans.open, complaints(caplog)) == ({}, [])


@virtual
async def test_nothing_is_sampled_and_messages_are_acked(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    spans = Spans(ParentBased(ALWAYS_OFF))
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 3)
    async with traced(emulator, spans) as client:
        client.subscribe(WORKER, ack)
        await asyncio.sleep(1)

    assert emulator.backlog(WORKER) == 0
    assert (spans.ended, spans.open, complaints(caplog)) == ([], {}, [])


@pytest.mark.parametrize("where", ["start", "end"])
@virtual
async def test_a_broken_tracer_costs_no_message_and_is_complained_of_once(
    emulator: MemoryEmulator, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    spans = Spans()
    spans.provider.add_span_processor(Broken(where))
    emulator.create_subscription(WORKER, TOPIC)
    publish(emulator, 5)
    seen: list[bytes] = []

    async def work(message: Message) -> None:
        seen.append(message.data)
        await asyncio.sleep(1)  # extended meanwhile
        message.ack()

    async with traced(emulator, spans) as client:
        live = client.subscribe(WORKER, work)
        await asyncio.sleep(10)
        assert live.health().ok
        assert "raised" not in live.health().counts

    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]
    assert emulator.backlog(WORKER) == 0
    assert len(complaints(caplog)) == 1
    assert spans.open == {} or where == "start"


def test_tracing_must_be_a_bool_or_a_provider() -> None:
    with pytest.raises(ConfigError, match="tracing must be"):
        SubscriberClient("p", tracing="yes")  # type: ignore[arg-type] # it is refused

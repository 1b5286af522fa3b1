"""The spans of a publisher's messages."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from pubsub_aio.tracing.context import extracted
from pubsub_aio.tracing.publishing import PublishTracer
from tests.tracing.conftest import Broken, Spans, complaints, context_of, events_of, said

TOPIC = "projects/shop/topics/orders"


def test_a_published_message_has_a_span_below_its_callers_with_its_id(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    with spans.provider.get_tracer("mine").start_as_current_span("mine"):
        created, attributes = tracer.create(TOPIC, "key", 4)
        assert trace.get_current_span() is not created.create
    request = tracer.depart(TOPIC, [created])
    tracer.land(request, [created], message_ids=["17"])

    assert spans.names == [
        *("publisher flow control", "mine", "publisher batching", "orders publish"),
        "orders create",
    ]
    create = spans.one("orders create")
    assert (create.kind, spans.parent_of(create)) == (SpanKind.PRODUCER, "mine")
    assert said(create) == {
        "messaging.system": "gcp_pubsub",
        "messaging.destination.name": "orders",
        "gcp.project_id": "shop",
        "code.function": "publish",
        "messaging.operation": "create",
        "messaging.gcp_pubsub.message.ordering_key": "key",
        "messaging.message.body.size": 4,
        "messaging.message.id": "17",
    }
    assert events_of(create) == ["publish start", "publish end"]
    assert [*attributes] == ["googclient_traceparent"]
    told = trace.get_current_span(extracted(attributes)).get_span_context()
    assert told.span_id == context_of(create).span_id
    assert told.trace_flags.sampled
    for name in ("publisher flow control", "publisher batching"):
        assert spans.parent_of(spans.one(name)) == "orders create"


def test_the_span_of_a_request_is_linked_with_those_of_its_messages(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    created = [tracer.create(TOPIC, "", 1)[0] for _ in range(3)]
    with spans.provider.get_tracer("mine").start_as_current_span("mine"):
        request = tracer.depart(TOPIC, created)
    tracer.land(request, created, message_ids=["1", "2", "3"])

    publish = spans.one("orders publish")
    assert (publish.kind, publish.parent) == (SpanKind.CLIENT, None)
    assert said(publish)["messaging.batch.message_count"] == 3
    creates = spans.all("orders create")
    assert [link.context for link in publish.links] == [context_of(one) for one in creates]
    assert [spans.linked_to(one) for one in creates] == [["orders publish"]] * 3
    assert [said(one)["messaging.message.id"] for one in creates] == ["1", "2", "3"]


def test_an_error_is_recorded_in_the_request_and_in_every_message(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    created = [tracer.create(TOPIC, "", 1)[0] for _ in range(2)]
    tracer.land(tracer.depart(TOPIC, created), created, error=TimeoutError("late"))

    failed = [*spans.all("orders publish"), *spans.all("orders create")]
    assert [one.status.status_code for one in failed] == [StatusCode.ERROR] * 3
    assert [events_of(one)[-1] for one in failed] == ["exception"] * 3
    assert spans.one("orders publish").status.description == "TimeoutError: late"


def test_messages_that_are_sent_again_have_a_span_for_each_request(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    created, _ = tracer.create(TOPIC, "", 1)
    tracer.land(tracer.depart(TOPIC, [created]), [], error=TimeoutError())
    assert "orders create" in spans.open.values()
    tracer.land(tracer.depart(TOPIC, [created]), [created], message_ids=["1"])

    first, second = spans.all("orders publish")
    assert (first.status.status_code, second.status.status_code) == (
        StatusCode.ERROR,
        StatusCode.UNSET,
    )
    create = spans.one("orders create")
    assert create.status.status_code is StatusCode.UNSET
    assert spans.linked_to(create) == ["orders publish"] * 2
    assert len(spans.all("publisher batching")) == 1


def test_a_message_that_waits_for_room_is_batched_when_it_has_it(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    created, _ = tracer.create(TOPIC, "", 1, waits=True)
    assert sorted(spans.open.values()) == ["orders create", "publisher flow control"]
    tracer.admit(created)
    assert sorted(spans.open.values()) == ["orders create", "publisher batching"]
    tracer.land(tracer.depart(TOPIC, [created]), [created], message_ids=["1"])


@pytest.mark.parametrize("waits", [True, False])
def test_a_message_that_is_never_sent_has_the_reason_in_all_its_spans(
    spans: Spans, waits: bool
) -> None:
    tracer = PublishTracer(spans.provider)
    created, _ = tracer.create(TOPIC, "", 1, waits=waits)
    tracer.abandon([created], TimeoutError("full"))

    waited = "publisher flow control" if waits else "publisher batching"
    for name in (waited, "orders create"):
        assert spans.one(name).status.status_code is StatusCode.ERROR
        assert events_of(spans.one(name))[-1] == "exception"


def test_a_message_whose_id_did_not_come_has_its_span_ended(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    created = [tracer.create(TOPIC, "", 1)[0] for _ in range(2)]
    tracer.land(tracer.depart(TOPIC, created), created, message_ids=["1", "2", "3"][:1])

    assert [said(one).get("messaging.message.id") for one in spans.all("orders create")] == [
        *("1", None)
    ]


def test_a_second_end_is_none(spans: Spans) -> None:
    tracer = PublishTracer(spans.provider)
    created, _ = tracer.create(TOPIC, "", 1)
    request = tracer.depart(TOPIC, [created])
    tracer.land(request, [created], message_ids=["1"])
    tracer.land(request, [created], error=TimeoutError())
    tracer.abandon([created], TimeoutError())

    assert spans.one("orders create").status.status_code is StatusCode.UNSET


def test_a_message_that_is_not_sampled_tells_so_and_is_not_linked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent, spans = PublishTracer(Spans(ALWAYS_OFF).provider), Spans()
    created, attributes = silent.create(TOPIC, "", 1)
    tracer = PublishTracer(spans.provider)
    tracer.land(tracer.depart(TOPIC, [created]), [created], message_ids=["1"])

    told = trace.get_current_span(extracted(attributes)).get_span_context()
    assert (told.is_valid, told.trace_flags.sampled) == (True, False)
    assert spans.names == ["orders publish"]
    assert spans.one("orders publish").links == ()
    assert complaints(caplog) == []


@pytest.mark.parametrize("where", ["start", "end"])
def test_a_broken_tracer_is_contained_and_complained_of_once(
    caplog: pytest.LogCaptureFixture, where: str
) -> None:
    spans = Spans()
    spans.provider.add_span_processor(Broken(where))
    tracer = PublishTracer(spans.provider)
    for error in (None, TimeoutError()):
        created, attributes = tracer.create(TOPIC, "", 1)
        assert bool(attributes) is (where == "end")
        request = tracer.depart(TOPIC, [created])
        tracer.land(request, [created], message_ids=None if error else ["1"], error=error)
        tracer.abandon([tracer.create(TOPIC, "", 1)[0]], TimeoutError())

    assert len(complaints(caplog)) == 1
    assert spans.open == {} or where == "start"


def test_a_name_that_is_none_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    tracer = PublishTracer(Spans().provider)
    created, attributes = tracer.create("orders", "", 1)
    tracer.land(tracer.depart("orders", [created]), [created], message_ids=["1"])

    assert attributes == {}
    assert len(complaints(caplog)) == 1

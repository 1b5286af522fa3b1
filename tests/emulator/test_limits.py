"""Buckets and limits: numbers told the time."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import Message

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.limits import Bucket, Limits
from pubsub_aio.emulator.quotas import Quotas
from pubsub_aio.emulator.status import StatusError
from pubsub_aio.errors import ConfigError

NOW = 1_767_225_600.0
TOPIC = "projects/p/topics/orders"


def publish(size: int, *, topic: str = TOPIC) -> schema.PublishRequest:
    """A request whose message has so many bytes, a few more as it is encoded."""
    return schema.PublishRequest(topic=topic, messages=[schema.PubsubMessage(data=bytes(size))])


def wait_of(limits: Limits, rpc: str, request: Message, *, now: float) -> float:
    """What a call is told to wait; zero if it passes."""
    try:
        limits.admit(rpc, request, Broker(), now=now)
    except StatusError as refusal:
        return refusal.retry_delay or -1.0
    return 0.0


def test_new_bucket_is_full() -> None:
    bucket = Bucket(10, 50)
    assert bucket.level(NOW) == 50
    bucket.take(50, now=NOW)

    assert (bucket.level(NOW), bucket.passes_at(20)) == (0, NOW + 2)


def test_what_is_taken_beyond_its_capacity_is_owed() -> None:
    bucket = Bucket(10, 50)
    bucket.take(80, now=NOW)

    assert (bucket.level(NOW), bucket.passes_at(10), bucket.level(NOW + 3)) == (-30, NOW + 4, 0)
    assert bucket.level(NOW + 100) == 50


def test_what_is_larger_than_the_bucket_passes_once_it_is_full() -> None:
    bucket = Bucket(10, 50)
    bucket.take(1, now=NOW)

    assert bucket.passes_at(1_000) == bucket.passes_at(50) == NOW + 0.1


def test_refused_call_passes_when_it_was_told_it_would_and_not_before() -> None:
    numbers = random.Random(7)  # noqa: S311 - it guards nothing
    for _ in range(200):
        limits = Limits(Quotas(publisher_throughput=numbers.uniform(200, 1e6)))
        now = NOW + numbers.random()
        request = publish(numbers.randrange(1, 100_000))
        while not (wait := wait_of(limits, "Publish", request, now=now)):
            pass
        assert wait_of(limits, "Publish", request, now=now + wait - 0.0011)
        assert not wait_of(limits, "Publish", request, now=now + wait)


@pytest.mark.parametrize(("size", "counts"), [(1, 1), (900, 1), (1_000, 2), (4_990, 5)])
def test_request_counts_as_kilobytes(size: int, counts: int) -> None:
    limits = Limits(Quotas(publisher_throughput=10_000))
    passed = 0
    while not wait_of(limits, "Publish", publish(size), now=NOW):
        passed += 1

    assert passed == 10 // counts


def test_each_project_has_its_own() -> None:
    limits = Limits(Quotas(publisher_throughput=1_000))
    other = publish(1, topic="projects/q/topics/orders")
    assert not wait_of(limits, "Publish", publish(1), now=NOW)
    assert wait_of(limits, "Publish", publish(1), now=NOW) == 1

    assert not wait_of(limits, "Publish", other, now=NOW)


def test_operations_are_counted_by_the_minute() -> None:
    limits = Limits(Quotas(administrator_operations=30))
    get = schema.GetTopicRequest(topic=TOPIC)
    assert [wait_of(limits, "GetTopic", get, now=NOW) for _ in range(31)] == [0] * 30 + [2]

    assert [wait_of(limits, "GetTopic", get, now=NOW + 60) for _ in range(31)] == [0] * 30 + [2]


def test_what_is_not_limited_passes() -> None:
    limits = Limits(Quotas())
    requests: dict[str, Message] = {
        "Publish": publish(10_000_000),
        "Pull": schema.PullRequest(subscription="projects/p/subscriptions/worker"),
        "Acknowledge": schema.AcknowledgeRequest(ack_ids=["a" * 1_000] * 1_000),
        "GetTopic": schema.GetTopicRequest(topic=TOPIC),
        "StreamingPull": schema.StreamingPullRequest(),
    }
    for rpc, request in requests.items():
        for _ in range(100):
            assert not wait_of(limits, rpc, request, now=NOW)


def test_names_that_are_none_are_for_others_to_refuse() -> None:
    limits = Limits(Quotas(administrator_operations=1_000, topics_per_project=1, open_streams=1))
    for name in ("", "orders", "projects", "//"):
        assert not wait_of(limits, "GetTopic", schema.GetTopicRequest(topic=name), now=NOW)
        assert not wait_of(limits, "CreateTopic", schema.Topic(name=name), now=NOW)
        request = schema.StreamingPullRequest(subscription=name)
        assert not wait_of(limits, "StreamingPull", request, now=NOW)


def test_table_of_projects_is_bounded() -> None:
    limits = Limits(Quotas(publisher_throughput=1_000))
    for number in range(5_000):
        request = publish(1, topic=f"projects/p{number}/topics/orders")
        assert not wait_of(limits, "Publish", request, now=NOW)
        assert len(limits._buckets) <= 1_000

    # Those that are busy are known, though others come and go.
    assert wait_of(limits, "Publish", request, now=NOW)


@pytest.mark.parametrize(
    ("quota", "value"),
    [
        *(("publisher_throughput", wrong) for wrong in (0, -1, float("inf"), float("nan"), "1")),
        *(("topics_per_project", wrong) for wrong in (0, 1.5, True)),
    ],
)
def test_quota_must_be_a_number_above_zero(quota: str, value: object) -> None:
    with pytest.raises(ConfigError, match=quota):
        Quotas(**{quota: value})  # type: ignore[arg-type]

"""What a queue may be called, and what its topics and subscriptions are called then."""

from __future__ import annotations

import pytest

from pubsub_aio import AdminClient, ConfigError, PublisherClient, SubscriberClient
from pubsub_aio.jobs import JobQueue
from pubsub_aio.jobs.names import QueueNames
from pubsub_aio.testing import MemoryEmulator
from tests.subscriber.conftest import virtual


def names_of(name: str, topic: str | None = None) -> QueueNames:
    return QueueNames.of(SubscriberClient("p"), name, topic)


def test_names_may_be_short_or_full() -> None:
    full = names_of("projects/p/subscriptions/jobs", "projects/other/topics/orders")

    assert names_of("jobs", "projects/other/topics/orders") == full
    assert full.queue.topic == "projects/other/topics/orders"
    assert full.returns.topic == "projects/p/topics/jobs.return"


@pytest.mark.parametrize("name", ["job", "x" * 243, "a.b_c~d+e%20-f", "dead-letter", "return"])
def test_a_name_that_the_service_takes_is_taken(name: str) -> None:
    assert names_of(name).queue.topic == f"projects/p/topics/{name}"


@pytest.mark.parametrize("topic", ["a" * 255, "other.dead-letter", "other.return"])
def test_a_topic_may_be_as_long_as_any_and_belong_to_another_queue(topic: str) -> None:
    assert names_of("jobs", topic).queue.topic == f"projects/p/topics/{topic}"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("b", "name: must have at least 3 characters, not 1"),
        ("projects/p/subscriptions/b", "name: must have at least 3 characters, not 1"),
        ("x" * 250, "name: must have at most 243 characters, not 250"),
        ("1st", "name: must begin with a letter"),
        ("jobs!", "name: must begin with a letter, have letters, digits and"),
        ("jöbs", "name: must begin with a letter, have letters, digits and"),
        ("jobs\n", "name: must begin with a letter, have letters, digits and"),
        ("google", "name: .* not begin with"),
        ("projects/p/topics/jobs", "must be NAME or projects/PROJECT/subscriptions/NAME"),
        (5, "name: must be that of a subscription, not 5"),
        (None, "name: must be that of a subscription, not None"),
    ],
)
def test_a_name_that_the_service_refuses_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        names_of(name)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("", "topic: must be NAME or projects/PROJECT/topics/NAME, not ''"),
        (5, "topic: must be NAME or projects/PROJECT/topics/NAME, not 5"),
        ("ab", "topic: must have at least 3 characters, not 2"),
        ("a" * 256, "topic: must have at most 255 characters, not 256"),
        ("or ders", "topic: must begin with a letter, have letters, digits and"),
        ("_deleted-topic_", "topic: must begin with a letter"),
    ],
)
def test_a_topic_that_the_service_refuses_is_refused(topic: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        names_of("jobs", topic)


@pytest.mark.parametrize("suffix", ["dead-letter", "return"])
def test_a_queue_does_not_read_from_where_its_failures_go(suffix: str) -> None:
    """B5: each job that fails would come back at once, and once more as a dead letter."""
    for topic in (f"jobs.{suffix}", f"projects/p/topics/jobs.{suffix}"):
        with pytest.raises(ConfigError, match=f"topic: .*/jobs.{suffix} is the {suffix} topic of"):
            names_of("jobs", topic)


@pytest.mark.parametrize("suffix", ["dead-letter", "return"])
def test_a_queue_is_not_called_like_what_stands_beside_another(suffix: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"name: a queue cannot end with '.{suffix}', which belongs to the queue 'jobs': name",
    ):
        names_of(f"jobs.{suffix}")


@virtual
async def test_nothing_is_left_behind_by_a_name_that_is_refused(emulator: MemoryEmulator) -> None:
    async with (
        AdminClient(project=emulator.project, transport=emulator.transport()) as admin,
        SubscriberClient(emulator.project, transport=emulator.transport()) as subscriber,
        PublisherClient(emulator.project, transport=emulator.transport()) as publisher,
    ):
        for name, topic in (("b", None), ("jobs", "b"), ("jobs", "or ders")):
            with pytest.raises(ConfigError):
                await JobQueue(name, subscriber, publisher, topic=topic).create()

        assert [each.name async for each in admin.list_topics()] == []

"""Pushing as the broker decides it: told the time, without a server."""

from __future__ import annotations

import pytest

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.subscriptions import Subscription

TOPIC, NAME = "projects/p/topics/topic", "projects/p/subscriptions/worker"
DAY = 86_400.0


def broker_with(*texts: str, **settings: object) -> tuple[Broker, Subscription]:
    """A broker with messages, and a subscription that pushes them, at the time 0."""
    broker = Broker()
    broker.create_topic(schema.Topic(name=TOPIC), now=0.0)
    made = schema.message_class("google.pubsub.v1.Subscription")
    push_config = schema.PushConfig(push_endpoint="http://127.0.0.1/")
    config = made(name=NAME, topic=TOPIC, push_config=push_config, **settings)
    broker.create_subscription(config, now=0.0)
    messages = [schema.PubsubMessage(data=text.encode()) for text in texts]
    broker.publish(TOPIC, [message.SerializeToString() for message in messages], now=0.0)
    return broker, broker.subscription(NAME)


def push_all(broker: Broker, subscription: Subscription, *, now: float) -> dict[str, str]:
    """Begin every push that may begin: data by ack id."""
    begun: dict[str, str] = {}
    while (received := broker.push(subscription, now=now)[0]) is not None:
        begun[received.ack_id] = received.message.data.decode()
    return begun


def test_push_hands_out_no_more_than_may_be_under_way() -> None:
    broker, subscription = broker_with(*"abcdef")

    begun = push_all(broker, subscription, now=1.0)
    assert list(begun.values()) == ["a", "b", "c", "d"]
    broker.settle_push(subscription, next(iter(begun)), acked=True, now=1.0)
    assert list(push_all(broker, subscription, now=1.0).values()) == ["e", "f"]


def test_push_that_has_no_response_comes_again_after_a_pause() -> None:
    broker, subscription = broker_with("a")
    (ack_id,) = push_all(broker, subscription, now=1.0)
    assert broker.next_at == 11.0
    broker.settle_push(subscription, ack_id, acked=True, now=11.0)
    assert push_all(broker, subscription, now=11.05) == {}
    assert broker.next_at == 11.1

    assert list(push_all(broker, subscription, now=11.1).values()) == ["a"]


def test_push_to_another_endpoint_does_not_wait() -> None:
    broker, subscription = broker_with("a")
    (ack_id,) = push_all(broker, subscription, now=1.0)
    broker.settle_push(subscription, ack_id, acked=False, now=1.0)
    assert push_all(broker, subscription, now=1.0) == {}
    broker.modify_push_config(NAME, schema.PushConfig(push_endpoint="http://x/"), now=1.0)

    assert list(push_all(broker, subscription, now=1.0).values()) == ["a"]


@pytest.mark.parametrize("acked", [False, True])
def test_only_a_success_is_activity(acked: bool) -> None:
    expires = schema.ExpirationPolicy()
    expires.ttl.seconds = int(DAY)
    broker, subscription = broker_with("a", expiration_policy=expires)
    (ack_id,) = push_all(broker, subscription, now=DAY - 1)
    broker.settle_push(subscription, ack_id, acked=acked, now=DAY - 1)
    broker.poll(DAY)

    assert (NAME in broker.subscriptions) is acked


@pytest.mark.parametrize("how", ["delete", "detach"])
def test_response_after_the_end_is_nobodys(how: str) -> None:
    broker, subscription = broker_with("a")
    (ack_id,) = push_all(broker, subscription, now=1.0)
    getattr(broker, f"{how}_subscription")(NAME, now=2.0)

    broker.settle_push(subscription, ack_id, acked=True, now=3.0)
    assert push_all(broker, subscription, now=3.0) == {}


def test_subscriptions_that_begin_to_push_are_told() -> None:
    broker, subscription = broker_with()
    assert list(broker.unserved) == [subscription]
    broker.unserved.clear()
    broker.modify_push_config(NAME, schema.PushConfig(), now=1.0)
    assert not broker.unserved
    broker.modify_push_config(NAME, schema.PushConfig(push_endpoint="http://x/"), now=1.0)

    assert list(broker.unserved) == [subscription]

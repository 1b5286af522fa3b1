"""Deliveries that are taken back before they are sent: told the time, without a server."""

from __future__ import annotations

import pytest

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.response import Consumer
from pubsub_aio.emulator.subscriptions import Subscription

TOPIC, NAME = "projects/p/topics/topic", "projects/p/subscriptions/worker"
ATTEMPTS = 5


def stocked(*texts: str, ordered: bool = False) -> tuple[Broker, Subscription]:
    """A broker with messages, all of one key if they are ordered, at the time 0.

    What is nacked comes again after ten seconds, and five times.
    """
    broker = Broker()
    broker.create_topic(schema.Topic(name=TOPIC), now=0.0)
    config = schema.Subscription(name=NAME, topic=TOPIC, enable_message_ordering=ordered)
    config.dead_letter_policy.dead_letter_topic = TOPIC
    config.dead_letter_policy.max_delivery_attempts = ATTEMPTS
    config.retry_policy.minimum_backoff.seconds = 10
    config.retry_policy.maximum_backoff.seconds = 10
    broker.create_subscription(config, now=0.0)
    key = "key" if ordered else ""
    messages = [schema.PubsubMessage(data=text.encode(), ordering_key=key) for text in texts]
    broker.publish(TOPIC, [message.SerializeToString() for message in messages], now=0.0)
    return broker, broker.subscription(NAME)


def take(
    broker: Broker, subscription: Subscription, consumer: Consumer | None = None, *, now: float
) -> dict[str, tuple[str, int]]:
    """What there is: data and attempt, by ack id."""
    consumer = consumer or broker.puller(subscription)
    payload, _ = broker.take(subscription, consumer, limit=10, now=now)
    received = schema.PullResponse.FromString(payload).received_messages
    return {each.ack_id: (each.message.data.decode(), each.delivery_attempt) for each in received}


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_withdrawn_comes_again_at_once_and_in_order_and_counts_once(ordered: bool) -> None:
    broker, subscription = stocked(*"abc", ordered=ordered)
    for _ in range(2 * ATTEMPTS):
        taken = take(broker, subscription, now=1.0)
        assert list(taken.values()) == [("a", 1), ("b", 1), ("c", 1)]
        broker.withdraw(subscription, list(taken), now=1.0)
        assert subscription.deliveries.outstanding == 0
    ids = list(take(broker, subscription, now=1.0))
    broker.modify_ack_deadline(subscription, ids, 0, now=1.0)

    assert take(broker, subscription, now=10.9) == {}
    again = take(broker, subscription, now=11.0)
    assert list(again.values()) == [("a", 2), ("b", 2), ("c", 2)]
    assert not {*again} & {*ids, *taken}
    assert broker.acknowledge(subscription, list(again), now=11.0) == {}
    assert subscription.deliveries.backlog == 0


def test_a_key_of_which_the_last_is_withdrawn_goes_on_with_it() -> None:
    broker, subscription = stocked(*"abc", ordered=True)
    consumer = broker.puller(subscription)
    _, second, third = take(broker, subscription, consumer, now=1.0)
    broker.withdraw(subscription, [third], now=1.0)

    assert take(broker, subscription, now=1.0) == {}  # another has messages of the key
    assert list(take(broker, subscription, consumer, now=1.0).values()) == [("c", 1)]
    broker.withdraw(subscription, [second], now=1.0)
    assert subscription.deliveries.outstanding == 1
    again = take(broker, subscription, consumer, now=1.0)
    assert list(again.values()) == [("b", 1), ("c", 2)]  # c was sent, and goes after b


def test_a_key_that_must_wait_does_so_although_one_of_it_is_withdrawn() -> None:
    broker, subscription = stocked(*"ab", ordered=True)
    first, second = take(broker, subscription, now=1.0)
    broker.modify_ack_deadline(subscription, [second], 0, now=1.0)
    broker.withdraw(subscription, [first], now=1.0)

    assert take(broker, subscription, now=10.9) == {}
    assert list(take(broker, subscription, now=11.0).values()) == [("a", 1), ("b", 2)]


def test_nothing_is_withdrawn_twice_or_too_late() -> None:
    broker, subscription = stocked("a", "b")
    first, second = take(broker, subscription, now=1.0)
    broker.acknowledge(subscription, [first], now=1.0)
    for _ in range(2):
        broker.withdraw(subscription, [first, second], now=1.0)
    assert list(take(broker, subscription, now=1.0).values()) == [("b", 1)]
    broker.withdraw(subscription, [first, second], now=1.0)

    assert subscription.deliveries.outstanding == 1


def test_the_journal_does_not_tell_of_deliveries_that_were_withdrawn() -> None:
    broker, subscription = stocked("a")
    broker.withdraw(subscription, list(take(broker, subscription, now=1.0)), now=1.0)
    (ack_id,) = take(broker, subscription, now=2.0)

    (message,) = broker.journal.messages(lambda _: True)
    assert [(each.ack_id, each.attempt) for each in message.deliveries] == [(ack_id, 1)]
    assert (message.acks, message.modacks) == ([], [])

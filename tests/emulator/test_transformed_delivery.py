"""What a response holds when every message of it is transformed first."""

import asyncio
from collections.abc import Callable

import pytest

from pubsub_aio._wire import schema
from pubsub_aio.emulator.broker import Broker
from pubsub_aio.emulator.status import Code, StatusError
from pubsub_aio.emulator.subscriptions import Subscription
from pubsub_aio.emulator.transformed_delivery import TransformedDelivery
from pubsub_aio.emulator.transforms import Transform

TOPIC = "projects/project/topics/topic"
NAME = "projects/project/subscriptions/subscription"


def stocked(*bodies: bytes) -> tuple[Broker, Subscription]:
    """A broker, and a subscription that has these messages."""
    broker = Broker()
    broker.create_topic(schema.Topic(name=TOPIC), now=0.0)
    policy = schema.DeadLetterPolicy(dead_letter_topic=TOPIC)
    config = schema.Subscription(name=NAME, topic=TOPIC, dead_letter_policy=policy)
    broker.create_subscription(config, now=0.0)
    messages = [schema.PubsubMessage(data=body) for body in bodies]
    broker.publish(TOPIC, [message.SerializeToString() for message in messages], now=0.0)
    return broker, broker.subscription(NAME)


async def take(
    broker: Broker, subscription: Subscription, transform: Transform
) -> list[schema.ReceivedMessage]:
    """One response."""
    delivery = TransformedDelivery(broker, subscription, transform, now=lambda: 1.0)
    payload, _ = await delivery.take(broker.puller(subscription), limit=10)
    return list(schema.PullResponse.FromString(payload).received_messages)


async def same(message: schema.PubsubMessage) -> schema.PubsubMessage:
    return message


async def grown(message: schema.PubsubMessage) -> schema.PubsubMessage:
    message.data = message.data * 2_000_000
    return message


async def test_what_does_not_fit_beside_others_is_not_taken() -> None:
    broker, subscription = stocked(b"a" * 2_000_000, b"b" * 2_000_000, b"c")
    responses = [await take(broker, subscription, same) for _ in range(3)]

    first = [[received.message.data[:1] for received in response] for response in responses]
    assert first == [[b"a"], [b"b", b"c"], []]
    attempts = [received.delivery_attempt for response in responses for received in response]
    assert attempts == [1, 1, 1]


async def test_what_has_grown_too_large_comes_with_the_next_response() -> None:
    broker, subscription = stocked(b"a", b"b", b"c")
    responses = [await take(broker, subscription, grown) for _ in range(4)]

    received = [
        [(each.message.data[:1], each.delivery_attempt) for each in response]
        for response in responses
    ]
    assert received == [[(b"a", 1)], [(b"b", 1)], [(b"c", 1)], []]


async def test_a_cancelled_response_gives_back_what_it_had_taken() -> None:
    broker, subscription = stocked(b"a", b"b")
    reached = asyncio.Event()

    async def stuck_at_b(message: schema.PubsubMessage) -> schema.PubsubMessage:
        if message.data == b"b":
            reached.set()
            await asyncio.Event().wait()
        return message

    task = asyncio.create_task(take(broker, subscription, stuck_at_b))
    await reached.wait()
    assert subscription.deliveries.outstanding == 2
    task.cancel()
    await asyncio.wait([task])

    assert subscription.deliveries.outstanding == 0
    again = await take(broker, subscription, same)
    assert [(received.message.data, received.delivery_attempt) for received in again] == [
        (b"a", 1),
        (b"b", 1),
    ]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Broker.delete_subscription, Code.NOT_FOUND),
        (Broker.detach_subscription, Code.FAILED_PRECONDITION),
    ],
    ids=["deleted", "detached"],
)
async def test_a_subscription_that_ended_meanwhile_gives_nothing_out(
    end: Callable[..., None], code: Code, kept: bool
) -> None:
    broker, subscription = stocked(b"a", b"b")

    async def ending(message: schema.PubsubMessage) -> schema.PubsubMessage | None:
        if message.data == b"b":
            end(broker, NAME, now=1.0)
        return message if kept else None

    with pytest.raises(StatusError) as caught:
        await take(broker, subscription, ending)
    assert caught.value.code is code

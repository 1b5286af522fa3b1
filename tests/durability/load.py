"""Clients that go on until their server is killed, and note what it answered."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator

import grpc
import grpc.aio
from google.protobuf.message import Message

from pubsub_aio._wire import schema
from tests.durability.record import Record

PROJECT = "projects/durable"
KEYS = 5
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

Call = Callable[[str, Message], Awaitable[bytes]]


class Traffic:
    """A topic with one subscription, its publishers and its subscriber."""

    def __init__(
        self, name: str, *, ordered: bool, exactly_once: bool, batch: int, size: int
    ) -> None:
        self.name = name
        self.topic = f"{PROJECT}/topics/{name}"
        self.subscription = f"{PROJECT}/subscriptions/{name}"
        self.ordered = ordered
        self.batch = batch
        self.size = size
        self.record = Record(exactly_once)
        self._numbers = itertools.count()
        self._random = random.Random(name)  # noqa: S311 - what to ack is no secret

    async def create(self, call: Call) -> None:
        await call("Publisher/CreateTopic", schema.Topic(name=self.topic))
        made = schema.Subscription(
            name=self.subscription,
            topic=self.topic,
            ack_deadline_seconds=600,
            enable_message_ordering=self.ordered,
            enable_exactly_once_delivery=self.record.exactly_once,
        )
        await call("Subscriber/CreateSubscription", made)

    async def publish(self, call: Call, key: str) -> None:
        """Publish one batch after another until there is no server."""
        while True:
            numbers = list(itertools.islice(self._numbers, self.batch))
            self.record.keys.update(dict.fromkeys(numbers, key))
            messages = [
                schema.PubsubMessage(data=b"%d " % number + b"x" * self.size, ordering_key=key)
                for number in numbers
            ]
            request = schema.PublishRequest(topic=self.topic, messages=messages)
            reply = schema.PublishResponse.FromString(await call("Publisher/Publish", request))
            self.record.answered.update(zip(numbers, reply.message_ids, strict=True))

    async def subscribe(self, call: Call, life: int, *, share: float = 0.9) -> None:
        """Pull, and ack a share of what comes, those of a key from the first on."""
        while True:
            asked = schema.PullRequest(
                subscription=self.subscription, max_messages=100, return_immediately=share == 1
            )
            response = schema.PullResponse.FromString(await call("Subscriber/Pull", asked))
            ids: dict[int, str] = {}
            for received in response.received_messages:
                number = int(received.message.data.split(maxsplit=1)[0])
                self.record.delivered.append((number, life, received.message.message_id))
                ids[number] = received.ack_id
            chosen = {n: i for n, i in ids.items() if self._random.random() < share}
            if self.ordered:
                count = len(ids) if share == 1 else self._random.randrange(len(ids) + 1)
                chosen = dict(itertools.islice(ids.items(), count))
            if chosen:
                acked = schema.AcknowledgeRequest(
                    subscription=self.subscription, ack_ids=list(chosen.values())
                )
                for number in chosen:
                    self.record.asked.setdefault(number, len(self.record.delivered))
                await call("Subscriber/Acknowledge", acked)
                self.record.acked |= dict.fromkeys(chosen, len(self.record.delivered))
            if not ids and share == 1:
                return

    def clients(self, call: Call, life: int) -> Iterator[Awaitable[None]]:
        """Everybody who is at work at once."""
        keys = [f"key-{number}" for number in range(KEYS)] if self.ordered else ["", ""]
        yield from (self.publish(call, key) for key in keys)
        yield self.subscribe(call, life)


class Settings:
    """Somebody who makes and deletes topics all the time."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.gone: set[str] = set()
        self._numbers = itertools.count()

    async def change(self, call: Call) -> None:
        """Make topics, and delete some, until there is no server."""
        while True:
            name = f"{PROJECT}/topics/made-{next(self._numbers)}"
            await call("Publisher/CreateTopic", schema.Topic(name=name))
            self.there.add(name)
            if len(self.there) > 20:
                old = min(self.there)
                self.there.discard(old)  # if there is no answer, nothing is known of it
                await call("Publisher/DeleteTopic", schema.DeleteTopicRequest(topic=old))
                self.gone.add(old)

    async def check(self, call: Call) -> list[str]:
        """What is not as it was answered."""
        names: set[str] = set()
        token = ""
        while True:
            asked = schema.ListTopicsRequest(project=PROJECT, page_size=1_000, page_token=token)
            page = schema.ListTopicsResponse.FromString(await call("Publisher/ListTopics", asked))
            names |= {topic.name for topic in page.topics}
            token = page.next_page_token
            if not token:
                break
        lost = [f"{name} was made and is gone" for name in self.there - names]
        return lost + [f"{name} was deleted and is there" for name in self.gone & names]


async def until_killed(clients: list[Awaitable[None]]) -> None:
    """Run clients until each of them has lost its server."""

    async def one(client: Awaitable[None]) -> None:
        try:
            await client
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise

    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(one(client))


def connect(address: str) -> tuple[grpc.aio.Channel, Call]:
    """A channel, and calls on it."""
    channel = grpc.aio.insecure_channel(address, options=_OPTIONS)

    async def call(rpc: str, request: Message) -> bytes:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        method = channel.unary_unary(f"/google.pubsub.v1.{rpc}")
        return await method(request.SerializeToString(), timeout=60)

    return channel, call

"""The clients that ours is compared with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.bench.publisher_inbox import KEY
from tests.bench.publisher_trial import Figures, Trial, Window

if TYPE_CHECKING:
    import grpc.aio

_BATCH = 1_000
"""Messages in a request, where the caller makes the batches: the most that the service takes."""


async def google(trial: Trial) -> Figures:
    """The official client: a future a message, batches sent from threads."""
    from google.cloud.pubsub_v1 import PublisherClient
    from google.cloud.pubsub_v1.types import BatchSettings

    client = PublisherClient(BatchSettings(**trial.settings))
    path = trial.path

    async def publish(messages: Window) -> list[str]:
        # It blocks the loop, which nobody else uses.
        futures = [client.publish(path, data, key=value) for data, value in messages]
        return [future.result() for future in futures]

    figures = await trial.measure(publish)
    client.stop()
    return figures


async def gcloud_aio(trial: Trial) -> Figures:
    """The other asyncio client, over REST: its caller makes the batches, some sent at once."""
    from gcloud.aio.pubsub import PublisherClient, PubsubMessage

    path, at_once = trial.path, trial.settings["at_once"]

    async def publish(messages: Window) -> list[str]:
        batches = _batches(messages)
        ids: list[str] = []
        for start in range(0, len(batches), at_once):
            answers = await asyncio.gather(
                *(
                    client.publish(path, [PubsubMessage(data, key=value) for data, value in batch])
                    for batch in batches[start : start + at_once]
                )
            )
            for answer in answers:
                ids += answer["messageIds"]
        return ids

    async with PublisherClient(api_root=f"http://{trial.rest}/v1") as client:
        return await trial.measure(publish)


async def bare(trial: Trial) -> Figures:
    """What grpc.aio and protobuf alone cost: full batches, no future a message."""
    import grpc.aio

    from pubsub_aio._wire import schema

    path = trial.path

    async def publish(messages: Window) -> list[str]:
        calls = []
        for batch in _batches(messages):
            request = schema.PublishRequest(topic=path)
            for data, value in batch:
                request.messages.add(data=data).attributes[KEY] = value
            calls.append(send(request.SerializeToString()))
        ids: list[str] = []
        for call in calls:
            ids += schema.PublishResponse.FromString(await call).message_ids
        return ids

    async with grpc.aio.insecure_channel(trial.grpc) as channel:
        send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/google.pubsub.v1.Publisher/Publish"
        )
        return await trial.measure(publish)


def _batches(messages: Window) -> list[Window]:
    return [messages[start : start + _BATCH] for start in range(0, len(messages), _BATCH)]

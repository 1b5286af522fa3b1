"""The clients that ours is compared with."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.bench.subscriber_feed import STAMP
from tests.bench.subscriber_trial import WARM_UP, Figures, Trial

if TYPE_CHECKING:
    import grpc.aio
    from gcloud.aio.pubsub import SubscriberMessage
    from google.cloud.pubsub_v1.subscriber.message import Message as GoogleMessage

_ACK_BATCH = 250


async def google(trial: Trial) -> Figures:
    """The official client as it comes: a streaming pull, callbacks in its thread pool."""
    from google.cloud import pubsub_v1

    seen = trial.seen

    def callback(message: GoogleMessage) -> None:
        seen.append(len(message.data))
        message.ack()

    def timed(message: GoogleMessage) -> None:
        seen.append(time.monotonic_ns() - int(message.data[:STAMP]))
        message.ack()

    with pubsub_v1.SubscriberClient() as client:
        chosen = timed if trial.kind == "latency" else callback
        keep_alive = client.subscribe(trial.path, chosen)
        figures = await asyncio.to_thread(trial.measure)
        keep_alive.cancel()
        keep_alive.result()
    return figures


async def gcloud_aio(trial: Trial) -> Figures:
    """The other asyncio client: it pulls over REST, and acks what a callback returned from."""
    from gcloud.aio.pubsub import SubscriberClient, subscribe

    seen = trial.seen

    async def callback(message: SubscriberMessage) -> None:
        seen.append(len(message.data or b""))

    async with SubscriberClient(api_root=f"http://{trial.rest}/v1") as client:
        work = subscribe(trial.path, callback, client, **trial.settings)
        return await trial.measure_beside(asyncio.ensure_future(work))


async def bare(trial: Trial) -> Figures:
    """What grpc.aio and protobuf alone cost: no leases, no callbacks."""
    import grpc.aio

    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(trial.grpc, options) as channel:
        return await trial.measure_beside(asyncio.ensure_future(_receive(channel, trial)))


async def _receive(channel: grpc.aio.Channel, trial: Trial) -> None:
    from pubsub_aio._wire import schema

    service = "/google.pubsub.v1.Subscriber"
    acknowledge: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        f"{service}/Acknowledge"
    )
    open_stream: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
        f"{service}/StreamingPull"
    )
    opening = schema.StreamingPullRequest(
        subscription=trial.path, stream_ack_deadline_seconds=60, max_outstanding_messages=1_000
    )
    stream = open_stream()
    await stream.write(opening.SerializeToString())
    seen, ids = trial.seen, list[str]()

    async def ack(request: bytes) -> None:
        await acknowledge(request)

    async with asyncio.TaskGroup() as acks:
        while isinstance(data := await stream.read(), bytes):
            for received in schema.StreamingPullResponse.FromString(data).received_messages:
                seen.append(len(received.message.data))
                ids.append(received.ack_id)
            # The last ones of a run would wait for others that never come.
            if len(ids) >= _ACK_BATCH or len(seen) in (WARM_UP, WARM_UP + trial.count):
                request = schema.AcknowledgeRequest(subscription=trial.path, ack_ids=ids)
                acks.create_task(ack(request.SerializeToString()))
                ids = []
